// Plain files of several nodes that stand in for files of a tree which is mounted nowhere: what each node
// sees of the others' bytes, and what comes to the backing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/rng.h"
#include "fs/job/shared_stand_ins.h"
#include "fs/job/stand_in_changes.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::shared_stand_ins_test {
namespace {

constexpr size_t kNodes = 2;
constexpr size_t kRecord = 47'008;
constexpr size_t kRecords = 12;  // of each writer

class SharedStandInsTest : public testing::Test {
 protected:
  void start(const SharedStandInRules& rules = {}) {
    world_.start();
    open_stand_ins(rules);
  }
  void open_stand_ins(const SharedStandInRules& rules = {}) {
    for (size_t node = 0; node < kNodes; ++node) {
      auto made = SharedStandIns::open(world_.fs(node), folder(node), 1024, rules);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      stand_ins_[node] = std::move(*made);
    }
  }
  // As a kill leaves it.
  void restart() {
    for (auto& each : stand_ins_) each.reset();
    world_.restart();
    open_stand_ins();
  }
  void TearDown() override {
    for (auto& each : stand_ins_) each.reset();
  }
  std::string folder(size_t node) const {
    return std::filesystem::path(world_.backing()).parent_path() / fmt::format("stand-ins-{}", node);
  }
  JobFs& fs(size_t node) { return world_.fs(node); }

