// swale.hpp as a program of a user would use it: with nothing but the two public headers and libswale.so.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "swale/swale.hpp"
#include "test_threads.h"

namespace {

using swale::test::threads_of_this_process;

class CppApi : public testing::Test {
 protected:
  CppApi() : path_(testing::TempDir() + "swale-cpp-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~CppApi() override { std::filesystem::remove_all(path_); }

  void write_three_epochs() {
    swale::Job job;
    swale::Directory dir(job, path_, SWALE_CREATE, "imd.memory=8M");
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 100; ++i) dir.append("key-" + std::to_string(i), std::to_string(epoch * 1000 + i));
      dir.append(std::string("a\0b", 3), "");
      dir.epoch_end(epoch * 10, epoch * 0.25);
    }
    dir.close();
    job.close();
  }

  template <class Fn>
  int code_of(Fn&& fn) {
    try {
      fn();
    } catch (const swale::Error& error) {
      EXPECT_NE(std::string(error.what()).find(swale_code_name(error.code())), std::string::npos);
      return error.code();
    }
    return SWALE_OK;
  }

  const std::string path_;
};

std::uint32_t by_length(void*, const void*, std::size_t key_bytes, std::uint32_t partitions) {
  return static_cast<std::uint32_t>(key_bytes) % partitions;
}
std::uint32_t too_many(void*, const void*, std::size_t, std::uint32_t partitions) { return partitions; }

TEST_F(CppApi, CountsWhatWritingCosts) {
  swale::Job job;
  swale::Directory dir(job, path_, SWALE_CREATE, "imd.memory=8M");
  const auto named = [](const std::vector<swale::Stat>& stats, const std::string& name) {
    for (const swale::Stat& stat : stats) {
      if (stat.name == name) return stat;
    }
    ADD_FAILURE() << name;
    return swale::Stat();
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 100; ++i) dir.append(std::to_string(i), "value");
    dir.epoch_end(epoch, epoch);
  }
  EXPECT_EQ(named(dir.stats(), "append.records").sum, 200u);
  EXPECT_EQ(named(dir.stats(), "epochs.committed").sum, 2u);
  EXPECT_EQ(named(dir.stats(), "write.data").unit, "bytes");
  dir.close();
  job.close();
  const swale::Reader reader(path_);
  EXPECT_EQ(named(reader.epoch_stats(1), "append.records").sum, 100u);
  EXPECT_GT(named(reader.epoch_stats(1), "commit.time").max, 0u);
  EXPECT_EQ(code_of([&] { reader.epoch_stats(2); }), SWALE_NOT_FOUND);
  EXPECT_EQ(code_of([&] { reader.epoch_stats(-1); }), SWALE_INVALID_ARGUMENT);
  swale_stats* stats = nullptr;
  ASSERT_EQ(swale_reader_epoch_stats(reader.handle(), 0, &stats), SWALE_OK);
  swale_stat stat;
  stat.struct_bytes = sizeof stat;
  EXPECT_EQ(swale_stats_find(stats, "index.records", &stat), SWALE_OK);
  EXPECT_EQ(stat.sum, 100u);
  EXPECT_NE(std::string(stat.help), "");
  EXPECT_EQ(swale_stats_find(stats, "nonsense", &stat), SWALE_NOT_FOUND);
  EXPECT_EQ(swale_stats_at(stats, swale_stats_count(stats), &stat), SWALE_INVALID_ARGUMENT);
  EXPECT_EQ(swale_stats_ranks(stats), 1);
  swale_stats_free(stats);
  swale_stats_free(nullptr);
}

