// Store on devices that fail: nobody waits for ever, what was acknowledged is there or is named, and the
// other device goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/log.h"
#include "base/rng.h"
#include "tier/store/store.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::tier::store_fault_test {
namespace {

class StoreFaultTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kFileBytes = 200'000;

  void SetUp() override {
    root_ = (std::filesystem::current_path() / "store-fault-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directory(root_ + "/backing");
  }
  void TearDown() override {
    device_.faults.clear();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  StoreOptions options(Policy policy, int64_t retry_ns = 1'000'000, bool accept_loss = false) const {
    StoreOptions options;
    options.ssd_directory = root_ + "/ssd";
    options.backing_directory = root_ + "/backing";
    options.engine.policy = policy;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 64 * kKiB;
    options.engine.queue_slots = 4;
    options.engine.retry_ns = retry_ns;
    options.engine.canaries = canaries_;
    options.queue_slots = 8;
    options.slot_bytes = 8 * kKiB;
    options.accept_loss = accept_loss;
    return options;
  }
  void open(Policy policy, int64_t retry_ns = 1'000'000, bool accept_loss = false) {
    auto store = Store::open(device_, options(policy, retry_ns, accept_loss));
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    file_ = *store_->open_file("data", io::OpenMode::kOpenOrCreate);
  }
  // Everything below a directory, from the n-th call on. `status`: OK is kIoError.
  void fail(const std::string& part, std::optional<io::CallKind> kind, uint64_t nth = 1, Status status = {}) {
    io::Fault fault;
    fault.kind = kind;
    fault.path_part = root_ + part;
    fault.nth = nth;
    fault.from_then_on = true;
    fault.status = status;
    device_.faults.inject(fault);
  }
  // Random writes; what was acknowledged is in model_, what was refused may be either.
  void write_some(int count) {
    for (int i = 0; i < count; ++i) {
      std::string bytes(1 + rng_.below(8000), static_cast<char>('a' + rng_.below(26)));
      const uint64_t offset = rng_.below(kFileBytes - bytes.size());
      const bool ok = store_->write(file_, offset, bytes).ok();
      ok ? ++written_ : ++refused_;
      for (size_t at = 0; at < bytes.size(); ++at) model_[offset + at] = ok ? bytes[at] : '?';
    }
  }
  // Reads everything: bytes that are not what was acknowledged last, and reads that are refused.
  struct Found {
    uint64_t wrong = 0;
    uint64_t refused = 0;
  };
  Found read_all() {
    Found found;
    constexpr uint64_t kReadBytes = 500;
    const uint64_t size = *store_->size(file_);
    for (uint64_t at = 0; at < size; at += kReadBytes) {
      std::string bytes(std::min(kReadBytes, size - at), '\0');
      if (!store_->read(file_, at, bytes).ok()) {
        ++found.refused;
        continue;
      }
      for (size_t i = 0; i < bytes.size(); ++i) {
        const auto known = model_.find(at + i);
        found.wrong += known != model_.end() && known->second != '?' && known->second != bytes[i];
      }
    }
    return found;
  }
  std::string on_backing() const {
    std::ifstream in(root_ + "/backing/data", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void visited(const char* what) {
    std::printf("%s: %lu writes acknowledged, %lu refused, %lu calls failed\n", what, written_, refused_,
                device_.faults.faults());
    EXPECT_GT(device_.faults.faults(), 0u) << "nothing went wrong";
  }

  DescribedFaultDevice device_;
  Canaries canaries_;
  std::string root_;
  std::unique_ptr<Store> store_;
  Store::Handle file_ = 0;
  Rng rng_{5};
  std::map<uint64_t, char> model_;
  uint64_t written_ = 0;
  uint64_t refused_ = 0;
};

TEST_F(StoreFaultTest, AnSsdThatIsLostIsGivenUpAndWhatItHadIsNamed) {
  open(Policy::kSsdBlocking);
  store_->pause_flush(true);
  write_some(20);
  fail("/ssd/", std::nullopt);
  write_some(50);
  static_cast<void>(store_->drain());  // until all that the SSD had is given up
  const Found found = read_all();
  EXPECT_EQ(found.wrong, 0u) << "older bytes";
  EXPECT_GT(found.refused, 0u);
  const auto lost = store_->losses();
  ASSERT_FALSE(lost.empty());
  EXPECT_EQ(lost[0].path, "data");
  EXPECT_TRUE(store_->stats().log_failed);
  visited("SSD lost");
  // The backing directory alone goes on, and what is overwritten is whole again.
  const std::string all(kFileBytes, 'z');
  ASSERT_TRUE(store_->write(file_, 0, all).ok());
  EXPECT_TRUE(store_->losses().empty());
  static_cast<void>(store_->sync(file_));  // tells what was lost, once
  EXPECT_TRUE(store_->sync(file_).ok());
  EXPECT_EQ(on_backing(), all);
  // A new life: with another SSD.
  store_.reset();
  device_.faults.clear();
  open(Policy::kSsdBlocking);
  std::string back(kFileBytes, '\0');
  ASSERT_TRUE(store_->read(file_, 0, back).ok());
  EXPECT_EQ(back, all);
}

TEST_F(StoreFaultTest, CanaryALostSsdWhoseLossesAreForgottenGivesOlderBytes) {
  canaries_.forget_losses = true;
  open(Policy::kSsdBlocking);
  write_some(20);
  ASSERT_TRUE(store_->drain().ok());
  store_->pause_flush(true);
  write_some(20);
  fail("/ssd/", std::nullopt);
  write_some(1);
  static_cast<void>(store_->drain());
  EXPECT_GT(read_all().wrong, 0u);
}

TEST_F(StoreFaultTest, AFullSsdKeepsWhatItHasAndTheBackingDirectoryTakesTheRest) {
  open(Policy::kSsdOverflowing);
  write_some(20);
  fail("/ssd/log", io::CallKind::kWrite, 1, error(Code::kNoSpace, Scope::kFile, "no space"));
  write_some(50);
  EXPECT_EQ(refused_, 0u) << "what the SSD refuses goes to the backing directory";
  EXPECT_TRUE(store_->drain().ok());
  const Found found = read_all();
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.refused, 0u);
  EXPECT_TRUE(store_->losses().empty());
  visited("SSD full");
}

TEST_F(StoreFaultTest, AFullBackingDirectoryRefusesWritesAndTakesThemAgainLater) {
  open(Policy::kSsdBlocking);
  fail("/backing/data", io::CallKind::kWrite, 1, error(Code::kNoSpace, Scope::kFile, "no space"));
  // More than the log can hold: the rest is refused, and nobody waits for ever.
  write_some(100);
  EXPECT_GT(refused_, 0u);
  EXPECT_FALSE(store_->drain().ok());
  Found found = read_all();
  EXPECT_EQ(found.wrong, 0u);
  visited("backing full");
  device_.faults.clear();
  while (!store_->drain().ok()) {
  }
  found = read_all();
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_EQ(found.refused, 0u);
}

// Nobody may ask the store for a while: the log of the program says it, once until the file can be written
// again.
TEST_F(StoreFaultTest, AFlushThatFailsIsTold) {
  std::mutex mutex;
  std::vector<std::string> told;
  set_log_sink([&](LogLevel, std::string_view message) {
    const std::lock_guard lock(mutex);
    told.emplace_back(message);
  });
  const auto all = [&] {
    const std::lock_guard lock(mutex);
    return told;
  };
  open(Policy::kSsdBlocking, 200'000);
  fail("/backing/data", io::CallKind::kWrite, 1, error(Code::kNoSpace, Scope::kFile, "no space"));
  write_some(3);
  EXPECT_FALSE(store_->drain().ok());
  EXPECT_FALSE(store_->drain().ok());
  ASSERT_EQ(all().size(), 1u) << ::testing::PrintToString(all());
  for (const char* part :
       {"/backing/data: flushing ", " bytes from offset ", "no space", "SSD log", "tried again every"})
    EXPECT_NE(all().front().find(part), std::string::npos) << part << ": " << all().front();
  device_.faults.clear();
  while (!store_->drain().ok()) {
  }
  ASSERT_EQ(all().size(), 2u) << ::testing::PrintToString(all());
  EXPECT_NE(all().back().find("can be written to again"), std::string::npos);
  fail("/backing/data", io::CallKind::kSync, 1, error(Code::kIoError, Scope::kFile, "no disk"));
  write_some(3);
  EXPECT_FALSE(store_->drain().ok());
  EXPECT_NE(all().back().find("/backing/data: syncing it failed: "), std::string::npos) << all().back();
  set_log_sink({});
}

// A write that was acknowledged in the queue, and that neither device takes, is lost: reads say so.
TEST_F(StoreFaultTest, AWriteThatNeitherDeviceTakesIsNamed) {
  open(Policy::kBacking);
  write_some(20);
  ASSERT_TRUE(store_->drain().ok());
  fail("/backing/data", io::CallKind::kWrite);
  write_some(4);
  static_cast<void>(store_->drain());
  const Found found = read_all();
  EXPECT_EQ(found.wrong, 0u) << "older bytes";
  EXPECT_GT(found.refused, 0u);
  EXPECT_FALSE(store_->sync(file_).ok());
  visited("neither device");
}

TEST_F(StoreFaultTest, ABackingDirectoryThatFailsNowAndThenIsFlushedInTheEnd) {
  open(Policy::kSwale);
  for (int round = 0; round < 20; ++round) {
    io::Fault fault;
    fault.kind = round % 2 ? io::CallKind::kSync : io::CallKind::kWrite;
    fault.path_part = root_ + "/backing/data";
    fault.nth = 1 + rng_.below(3);
    device_.faults.inject(fault);
    write_some(20);
    static_cast<void>(store_->drain());
  }
  visited("backing fails now and then");
  device_.faults.clear();
  while (!store_->drain().ok()) {
  }
  EXPECT_EQ(read_all().wrong, 0u);
}

// What a sync covers stands in the log alone, and the log is not to be synced: it waits for the backing
// directory, or is told.
TEST_F(StoreFaultTest, ASyncOfALogThatFailsWaitsForTheBackingDirectory) {
  for (const char* also : {"", "/backing/data", "/backing/"}) {
    open(Policy::kSsdBlocking);
    ASSERT_TRUE(store_->sync(file_).ok());
    store_->pause_flush(true);
    const std::string bytes(5000, 'y');
    ASSERT_TRUE(store_->write(file_, 0, bytes).ok());
    EXPECT_FALSE(on_backing() == bytes);
    fail("/ssd/log", io::CallKind::kSync);
    if (*also != '\0')
      fail(also, std::string_view(also) == "/backing/" ? io::CallKind::kRename : io::CallKind::kWrite);
    const uint64_t synced = device_.faults.calls(io::CallKind::kSync);
    EXPECT_EQ(store_->sync(file_).ok(), *also == '\0') << also;
    if (*also == '\0') {
      EXPECT_TRUE(on_backing() == bytes);
      EXPECT_GE(device_.faults.calls(io::CallKind::kSync), synced + 2) << "the log, and the file";
    }
    device_.faults.clear();
    EXPECT_TRUE(store_->sync(file_).ok()) << "the devices are mended";
    EXPECT_TRUE(on_backing() == bytes);
    TearDown();
    SetUp();
  }
}

// Nothing of the file is in the log: a refusal leaves it as it was.
TEST_F(StoreFaultTest, ATruncateThatIsRefusedBeforeAnythingIsCutLeavesTheFileAsItWas) {
  open(Policy::kBacking);
  ASSERT_TRUE(store_->write(file_, 0, std::string(40'000, 'o')).ok());
  ASSERT_TRUE(store_->drain().ok());
  fail("/backing/data", io::CallKind::kTruncate);
  EXPECT_FALSE(store_->truncate(file_, 10'000).ok());
  EXPECT_EQ(*store_->size(file_), 40'000u);
  EXPECT_TRUE(store_->write(file_, 50'000, "new").ok());
  ASSERT_TRUE(store_->drain().ok());
  const std::string expected = std::string(40'000, 'o') + std::string(10'000, '\0') + "new";
  EXPECT_TRUE(on_backing() == expected);
}

// A network file system may cut the file and lose the answer.
TEST_F(StoreFaultTest, ATruncateThatFailsButHasHappenedIsOne) {
  open(Policy::kBacking);
  ASSERT_TRUE(store_->write(file_, 0, std::string(40'000, 'o')).ok());
  ASSERT_TRUE(store_->drain().ok());
  device_.faults.set_hook([this](const io::Call& call) -> Status {
    if (call.kind != io::CallKind::kTruncate) return {};
    EXPECT_EQ(::truncate((root_ + "/backing/data").c_str(), static_cast<off_t>(call.bytes)), 0);
    return error(Code::kIoError, Scope::kFile, "no answer");
  });
  EXPECT_TRUE(store_->truncate(file_, 10'000).ok());
  EXPECT_EQ(*store_->size(file_), 10'000u);
}

// An operator's pause is a wish: a full log, a truncate of what is in it and a drain need the flush.
TEST_F(StoreFaultTest, AFlushThatIsPausedForEverStopsNobody) {
  open(Policy::kSsdBlocking);
  store_->pause_flush(true);
  write_some(200);  // several times the log
  EXPECT_EQ(refused_, 0u);
  EXPECT_TRUE(store_->truncate(file_, 1000).ok());
  EXPECT_TRUE(store_->drain().ok());
  EXPECT_TRUE(store_->sync(file_).ok());
  std::printf("paused for ever: %lu writes, %lu waited for space\n", written_, store_->stats().log_waits);
  EXPECT_GT(store_->stats().log_waits, 0u);
}

// What a child of these tests does with a store; then it is killed.
class StoreKilledTest : public StoreFaultTest {
 protected:
  static constexpr size_t kBytes = 5000;

  void open_again(bool accept_loss = false) { open(Policy::kSsdBlocking, 1'000'000, accept_loss); }
  // Runs `life` in a process that is killed at its end. It must return true.
  template <class Life>
  void live_and_be_killed(const Life& life) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!life() || HasFailure()) ::_exit(1);
      ::kill(::getpid(), SIGKILL);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state)) << "the child ended with " << WEXITSTATUS(state);
    ASSERT_EQ(WTERMSIG(state), SIGKILL);
  }
  // From now on the backing device takes no write: what is acknowledged stands in the queue alone.
  void hold_backing_writes() {
    device_.faults.set_hook([this](const io::Call& call) -> Status {
      while (call.kind == io::CallKind::kWrite && call.path.starts_with(root_ + "/backing/data")) ::pause();
      return {};
    });
  }
  void leave_a_write_in_the_queue() {
    live_and_be_killed([this] {
      open(Policy::kBacking);
      hold_backing_writes();
      return write('a', 0);
    });
  }
  bool write(char value, uint64_t offset) {
    return store_->write(file_, offset, std::string(kBytes, value)).ok();
  }
  // The log fails, and is abandoned.
  bool give_log_up() {
    fail("/ssd/log", io::CallKind::kWrite);
    static_cast<void>(write('l', 100'000));
    return store_->drain().ok() && store_->stats().log_failed && marker().starts_with("abandoned ");
  }
  std::string marker() const {
    std::ifstream in(root_ + "/backing/.swale-tier/log", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string read_at(uint64_t offset) {
    std::string bytes(kBytes, '\0');
    const auto got = store_->read(file_, offset, bytes);
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    return bytes;
  }
  std::vector<std::string> on_ssd(std::string_view begin) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/ssd"))
      if (entry.path().filename().string().starts_with(begin)) names.push_back(entry.path().filename());
    return names;
  }
};

// A process is killed between the intent of a truncate and its end, so the next one repeats it. If the
// backing directory refuses then, the file reads as cut, and what the backing file still has behind the cut
// never comes back.
TEST_F(StoreKilledTest, ATruncateThatIsRepeatedAndRefusedLeavesTheFileCut) {
  live_and_be_killed([this] {
    open_again();
    EXPECT_TRUE(store_->write(file_, 0, std::string(40'000, 'o')).ok());
    EXPECT_TRUE(store_->drain().ok());
    EXPECT_TRUE(store_->write(file_, 20'000, std::string(5'000, 'n')).ok());
    device_.faults.set_hook([](const io::Call& call) -> Status {
      if (call.kind == io::CallKind::kTruncate) ::kill(::getpid(), SIGKILL);
      return {};
    });
    static_cast<void>(store_->truncate(file_, 10'000));
    return false;
  });
  fail("/backing/data", io::CallKind::kTruncate);
  open_again();
  EXPECT_EQ(store_->recovery().truncates, 1u);
  EXPECT_EQ(*store_->size(file_), 10'000u);
  EXPECT_FALSE(store_->write(file_, 30'000, "new").ok()) << "the bytes before it would be stale ones";
  EXPECT_EQ(*store_->size(file_), 10'000u);
  EXPECT_FALSE(store_->drain().ok()) << "the backing file is not what readers see";
  device_.faults.clear();
  ASSERT_TRUE(store_->write(file_, 30'000, "new").ok());
  const std::string expected = std::string(10'000, 'o') + std::string(20'000, '\0') + "new";
  std::string found(expected.size(), '?');
  ASSERT_TRUE(store_->read(file_, 0, found).ok());
  EXPECT_TRUE(found == expected);
  ASSERT_TRUE(store_->drain().ok());
  EXPECT_TRUE(on_backing() == expected);
}

// A process goes on without its log, acknowledges writes in the queue, and is killed. So is the next one,
// which has a new log, before it has flushed them.
TEST_F(StoreKilledTest, WhatTheQueueHadOutlivesAnAbandonedLog) {
  live_and_be_killed([this] {
    open_again();
    if (!write('a', 0) || !give_log_up()) return false;
    hold_backing_writes();
    return write('b', 0) && write('c', 20'000);
  });
  live_and_be_killed([this] {
    hold_backing_writes();
    open_again();
    return store_->recovery().made_anew && store_->recovery().queued == 2 && write('d', 20'000) &&
           read_at(0) == std::string(kBytes, 'b');
  });
  open_again();
  EXPECT_FALSE(store_->recovery().made_anew);
  EXPECT_EQ(store_->recovery().queued, 2u);
  EXPECT_TRUE(store_->recovery().damaged.empty());
  EXPECT_EQ(read_at(0), std::string(kBytes, 'b'));
  EXPECT_EQ(read_at(20'000), std::string(kBytes, 'd')) << "the new log is newer than the old queue";
  ASSERT_TRUE(store_->drain().ok());
  EXPECT_EQ(on_backing().substr(0, kBytes), std::string(kBytes, 'b'));
  EXPECT_EQ(on_backing().substr(20'000, kBytes), std::string(kBytes, 'd'));
}

// The queue that a process has found was flushed before it abandoned the log; nothing else removes its file
// from an SSD that fails.
TEST_F(StoreKilledTest, AQueueThatWasFlushedBeforeTheLogWasAbandonedIsVoid) {
  leave_a_write_in_the_queue();
  live_and_be_killed([this] {
    fail("/ssd/log", io::CallKind::kSync);
    fail("/ssd/queue", io::CallKind::kRemove);
    open_again();
    return store_->recovery().queued == 1 && give_log_up() && write('b', 0) && store_->sync(file_).ok();
  });
  EXPECT_EQ(on_ssd("queue.").size(), 2u);
  open_again();
  EXPECT_EQ(read_at(0), std::string(kBytes, 'b')) << "older bytes";
  EXPECT_EQ(store_->recovery().queued, 0u);
  EXPECT_TRUE(store_->recovery().damaged.empty());
  EXPECT_EQ(on_ssd("queue.").size(), 1u);
}

TEST_F(StoreKilledTest, WhatTheQueueHadOutlivesALogWhoseLossIsAccepted) {
  leave_a_write_in_the_queue();
  std::filesystem::remove(root_ + "/ssd/log");
  open_again(true);
  EXPECT_EQ(store_->recovery().queued, 1u);
  EXPECT_EQ(read_at(0), std::string(kBytes, 'a'));
}

// Only the log that was abandoned is replaced; another one may have somebody's writes.
TEST_F(StoreKilledTest, ALogThatWasNotAbandonedIsNotReplaced) {
  const std::string log = root_ + "/ssd/log";
  open(Policy::kSsdBlocking);
  store_->pause_flush(true);
  ASSERT_TRUE(write('a', 0));
  ASSERT_TRUE(store_->close(Store::AtClose::kKeep).ok());
  store_.reset();
  std::filesystem::rename(log, root_ + "/other");
  std::filesystem::remove(root_ + "/backing/.swale-tier/log");

  open(Policy::kSsdBlocking);
  ASSERT_TRUE(write('b', 0));
  ASSERT_TRUE(give_log_up());
  store_.reset();
  device_.faults.clear();
  std::filesystem::copy_file(root_ + "/other", log, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Store::open(device_, options(Policy::kSsdBlocking)).status().code(), Code::kInvalidArgument);
  std::filesystem::remove(log);
  open(Policy::kSsdBlocking);
  EXPECT_TRUE(store_->recovery().made_anew);
  EXPECT_EQ(read_at(0), std::string(kBytes, 'b'));
}

TEST_F(StoreKilledTest, AQueueOfAnUnknownLogIsKeptAndNamed) {
  leave_a_write_in_the_queue();
  std::filesystem::remove(root_ + "/ssd/log");
  std::filesystem::remove(root_ + "/backing/.swale-tier/log");  // as of another backing directory
  for (int time = 0; time < 2; ++time) {
    open_again();
    EXPECT_EQ(store_->recovery().damaged.size(), time == 0 ? 1u : 0u);
    EXPECT_EQ(on_ssd("unknown-queue.").size(), 1u);
    EXPECT_EQ(on_ssd("queue.").size(), 1u);
    store_.reset();
  }
}

// A log that nobody has written to may be made anew for a backing directory that knows none, but not if its
// process has written to the queue beside it: the backing directory was mistyped.
TEST_F(StoreKilledTest, AnotherBackingDirectoryDoesNotGetALogWithAQueue) {
  leave_a_write_in_the_queue();
  std::filesystem::rename(root_ + "/backing", root_ + "/right");
  std::filesystem::create_directory(root_ + "/backing");
  const Status wrong = Store::open(device_, options(Policy::kBacking)).status();
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument) << wrong.to_string();
  EXPECT_NE(wrong.message().find("which was not used with a log yet"), std::string::npos)
      << wrong.to_string();
  std::filesystem::remove_all(root_ + "/backing");
  std::filesystem::rename(root_ + "/right", root_ + "/backing");
  open_again();
  EXPECT_EQ(store_->recovery().queued, 1u);
  EXPECT_EQ(read_at(0), std::string(kBytes, 'a'));
}

}  // namespace
}  // namespace swale::tier::store_fault_test
