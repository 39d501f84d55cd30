// JobFs on several nodes: what each sees of the others' bytes and names (a test a row of the table of
// visibility), and drains that the roots of the files lead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/rng.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_nodes_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kNodes = 3;

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class JobFsNodes : public testing::Test {
 protected:
  std::string backing(const std::string& path) const { return world_.backing() + "/" + path; }
  int open(size_t node, const std::string& path, int flags) {
    int handle = -1;
    EXPECT_EQ(world_.calls(node).open(path, flags, 0644, &handle), 0) << path << " on node " << node;
    return handle;
  }
  void write(size_t node, int handle, uint64_t offset, const std::string& bytes) {
    EXPECT_EQ(world_.calls(node).write(handle, offset, bytes), 0);
  }
  // A file that is made, written and closed.
  void make(size_t node, const std::string& path, const std::string& bytes, uint64_t offset = 0) {
    const int handle = open(node, path, O_RDWR | O_CREAT);
    write(node, handle, offset, bytes);
    EXPECT_EQ(close(node, handle), 0);
  }
  int close(size_t node, int handle) { return world_.calls(node).close(handle); }
  std::string read(size_t node, int handle, uint64_t offset = 0, size_t bytes = 1000) {
    std::string out;
    const int failed = world_.calls(node).read(handle, offset, bytes, &out);
    return failed == 0 ? out : "(" + std::string(std::strerror(failed)) + ")";
  }
  std::string read(size_t node, const std::string& path) {
    int handle = -1;
    if (const int failed = world_.calls(node).open(path, O_RDONLY, 0, &handle); failed != 0)
      return "(" + std::string(std::strerror(failed)) + ")";
    const std::string out = read(node, handle);
    EXPECT_EQ(close(node, handle), 0);
    return out;
  }
  off_t size(size_t node, const std::string& path) {
    struct stat found;
    return world_.calls(node).look(path, &found) == 0 ? found.st_size : -1;
  }
  std::vector<std::string> list(size_t node, const std::string& path) {
    std::vector<std::string> names;
    EXPECT_EQ(world_.calls(node).list(path, &names), 0);
    return names;
  }
  void drain_all() {
    for (size_t node = 0; node < kNodes; ++node) {
      const Status drained = world_.fs(node).drain_all();
      EXPECT_TRUE(drained.ok()) << "node " << node << ": " << drained.to_string();
    }
    for (size_t node = 0; node < kNodes; ++node) {
      EXPECT_EQ(world_.fs(node).stats().undrained_files, 0u) << node;
      // Bytes of files without a name go when the names have heard of the last release.
      for (int i = 0; i < 6'000 && world_.fs(node).stats().undrained_bytes != 0; ++i) ::usleep(10'000);
      EXPECT_EQ(world_.fs(node).stats().undrained_bytes, 0u) << node;
    }
  }

  NodesWorld world_{kNodes};
};

// ---- the table

TEST_F(JobFsNodes, AWriteIsSeenOnItsNodeAtOnceAndOnOthersWhenItIsClosed) {
  put(backing("f"), "0123456789");
  world_.start();
  const int one = open(0, "f", O_RDWR), other = open(1, "f", O_RDONLY), same = open(0, "f", O_RDONLY);
  write(0, one, 2, "AAA");
  EXPECT_EQ(read(0, same), "01AAA56789");
  EXPECT_EQ(close(0, one), 0);
  EXPECT_EQ(read(1, other), "01AAA56789") << "without reopening";
  EXPECT_EQ(read(2, "f"), "01AAA56789");
  EXPECT_EQ(close(1, other), 0);
  EXPECT_EQ(close(0, same), 0);
}

TEST_F(JobFsNodes, EachCommitIsSeenByReadsThatBeginLater) {
  world_.start();
  make(0, "f", "----------");
  const int one = open(0, "f", O_RDWR), other = open(1, "f", O_RDONLY);
  write(0, one, 0, "F");
  EXPECT_EQ(world_.calls(0).sync(one), 0);
  EXPECT_EQ(read(1, other), "F---------") << "fsync";
  write(0, one, 1, "T");
  EXPECT_EQ(world_.calls(0).resize(one, 8), 0);
  EXPECT_EQ(read(1, other), "FT------") << "ftruncate";
  write(0, one, 2, "R");
  EXPECT_EQ(world_.calls(0).rename("f", "g", 0), 0);
  EXPECT_EQ(read(1, other), "FTR-----") << "rename";
  EXPECT_EQ(read(2, "g"), "FTR-----");
  write(0, one, 3, "E");
  world_.calls(0).abandon(one);
  EXPECT_EQ(read(1, other), "FTRE----") << "the end of a process";
  EXPECT_EQ(close(1, other), 0);
}

