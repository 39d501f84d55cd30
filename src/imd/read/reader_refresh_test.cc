// A Reader beside writers: epochs come, and go.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "io/posix_device.h"

namespace swale::imd::reader_refresh_test {
namespace {

using test::Records;
using test::TestDirectory;

Records epoch_records(uint32_t epoch, uint64_t keys = 500) {
  Records records;
  for (uint64_t i = 0; i < keys; ++i) records.emplace_back(test::text_key(i), fmt::format("{}/{}", epoch, i));
  return records;
}

// Everything that the manifest names is there, whole and right: `label(epoch)` is what its values begin with.
template <class Label>
void expect_whole(Reader& reader, const Label& label) {
  const std::shared_ptr<const Manifest> manifest = reader.manifest_now();
  for (uint64_t i = 0; i < 500; i += 7) {
    const auto values = reader.get(test::text_key(i), Reader::kAllEpochs);
    if (manifest->epochs.empty()) {
      EXPECT_EQ(values.status().code(), Code::kNotFound);
      continue;
    }
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    ASSERT_EQ(values->size(), manifest->epochs.size());
    for (const Value& value : *values) EXPECT_EQ(value.bytes, fmt::format("{}/{}", label(value.epoch), i));
  }
}
const auto kByNumber = [](uint32_t epoch) { return epoch; };

TEST(Refresh, NothingNewIsNothingRead) {
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(2);
  directory.write_epoch(epoch_records(0));
  auto reader = Reader::open(device, "/dir", {}).value();
  expect_whole(*reader, kByNumber);
  const std::shared_ptr<const Manifest> before = reader->manifest_now();
  const Reader::Refreshed refreshed = reader->refresh().value();
  EXPECT_FALSE(refreshed.added || refreshed.dropped);
  EXPECT_EQ(reader->manifest_now(), before) << "the very same view";
}

TEST(Refresh, EpochsOfLaterJobsAppearAndOldFootersAreKeptWhereTheyAreRight) {
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  auto reader = Reader::open(device, "/dir", {}).value();
  expect_whole(*reader, kByNumber);
  uint32_t epochs = 0;
  for (const int32_t ranks : {4, 2, 1, 5}) {
    directory.begin_job(ranks, ranks == 2 ? 3 : 1);
    for (int i = 0; i < 3; ++i) {
      directory.write_epoch(epoch_records(epochs++));
      const Reader::Refreshed refreshed = reader->refresh().value();
      EXPECT_TRUE(refreshed.added && !refreshed.dropped);
      ASSERT_EQ(reader->manifest().epochs.size(), epochs);
      expect_whole(*reader, kByNumber);
    }
  }
  // Nothing is read again of the partitions that the next epoch does not touch.
  directory.begin_job(1);
  directory.write_epoch(epoch_records(epochs));
  EXPECT_TRUE(reader->refresh()->added);
  const auto asked = [&](int64_t epoch, uint32_t partition) {
    const uint64_t reads = reader->stats().reads;
    const Manifest& manifest = reader->manifest();
    const auto parts = manifest.job_of(manifest.epochs[static_cast<size_t>(epoch)]).ranks;
    EXPECT_TRUE(reader->scan_part(epoch, partition, parts, [](auto&&...) { return true; }).ok());
    return reader->stats().reads - reads;
  };
  EXPECT_EQ(asked(0, 3), 1u) << "one chunk of records, and no footer";
  EXPECT_GT(asked(epochs, 0), 1u) << "the footer of partition 0 is another: the canary";
}

TEST(Refresh, DroppedEpochsAreToldAndWhatTookTheirNumbersIsRead) {
  io::MemoryDevice device;
  const auto write = [&](std::optional<int64_t> resume_after, std::vector<uint32_t> labels) {
    run_ranks(2, [&](net::Job& job) {
      WriterOptions options;
      options.memory_bytes = 6 * kMiB;
      options.resume_after = resume_after;
      auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options).value();
      for (const uint32_t label : labels) {
        for (const auto& [key, value] : epoch_records(label)) {
          if (hash_bytes(key) % 2 == static_cast<uint64_t>(job.rank())) {
            ASSERT_TRUE(writer->append(key, value).ok());
          }
        }
        ASSERT_TRUE(writer->epoch_end(label, label).ok());
      }
      ASSERT_TRUE(writer->close().ok());
    });
  };
  write({}, {0, 1, 2});
  auto reader = Reader::open(device, "/dir", {}).value();
  expect_whole(*reader, kByNumber);
  write(1, {});
  Reader::Refreshed refreshed = reader->refresh().value();
  EXPECT_TRUE(refreshed.dropped && !refreshed.added);
  expect_whole(*reader, kByNumber);
  EXPECT_EQ(reader->get(test::text_key(0), 2).status().code(), Code::kInvalidArgument);
  write(0, {70, 80, 90});
  refreshed = reader->refresh().value();
  EXPECT_TRUE(refreshed.dropped && refreshed.added);
  expect_whole(*reader, [](uint32_t epoch) { return epoch == 0 ? 0 : 60 + epoch * 10; });
  EXPECT_TRUE(reader->epoch_stats(3).ok());
}

// What `find` has found of a dropped epoch, whether another epoch has its number now or none.
TEST(Refresh, AFoundValueWhoseEpochWasDroppedIsNoDamage) {
  for (const run::ShuffleFormat format : {run::ShuffleFormat::kBase, run::ShuffleFormat::kIndirect}) {
    io::MemoryDevice device;
    const auto write = [&](std::optional<int64_t> resume_after, std::vector<char> letters) {
      run_ranks(1, [&](net::Job& job) {
        WriterOptions options;
        options.memory_bytes = 6 * kMiB;
        options.format = format;
        options.resume_after = resume_after;
        auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options).value();
        for (const char letter : letters) {
          ASSERT_TRUE(writer->append("key", std::string(100'000, letter)).ok());
          ASSERT_TRUE(writer->epoch_end(letter, 0).ok());
        }
        ASSERT_TRUE(writer->close().ok());
      });
    };
    write({}, {'a', 'b', 'c'});
    auto reader = Reader::open(device, "/dir", {}).value();
    const std::vector<FoundValue> found = reader->find("key", Reader::kAllEpochs).value();
    ASSERT_EQ(found.size(), 3u);
    std::string bytes(1000, ' ');
    const auto read = [&](size_t i) { return reader->read("key", found[i], 50'000, bytes).code(); };
    write('b', {});
    EXPECT_TRUE(reader->refresh()->dropped);
    EXPECT_EQ(read(2), Code::kAborted) << "no epoch has its number";
    EXPECT_EQ(read(1), Code::kOk);
    write('a', {'x', 'y'});
    EXPECT_TRUE(reader->refresh()->dropped);
    EXPECT_EQ(read(1), Code::kAborted) << "another epoch has its number";
    EXPECT_EQ(read(0), Code::kOk);
    EXPECT_EQ(bytes, std::string(1000, 'a'));
  }
}

TEST(Refresh, ADirectoryThatWasMadeAnewIsReadAnew) {
  const std::string base = testing::TempDir() + "swale-refresh-" + std::to_string(::getpid());
  io::PosixDevice device;
  std::unique_ptr<Reader> reader;
  for (uint32_t life = 0; life < 3; ++life) {
    ASSERT_EQ(std::system(("rm -rf " + base).c_str()), 0);
    TestDirectory directory(device, base);
    directory.begin_job(2);
    directory.manifest.jobs[0].id[0] = static_cast<char>('1' + life);
    for (uint32_t i = 0; i < life; ++i)
      directory.write_epoch({}, {.fate = TestDirectory::Shape::kUncommitted});
    directory.write_epoch(epoch_records(life));
    if (!reader) reader = Reader::open(device, base, {}).value();
    const Reader::Refreshed refreshed = reader->refresh().value();
    EXPECT_EQ(refreshed.dropped, life != 0);
    expect_whole(*reader, [&](uint32_t) { return life; });
  }
  ASSERT_EQ(std::system(("rm -rf " + base).c_str()), 0);
}

TEST(Refresh, DamageIsAnErrorAndTheOldViewStays) {
  io::MemoryDevice device;
  TestDirectory directory(device, "/dir");
  directory.begin_job(1);
  directory.write_epoch(epoch_records(0));
  auto reader = Reader::open(device, "/dir", {}).value();
  ASSERT_TRUE(io::replace_file(device, "/dir/swale.json", "{}").ok());
  EXPECT_TRUE(reader->refresh().ok()) << "the second copy is right";
  ASSERT_TRUE(io::replace_file(device, generation_path("/dir", 1), "{}").ok());
  ASSERT_TRUE(device.remove(generation_path("/dir", 0)).ok());
  EXPECT_EQ(reader->refresh().status().code(), Code::kCorruption);
  expect_whole(*reader, kByNumber);
  ASSERT_TRUE(device.remove("/dir/swale.json").ok());
  ASSERT_TRUE(device.remove(generation_path("/dir", 1)).ok());
  EXPECT_EQ(reader->refresh().status().code(), Code::kCorruption) << "an older generation would be silence";
  expect_whole(*reader, kByNumber);
  directory.write_epoch(epoch_records(1));
  EXPECT_TRUE(reader->refresh()->added);
  expect_whole(*reader, kByNumber);
}

// Queries and refreshes of several threads beside a job that writes: whatever a query sees is whole.
TEST(Refresh, QueriesGoOnMeanwhile) {
  const std::string base = testing::TempDir() + "swale-refresh-live-" + std::to_string(::getpid());
  ASSERT_EQ(std::system(("rm -rf " + base).c_str()), 0);
  io::PosixDevice device;
  constexpr uint32_t kEpochs = 30;
  { TestDirectory empty(device, base); }
  auto reader = Reader::open(device, base, {}).value();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> queries{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = static_cast<uint64_t>(thread); !stop; i = (i + 1) % 500) {
        const std::shared_ptr<const Manifest> manifest = reader->manifest_now();
        const auto values = reader->get(test::text_key(i), Reader::kAllEpochs);
        if (manifest->epochs.empty() && values.status().code() == Code::kNotFound) continue;
        ASSERT_TRUE(values.ok()) << values.status().to_string();
        ASSERT_GE(values->size(), manifest->epochs.size());
        for (const Value& value : *values) ASSERT_EQ(value.bytes, fmt::format("{}/{}", value.epoch, i));
        ++queries;
      }
    });
  }
  std::atomic<bool> written{false};
  threads.emplace_back([&] {
    for (size_t seen = 0; seen < kEpochs;) {
      const auto refreshed = reader->refresh();
      ASSERT_TRUE(refreshed.ok()) << refreshed.status().to_string();
      const size_t now = reader->manifest_now()->epochs.size();
      ASSERT_EQ(refreshed->added, now > seen);
      ASSERT_FALSE(refreshed->dropped);
      seen = now;
      if (written) {
        ASSERT_EQ(reader->refresh().status().code(), Code::kOk);
        ASSERT_EQ(reader->manifest_now()->epochs.size(), kEpochs);
        seen = kEpochs;
      }
    }
  });
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 6 * kMiB;
    auto writer = Writer::open(job, device, base, Writer::Create::kIfMissing, options).value();
    for (uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const auto& [key, value] : epoch_records(epoch)) {
        if (hash_bytes(key) % 2 == static_cast<uint64_t>(job.rank())) {
          ASSERT_TRUE(writer->append(key, value).ok());
        }
      }
      ASSERT_TRUE(writer->epoch_end(epoch, epoch).ok());
    }
    ASSERT_TRUE(writer->close().ok());
  });
  written = true;
  threads.back().join();
  threads.pop_back();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(queries.load(), 0u);
  std::printf("%llu queries beside %u epochs\n", static_cast<unsigned long long>(queries.load()), kEpochs);
  expect_whole(*reader, kByNumber);
  ASSERT_EQ(std::system(("rm -rf " + base).c_str()), 0);
}

}  // namespace
}  // namespace swale::imd::reader_refresh_test
