#include "io/disk_measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "io/disk_preset.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/virtual_device.h"

namespace swale::io::disk_measure_test {
namespace {

constexpr Nanos kMicro = 1'000;

DiskModel disk_with_a_head() {
  return {.read_bytes_per_s = 1.5e8,
          .write_bytes_per_s = 1e8,
          .read_latency = 50 * kMicro,
          .write_latency = 50 * kMicro,
          .sync_latency = 300 * kMicro,
          .fixed = 500 * kMicro,
          .settle = 1'000 * kMicro,
          .stroke = 8'000 * kMicro,
          .rotation = 500 * kMicro,
          .capacity_bytes = 64 * kMiB};
}

DiskModel flash_of_four_channels() {
  return {.read_bytes_per_s = 2e9,
          .write_bytes_per_s = 1e9,
          .read_latency = 80 * kMicro,
          .write_latency = 20 * kMicro,
          .sync_latency = 400 * kMicro,
          .channels = 4,
          .slots = 256};
}

bool near(double found, double wanted, double tolerance) {
  return std::fabs(found - wanted) <= tolerance * std::fabs(wanted);
}

// Whether the two cost the same, within 5 %.
bool same_costs(const DiskModel& found, const DiskModel& wanted) {
  bool same = near(found.read_bytes_per_s, wanted.read_bytes_per_s, 0.05) &&
              near(found.write_bytes_per_s, wanted.write_bytes_per_s, 0.05) &&
              near(static_cast<double>(found.sync_latency), static_cast<double>(wanted.sync_latency), 0.05) &&
              found.channels == wanted.channels;
  for (const uint64_t gap : {64 * kKiB, 512 * kKiB, 2 * kMiB, 8 * kMiB})
    same = same && near(static_cast<double>(found.positioning(0, gap) + found.read_latency),
                        static_cast<double>(wanted.positioning(0, gap) + wanted.read_latency), 0.05);
  return same;
}

struct Measured {
  explicit Measured(const DiskModel& model) : device(memory, model, clock) {
    EXPECT_TRUE(memory.make_directory("d").ok());
  }
  DiskMeasurement run(MeasureOptions options = {}) {
    options.directory = "d";
    if (options.file_bytes == kGiB) options.file_bytes = 16 * kMiB;
    auto found = measure_disk(device, clock, options);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : DiskMeasurement();
  }

