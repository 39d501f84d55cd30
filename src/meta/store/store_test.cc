// Stores of several ranks, as threads of this process: all operations, restarts with another number of ranks,
// a rank that dies, a log that fails, and 32 threads of clients.
#include "meta/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <latch>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"
#include "net/fabric/loopback_transport.h"

namespace swale::meta::store_test {
namespace {

using testing::HasSubstr;

// Segments of `count` interleaved writers of 512 bytes.
std::vector<Extent> strided(uint64_t writer, uint64_t writers, uint64_t count) {
  std::vector<Extent> segments;
  for (uint64_t i = 0; i < count; ++i)
    segments.push_back({(i * writers + writer) * 512, 512, {static_cast<LogId>(writer), i * 512}});
  return segments;
}

void expect_strided(const Found& found, uint64_t first, uint64_t writers, uint64_t cells) {
  uint64_t at = first * 512;
  for (const Extent& each : found.extents) {
    ASSERT_EQ(each.offset, at);
    for (uint64_t byte = 0; byte < each.length; byte += 512) {
      const uint64_t cell = (at + byte) / 512;
      ASSERT_EQ(each.place.log, cell % writers);
      ASSERT_EQ(each.place.address + byte, cell / writers * 512);
    }
    at += each.length;
  }
  ASSERT_EQ(at, (first + cells) * 512);
}

TEST(StoreSettings, ARingCombinesRequestsOfLargeJobsAlone) {
  const auto ring_of = [](std::string_view text) {
    return store_options(Config::make(store_option_rows(), text).value()).ring;
  };
  EXPECT_EQ(ring_of(""), std::nullopt);
  EXPECT_EQ(ring_of("meta.ring=ring"), RingMode::kRing);
  EXPECT_EQ(ring_of("meta.ring=plain"), RingMode::kPlain);
  EXPECT_EQ(ring_for(1), RingMode::kPlain);
  EXPECT_EQ(ring_for(63), RingMode::kPlain);
  EXPECT_EQ(ring_for(64), RingMode::kRing);
}

TEST(Store, RanksPutAndGetOneFileThroughAllServers) {
  io::MemoryDevice device;
  run_ranks(4, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("/run/checkpoint", Client::kCreate, 0644, 5);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE(rank.client->put(&*file, strided(static_cast<uint64_t>(rank.job.rank()), 4, 100)).ok());
    const auto closed = rank.client->close(&*file, 6);
    ASSERT_TRUE(closed.ok());
    barrier(rank);
    const auto stat = rank.client->stat("/run/checkpoint");
    ASSERT_TRUE(stat.ok());
    EXPECT_EQ(stat->size, 400u * 512);
    EXPECT_EQ(stat->mode, 0644u);
    Found found;
    const ByteRange range{3 * 512, 300 * 512};
    ASSERT_TRUE(rank.client->get(*file, std::span(&range, 1), &found).ok());
    expect_strided(found, 3, 4, 300);
    // The same as runs: this rank's blocks.
    meta::Run query;
    query.offset = static_cast<uint64_t>(rank.job.rank()) * 512;
    query.length = 512;
    query.levels = 1;
    query.level[0] = {100, 4 * 512, 512};
    FoundRuns found_runs;
    ASSERT_TRUE(rank.client->get_runs(*file, std::span(&query, 1), &found_runs).ok());
    ASSERT_EQ(found_runs.ends, std::vector<size_t>{found_runs.runs.size()});
    uint64_t bytes = 0;
    for (const meta::Run& run : found_runs.runs) bytes += blocks_of(run) * run.length;
    EXPECT_EQ(bytes, 100u * 512);
    std::vector<Extent> all, some;
    for (uint64_t at = 0; at < kOffsetEnd;) {
      ASSERT_TRUE(rank.client->scan(*file, at, 7, &some, &at).ok());
      all.insert(all.end(), some.begin(), some.end());
    }
    merge_extents(&all);
    Found whole;
    whole.extents = all;
    expect_strided(whole, 0, 4, 400);
  });
}

TEST(Store, ExclusiveCreationHasOneWinnerAmongRanks) {
  for (const RingMode mode : {RingMode::kRing, RingMode::kDirect, RingMode::kPlain}) {
    io::MemoryDevice device;
    std::atomic<int> winners = 0;
    run_ranks(5, device, small_ranges(mode), [&](RankOf& rank) {
      for (int i = 0; i < 5; ++i) {
        const auto made =
            rank.client->open(fmt::format("f{}", i), Client::kCreate | Client::kExclusive, 0, 0);
        if (made.ok()) ++winners;
        EXPECT_TRUE(made.ok() || made.status().code() == Code::kAlreadyExists) << made.status().to_string();
      }
    });
    EXPECT_EQ(winners, 5);
  }
}

TEST(Store, TruncateSealAndRemoveReachAllServers) {
  io::MemoryDevice device;
  run_ranks(3, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    const auto me = static_cast<uint64_t>(rank.job.rank());
    ASSERT_TRUE(rank.client->put(&*file, strided(me, 3, 64)).ok());
    ASSERT_TRUE(rank.client->close(&*file, 0).ok());
    barrier(rank);
    if (me == 1) {
      ASSERT_TRUE(rank.client->truncate(&*file, 100 * 512, 9).ok());
    }
    barrier(rank);
    Found found;
    const ByteRange all{0, 200 * 512};
    ASSERT_TRUE(rank.client->get(*file, std::span(&all, 1), &found).ok());
    expect_strided(found, 0, 3, 100);
    EXPECT_EQ(rank.client->stat("f")->size, 100u * 512);
    barrier(rank);
    // What is put after the truncate counts, though this handle was opened before it.
    if (me == 2) {
      const Extent late{110 * 512, 512, {110 % 3, 110 / 3 * 512}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&late, 1)).ok());
      ASSERT_TRUE(rank.client->close(&*file, 0).ok());
    }
    barrier(rank);
    EXPECT_EQ(rank.client->stat("f")->size, 111u * 512);
    barrier(rank);
    ASSERT_TRUE(rank.client->seal(&*file).ok());
    EXPECT_TRUE(file->attributes.sealed);
    barrier(rank);
    const Extent more{0, 512, {0, 0}};
    EXPECT_EQ(rank.client->put(&*file, std::span(&more, 1)).code(), Code::kInvalidArgument);
    ASSERT_TRUE(rank.client->get(*file, std::span(&all, 1), &found).ok());
    EXPECT_EQ(found.extents.back().offset + found.extents.back().length, 111u * 512);
    barrier(rank);
    if (me == 0) {
      ASSERT_TRUE(rank.client->remove("f").ok());
    }
    barrier(rank);
    EXPECT_EQ(rank.client->stat("f").status().code(), Code::kNotFound);
    barrier(rank);
    auto again = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_TRUE(rank.client->get(*again, std::span(&all, 1), &found).ok());
    EXPECT_TRUE(found.extents.empty());
    barrier(rank);
    ASSERT_TRUE(rank.client->put(&*again, std::span(&more, 1)).ok());  // no longer sealed
  });
}

