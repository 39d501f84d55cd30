// Drain: killed at every call on the backing, with power lost or not; lies of the disk; and canaries, drains
// that leave a step out, which these tests must notice.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "fs/node/drain.h"
#include "fs/node/testing/node_rig.h"

namespace swale::fs::drain_faults_test {
namespace {

// One batch: new files in two directories, one that is replaced, two that are changed in place.
enum class Kind { kNew, kReplaced, kChanged };
struct Each {
  const char* name;
  Kind kind;
};
constexpr Each kEach[] = {{"new", Kind::kNew},
                          {"replaced", Kind::kReplaced},
                          {"changed", Kind::kChanged},
                          {"d/new", Kind::kNew},
                          {"d/changed", Kind::kChanged}};
constexpr int kFiles = 5;
constexpr meta::FileId id_of(int i) { return {7, 11 + static_cast<uint64_t>(i)}; }
std::string path_of(int i) { return std::string("/b/") + kEach[i].name; }

// What a power loss, or a kill, finds and leaves.
enum class Loss { kKill, kPower };

class DrainFaultsTest : public NodeRig {
 protected:
  DrainFaultsTest() {
    for (int i = 0; i < kFiles; ++i) backing_.names[id_of(i)] = kEach[i].name;
    EXPECT_TRUE(disk_.make_directory("/b/d").ok());
    EXPECT_TRUE(disk_.sync_directory("/b").ok());
  }
  struct World {
    std::string before[kFiles];  // "-": no file
    std::string after[kFiles];
  };

