// JobFs without memory, of one node and of two: whatever allocation of a program's request fails, the request
// is answered with ENOMEM and may be repeated; what was answered with success is there, what was removed is
// gone, and no open file is left behind.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_alloc_test {
namespace {

using test::Allocations;

std::string pattern(char first, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i % 23);
  return text;
}

// Code of the names' client, which waits for an answer that got lost for want of memory until its deadline,
// and of the network, where a rank that has none is dead: tests/faults has tests of theirs. By the symbols of
// this program.
class Spared {
 public:
  static void find() {
    Dl_info self = {};
    ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&Spared::find), &self), 0);
    const auto base = reinterpret_cast<uintptr_t>(self.dli_fbase);
    FILE* const symbols = ::popen("nm -S --defined-only /proc/$PPID/exe", "r");
    ASSERT_NE(symbols, nullptr);
    char line[4096];
    while (std::fgets(line, sizeof line, symbols) != nullptr) {
      uint64_t begin = 0, bytes = 0;
      const bool spared =
          std::strstr(line, "NamesClient") != nullptr || std::strstr(line, "5swale3net") != nullptr;
      if (spared && std::sscanf(line, "%lx %lx", &begin, &bytes) == 2)
        ranges_.emplace_back(base + begin, base + begin + bytes);
    }
    ::pclose(symbols);
    ASSERT_GT(ranges_.size(), 20u) << "nm has not told where the names' client is";
  }
  static bool calls() {
    void* frames[64];
    const int count = ::backtrace(frames, 64);
    for (int i = 0; i < count; ++i)
      for (const auto& [begin, end] : ranges_)
        if (const auto at = reinterpret_cast<uintptr_t>(frames[i]); at >= begin && at < end) return true;
    return false;
  }

 private:
  inline static std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;
};

// A program that makes each call again after ENOMEM: one allocation fails. Its own memory never ends.
class Program {
 public:
  explicit Program(FileSystem& fs) : fs_(fs) {}

  struct Open {
    Node* node = nullptr;
    std::unique_ptr<OpenFile> file;
  };

  // What the call answers, once it is no ENOMEM.
  template <class Body>
  int call(const char* what, const Body& body) {
    for (int tries = 0; tries < 2; ++tries) {
      int failed = 0;
      const Status contained = contain([&] {
        const Allocations::Library library;
        failed = body();
      });
      if (!contained.ok()) failed = contained.posix_error();
      if (failed != ENOMEM) return failed;
      ++refused_[what];
    }
    ADD_FAILURE() << what << ": ENOMEM again, and one allocation has failed";
    return ENOMEM;
  }
  template <class Body>
  void must(const char* what, const Body& body, int also = 0) {
    const int failed = call(what, body);
    EXPECT_TRUE(failed == 0 || failed == also) << what << ": " << std::strerror(failed);
  }