TEST(Store, ASealedRegularFileIsReadWithoutAServer) {
  io::MemoryDevice device;
  run_ranks(4, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(rank.client->put(&*file, strided(static_cast<uint64_t>(rank.job.rank()), 4, 200)).ok());
    ASSERT_TRUE(rank.client->close(&*file, 0).ok());
    barrier(rank);
    ASSERT_TRUE(rank.client->seal(&*file).ok());
    ASSERT_NE(file->table, nullptr);
    auto opened = rank.client->open("f", 0, 0, 0);
    ASSERT_TRUE(opened.ok() && opened->table != nullptr);
    EXPECT_LE(opened->table->runs().size(), 4u);
    barrier(rank);
    uint64_t before = 0, after = 0;
    rank.store.with_servers([&](ServerCore& core) { before += core.counters().gets; });
    Found found;
    const ByteRange range{5 * 512, 700 * 512};
    ASSERT_TRUE(rank.client->get(*opened, std::span(&range, 1), &found).ok());
    expect_strided(found, 5, 4, 700);
    rank.store.with_servers([&](ServerCore& core) { after += core.counters().gets; });
    EXPECT_EQ(before, after);
  });
}

TEST(Store, AnOverwrittenFileHasNoTableAndTheRightBytes) {
  io::MemoryDevice device;
  run_ranks(2, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    if (rank.job.rank() == 0) {
      ASSERT_TRUE(rank.client->put(&*file, strided(0, 1, 100)).ok());
      const Extent over{10 * 512, 512, {9, 77}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&over, 1)).ok());
    }
    barrier(rank);
    ASSERT_TRUE(rank.client->seal(&*file).ok());
    Found found;
    const ByteRange range{10 * 512, 512};
    ASSERT_TRUE(rank.client->get(*file, std::span(&range, 1), &found).ok());
    ASSERT_EQ(found.extents.size(), 1u);
    EXPECT_EQ(found.extents[0].place, (Place{9, 77}));
  });
}

