// Device::anchored, over every implementation.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "io/io_queue.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::anchored_contract_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A directory "d" with the file "a", held by a second device; then it is moved to "away", and another "d" is
// made.
class AnchoredContract : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(make_directories(device(), in_root("d/e")).ok());
    write("d/a", "old");
    held_ = device().anchored(in_root("d//")).value();
  }
  void move_away() {
    ASSERT_TRUE(device().rename(in_root("d"), in_root("away")).ok());
    ASSERT_TRUE(device().make_directory(in_root("d")).ok());
    write("d/a", "new");
  }
  std::string read_held(const std::string& name) {
    const Result<std::string> content = read_file(*held_, in_root(name), kMiB);
    return content.ok() ? *content : std::string(code_name(content.status().code()));
  }
  std::vector<std::string> names(Device& of, const std::string& name) {
    const auto listed = of.list(in_root(name));
    return listed.ok() ? *listed : std::vector<std::string>{listed.status().to_string()};
  }

  std::unique_ptr<Device> held_;
};
INSTANTIATE_TEST_SUITE_P(Devices, AnchoredContract, ::testing::ValuesIn(all_implementations()),
                         implementation_name);

TEST_P(AnchoredContract, ReadsAndWritesInTheDirectoryThatItHolds) {
  move_away();
  EXPECT_EQ(read_held("d/a"), "old");
  EXPECT_EQ(read("d/a"), "new");
  const auto file = held_->open(in_root("d/a"), OpenMode::kReadWrite).value();
  file->prefer_direct();
  EXPECT_EQ(file->path(), in_root("d/a"));
  ASSERT_TRUE(file->pwrite(0, "OLD").ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(read("away/a"), "OLD");
  EXPECT_EQ(read("d/a"), "new");
  EXPECT_EQ(held_->open(in_root("d/a"), OpenMode::kCreate).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(held_->open(in_root("d/b"), OpenMode::kCreate).ok());
  EXPECT_TRUE(held_->make_directory(in_root("d//f")).ok());
  EXPECT_EQ(held_->make_directory(in_root("d/e")).code(), Code::kAlreadyExists);
  EXPECT_EQ(held_->make_directory(in_root("d")).code(), Code::kAlreadyExists);
  EXPECT_TRUE(make_directories(*held_, in_root("d/e/g")).ok());
  EXPECT_THAT(names(*held_, "d"), ElementsAre("a", "b", "e", "f"));
  EXPECT_THAT(names(*held_, "d/"), ElementsAre("a", "b", "e", "f"));
  EXPECT_THAT(names(*held_, "d/e"), ElementsAre("g"));
  EXPECT_THAT(names(device(), "away"), ElementsAre("a", "b", "e", "f"));
  EXPECT_THAT(names(device(), "d"), ElementsAre("a"));
}

TEST_P(AnchoredContract, RenamesReplacesAndSyncsThere) {
  move_away();
  ASSERT_TRUE(replace_file(*held_, in_root("d/a"), "replaced").ok());
  ASSERT_TRUE(held_->rename(in_root("d/a"), in_root("d/b")).ok());
  ASSERT_TRUE(held_->rename_new(in_root("d/b"), in_root("d/c")).ok());
  EXPECT_TRUE(held_->sync_directory(in_root("d")).ok());
  EXPECT_TRUE(held_->sync_directory(in_root("d/e")).ok());
  EXPECT_TRUE(*held_->exists(in_root("d")));
  EXPECT_TRUE(*held_->exists(in_root("d/c")));
  EXPECT_FALSE(*held_->exists(in_root("d/a")));
  EXPECT_EQ(read("away/c"), "replaced");
  EXPECT_EQ(read("d/a"), "new");
  ASSERT_TRUE(held_->remove(in_root("d/c")).ok());
  ASSERT_TRUE(held_->remove(in_root("d/e")).ok());
  EXPECT_THAT(names(device(), "away"), IsEmpty());
  EXPECT_THAT(names(device(), "d"), ElementsAre("a"));
  EXPECT_FALSE(held_->remove(in_root("d")).ok());
  EXPECT_FALSE(held_->rename(in_root("d"), in_root("x")).ok());
}

TEST_P(AnchoredContract, ResolvesOtherPathsAsEver) {
  move_away();
  write("da", "beside");
  EXPECT_EQ(read_held("da"), "beside");
  EXPECT_EQ(read_held("away/a"), "old");
  ASSERT_TRUE(held_->rename(in_root("d/a"), in_root("x")).ok());  // out of what it holds
  EXPECT_EQ(read("x"), "old");
  ASSERT_TRUE(held_->rename_new(in_root("x"), in_root("d/y")).ok());  // and into it
  EXPECT_EQ(read("away/y"), "old");
  EXPECT_EQ(device().anchored(in_root("nowhere")).status().code(), Code::kNotFound);
  EXPECT_FALSE(device().anchored(in_root("da")).ok());
}

TEST_P(AnchoredContract, HoldsADirectoryBelowAHeldOne) {
  write("d/e/b", "below");
  const auto both = held_->anchored(in_root("d/e")).value();
  held_.reset();  // the newer device needs neither it nor the first one
  move_away();
  ASSERT_TRUE(device().rename(in_root("away/e"), in_root("e")).ok());
  EXPECT_EQ(*read_file(*both, in_root("d/e/b"), kMiB), "below");
  EXPECT_EQ(*read_file(*both, in_root("d/a"), kMiB), "old");
}

TEST_P(AnchoredContract, FindsNothingInADirectoryThatIsRemoved) {
  ASSERT_TRUE(device().remove(in_root("d/a")).ok());
  ASSERT_TRUE(device().remove(in_root("d/e")).ok());
  ASSERT_TRUE(device().remove(in_root("d")).ok());
  for (const bool made_anew : {false, true}) {
    if (made_anew) {
      ASSERT_TRUE(device().make_directory(in_root("d")).ok());
    }
    for (const OpenMode mode :
         {OpenMode::kRead, OpenMode::kReadWrite, OpenMode::kOpenOrCreate, OpenMode::kCreate})
      EXPECT_EQ(held_->open(in_root("d/a"), mode).status().code(), Code::kNotFound);
    write("x", "x");
    EXPECT_EQ(held_->make_directory(in_root("d")).code(), Code::kNotFound);
    EXPECT_EQ(held_->make_directory(in_root("d/f")).code(), Code::kNotFound);
    EXPECT_EQ(held_->rename(in_root("x"), in_root("d/x")).code(), Code::kNotFound);
    EXPECT_EQ(held_->rename_new(in_root("x"), in_root("d/x")).code(), Code::kNotFound);
    EXPECT_EQ(held_->remove(in_root("d/a")).code(), Code::kNotFound);
    EXPECT_EQ(held_->list(in_root("d")).status().code(), Code::kNotFound);
    EXPECT_EQ(held_->sync_directory(in_root("d")).code(), Code::kNotFound);
    EXPECT_EQ(held_->anchored(in_root("d/e")).status().code(), Code::kNotFound);
    EXPECT_EQ(replace_file(*held_, in_root("d/a"), "").code(), Code::kNotFound);
    EXPECT_FALSE(*held_->exists(in_root("d")));
    EXPECT_FALSE(*held_->exists(in_root("d/a")));
  }
  EXPECT_THAT(names(device(), "d"), IsEmpty());
}

TEST_P(AnchoredContract, SharesQueuesWithTheDeviceThatItComesFrom) {
  move_away();
  const auto file = held_->open(in_root("d/a"), OpenMode::kReadWrite).value();
  const auto queue = device().make_queue(2).value();
  queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "1234", 7}});
  std::vector<Completion> completions;
  while (completions.empty()) queue->wait(1, &completions);
  EXPECT_TRUE(completions[0].status.ok());
  EXPECT_EQ(read("away/a"), "1234");
}

