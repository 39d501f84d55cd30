// NodeFiles: what processes write is seen at once, by the order of their writes, and again after kills.
#include "fs/node/node_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "fs/node/drain.h"
#include "fs/node/testing/node_rig.h"

namespace swale::fs::node_files_test {
namespace {

using NodeFilesTest = NodeRig;

TEST_F(NodeFilesTest, TheLaterWriteIsSeenAndHolesShowTheBacking) {
  put_file(disk_, "/b/file", "0123456789");
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  EXPECT_EQ(read(kFile), "0123456789");
  write(kFile, 2, "abc");
  write(kFile, 4, "XY");
  write(kFile, 12, "end");
  EXPECT_EQ(read(kFile), std::string("01abXY6789\0\0end", 15));
  EXPECT_EQ(read(kFile, 5, 3), "Y67");
  EXPECT_EQ(read(kFile, 15, 3), "");
  EXPECT_EQ(node_->logs().live_bytes(), 7u) << "bytes that were overwritten are dropped";
}

TEST_F(NodeFilesTest, OffsetsUpToTheHighestWork) {
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  const uint64_t window = uint64_t{1} << 47;  // of FileExtents
  write(kFile, window - 2, "abcd");
  write(kFile, meta::kOffsetEnd - 3, "xyz");
  EXPECT_EQ(*node_->size(kFile), meta::kOffsetEnd);
  EXPECT_EQ(read(kFile, window - 3, 6), std::string("\0abcd\0", 6));
  EXPECT_EQ(read(kFile, meta::kOffsetEnd - 4, 9), std::string("\0xyz", 4));
  write(kFile, window - 1, "BC");
  EXPECT_EQ(read(kFile, window - 2, 4), "aBCd");
  ASSERT_TRUE(node_->truncate(kFile, window + 1).ok());
  EXPECT_EQ(read(kFile, window - 2, 9), "aBC");
}

TEST_F(NodeFilesTest, ATruncateCutsWhatWasWrittenBeforeItAlsoAfterAKill) {
  put_file(disk_, "/b/file", "0123456789");
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 4, "abcdef");
  ASSERT_TRUE(node_->truncate(kFile, 6).ok());
  ASSERT_TRUE(node_->truncate(kFile, 8).ok());
  write(kFile, 9, "Z");
  const std::string expected("0123ab\0\0\0Z", 10);
  EXPECT_EQ(read(kFile), expected);
  restart();
  EXPECT_EQ(read(kFile), expected);
  ASSERT_TRUE(node_->truncate(kFile, 12).ok());
  restart();
  EXPECT_EQ(read(kFile), expected + std::string(2, '\0'));
}

TEST_F(NodeFilesTest, WritesToFilesThatAreNoneHarmNobodyElse) {
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "mine");
  write({99, 99}, 0, "garbage");
  EXPECT_EQ(read(kFile), "mine");
  ASSERT_EQ(node_->damage().size(), 1u);
  EXPECT_NE(node_->damage()[0].message().find("file 63:63"), std::string::npos);
  EXPECT_EQ(node_->logs().live_bytes(), 4u);
}

// The process has the file open since a server before this one, which had drained it.
TEST_F(NodeFilesTest, AWriteAfterAKillFindsItsFileAgain) {
  restart();
  start_writer();
  put_file(disk_, "/b/file", "0123456789");
  write(kFile, 3, "abc");
  EXPECT_EQ(read(kFile), "012abc6789");
  const auto fixed = node_->fix(kFile);
  ASSERT_TRUE(fixed.ok());
  EXPECT_EQ(fixed->backing_end, 10u);
  EXPECT_EQ(fixed->backing.size, 10u);
}

TEST_F(NodeFilesTest, ARemovedFileStaysRemovedAndGivesItsMemoryBack) {
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  ASSERT_TRUE(node_->open_file(kOther).ok());
  write(kFile, 0, "gone");
  write(kOther, 0, "stays");
  ASSERT_TRUE(node_->remove(kFile).ok());
  node_->close_file(kFile);
  EXPECT_EQ(node_->logs().live_bytes(), 5u);
  restart();
  EXPECT_EQ(*node_->size(kFile), 0u);
  EXPECT_EQ(read(kOther), "stays");
  EXPECT_EQ(node_->logs().live_bytes(), 5u);
}