// With equal options they share one device, and so its storage thread and queue. (With a ring the kernel's
// own threads would come and go.)
TEST_F(CppApi, TenDirectoriesHaveTheThreadsOfOne) {
  std::filesystem::create_directory(path_);
  swale::Job job;
  std::vector<swale::Directory> open;
  std::size_t with_one = 0;
  for (int i = 0; i < 10; ++i) {
    open.emplace_back(job, path_ + "/" + std::to_string(i), SWALE_CREATE, "io.engine=threads");
    if (i == 0) with_one = threads_of_this_process();
  }
  EXPECT_EQ(threads_of_this_process(), with_one);
  for (swale::Directory& dir : open) {
    for (int i = 0; i < 1'000; ++i) dir.append("key-" + std::to_string(i), "value");
    dir.epoch_end(1, 0.5);
  }
  EXPECT_EQ(threads_of_this_process(), with_one);
  for (swale::Directory& dir : open) dir.close();
  job.close();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(swale::Reader(path_ + "/" + std::to_string(i)).epoch_count(), 1);
}

TEST_F(CppApi, SeesWhatIsCommittedWhileItIsOpen) {
  write_three_epochs();
  swale::Reader reader(path_);
  EXPECT_EQ(reader.refresh(), 0);
  {
    swale::Job job;
    swale::Directory dir(job, path_, 0, "imd.memory=8M");
    dir.append("new", "1");
    dir.epoch_end(30, 1);
    EXPECT_TRUE(reader.get("new").empty());
    EXPECT_EQ(reader.refresh(), SWALE_REFRESH_ADDED);
    EXPECT_EQ(reader.get("new").size(), 1u);
    EXPECT_EQ(reader.epoch_count(), 4);
    dir.close();
    swale::Directory again(job, path_, 0, "imd.memory=8M,imd.resume_after=10");
    EXPECT_EQ(reader.refresh(), SWALE_REFRESH_DROPPED);
    EXPECT_EQ(reader.epoch_count(), 2);
    EXPECT_EQ(reader.get("key-7").size(), 2u);
    again.close();
    job.close();
  }
}

TEST_F(CppApi, AWarmReaderReadsBlocksOnlyAndTheSameOnesOnce) {
  write_three_epochs();
  const swale::Reader reader(path_);
  const auto count = [&](const swale::Reader& of, const std::string& name) {
    for (const swale::Stat& stat : of.stats()) {
      if (stat.name == name) return stat.sum;
    }
    ADD_FAILURE() << name;
    return std::uint64_t{0};
  };
  const std::uint64_t one = reader.warm({1});
  EXPECT_GT(one, 0u);
  EXPECT_GT(reader.warm(), one);
  EXPECT_GE(count(reader, "cache.bytes"), reader.warm());
  const std::uint64_t reads = count(reader, "read.requests");
  const std::vector<swale::Value> values = reader.get("key-7");
  EXPECT_FALSE(values.empty());
  const std::uint64_t blocks = count(reader, "read.requests") - reads;
  EXPECT_GT(blocks, 0u);
  EXPECT_LE(blocks, 3u);
  EXPECT_EQ(reader.get("key-7").size(), values.size());
  EXPECT_EQ(count(reader, "read.requests") - reads, blocks);
  const swale::Reader other(path_);
  EXPECT_EQ(other.get("key-7").size(), values.size());
  EXPECT_EQ(count(other, "cache.misses"), 0u) << "the cache is the process's";
  EXPECT_EQ(code_of([&] { reader.warm({3}); }), SWALE_NOT_FOUND);
  const swale::Reader uncached(path_, "imd.cache=0");
  EXPECT_EQ(code_of([&] { uncached.warm(); }), SWALE_INVALID_ARGUMENT);
  EXPECT_EQ(uncached.get("key-7").size(), values.size());
  EXPECT_EQ(count(uncached, "cache.hits"), 0u);
}

TEST_F(CppApi, SpreadsKeysByTheCallersFunction) {
  swale::Job job;
  const std::string options = "imd.memory=8M,imd.partitioner=length";
  EXPECT_EQ(code_of([&] { swale::Directory(job, path_, SWALE_CREATE, options); }), SWALE_INVALID_ARGUMENT)
      << "a name without a function";
  EXPECT_EQ(code_of([&] { swale::Directory(job, path_, SWALE_CREATE, "imd.memory=8M", by_length, nullptr); }),
            SWALE_INVALID_ARGUMENT)
      << "a function without a name";
  {
    swale::Directory dir(job, path_, SWALE_CREATE, options, by_length, nullptr);
    for (int i = 0; i < 100; ++i) dir.append(std::to_string(i), std::to_string(i));
    dir.epoch_end(0, 0);
    dir.close();
  }
  {
    swale::Directory dir(job, path_, 0, "imd.memory=8M,imd.partitioner=wrong", too_many, nullptr);
    // Of the size of those that the usual append takes without asking anybody.
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(code_of([&] { dir.append(std::to_string(10'000'000 + i), "value"); }), SWALE_INVALID_ARGUMENT)
          << i;
    }
    dir.close();
  }
  job.close();
  swale::Reader reader(path_);
  EXPECT_EQ(reader.get("42").size(), 1u);
  reader.set_partitioner("length", by_length);
  EXPECT_EQ(reader.get("42").size(), 1u);
  EXPECT_EQ(code_of([&] { reader.set_partitioner("length", too_many); }), SWALE_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { reader.set_partitioner("", by_length); }), SWALE_INVALID_ARGUMENT);
}

