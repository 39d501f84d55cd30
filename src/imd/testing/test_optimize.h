// What tests of clusters share: jobs that write records at random, and everything that a reader answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/check/verify.h"
#include "imd/format/cluster_list.h"
#include "imd/optimize/optimizer.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/device.h"

namespace swale::imd::test {

inline constexpr char kOptimized[] = "/dir";

// Of a cluster.
inline LogId log_of_cluster(uint32_t partition = 0) {
  return {1, PartitionNumber(partition), LogPlace::kBeside};
}

// What is in the folder of all clusters if there is one, made by so many ranks.
inline std::vector<std::string> names_of_one_cluster(uint32_t number, uint32_t ranks = 1) {
  const std::string folder = fmt::format("{:04}", number);
  std::vector<std::string> names = {folder, "manifest.json"};
  for (uint32_t partition = 0; partition < ranks; ++partition) {
    const LogId log = log_of_cluster(partition);
    names.insert(names.end(), {data_log_path(folder, log), index_log_path(folder, log)});
  }
  return names;
}

struct JobShape {
  int32_t ranks = 1;
  uint32_t ways = 1;
  uint32_t epochs = 3;
  uint64_t records = 300;  // of a rank and epoch
  uint64_t keys = 100;
  bool one_size = false;  // values of 40 bytes; else of all lengths, now and then large ones
  bool slow = false;      // values of 40 bytes that move slowly; unless one_size, now and then others
  WriterOptions options = {};
};

inline std::string optimized_key(uint64_t number) { return fmt::format("k{:07}", number); }

inline std::string value_at_random(Rng& rng, bool one_size) {
  size_t bytes = 40;
  if (!one_size) {
    const uint64_t kind = rng.below(100);
    bytes = rng.below(60);
    if (kind == 0) bytes = run::kValueBytesMax - rng.below(30);
    if (kind == 1) bytes = run::kValueBytesMax + 1 + rng.below(9'000);
    if (kind == 2) bytes = rng.below(9'000);
  }
  std::string value(bytes, '\0');
  for (char& c : value) c = static_cast<char>(rng.next());
  return value;
}

// Floats that move slowly, as a particle's do.
inline std::string slow_value(Rng& rng, uint64_t key, uint64_t epoch, bool one_size) {
  if (!one_size && rng.below(30) == 0) return value_at_random(rng, /*one_size=*/false);
  std::string value;
  for (uint64_t field = 0; field < 10; ++field) {
    const auto place = static_cast<double>((key * 10 + field) * 2'654'435'761 % 1'000);
    append_fixed(&value, static_cast<float>(place + 0.001 * static_cast<double>(epoch + rng.below(8))));
  }
  return value;
}

inline void write_job(io::Device& device, const JobShape& shape, uint64_t seed,
                      const std::string& directory = kOptimized) {
  run_ranks(shape.ranks, [&](net::Job& job) {
    WriterOptions options = shape.options;
    options.memory_bytes = 20 * kMiB;
    options.ways = shape.ways;
    auto writer = Writer::open(job, device, directory, Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    Rng rng(seed * 100 + static_cast<uint64_t>(job.rank()));
    for (uint32_t epoch = 0; epoch < shape.epochs; ++epoch) {
      for (uint64_t i = 0; i < shape.records; ++i) {
        const uint64_t key = rng.below(10) == 0 ? 0 : rng.below(shape.keys);  // one key is hot
        const std::string value = shape.slow ? slow_value(rng, key, seed * 10 + epoch, shape.one_size)
                                             : value_at_random(rng, shape.one_size);
        const Status status = (*writer)->append(optimized_key(key), value);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      const Status ended = (*writer)->epoch_end(static_cast<int64_t>(seed * 1'000 + epoch), 0.5);
      ASSERT_TRUE(ended.ok()) << ended.to_string();
    }
    ASSERT_TRUE((*writer)->close().ok());
  });
}

// Values of a key, with their epochs, in the reader's order.
using Trajectory = std::vector<std::pair<uint32_t, std::string>>;

// What a reader answers for all keys: trajectories one by one, epoch by epoch, and of all keys at once.
struct Answers {
  std::map<std::string, Trajectory> each;
  std::map<std::string, Trajectory> by_epoch;
  std::map<std::string, Trajectory> at_once;  // by epoch; values of one epoch in any order: sorted
  std::string problem;                        // the first failure

  bool operator==(const Answers&) const = default;
};

inline Answers ask_reader(Reader& reader, uint64_t keys) {
  Answers answers;
  const auto failed = [&](const Status& status) {
    if (!status.ok() && status.code() != Code::kNotFound && answers.problem.empty())
      answers.problem = status.to_string();
    return !status.ok();
  };
  std::vector<std::string> names;
  for (uint64_t number = 0; number < keys + 3; ++number)
    names.push_back(optimized_key(number));  // three are absent
  const auto epochs = static_cast<int64_t>(reader.manifest_now()->epochs.size());
  for (const std::string& name : names) {
    const auto found = reader.get(name, Reader::kAllEpochs);
    if (!failed(found.status())) {
      for (const Value& value : *found) answers.each[name].emplace_back(value.epoch, value.bytes);
    }
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto one = reader.get(name, epoch);
      if (failed(one.status())) continue;
      for (const Value& value : *one) answers.by_epoch[name].emplace_back(value.epoch, value.bytes);
    }
  }
  const std::vector<Bytes> views(names.begin(), names.end());
  const auto many =
      reader.get_many(views, Reader::kAllEpochs, [&](size_t index, EpochNumber epoch, Bytes value) {
        answers.at_once[names[index]].emplace_back(epoch, value);
        return true;
      });
  failed(many.status());
  for (auto& [name, values] : answers.at_once) std::sort(values.begin(), values.end());
  return answers;
}

inline Answers ask_directory(io::Device& device, uint64_t keys, const std::string& directory = kOptimized) {
  const auto reader = Reader::open(device, directory, {});
  if (!reader.ok()) {
    Answers answers;
    answers.problem = reader.status().to_string();
    return answers;
  }
  return ask_reader(**reader, keys);
}

inline OptimizeOptions small_pass() {
  OptimizeOptions options;
  options.memory_bytes = kOptimizeMemoryMin;
  return options;
}

inline Result<OptimizeReport> optimize(io::Device& device, const OptimizeOptions& options = small_pass()) {
  return optimize_directory(device, kOptimized, options);
}

inline ClusterList list_of(io::Device& device) { return load_clusters(device, kOptimized).value(); }

inline void expect_verified(io::Device& device, uint64_t clusters) {
  const auto reader = Reader::open(device, kOptimized, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const VerifyReport report = verify_directory(**reader, 10);
  for (const Status& problem : report.problems) ADD_FAILURE() << problem.to_string();
  EXPECT_EQ(report.clusters, clusters);
}

}  // namespace swale::imd::test
