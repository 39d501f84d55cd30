// What tests of values that do not stand in their records share: a directory of two ranks with some, and how
// all ways of reading are compared with what was written.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "run/value_format.h"
#include "run/value_pages.h"

namespace swale::imd::test {

inline constexpr char kDir[] = "/dir";
inline constexpr size_t kMemoryBytes = 20 * kMiB;  // enough for every format
inline constexpr size_t kLimit = run::kValueBytesMax;
inline constexpr size_t kPiece = run::kValuePieceBytes;
using Values = std::vector<std::string>;
using Contents = std::map<std::string, Values>;  // of one epoch: in the order of one writer's appends

// The same arguments give the same value.
inline std::string value_of(uint64_t seed, size_t bytes) {
  Rng rng(seed * 31 + bytes);
  std::string value;
  value.reserve(bytes + 8);
  append_u64(&value, seed);
  while (value.size() < bytes) append_u64(&value, rng.next());
  value.resize(bytes);
  return value;
}

inline std::string key_of(uint64_t number) { return fmt::format("key-{}", number); }

using EpochFn = std::function<void(net::Job&, Writer&, uint32_t epoch)>;

// Opens, calls `fill` and ends the epoch for each of `epochs`, closes. `ranks_per_node`: as run_ranks takes
// it.
inline void write(io::Device& device, int32_t ranks, uint32_t epochs, const EpochFn& fill,
                  WriterOptions options = {}, int32_t ranks_per_node = 0) {
  if (options.memory_bytes == 0) options.memory_bytes = kMemoryBytes;
  run_ranks(
      ranks,
      [&](net::Job& job) {
        auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options);
        ASSERT_TRUE(writer.ok()) << writer.status().to_string();
        for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
          fill(job, **writer, epoch);
          const Status ended = (*writer)->epoch_end(epoch, epoch);
          ASSERT_TRUE(ended.ok()) << ended.to_string();
        }
        const Status closed = (*writer)->close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
      },
      "auto", ranks_per_node);
}

// Of a directory that is made.
inline WriterOptions options_of(run::ShuffleFormat format) {
  WriterOptions options;
  options.memory_bytes = kMemoryBytes;
  options.format = format;
  return options;
}

// Where the format keeps values that do not stand in their records; and whether it keeps this one there.
inline std::string values_path(run::ShuffleFormat format, LogId log) {
  return format == run::ShuffleFormat::kIndirect ? value_pages_path(kDir, log) : value_log_path(kDir, log);
}
inline bool lies_elsewhere(run::ShuffleFormat format, const std::string& value) {
  return value.size() >= (format == run::ShuffleFormat::kIndirect ? run::kPagePointerBytes : kLimit + 1);
}

// Runs a test in every format.
class InFormat : public testing::TestWithParam<run::ShuffleFormat> {};
inline std::string name_of(const testing::TestParamInfo<run::ShuffleFormat>& info) {
  return std::string(run::format_name(info.param));
}
inline const auto kFormats =
    testing::Values(run::ShuffleFormat::kBase, run::ShuffleFormat::kIndirect, run::ShuffleFormat::kLossy);

inline void append(Writer& writer, const std::string& key, const std::string& value) {
  const Status status = writer.append(key, value);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

inline std::unique_ptr<Reader> open(io::Device& device) {
  auto reader = Reader::open(device, kDir, {});
  EXPECT_TRUE(reader.ok()) << reader.status().to_string();
  return reader.ok() ? std::move(*reader) : nullptr;
}

inline void expect_whole(Reader& reader) {
  const auto report = verify_directory(reader, 5);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
}

inline Values sorted(Values values) {
  std::sort(values.begin(), values.end());
  return values;
}

// By every call that gives values.
inline void expect_contents(Reader& reader, uint32_t epoch, const Contents& expected) {
  Contents scanned;
  const Status status = reader.scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
    scanned[std::string(key)].emplace_back(value);
    return true;
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(scanned.size(), expected.size());
  Values keys;
  std::vector<Bytes> views;
  for (const auto& [key, values] : expected) keys.push_back(key);
  for (const std::string& key : keys) views.push_back(key);
  Contents batch;
  const auto found = reader.get_many(views, epoch, [&](size_t index, uint32_t, Bytes value) {
    batch[keys[index]].emplace_back(value);
    return true;
  });
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, keys.size());
  for (const auto& [key, values] : expected) {
    const auto got = reader.get(key, epoch);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    Values bytes;
    for (const Value& value : *got) bytes.push_back(value.bytes);
    EXPECT_TRUE(bytes == values) << key << ": other values, or in another order";
    EXPECT_TRUE(sorted(scanned[key]) == sorted(values)) << key;
    EXPECT_TRUE(sorted(batch[key]) == sorted(values)) << key;
  }
}

// A small directory of two ranks and two epochs with large values in both.
struct Sample {
  io::MemoryDevice device;
  std::vector<Contents> contents = std::vector<Contents>(2);

  explicit Sample(run::ShuffleFormat format = run::ShuffleFormat::kBase) {
    std::mutex mutex;
    const auto fill = [&](net::Job& job, Writer& writer, uint32_t epoch) {
      for (uint64_t i = 0; i < 6; ++i) {
        const std::string key = fmt::format("{}/{}", key_of(i), job.rank());
        const std::string value = value_of(static_cast<uint64_t>(job.rank()) << 40 | epoch << 20 | i,
                                           i % 2 == 0 ? kLimit + 1 + i * 100 : 50);
        append(writer, key, value);
        const std::lock_guard lock(mutex);
        contents[epoch][key].push_back(value);
      }
    };
    write(device, 2, 2, fill, options_of(format));
  }

  // Never a wrong value: what is read is right, or the failure names the file.
  uint64_t failures(const std::string& path) {
    uint64_t count = 0;
    const auto reader = open(device);
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      for (const auto& [key, values] : contents[epoch]) {
        const auto got = reader->get(key, epoch);
        if (!got.ok()) {
          EXPECT_EQ(got.status().code(), Code::kCorruption);
          EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr(path));
          EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr("offset"));
          ++count;
          continue;
        }
        EXPECT_TRUE(got->size() == 1 && got->front().bytes == values.front()) << key;
      }
    }
    return count;
  }
};

}  // namespace swale::imd::test
