// Stages of real trees and manifests: copies are equal, and what cannot be staged is named.
#include "stage/stage.h"

#include <gmock/gmock.h>

#include "base/crc32c.h"
#include "stage/manifest.h"
#include "stage/testing/stage_rig.h"

namespace swale::stage::stage_test {
namespace {

using testing::HasSubstr;

class StageTest : public StageRig {};

void make_fifo(const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }

TEST_F(StageTest, ATreeIsEqualWithModesTimesLinksAndHoles) {
  make_small_tree();
  size_t size = 0;
  for (const char* const name : {"empty", "with blank", "line\nfeed", "\xc3\xa9t\xc3\xa9", "-n", "#x"}) {
    put(from() + "/d/" + name, bytes_of(size, size));
    size = size * 5 + 1000;
  }
  const std::string long_name(250, 'n');
  put(from() + "/" + long_name, bytes_of(9, kPiece));  // no more name fits beside it
  put(from() + "/sparse", bytes_of(4, 10));
  ASSERT_EQ(::truncate((from() + "/sparse").c_str(), 40 * kMiB), 0);
  std::filesystem::create_symlink("nowhere", from() + "/dangling");
  std::filesystem::create_directories(from() + "/closed/empty");
  ASSERT_EQ(::chmod((from() + "/a").c_str(), 0640), 0);
  const timespec times[] = {{1'000'000, 7}, {2'000'000, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (from() + "/d/b").c_str(), times, 0), 0);
  const bool has_attributes = ::setxattr((from() + "/a").c_str(), "user.origin", "me", 2, 0) == 0;
  ASSERT_EQ(::chmod((from() + "/closed").c_str(), 0555), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, (from() + "/d").c_str(), times, 0), 0);
  for (const Direction direction :
       {Direction::kOut, Direction::kIn, Direction::kOut}) {  // also over an old one
    const StageReport report = run(options(direction));
    EXPECT_EQ(report.state, StageState::kDone) << failures_of(report);
    expect_staged();
  }
  struct stat sparse;
  ASSERT_EQ(::stat((to() + "/sparse").c_str(), &sparse), 0);
  EXPECT_LT(sparse.st_blocks, 2048);
  char value[2] = {};
  if (has_attributes) {
    EXPECT_EQ(::getxattr((to() + "/a").c_str(), "user.origin", value, 2), 2);
  }
  EXPECT_THAT(get(root_ + "/status"), HasSubstr("\"state\":\"done\""));
  ::chmod((from() + "/closed").c_str(), 0755);  // for its removal
  ::chmod((to() + "/closed").c_str(), 0755);
}

TEST_F(StageTest, TheManifestOfTheWayBackChecksWhatReturns) {
  make_small_tree();
  StageOptions out = options();
  out.way_back = root_ + "/back";
  ASSERT_EQ(run(out).state, StageState::kDone);
  const auto before = listing(from());
  std::filesystem::remove_all(from());
  StageOptions in = manifest_options(get(root_ + "/back"));
  in.direction = Direction::kIn;
  const StageReport report = run(in);
  EXPECT_EQ(report.state, StageState::kDone) << failures_of(report);
  for (const auto& [path, what] : listing(from()))
    if (path != "d") {
      EXPECT_EQ(before.at(path), what) << path;
    }
  EXPECT_EQ(listing(from()).size(), before.size());
}

TEST_F(StageTest, AFalseChecksumInTheManifestFailsByName) {
  const std::string content = bytes_of(1, 3 * kPiece);
  for (const char* const name : {"/right", "/false", "/small"}) put(from() + name, content);
  put(from() + "/small", "123456789");
  std::filesystem::create_directories(to());
  const StageReport report =
      run(manifest_options(manifest_line(from() + "/right", to() + "/right", crc32c(content)) +
                           manifest_line(from() + "/false", to() + "/false", crc32c(content) ^ 1) +
                           manifest_line(from() + "/small", to() + "/small", 0xe3069282)));
  EXPECT_EQ(report.state, StageState::kFailed);
  EXPECT_EQ(report.failures.size(), 2u);
  EXPECT_THAT(failures_of(report), HasSubstr(from() + "/false: expected the content of checksum"));
  EXPECT_THAT(failures_of(report), HasSubstr(from() + "/small: expected the content of checksum"));
  EXPECT_EQ(get(to() + "/right"), content);
  EXPECT_EQ(listing(to()).size(), 1u);
}

TEST_F(StageTest, WhatIsNoFileIsRefusedByNameAndTheOthersAreStaged) {
  make_small_tree();
  make_fifo(from() + "/fifo");
  put(from() + "/.x.swale-part", "left");
  const StageReport report = run(options());
  EXPECT_EQ(report.state, StageState::kFailed);
  EXPECT_EQ(report.failures.size(), 2u);
  EXPECT_THAT(failures_of(report), HasSubstr(from() + "/fifo: is a FIFO"));
  EXPECT_THAT(failures_of(report), HasSubstr(".x.swale-part: is what an unfinished stage"));
  EXPECT_EQ(listing(to()).size() + 2, listing(from()).size());
}

TEST_F(StageTest, MistakesInAManifestAreNamed) {
  put(from() + "/a", "a");
  put(from() + "/b", "b");
  std::filesystem::create_directories(from() + "/d");
  const StageReport report = run(manifest_options(
      manifest_line(from() + "/a", to() + "/x", {}) + manifest_line(from() + "/b", to() + "/x", {}) +
      manifest_line(from() + "/d", to() + "/d", {}) + manifest_line(from() + "/none", to() + "/none", {}) +
      manifest_line(from() + "/b", from() + "/b", {})));
  EXPECT_THAT(failures_of(report), HasSubstr("line 2 has the same destination"));
  EXPECT_THAT(failures_of(report), HasSubstr(from() + "/d: is a folder"));
  EXPECT_THAT(failures_of(report), HasSubstr(from() + "/none: "));
  EXPECT_THAT(failures_of(report), HasSubstr("is its own destination"));
  EXPECT_EQ(get(to() + "/x"), "a");
  StageOptions into_itself = options();
  into_itself.to = from() + "/d/e";
  EXPECT_THAT(failures_of(run(into_itself)), HasSubstr("one is in the other"));
}

TEST_F(StageTest, ASourceThatChangesMeanwhileHasFailed) {
  enum class Change { kNone, kGrows, kShrinks, kWritten, kReplaced };
  for (const Change change :
       {Change::kNone, Change::kGrows, Change::kShrinks, Change::kWritten, Change::kReplaced}) {
    for (const size_t size : {size_t{5000}, size_t{3 * kPiece}}) {
      const std::string path = from() + "/file", content = bytes_of(size, size);
      put(path, content);
      std::atomic<bool> changed{false};
      const StageReport report = run(options(), [&](io::FaultDevice& device) {
        device.set_hook([&](const io::Call& call) -> Status {
          if (call.kind != io::CallKind::kWrite || changed.exchange(true)) return {};
          ::usleep(20'000);  // file systems date by the tick of the kernel
          if (change == Change::kGrows) put(path, content + "more");
          if (change == Change::kShrinks) ::truncate(path.c_str(), 10);
          if (change == Change::kWritten) put(path, bytes_of(size + 1, size));
          if (change == Change::kReplaced) {
            put(path + "2", content);
            std::filesystem::rename(path + "2", path);
          }
          return {};
        });
      });
      // A file that was opened before it was replaced is the old one, whole.
      const bool fails = change != Change::kNone && change != Change::kReplaced;
      if (change != Change::kReplaced) {
        EXPECT_EQ(report.state, fails ? StageState::kFailed : StageState::kDone) << failures_of(report);
      }
      if (fails) {
        EXPECT_THAT(failures_of(report), HasSubstr(path + ": "));
      }
      if (fails) {
        EXPECT_TRUE(listing(to()).empty());
      }
      if (std::filesystem::exists(to() + "/file")) {
        EXPECT_EQ(get(to() + "/file"), content);
      }
      std::filesystem::remove_all(to());
      std::filesystem::remove(path);
    }
  }
}

TEST_F(StageTest, TwoWithOneStatusFileAreRefused) {
  make_small_tree();
  auto first = Stage::open(options(), stop_);
  ASSERT_TRUE(first.ok());
  const Status second = Stage::open(options(), stop_).status();
  EXPECT_EQ(second.code(), Code::kBusy) << second.to_string();
  EXPECT_EQ((*first)->run({}).state, StageState::kDone);
  expect_staged();
}

TEST_F(StageTest, PlantedLinksAreNeverWrittenThrough) {
  make_small_tree();
  const std::string outside = root_ + "/outside";
  std::filesystem::create_directories(outside);
  put(outside + "/a", "theirs");
  std::filesystem::create_directories(to());
  std::filesystem::create_symlink(outside + "/a", to() + "/.a.swale-part");
  std::filesystem::create_symlink(outside + "/a", to() + "/a");
  std::filesystem::create_symlink(outside, to() + "/d");  // where a folder should be
  const StageReport report = run(options());
  EXPECT_EQ(report.state, StageState::kFailed);
  EXPECT_THAT(failures_of(report), HasSubstr("/d"));
  EXPECT_EQ(get(to() + "/a"), get(from() + "/a"));
  EXPECT_FALSE(std::filesystem::is_symlink(to() + "/a"));
  EXPECT_EQ(get(outside + "/a"), "theirs");
  EXPECT_EQ(listing(outside).size(), 1u);
}

TEST_F(StageTest, AStoppedOneGoesOnWhereItWas) {
  make_small_tree();
  put(from() + "/huge", bytes_of(8, 20 * kPiece));
  const auto stops_after = [&](uint64_t writes) {
    return [this, writes](io::FaultDevice& device) {
      device.set_hook([this, writes, &device](const io::Call&) -> Status {
        if (device.calls(io::CallKind::kWrite) > writes) stop_ = true;
        return {};
      });
    };
  };
  StageOptions chosen = options();
  chosen.threads = 1;
  EXPECT_EQ(run(chosen, stops_after(40)).state, StageState::kStopped);
  EXPECT_FALSE(std::filesystem::exists(to() + "/huge"));
  EXPECT_THAT(get(root_ + "/status"), HasSubstr("\"state\":\"stopped\""));
  EXPECT_EQ(run(chosen).state, StageState::kDone);
  // 40 writes of a quarter of a piece: ten pieces, of which two batches, of two each, were not read back.
  EXPECT_GE(bytes_before_, 6 * kPiece);
  expect_staged();
  // A source that has changed in between begins anew.
  std::filesystem::remove_all(to());
  EXPECT_EQ(run(chosen, stops_after(40)).state, StageState::kStopped);
  put(from() + "/huge", bytes_of(9, 20 * kPiece));
  EXPECT_EQ(run(chosen).state, StageState::kDone);
  EXPECT_EQ(bytes_before_, 0u);
  expect_staged();
}

TEST_F(StageTest, AnotherCommandsJournalIsLeftOutAndCleanRemovesParts) {
  make_small_tree();
  const auto stops = [this](io::FaultDevice& device) {
    device.set_hook([this](const io::Call& call) -> Status {
      stop_ = stop_ || (call.kind == io::CallKind::kWrite && call.path.ends_with(".large.swale-part"));
      return {};
    });
  };
  EXPECT_EQ(run(options(), stops).state, StageState::kStopped);
  EXPECT_TRUE(std::filesystem::exists(to() + "/d/.large.swale-part"));
  StageOptions other = options();
  other.direction = Direction::kIn;
  EXPECT_FALSE(Stage::clean(other).ok());  // not its parts
  EXPECT_TRUE(std::filesystem::exists(to() + "/d/.large.swale-part"));
}

TEST_F(StageTest, CleanRemovesWhatAnUnfinishedOneHasLeft) {
  make_small_tree();
  const auto stops = [this](io::FaultDevice& device) {
    device.set_hook([this](const io::Call& call) -> Status {
      stop_ = stop_ || (call.kind == io::CallKind::kWrite && call.path.ends_with(".large.swale-part"));
      return {};
    });
  };
  EXPECT_EQ(run(options(), stops).state, StageState::kStopped);
  const Status cleaned = Stage::clean(options());
  EXPECT_TRUE(cleaned.ok()) << cleaned.to_string();
  expect_nothing_left();
  EXPECT_FALSE(std::filesystem::exists(root_ + "/status"));
}

TEST_F(StageTest, RanksDivideTheFiles) {
  for (int i = 0; i < 50; ++i) put(from() + "/f" + std::to_string(i), bytes_of(i, 100 * i));
  uint64_t files = 0;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    StageOptions chosen = options();
    chosen.rank = rank;
    chosen.ranks = 3;
    chosen.status += "." + std::to_string(rank);
    auto stage = Stage::open(chosen, stop_);
    ASSERT_TRUE(stage.ok());
    EXPECT_GT((*stage)->counts().files, 0u);
    EXPECT_EQ((*stage)->run({}).state, StageState::kDone);
    files += (*stage)->counts().files_done;
  }
  EXPECT_EQ(files, 50u);
  EXPECT_TRUE(listing(from()) == listing(to()));
}

}  // namespace
}  // namespace swale::stage::stage_test
