// The lossy format: records stay with the rank that appended them, and auxiliary tables say which rank has a
// key. Whatever the numbers of ranks and keys, no append is ever missed; damaged tables are errors, and
// repair makes them anew. SWALE_LOSSY_KEYS in the environment says how many keys each job appends (make
// test-long).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "imd/check/repair.h"
#include "imd/read/reader_tables.h"
#include "imd/testing/test_large.h"
#include "imd/write/batcher.h"
#include "imd/write/key_stage.h"
#include "imd/write/source_home.h"
#include "io/fault_device.h"
#include "source/batch.h"
#include "source/key_message.h"
#include "source/table_reader.h"

namespace swale::imd::lossy_test {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): its names are all that this file is about
using testing::HasSubstr;

constexpr auto kLossy = run::ShuffleFormat::kLossy;

uint64_t keys_wanted() {
  const char* wanted = std::getenv("SWALE_LOSSY_KEYS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 3'000;
}

// What all ranks appended, by epoch.
class Appended {
 public:
  void add(Writer& writer, uint32_t epoch, const std::string& key, const std::string& value) {
    append(writer, key, value);
    const std::lock_guard lock(mutex_);
    if (epochs_.size() <= epoch) epochs_.resize(epoch + 1);
    epochs_[epoch][key].push_back(value);
  }
  void expect_in(io::Device& device) {
    const auto reader = open(device);
    ASSERT_TRUE(reader);
    ASSERT_GE(reader->manifest().epochs.size(), epochs_.size());
    for (uint32_t epoch = 0; epoch < epochs_.size(); ++epoch) {
      uint64_t right = 0;
      for (const auto& [key, values] : epochs_[epoch]) {
        const auto got = reader->get(key, epoch);
        ASSERT_TRUE(got.ok()) << key << ": " << got.status().to_string();
        Values bytes;
        for (const Value& value : *got) bytes.push_back(value.bytes);
        ASSERT_TRUE(sorted(bytes) == sorted(values)) << key;
        ++right;
      }
      for (int i = 0; i < 50; ++i)
        EXPECT_EQ(reader->get(fmt::format("absent {}", i), epoch).status().code(), Code::kNotFound);
      std::set<std::string> listed;
      const Status status = reader->keys(epoch, [&](Bytes key) {
        EXPECT_TRUE(listed.emplace(key).second) << "listed twice: " << key;
        return true;
      });
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(listed.size(), right);
    }
    expect_whole(*reader);
  }
  Contents& of(uint32_t epoch) { return epochs_[epoch]; }

 private:
  std::mutex mutex_;
  std::vector<Contents> epochs_ = std::vector<Contents>(1);
};

// `ranks_per_node`: 0 directly, else by three hops.
void expect_that_nothing_is_missed(int32_t ranks_per_node) {
  uint64_t seed = static_cast<uint64_t>(ranks_per_node) * 100;
  for (const int32_t ranks : {1, 2, 3, 5, 7}) {
    for (const uint64_t keys : {uint64_t{0}, uint64_t{1}, uint64_t{97}, keys_wanted()}) {
      io::MemoryDevice device;
      Appended appended;
      ++seed;
      const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
        Rng rng(seed * 1'000 + static_cast<uint64_t>(job.rank()) * 10 + epoch);
        // Every third record's key belongs to all ranks; one key is in every rank, many times.
        for (uint64_t i = 0; i < keys; ++i) {
          const uint64_t number =
              rng.below(3) == 0 ? rng.below(keys) : i * 64 + static_cast<uint64_t>(job.rank());
          appended.add(writer, epoch, key_of(i % 50 == 0 ? 7 : number), value_of(rng.next(), rng.below(60)));
        }
      };
      write(device, ranks, 2, fill, options_of(kLossy), ranks_per_node);
      appended.expect_in(device);
      ASSERT_FALSE(testing::Test::HasFailure()) << ranks << " ranks, " << keys << " keys";
    }
  }
}

TEST(Lossy, NoAppendIsMissedWhateverTheRanksAndKeys) { expect_that_nothing_is_missed(0); }
TEST(Lossy, NoAppendIsMissedByThreeHops) { expect_that_nothing_is_missed(2); }

// A stage that is full many times within an epoch, and frames that are too small for what a home gets.
TEST(Lossy, KeysOfAFullStageGoInAsManyMessagesAsTheyNeed) {
  for (const size_t message_bytes : {size_t{64}, size_t{1'000}, size_t{32'000}}) {
    constexpr uint32_t kRanks = 3;
    KeyStage stage({.ranks = kRanks,
                    .own = PartitionNumber(1),
                    .bytes = KeyStage::kBytesMin,
                    .message_bytes_max = message_bytes});
    std::string memory(32 * kKiB, '\0');
    std::vector<std::set<uint64_t>> sent(kRanks), came(kRanks);
    uint64_t digest = 0;
    const auto take_frame = [&] {
      const net::Frame full =
          stage.exchange({.data = memory.data(), .capacity = static_cast<uint32_t>(memory.size())});
      for (Bytes rest = full.payload(); !rest.empty();) {
        const Batcher::Routed next = Batcher::take_routed(&rest);
        ASSERT_LE(next.record.size(), message_bytes);
        std::string message(next.record);
        message.append(source::kSlackBytes, '\xff');
        std::vector<source::Pair> pairs;
        ASSERT_TRUE(source::decode_key_message(message.data(), next.record.size(), 1, &pairs).ok());
        const PartitionNumber home(next.home);
        for (const source::Pair pair : pairs) {
          came[home].insert(source::pair_hash(pair));
          digest += key_digest(home, 1, source::pair_hash(pair));
        }
      }
    };
    Rng rng(message_bytes);
    for (int i = 0; i < 20'000; ++i) {
      const Hash hash = i % 5 == 0 ? hash_bytes("hot") : rng.next();
      while (!stage.has_room() && !stage.make_room()) take_frame();
      stage.push(hash);
      const HashChoice home = choose(hash, kRanks);
      sent[home.index].insert(source::kept_hash(home.rest));
    }
    while (!stage.finish()) take_frame();
    take_frame();
    EXPECT_EQ(sent, came);
    EXPECT_EQ(stage.take_digest(), digest);
  }
}

// Keys of one home whose kept hashes are equal share their ranks: no query for one of them may miss what the
// other hides.
TEST(Lossy, KeysWhoseKeptHashesCollideAreFound) {
  constexpr uint32_t kRanks = 3;
  std::vector<std::pair<uint64_t, uint64_t>> hashes;  // home and kept hash, number
  for (uint64_t i = 0; i < 1'500'000; ++i) {
    std::string key;
    append_u64(&key, i);
    const HashChoice home = choose(hash_bytes(key), kRanks);
    hashes.emplace_back(uint64_t{home.index} << source::kHashBits | source::kept_hash(home.rest), i);
  }
  std::sort(hashes.begin(), hashes.end());
  std::vector<uint64_t> colliding;
  for (size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i].first != hashes[i - 1].first) continue;
    colliding.push_back(hashes[i - 1].second);
    colliding.push_back(hashes[i].second);
  }
  ASSERT_GE(colliding.size(), 10u);
  io::MemoryDevice device;
  Appended appended;
  const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
    for (size_t i = 0; i < colliding.size(); ++i) {
      std::string key;
      append_u64(&key, colliding[i]);
      if (i % kRanks == static_cast<size_t>(job.rank())) appended.add(writer, epoch, key, value_of(i, 20));
    }
    for (uint64_t i = 0; i < 2'000; ++i)
      appended.add(writer, epoch, key_of(i * 3 + static_cast<uint64_t>(job.rank())), "v");
  };
  write(device, kRanks, 1, fill, options_of(kLossy));
  appended.expect_in(device);
  std::printf("%zu keys that collide\n", colliding.size());
}