TEST_F(JobFsNodes, OfOverlappingWritesTheLaterCommitWins) {
  world_.start();
  make(2, "f", "..........");
  const int one = open(0, "f", O_RDWR), other = open(1, "f", O_RDWR);
  write(0, one, 0, "AAAA");
  write(1, other, 2, "BBBB");
  EXPECT_EQ(world_.calls(1).flush(other), 0);
  EXPECT_EQ(world_.calls(0).flush(one), 0);
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, "f"), "AAAABB....") << node;
  write(1, other, 1, "C");
  EXPECT_EQ(world_.calls(1).flush(other), 0);
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, "f"), "ACAABB....") << node;
  EXPECT_EQ(close(0, one), 0);
  EXPECT_EQ(close(1, other), 0);
}

TEST_F(JobFsNodes, AppendsOfTwoNodesNeverOverlap) {
  world_.start();
  make(0, "log", "");
  int handles[kNodes];
  for (size_t node = 0; node < kNodes; ++node) handles[node] = open(node, "log", O_WRONLY | O_APPEND);
  std::vector<std::thread> threads;
  for (size_t node = 0; node < kNodes; ++node)
    threads.emplace_back([&, node] {
      for (int i = 0; i < 40; ++i)
        write(node, handles[node], 0, std::string(10, static_cast<char>('a' + node)));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(close(node, handles[node]), 0);
  const std::string all = read(1, open(1, "log", O_RDONLY), 0, 5000);
  ASSERT_EQ(all.size(), kNodes * 400);
  size_t of[kNodes] = {};
  for (size_t at = 0; at < all.size(); at += 10) {
    EXPECT_EQ(all.substr(at, 10), std::string(10, all[at])) << at;
    ++of[static_cast<size_t>(all[at] - 'a')];
  }
  EXPECT_THAT(of, ElementsAre(40, 40, 40));
}

// Files whose names are kept by each of the nodes.
TEST_F(JobFsNodes, ATruncateCutsWhatOtherNodesHaveAppendedBefore) {
  world_.start();
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    const int first = open(0, name, O_RDWR | O_CREAT | O_APPEND);
    const int second = open(1, name, O_RDWR | O_APPEND), third = open(2, name, O_RDWR);
    write(0, first, 0, "aaaa");
    EXPECT_EQ(world_.calls(2).resize(third, 1), 0);
    write(1, second, 0, "bb");
    write(0, first, 0, "cc");
    for (const auto& [node, handle] : {std::pair{0, first}, {1, second}, {2, third}})
      EXPECT_EQ(close(node, handle), 0);
    for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, name), "abbcc") << name << node;
  }
}

TEST_F(JobFsNodes, SizeIsTheLargestCommittedEndAndAllWritesOfTheNode) {
  world_.start();
  make(0, "f", "12345");
  const int one = open(0, "f", O_RDWR);
  write(0, one, 99, "x");
  EXPECT_EQ(size(0, "f"), 100);
  EXPECT_EQ(size(1, "f"), 5);
  EXPECT_EQ(close(0, one), 0);
  EXPECT_EQ(size(1, "f"), 100);
  EXPECT_EQ(world_.calls(2).truncate("f", 3), 0);
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(size(node, "f"), 3) << node;
  const int grown = open(1, "f", O_RDWR);
  EXPECT_EQ(world_.calls(1).allocate(grown, 0, 0, 6), 0);
  EXPECT_EQ(read(0, "f"), std::string("123\0\0\0", 6));
  EXPECT_EQ(close(1, grown), 0);
}

// ---- names

