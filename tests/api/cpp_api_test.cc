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

namespace {

class CppApi : public testing::Test {
 protected:
  CppApi() : path_(testing::TempDir() + "swale-cpp-" + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~CppApi() override { std::filesystem::remove_all(path_); }

  void write_three_epochs() {
    swale::Job job;
    swale::Directory dir(job, path_, SWALE_DIR_CREATE, "write.memory=8M");
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

TEST_F(CppApi, FindsTheBestRecords) {
  swale::Job job;
  swale::Directory dir(job, path_, SWALE_DIR_CREATE, "write.memory=8M,dir.schema=n:i4,dir.extrema=n");
  for (int32_t i = -50; i < 50; ++i)
    dir.append(std::to_string(i), {reinterpret_cast<const char*>(&i), sizeof i});
  dir.epoch_end(0, 0);
  dir.close();
  job.close();
  const swale::Reader reader(path_);
  EXPECT_EQ(reader.schema(), "n:i4");
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
  EXPECT_GE(reader.stats().queries, 5u);
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
  EXPECT_EQ(code_of([&] { swale::Directory dir(job, path_, SWALE_DIR_CREATE | SWALE_DIR_EXCLUSIVE); }),
            SWALE_ALREADY_EXISTS);
  swale::Directory dir(job, path_);
  dir.append("x", "y");
  EXPECT_EQ(code_of([&] { dir.close(); }), SWALE_ABORTED) << "a record without an epoch end";
  EXPECT_EQ(code_of([&] { job.close(); }), SWALE_OK);
}

TEST_F(CppApi, DamageIsAnErrorThatNamesTheFile) {
  write_three_epochs();
  const std::string part = path_ + "/p000/part-000000.data";
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
