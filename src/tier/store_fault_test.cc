// Store on devices that fail: nobody waits for ever, what was acknowledged is there or is named, and the other device goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/rng.h"
#include "tier/described_fault_device.h"
#include "tier/store.h"

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

  void open(Policy policy, int64_t retry_ns = 1'000'000) {
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
    auto store = Store::open(device_, options);
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

// What a sync covers stands in the log alone, and the log is not to be synced: it waits for the backing directory, or is told.
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

}  // namespace
}  // namespace swale::tier::store_fault_test