TEST_F(JobFsNodes, NamesOfOneNodeAreThoseOfAll) {
  std::filesystem::create_directories(backing("old/in"));
  put(backing("old/in/f"), "on the backing");
  world_.start();
  EXPECT_EQ(world_.calls(0).make_directory("d", 0755), 0);
  make(1, "d/made", "made");
  EXPECT_EQ(read(2, "d/made"), "made");
  EXPECT_EQ(read(0, "old/in/f"), "on the backing");
  EXPECT_EQ(world_.calls(1).rename("old", "d/moved", 0), 0);
  EXPECT_EQ(read(0, "d/moved/in/f"), "on the backing");
  EXPECT_EQ(read(0, "old/in/f"), "(No such file or directory)");
  EXPECT_TRUE(std::filesystem::exists(backing("d/moved/in/f")));
  EXPECT_THAT(list(2, "d"), ElementsAre("made", "moved"));
  EXPECT_EQ(world_.calls(0).remove_directory("d"), ENOTEMPTY);
  EXPECT_EQ(world_.calls(2).unlink("d/made"), 0);
  EXPECT_EQ(read(1, "d/made"), "(No such file or directory)");
  int handle = -1;
  EXPECT_EQ(world_.calls(0).open("x", O_RDWR | O_CREAT | O_EXCL, 0644, &handle), 0);
  int second = -1;
  EXPECT_EQ(world_.calls(1).open("x", O_RDWR | O_CREAT | O_EXCL, 0644, &second), EEXIST);
  EXPECT_EQ(close(0, handle), 0);
}

TEST_F(JobFsNodes, AnOpenFileOutlivesItsNameOnAllNodes) {
  world_.start();
  make(0, "f", "AAAA");
  const int other = open(1, "f", O_RDWR);
  write(1, other, 4, "BBBB");
  EXPECT_EQ(world_.calls(2).unlink("f"), 0);
  EXPECT_EQ(read(1, other), "AAAABBBB") << "node 0, which has it no more open, has some of it";
  make(2, "f", "another");
  EXPECT_EQ(read(1, other), "AAAABBBB");
  EXPECT_EQ(close(1, other), 0);
  drain_all();
  EXPECT_EQ(content(backing("f")), "another");
}

