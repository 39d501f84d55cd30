// Store: what a sync of a file costs and waits for, counted in syncs of the files below it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/mutex.h"
#include "io/posix_device.h"
#include "io/testing/forwarding_file.h"
#include "io/thread_queue.h"
#include "tier/store/store.h"

namespace swale::tier::store_sync_test {
namespace {

constexpr Nanos kPatience = seconds(60);  // before a test fails that would wait for ever

// What the files of a store were asked to do, by the last part of their path.
struct Watch {
  struct Place {
    std::string file;
    uint64_t offset;
    auto operator<=>(const Place&) const = default;
  };
  Mutex mutex;
  CondVar changed;
  uint64_t clock GUARDED_BY(mutex) = 0;
  std::map<std::string, uint64_t> syncs GUARDED_BY(mutex);
  std::map<std::string, uint64_t> covered GUARDED_BY(mutex);  // when the newest sync that has ended began
  std::map<Place, uint64_t> written GUARDED_BY(mutex);        // when the write had ended
  std::map<std::string, uint64_t> failed GUARDED_BY(mutex);   // when the newest sync that has failed did
  std::set<std::string> failing GUARDED_BY(mutex);
  std::set<std::string> held GUARDED_BY(mutex);      // their syncs do not end
  std::set<std::string> waiting GUARDED_BY(mutex);   // one has begun
  std::set<Place> held_writes GUARDED_BY(mutex);     // do not happen yet
  std::set<Place> waiting_writes GUARDED_BY(mutex);  // have begun
};

class WatchedFile final : public io::ForwardingFile {
 public:
  WatchedFile(std::unique_ptr<io::File> file, Watch& watch)
      : ForwardingFile(std::move(file)),
        watch_(watch),
        name_(std::filesystem::path(path()).filename().string()) {}
  Status pwrite(uint64_t offset, Bytes data) override {
    const Watch::Place place{name_, offset};
    {
      MutexLock lock(watch_.mutex);
      watch_.waiting_writes.insert(place);
      watch_.changed.notify_all();
      EXPECT_TRUE(watch_.changed.wait_for(
          lock, kPatience, [&]() REQUIRES(watch_.mutex) { return !watch_.held_writes.contains(place); }));
      watch_.waiting_writes.erase(place);
    }
    const Status status = ForwardingFile::pwrite(offset, data);
    const MutexLock lock(watch_.mutex);
    watch_.changed.notify_all();
    watch_.written[place] = ++watch_.clock;
    return status;
  }
  Status sync() override {
    MutexLock lock(watch_.mutex);
    ++watch_.syncs[name_];
    const uint64_t begun = ++watch_.clock;
    watch_.waiting.insert(name_);
    watch_.changed.notify_all();
    const bool released = watch_.changed.wait_for(
        lock, kPatience, [&]() REQUIRES(watch_.mutex) { return !watch_.held.contains(name_); });
    EXPECT_TRUE(released) << "a sync of another file waits for that of " << name_;
    watch_.waiting.erase(name_);
    if (watch_.failing.contains(name_)) {
      watch_.failed[name_] = ++watch_.clock;
      return error(Code::kIoError, Scope::kFile, "{}: on purpose", name_);
    }
    watch_.covered[name_] = std::max(watch_.covered[name_], begun);
    return {};  // no power is cut here
  }

