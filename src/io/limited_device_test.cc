// The limit's arithmetic, by a clock that the tests move; that it is a Device and has queues like any other
// is for the contract tests.
#include "io/limited_device.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/testing/device_test_fixture.h"

namespace swale::io::limited_device_test {
namespace {

constexpr Nanos kMilli = 1'000'000;

// One byte a millisecond, on a device that takes no time.
class LimitedDeviceTest : public ::testing::Test {
 protected:
  LimitedDeviceTest() {
    file_ = limited_.open("/a", OpenMode::kCreate).value();
    queue_ = limited_.make_queue(8).value();
  }
  void write(size_t bytes, uint64_t tag) {
    queue_->submit(std::vector<Operation>{
        {Operation::Kind::kWrite, file_.get(), 0, {}, Bytes(text_).substr(0, bytes), tag}});
  }
  void sync(uint64_t tag) {
    queue_->submit(std::vector<Operation>{{Operation::Kind::kSync, file_.get(), 0, {}, {}, tag}});
  }
  std::vector<uint64_t> complete_after(int64_t millis) {
    clock_.advance(millis * kMilli);
    std::vector<Completion> out;
    queue_->wait(0, &out);
    std::vector<uint64_t> tags;
    for (const Completion& completion : out) tags.push_back(completion.tag);
    return tags;
  }

  const std::string text_ = std::string(100, 'x');
  ManualClock clock_{12345};
  MemoryDevice memory_;
  LimitedDevice limited_{memory_, 1000, clock_};
  std::unique_ptr<File> file_;
  std::unique_ptr<IoQueue> queue_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(LimitedDeviceTest, WritesInFlightTogetherCompleteOneAfterTheOther) {
  write(10, 1);
  write(5, 2);
  EXPECT_EQ(queue_->in_flight(), 2u);
  EXPECT_THAT(complete_after(9), IsEmpty());
  EXPECT_THAT(complete_after(1), ElementsAre(1));
  EXPECT_THAT(complete_after(4), IsEmpty());
  EXPECT_THAT(complete_after(1), ElementsAre(2));
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_F(LimitedDeviceTest, IdleTimeEarnsNothing) {
  write(10, 1);
  EXPECT_THAT(complete_after(1000), ElementsAre(1));
  write(10, 2);
  EXPECT_THAT(complete_after(9), IsEmpty());
  EXPECT_THAT(complete_after(1), ElementsAre(2));
}

TEST_F(LimitedDeviceTest, SyncWaitsForThePlacesOfEarlierWritesAndTakesNone) {
  write(10, 1);
  sync(2);
  write(10, 3);
  EXPECT_THAT(complete_after(9), IsEmpty());
  EXPECT_THAT(complete_after(1), ElementsAre(1, 2));
  EXPECT_THAT(complete_after(10), ElementsAre(3));
  sync(4);
  EXPECT_THAT(complete_after(0), ElementsAre(4));
}

TEST_F(LimitedDeviceTest, ReadsPassWritesThatWait) {
  write(100, 1);
  std::string got(5, '.');
  queue_->submit(std::vector<Operation>{{Operation::Kind::kRead, file_.get(), 0, got, {}, 2}});
  EXPECT_THAT(complete_after(0), ElementsAre(2));
  EXPECT_EQ(got, "xxxxx");
}

TEST_F(LimitedDeviceTest, FilesAndQueuesShareOneLimit) {
  const auto other = limited_.open("/b", OpenMode::kCreate).value();
  const auto queue = limited_.make_queue(1).value();
  queue->submit(std::vector<Operation>{{Operation::Kind::kWrite, other.get(), 0, {}, Bytes(text_), 7}});
  write(1, 1);
  EXPECT_THAT(complete_after(100), IsEmpty());
  EXPECT_THAT(complete_after(1), ElementsAre(1));
  std::vector<Completion> out;
  EXPECT_EQ(queue->wait(1, &out), 1u);
}

TEST_F(LimitedDeviceTest, FailureIsNotLostOnTheWay) {
  const auto file = limited_.open("/a", OpenMode::kRead).value();
  queue_->submit(std::vector<Operation>{{Operation::Kind::kWrite, file.get(), 3, {}, "no", 5}});
  clock_.advance(2 * kMilli);
  std::vector<Completion> out;
  ASSERT_EQ(queue_->wait(1, &out), 1u);
  EXPECT_EQ(out[0].tag, 5u);
  EXPECT_FALSE(out[0].status.ok());
}

TEST_F(LimitedDeviceTest, BlockingCallsWaitForTheirPlaces) {
  std::atomic<int> done{0};
  std::thread writer([&] {
    EXPECT_TRUE(file_->pwrite(0, "12").ok());
    done = 1;
    EXPECT_TRUE(file_->pwrite(2, "34").ok());
    done = 2;
    EXPECT_TRUE(file_->sync().ok());
    done = 3;
  });
  // Until the clock moves nothing completes, however long it takes.
  while (!memory_.exists("/a").ok() || read_file(memory_, "/a", 10)->size() < 2) std::this_thread::yield();
  EXPECT_EQ(done, 0);
  clock_.advance(2 * kMilli);
  while (read_file(memory_, "/a", 10)->size() < 4) std::this_thread::yield();
  EXPECT_EQ(done, 1);
  while (done < 3) {
    clock_.advance(kMilli);
    std::this_thread::yield();
  }
  writer.join();
}

TEST_F(LimitedDeviceTest, WakeEndsAWaitForAPlace) {
  write(1, 1);  // the clock stands: the place never passes
  std::vector<Completion> out;
  std::thread waker([&] { queue_->wake(); });
  EXPECT_EQ(queue_->wait(1, &out), 0u);
  waker.join();
  EXPECT_THAT(complete_after(1), ElementsAre(1));
}

}  // namespace
}  // namespace swale::io::limited_device_test