TEST(FaultDevice, AnchoredDevicesShareThePlan) {
  MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("/d").ok());
  FaultDevice faults(memory);
  const auto held = faults.anchored("/d").value();
  faults.inject({.kind = CallKind::kWrite, .path_part = "/d/a", .nth = 2});
  const auto file = held->open("/d/a", OpenMode::kCreate).value();
  EXPECT_TRUE(file->pwrite(0, "x").ok());
  EXPECT_FALSE(file->pwrite(0, "x").ok());
  EXPECT_EQ(faults.calls(CallKind::kOpen), 1u);
  EXPECT_EQ(faults.calls(CallKind::kWrite), 2u);
  EXPECT_EQ(faults.faults(), 1u);
}

TEST(MemoryDevice, AnchorsFromBeforeACrashFail) {
  MemoryDevice memory;
  ASSERT_TRUE(make_directories(memory, "/d").ok());
  const auto held = memory.anchored("/d").value();
  ASSERT_TRUE(memory.remove("/d").ok());  // which the crash undoes
  Rng rng(1);
  memory.crash(rng, CrashMode::kDropAll);
  EXPECT_EQ(held->open("/d/a", OpenMode::kCreate).status().code(), Code::kIoError);
  EXPECT_EQ(held->exists("/d").status().code(), Code::kIoError);
  const auto again = memory.anchored("/d").value();
  EXPECT_TRUE(again->open("/d/a", OpenMode::kCreate).ok());
}

TEST(LimitedDevice, AnchoredDevicesShareTheLimit) {
  MemoryDevice memory;
  ASSERT_TRUE(memory.make_directory("/d").ok());
  ManualClock clock{0};
  LimitedDevice limited(memory, 1000, clock);
  const auto file = limited.anchored("/d").value()->open("/d/a", OpenMode::kCreate).value();
  const auto queue = limited.make_queue(1).value();
  queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 0, {}, "1234", 7}});
  std::vector<Completion> completions;
  EXPECT_EQ(queue->wait(0, &completions), 0u);
  clock.advance(4'000'000);
  EXPECT_EQ(queue->wait(0, &completions), 1u);
}

}  // namespace
}  // namespace swale::io::anchored_contract_test
