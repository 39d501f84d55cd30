// Every byte of every file of a cluster turned over, one at a time, and all keys asked. With the epochs
// beside it, answers are right; without them they are right or an error. Of larger clusters, which have
// series and values of every kind, SWALE_FLIPS asks for every byte, too (make test-long).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "imd/format/cluster_list.h"
#include "imd/format/log_names.h"
#include "imd/optimize/optimizer.h"
#include "imd/testing/test_free.h"
#include "io/memory_device.h"

namespace swale::imd::optimize_flip_test {
namespace {

using test::kOptimized;
using test::Trajectory;

// All values of all keys.
struct Answer {
  std::vector<Trajectory> values;
  std::string problem;  // the first failure

  bool operator==(const Answer&) const = default;
};

// All files below a folder.
void list_files(io::Device& device, const std::string& path, std::vector<std::string>* files) {
  const auto names = device.list(path);
  if (!names.ok()) return files->push_back(path);
  for (const std::string& name : *names) list_files(device, path + "/" + name, files);
}

class Flips {
 public:
  explicit Flips(const test::JobShape& shape) : keys_(shape.keys) {
    set_log_level(LogLevel::kOff);
    test::write_job(whole_, shape, 1);
    const auto pass = optimize_directory(whole_, kOptimized, test::small_pass());
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    test::copy_tree(whole_, kOptimized, alone_);
    for (int32_t rank = 0; rank < shape.ranks; ++rank) {
      const LogId log{1, PartitionNumber(static_cast<uint32_t>(rank))};
      EXPECT_TRUE(alone_.remove(data_log_path(kOptimized, log)).ok());
    }
    right_ = ask(whole_);
    EXPECT_EQ(right_.problem, "");
    EXPECT_TRUE(ask(alone_) == right_) << "the cluster answers alone";
    list_files(whole_, clusters_folder(kOptimized), &paths_);
  }
  ~Flips() { set_log_level(LogLevel::kWarn); }

  const std::vector<std::string>& paths() const { return paths_; }
  uint64_t size(const std::string& path) { return *whole_.open(path, io::OpenMode::kRead).value()->size(); }
  void mistake_the_truth() { right_.values[0].emplace_back(0, "!"); }

  struct Outcome {
    bool right = false;
    bool told = false;  // by a reader of the cluster alone
  };
  // Turns bits of one byte over, asks, and turns them back.
  Outcome flip(const std::string& path, uint64_t at, uint8_t bits) {
    for (io::MemoryDevice* device : {&whole_, &alone_}) turn(*device, path, at, bits);
    const Answer alone = ask(alone_);
    const bool told = !alone.problem.empty();
    const bool right = ask(whole_) == right_ && (told || alone == right_);
    for (io::MemoryDevice* device : {&whole_, &alone_}) turn(*device, path, at, bits);
    return {right, told};
  }

 private:
  static void turn(io::Device& device, const std::string& path, uint64_t at, uint8_t bits) {
    const auto file = device.open(path, io::OpenMode::kReadWrite).value();
    char byte = 0;
    ASSERT_TRUE(io::read_exactly(*file, at, {&byte, 1}).ok());
    byte = static_cast<char>(byte ^ bits);
    ASSERT_TRUE(file->pwrite(at, {&byte, 1}).ok());
  }

  Answer ask(io::Device& device) const {
    Answer answer;
    answer.values.resize(keys_);
    const auto failed = [&](const Status& status) {
      if (!status.ok() && answer.problem.empty()) answer.problem = status.to_string();
      return !status.ok();
    };
    const auto reader = Reader::open(device, kOptimized, {});
    if (failed(reader.status())) return answer;
    std::vector<std::string> names;
    for (uint64_t number = 0; number < keys_; ++number) names.push_back(test::optimized_key(number));
    const std::vector<Bytes> views(names.begin(), names.end());
    failed((*reader)
               ->get_many(views, Reader::kAllEpochs,
                          [&](size_t index, EpochNumber epoch, Bytes value) {
                            answer.values[index].emplace_back(epoch, value);
                            return true;
                          })
               .status());
    for (Trajectory& values : answer.values) std::sort(values.begin(), values.end());
    return answer;
  }

  const uint64_t keys_;
  io::MemoryDevice whole_;
  io::MemoryDevice alone_;  // without the data of the epochs themselves
  std::vector<std::string> paths_;
  Answer right_;
};

// Every `step`-th byte.
void turn_bytes_over(Flips& flips, uint64_t step) {
  uint64_t points = 0;
  for (const std::string& path : flips.paths()) {
    uint64_t turned = 0;
    uint64_t told = 0;
    for (uint64_t at = 0; at < flips.size(path); at += step, ++turned) {
      const Flips::Outcome outcome = flips.flip(path, at, static_cast<uint8_t>(1 << at % 8));
      ASSERT_TRUE(outcome.right) << path << " offset " << at;
      told += outcome.told ? 1 : 0;
    }
    fmt::print("  {}: {} of {} told\n", path, told, turned);
    // The canary: all keys were asked, so each of these bytes was read.
    EXPECT_TRUE(told == turned || !path.ends_with(".data"));
    points += turned;
  }
  fmt::print("{} bytes of {} files turned over\n", points, flips.paths().size());
}

test::JobShape small_shape(Codec codec) {
  test::JobShape shape{.ranks = 2, .records = 30, .keys = 12, .one_size = true};
  shape.slow = codec != Codec::kNone;
  if (shape.slow) shape.options.compression = codec;
  return shape;
}

TEST(ClusterFlip, EveryByteGivesTheTruthOrAnError) {
  Flips flips(small_shape(Codec::kNone));
  turn_bytes_over(flips, 1);
}

TEST(ClusterFlip, EveryByteOfColumnsGivesTheTruthOrAnError) {
  Flips flips(small_shape(Codec::kLz4));
  turn_bytes_over(flips, 1);
}

// A prime step, for time: each field is met somewhere.
uint64_t step_of_large() { return std::getenv("SWALE_FLIPS") != nullptr ? 1 : 211; }

// Large values, and series that go on in the next one.
TEST(ClusterFlip, BytesOfSeriesOfAllLengths) {
  Flips flips({.ranks = 2, .records = 60, .keys = 12});
  turn_bytes_over(flips, step_of_large());
}

TEST(ClusterFlip, BytesOfResolvedValues) {
  test::JobShape shape{.ranks = 2, .records = 60, .keys = 12, .one_size = true};
  shape.options.format = run::ShuffleFormat::kIndirect;
  Flips flips(shape);
  turn_bytes_over(flips, step_of_large());
}

// The canary: an answer that differs from what was written is seen, with epochs beside the cluster or not.
TEST(ClusterFlipCanary, AWrongAnswerIsSeen) {
  Flips flips(small_shape(Codec::kNone));
  EXPECT_TRUE(flips.flip(flips.paths().front(), 0, 0).right);
  flips.mistake_the_truth();
  EXPECT_FALSE(flips.flip(flips.paths().front(), 0, 0).right);
}

}  // namespace
}  // namespace swale::imd::optimize_flip_test