TEST(Store, ALaterJobWithFewerRanksFindsEverything) {
  io::MemoryDevice device;
  run_ranks(4, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0600, 0);
    ASSERT_TRUE(rank.client->put(&*file, strided(static_cast<uint64_t>(rank.job.rank()), 4, 100)).ok());
    ASSERT_TRUE(rank.client->close(&*file, 0).ok());
  });
  std::vector<size_t> files;
  for (const int32_t size : {1, 3, 1}) {
    run_ranks(size, device, small_ranges(), [](RankOf& rank) {
      EXPECT_EQ(rank.store.partition().servers(), 4u);
      auto file = rank.client->open("f", 0, 0, 0);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      EXPECT_EQ(file->attributes.size, 400u * 512);
      Found found;
      const ByteRange range{0, 400 * 512};
      ASSERT_TRUE(rank.client->get(*file, std::span(&range, 1), &found).ok());
      expect_strided(found, 0, 4, 400);
    });
    files.push_back(device.list("store")->size());
  }
  EXPECT_LE(files.back(), files.front());  // what earlier jobs left and nobody needs is removed
}

TEST(Store, AFailedSyncMakesOneServerReadOnlyAndSaysSo) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  net::JobOptions job_options;
  auto job = net::Job::open(net::solo_bootstrap(), job_options);
  auto store = Store::open(**job, device, "store", small_ranges());
  ASSERT_TRUE(store.ok());
  {
    auto client = (*store)->client();
    auto file = client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(client->put(&*file, strided(0, 2, 10)).ok());
    device.inject({.kind = io::CallKind::kSync, .from_then_on = true});
    const Status failed = client->put(&*file, strided(1, 2, 10));
    EXPECT_FALSE(failed.ok());
    device.clear();
    EXPECT_FALSE(client->put(&*file, strided(1, 2, 10)).ok());  // for good
    Found found;
    const ByteRange range{0, 20 * 512};
    ASSERT_TRUE(client->get(*file, std::span(&range, 1), &found).ok());
    EXPECT_EQ(found.extents.size(), 10u);  // what was acknowledged is still there
  }
  EXPECT_FALSE((*store)->close().ok());
  EXPECT_TRUE((*job)->close().ok());
}

