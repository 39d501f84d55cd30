// Jobs that open a shard one after the other or at once, its log and its table of records: numbers are given
// once, what was acknowledged is found or missed by name, and logs stay short whatever comes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/index/shard.h"

namespace swale::meta::shard_jobs_test {
namespace {

constexpr FileId kFile{1, 2};

// Records that can be taken back, as the file attributes can.
class Words final : public LoggedTable {
 public:
  Status replay(Bytes record) override {
    words.emplace_back(record);
    durable = words.size();
    return {};
  }
  void for_each_record(const std::function<void(Bytes)>& visit) const override {
    for (size_t i = words.size() - std::min(words.size(), kept); i < words.size(); ++i) visit(words[i]);
  }
  size_t changes() const override { return words.size() - durable; }
  void keep(size_t count) noexcept override { durable += count; }
  void undo() noexcept override { words.resize(durable); }

  std::vector<std::string> words;
  size_t durable = 0;
  size_t kept = 8;  // the last ones are the table: older ones are overwritten
};

struct Store {
  io::MemoryDevice memory;
  io::FaultDevice disk{memory};
  ShardOptions options;
  std::unique_ptr<Words> words;
  std::unique_ptr<Shard> shard;

  Store() {
    options.directory = "/s.log-1";  // a name as of a file of a shard
    options.table_bytes_min = 1000;
    EXPECT_TRUE(memory.make_directory(options.directory).ok());
    EXPECT_TRUE(memory.sync_directory("/").ok());
    EXPECT_TRUE(open().ok());
  }
  Status open() {
    shard.reset();
    words = std::make_unique<Words>();
    options.table = words.get();
    auto opened = Shard::open(disk, options);
    if (!opened.ok()) return opened.status();
    shard = *std::move(opened);
    return {};
  }
  Result<uint64_t> stage(uint64_t offset) {
    const Extent extent{offset, 10, {1, offset}};
    const Put put{kFile, std::span(&extent, 1), {}, {}};
    return shard->put({}, std::span(&put, 1));
  }
  Status put(uint64_t offset) {
    SWALE_RETURN_IF_ERROR(stage(offset).status());
    return shard->commit();
  }
  void say(const std::string& word) {
    words->words.push_back(word);
    shard->add_record(word);
  }
  size_t extents() {
    std::vector<Extent> found;
    uint64_t next = 0;
    EXPECT_TRUE(shard->scan(kFile, 0, 100'000, nullptr, &found, &next).ok());
    return found.size();
  }
  std::string path(const std::string& name) const { return options.directory + "/shard-000000." + name; }
};

// A job looks for the last number and sleeps. Three others open the shard meanwhile, one after the other, and
// remove what they do not need. It wakes and must not get a number that another one had.
TEST(ShardJobs, AJobThatSleepsBeforeItsClaimGetsANumberOfItsOwn) {
  Store store;
  ASSERT_TRUE(store.put(0).ok());
  ShardOptions options = store.options;
  options.table = nullptr;
  io::FaultDevice slow(store.memory);
  std::vector<std::unique_ptr<Shard>> others;
  slow.set_hook([&](const io::Call& call) {
    if (call.kind == io::CallKind::kOpen && others.empty()) {
      for (int i = 0; i < 3; ++i) others.push_back(*Shard::open(store.memory, options));
    }
    return ok_status();
  });
  const auto woken = Shard::open(slow, options);
  ASSERT_EQ(others.size(), 3u);
  EXPECT_EQ(others.back()->job(), 4u);
  ASSERT_TRUE(woken.ok()) << woken.status().to_string();
  EXPECT_EQ((*woken)->job(), 5u);
  EXPECT_TRUE((*woken)->fence().ok());
  for (const auto& other : others) EXPECT_EQ(other->fence().code(), Code::kAborted) << other->job();
  EXPECT_EQ(store.shard->fence().code(), Code::kAborted);
}

TEST(ShardJobs, ClaimsThatAreLostAreNoReasonToOverwriteAManifest) {
  Store store;
  ASSERT_TRUE(store.put(0).ok());
  ASSERT_TRUE(store.open().ok());
  // Another job's manifest comes between the claim and the look at all files, and its claim is gone.
  bool renamed = false;
  store.disk.set_hook([&](const io::Call& call) {
    if (call.kind == io::CallKind::kSyncDirectory && !renamed) {
      renamed = true;
      EXPECT_TRUE(store.memory.rename(store.path("j0002.manifest"), store.path("j0009.manifest")).ok());
    }
    return ok_status();
  });
  EXPECT_EQ(store.open().code(), Code::kAlreadyExists);
}

// The log after a checkpoint is promised by the manifest, too.
TEST(ShardJobs, ALogThatIsMissingAfterACheckpointIsDamage) {
  Store store;
  ASSERT_TRUE(store.put(0).ok());
  ASSERT_TRUE(store.shard->drain().ok());
  ASSERT_TRUE(store.put(50).ok());
  const std::string log = store.path("j0001.log-000002");
  ASSERT_TRUE(store.memory.remove(log).ok());
  const Status missing = store.open();
  EXPECT_EQ(missing.code(), Code::kCorruption);
  EXPECT_NE(missing.message().find(log + ": is missing"), std::string_view::npos) << missing.to_string();
}

// Each call of a checkpoint fails for want of space, once: the log that it makes is made by the next one.
TEST(ShardJobs, ACheckpointThatFindsNoSpaceForTheNextLogLosesNothing) {
  for (uint64_t nth = 1;; ++nth) {
    Store store;
    ASSERT_TRUE(store.put(0).ok());
    store.disk.inject({.kind = io::CallKind::kWrite,
                       .nth = nth,
                       .status = error(Code::kNoSpace, Scope::kFile, "no space")});
    const Status drained = store.shard->drain();
    store.disk.clear();
    ASSERT_TRUE(store.put(50).ok()) << nth;
    ASSERT_TRUE(store.open().ok()) << nth;
    EXPECT_EQ(store.extents(), 2u) << nth;
    if (drained.ok()) break;
    ASSERT_LT(nth, 20u);
  }
}

// meta.sync=no: a power cut loses puts, never the store.
TEST(ShardJobs, WithoutSyncsAPowerCutLeavesAStoreThatOpens) {
  for (int step = 0; step < 3; ++step) {
    Store store;
    store.options.sync_log = false;
    ASSERT_TRUE(store.open().ok());
    if (step > 0) {
      ASSERT_TRUE(store.put(0).ok());
      ASSERT_TRUE(store.shard->drain().ok());
      ASSERT_TRUE(store.put(50).ok());
    }
    if (step > 1) {  // a checkpoint that names a log with a group
      ASSERT_TRUE(store.shard->settle());
      while (std::unique_ptr<Work> work = store.shard->next_background()) {
        work->run();
        ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
        ASSERT_TRUE(store.put(90).ok());
      }
    }
    store.shard.reset();
    Rng rng(1);
    store.memory.crash(rng, io::CrashMode::kDropAll);
    const Status opened = store.open();
    ASSERT_TRUE(opened.ok()) << step << ": " << opened.to_string();
    EXPECT_GE(store.extents(), step > 0 ? 1u : 0u);
  }
}

// One storage thread, and always another put and another record when it looks for work: as under steady load.
TEST(ShardJobs, LogsStayShortUnderSteadyLoad) {
  for (const bool two_threads : {false, true}) {
    Store store;
    store.options.log_bytes_max = 20'000;
    ASSERT_TRUE(store.open().ok());
    uint64_t said = 0, log_bytes_max = 0, tail_bytes_max = 0, refused_max = 0, refused = 0;
    const auto load = [&] {
      ASSERT_TRUE(store.stage(100 * said).ok());
      if (store.shard->accepts_records()) {
        store.say("record " + std::to_string(++said) + std::string(80, '.'));
        refused = 0;
      } else {
        refused_max = std::max(refused_max, ++refused);
      }
    };
    std::unique_ptr<Work> slow;  // the second thread's
    for (int i = 0; i < 5'000; ++i) {
      load();
      std::unique_ptr<Work> work;
      if (two_threads) {  // background work is asked for while a commit is under way only
        work = store.shard->next_commit();
        if (slow == nullptr) slow = store.shard->next_background();
        if (slow != nullptr && i % 3 == 0) {
          slow->run();
          ASSERT_TRUE(store.shard->finish(std::move(slow)).ok());
        }
      } else {
        if (store.shard->background_first()) work = store.shard->next_background();
        if (work == nullptr) work = store.shard->next_commit();
      }
      ASSERT_NE(work, nullptr);
      work->run();
      load();
      ASSERT_TRUE(store.shard->finish(std::move(work)).ok());
      const ShardState state = store.shard->state();
      log_bytes_max = std::max(log_bytes_max, state.log_bytes);
      tail_bytes_max = std::max(tail_bytes_max, state.table_tail_bytes);
    }
    EXPECT_GT(said, 4'000u);
    EXPECT_LT(tail_bytes_max, 60'000u) << two_threads;
    EXPECT_LT(log_bytes_max, 100'000u) << two_threads;
    EXPECT_LE(refused_max, 8u) << two_threads;
    if (slow != nullptr) {
      slow->run();
      ASSERT_TRUE(store.shard->finish(std::move(slow)).ok());
    }
    ASSERT_TRUE(store.shard->commit().ok());
    const std::string last = store.words->words.back();
    ASSERT_TRUE(store.open().ok());
    EXPECT_EQ(store.words->words.back(), last);
  }
}

// What background work that fails for good leaves of changes that no commit will take.
TEST(ShardJobs, AFailedCheckpointTakesBackWhatIsNotDurable) {
  for (const bool committing : {false, true}) {
    Store store;
    for (int i = 0; i < 20; ++i) {
      store.say("record " + std::to_string(i) + std::string(80, '.'));
      ASSERT_TRUE(store.shard->commit().ok());
    }
    std::unique_ptr<Work> checkpoint = store.shard->next_background();
    ASSERT_NE(checkpoint, nullptr);
    ASSERT_EQ(checkpoint->kind(), WorkKind::kCheckpoint);
    std::unique_ptr<Work> commit;
    if (committing) {
      store.say("in a commit");
      commit = store.shard->next_commit();
    }
    store.say("in no commit");
    store.disk.inject({.kind = io::CallKind::kWrite});
    checkpoint->run();
    EXPECT_FALSE(store.shard->finish(std::move(checkpoint)).ok());
    EXPECT_FALSE(store.shard->health().ok());
    if (committing) {
      commit->run();
      EXPECT_TRUE(store.shard->finish(std::move(commit)).ok());
      EXPECT_EQ(store.words->words.back(), "in a commit");
    }
    EXPECT_EQ(store.words->changes(), 0u);
    EXPECT_EQ(store.words->words.size(), committing ? 21u : 20u);
  }
}

// The old manifest is longer than the new one, which does not get its place: what was written for it goes.
TEST(ShardJobs, AManifestThatIsNotReplacedLeavesNoFiles) {
  Store store;
  for (int i = 0; i < 3; ++i) {  // a log each
    ASSERT_TRUE(store.put(100 * static_cast<uint64_t>(i)).ok());
    ASSERT_TRUE(store.open().ok());
  }
  const auto before = *store.memory.list(store.options.directory);
  store.disk.inject({.kind = io::CallKind::kRename});
  EXPECT_FALSE(store.shard->drain().ok());
  std::vector<std::string> after;
  const auto names = store.memory.list(store.options.directory);
  for (const std::string& name : *names) {
    if (!name.ends_with(".tmp")) after.push_back(name);
  }
  EXPECT_EQ(after, before);
}

// The file of the table is read in one piece, and its memory is given back.
TEST(ShardJobs, AnOpeningKeepsNoCopyOfTheTable) {
  Store store;
  store.words->kept = 10'000;
  for (int i = 0; i < 10'000; ++i) store.say("record " + std::to_string(i) + std::string(80, '.'));
  ASSERT_TRUE(store.shard->drain().ok());
  const uint64_t file_bytes = store.shard->state().table_file_bytes;
  ASSERT_GT(file_bytes, 800'000u);
  const uint64_t empty = Store().shard->state().buffer_memory_bytes;
  ASSERT_TRUE(store.open().ok());
  EXPECT_LT(store.shard->state().buffer_memory_bytes, empty + 1000);
}

// Claims stay for ever, each server's in a folder of its own: what an opening lists grows with its own
// claims, and not with those of all servers.
TEST(ShardJobs, AnOpeningListsItsOwnClaimsAlone) {
  class Counted : public io::MemoryDevice {
   public:
    Result<std::vector<std::string>> list(const std::string& path) override {
      auto names = io::MemoryDevice::list(path);
      listed += names.ok() ? names->size() : 0;
      return names;
    }
    uint64_t listed = 0;
  };
  constexpr uint32_t kServers = 16, kOpenings = 100;
  Counted disk;
  ASSERT_TRUE(disk.make_directory("/s").ok());
  const auto open_all = [&] {
    disk.listed = 0;
    for (uint32_t server = 0; server < kServers; ++server) {
      ShardOptions options;
      options.directory = "/s";
      options.shard = server;
      EXPECT_TRUE(Shard::open(disk, options).ok());
    }
    return disk.listed;
  };
  for (uint32_t i = 1; i < kOpenings; ++i) open_all();
  const uint64_t before = open_all();
  for (uint32_t i = 1; i < kOpenings; ++i) open_all();
  const uint64_t after = open_all();
  std::printf("%llu and %llu names\n", static_cast<unsigned long long>(before),
              static_cast<unsigned long long>(after));
  EXPECT_EQ(after - before, uint64_t{kServers} * kOpenings);
}

// A copy of a store may be without its claims: files say which numbers were given.
TEST(ShardJobs, AStoreWithoutItsClaimsGivesNoNumberTwice) {
  Store store;
  ASSERT_TRUE(store.put(0).ok());
  const uint32_t before = store.shard->job();
  store.shard.reset();
  const std::string folder = store.options.directory + "/shard-000000.claims";
  const auto claims = store.memory.list(folder);
  ASSERT_TRUE(claims.ok() && !claims->empty());
  for (const std::string& each : *claims) ASSERT_TRUE(store.memory.remove(folder + "/" + each).ok());
  ASSERT_TRUE(store.open().ok());
  EXPECT_EQ(store.shard->job(), before + 1);
  EXPECT_EQ(store.extents(), 1u);
}

}  // namespace
}  // namespace swale::meta::shard_jobs_test