// Records of the next epoch are appended while one is being closed, on ranks that are not equally fast.
TEST(Lossy, EpochsOverlap) {
  io::MemoryDevice device;
  Appended appended;
  run_ranks(3, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options_of(kLossy));
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (uint64_t i = 0; i < 500 * (1 + static_cast<uint64_t>(job.rank())); ++i)
        appended.add(**writer, epoch, key_of(i), value_of(i * 7 + static_cast<uint64_t>(job.rank()), 30));
      ASSERT_TRUE((*writer)->epoch_end_wait().ok());
      ASSERT_TRUE((*writer)->epoch_end_begin(epoch, 0).ok());
    }
    ASSERT_TRUE((*writer)->epoch_end_wait().ok());
    const Status closed = (*writer)->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  });
  appended.expect_in(device);
}

// A query of a key that is in one rank reads one partition, but for a false candidate now and then.
TEST(Lossy, AQueryAsksTheRanksThatTheTableNames) {
  constexpr uint64_t kKeys = 4'000;
  constexpr uint64_t kRanks = 5;
  io::MemoryDevice device;
  Appended appended;
  const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
    for (uint64_t i = 0; i < kKeys; ++i) {
      if (i % kRanks == static_cast<uint64_t>(job.rank()))
        appended.add(writer, epoch, key_of(i), value_of(i, 40));
    }
  };
  write(device, kRanks, 1, fill, options_of(kLossy));
  const auto reader = open(device);
  const Manifest& manifest = reader->manifest();
  const ReaderFiles files = reader->files();
  PartitionCache partitions(files, manifest);
  TableCache tables(files, manifest, partitions);
  uint64_t named = 0;
  uint64_t false_named = 0;
  for (uint64_t i = 0; i < kKeys; ++i) {
    uint32_t depth = 0;
    const auto ranks = tables.candidates(manifest.epochs[0], hash_bytes(key_of(i)), &depth);
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    EXPECT_TRUE(std::find(ranks->begin(), ranks->end(), i % kRanks) != ranks->end());
    named += ranks->size();
    const auto others =
        tables.candidates(manifest.epochs[0], hash_bytes(fmt::format("absent {}", i)), &depth);
    ASSERT_TRUE(others.ok());
    false_named += others->size();
  }
  std::printf("%.4f ranks a key, %.4f an absent one\n", static_cast<double>(named) / kKeys,
              static_cast<double>(false_named) / kKeys);
  EXPECT_LT(static_cast<double>(named) / kKeys, 1.12);
  EXPECT_LT(static_cast<double>(false_named) / kKeys, 0.15);
  appended.expect_in(device);
}