  MemoryDevice memory;
  ManualClock clock;
  VirtualDevice device;
};

TEST(DiskMeasure, FindsTheNumbersOfADiskWithAHead) {
  Measured disk(disk_with_a_head());
  const DiskMeasurement found = disk.run({.capacity_bytes = 64 * kMiB});
  EXPECT_TRUE(same_costs(found.model, disk_with_a_head()))
      << found.model.fixed << " " << found.model.settle << " " << found.model.stroke << " "
      << found.model.read_bytes_per_s << " " << found.model.write_bytes_per_s << " "
      << found.model.sync_latency << " " << found.model.read_latency;
  EXPECT_EQ(found.model.order, DiskModel::Order::kElevator);
  EXPECT_EQ(found.file_bytes, 16 * kMiB);
  EXPECT_FALSE(found.direct);
  EXPECT_TRUE(disk.device.list("d")->empty());
}

TEST(DiskMeasure, FindsTheChannelsOfFlashAndNoHead) {
  Measured disk(flash_of_four_channels());
  const DiskMeasurement found = disk.run();
  EXPECT_TRUE(same_costs(found.model, flash_of_four_channels()))
      << found.model.channels << " " << found.model.read_latency << " " << found.model.write_latency;
  EXPECT_EQ(found.model.capacity_bytes, 0u);
  EXPECT_EQ(found.saturating_depth, 4u);
  ASSERT_EQ(found.depths.size(), 7u);
}

TEST(DiskMeasure, CanaryAnotherDiskIsNotTakenForThisOne) {
  DiskModel slower = disk_with_a_head();
  slower.settle *= 2;
  Measured disk(slower);
  const DiskMeasurement found = disk.run({.capacity_bytes = 64 * kMiB});
  EXPECT_TRUE(same_costs(found.model, slower));
  EXPECT_FALSE(same_costs(found.model, disk_with_a_head()));
}

TEST(DiskMeasure, EndsInTimeOnASlowDisk) {
  DiskModel slow = disk_with_a_head();
  slow.read_bytes_per_s = slow.write_bytes_per_s = 1e7;
  Measured disk(slow);
  const DiskMeasurement found = disk.run({.file_bytes = 256 * kMiB, .duration = seconds(2)});
  EXPECT_LT(found.file_bytes, 16 * kMiB);
  EXPECT_LT(disk.clock.now(), seconds(4));
}

TEST(DiskMeasure, AFullDiskIsSaidAndNothingStays) {
  MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("d").ok());
  FaultDevice full(memory);
  full.inject({.kind = CallKind::kWrite,
               .nth = 3,
               .from_then_on = true,
               .status = error(Code::kNoSpace, Scope::kFile, "no space left on device")});
  const auto found = measure_disk(full, system_clock(), {.directory = "d", .file_bytes = 16 * kMiB});
  EXPECT_EQ(found.status().code(), Code::kNoSpace);
  EXPECT_NE(found.status().message().find("d: the disk was full after 2097152 of the 16777216 bytes"),
            std::string::npos)
      << found.status().message();
  EXPECT_TRUE(memory.list("d")->empty());
}

TEST(DiskMeasure, EveryFailingCallIsToldAndLeavesNoFile) {
  uint64_t points = 0;
  for (uint64_t nth = 1;; ++nth) {
    MemoryDevice memory;
    ASSERT_TRUE(memory.make_directory("d").ok());
    FaultDevice faulty(memory);
    faulty.inject({.nth = nth});
    const auto found =
        measure_disk(faulty, system_clock(), {.directory = "d", .file_bytes = 4 * kMiB, .duration = 1});
    if (faulty.faults() == 0) {
      EXPECT_TRUE(found.ok());
      break;
    }
    ++points;
    EXPECT_FALSE(found.ok()) << "call " << nth;
    EXPECT_EQ(memory.list("d")->size(), nth == 2 ? 1u : 0u) << "call " << nth;  // 2: the removal itself
  }
  EXPECT_GT(points, 20u);
  std::printf("%llu calls failed\n", static_cast<unsigned long long>(points));
}

DiskPreset golden_preset() {
  DiskPreset preset{.name = "node7", .source = "golden"};
  preset.bed.disk = disk_with_a_head();
  preset.bed.disk.order = DiskModel::Order::kElevator;
  preset.bed.disk.write_done = DiskModel::WriteDone::kAdmitted;
  preset.bed.disk.merge_bytes_max = 512 * kKiB;
  preset.bed.flash = flash_of_four_channels();
  preset.bed.network_bytes_per_s = 2.5e8;
  return preset;
}

TEST(DiskPreset, HasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::filesystem::path path = SWALE_SOURCE_DIR "/tests/golden/disk-preset-v1/preset";
  const std::string now = encode_disk_preset(golden_preset());
  if (std::getenv("SWALE_REGENERATE_GOLDEN")) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << now;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(golden, now);
  const auto read = decode_disk_preset(golden, "preset");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->name, "node7");
  EXPECT_EQ(read->bed.disk.stroke, 8'000 * kMicro);
  EXPECT_EQ(read->bed.disk.order, DiskModel::Order::kElevator);
  EXPECT_EQ(read->bed.flash.channels, 4u);
  EXPECT_EQ(encode_disk_preset(*read), now);
}

TEST(DiskPreset, ADamagedOneIsRefusedAndNamed) {
  std::string text = encode_disk_preset(golden_preset());
  text[text.size() / 2] ^= 1;
  const auto read = decode_disk_preset(text, "DIR/preset");
  EXPECT_EQ(read.status().code(), Code::kCorruption);
  EXPECT_NE(read.status().message().find("DIR/preset"), std::string::npos);
}

}  // namespace
}  // namespace swale::io::disk_measure_test