  Status open_drain(const DrainRules& rules) {
    drain_.reset();
    node_.reset();
    SWALE_ASSIGN_OR_RETURN(node_, NodeFiles::open(device_, device_, options_, backing_));
    SWALE_ASSIGN_OR_RETURN(drain_, Drain::open(*node_, backing_, {.job = "j", .rules = rules}));
    return {};
  }
  // A fresh backing, and logs with what is to become of its files.
  World make_world(uint64_t run) {
    node_.reset();
    drain_.reset();
    faults_.clear();
    options_.memory_directory = memory_.path() + "/node" + std::to_string(run);
    options_.spill_directory = storage_.path() + "/spill" + std::to_string(run);
    for (int i = 0; i < kFiles; ++i) static_cast<void>(disk_.remove(path_of(i)));
    const auto old = disk_.list("/b/.swale/j");
    for (size_t i = 0; old.ok() && i < old->size(); ++i)
      static_cast<void>(disk_.remove("/b/.swale/j/" + (*old)[i]));
    World world;
    for (int i = 0; i < kFiles; ++i) {
      world.before[i] = kEach[i].kind == Kind::kNew ? "-" : pattern(run + 7 * i, 9000 + 5500 * i);
      if (kEach[i].kind != Kind::kNew) put_file(disk_, path_of(i), world.before[i]);
    }
    EXPECT_TRUE(disk_.sync_directory("/b").ok());
    EXPECT_TRUE(disk_.sync_directory("/b/d").ok());
    restart();
    start_writer();
    for (int i = 0; i < kFiles; ++i) EXPECT_TRUE(node_->open_file(id_of(i)).ok());
    for (int i = 0; i < kFiles; ++i) world.after[i] = change(i, run, world.before[i]);
    EXPECT_TRUE(node_->take().ok());
    return world;
  }
  std::string change(int i, uint64_t run, const std::string& before) {
    if (kEach[i].kind != Kind::kChanged) {
      if (kEach[i].kind == Kind::kReplaced) {
        EXPECT_TRUE(node_->truncate(id_of(i), 0).ok());
      }
      write(id_of(i), 0, pattern(run + 2 + i, 15'000));
      return pattern(run + 2 + i, 15'000);
    }
    std::string after = before;
    for (const uint64_t offset : {uint64_t{100}, uint64_t{9000}, before.size() - 10}) {
      const std::string bytes = pattern(run + offset, 1000);
      after.resize(std::max<size_t>(after.size(), offset + 1000), '\0');
      after.replace(offset, 1000, bytes);
      write(id_of(i), offset, bytes);
    }
    return after;
  }
  std::string on_disk(int i) {
    const auto there = disk_.exists(path_of(i));
    return there.ok() && *there ? content_of(disk_, path_of(i)) : "-";
  }
  bool marked(int i) {
    const auto there = disk_.exists("/b/.swale/j/" + marked_name(kMarkPrefix, id_of(i)));
    return there.ok() && *there;
  }
  // What is wrong on the backing in the middle of a drain.
  std::string wrong_midway(const World& world) {
    for (int i = 0; i < kFiles; ++i) {
      const std::string now = on_disk(i);
      if (now == world.before[i] || now == world.after[i]) continue;
      if (kEach[i].kind != Kind::kChanged) return fmt::format("'{}' is half there", kEach[i].name);
      if (!marked(i)) return fmt::format("'{}' is half changed, and has no mark", kEach[i].name);
    }
    return "";
  }
  std::string wrong_at_end(const World& world) {
    for (int i = 0; i < kFiles; ++i) {
      if (on_disk(i) != world.after[i]) return fmt::format("'{}' is not what was written", kEach[i].name);
      if (read(id_of(i)) != world.after[i]) return fmt::format("'{}' reads otherwise", kEach[i].name);
    }
    const auto names = disk_.list("/b");
    for (const std::string& name : *names)
      if (name.find(".swale-") != std::string::npos) return name + " was put aside, and nobody changed it";
    const auto left = disk_.list("/b/.swale/j");
    return left.ok() && left->empty() ? "" : "something is left in .swale/j";
  }

  // Drains with a kill at call n; then, after a restart, to the end. "" or the first thing that is wrong.
  std::string killed_at(uint64_t n, uint64_t run, Loss loss, io::CrashMode mode, const DrainRules& rules,
                        bool* hit) {
    const World world = make_world(run);
    faults_.clear();
    faults_.inject({.action = n % 2 == 0 ? io::FaultAction::kTear : io::FaultAction::kFail,
                    .nth = n,
                    .from_then_on = true,
                    .position = 700});
    Status drained = open_drain(rules);
    if (drained.ok()) drained = drain_->all();
    *hit = faults_.faults() > 0;
    std::string wrong;
    if (drained.ok() && *hit) wrong = "a drain whose calls fail has succeeded";
    drain_.reset();
    node_.reset();
    faults_.clear();
    Rng rng(n);
    if (loss == Loss::kPower) disk_.crash(rng, mode);
    if (wrong.empty()) wrong = wrong_midway(world);
    if (!wrong.empty()) return wrong;
    Status again = open_drain({});
    if (again.ok()) again = drain_->all();
    if (!again.ok()) return again.to_string();
    return wrong_at_end(world);
  }
  // The first n at which something is wrong; 0: none.
  uint64_t first_wrong(Loss loss, io::CrashMode mode, const DrainRules& rules, uint64_t* points,
                       std::string* wrong) {
    for (uint64_t n = 1;; ++n) {
      bool hit = false;
      *wrong = killed_at(n, ++run_, loss, mode, rules, &hit);
      if (!wrong->empty()) return n;
      if (!hit) return 0;
      ++*points;
    }
  }
  void expect_survives(Loss loss, io::CrashMode mode) {
    uint64_t points = 0;
    std::string wrong;
    const uint64_t n = first_wrong(loss, mode, {}, &points, &wrong);
    EXPECT_EQ(n, 0u) << wrong;
    std::printf("killed at %d calls\n", static_cast<int>(points));
    EXPECT_GT(points, 80u);
  }

  std::unique_ptr<Drain> drain_;
  uint64_t run_ = 0;
};

TEST_F(DrainFaultsTest, AKillAtAnyCallIsFinishedByTheNextServer) {
  expect_survives(Loss::kKill, io::CrashMode::kDropAll);
}
TEST_F(DrainFaultsTest, APowerLossAtAnyCallIsToo) {
  expect_survives(Loss::kPower, io::CrashMode::kDropAll);
  expect_survives(Loss::kPower, io::CrashMode::kTearPages);
}

TEST_F(DrainFaultsTest, CanaryADrainThatForgetsToSync) {
  uint64_t points = 0;
  std::string wrong;
  EXPECT_GT(first_wrong(Loss::kPower, io::CrashMode::kDropAll, {.sync = false}, &points, &wrong), 0u);
  std::printf("noticed: %s\n", wrong.c_str());
}
TEST_F(DrainFaultsTest, CanaryADrainThatForgetsToSyncTheNames) {
  uint64_t points = 0;
  std::string wrong;
  EXPECT_GT(first_wrong(Loss::kPower, io::CrashMode::kDropAll, {.sync_names = false}, &points, &wrong), 0u);
  std::printf("noticed: %s\n", wrong.c_str());
}
TEST_F(DrainFaultsTest, CanaryADrainThatForgetsToMark) {
  uint64_t points = 0;
  std::string wrong;
  EXPECT_GT(first_wrong(Loss::kKill, io::CrashMode::kDropAll, {.mark = false}, &points, &wrong), 0u);
  std::printf("noticed: %s\n", wrong.c_str());
}

// Writes that the backing says it has made, and has not: at each of them. Returns how many were believed.
TEST_F(DrainFaultsTest, LiesOfTheBackingAreNeverSuccess) {
  for (const bool check : {true, false}) {
    int lies = 0, believed = 0;
    for (const io::CallKind kind : {io::CallKind::kWrite, io::CallKind::kTruncate}) {
      for (uint64_t n = 1;; ++n) {
        const World world = make_world(++run_);
        ASSERT_TRUE(open_drain({.check = check}).ok());
        faults_.inject({.action = io::FaultAction::kDrop, .kind = kind, .path_part = "/", .nth = n});
        const Status drained = drain_->all();
        if (faults_.faults() == 0) break;
        ++lies;
        faults_.clear();
        bool right = true;
        for (int i = 0; i < kFiles; ++i) right = right && on_disk(i) == world.after[i];
        if (drained.ok() && !right) ++believed;
        if (!drained.ok() && check) {
          EXPECT_EQ(drained.code(), Code::kCorruption) << drained.to_string();
          EXPECT_NE(drained.message().find("/b/"), std::string_view::npos) << drained.message();
          ASSERT_TRUE(drain_->all().ok()) << "it can be drained again";
          EXPECT_EQ(wrong_at_end(world), "");
        }
      }
    }
    std::printf("%d lies, %d believed\n", lies, believed);
    EXPECT_GT(lies, 5);
    EXPECT_EQ(believed > 0, !check) << "or the canary, which does not check, was not noticed";
  }
}

// Bits that flip in a spilled chunk: the drain says so, and nothing appears.
TEST_F(DrainFaultsTest, DamagedBytesAreNotDrained) {
  small_chunks(256 * 1024, 2);
  ASSERT_TRUE(open_drain({}).ok());
  start_writer();
  ASSERT_TRUE(node_->open_file(id_of(0)).ok());
  for (uint64_t i = 0; i < 6; ++i) {
    write(id_of(0), i * 100'000, pattern(i, 100'000));
    ASSERT_TRUE(node_->serve().ok());
  }
  const std::string path = options_.spill_directory + "/" + spill_name(log_, 0);
  auto file = device_.open(path, io::OpenMode::kReadWrite);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE((*file)->pwrite(70'000, "\xff\xfe").ok());
  const Status drained = drain_->all();
  EXPECT_EQ(drained.code(), Code::kCorruption);
  EXPECT_NE(drained.message().find(path), std::string_view::npos) << drained.message();
  EXPECT_EQ(on_disk(0), "-");
  EXPECT_EQ(node_->undrained().size(), 1u) << "nothing was forgotten";
}

}  // namespace
}  // namespace swale::fs::drain_faults_test
