// Every change of a Store, with each call to a device failing in turn: a change that fails leaves what was
// there, or what it says; then the device works again, and everything goes on.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tier/store/store.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::tier::store_changes_test {
namespace {

constexpr std::string_view kBacking = "/backing/";
constexpr std::string_view kSsd = "/ssd/";
constexpr uint64_t kCallsMax = 60;  // of one change; it makes fewer

// All policies, promises and devices: minutes.
bool tries_all() { return std::getenv("SWALE_TIER_CHANGES") != nullptr; }

class StoreChangesTest : public ::testing::Test {
 protected:
  struct Change {
    const char* name;
    std::function<Status(Store*, Store::Handle)> make;
    std::function<void(std::string*)> model;  // what it does to the bytes of "data"
    bool in_parts = false;                    // one that fails may have been carried out in part
  };

  void SetUp() override {
    root_ = (std::filesystem::current_path() / "store-changes-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override {
    device_.faults.clear();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  StoreOptions options(Policy policy, Durability durability) const {
    StoreOptions options;
    options.ssd_directory = root_ + "/ssd";
    options.backing_directory = root_ + "/backing";
    options.engine.policy = policy;
    options.engine.durability = durability;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 64 * kKiB;
    options.engine.queue_slots = 4;
    options.engine.retry_ns = 1'000'000;
    options.engine.group_commit_ns = 10'000;
    options.queue_slots = 8;
    options.slot_bytes = 8 * kKiB;
    return options;
  }
  void open(Policy policy, Durability durability) {
    auto store = Store::open(device_, options(policy, durability));
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    file_ = *store_->open_file("data", io::OpenMode::kOpenOrCreate);
  }
  // A file of which some is on the backing device alone, and some in the log (if the policy wants that).
  std::string begin(Policy policy, Durability durability) {
    device_.faults.clear();
    store_.reset();
    std::filesystem::remove_all(root_ + "/backing");
    std::filesystem::remove_all(root_ + "/ssd");
    std::filesystem::create_directory(root_ + "/backing");
    open(policy, durability);
    std::string bytes(40'000, 'o');
    EXPECT_TRUE(store_->write(file_, 0, bytes).ok());
    EXPECT_TRUE(store_->drain().ok());
    EXPECT_TRUE(store_->write(file_, 20'000, std::string(5'000, 'n')).ok());
    bytes.replace(20'000, 5'000, 5'000, 'n');
    const auto other = *store_->open_file("other", io::OpenMode::kOpenOrCreate);
    EXPECT_TRUE(store_->write(other, 0, "other").ok());
    store_->close_file(other);
    return bytes;
  }
  // "": the file has what was there, or what the change says.
  std::string compare(const std::string& before, const std::string& after, bool in_parts, bool may_refuse) {
    const uint64_t size = *store_->size(file_);
    const uint64_t low = std::min(before.size(), after.size());
    const uint64_t high = std::max(before.size(), after.size());
    if (size != before.size() && size != after.size() && !(in_parts && size > low && size < high))
      return fmt::format("size {}, expected {} or {}", size, before.size(), after.size());
    bool old_there = true;
    bool new_there = true;
    constexpr uint64_t kReadBytes = 500;
    for (uint64_t at = 0; at < size; at += kReadBytes) {
      std::string found(std::min(kReadBytes, size - at), '\0');
      if (const auto got = store_->read(file_, at, found); !got.ok()) {
        if (!may_refuse) return fmt::format("offset {}: {}", at, got.status().message());
        continue;
      }
      for (uint64_t i = 0; i < found.size(); ++i) {
        const bool is_old = at + i < before.size() && found[i] == before[at + i];
        const bool is_new = at + i < after.size() && found[i] == after[at + i];
        if (!is_old && !is_new && !(in_parts && found[i] == '\0' && at + i >= before.size()))
          return fmt::format("offset {}: {:02x}", at + i, static_cast<unsigned char>(found[i]));
        old_there &= is_old;
        new_there &= is_new;
      }
    }
    const bool whole_old = size == before.size() && old_there;
    const bool whole_new = size == after.size() && new_there;
    return in_parts || may_refuse || whole_old || whole_new ? "" : "a mixture of old and new bytes";
  }
  int64_t modified_ns() const {
    struct stat found;
    EXPECT_EQ(::stat((root_ + "/backing/data").c_str(), &found), 0);
    const auto view = store_->view({found.st_dev, found.st_ino});
    return view ? view->modified_ns : 0;
  }
  std::string on_backing() const {
    std::ifstream in(root_ + "/backing/data", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The devices work again: the file can be changed, and what it has then arrives.
  void expect_that_it_goes_on(const std::string& what) {
    SCOPED_TRACE(what);
    static_cast<void>(store_->sync(file_));  // tells of what was lost, once
    std::string bytes(50'000, 'z');
    bytes.resize(30'000);
    bytes += std::string(20'000, '\0') + "end";
    ASSERT_TRUE(store_->write(file_, 0, std::string(50'000, 'z')).ok());
    ASSERT_TRUE(store_->truncate(file_, 30'000).ok());
    ASSERT_TRUE(store_->write(file_, 50'000, "end").ok());
    ASSERT_EQ(compare(bytes, bytes, false, false), "");
    const Status synced = store_->sync(file_);
    ASSERT_TRUE(synced.ok()) << synced.to_string();
    const Status drained = store_->drain();
    ASSERT_TRUE(drained.ok()) << drained.to_string();
    ASSERT_TRUE(on_backing() == bytes) << "the backing file differs";
  }
  // Lets the i-th call fail, for every i. Returns how many calls failed, and with them the change.
  uint64_t try_all(const Change& change, Policy policy, Durability durability, std::string_view part,
                   bool from_then_on);

  DescribedFaultDevice device_;
  std::string root_;
  std::unique_ptr<Store> store_;
  Store::Handle file_ = 0;
};

uint64_t StoreChangesTest::try_all(const Change& change, Policy policy, Durability durability,
                                   std::string_view part, bool from_then_on) {
  uint64_t failed = 0;
  for (uint64_t nth = 1; nth <= kCallsMax; ++nth) {
    const std::string what =
        fmt::format("{}, policy {}, durability {}, call {} of {}{}", change.name, static_cast<int>(policy),
                    static_cast<int>(durability), nth, part, from_then_on ? " and all later ones" : "");
    SCOPED_TRACE(what);
    const std::string before = begin(policy, durability);
    std::string after = before;
    change.model(&after);
    const int64_t modified = modified_ns();
    io::Fault fault;
    fault.path_part = root_ + std::string(part);
    fault.nth = nth;
    fault.from_then_on = from_then_on;
    device_.faults.inject(fault);
    const Status status = change.make(store_.get(), file_);
    const bool refused = device_.faults.faults() > 0;
    failed += !status.ok();
    device_.faults.clear();  // the comparison reads the devices, too
    // A write that was acknowledged and then refused is lost, and says so; so is what an SSD does not give
    // back.
    const bool may_refuse = refused && (policy == Policy::kBacking || (from_then_on && part == kSsd));
    EXPECT_EQ(compare(status.ok() ? after : before, after, change.in_parts && !status.ok(), may_refuse), "");
    if (!status.ok() && *store_->size(file_) == before.size() && !change.in_parts) {
      EXPECT_EQ(modified_ns(), modified) << "the time of a change that did not happen";
    }
    expect_that_it_goes_on(what);
    if (HasFatalFailure() || HasNonfatalFailure()) return failed;
    static_cast<void>(store_->close(Store::AtClose::kKeep));
    if (!refused) break;
    EXPECT_LT(nth, kCallsMax);
  }
  return failed;
}

TEST_F(StoreChangesTest, OneThatFailsLeavesWhatWasThereAndEverythingGoesOn) {
  const auto nothing = [](std::string*) {};
  const std::vector<Change> changes = {
      {"write over the log",
       [](Store* store, Store::Handle file) { return store->write(file, 21'000, std::string(3'000, 'w')); },
       [](std::string* bytes) { bytes->replace(21'000, 3'000, 3'000, 'w'); }},
      {"write",
       [](Store* store, Store::Handle file) { return store->write(file, 1'000, std::string(3'000, 'w')); },
       [](std::string* bytes) { bytes->replace(1'000, 3'000, 3'000, 'w'); }},
      {"write behind the end",
       [](Store* store, Store::Handle file) { return store->write(file, 45'000, std::string(3'000, 'w')); },
       [](std::string* bytes) { *bytes += std::string(5'000, '\0') + std::string(3'000, 'w'); }},
      {"write in parts",
       [](Store* store, Store::Handle file) { return store->write(file, 30'000, std::string(40'000, 'w')); },
       [](std::string* bytes) { *bytes = bytes->substr(0, 30'000) + std::string(40'000, 'w'); }, true},
      {"truncate", [](Store* store, Store::Handle file) { return store->truncate(file, 10'000); },
       [](std::string* bytes) { bytes->resize(10'000); }},
      {"truncate in the log", [](Store* store, Store::Handle file) { return store->truncate(file, 22'000); },
       [](std::string* bytes) { bytes->resize(22'000); }},
      {"truncate to more", [](Store* store, Store::Handle file) { return store->truncate(file, 60'000); },
       [](std::string* bytes) { bytes->resize(60'000); }},
      {"create",
       [](Store* store, Store::Handle) {
         auto made = store->open_file("new", io::OpenMode::kCreate);
         if (made.ok()) store->close_file(*made);
         return made.status();
       },
       nothing},
      {"remove", [](Store* store, Store::Handle) { return store->remove("other"); }, nothing},
      {"rename", [](Store* store, Store::Handle) { return store->rename("other", "another"); }, nothing},
      {"sync", [](Store* store, Store::Handle file) { return store->sync(file); }, nothing},
      {"drain", [](Store* store, Store::Handle) { return store->drain(); }, nothing},
  };
  uint64_t all_failed = 0;
  for (const Change& change : changes) {
    uint64_t failed = 0;
    for (const Policy policy : {Policy::kSsdBlocking, Policy::kSwale, Policy::kBacking})
      for (const Durability durability : {Durability::kPageCache, Durability::kSync})
        for (const std::string_view part : {kBacking, kSsd})
          for (const bool from_then_on : {false, true}) {
            const bool often = part == kBacking && (policy == Policy::kSsdBlocking || !from_then_on) &&
                               (policy == Policy::kSsdBlocking || durability == Durability::kPageCache);
            if (!often && !tries_all()) continue;
            failed += try_all(change, policy, durability, part, from_then_on);
            if (HasFatalFailure() || HasNonfatalFailure()) return;
          }
    all_failed += failed;
    std::printf("%s: %lu failed\n", change.name, failed);
  }
  EXPECT_GT(all_failed, 50u) << "nothing went wrong";
}

// What ended the mount: a truncate of which the log has bytes is refused; the backing directory works again;
// the next write.
TEST_F(StoreChangesTest, ATruncateThatIsRefusedChangesNothingAndTheNextWriteGoesOn) {
  for (const Durability durability : {Durability::kPageCache, Durability::kGroupCommit, Durability::kSync}) {
    const std::string bytes = begin(Policy::kSsdBlocking, durability);
    io::Fault fault;
    fault.kind = io::CallKind::kTruncate;
    fault.path_part = root_ + "/backing/data";
    fault.from_then_on = true;
    device_.faults.inject(fault);
    const int64_t modified = modified_ns();
    EXPECT_EQ(store_->truncate(file_, 10'000).code(), Code::kIoError);
    EXPECT_EQ(*store_->size(file_), bytes.size());
    EXPECT_EQ(compare(bytes, bytes, false, false), "");
    EXPECT_EQ(modified_ns(), modified);
    EXPECT_TRUE(store_->write(file_, 39'000, std::string(1'000, 'o')).ok()) << "while truncates are refused";
    EXPECT_TRUE(store_->drain().ok());
    EXPECT_TRUE(on_backing() == bytes);

    ASSERT_TRUE(store_->write(file_, 20'000, std::string(5'000, 'n')).ok());
    EXPECT_FALSE(store_->truncate(file_, 10'000).ok());
    ASSERT_TRUE(store_->close(Store::AtClose::kKeep).ok());
    device_.faults.clear();
    store_.reset();
    open(Policy::kSsdBlocking, durability);
    EXPECT_EQ(store_->recovery().truncates, 0u) << "the intent was taken back";
    EXPECT_EQ(compare(bytes, bytes, false, false), "");
    expect_that_it_goes_on("after the next opening");
  }
}

// The cut has happened, and its sync has failed: the engine ends the truncate later, for nobody. That record
// once was taken for the next write's own, and ended the process.
TEST_F(StoreChangesTest, ATruncateWhoseSyncFailsIsEndedForNobodyAndTheNextWriteGoesOn) {
  std::string bytes = begin(Policy::kSsdBlocking, Durability::kSync);
  io::Fault fault;
  fault.kind = io::CallKind::kSync;
  fault.path_part = root_ + "/backing/data";
  device_.faults.inject(fault);
  EXPECT_FALSE(store_->truncate(file_, 22'000).ok());
  bytes.resize(22'000);
  EXPECT_EQ(compare(bytes, bytes, false, false), "") << "the backing file is cut";
  EXPECT_TRUE(store_->drain().ok()) << "waits for the next attempt";
  EXPECT_TRUE(on_backing() == bytes);
  EXPECT_TRUE(store_->write(file_, 0, "next").ok());
  expect_that_it_goes_on("after a sync that has failed");
}

}  // namespace
}  // namespace swale::tier::store_changes_test