// Storage is full for a while: what fails is told as that, what was acknowledged stays, and the next try
// succeeds.
TEST(Store, GoesOnWhenAFullDiskHasSpaceAgain) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    if (rank.job.rank() == 0) {
      ASSERT_TRUE(rank.client->put(&*file, strided(0, 2, 100)).ok());
    }
    barrier(rank);
    if (rank.job.rank() == 0) {
      device.inject({.action = io::FaultAction::kTear,
                     .kind = io::CallKind::kWrite,
                     .from_then_on = true,
                     .status = error(Code::kNoSpace, Scope::kFile, "no space left on the device"),
                     .position = 100});
      EXPECT_EQ(rank.client->put(&*file, strided(1, 2, 100)).code(), Code::kNoSpace);
      EXPECT_EQ(rank.client->open("g", Client::kCreate, 0, 0).status().code(), Code::kNoSpace);
      EXPECT_EQ(rank.client->truncate(&*file, 512, 0).code(), Code::kNoSpace);
      device.clear();
    }
    barrier(rank);
    Found found;
    const ByteRange all{0, 200 * 512};
    ASSERT_TRUE(rank.client->get(*file, std::span(&all, 1), &found).ok());
    EXPECT_EQ(found.extents.size(), 100u);
    EXPECT_EQ(rank.client->stat("g").status().code(), Code::kNotFound);
    barrier(rank);
    if (rank.job.rank() == 0) {
      ASSERT_TRUE(rank.client->put(&*file, strided(1, 2, 100)).ok());
      EXPECT_TRUE(rank.client->open("g", Client::kCreate, 0, 0).ok());
    }
    barrier(rank);
    ASSERT_TRUE(rank.client->get(*file, std::span(&all, 1), &found).ok());
    expect_strided(found, 0, 2, 200);
    barrier(rank);
    if (rank.job.rank() == 1) {
      ASSERT_TRUE(rank.client->truncate(&*file, 100 * 512, 0).ok());
    }
    barrier(rank);
    ASSERT_TRUE(rank.client->get(*file, std::span(&all, 1), &found).ok());
    expect_strided(found, 0, 2, 100);
  });
}

// A seal waits for the groups before it, and a void one will never be durable.
TEST(Store, ASealRightAfterAFullDiskIsAnswered) {
  io::MemoryDevice memory;
  io::FaultDevice device(memory);
  run_ranks(1, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    find_no_space(&device);
    EXPECT_EQ(rank.client->put(&*file, strided(0, 1, 100)).code(), Code::kNoSpace);
    device.clear();
    const Status sealed = rank.client->seal(&*file);
    EXPECT_TRUE(sealed.ok()) << sealed.to_string();
  });
}

// Two jobs in one process, as two would be on one host.
TEST(Store, OneJobHasAStoreOpenAtATime) {
  io::MemoryDevice device;
  StoreOptions options = small_ranges();
  options.lease.wait = 0;
  const auto open_job = [] { return *net::Job::open(net::solo_bootstrap(), net::JobOptions()); };
  const auto first_job = open_job(), second_job = open_job();
  auto first = Store::open(*first_job, device, "store", options);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto refused = Store::open(*second_job, device, "store", options);
  EXPECT_EQ(refused.status().code(), Code::kBusy) << refused.status().to_string();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("swale.lock"));
  {
    auto client = (*first)->client();  // and nothing happened to the first one
    auto file = client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(client->put(&*file, strided(0, 1, 10)).ok());
  }
  EXPECT_TRUE((*first)->close().ok());
  auto second = Store::open(*second_job, device, "store", options);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE((*second)->close().ok());
  // Canary: without the lock's file the second one would get in, and fence the first.
  first = Store::open(*first_job, device, "store", options);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(device.remove("store/swale.lock").ok());
  second = Store::open(*second_job, device, "store", options);
  ASSERT_TRUE(second.ok());
  {
    auto client = (*first)->client();
    EXPECT_FALSE(client->open("g", Client::kCreate, 0, 0).ok());
  }
  EXPECT_TRUE((*second)->close().ok());
  EXPECT_FALSE((*first)->close().ok());
  EXPECT_TRUE(first_job->close().ok());
  EXPECT_TRUE(second_job->close().ok());
}