class LossyTables : public testing::Test {
 protected:
  void SetUp() override {
    const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
      for (uint64_t i = 0; i < 600; ++i)
        appended_.add(writer, epoch, key_of(i * 2 + static_cast<uint64_t>(job.rank())), value_of(i, 40));
    };
    write(device_, 2, 2, fill, options_of(kLossy));
  }
  std::string path(uint32_t home) const { return table_log_path(kDir, {1, PartitionNumber(home)}); }
  std::string content(uint32_t home) { return io::read_file(device_, path(home), kMiB).value(); }

  // Every answer is the truth, or names the file; as many are wrong as keys have this home.
  void expect_errors_of(uint32_t home) {
    const auto reader = open(device_);
    uint64_t failed = 0;
    for (const auto& [key, values] : appended_.of(0)) {
      const auto got = reader->get(key, 0);
      if (got.ok()) {
        EXPECT_EQ(got->size(), values.size());
        continue;
      }
      ++failed;
      EXPECT_EQ(got.status().code(), Code::kCorruption);
      EXPECT_THAT(got.status().to_string(), HasSubstr(fmt::format("part-{:06}.j0001", home)));
      EXPECT_EQ(choose(hash_bytes(key), 2).index, home);
    }
    EXPECT_GT(failed, 200u);
    EXPECT_FALSE(verify_directory(*reader, 5).problems.empty());
  }
  void expect_repaired() {
    const auto report = repair_directory(device_, kDir, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->lost.empty());
    appended_.expect_in(device_);
    const auto again = repair_directory(device_, kDir, {});
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(again->done.empty()) << fmt::format("{}", fmt::join(again->done, "; "));
    write(device_, 3, 1, [](net::Job& job, Writer& writer, uint32_t) {
      append(writer, key_of(static_cast<uint64_t>(job.rank())), "later");
    });
    appended_.expect_in(device_);
  }

  io::MemoryDevice device_;
  Appended appended_;
};