  Node* directory(Node& parent, const std::string& name) {
    Entry entry;
    int failed =
        call("mkdir", [&] { return fs_.make_directory(parent, name.c_str(), 0755, caller_, &entry); });
    if (failed == EEXIST) failed = call("lookup", [&] { return fs_.lookup(parent, name.c_str(), &entry); });
    EXPECT_EQ(failed, 0) << "mkdir " << name;
    return failed == 0 ? entry.node : nullptr;
  }
  // The first try may have made it.
  Open create(Node& parent, const char* name) {
    Open made;
    Entry entry;
    must("create",
         [&] { return fs_.create(parent, name, 0644, O_RDWR | O_CREAT, caller_, &entry, &made.file); });
    made.node = entry.node;
    return made;
  }
  void write(Open& to, uint64_t offset, const std::string& bytes) {
    must("write", [&] {
      return fs_.write(*to.file, offset, bytes.size(), caller_,
                       [&, at = size_t{0}](MutableBytes out) mutable -> Status {
                         std::memcpy(out.data(), bytes.data() + at, out.size());
                         at += out.size();
                         return {};
                       });
    });
  }
  std::string read(Open& from, uint64_t offset = 0, size_t bytes = 200'000) {
    std::string out(bytes, '\0');
    size_t got = 0;
    must("read", [&] { return fs_.read(*from.file, offset, out, &got); });
    out.resize(got);
    return out;
  }
  void close(Open& open) {
    must("flush", [&] { return fs_.flush(*open.file); });
    const Status released = contain([&] {
      const Allocations::Library library;
      fs_.release(std::move(open.file));
    });
    EXPECT_TRUE(released.ok()) << "nobody repeats it: " << released.to_string();
    fs_.forget(open.node, 1);
  }
  void change(Node& node, const Change& change) {
    struct stat now;
    must("change", [&] { return fs_.change(node, change, caller_, &now); });
  }
  void rename(Node& parent, const char* from, const char* to) {
    must(
        "rename", [&] { return fs_.rename(parent, from, parent, to, 0, caller_); }, ENOENT);
  }
  void unlink(Node& parent, const char* name) {
    must(
        "unlink", [&] { return fs_.unlink(parent, name, caller_); }, ENOENT);
  }
  std::string names(Node& node) {
    std::set<std::string> names;
    must("list", [&] {
      names.clear();
      std::unique_ptr<OpenDirectory> directory;
      if (const int failed = fs_.open_directory(node, caller_, &directory); failed != 0) return failed;
      return fs_.read_directory(*directory, 0, [&](const DirectoryEntry& found) {
        const std::string name(found.name);
        if (name != "." && name != "..") names.insert(name);
        return true;
      });
    });
    std::string all;
    for (const std::string& name : names) all += name + " ";
    return all;
  }
  bool has(Node& parent, const char* name) {
    Entry entry;
    const int failed = call("lookup", [&] { return fs_.lookup(parent, name, &entry); });
    EXPECT_TRUE(failed == 0 || failed == ENOENT) << name << ": " << std::strerror(failed);
    if (failed == 0) fs_.forget(entry.node, 1);
    return failed == 0;
  }
  std::string whole(Node& parent, const char* name) {
    Open opened;
    Entry entry;
    must("lookup", [&] { return fs_.lookup(parent, name, &entry); });
    opened.node = entry.node;
    if (opened.node == nullptr) return "(no file)";
    must("open", [&] { return fs_.open_file(*opened.node, O_RDONLY, caller_, &opened.file); });
    if (!opened.file) return "(not open)";
    std::string bytes = read(opened);
    close(opened);
    return bytes;
  }

  FileSystem& fs() { return fs_; }
  const std::map<std::string, int>& refused() const { return refused_; }

 private:
  FileSystem& fs_;
  const Caller caller_ = Caller::this_thread();
  std::map<std::string, int> refused_;
};