// What all nodes agree on afterwards is what the backing has.
TEST_F(JobFsNodes, NamesThatAllNodesChangeAtOnceAreTheSameOnAllAndOnTheBacking) {
  std::filesystem::create_directories(backing("d/sub"));
  put(backing("d/a"), "of the backing");
  put(backing("d/b"), "of the backing, too");
  world_.start();
  std::vector<std::thread> threads;
  for (size_t node = 0; node < kNodes; ++node) {
    threads.emplace_back([&, node] {
      Rng rng(node + 1);
      FileSystemCalls& calls = world_.calls(node);
      const auto any = [&] { return std::string("d/") + static_cast<char>('a' + rng.below(5)); };
      for (int i = 0; i < 80; ++i) {
        int handle = -1, failed = 0;
        std::string out;
        switch (rng.below(6)) {
          case 0:
            failed = calls.open(any(), O_RDWR | O_CREAT, 0644, &handle);
            if (failed == 0) write(node, handle, 0, "node " + std::to_string(node));
            break;
          case 1:
            failed = calls.unlink(any());
            break;
          case 2:
            failed = calls.make_directory(any(), 0755);
            break;
          case 3:
            failed = calls.remove_directory(any());
            break;
          case 4:
            failed = calls.rename(any(), any(), 0);
            break;
          default:
            failed = calls.open(any(), O_RDONLY, 0, &handle);
            if (failed == 0) {
              EXPECT_EQ(calls.read(handle, 0, 100, &out), 0);
            }
        }
        if (handle >= 0) {
          EXPECT_EQ(close(node, handle), 0);
        }
        EXPECT_THAT(failed, testing::AnyOf(0, ENOENT, EEXIST, EISDIR, ENOTDIR, ENOTEMPTY, EBUSY, ESTALE))
            << std::strerror(failed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  drain_all();
  std::vector<std::string> there;
  for (const auto& each : std::filesystem::directory_iterator(backing("d")))
    there.push_back(each.path().filename());
  std::sort(there.begin(), there.end());
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(list(node, "d"), there) << node;
    for (const std::string& name : there)
      if (std::filesystem::is_regular_file(backing("d/" + name))) {
        EXPECT_EQ(read(node, "d/" + name), content(backing("d/" + name))) << node;
      }
  }
}

// ---- drains

TEST_F(JobFsNodes, AFileOfAllNodesComesToTheBackingWhole) {
  world_.start();
  std::string expected;
  int handles[kNodes];
  make(0, "f", "");
  for (size_t node = 0; node < kNodes; ++node) handles[node] = open(node, "f", O_RDWR);
  for (uint64_t i = 0; i < 60; ++i) {
    const std::string record(100, static_cast<char>('a' + i % 26));
    write(i % kNodes, handles[i % kNodes], i * 100, record);
    expected += record;
  }
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(close(node, handles[node]), 0);
  EXPECT_FALSE(std::filesystem::exists(backing("f")));
  drain_all();
  EXPECT_EQ(content(backing("f")), expected);
  EXPECT_EQ(read(1, open(1, "f", O_RDONLY), 0, 10'000), expected);
  // In place, by a node that had written none of it.
  const int again = open(2, "f", O_RDWR), elsewhere = open(0, "f", O_RDWR);
  write(2, again, 50, "in place");
  write(0, elsewhere, 5999, "longer");
  expected.replace(50, 8, "in place");
  expected.replace(5999, 1, "longer");
  EXPECT_EQ(world_.calls(0).sync(elsewhere), 0);
  EXPECT_EQ(world_.calls(2).sync(again), 0);
  EXPECT_EQ(content(backing("f")), expected);
  EXPECT_EQ(read(1, open(1, "f", O_RDONLY), 0, 10'000), expected);
  EXPECT_EQ(close(2, again), 0);
  EXPECT_EQ(close(0, elsewhere), 0);
  drain_all();
}

TEST_F(JobFsNodes, WhatWasCommittedAndNotDrainedIsThereAfterAKillOfAll) {
  put(backing("old"), "0123456789");
  world_.start();
  make(0, "new", "AAAA");
  make(1, "new", "BB", 2);
  make(2, "old", "C", 5);
  world_.restart();
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(read(node, "new"), "AABB") << node;
    EXPECT_EQ(read(node, "old"), "01234C6789") << node;
  }
  drain_all();
  EXPECT_EQ(content(backing("new")), "AABB");
  EXPECT_EQ(content(backing("old")), "01234C6789");
  world_.restart();
  make(1, "old", "DD", 0);
  world_.restart();
  drain_all();
  EXPECT_EQ(content(backing("old")), "DD234C6789");
}

TEST_F(JobFsNodes, AFileThatOthersChangeIsKept) {
  put(backing("f"), "old");
  world_.start();
  make(0, "f", "AAAA");
  make(1, "f", "B", 1);
  put(backing("f"), "theirs, longer");
  const Status drained = world_.fs(2).drain_all();
  EXPECT_TRUE(drained.ok()) << "it has none of it: " << drained.to_string();
  EXPECT_THAT(world_.fs(0).drain_all().to_string(), HasSubstr("f: others have changed it"));
  EXPECT_EQ(content(backing("f")), "theirs, longer");
  EXPECT_EQ(content(backing("f.swale-test")), "ABAA");
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(read(node, "f"), "theirs, longer") << node;
}

// Calls one after the other: what each read must be is known byte by byte.
class RandomNodes : public JobFsNodes {
 protected:
  // How many reads, or files on the backing, were wrong.
  uint64_t run(uint64_t seed, int steps) {
    constexpr size_t kFiles = 3;
    Rng rng(seed);
    std::string committed[kFiles], own[kFiles][kNodes];  // own: 0: not written since the last commit
    uint64_t wrong = 0;
    const auto over = [&](size_t file, size_t node) {
      std::string out = committed[file];
      const std::string& fresh = own[file][node];
      out.resize(std::max(out.size(), fresh.size()), '\0');
      for (size_t at = 0; at < fresh.size(); ++at)
        if (fresh[at] != '\0') out[at] = fresh[at];
      return out;
    };
    const auto flush = [&](size_t file, size_t node) {
      committed[file] = over(file, node);
      own[file][node].clear();
    };
    int handles[kFiles][kNodes];
    const auto name = [](size_t file) { return "r" + std::to_string(file); };
    const auto open_all = [&](int flags) {
      for (size_t file = 0; file < kFiles; ++file)
        for (size_t node = 0; node < kNodes; ++node) handles[file][node] = open(node, name(file), flags);
    };
    open_all(O_RDWR | O_CREAT);
    for (int step = 0; step < steps; ++step) {
      const size_t file = rng.below(kFiles), node = rng.below(kNodes);
      const uint64_t offset = rng.below(90);
      FileSystemCalls& calls = world_.calls(node);
      const uint64_t kind = rng.below(20);
      if (kind == 0) {
        EXPECT_EQ(calls.resize(handles[file][node], offset), 0);
        flush(file, node);
        committed[file].resize(offset, '\0');
      } else if (kind == 1) {  // a drain commits what its nodes have written: here, in a known order
        for (size_t each = 0; each < kNodes; ++each) {
          EXPECT_EQ(world_.calls(each).flush(handles[file][each]), 0);
          flush(file, each);
        }
        EXPECT_EQ(calls.sync(handles[file][node]), 0);
        wrong += content(backing(name(file))) != committed[file];
      } else if (kind < 6) {
        EXPECT_EQ(calls.flush(handles[file][node]), 0);
        flush(file, node);
      } else if (kind < 11) {
        const std::string bytes(1 + rng.below(30), static_cast<char>('A' + rng.below(50)));
        write(node, handles[file][node], offset, bytes);
        std::string& fresh = own[file][node];
        fresh.resize(std::max<size_t>(fresh.size(), offset + bytes.size()), '\0');
        fresh.replace(offset, bytes.size(), bytes);
      } else {
        const std::string expected = over(file, node);
        if (!fits(read(node, handles[file][node], 0, 200), expected, own[file], node)) ++wrong;
      }
      if (kind == 19 && rng.chance(1, 6)) {
        for (size_t each = 0; each < kFiles; ++each)
          for (size_t at = 0; at < kNodes; ++at) flush(each, at);  // as stop() closes nothing, in this order
        for (size_t each = 0; each < kFiles; ++each)
          for (size_t at = 0; at < kNodes; ++at) EXPECT_EQ(world_.calls(at).flush(handles[each][at]), 0);
        world_.restart();
        open_all(O_RDWR);
      }
    }
    return wrong;
  }

 private:
  // Bytes that other nodes have not committed may show.
  static bool fits(const std::string& found, const std::string& must, const std::string (&own)[kNodes],
                   size_t node) {
    bool good = found.size() == must.size();
    for (size_t i = 0; good && i < found.size(); ++i) {
      good = found[i] == must[i];
      for (size_t other = 0; other < kNodes; ++other)
        if (other != node && i < own[other].size() && found[i] != '\0')
          good = good || own[other][i] == found[i];
    }
    return good;
  }
};

TEST_F(RandomNodes, ShowWhatTheyMustOverDrainsAndRestarts) {
  world_.start();
  EXPECT_EQ(run(1, 1200), 0u);
  drain_all();
}

TEST_F(RandomNodes, CanaryACloseThatDoesNotCommit) {
  world_.commits = false;
  world_.start();
  EXPECT_GT(run(2, 300), 0u);
}

TEST_F(RandomNodes, CanaryADrainWithoutOwner) {
  world_.share_rules.owner_leads = false;
  world_.start();
  EXPECT_GT(run(3, 600), 0u);
}

TEST_F(JobFsNodes, ASyncOfTheTreeBringsWhatAllNodesHave) {
  world_.start();
  make(0, "a", "of node 0");
  make(1, "b", "of node 1");
  JobFs& fs = world_.fs(2);
  EXPECT_EQ(fs.set_attribute(*fs.root(), kJobCommandAttribute, "sync", 0, Caller{}), 0);
  EXPECT_EQ(content(backing("a")), "of node 0");
  EXPECT_EQ(content(backing("b")), "of node 1");
}

// ---- a node that was away

// What it does to the backing when it wakes, whose job has it no more.
class WokenNode : public JobFsNodes {
 protected:
  void wake() {
    put(backing("old"), "old");
    put(backing("other"), "other");
    world_.start();
    make(0, "new", "new bytes");
    make(0, "old", "NEW", 1);
    lost_ = true;
    failed_ = {world_.calls(0).unlink("other"), world_.calls(0).rename("old", "renamed", 0)};
    drained_ = world_.fs(0).drain_all();
  }
  std::atomic<bool> lost_ = false;
  std::vector<int> failed_;
  Status drained_;
};

TEST_F(WokenNode, ChangesNothingOfTheBackingThatIsNotItsAnyMore) {
  world_.expect_own = [this](size_t node) {
    return lost_ ? errno_status(EIO, fmt::format("node {} has lost it", node)) : Status();
  };
  wake();
  EXPECT_THAT(failed_, ElementsAre(EIO, EIO));
  EXPECT_FALSE(drained_.ok());
  EXPECT_EQ(content(backing("old")), "old");
  EXPECT_EQ(content(backing("other")), "other");
  EXPECT_EQ(content(backing("new")), "(missing)");
  EXPECT_EQ(content(backing("renamed")), "(missing)");
}

TEST_F(WokenNode, CanaryANodeThatDoesNotAsk) {
  wake();
  EXPECT_THAT(failed_, ElementsAre(0, 0));
  EXPECT_TRUE(drained_.ok()) << drained_.to_string();
  EXPECT_EQ(content(backing("other")), "(missing)");
  EXPECT_EQ(content(backing("new")), "new bytes");
}

}  // namespace
}  // namespace swale::fs::job_fs_nodes_test