TEST_F(CppApi, DrawsKeysAtRandom) {
  write_three_epochs();
  const swale::Reader reader(path_);
  const auto draw = [&](std::uint64_t seed) {
    std::vector<std::string> keys;
    reader.sample(1, 10, seed, [&](std::string_view key) {
      keys.emplace_back(key);
      return true;
    });
    return keys;
  };
  const std::vector<std::string> keys = draw(1);
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 10u);
  EXPECT_EQ(draw(1), keys);
  EXPECT_NE(draw(2), keys);
  for (const std::string& key : keys) EXPECT_FALSE(reader.get(key, 1).empty());
  EXPECT_THROW(reader.sample(1, 3, 1, [](std::string_view) -> bool { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_EQ(code_of([&] { reader.sample(SWALE_ALL_EPOCHS, 3, 1, [](std::string_view) { return true; }); }),
            SWALE_INVALID_ARGUMENT);
}

TEST_F(CppApi, FindsTheBestRecords) {
  swale::Job job;
  swale::Directory dir(job, path_, SWALE_CREATE, "imd.memory=8M,imd.schema=n:i4,imd.extrema=n");
  for (int32_t i = -50; i < 50; ++i)
    dir.append(std::to_string(i), {reinterpret_cast<const char*>(&i), sizeof i});
  dir.set_attributes(SWALE_DESCRIBED_DIRECTORY, R"({"units":"lj"})");
  dir.set_attributes(SWALE_DESCRIBED_EPOCH, R"({"box":1})");
  EXPECT_THROW(dir.set_attributes(SWALE_DESCRIBED_EPOCH, "no JSON"), swale::Error);
  dir.epoch_end(0, 0);
  dir.close();
  job.close();
  const swale::Reader reader(path_);
  EXPECT_EQ(reader.schema(), "n:i4");
  EXPECT_EQ(reader.attributes(SWALE_DESCRIBED_DIRECTORY), R"({"units":"lj"})");
  EXPECT_EQ(reader.attributes(SWALE_DESCRIBED_EPOCH, 0), R"({"box":1})");
  const swale::Top top = reader.top("n", 0, 2);
  ASSERT_EQ(top.records.size(), 2u);
  EXPECT_EQ(top.records[0].key, "49");
  EXPECT_EQ(top.records[1].number, 48);
  EXPECT_EQ(top.records[0].field, top.records[0].value);
  EXPECT_EQ(top.stats.partitions_scanned, 0u);
  EXPECT_EQ(reader.top("n", 0, 1, SWALE_TOP_SMALLEST).records[0].number, -50);
  EXPECT_EQ(code_of([&] { reader.top("m", 0, 1); }), SWALE_INVALID_ARGUMENT);
}

TEST_F(CppApi, ReadsBackWhatItWrote) {
  write_three_epochs();
  const swale::Reader reader(path_);
  ASSERT_EQ(reader.epoch_count(), 3);
  EXPECT_EQ(reader.epoch_info(2).step, 20);
  EXPECT_EQ(reader.count(), 303u);
  EXPECT_EQ(reader.count(1), 101u);
  const std::vector<swale::Value> values = reader.get("key-42");
  ASSERT_EQ(values.size(), 3u);
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(values[static_cast<size_t>(epoch)].epoch, epoch);
    EXPECT_EQ(values[static_cast<size_t>(epoch)].bytes, std::to_string(epoch * 1000 + 42));
  }
  EXPECT_EQ(reader.get("key-42", 1).size(), 1u);
  EXPECT_TRUE(reader.get("absent").empty());
  ASSERT_EQ(reader.get(std::string("a\0b", 3), 0).size(), 1u);
  EXPECT_EQ(reader.get(std::string("a\0b", 3), 0)[0].bytes, "");
  EXPECT_GE(swale::sum_of(reader.stats(), "queries"), 5u);
  EXPECT_EQ(code_of([&] { swale::sum_of(reader.stats(), "nonsense"); }), SWALE_NOT_FOUND);
}

TEST_F(CppApi, ScansAndAsksForManyKeys) {
  write_three_epochs();
  const swale::Reader reader(path_);
  std::set<std::string> keys;
  reader.scan(1, [&](int64_t epoch, std::string_view key, std::string_view) {
    EXPECT_EQ(epoch, 1);
    keys.emplace(key);
    return true;
  });
  EXPECT_EQ(keys.size(), 101u);
  std::vector<std::string> listed;
  reader.keys(1, [&](std::string_view key) {
    listed.emplace_back(key);
    return true;
  });
  EXPECT_EQ(listed.size(), keys.size()) << "each once";
  EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), keys);
  EXPECT_EQ(code_of([&] { reader.keys(SWALE_ALL_EPOCHS, [](std::string_view) { return true; }); }),
            SWALE_INVALID_ARGUMENT);
  int values = 0;
  const auto count_values = [&](int64_t, std::string_view, std::string_view) { return ++values > 0; };
  EXPECT_EQ(reader.get_many({"key-1", "absent", "key-2"}, SWALE_ALL_EPOCHS, count_values), 2u);
  EXPECT_EQ(values, 6);
}