// What a program does with files of its own in a new directory. Returns what "kept" has in the end.
std::string run(Program& program, const std::string& folder) {
  Node* const directory = program.directory(*program.fs().root(), folder);
  if (directory == nullptr) return "";
  Program::Open file = program.create(*directory, "made");
  if (!file.file) return "";
  std::string expected = pattern('a', 70'000);
  program.write(file, 0, expected.substr(0, 40'000));
  program.write(file, 40'000, expected.substr(40'000));
  EXPECT_EQ(program.read(file), expected);
  program.change(*file.node, {.mode = 0600});
  program.change(*file.node, {.modified = timespec{1'700'000'000, 0}});
  program.change(*file.node, {.size = 60'000, .size_by_handle = true});
  expected.resize(60'000);
  program.must("fsync", [&] { return program.fs().sync(*file.file); });  // it comes to the backing
  program.write(file, 30'000, pattern('B', 40'000));
  expected.resize(70'000);
  expected.replace(30'000, 40'000, pattern('B', 40'000));
  program.must("fsync", [&] { return program.fs().sync(*file.file); });  // and is changed there
  EXPECT_EQ(program.read(file), expected);
  program.rename(*directory, "made", "kept");

  Program::Open gone = program.create(*directory, "gone");
  program.write(gone, 0, "bytes of a file without a name");
  program.unlink(*directory, "gone");
  EXPECT_EQ(program.read(gone), "bytes of a file without a name");
  program.close(gone);

  Program::Open next = program.create(*directory, "next");
  program.write(next, 0, "takes the place of another one");
  program.close(next);
  program.close(file);
  EXPECT_EQ(program.names(*directory), "kept next ");
  program.rename(*directory, "next", "kept");
  program.fs().forget(directory, 1);
  return "takes the place of another one";
}

void expect_there(FileSystem& fs, const std::string& folder, const std::string& expected) {
  Program program(fs);
  Entry entry;
  ASSERT_EQ(fs.lookup(*fs.root(), folder.c_str(), &entry), 0) << folder;
  EXPECT_EQ(program.whole(*entry.node, "kept"), expected) << folder;
  EXPECT_EQ(program.names(*entry.node), "kept ") << folder;
  fs.forget(entry.node, 1);
}

// Runs the program with its n-th allocation failing, for each n, each time in a folder of its own. `drain`
// brings all to the backing, and says how many bytes are in logs then.
struct Rounds {
  std::map<std::string, std::string> files;  // of each folder
  std::map<std::string, int> refused;        // of each kind of call
  int points = 0;

  // `others`: see the same tree.
  template <class Drain>
  void run_each(FileSystem& fs, const Drain& drain, const std::vector<FileSystem*>& others = {}) {
    Allocations::spare_this_thread();
    Allocations::spare_library_threads();
    Spared::find();
    Allocations::spare_if(&Spared::calls);
    const int64_t before = Allocations::refused();
    for (bool hit = true; hit && !testing::Test::HasFailure(); ++points) {
      const std::string folder = fmt::format("n{}", points + 1);
      SCOPED_TRACE(folder);
      Program program(fs);
      Allocations::fail(points + 1, 1);
      const std::string expected = run(program, folder);
      hit = Allocations::hit();
      Allocations::stop();
      for (const auto& [what, count] : program.refused()) refused[what] += count;
      expect_there(fs, folder, expected);
      for (FileSystem* const other : others) expect_there(*other, folder, expected);
      files[folder] = expected;
      EXPECT_EQ(drain(), 0u) << "bytes of a file that was removed are left";
    }
    const int64_t failed = Allocations::refused() - before;
    std::printf("%d allocations, %ld failed; ENOMEM was the answer of:", --points, static_cast<long>(failed));
    EXPECT_GT(failed, 100);
    for (const auto& [what, count] : refused) std::printf(" %s %d,", what.c_str(), count);
    std::printf("\n");
    for (const char* const what : {"create", "read", "fsync", "rename"})
      EXPECT_GT(refused[what], 0) << "no allocation of it was among them";
    // Of several nodes it has few, and threads beside it may have had those that failed.
    EXPECT_TRUE(refused["list"] > 0 || !others.empty()) << "no allocation of it was among them";
  }
  void expect_all(FileSystem& fs, const std::string& backing) {
    for (const auto& [folder, expected] : files) {
      expect_there(fs, folder, expected);
      std::ifstream in(backing + "/" + folder + "/kept", std::ios::binary);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), expected) << folder;
    }
  }
};

TEST(JobAlloc, EachAllocationOfARequestMayFail) {
  JobWorld world;
  world.start();
  Rounds rounds;
  rounds.run_each(world.fs(), [&] {
    EXPECT_TRUE(world.fs().drain_all().ok());
    return world.fs().stats().undrained_bytes;
  });
  world.restart();
  rounds.expect_all(world.fs(), world.backing());
}

// The node's own allocations fail, those of the other one do not. Each is the root of some of the files.
TEST(JobAlloc, EachAllocationOfARequestMayFailOfTwoNodes) {
  NodesWorld world(2);
  world.start();
  Rounds rounds;
  int round = 0;
  const auto drain = [&] {
    if (++round % 8 != 0) return 0u;
    const Status drained = world.fs(0).drain_everywhere();
    EXPECT_TRUE(drained.ok()) << drained.to_string();
    return 0u;
  };
  rounds.run_each(world.fs(0), drain, {&world.fs(1)});
  EXPECT_TRUE(world.fs(0).drain_everywhere().ok());
  // Bytes of a file without a name go when the names have heard of its last release.
  const auto left = [&] { return world.fs(0).stats().undrained_bytes + world.fs(1).stats().undrained_bytes; };
  for (int i = 0; i < 6'000 && left() != 0; ++i) ::usleep(10'000);
  EXPECT_EQ(left(), 0u) << "bytes of files that were removed are left";
  world.restart();
  for (const size_t node : {0u, 1u}) rounds.expect_all(world.fs(node), world.backing());
}

TEST(JobAlloc, CanaryADrainWhoseEndItsRootDoesNotHearStopsTheNextFsync) {
  NodesWorld world(2);
  world.drain_rules.end = false;
  world.start();
  Allocations::spare_this_thread();
  Allocations::spare_library_threads();
  Spared::find();
  Allocations::spare_if(&Spared::calls);
  constexpr int kPointsMax = 400;  // a file of the other node's has fewer
  bool stopped = false;
  int points = 0;
  while (!stopped && points < kPointsMax) {
    Program program(world.fs(0));
    Program::Open file = program.create(*world.fs(0).root(), fmt::format("f{}", ++points).c_str());
    ASSERT_TRUE(file.file);
    program.write(file, 0, "bytes");
    Allocations::fail(points, 1);
    stopped = program.call("fsync", [&] { return world.fs(0).sync(*file.file); }) == EBUSY;
    Allocations::stop();
    program.close(file);
  }
  std::printf("found at allocation %d of an fsync\n", points);
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace swale::fs::job_alloc_test
