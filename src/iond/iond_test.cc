// I/O servers and their clients, as ranks in threads of this process: all operations against plain strings,
// what is refused, ranks that die, and what is there afterwards. tests/mount/iond_test.py does it with
// processes.
#include "iond/iond.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "io/posix_device.h"
#include "iond/iond_files.h"
#include "iond/testing/iond_rig.h"

namespace swale::iond::iond_test {
namespace {

using testing::HasSubstr;

TEST(Striping, SaysWhereEachByteIs) {
  for (const uint32_t servers : {1u, 2u, 3u, 5u}) {
    const Striping striping{kStripeBytesMin, servers, servers / 2};
    ASSERT_TRUE(striping.check().ok());
    std::vector<uint64_t> parts(servers);
    const uint64_t end = 7 * servers * kStripeBytesMin + 5;
    for (uint64_t offset = 0; offset < end; offset += 4093) {
      // Byte by byte, as the words of the header say.
      const uint32_t server = static_cast<uint32_t>((offset / kStripeBytesMin + striping.first) % servers);
      const uint64_t at = striping.part_bytes(server, offset);
      ASSERT_EQ(striping.place_of(server, at), offset);
      ASSERT_EQ(striping.part_bytes(server, offset + 1), at + 1);
      ASSERT_EQ(striping.end_of(server, at + 1), offset + 1);
      uint64_t sum = 0;
      for (uint32_t each = 0; each < servers; ++each) sum += striping.part_bytes(each, offset);
      ASSERT_EQ(sum, offset);
    }
    EXPECT_EQ(striping.end_of(0, 0), 0u);
  }
  EXPECT_FALSE((Striping{kStripeBytesMin - 4096, 1, 0}).check().ok());
  EXPECT_FALSE((Striping{2 * kStripeBytesMax, 1, 0}).check().ok());
  EXPECT_FALSE((Striping{kMiB, 2, 2}).check().ok());
}

// A file and what it must contain.
struct Model {
  IondFile file;
  std::string bytes;
};

void check_content(Iond* iond, const Model& model) {
  const auto size = iond->size(model.file);
  ASSERT_TRUE(size.ok()) << size.status().to_string();
  ASSERT_EQ(*size, model.bytes.size());
  std::string found(model.bytes.size() + 1000, '?');
  const auto got = iond->read(model.file, 0, found);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_EQ(*got, model.bytes.size());
  found.resize(*got);
  ASSERT_TRUE(found == model.bytes) << "content of " << model.file.name;
}

void change_at_random(Iond* iond, Rng* rng, Model* model) {
  constexpr uint64_t kSizeMax = 700'000;
  const uint64_t offset = rng->below(kSizeMax / 2);
  if (rng->chance(1, 6)) {
    model->bytes.resize(offset, '\0');
    ASSERT_TRUE(iond->truncate(model->file, offset).ok());
    return;
  }
  if (rng->chance(1, 4)) {
    std::string found(rng->below(kSizeMax / 2), '?');
    const auto got = iond->read(model->file, offset, found);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    const std::string expected =
        offset < model->bytes.size() ? model->bytes.substr(offset, found.size()) : std::string();
    ASSERT_TRUE(found.substr(0, *got) == expected);
    return;
  }
  const std::string data(1 + rng->below(rng->chance(1, 3) ? kSizeMax / 2 : 5000),
                         static_cast<char>('a' + rng->below(26)));
  if (model->bytes.size() < offset + data.size()) model->bytes.resize(offset + data.size(), '\0');
  model->bytes.replace(offset, data.size(), data);
  const Status written = iond->write(model->file, offset, data);
  ASSERT_TRUE(written.ok()) << written.to_string();
}

TEST_F(IondTest, FilesAreWhatPlainFilesWouldBeAndOutliveTheJob) {
  for (const int32_t servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    std::vector<std::map<std::string, std::string>> left(3);
    run_ranks(servers + 3, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      Iond& iond = **here.iond;
      Rng rng(static_cast<uint64_t>(here.rank * 100 + servers));
      std::vector<Model> models;
      for (int i = 0; i < 3; ++i) {
        auto file = iond.open_file(fmt::format("f{}.{}", here.rank, i), kIondCreate | kIondExclusive);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        models.push_back({*std::move(file), {}});
      }
      for (int i = 0; i < 60; ++i) {
        change_at_random(&iond, &rng, &models[rng.below(models.size())]);
        if (testing::Test::HasFatalFailure()) return;
      }
      for (const Model& model : models) check_content(&iond, model);
      // The second file takes the third one's name, by which the third can be read no more.
      ASSERT_TRUE(iond.rename(models[1].file.name, models[2].file.name).ok());
      check_content(&iond, models[2]);
      for (Model& model : models) {
        ASSERT_TRUE(iond.sync(model.file).ok());
        ASSERT_TRUE(iond.close_file(&model.file).ok());
      }
      left[static_cast<size_t>(here.rank - servers)] = {{models[0].file.name, models[0].bytes},
                                                        {models[2].file.name, models[1].bytes}};
      EXPECT_EQ(iond.open_file(models[1].file.name, 0).status().code(), Code::kNotFound);
    });
    // Another job, the same directories.
    run_ranks(servers + 1, servers, [&](RankOf& here) {
      ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
      Iond& iond = **here.iond;
      for (const auto& files : left)
        for (const auto& [name, bytes] : files) {
          auto file = iond.open_file(name, 0);
          ASSERT_TRUE(file.ok()) << file.status().to_string();
          check_content(&iond, {*file, bytes});
          ASSERT_TRUE(iond.close_file(&*file).ok());
          ASSERT_TRUE(iond.remove(name).ok());
          EXPECT_EQ(iond.remove(name).code(), Code::kNotFound);
        }
      ASSERT_TRUE(iond.drain().ok());
    });
    for (const auto& each : std::filesystem::recursive_directory_iterator(root_))
      EXPECT_FALSE(each.is_regular_file() && each.path().string().find("/.swale-parts/") != std::string::npos)
          << each.path() << " is left";
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
  }
}

TEST_F(IondTest, RanksThatAllServeShareAFile) {
  run_ranks(3, 3, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok());
    Iond& iond = **here.iond;
    auto file = iond.open_file("shared", kIondCreate);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    // Each rank has every third record of 50,000 bytes.
    for (int i = 0; i < 9; ++i)
      ASSERT_TRUE(iond.write(*file, static_cast<uint64_t>((i * 3 + here.rank) * 50'000),
                             std::string(50'000, static_cast<char>('0' + here.rank)))
                      .ok());
    ASSERT_TRUE(here.job.allgather("").ok());
    std::string all(27 * 50'000, '?');
    const auto got = iond.read(*file, 0, all);
    ASSERT_TRUE(got.ok() && *got == all.size());
    for (size_t i = 0; i < all.size(); i += 10'000)
      ASSERT_EQ(all[i], static_cast<char>('0' + i / 50'000 % 3));
    ASSERT_TRUE(iond.close_file(&*file).ok());
  });
}

TEST_F(IondTest, OtherStripingsAreRefusedByName) {
  run_ranks(3, 2, [&](RankOf& here) {
    auto file = (*here.iond)->open_file("f", kIondCreate);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*here.iond)->write(*file, 0, "abc").ok());
  });
  // Ranks that differ.
  adjust_ = [](net::Rank rank, IondOptions* options) { options->stripe_bytes <<= rank == 2; };
  expect_clean_ = false;
  const auto refused = [&](const char* what) {
    return [what](RankOf& here) {
      ASSERT_FALSE(here.iond.ok());
      EXPECT_EQ(here.iond.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(here.iond.status().to_string(), HasSubstr(what));
    };
  };
  run_ranks(3, 2, refused("rank 0 opened with iond.stripe=\"65536\", rank 2 with iond.stripe=\"131072\""),
            refused("rank 2 with iond.stripe"));
  // All alike, and other than the file.
  adjust_ = [](net::Rank, IondOptions* options) { options->stripe_bytes = kMiB; };
  expect_clean_ = true;
  run_ranks(3, 2, [&](RankOf& here) {
    const auto file = (*here.iond)->open_file("f", kIondCreate);
    EXPECT_EQ(file.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(file.status().to_string(), HasSubstr("f: is striped in 65536 bytes over 2 servers"));
    EXPECT_THAT(file.status().to_string(), HasSubstr("1048576"));
  });
  // Another number of servers.
  adjust_ = {};
  expect_clean_ = false;
  run_ranks(4, 3, refused("was served as server 0 of 2, now as server 0 of 3"), refused("was served as"));
  run_ranks(2, 0, refused("no rank of the job serves"));
}

TEST_F(IondTest, AServerThatCannotOpenItsStoreIsToldToAll) {
  expect_clean_ = false;
  std::filesystem::create_directories(root_ + "/ssd1/log");  // where a file should be
  const auto refused = [](RankOf& here) {
    ASSERT_FALSE(here.iond.ok());
    EXPECT_THAT(here.iond.status().to_string(), HasSubstr("rank 1"));
  };
  run_ranks(3, 2, refused, refused);
}

// What comes from another process may be anything.
TEST_F(IondTest, GarbageAndOversizedRequestsAreRefused) {
  const tier::StoreOptions stored = store_options(root_, 0);
  std::filesystem::create_directories(stored.backing_directory);
  io::PosixDevice device;
  auto store = tier::Store::open(device, stored);
  ASSERT_TRUE(store.ok());
  const auto made = IondFiles::make({store->get(), stored.backing_directory, 0, 1, 2});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  IondFiles& files = **made;
  const auto ask = [&](IondMethod method, const IondRequest& request, std::string data = {},
                       net::Rank from = 1) {
    return files.answer(method, encode_iond_request(request, 0) + data, from);
  };
  const auto opened = ask(IondMethod::kOpen, {.flags = kIondCreate, .name = "f"});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const uint64_t file = decode_iond_answer(*opened)->file;
  ASSERT_TRUE(ask(IondMethod::kWrite, {.file = file, .length = 3}, "abc").ok());
  // Sizes and names.
  EXPECT_EQ(ask(IondMethod::kWrite, {.file = file, .length = 4}, "abc").status().code(), Code::kCorruption);
  EXPECT_FALSE(ask(IondMethod::kWrite, {.file = file, .length = 2 * kMiB}, std::string(2 * kMiB, 'x')).ok());
  EXPECT_EQ(ask(IondMethod::kRead, {.file = file, .length = 2 * kMiB}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      ask(IondMethod::kWrite, {.file = file, .offset = uint64_t{1} << 48, .length = 1}, "a").status().code(),
      Code::kInvalidArgument);
  for (const char* name : {"", "/f", "..", "a/../../f", "a//b", ".", ".swale-tier/log", ".swale-parts/1"})
    EXPECT_EQ(ask(IondMethod::kOpen, {.flags = kIondCreate, .name = name}).status().code(),
              Code::kInvalidArgument)
        << name;
  EXPECT_EQ(ask(IondMethod::kOpen, {.flags = kIondCreate, .name = std::string(5000, 'n')}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ask(IondMethod::kRename, {.name = "f", .other = "../g"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ask(IondMethod::kOpen, {.flags = 256, .name = "f"}).status().code(), Code::kInvalidArgument);
  // Another rank's file, a file that is not open, too many files, a directory.
  EXPECT_FALSE(ask(IondMethod::kRead, {.file = file, .length = 3}, "", 2).ok());
  EXPECT_FALSE(ask(IondMethod::kSync, {.file = 77}).ok());
  std::filesystem::create_directory(stored.backing_directory + "/d");
  EXPECT_FALSE(ask(IondMethod::kOpen, {.flags = kIondCreate, .name = "d"}).ok());
  ASSERT_TRUE(ask(IondMethod::kOpen, {.name = "f"}, "", 2).ok());
  EXPECT_EQ(ask(IondMethod::kOpen, {.name = "f"}).status().code(), Code::kResourceExhausted);
  files.drop(2);
  EXPECT_EQ(files.open_files(), 1u);
  // Bytes without sense, and true requests with some of them changed.
  Rng rng(3);
  const std::string good = encode_iond_request({.file = file, .length = 3}, 3) + "abc";
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = rng.chance(1, 2) ? good : std::string(rng.below(60), '\0');
    for (int flips = 1 + static_cast<int>(rng.below(4)); flips > 0 && !bytes.empty(); --flips)
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    const auto method = static_cast<IondMethod>(rng.below(kIondMethods + 2));
    if (method == IondMethod::kClose || method == IondMethod::kTruncate || method == IondMethod::kDrain)
      continue;
    static_cast<void>(files.answer(method, bytes, 1));
  }
  EXPECT_TRUE(ask(IondMethod::kWrite, {.file = file, .length = 3}, "def").ok());
  const auto read = ask(IondMethod::kRead, {.file = file, .length = 3});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(decode_iond_answer(*read)->data, "def");
}

TEST_F(IondTest, AClientThatDiesIsNamedAndTheOthersGoOn) {
  expect_clean_ = false;
  std::latch dead(1);
  run_ranks(4, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok());
    Iond& iond = **here.iond;
    auto file = iond.open_file(fmt::format("f{}", here.rank), kIondCreate);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(iond.write(*file, 0, std::string(300'000, 'x')).ok());
    if (here.rank == 3) {
      here.dies = true;
      dead.count_down();
      return;
    }
    dead.wait();
  });
  EXPECT_THAT(told_, testing::Contains(HasSubstr("rank 3 died")).Times(2)) << "both servers";
  // What it had been answered for is there.
  expect_clean_ = true;
  run_ranks(3, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    for (const char* name : {"f2", "f3"}) {
      auto file = (*here.iond)->open_file(name, 0);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      check_content(here.iond->get(), {*file, std::string(300'000, 'x')});
    }
  });
}

TEST_F(IondTest, AServerThatDiesIsNamedAndTheOthersGoOn) {
  expect_clean_ = false;
  std::latch dead(1);
  const auto serve = [&](RankOf& here) {
    if (here.rank != 1) return;
    dead.wait();
    here.dies = true;
  };
  run_ranks(
      3, 2,
      [&](RankOf& here) {
        ASSERT_TRUE(here.iond.ok());
        Iond& iond = **here.iond;
        auto file = iond.open_file("f", kIondCreate);
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE(iond.write(*file, 0, std::string(300'000, 'x')).ok());
        dead.count_down();
        Status failed;
        const Nanos until = system_clock().now() + seconds(60);
        while (failed.ok() && system_clock().now() < until)
          failed = iond.write(*file, 300'000, std::string(100'000, 'y'));
        EXPECT_EQ(failed.code(), Code::kUnavailable) << failed.to_string();
        EXPECT_THAT(failed.to_string(), HasSubstr("rank 1 (host "));
        EXPECT_THAT(failed.to_string(), HasSubstr("f: writing 100000 bytes at 300000"));
        // Names are on the other server.
        EXPECT_TRUE(iond.rename("f", "g").ok());
        EXPECT_FALSE(iond.sync(*file).ok());
      },
      serve);
  expect_clean_ = true;
  run_ranks(3, 2, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    auto file = (*here.iond)->open_file("g", 0);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    std::string found(300'000, '?');
    const auto got = (*here.iond)->read(*file, 0, found);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_TRUE(*got == found.size() && found == std::string(300'000, 'x'));
  });
}

TEST_F(IondTest, ASlowServerHearsTheGoodbye) { hang_and_close(std::chrono::milliseconds(800)); }

// It must not wait for ever for a goodbye that nobody says any more.
TEST_F(IondTest, AServerThatHangsTooLongHearsThatTheClientHasGivenUp) {
  expect_clean_ = false;
  collective_deadline_ = seconds(2);
  // If its own goodbye came to it after the write, it says that again when it has gone on.
  servers_collective_deadline_ = seconds(12);
  hang_and_close(std::nullopt);
  EXPECT_THAT(told_, testing::Contains(HasSubstr("no answer within")));
  EXPECT_THAT(told_, testing::Contains(HasSubstr("rank 1 has given up requests between ranks")));
}

// Nobody can say goodbye then.
TEST_F(IondTest, AServerEndsWhenTheRequestsBetweenRanksHaveFailed) {
  expect_clean_ = false;
  // rank 1 closes the job after the server, and comes to nothing before
  collective_deadline_ = servers_collective_deadline_ = seconds(5);
  run_ranks(2, 1, [&](RankOf& here) {
    ASSERT_TRUE(here.iond.ok()) << here.iond.status().to_string();
    here.iond = error(Code::kAborted, Scope::kFatal, "gone without close");
  });
  EXPECT_THAT(told_, testing::ElementsAre(HasSubstr("rank 1 has given up requests between ranks")));
}

}  // namespace
}  // namespace swale::iond::iond_test
