#include "io/storage_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/testing/test_threads.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::storage_thread_test {
namespace {

using swale::test::threads_expecting;
using swale::test::threads_of_this_process;

// Writes `pieces` pieces of a file, four in flight, then a sync.
class PieceWriter : public StorageClient {
 public:
  PieceWriter(StorageThread& thread, Device& device, const std::string& path, size_t pieces)
      : thread_(thread), file_(device.open(path, OpenMode::kCreate).value()), pieces_(pieces) {}

  bool start(std::vector<Operation>* operations) override {
    const std::lock_guard lock(mutex_);
    for (; begun_ < pieces_ && running_ < 4; ++begun_, ++running_) {
      operations->push_back(
          {Operation::Kind::kWrite, file_.get(), begun_ * piece_.size(), {}, piece_, begun_});
    }
    if (begun_ == pieces_ && running_ == 0 && !synced_) {
      synced_ = true;
      ++running_;
      operations->push_back({Operation::Kind::kSync, file_.get(), 0, {}, {}, pieces_});
    }
    return false;
  }
  void completed(const Completion& completion) override {
    {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(completion.status.ok()) << completion.status.to_string();
      EXPECT_TRUE(seen_.insert(completion.tag).second) << completion.tag;
      --running_;
      changed_.notify_all();
    }
    thread_.wake(this);
  }
  void failed(const Status& why) noexcept override { ADD_FAILURE() << why.to_string(); }

  void run() { thread_.wake(this); }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return seen_.size() == pieces_ + 1; });
  }
  uint64_t bytes() { return *file_->size(); }

 private:
  StorageThread& thread_;
  const std::unique_ptr<File> file_;
  const size_t pieces_;
  const std::string piece_ = std::string(4'096, 'p');
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  size_t begun_ = 0;
  size_t running_ = 0;
  bool synced_ = false;
  std::set<uint64_t> seen_;
};

class StorageThreadTest : public OverDevices {};

INSTANTIATE_TEST_SUITE_P(Devices, StorageThreadTest, ::testing::ValuesIn(all_implementations()),
                         implementation_name);

TEST_P(StorageThreadTest, TenClientsShareOneThread) {
  constexpr size_t kClients = 10;
  constexpr size_t kPieces = 100;
  const std::shared_ptr<StorageThread> thread = StorageThread::of(device());
  EXPECT_EQ(thread, StorageThread::of(device()));
  std::vector<std::unique_ptr<PieceWriter>> clients;
  const size_t before = threads_of_this_process();
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(
        std::make_unique<PieceWriter>(*thread, device(), in_root("f" + std::to_string(i)), kPieces));
    ASSERT_TRUE(thread->add(clients.back().get()).ok());
    if (i == 0) clients[0]->run();
  }
  const size_t with_one = threads_of_this_process();
  for (size_t i = 1; i < kClients; ++i) clients[i]->run();
  for (auto& client : clients) client->wait();
  for (auto& client : clients) EXPECT_EQ(client->bytes(), kPieces * 4'096);
  // One of ours, and those that a ThreadQueue may have.
  EXPECT_LE(with_one, before + 1 + 16);
  for (auto& client : clients) thread->remove(client.get());
  thread->remove(clients[0].get());  // again: nothing happens
  EXPECT_EQ(threads_expecting(before), before);
}

// Without waiting for it: remove does.
TEST_P(StorageThreadTest, RemoveWaitsForWhatIsInFlight) {
  const std::shared_ptr<StorageThread> thread = StorageThread::of(device());
  for (int round = 0; round < 20; ++round) {
    PieceWriter stays(*thread, device(), in_root("s" + std::to_string(round)), 20);
    ASSERT_TRUE(thread->add(&stays).ok());
    stays.run();
    {
      PieceWriter goes(*thread, device(), in_root("g" + std::to_string(round)), 50);
      ASSERT_TRUE(thread->add(&goes).ok());
      goes.run();
      thread->remove(&goes);
    }
    stays.wait();
    thread->remove(&stays);
  }
}

// Whose start throws: it is told so, and the others go on.
class Thrower : public StorageClient {
 public:
  bool start(std::vector<Operation>* /*operations*/) override { throw std::bad_alloc(); }
  void completed(const Completion& /*completion*/) override {}
  void failed(const Status& why) noexcept override {
    EXPECT_EQ(why.code(), Code::kResourceExhausted);
    ++failures_;
  }
  std::atomic<int> failures_{0};
};

TEST(StorageThread, AClientThatThrowsIsToldAndHarmsNobody) {
  MemoryDevice memory;
  StorageThread thread(memory);
  Thrower thrower;
  PieceWriter writer(thread, memory, "/a", 30);
  ASSERT_TRUE(thread.add(&thrower).ok());
  ASSERT_TRUE(thread.add(&writer).ok());
  thread.wake(&thrower);
  writer.run();
  writer.wait();
  thread.remove(&thrower);
  thread.remove(&writer);
  EXPECT_EQ(thrower.failures_, 1);
}

TEST(StorageThread, AQueueThatCannotBeMadeIsAFailureOfAdd) {
  class NoQueue : public MemoryDevice {
   public:
    Result<std::unique_ptr<IoQueue>> make_queue(size_t /*depth*/) override {
      return errno_status(EMFILE, "making a queue");
    }
  };
  NoQueue device;
  StorageThread thread(device);
  Thrower client;
  EXPECT_EQ(thread.add(&client).error_number(), EMFILE);
}

}  // namespace
}  // namespace swale::io::storage_thread_test