TEST_F(CppApi, ThreadsDivideAScan) {
  write_three_epochs();
  const swale::Reader reader(path_);
  constexpr std::uint32_t kParts = 3;
  std::vector<std::multiset<std::string>> seen(kParts);
  std::vector<std::thread> threads;
  for (std::uint32_t part = 0; part < kParts; ++part) {
    threads.emplace_back([&, part] {
      reader.scan_part(SWALE_ALL_EPOCHS, part, kParts,
                       [&](std::int64_t epoch, std::string_view key, std::string_view) {
                         seen[part].insert(std::to_string(epoch) + " " + std::string(key));
                         return true;
                       });
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::multiset<std::string> together;
  for (const auto& part : seen) together.insert(part.begin(), part.end());
  std::multiset<std::string> expected;
  reader.scan(SWALE_ALL_EPOCHS, [&](std::int64_t epoch, std::string_view key, std::string_view) {
    expected.insert(std::to_string(epoch) + " " + std::string(key));
    return true;
  });
  EXPECT_EQ(together, expected);
  EXPECT_EQ(expected.size(), 303u);
  EXPECT_EQ(code_of([&] { reader.scan_part(0, kParts, kParts, [](auto&&...) { return true; }); }),
            SWALE_INVALID_ARGUMENT);
}

TEST_F(CppApi, WhatACallbackThrowsComesOutAndNothingIsLost) {
  write_three_epochs();
  const swale::Reader reader(path_);
  const auto throwing = [](int64_t, std::string_view, std::string_view) -> bool {
    throw std::out_of_range("enough");
  };
  EXPECT_THROW(reader.scan(0, throwing), std::out_of_range);
  EXPECT_THROW(reader.get_many({"key-1"}, 0, throwing), std::out_of_range);
  EXPECT_EQ(reader.get("key-1", 0).size(), 1u);
}

TEST_F(CppApi, FailuresAreErrorsWithCodes) {
  EXPECT_EQ(code_of([&] { swale::Reader reader(path_); }), SWALE_NOT_FOUND);
  write_three_epochs();
  const swale::Reader reader(path_);
  EXPECT_EQ(code_of([&] { reader.get("", 0); }), SWALE_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { reader.get("key-1", 3); }), SWALE_NOT_FOUND);
  EXPECT_EQ(code_of([&] { reader.epoch_info(3); }), SWALE_NOT_FOUND);
  swale::Job job;
  EXPECT_EQ(code_of([&] { swale::Directory dir(job, path_, SWALE_CREATE | SWALE_EXCLUSIVE); }),
            SWALE_ALREADY_EXISTS);
  swale::Directory dir(job, path_);
  dir.append("x", "y");
  EXPECT_EQ(code_of([&] { dir.close(); }), SWALE_ABORTED) << "a record without an epoch end";
  EXPECT_EQ(code_of([&] { job.close(); }), SWALE_OK);
}

TEST_F(CppApi, DamageIsAnErrorThatNamesTheFile) {
  write_three_epochs();
  const std::string part = path_ + "/p000/part-000000.j0001.data";
  std::filesystem::resize_file(part, 4096);
  const swale::Reader reader(path_);
  try {
    reader.scan(SWALE_ALL_EPOCHS, [](auto&&...) { return true; });
    FAIL() << "no error";
  } catch (const swale::Error& error) {
    EXPECT_EQ(error.code(), SWALE_CORRUPTION);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(CppApi, TheLastErrorIsTheThreadsOwn) {
  EXPECT_EQ(swale_reader_open(nullptr, nullptr, nullptr), SWALE_INVALID_ARGUMENT);
  const std::string mine = swale_last_error();
  std::thread([] { EXPECT_STREQ(swale_last_error(), ""); }).join();
  EXPECT_EQ(swale_last_error(), mine);
}

}  // namespace