// Makes the backing file what is drained.
Status drain_as(NodeFiles& node, NamedBacking& backing, io::Device& disk, const NodeFiles::Fixed& fixed,
                const std::string& bytes) {
  put_file(disk, "/b/file", bytes);
  SWALE_ASSIGN_OR_RETURN(const auto file, disk.open("/b/file", io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const Stamp now, backing.stamp(*file));
  const NodeFiles::Done done{kFile, &fixed, now};
  return node.drained({&done, 1});
}

// The bytes of a drained file leave the logs; a later server must not take what they had replaced, which its
// logs may still have, for newer than the backing.
TEST_F(NodeFilesTest, WhatIsDrainedDoesNotComeBackAfterAKill) {
  small_chunks(64 * 1024, 16);
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  ASSERT_TRUE(node_->open_file(kOther).ok());
  write(kFile, 0, "old");
  write(kOther, 0, "keeps the chunk");
  for (int i = 0; i < 3; ++i) {
    write(kOther, 100, pattern(1, 50'000));
    ASSERT_TRUE(node_->serve().ok());
  }
  write(kFile, 0, "new");
  const auto fixed = node_->fix(kFile);
  ASSERT_TRUE(fixed.ok()) << fixed.status().to_string();
  ASSERT_TRUE(drain_as(*node_, backing_, disk_, *fixed, "new").ok());
  EXPECT_EQ(read(kFile), "new");
  ASSERT_TRUE(node_->serve().ok());
  restart();
  EXPECT_EQ(read(kFile), "new");
  // Orders of the next life come behind those that the rows name.
  ASSERT_TRUE(node_->remove(kOther).ok());
  ASSERT_TRUE(node_->end_log(log_).ok());
  ASSERT_TRUE(node_->serve().ok());
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "N");
  EXPECT_EQ(read(kFile), "New");
  restart();
  EXPECT_EQ(read(kFile), "New") << "a low order would pass for drained";
}

TEST_F(NodeFilesTest, WhatIsFixedStaysReadableWhileItIsOverwritten) {
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "abcdef");
  const auto fixed = node_->fix(kFile);
  ASSERT_TRUE(fixed.ok());
  EXPECT_EQ(node_->fix(kFile).status().code(), Code::kBusy);
  write(kFile, 2, "XY");
  ASSERT_TRUE(node_->truncate(kFile, 5).ok());
  EXPECT_EQ(read(kFile), "abXYe");
  std::string piece(6, '\0');
  ASSERT_EQ(fixed->pieces.size(), 1u);
  ASSERT_TRUE(node_->read_piece(fixed->pieces[0], 0, piece).ok());
  EXPECT_EQ(piece, "abcdef");
  ASSERT_TRUE(drain_as(*node_, backing_, disk_, *fixed, piece).ok());
  EXPECT_EQ(read(kFile), "abXYe");
  EXPECT_EQ(node_->logs().live_bytes(), 2u);
  restart();
  EXPECT_EQ(read(kFile), "abXYe");
}

TEST_F(NodeFilesTest, FlippedBitsInASpilledChunkAreAnErrorThatNamesFileAndPlace) {
  small_chunks(256 * 1024, 2);
  restart();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  for (uint64_t i = 0; i < 6; ++i) {
    write(kFile, i * 100'000, pattern(i, 100'000));
    ASSERT_TRUE(node_->serve().ok());
  }
  ASSERT_GT(node_->logs().spilled_bytes(), 0u);
  const std::string path = options_.spill_directory + "/" + spill_name(log_, 0);
  auto file = device_.open(path, io::OpenMode::kReadWrite);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE((*file)->pwrite(70'000, "\xff\xfe").ok());
  std::string out(1000, '\0');
  const auto got = node_->read(kFile, 69'990, out);
  EXPECT_EQ(got.status().code(), Code::kCorruption);
  EXPECT_NE(got.status().message().find(path), std::string::npos) << got.status().message();
  EXPECT_NE(got.status().message().find("file 7:1"), std::string::npos) << got.status().message();
  EXPECT_NE(got.status().message().find("65536 bytes at 65536"), std::string::npos) << got.status().message();
  EXPECT_TRUE(node_->read(kFile, 150'000, out).ok()) << "other blocks can be read";
}

// Writers, truncates and kills of the server at random, beside strings.
TEST_F(NodeFilesTest, RandomCallsAreAsOnStrings) {
  small_chunks(64 * 1024, 12);
  Rng rng(31);
  std::map<meta::FileId, std::string> model;
  put_file(disk_, "/b/other", pattern(9, 9000));
  model[kFile] = "", model[kOther] = pattern(9, 9000);
  restart();
  start_writer();
  for (const auto& [id, bytes] : model) ASSERT_TRUE(node_->open_file(id).ok());
  uint64_t kills = 0;
  for (uint64_t step = 0; step < 3000; ++step) {
    const meta::FileId id = rng.below(2) == 0 ? kFile : kOther;
    std::string& bytes = model[id];
    const uint64_t kind = rng.below(100);
    if (kind < 70) {
      const uint64_t offset = rng.below(30'000);
      const std::string data = pattern(step, 1 + rng.below(9000));
      if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size(), '\0');
      bytes.replace(offset, data.size(), data);
      write(id, offset, data);
    } else if (kind < 90) {
      const uint64_t offset = rng.below(40'000), length = rng.below(20'000);
      ASSERT_EQ(read(id, offset, length), offset < bytes.size() ? bytes.substr(offset, length) : "");
    } else if (kind < 96) {
      const uint64_t size = rng.below(40'000);
      bytes.resize(size, '\0');
      ASSERT_TRUE(node_->truncate(id, size).ok());
    } else if (kind < 97) {
      ++kills;
      restart();
      for (const auto& each : model) ASSERT_TRUE(node_->open_file(each.first).ok());
    }
    ASSERT_TRUE(node_->serve().ok());
    ASSERT_LE(node_->logs().memory_bytes(), options_.memory_bytes);
  }
  for (const auto& [id, bytes] : model) ASSERT_EQ(read(id), bytes);
  std::printf("%d kills of the server\n", static_cast<int>(kills));
  EXPECT_GT(kills, 10u);
  EXPECT_GT(shown_, 100u);
  EXPECT_TRUE(node_->damage().empty());
}

// Each way into and out of the order in which files are drained, beside a model.
TEST_F(NodeFilesTest, TheOldestAreThoseWhoseBytesWaitLongest) {
  constexpr uint64_t kFiles = 40;
  constexpr int kSteps = 3'000;
  for (uint64_t i = 0; i < kFiles; ++i) backing_.names[{8, i}] = "f" + std::to_string(i);
  restart();
  start_writer();
  auto drain = Drain::open(*node_, backing_, {.job = "job"});
  ASSERT_TRUE(drain.ok()) << drain.status().to_string();
  std::map<meta::FileId, int> waits;  // since which step
  std::map<meta::FileId, bool> open;
  Rng rng(7);
  size_t most = 0;
  const auto expect_oldest = [&](const std::set<meta::FileId>& but) {
    std::vector<std::pair<int, meta::FileId>> in_order;
    for (const auto& [file, since] : waits)
      if (!but.contains(file)) in_order.emplace_back(since, file);
    std::sort(in_order.begin(), in_order.end());
    in_order.resize(std::min<size_t>(in_order.size(), rng.below(kFiles)));
    std::vector<meta::FileId> expected;
    for (const auto& [since, file] : in_order) expected.push_back(file);
    EXPECT_EQ(node_->oldest(expected.size(), but), expected);
    most = std::max(most, expected.size());
  };
  for (int step = 0; step < kSteps && !HasFailure(); ++step) {
    const meta::FileId file{8, rng.below(kFiles)};
    switch (rng.below(6)) {
      case 0:
      case 1:
        write(file, rng.below(1000), "bytes");
        ASSERT_TRUE(node_->take().ok());
        if (const auto [at, is_new] = waits.emplace(file, step); !is_new)
          at->second = std::min(at->second, step);
        break;
      case 2:  // a new size has no bytes to drain
        if (open[file]) {
          ASSERT_TRUE(node_->truncate(file, *node_->size(file) + 1).ok());
          waits.emplace(file, kSteps);
        }
        break;
      case 3:
        if (open[file])
          node_->close_file(file);
        else
          ASSERT_TRUE(node_->open_file(file).ok());
        if (open[file] = !open[file]; open[file] && content_of(disk_, "/b/" + backing_.names[file])[0] == '(')
          waits.emplace(file, kSteps);  // the backing has not got it
        break;
      case 4:
        ASSERT_TRUE((*drain)->file(file).ok());
        waits.erase(file);
        break;
      default:
        if (node_->fix(file).ok()) {
          expect_oldest({file});
          node_->give_up(file);
        }
    }
    expect_oldest(rng.below(2) == 0 ? std::set<meta::FileId>{file} : std::set<meta::FileId>{});
    ASSERT_TRUE(node_->serve().ok());
  }
  EXPECT_GT(most, kFiles / 2);
}

}  // namespace
}  // namespace swale::fs::node_files_test