TEST_F(LossyTables, ThatAreMissingAreErrorsAndMadeAnew) {
  const std::string before = content(1);
  ASSERT_TRUE(device_.remove(path(1)).ok());
  expect_errors_of(1);
  expect_repaired();
  EXPECT_EQ(content(1), before) << "the same records, the same tables";
}

TEST_F(LossyTables, ThatAreDamagedAreErrorsAndMadeAnew) {
  const auto file = device_.open(path(0), io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->pwrite(100, "damage").ok());
  expect_errors_of(0);
  expect_repaired();
}

TEST_F(LossyTables, OfAnIndexLogThatIsLostAreMadeAnew) {
  ASSERT_TRUE(device_.remove(index_log_path(kDir, {1, PartitionNumber(0)})).ok());
  expect_repaired();
}

TEST_F(LossyTables, OfAnotherHomeAreNotTaken) {
  const std::string other = content(1);
  const auto file = device_.open(path(0), io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->truncate(0).ok());
  ASSERT_TRUE(file->pwrite(0, other).ok());
  expect_errors_of(0);
  expect_repaired();
}

// Canary: a table that is whole and of its epoch, but does not know some keys.
TEST_F(LossyTables, CanaryATableThatLacksKeysIsSeen) {
  const auto reader = open(device_);
  const Manifest manifest = reader->manifest();
  const EpochEntry& epoch = manifest.epochs[1];
  SourceHome::Params params{.device = &device_,
                            .directory = "/other",
                            .log = {1, PartitionNumber(0)},
                            .ranks = 2,
                            .memory_bytes = kSourceHomeBytesMin,
                            .first_epoch = epoch.epoch};
  ASSERT_TRUE(io::make_directories(device_, part_folder("/other", PartitionNumber(0))).ok());
  const auto home = SourceHome::create(params).value();
  ASSERT_TRUE(home->close_epoch(epoch.epoch_id, epoch.epoch + 1).ok());
  home->build();
  ASSERT_TRUE(home->built().ok()) << home->built().to_string();
  const std::string empty =
      io::read_file(device_, table_log_path("/other", {1, PartitionNumber(0)}), kMiB).value();
  const auto logs = open_partition(reader->files(), {1, PartitionNumber(0)}, manifest).value();
  const run::ValueRange range = run::range_of(logs->tables[1]);
  // At the same place: its end must be where the index log says that it is.
  ASSERT_LE(empty.size(), range.bytes);
  const auto file = device_.open(path(0), io::OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->pwrite(range.end_offset() - empty.size(), empty).ok());
  const auto problems = verify_directory(*open(device_), 50).problems;
  ASSERT_FALSE(problems.empty());
}

