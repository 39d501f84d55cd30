#include "io/virtual_device.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/memory_device.h"

namespace swale::io::virtual_device_test {
namespace {

constexpr Nanos kMicro = 1'000;

// 10 ns a byte, 1 ms a move, 2 ms a sync.
DiskModel round_disk() {
  return {.name = "round",
          .read_bytes_per_s = 1e8,
          .write_bytes_per_s = 1e8,
          .sync_latency = milliseconds(2),
          .settle = milliseconds(1),
          .capacity_bytes = 64 * kGiB};
}

class VirtualDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<File> open(Device& device, const std::string& path) {
    return std::move(device.open(path, OpenMode::kOpenOrCreate)).value();
  }
  // How far the call moves the clock.
  template <class Call>
  Nanos time_of(const Call& call) {
    const Nanos begin = clock_.now();
    call();
    return clock_.now() - begin;
  }
  const std::string kilo_ = std::string(1'000, 'k');

  MemoryDevice memory_;
  ManualClock clock_;
  VirtualDevice device_{memory_, round_disk(), clock_};
};

TEST_F(VirtualDeviceTest, BlockingCallsTakeTheTimeOfTheModel) {
  const auto file = open(device_, "/a");
  EXPECT_EQ(clock_.now(), 0);
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(file->pwrite(0, kilo_).ok()); }), 10 * kMicro);
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(file->pwrite(1'000, kilo_).ok()); }), 10 * kMicro);
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(file->sync().ok()); }), milliseconds(2));
  std::string out(5'000, '.');
  EXPECT_EQ(time_of([&] { EXPECT_EQ(*file->pread(1'000, out), 1'000u); }), milliseconds(1) + 10 * kMicro);
  EXPECT_EQ(time_of([&] { EXPECT_EQ(*file->pread(9'000, out), 0u); }), 0);
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(device_.sync_directory("/").ok()); }), milliseconds(2));
  EXPECT_EQ(time_of([&] { file->discard(0, 100); }), 0);
  EXPECT_EQ(device_.use().written_bytes, 2'000u);
  EXPECT_EQ(device_.use().read_bytes, 1'000u);
}

TEST_F(VirtualDeviceTest, WhatFailsAndWhatMovesNoDataTakesNoTime) {
  const auto file = open(device_, "/a");
  EXPECT_EQ(time_of([&] {
              EXPECT_FALSE(device_.open("/none", OpenMode::kRead).ok());
              EXPECT_FALSE(device_.open("/a", OpenMode::kRead).value()->pwrite(0, kilo_).ok());
              EXPECT_TRUE(file->truncate(77).ok());
              EXPECT_TRUE(device_.list("/").ok());
            }),
            0);
}

TEST_F(VirtualDeviceTest, FilesLieApartAndARenamedOneStays) {
  const auto a = open(device_, "/a");
  const auto b = open(device_, "/b");
  ASSERT_TRUE(a->pwrite(0, kilo_).ok());
  EXPECT_GT(time_of([&] { ASSERT_TRUE(b->pwrite(0, kilo_).ok()); }), milliseconds(1));
  ASSERT_TRUE(a->pwrite(1'000, kilo_).ok());  // and the head is behind it
  ASSERT_TRUE(device_.rename("/a", "/c").ok());
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(open(device_, "/c")->pwrite(2'000, kilo_).ok()); }), 10 * kMicro);
  // A removed one does not: the new file of its name gets a piece of its own.
  ASSERT_TRUE(device_.remove("/c").ok());
  EXPECT_GT(time_of([&] { ASSERT_TRUE(open(device_, "/c")->pwrite(3'000, kilo_).ok()); }), milliseconds(1));
}

// Pieces that were touched one after the other are neighbours on the disk.
TEST_F(VirtualDeviceTest, AWriteAcrossPiecesIsOneOfSeveralRequests) {
  const auto file = open(device_, "/a");
  const std::string data(2'000, 'x');
  ASSERT_TRUE(file->pwrite(VirtualDevice::kPieceBytes - 1'000, data).ok());
  EXPECT_EQ(device_.use().served, 2u);
  EXPECT_EQ(device_.use().seeks, 1u);
  std::string out(2'000, '.');
  ASSERT_TRUE(file->pread(VirtualDevice::kPieceBytes - 1'000, out).ok());
  EXPECT_EQ(out, data);
}

TEST_F(VirtualDeviceTest, OperationsOfAQueueOverlapAndComeInTheOrderOfCompletion) {
  const auto file = open(device_, "/a");
  auto queue = device_.make_queue(8).value();
  const std::string large(3'000, 'l');
  const Operation operations[] = {{Operation::Kind::kWrite, file.get(), 0, {}, large, 1},
                                  {Operation::Kind::kWrite, file.get(), 3'000, {}, kilo_, 2}};
  queue->submit(operations);
  EXPECT_EQ(queue->in_flight(), 2u);
  std::vector<Completion> out;
  EXPECT_EQ(queue->wait(0, &out), 0u);
  EXPECT_EQ(clock_.now(), 0);  // nobody has waited yet
  EXPECT_EQ(queue->wait(1, &out), 1u);
  EXPECT_EQ(out[0].tag, 1u);
  EXPECT_EQ(clock_.now(), 30 * kMicro);
  EXPECT_EQ(queue->wait(5, &out), 1u);
  EXPECT_EQ(out[1].tag, 2u);
  EXPECT_EQ(clock_.now(), 40 * kMicro);
  EXPECT_EQ(queue->in_flight(), 0u);
}

// With an event loop of one's own: the clock moves to next_event, and wait(0) hands out.
TEST_F(VirtualDeviceTest, AnEventLoopMovesTheClockItself) {
  const auto file = open(device_, "/a");
  auto queue = device_.make_queue(8).value();
  for (uint64_t i = 0; i < 3; ++i) {
    const Operation write{Operation::Kind::kWrite, file.get(), 1'000 * i, {}, kilo_, i};
    queue->submit({&write, 1});
  }
  std::vector<Completion> out;
  std::vector<Nanos> times;
  for (Nanos next; (next = device_.next_event()) != kForever;) {
    clock_.advance(next - clock_.now());
    if (queue->wait(0, &out) > 0) times.push_back(clock_.now());
  }
  EXPECT_EQ(times, (std::vector<Nanos>{10 * kMicro, 20 * kMicro, 30 * kMicro}));
  EXPECT_EQ(out.size(), 3u);
}

TEST_F(VirtualDeviceTest, AnUrgentFileGoesBeforeTheOthers) {
  const auto background = device_.with_priority(DiskPriority::kBackground);
  const auto urgent = device_.with_priority(DiskPriority::kUrgent);
  const auto slow = open(*background, "/a");
  const auto fast = open(*urgent, "/a");
  auto queue = device_.make_queue(8).value();
  for (uint64_t i = 0; i < 4; ++i) {
    const Operation write{Operation::Kind::kWrite, i == 3 ? fast.get() : slow.get(), 1'000 * i, {}, kilo_, i};
    queue->submit({&write, 1});
  }
  std::vector<Completion> out;
  queue->wait(4, &out);
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[0].tag, 3u);
}

TEST_F(VirtualDeviceTest, AnAnchoredDeviceIsOnTheSameDisk) {
  ASSERT_TRUE(device_.make_directory("/d").ok());
  const auto anchored = std::move(device_.anchored("/d")).value();
  const auto file = open(*anchored, "/d/a");
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(file->pwrite(0, kilo_).ok()); }), 10 * kMicro);
  EXPECT_EQ(time_of([&] { ASSERT_TRUE(open(device_, "/d/a")->pwrite(1'000, kilo_).ok()); }), 10 * kMicro);
}

// More operations than the disk has slots: submit waits for some, and all complete.
TEST_F(VirtualDeviceTest, SubmitWaitsForSlots) {
  DiskModel model = round_disk();
  model.slots = 2;
  VirtualDevice device(memory_, model, clock_);
  const auto file = open(device, "/a");
  auto queue = device.make_queue(100).value();
  std::vector<Operation> operations;
  for (uint64_t i = 0; i < 20; ++i)
    operations.push_back({Operation::Kind::kWrite, file.get(), 1'000 * i, {}, kilo_, i});
  queue->submit(operations);
  EXPECT_GT(clock_.now(), 0);
  std::vector<Completion> out;
  EXPECT_EQ(queue->wait(20, &out), 20u);
  EXPECT_EQ(clock_.now(), 200 * kMicro);
}

}  // namespace
}  // namespace swale::io::virtual_device_test