 private:
  Watch& watch_;
  const std::string name_;
};

// Files of a device, watched. It must live as long as `watch`.
class WatchedBelow : public io::Device {
 public:
  WatchedBelow(std::unique_ptr<io::Device> files, Watch& watched)
      : files_(std::move(files)), watch_(watched) {}
  // As in production, syncs of several files are under way at a time.
  Result<std::unique_ptr<io::IoQueue>> make_queue(size_t depth) override {
    return io::ThreadQueue::make(depth);
  }
  Result<std::unique_ptr<io::Device>> anchored(const std::string& directory) override {
    SWALE_ASSIGN_OR_RETURN(auto below, files_->anchored(directory));
    return std::unique_ptr<io::Device>(new WatchedBelow(std::move(below), watch_));
  }
  Result<std::unique_ptr<io::Device>> anchored_private(const std::string& directory) override {
    SWALE_ASSIGN_OR_RETURN(auto below, files_->anchored_private(directory));
    return std::unique_ptr<io::Device>(new WatchedBelow(std::move(below), watch_));
  }
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    SWALE_ASSIGN_OR_RETURN(auto file, files_->open(path, mode));
    return std::unique_ptr<io::File>(new WatchedFile(std::move(file), watch_));
  }
  Status make_directory(const std::string& path) override { return files_->make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return files_->rename(from, to); }
  Status rename_new(const std::string& from, const std::string& to) override {
    return files_->rename_new(from, to);
  }
  Status remove(const std::string& path) override { return files_->remove(path); }
  Status sync_directory(const std::string& path) override { return files_->sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return files_->list(path); }
  Result<bool> exists(const std::string& path) override { return files_->exists(path); }

 private:
  const std::unique_ptr<io::Device> files_;
  Watch& watch_;
};

struct HasWatch {
  Watch watch;
};
class WatchedDevice final : public HasWatch, public WatchedBelow {
 public:
  WatchedDevice() : WatchedBelow(std::make_unique<io::PosixDevice>(), watch) {}
};

class StoreSyncTest : public ::testing::Test {
 protected:
  using Counts = std::map<std::string, uint64_t>;
  static constexpr int64_t kNever = 3'600'000'000'000;