// Over its memory a home goes on in a file, which is gone afterwards; nothing is missing in its table.
TEST(SourceHome, SpillsAndForgetsNothing) {
  constexpr uint32_t kRanks = 3;
  constexpr uint32_t kBatches = 300;
  constexpr size_t kEach = 4'096;
  io::MemoryDevice device;
  ASSERT_TRUE(io::make_directories(device, part_folder(kDir, PartitionNumber(1))).ok());
  SourceHome::Params params{.device = &device,
                            .directory = kDir,
                            .log = {4, PartitionNumber(1)},
                            .ranks = kRanks,
                            .memory_bytes = kSourceHomeBytesMin,
                            .first_epoch = EpochNumber(6)};
  const auto home = SourceHome::create(params).value();
  Rng rng(5);
  std::vector<std::pair<uint64_t, uint32_t>> all;
  for (uint32_t i = 0; i < kBatches; ++i) {
    std::vector<source::Pair> pairs;
    for (size_t k = 0; k < kEach; ++k)
      pairs.push_back(source::make_pair(rng.next() >> source::kSourceBits, 0));
    for (const source::Pair pair : pairs) all.emplace_back(source::pair_hash(pair), i % kRanks);
    std::vector<source::Pair> scratch(kEach);
    std::string batch;
    source::encode_batch(EpochNumber(6), i % kRanks, pairs, scratch, &batch);
    EXPECT_EQ(home->add((i + 1) % kRanks, batch).status().code(), Code::kCorruption) << "of another rank";
    const auto added = home->add(i % kRanks, batch);
    ASSERT_TRUE(added.ok()) << added.status().to_string();
    EXPECT_GE(*added, kEach - 5) << "without doubles";
  }
  EXPECT_TRUE(device.exists(spill_path_stem(kDir, {4, PartitionNumber(1)}) + "0").value());
  ASSERT_TRUE(home->close_epoch(0x1d, EpochNumber(7)).ok());
  home->build();
  ASSERT_TRUE(home->built().ok()) << home->built().to_string();
  EXPECT_FALSE(device.exists(spill_path_stem(kDir, {4, PartitionNumber(1)}) + "0").value());
  const auto file = device.open(table_log_path(kDir, {4, PartitionNumber(1)}), io::OpenMode::kRead).value();
  const auto reader = source::TableReader::open(*file, home->table().offset, home->table().bytes);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  for (size_t i = 0; i < all.size(); i += 97) {
    std::vector<uint32_t> ranks;
    ASSERT_TRUE(reader->candidates(all[i].first, &ranks).ok());
    EXPECT_TRUE(std::find(ranks.begin(), ranks.end(), all[i].second) != ranks.end()) << i;
  }
}

// The next epoch but one spills into a file of the same name.
TEST(SourceHome, SpillsAgainWhereAFileCouldNotBeRemoved) {
  io::MemoryDevice disk;
  io::FaultDevice device(disk);
  ASSERT_TRUE(io::make_directories(disk, part_folder(kDir, PartitionNumber(0))).ok());
  const auto home = SourceHome::create({.device = &device,
                                        .directory = kDir,
                                        .log = {1, PartitionNumber(0)},
                                        .ranks = 2,
                                        .memory_bytes = kSourceHomeBytesMin,
                                        .first_epoch = EpochNumber(0)})
                        .value();
  constexpr size_t kPairs = 4'096;
  const std::string path = spill_path_stem(kDir, {1, PartitionNumber(0)}) + "0";
  device.inject({.kind = io::CallKind::kRemove, .path_part = path});
  Rng rng(7);
  for (const uint32_t epoch : {0u, 1u, 2u}) {
    std::vector<source::Pair> scratch(kPairs);
    for (int i = 0; i < (epoch == 1 ? 1 : 300); ++i) {
      std::vector<source::Pair> pairs;
      for (size_t k = 0; k < kPairs; ++k)
        pairs.push_back(source::make_pair(rng.next() >> source::kSourceBits, 0));
      std::string batch;
      source::encode_batch(EpochNumber(epoch), 1, pairs, scratch, &batch);
      const auto added = home->add(1, batch);
      ASSERT_TRUE(added.ok()) << epoch << ": " << added.status().to_string();
    }
    ASSERT_TRUE(home->close_epoch(0x1d + epoch, EpochNumber(epoch + 1)).ok());
    home->build();
    ASSERT_TRUE(home->built().ok()) << home->built().to_string();
    EXPECT_EQ(disk.exists(path).value(), epoch < 2) << epoch;
  }
  EXPECT_EQ(device.faults(), 1u);
}

TEST(Lossy, APartitionerIsRefused) {
  io::MemoryDevice device;
  run_ranks(2, [&](net::Job& job) {
    WriterOptions options = options_of(kLossy);
    options.partitioner = {"mine", [](void*, const void*, size_t, uint32_t) { return 0u; }, nullptr};
    const auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
    EXPECT_EQ(writer.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(writer.status().to_string(), HasSubstr("imd.partitioner"));
  });
}

}  // namespace
}  // namespace swale::imd::lossy_test