  // 0, or an errno.
  int try_open(size_t node, const std::string& name, int flags, io::Descriptor* out) {
    Entry entry;
    int failed = fs(node).lookup(*fs(node).root(), name.c_str(), &entry);
    if (failed == ENOENT && (flags & O_CREAT) != 0) {
      std::unique_ptr<OpenFile> file;
      failed = fs(node).create(*fs(node).root(), name.c_str(), 0644, O_WRONLY | O_CREAT | O_EXCL | O_DIRECT,
                               caller_, &entry, &file);
      EXPECT_EQ(failed, 0) << name;
      fs(node).release(std::move(file));
      flags |= O_TRUNC;
    }
    if (failed == 0) {
      failed = stand_ins_[node]->open_file(*entry.node, flags, caller_, out);
      fs(node).forget(entry.node, 1);
    }
    return failed;
  }
  io::Descriptor open(size_t node, const std::string& name, int flags) {
    io::Descriptor made;
    EXPECT_EQ(try_open(node, name, flags, &made), 0) << name << " on node " << node;
    return made;
  }
  template <class Act>
  int on(size_t node, const std::string& name, const Act& act) {
    Entry entry;
    if (const int missing = fs(node).lookup(*fs(node).root(), name.c_str(), &entry); missing != 0)
      return missing;
    const int failed = act(*entry.node);
    fs(node).forget(entry.node, 1);
    return failed;
  }
  static void write(const io::Descriptor& to, uint64_t offset, const std::string& bytes) {
    EXPECT_EQ(::pwrite(to.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }
  static void append(const io::Descriptor& to, const std::string& bytes) {
    EXPECT_EQ(::write(to.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  static std::string all_of(const io::Descriptor& from) {
    struct stat found;
    EXPECT_EQ(::fstat(from.get(), &found), 0);
    std::string bytes(static_cast<size_t>(found.st_size), '\0');
    EXPECT_EQ(::pread(from.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  std::string read(size_t node, const std::string& name) {
    const io::Descriptor from = open(node, name, O_RDONLY);
    return from.valid() ? all_of(from) : "(none)";
  }
  off_t size(size_t node, const std::string& name) {
    struct stat found = {};
    EXPECT_EQ(on(node, name, [&](Node& at) { return stand_ins_[node]->describe(at, &found); }), 0);
    return found.st_size;
  }
  int sync(size_t node, const std::string& name) {
    return on(node, name, [&](Node& at) { return stand_ins_[node]->sync(at); });
  }
  int cut(size_t node, const std::string& name, uint64_t size) {
    return on(node, name, [&](Node& at) { return stand_ins_[node]->truncate(at, size, caller_); });
  }
  std::string drained(const std::string& name) {
    for (auto& each : stand_ins_) {
      const Status taken = each->take_all();
      EXPECT_TRUE(taken.ok()) << taken.to_string();
    }
    for (size_t node = 0; node < kNodes; ++node) {
      const Status done = fs(node).drain_all();
      EXPECT_TRUE(done.ok()) << done.to_string();
    }
    return content(world_.backing() + "/" + name);
  }

  // Doubles and zeros, as programs write them.
  static std::string record(size_t number) {
    std::string bytes(kRecord, '\0');
    Rng rng(number + 1);
    for (size_t at = 0; at + 8 <= kRecord; at += 8)
      if (const uint64_t word = rng.next(); word % 4 != 0) std::memcpy(&bytes[at], &word, 8);
    bytes.front() = 'b', bytes.back() = number % 3 == 0 ? '\0' : 'e';
    return bytes;
  }
  static std::string all_records() {
    std::string whole;
    for (size_t i = 0; i < kRecords * kNodes; ++i) whole += record(i);
    return whole;
  }
  // Each node writes every second record, all open at once.
  void write_strided(const std::string& name) {
    io::Descriptor files[kNodes];
    for (size_t node = 0; node < kNodes; ++node) files[node] = open(node, name, O_RDWR | O_CREAT);
    for (size_t i = 0; i < kRecords * kNodes; ++i) write(files[i % kNodes], i * kRecord, record(i));
  }
  std::string strided(const std::string& name) {
    write_strided(name);
    return read(1, name);
  }

  // Numbers of four bytes in eight, in turns of one of each node; all nodes sync at once, `rounds` times.
  // How many of these left other bytes than were written.
  size_t rounds_that_lose(size_t rounds) {
    constexpr size_t kNumbers = 8'192, kNumber = 8;
    io::Descriptor files[kNodes];
    size_t lost = 0;
    for (size_t node = 0; node < kNodes; ++node) files[node] = open(node, "numbers", O_RDWR | O_CREAT);
    for (size_t round = 1; round <= rounds; ++round) {
      std::string whole(kNumbers * kNumber, '\0');
      for (size_t i = 0; i < kNumbers; ++i) {
        const auto number = static_cast<uint32_t>(i * 2'654'435'761u + round * 0x01010101u) | 0x01010101u;
        std::memcpy(&whole[i * kNumber], &number, sizeof(number));
        write(files[i % kNodes], i * kNumber, whole.substr(i * kNumber, sizeof(number)));
      }
      std::thread other([&] { EXPECT_EQ(sync(1, "numbers"), 0); });
      EXPECT_EQ(sync(0, "numbers"), 0);
      other.join();
      lost += read(0, "numbers") != whole.substr(0, whole.size() - kNumber / 2);
    }
    return lost;
  }

  const Caller caller_ = Caller::this_thread();
  NodesWorld world_{kNodes};
  std::unique_ptr<SharedStandIns> stand_ins_[kNodes];
};

TEST_F(SharedStandInsTest, AnOpenSeesWhatAnotherNodeHasClosed) {
  start();
  for (int i = 0; i < 5; ++i) {
    const std::string name = "f" + std::to_string(i), text = "written by node 0, " + name;
    append(open(0, name, O_WRONLY | O_CREAT), text);
    EXPECT_EQ(size(1, name), static_cast<off_t>(text.size()));
    EXPECT_EQ(read(1, name), text);
    write(open(1, name, O_WRONLY), 0, "WRITTEN");
    EXPECT_EQ(read(0, name), "WRITTEN" + text.substr(7));
    EXPECT_EQ(drained(name), "WRITTEN" + text.substr(7));
    EXPECT_EQ(read(0, name), "WRITTEN" + text.substr(7)) << "of the backing";
  }
  EXPECT_EQ(stand_ins_[0]->count() + stand_ins_[1]->count(), 0u);
  EXPECT_EQ(fs(0).stand_in_roots().files() + fs(1).stand_in_roots().files(), 0u);
  for (const auto& left : std::filesystem::directory_iterator(folder(0)))
    EXPECT_EQ(left.path().filename(), "boot");
}

TEST_F(SharedStandInsTest, CanaryAnOpenThatDoesNotAskOthers) {
  start({.asks_others = false});
  size_t missed = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "f" + std::to_string(i);
    append(open(0, name, O_WRONLY | O_CREAT), "text");
    missed += read(1, name) != "text";
  }
  EXPECT_GT(missed, 0u);
}

TEST_F(SharedStandInsTest, NodesWriteOneFileAtOnce) {
  start();
  EXPECT_TRUE(strided("shared") == all_records());
  EXPECT_TRUE(drained("shared") == all_records());
}

TEST_F(SharedStandInsTest, CanaryWholeFilesComeIntoTheTree) {
  start({.takes_changes = false});
  write_strided("shared");
  EXPECT_FALSE(drained("shared") == all_records());
}

TEST_F(SharedStandInsTest, NodesChangeOneFileThatIsThere) {
  std::ofstream(world_.backing() + "/old") << std::string(all_records().size() + 1000, 'o');
  start();
  const std::string whole = all_records() + std::string(1000, 'o');
  EXPECT_TRUE(strided("old") == whole);
  EXPECT_TRUE(drained("old") == whole);
}

TEST_F(SharedStandInsTest, BytesThatAreWrittenAtEndsOfOthersStay) {
  start();
  Rng rng(5);
  io::Descriptor files[kNodes];
  std::string whole;
  for (size_t node = 0; node < kNodes; ++node) files[node] = open(node, "bytes", O_RDWR | O_CREAT);
  for (size_t i = 0; i < 3'000; ++i) {
    const std::string piece(1 + rng.below(9), static_cast<char>('a' + i % 2));
    write(files[i % 2], whole.size(), piece);
    whole += piece;
    EXPECT_EQ(i % 500 == 499 ? sync(i % 1000 < 500 ? 0 : 1, "bytes") : 0, 0);
  }
  for (auto& each : files) each = {};
  EXPECT_TRUE(read(0, "bytes") == whole);
  EXPECT_TRUE(drained("bytes") == whole);
}

TEST_F(SharedStandInsTest, ManyChangesOfNodesComeInTurns) {
  start();
  EXPECT_EQ(rounds_that_lose(10), 0u);
}

TEST_F(SharedStandInsTest, CanaryManyChangesWithoutTurns) {
  start({.takes_turns = false});
  size_t lost = 0;
  for (int tries = 0; tries < 30 && lost == 0; ++tries) lost = rounds_that_lose(5);
  EXPECT_GT(lost, 0u);
}

TEST_F(SharedStandInsTest, AppendsOfNodesFollowEachOther) {
  start();
  io::Descriptor logs[kNodes];
  std::multiset<std::string> lines;
  append(open(0, "log", O_WRONLY | O_CREAT), "begin\n");
  lines.insert("begin");
  for (size_t node = 0; node < kNodes; ++node) logs[node] = open(node, "log", O_WRONLY | O_CREAT | O_APPEND);
  for (size_t i = 0; i < 200; ++i) {
    const std::string line = fmt::format("node {} line {}", i % kNodes, i);
    append(logs[i % kNodes], line + "\n");
    lines.insert(line);
    EXPECT_EQ(i % 50 == 49 ? sync(i % 100 < 50 ? 0 : 1, "log") : 0, 0);
  }
  for (auto& each : logs) each = {};
  const std::string whole = read(1, "log");
  EXPECT_EQ(whole.substr(0, 6), "begin\n");
  std::multiset<std::string> found;
  std::istringstream text(whole);
  for (std::string line; std::getline(text, line);) found.insert(line);
  EXPECT_EQ(found, lines);
  EXPECT_EQ(drained("log"), whole);
}

TEST_F(SharedStandInsTest, CanaryAppendsWithoutTheRoot) {
  start({.reserves = false});
  {
    const io::Descriptor one = open(0, "log", O_WRONLY | O_CREAT | O_APPEND),
                         other = open(1, "log", O_WRONLY | O_APPEND);
    append(one, "one\n"), append(other, "other\n");
  }
  EXPECT_NE(read(0, "log").size(), 10u);
}

TEST_F(SharedStandInsTest, AppendsComeBehindWhatTheNodeHasWritten) {
  start();
  const io::Descriptor writer = open(0, "out", O_WRONLY | O_CREAT);
  append(writer, "head ");
  append(open(0, "out", O_WRONLY | O_APPEND), "appended");
  EXPECT_EQ(read(0, "out"), "head appended");
  EXPECT_EQ(size(0, "out"), 13);
  EXPECT_EQ(read(1, "out"), "head appended");
  io::Descriptor both;
  EXPECT_EQ(try_open(0, "out", O_RDWR | O_APPEND, &both), EOPNOTSUPP);
}

TEST_F(SharedStandInsTest, AnOpenFileGetsOthersBytesAndKeepsItsOwn) {
  start();
  append(open(0, "f", O_WRONLY | O_CREAT), std::string(10'000, '.'));
  const io::Descriptor held = open(0, "f", O_RDWR);
  io::Descriptor other = open(1, "f", O_RDWR);
  write(held, 10, "mine");
  write(other, 5'000, "theirs");
  write(other, 12'000, "longer");
  other = {};
  EXPECT_EQ(all_of(held).size(), 10'000u);
  const std::string now = read(0, "f");
  EXPECT_EQ(now.substr(10, 4), "mine");
  EXPECT_EQ(now.substr(5'000, 6), "theirs");
  EXPECT_EQ(now.substr(12'000), "longer");
  EXPECT_EQ(all_of(held), now);
  EXPECT_EQ(cut(1, "f", 6'000), 0);
  EXPECT_EQ(sync(0, "f"), 0);
  EXPECT_EQ(all_of(held), now.substr(0, 6'000));
  EXPECT_EQ(drained("f"), now.substr(0, 6'000));
}

TEST_F(SharedStandInsTest, CanaryOthersBytesCoverWhatProgramsWrite) {
  start({.merges_by_word = false});
  append(open(0, "f", O_WRONLY | O_CREAT), std::string(10'000, '.'));
  const io::Descriptor held = open(0, "f", O_RDWR), other = open(1, "f", O_RDWR);
  write(held, 10, "mine");
  write(other, 5'000, "theirs");
  EXPECT_NE(read(0, "f").substr(10, 4), "mine");
}

TEST_F(SharedStandInsTest, ProgramsWriteWhileOthersBytesCome) {
  start();
  constexpr size_t kBytes = 1 << 16, kStep = 16;
  append(open(0, "f", O_WRONLY | O_CREAT), std::string(kBytes, '.'));
  const io::Descriptor mine = open(0, "f", O_RDWR);
  std::atomic<bool> over = false;
  std::string last(kBytes, '.');
  std::thread writer([&] {
    for (int round = 0; !over.load() || round < 20; ++round)
      for (size_t at = 0; at < kBytes; at += kStep) {
        const std::string bytes(3, static_cast<char>('a' + round % 26));
        write(mine, at, bytes);
        last.replace(at, 3, bytes);
      }
  });
  for (int round = 0; round < 30; ++round) {
    {
      const io::Descriptor theirs = open(1, "f", O_RDWR);
      for (size_t at = 4; at < kBytes; at += kStep)
        write(theirs, at, std::string(7, static_cast<char>('A' + round % 26)));
    }
    EXPECT_EQ(read(0, "f").size(), kBytes);
  }
  over.store(true);
  writer.join();
  for (size_t at = 4; at < kBytes; at += kStep)
    last.replace(at, 7, std::string(7, static_cast<char>('A' + 29 % 26)));
  EXPECT_TRUE(all_of(mine) == last);
  EXPECT_TRUE(drained("f") == last);
}

TEST_F(SharedStandInsTest, WhatIsCutIsCutOnAllNodes) {
  start();
  append(open(0, "f", O_WRONLY | O_CREAT), "a long text of node 0");
  append(open(1, "f", O_WRONLY | O_TRUNC), "short");
  EXPECT_EQ(read(0, "f"), "short");
  const io::Descriptor held = open(0, "f", O_RDWR);
  EXPECT_EQ(cut(0, "f", 2), 0);
  EXPECT_EQ(size(1, "f"), 2);
  write(held, 4, "e");
  EXPECT_EQ(size(0, "f"), 5);
  EXPECT_EQ(sync(0, "f"), 0);
  EXPECT_EQ(read(1, "f"), std::string("sh\0\0e", 5));
  EXPECT_EQ(::ftruncate(held.get(), 100), 0);  // zeros at its end
  EXPECT_EQ(sync(0, "f"), 0);
  EXPECT_EQ(size(1, "f"), 100);
  append(open(1, "f", O_WRONLY | O_TRUNC | O_APPEND), "again");
  EXPECT_EQ(drained("f"), "again");
}

TEST_F(SharedStandInsTest, ARemovedFileIsGone) {
  start();
  const io::Descriptor held = open(0, "f", O_RDWR | O_CREAT);
  append(held, "text");
  EXPECT_EQ(fs(1).unlink(*fs(1).root(), "f", caller_), 0);
  append(open(1, "f", O_WRONLY | O_CREAT), "another");
  append(held, " and more");
  EXPECT_EQ(all_of(held), "text and more");
  EXPECT_EQ(drained("f"), "another");
}

TEST_F(SharedStandInsTest, AKilledServerLeavesChangesAlone) {
  std::ofstream(world_.backing() + "/old") << std::string(100'000, 'o');
  start();
  io::Descriptor zero = open(0, "old", O_RDWR), one = open(1, "old", O_RDWR),
                 reads = open(1, "new", O_RDWR | O_CREAT);
  write(zero, 10, "node 0"), write(one, 50'000, "node 1"), write(reads, 3, "new");
  EXPECT_EQ(sync(1, "old"), 0);
  write(one, 60'000, "later");
  restart();
  write(zero, 20, "after it");
  for (io::Descriptor* each : {&zero, &one, &reads}) *each = {};
  std::string whole(100'000, 'o');
  whole.replace(10, 6, "node 0")
      .replace(20, 8, "after it")
      .replace(50'000, 6, "node 1")
      .replace(60'000, 5, "later");
  EXPECT_TRUE(read(1, "old") == whole);
  EXPECT_EQ(read(0, "new"), std::string("\0\0\0new", 6));
  EXPECT_TRUE(drained("old") == whole);
}

// The bytes were at their place when it was killed, and nobody had noted that.
TEST_F(SharedStandInsTest, AppendedBytesComeOnceBesideAKill) {
  start();
  append(open(1, "log", O_WRONLY | O_CREAT), "begin ");
  const io::Descriptor log = open(0, "log", O_WRONLY | O_APPEND);
  append(log, "once ");
  EXPECT_EQ(sync(0, "log"), 0);
  append(log, "later");
  for (auto& each : stand_ins_) each.reset();
  const uint64_t before[3] = {6, 11, 6};
  for (const auto& each : std::filesystem::directory_iterator(folder(0)))
    if (each.path().extension() == ".at")
      std::ofstream(each.path(), std::ios::binary)
          .write(reinterpret_cast<const char*>(before), sizeof(before));
  restart();
  EXPECT_EQ(sync(0, "log"), 0);
  EXPECT_EQ(read(1, "log"), "begin once later");
}

TEST(StandInChanges, AreThoseOfEachByte) {
  Rng rng(3);
  for (int round = 0; round < 2'000; ++round) {
    const size_t bytes = rng.below(100), bridge = rng.below(3) * 5;
    std::string now(bytes, '\0'), before(bytes, '\0'), made;
    for (size_t i = 0; i < bytes; ++i) {
      before[i] = static_cast<char>(rng.below(2));
      now[i] = rng.below(3) == 0 ? static_cast<char>(rng.below(3)) : before[i];
    }
    const bool zeros = rng.below(4) == 0;
    made = zeros ? std::string(bytes, '\0') : before;
    const std::string base = made;
    size_t last = 0;
    find_changes(now.data(), zeros ? nullptr : before.data(), bytes, bridge, [&](size_t begin, size_t end) {
      EXPECT_LT(begin, end);
      EXPECT_NE(now[begin], base[begin]);
      EXPECT_NE(now[end - 1], base[end - 1]);
      EXPECT_TRUE(last == 0 || begin - last > bridge);
      made.replace(begin, end - begin, now.substr(begin, end - begin));
      last = end;
    });
    EXPECT_EQ(made, now);
  }
}

TEST(StandInRoots, OneTakesInAloneAndOthersWait) {
  StandInRoots roots;
  const meta::FileId file{1, 2};
  const auto say = [&](NodeId node, StandInStep step) {
    step.file = file;
    const auto again = decode_stand_in_step(encode(step));
    EXPECT_TRUE(again.ok());
    return *decode_stand_in_answer(encode(roots.obey(node, *again)));
  };
  const uint8_t copy = kCopyIsRead | kCopyIsWritten;
  const auto opened = say(0, {.op = StandInOp::kOpen, .uses = copy});
  EXPECT_TRUE(opened.granted);
  EXPECT_EQ(say(1, {.op = StandInOp::kWho}).nodes, std::vector<NodeId>{0});
  EXPECT_TRUE(say(0, {.op = StandInOp::kBegin, .uses = copy, .number = opened.number}).granted);
  EXPECT_FALSE(say(1, {.op = StandInOp::kOpen, .uses = kTailIsWritten}).granted);
  EXPECT_TRUE(say(1, {.op = StandInOp::kOpen, .uses = kCopyIsRead}).granted);
  const auto took = say(0, {.op = StandInOp::kTook, .changed = true, .alone = true});
  EXPECT_EQ(took.before, opened.number);
  EXPECT_NE(took.number, opened.number);
  EXPECT_FALSE(say(0, {.op = StandInOp::kBegin, .uses = copy, .number = opened.number}).granted);
  EXPECT_TRUE(say(1, {.op = StandInOp::kOpen, .uses = kTailIsWritten}).granted);
  EXPECT_FALSE(say(0, {.op = StandInOp::kBegin, .uses = copy, .number = took.number}).granted);
  say(1, {.op = StandInOp::kTook, .uses = kTailIsWritten | kCopyIsRead});
  EXPECT_TRUE(say(0, {.op = StandInOp::kBegin, .uses = copy, .number = took.number}).granted);
  say(0, {.op = StandInOp::kTook, .uses = copy, .alone = true});
  EXPECT_EQ(roots.files(), 0u);
  EXPECT_TRUE(say(0, {.op = StandInOp::kTurn}).granted);
  EXPECT_TRUE(say(1, {.op = StandInOp::kTurn}).granted);
  EXPECT_EQ(say(2, {.op = StandInOp::kTurn, .alone = true}).taking, 0u);
  say(0, {.op = StandInOp::kTurnOver});
  EXPECT_EQ(say(2, {.op = StandInOp::kTurn, .alone = true}).taking, 1u);
  say(1, {.op = StandInOp::kTurnOver});
  EXPECT_TRUE(say(2, {.op = StandInOp::kTurn, .alone = true}).granted);
  EXPECT_EQ(say(1, {.op = StandInOp::kTurn}).taking, 2u);
  EXPECT_FALSE(say(1, {.op = StandInOp::kTurn}).granted);
  say(2, {.op = StandInOp::kTurnOver});
  EXPECT_TRUE(say(1, {.op = StandInOp::kTurn}).granted);
  say(1, {.op = StandInOp::kTurnOver});
  EXPECT_EQ(roots.files(), 0u);
  EXPECT_FALSE(decode_stand_in_step("garbage").ok());
  EXPECT_FALSE(decode_stand_in_answer("garbage").ok());
  EXPECT_FALSE(decode_take_in_wish("garbage").ok());
}

}  // namespace
}  // namespace swale::fs::shared_stand_ins_test