TEST(Store, GarbageIsRefusedAndChangesNothing) {
  io::MemoryDevice device;
  run_ranks(1, device, small_ranges(), [](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    for (const Extent& bad :
         {Extent{5, 0, {1, 0}}, Extent{kOffsetEnd, 1, {1, 0}}, Extent{kOffsetEnd - 1, 2, {1, 0}},
          Extent{UINT64_MAX, UINT64_MAX, {1, 0}}, Extent{0, 1, {kHoleLog, 0}}}) {
      EXPECT_EQ(rank.client->put(&*file, std::span(&bad, 1)).code(), Code::kInvalidArgument);
    }
    for (const ByteRange& bad :
         {ByteRange{0, 0}, ByteRange{kOffsetEnd, 1}, ByteRange{1, UINT64_MAX}, ByteRange{0, kOffsetEnd}}) {
      Found found;
      EXPECT_EQ(rank.client->get(*file, std::span(&bad, 1), &found).code(), Code::kInvalidArgument);
    }
    const Extent last{kOffsetEnd - 10, 10, {1, 5}};
    ASSERT_TRUE(rank.client->put(&*file, std::span(&last, 1)).ok());
    const ByteRange end{kOffsetEnd - 100, 100};
    Found found;
    ASSERT_TRUE(rank.client->get(*file, std::span(&end, 1), &found).ok());
    ASSERT_EQ(found.extents.size(), 1u);
    EXPECT_EQ(found.extents[0].offset, kOffsetEnd - 10);
    EXPECT_EQ(rank.client->open("", Client::kCreate, 0, 0).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(rank.client->open(std::string(5000, 'x'), Client::kCreate, 0, 0).status().code(),
              Code::kInvalidArgument);
    EXPECT_EQ(rank.client->open("nothing", 0, 0, 0).status().code(), Code::kNotFound);
  });
}

TEST(Store, ManyThreadsOfClientsUseOneStore) {
  io::MemoryDevice device;
  run_ranks(2, device, small_ranges(), [](RankOf& rank) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 16; ++t) {
      threads.emplace_back([&rank, t] {
        const auto client = rank.store.client();
        const uint64_t writer = static_cast<uint64_t>(rank.job.rank()) * 16 + t;
        auto file = client->open("f", Client::kCreate, 0, 0);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        const std::vector<Extent> mine = strided(writer, 32, 30);
        for (size_t at = 0; at < mine.size(); at += 10) {
          const Status put = client->put(&*file, std::span(mine).subspan(at, 10));
          ASSERT_TRUE(put.ok()) << put.to_string();
          Found found;
          const ByteRange range{mine[at].offset, 512};
          ASSERT_TRUE(client->get(*file, std::span(&range, 1), &found).ok());
          ASSERT_EQ(found.extents, std::vector<Extent>{mine[at]});
        }
        ASSERT_TRUE(client->close(&*file, 0).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    barrier(rank);
    EXPECT_EQ(rank.client->stat("f")->size, 32u * 30 * 512);
  });
}

std::shared_ptr<net::LoopbackFabric> open_fabric() {
  for (uint64_t id = 1;; ++id) {
    if (auto fabric = net::LoopbackFabric::find(id)) return fabric;
  }
}

TEST(Store, AKilledRankFailsOperationsOnItsServersByName) {
  io::MemoryDevice device;
  net::JobOptions job_options;
  job_options.transport = "loopback";
  job_options.posting = "direct";
  job_options.close_deadline = milliseconds(200);
  const auto group = std::make_shared<net::LocalGroup>(3);
  std::latch ready(3), done(3);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = net::Job::open(net::local_bootstrap(group, rank), job_options);
      ASSERT_TRUE(job.ok());
      auto store = Store::open(**job, device, "store", small_ranges());
      ASSERT_TRUE(store.ok());
      auto client = (*store)->client();
      auto file = client->open("f", Client::kCreate, 0, 0);
      ASSERT_TRUE(file.ok());
      ready.arrive_and_wait();
      if (rank == 1) {
        open_fabric()->kill(1);
      } else {
        Status failed;
        const Nanos until = system_clock().now() + seconds(60);
        while (failed.ok() && system_clock().now() < until) failed = client->put(&*file, strided(0, 1, 100));
        EXPECT_EQ(failed.code(), Code::kUnavailable) << failed.to_string();
        EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 1 (host "));
        EXPECT_THAT(std::string(failed.message()), HasSubstr("\"put\""));
        // Other servers answer, and delegates go around the dead one.
        for (int i = 0; i < 20; ++i) {
          const std::string name = fmt::format("g{}", i);
          const auto made = client->open(name, Client::kCreate, 0, 0);
          const bool root_is_dead = (*store)->partition().root_of(name) == 1;
          EXPECT_EQ(made.ok(), !root_is_dead) << made.status().to_string();
        }
      }
      done.arrive_and_wait();
      client.reset();
      store->reset();
      static_cast<void>((*job)->close());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace swale::meta::store_test