  void SetUp() override {
    root_ = (std::filesystem::current_path() / "store-sync-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directory(root_ + "/backing");
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  void open(Policy policy, Durability durability) {
    StoreOptions options;
    options.ssd_directory = root_ + "/ssd";
    options.backing_directory = root_ + "/backing";
    options.engine.policy = policy;
    options.engine.durability = durability;
    options.engine.backing_depth = backing_depth_;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = kMiB;
    options.engine.settle_ns = options.engine.idle_flush_ns = kNever;  // nothing syncs on its own
    options.queue_slots = 8;
    options.slot_bytes = 16 * kKiB;
    options.flush_paused = true;
    auto store = Store::open(device_, options);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
    for (const char* name : {"a", "b", "c"})
      files_[name] = *store_->open_file(name, io::OpenMode::kOpenOrCreate);
  }
  // A new file has a first sync that it needs: nobody knows who wrote it before.
  void open_synced(Policy policy, Durability durability) {
    open(policy, durability);
    for (const auto& [name, file] : files_) EXPECT_EQ(syncs_of(name), (Counts{{name, 1}}));
  }
  void write(const std::string& name, uint64_t offset = 0) {
    ASSERT_TRUE(store_->write(files_[name], offset, std::string(5000, 'x')).ok());
  }
  Counts counts() {
    const MutexLock lock(device_.watch.mutex);
    return device_.watch.syncs;
  }
  // What a sync of the file asks of the files below, the log included.
  Counts syncs_of(const std::string& name) {
    const Counts before = counts();
    EXPECT_TRUE(store_->sync(files_[name]).ok());
    Counts more;
    for (const auto& [file, count] : counts()) {
      const auto there = before.find(file);
      if (count > (there == before.end() ? 0 : there->second))
        more[file] = count - (there == before.end() ? 0 : there->second);
    }
    return more;
  }

  // Waits for something that the files below see.
  template <class Seen>
  void wait_until(const Seen& seen) {
    MutexLock lock(device_.watch.mutex);
    ASSERT_TRUE(device_.watch.changed.wait_for(
        lock, kPatience, [&]() REQUIRES(device_.watch.mutex) { return seen(device_.watch); }));
  }
  template <class Change>
  void change(const Change& how) {
    const MutexLock lock(device_.watch.mutex);
    how(device_.watch);
    device_.watch.changed.notify_all();
  }

  WatchedDevice device_;
  uint32_t backing_depth_ = Options().backing_depth;
  std::string root_;
  std::unique_ptr<Store> store_;
  std::map<std::string, Store::Handle> files_;
};

TEST_F(StoreSyncTest, DirectWritesAreSyncedFileByFile) {
  open_synced(Policy::kBacking, Durability::kPageCache);
  for (const char* name : {"a", "b", "c"}) write(name);
  EXPECT_EQ(syncs_of("a"), (Counts{{"a", 1}}));
  EXPECT_EQ(syncs_of("a"), Counts());
  EXPECT_EQ(syncs_of("b"), (Counts{{"b", 1}}));
  write("c", 20'000);
  EXPECT_EQ(syncs_of("a"), Counts());
  ASSERT_TRUE(store_->truncate(files_["a"], 100).ok());
  EXPECT_EQ(syncs_of("a"), (Counts{{"a", 1}}));
}

// What recovery does not find by the table it finds by ids, or keeps.
TEST_F(StoreSyncTest, ATableOfFilesThatCannotBeSyncedFailsNoSync) {
  open_synced(Policy::kSsdBlocking, Durability::kPageCache);
  write("a");
  {
    const MutexLock lock(device_.watch.mutex);
    device_.watch.failing.insert("files");
  }
  EXPECT_EQ(syncs_of("a"), (Counts{{"files", 1}, {"log", 1}}));
}

TEST_F(StoreSyncTest, BytesInTheLogNeedOneSyncOfTheLogForAllFiles) {
  open_synced(Policy::kSsdBlocking, Durability::kPageCache);
  for (const char* name : {"a", "b"}) write(name);
  EXPECT_EQ(syncs_of("a"), (Counts{{"files", 1}, {"log", 1}}));  // recovery finds the files, too
  EXPECT_EQ(syncs_of("b"), Counts());                            // its record came before that sync
  write("b", 20'000);
  EXPECT_EQ(syncs_of("a"), Counts());
  EXPECT_EQ(syncs_of("b"), (Counts{{"log", 1}}));
  ASSERT_TRUE(store_->drain().ok());
  EXPECT_FALSE(syncs_of("a").contains("a"));  // the log may be synced once more: its segment is erased
}

TEST_F(StoreSyncTest, WhereWritesAreDurableASyncHasNothingToDo) {
  for (const Durability durability : {Durability::kGroupCommit, Durability::kSync})
    for (const Policy policy : {Policy::kBacking, Policy::kSsdBlocking}) {
      open(policy, durability);
      for (const auto& [name, file] : files_) static_cast<void>(syncs_of(name));
      for (const char* name : {"a", "b"}) write(name);
      EXPECT_EQ(syncs_of("a"), Counts());
      EXPECT_EQ(syncs_of("b"), Counts());
      TearDown();
      SetUp();
    }
}

TEST_F(StoreSyncTest, AFailureIsToldToItsFileAlone) {
  open_synced(Policy::kBacking, Durability::kPageCache);
  for (const char* name : {"a", "b"}) write(name);
  {
    const MutexLock lock(device_.watch.mutex);
    device_.watch.failing.insert("a");
  }
  const Status failed = store_->sync(files_["a"]);
  EXPECT_EQ(failed.code(), Code::kIoError);
  EXPECT_NE(failed.message().find("on purpose"), std::string::npos) << failed.message();
  EXPECT_TRUE(store_->sync(files_["b"]).ok());
  {
    const MutexLock lock(device_.watch.mutex);
    device_.watch.failing.clear();
  }
  EXPECT_TRUE(store_->sync(files_["a"]).ok());  // told once, as by a plain file
}

TEST_F(StoreSyncTest, ASyncWaitsForNoSyncOfAnotherFile) {
  open_synced(Policy::kBacking, Durability::kPageCache);
  for (const char* name : {"a", "b"}) write(name);
  Watch& watch = device_.watch;
  {
    const MutexLock lock(watch.mutex);
    watch.held.insert("b");
  }
  std::thread other([this] { EXPECT_TRUE(store_->sync(files_["b"]).ok()); });
  {
    MutexLock lock(watch.mutex);
    ASSERT_TRUE(watch.changed.wait_for(lock, kPatience,
                                       [&]() REQUIRES(watch.mutex) { return watch.waiting.contains("b"); }));
  }
  EXPECT_EQ(syncs_of("a"), (Counts{{"a", 1}}));
  {
    const MutexLock lock(watch.mutex);
    EXPECT_TRUE(watch.waiting.contains("b"));
    watch.held.clear();
    watch.changed.notify_all();
  }
  other.join();
}

// A sync that began while a write was under way need not have it: only one that begins later counts.
TEST_F(StoreSyncTest, AWriteIsAnsweredAfterASyncThatBeganBehindIt) {
  constexpr int kThreads = 4, kWrites = 100;
  constexpr uint64_t kBytes = 4096;
  for (const Durability durability : {Durability::kSync, Durability::kGroupCommit}) {
    open(Policy::kBacking, durability);
    std::vector<std::thread> threads;
    std::atomic<int> uncovered = 0;
    for (uint64_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (uint64_t i = 0; i < kWrites; ++i) {
          // Far from each other: each is a write of its own.
          const uint64_t offset = (thread * kWrites + i) * 16 * kBytes;
          ASSERT_TRUE(store_->write(files_["a"], offset, std::string(kBytes, 'x')).ok());
          const MutexLock lock(device_.watch.mutex);
          uncovered += device_.watch.covered["a"] < device_.watch.written[{"a", offset}];
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(uncovered, 0);
    TearDown();
    SetUp();
  }
}

// A slot of two writes is under way while a sync of its file fails: the sync had one of them and told its
// loss to others, so it is written again.
TEST_F(StoreSyncTest, AWriteUnderWayOutlivesAFailedSyncOfItsFile) {
  constexpr uint64_t kFirst = kMiB, kSecond = kMiB + 5000;
  backing_depth_ = 1;
  open_synced(Policy::kBacking, Durability::kSync);
  change([](Watch& watch) NO_THREAD_SAFETY_ANALYSIS { watch.held_writes = {{"a", 0}, {"a", kSecond}}; });
  Status answers[3];
  std::vector<std::thread> writers;
  for (const uint64_t offset : {uint64_t{0}, kFirst, kSecond}) {
    Status& answer = answers[writers.size()];
    writers.emplace_back(
        [this, offset, &answer] { answer = store_->write(files_["a"], offset, std::string(5000, 'x')); });
    while (store_->stats().waiting < writers.size()) std::this_thread::yield();  // they come in this order
  }
  change([](Watch& watch) NO_THREAD_SAFETY_ANALYSIS {
    watch.held.insert("a");
    watch.failing.insert("a");
    watch.held_writes.erase({"a", 0});
  });
  wait_until([](Watch& watch) NO_THREAD_SAFETY_ANALYSIS {
    return watch.waiting.contains("a") && watch.written.contains({"a", kFirst});
  });
  change([](Watch& watch) NO_THREAD_SAFETY_ANALYSIS { watch.held.clear(); });
  writers[0].join();
  EXPECT_EQ(answers[0].code(), Code::kIoError);
  change([](Watch& watch) NO_THREAD_SAFETY_ANALYSIS {
    watch.failing.clear();
    watch.held_writes.clear();
  });
  for (int i : {1, 2}) writers[i].join();
  const MutexLock lock(device_.watch.mutex);
  for (const auto& [answer, offset] : {std::pair(answers[1], kFirst), std::pair(answers[2], kSecond)}) {
    EXPECT_TRUE(answer.ok()) << answer.to_string();
    const uint64_t written = device_.watch.written[{"a", offset}];
    EXPECT_GT(written, device_.watch.failed["a"]) << "at " << offset;
    EXPECT_GT(device_.watch.covered["a"], written);
  }
}

}  // namespace
}  // namespace swale::tier::store_sync_test
