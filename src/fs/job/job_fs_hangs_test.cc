// A backing that hangs in any call that an operation on names or attributes, or an open, makes there:
// programs of the node go on with other files. When it answers, the operation has happened, once, in the tree
// and on the backing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "fs/job/testing/hanging_calls.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_hangs_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);     // reached by what hangs only
constexpr auto kCanary = std::chrono::milliseconds(500);  // of what must not be over
constexpr const char* kFresh = "made in the job";
constexpr const char* kKept = "user.kept";  // an attribute
constexpr int64_t kTime = 1'500'000'000;

struct Operation {
  const char* name;
  // In a folder of the backing with "a", "b", "d/c", "empty/" and a link "l".
  std::function<int(FileCalls&, const std::string& in)> make;
  // What the folder then has: "NAME=BYTES ", in order, "+" for the attribute, "!" for a mode to execute, "~"
  // for kTime; directories end with a slash.
  const char* left;
};

int write_to(FileCalls& on, const std::string& path, int flags) {
  int handle = -1;
  if (const int failed = on.open(path, flags, 0644, &handle); failed != 0) return failed;
  const int failed = on.write(handle, 0, "AAA");
  const int closed = on.close(handle);
  return failed != 0 ? failed : closed;
}

int read_from(FileCalls& on, const std::string& path) {
  int handle = -1;
  std::string out;
  if (const int failed = on.open(path, O_RDONLY, 0, &handle); failed != 0) return failed;
  const int failed = on.read(handle, 0, 100, &out);
  const int closed = on.close(handle);
  return failed != 0 || out != "bytes of a" ? EIO : closed;
}

// The last close of those that may write it seals it.
int seal_by_close(FileCalls& on, const std::string& path) {
  int handle = -1;
  if (const int failed = on.set_mode(path, 0644); failed != 0) return failed;
  if (const int failed = on.open(path, O_RDWR, 0, &handle); failed != 0) return failed;
  const int failed = on.set_mode(path, 0444);
  const int closed = on.close(handle);
  return failed != 0 ? failed : closed;
}

// Looks for holes, and makes one.
int punch(FileCalls& on, const std::string& path) {
  int handle = -1;
  uint64_t hole = 0;
  if (const int failed = on.open(path, O_WRONLY, 0, &handle); failed != 0) return failed;
  int failed = on.seek(handle, 0, SEEK_HOLE, &hole);
  if (failed == 0 && hole != 10) failed = ERANGE;
  if (failed == 0) failed = on.allocate(handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 2);
  const int closed = on.close(handle);
  return failed != 0 ? failed : closed;
}

constexpr const char* kAsBefore = "a=bytes of a b=bytes of b d/c=bytes of c+ empty/ l@a ";

constexpr const char* kPunched = "a=by..s of a b=bytes of b d/c=bytes of c+ empty/ l@a ";

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"open to read", [](FileCalls& on, const std::string& in) { return read_from(on, in + "a"); },
       kAsBefore},
      {"open to write", [](FileCalls& on, const std::string& in) { return write_to(on, in + "a", O_RDWR); },
       "a=AAAes of a b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"open to write anew",
       [](FileCalls& on, const std::string& in) { return write_to(on, in + "a", O_WRONLY | O_TRUNC); },
       "a=AAA b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"create",
       [](FileCalls& on, const std::string& in) { return write_to(on, in + "e", O_RDWR | O_CREAT | O_EXCL); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ e=AAA empty/ l@a "},
      {"truncate", [](FileCalls& on, const std::string& in) { return on.truncate(in + "a", 5); },
       "a=bytes b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"unlink", [](FileCalls& on, const std::string& in) { return on.unlink(in + "a"); },
       "b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"unlink of a link", [](FileCalls& on, const std::string& in) { return on.unlink(in + "l"); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ empty/ "},
      {"mkdir", [](FileCalls& on, const std::string& in) { return on.make_directory(in + "e", 0755); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ e/ empty/ l@a "},
      {"symlink", [](FileCalls& on, const std::string& in) { return on.make_symlink("b", in + "e"); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ e@b empty/ l@a "},
      {"rmdir", [](FileCalls& on, const std::string& in) { return on.remove_directory(in + "empty"); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ l@a "},
      {"rename", [](FileCalls& on, const std::string& in) { return on.rename(in + "a", in + "d/e", 0); },
       "b=bytes of b d/c=bytes of c+ d/e=bytes of a empty/ l@a "},
      {"rename over another",
       [](FileCalls& on, const std::string& in) { return on.rename(in + "a", in + "b", 0); },
       "b=bytes of a d/c=bytes of c+ empty/ l@a "},
      {"rename of a directory over another",
       [](FileCalls& on, const std::string& in) { return on.rename(in + "d", in + "empty", 0); },
       "a=bytes of a b=bytes of b empty/c=bytes of c+ l@a "},
      {"exchange",
       [](FileCalls& on, const std::string& in) { return on.rename(in + "a", in + "d/c", RENAME_EXCHANGE); },
       "a=bytes of c+ b=bytes of b d/c=bytes of a empty/ l@a "},
      {"chmod", [](FileCalls& on, const std::string& in) { return on.set_mode(in + "a", 0744); },
       "a=bytes of a! b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"a close that seals", [](FileCalls& on, const std::string& in) { return seal_by_close(on, in + "a"); },
       kAsBefore},
      {"punch", [](FileCalls& on, const std::string& in) { return punch(on, in + "a"); }, kPunched},
      {"utimens", [](FileCalls& on, const std::string& in) { return on.set_time(in + "a", kTime); },
       "a=bytes of a~ b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"utimens of a directory",
       [](FileCalls& on, const std::string& in) { return on.set_time(in + "empty", kTime); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ empty/~ l@a "},
      {"utimens of a link", [](FileCalls& on, const std::string& in) { return on.set_time(in + "l", kTime); },
       "a=bytes of a b=bytes of b d/c=bytes of c+ empty/ l@a~ "},
      {"setxattr", [](FileCalls& on, const std::string& in) { return on.set_attribute(in + "a", kKept, ""); },
       "a=bytes of a+ b=bytes of b d/c=bytes of c+ empty/ l@a "},
      {"removexattr",
       [](FileCalls& on, const std::string& in) {
         const int failed = on.remove_attribute(in + "d/c", kKept);
         return failed == ENODATA ? 0 : failed;
       },
       "a=bytes of a b=bytes of b d/c=bytes of c empty/ l@a "},
      {"stat",
       [](FileCalls& on, const std::string& in) {
         struct stat found;
         return on.look(in + "d/c", &found);
       },
       kAsBefore},
      {"list",
       [](FileCalls& on, const std::string& in) {
         std::vector<std::string> names;
         return on.list(in.substr(0, in.size() - 1), &names);
       },
       kAsBefore},
  };
  return all;
}

void make_folder(const std::string& path) {
  make_small_tree(path);
  ASSERT_EQ(::setxattr((path + "/d/c").c_str(), kKept, "", 0, 0), 0);
}

void add_folder(FileCalls& on, const std::string& path, const std::string& shown, std::string* text) {
  std::vector<std::string> names;
  EXPECT_EQ(on.list(path, &names), 0) << path;
  std::sort(names.begin(), names.end());
  struct stat own = {};
  EXPECT_EQ(on.look(path, &own), 0) << path;
  const auto time = [](const struct stat& found) { return found.st_mtim.tv_sec == kTime ? "~" : ""; };
  if (names.empty()) *text += shown + time(own) + " ";
  for (const std::string& name : names) {
    const std::string below = path + "/" + name;
    struct stat found = {};
    std::string bytes;
    int handle = -1;
    EXPECT_EQ(on.look(below, &found), 0) << below;
    if (S_ISDIR(found.st_mode)) {
      add_folder(on, below, shown + name + "/", text);
    } else if (S_ISLNK(found.st_mode)) {
      EXPECT_EQ(on.read_symlink(below, &bytes), 0) << below;
      *text += shown + name + "@" + bytes + time(found) + " ";
    } else {
      EXPECT_EQ(on.open(below, O_RDONLY, 0, &handle), 0) << below;
      EXPECT_EQ(on.read(handle, 0, 100, &bytes), 0) << below;
      EXPECT_EQ(on.close(handle), 0) << below;
      std::replace(bytes.begin(), bytes.end(), '\0', '.');
      std::string kept;
      *text += shown + name + "=" + bytes + (on.get_attribute(below, kKept, &kept) == 0 ? "+" : "") +
               ((found.st_mode & S_IXUSR) != 0 ? "!" : "") + time(found) + " ";
    }
  }
}
std::string folder(FileCalls& on, const std::string& path) {
  std::string text;
  add_folder(on, path, "", &text);
  return text;
}

// What a program does meanwhile with files of its own.
struct Meanwhile {
  FileSystemCalls& on;
  bool opens;        // of files that others may change, too, an open needs the turn
  int logged = -1;   // one that is open
  size_t count = 0;  // of its rounds

  void begin() { ASSERT_EQ(on.open("logged", O_RDWR | O_CREAT, 0644, &logged), 0); }
  void work() {
    const std::string bytes = fmt::format("{:08}", ++count);
    EXPECT_EQ(on.write(logged, 8 * count, bytes), 0);
    std::string out;
    EXPECT_EQ(on.read(logged, 8 * count, 8, &out), 0);
    EXPECT_EQ(out, bytes);
    struct stat found;
    EXPECT_EQ(on.state(logged, &found), 0);
    if (!opens) return;
    const std::string own = fmt::format("own{}", count % 10), made = fmt::format("made{}", count);
    int handle = -1;
    for (const int flags : {O_RDONLY, O_RDWR}) {
      EXPECT_EQ(on.open(own, flags, 0, &handle), 0);
      EXPECT_EQ(on.read(handle, 0, 100, &out), 0);
      EXPECT_EQ(out, "on the backing");
      EXPECT_EQ(on.close(handle), 0);
    }
    EXPECT_EQ(on.open(made, O_RDWR | O_CREAT | O_EXCL, 0644, &handle), 0);
    EXPECT_EQ(on.write(handle, 0, kFresh), 0);
    EXPECT_EQ(on.close(handle), 0);
  }
};

// Runs it while another thread makes `body`, whose n-th call hangs. False: it had fewer. `stops`: the program
// must not go on.
bool hang(const std::string& backing, size_t nth, Meanwhile& program, const std::function<void()>& body,
          std::map<std::string, int>* kinds, bool stops = false) {
  HangingCalls calls(backing, nth, body);
  const bool hung = calls.hangs();
  const std::string where = calls.where();
  std::mutex mutex;
  std::condition_variable changed;
  bool worked = false;
  std::thread worker([&] {
    program.work();
    const std::lock_guard lock(mutex);
    worked = true;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    if (stops && hung)
      stops = !changed.wait_for(lock, kCanary, [&] { return worked; });
    else
      EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return worked; })) << where << " stops the others";
  }
  calls.let_go();
  worker.join();
  if (hung && kinds != nullptr) ++(*kinds)[where.substr(0, where.find(' '))];
  return hung && (kinds != nullptr || stops);
}

void hang_each_call(JobFs& fs, const std::string& backing, bool one_node,
                    const std::function<void()>& drain) {
  FileSystemCalls own(fs), others(fs);
  for (int i = 0; i < 10; ++i) std::ofstream(backing + fmt::format("/own{}", i)) << "on the backing";
  Meanwhile program{own, one_node};
  program.begin();
  size_t points = 0;
  std::map<std::string, int> kinds;
  std::map<std::string, const char*> folders;  // what each has
  for (const Operation& operation : operations()) {
    bool hung = true;
    for (size_t nth = 1; hung && !testing::Test::HasFailure(); ++nth) {
      const std::string in = fmt::format("n{}", folders.size());
      SCOPED_TRACE(fmt::format("{}, call {}, {}", operation.name, nth, in));
      make_folder(backing + "/" + in);
      hung = hang(
          backing, nth, program, [&] { EXPECT_EQ(operation.make(others, in + "/"), 0); }, &kinds);
      EXPECT_EQ(folder(own, in), operation.left);
      folders[in] = operation.left;
      points += hung ? 1 : 0;
    }
  }
  EXPECT_EQ(own.close(program.logged), 0);
  drain();
  PlainCalls plain(backing);
  for (const auto& [in, left] : folders) EXPECT_EQ(folder(plain, in), left) << in;
  std::printf("%zu calls of %zu operations hung:", points, operations().size());
  for (const auto& [kind, count] : kinds) std::printf(" %s %d,", kind.c_str(), count);
  std::printf("\n");
  for (const char* const kind : {"openat2", "fstatat", "renameat2", "unlinkat", "mkdirat", "symlinkat",
                                 "chmod", "utimensat", "setxattr", "removexattr"})
    EXPECT_GT(kinds[kind], 0) << kind;
  EXPECT_TRUE(kinds["lseek"] > 0 || !one_node);
}

TEST(JobFsHangs, ABackingThatHangsStopsWhoNeedsItAlone) {
  JobWorld world;
  world.start();
  hang_each_call(world.fs(), world.backing(), true, [&] { EXPECT_TRUE(world.fs().drain_all().ok()); });
}

// Of two nodes: the reads and writes of files that are open.
TEST(JobFsHangs, ABackingThatHangsStopsNoReadsAndWritesOfItsNode) {
  NodesWorld world(2);
  world.start();
  hang_each_call(world.fs(0), world.backing(), false,
                 [&] { EXPECT_TRUE(world.fs(0).drain_everywhere().ok()); });
}

// A call that fails: the operation has happened or not, says which, and may be made again. The tree and the
// backing are the same afterwards, and what the next server finds.
struct Failing {
  std::function<JobFs&()> fs;
  std::string backing;
  std::function<void()> drain, restart;

  size_t points = 0;
  std::map<std::string, int> answers = {};
  std::map<std::string, std::string> folders = {};

  void fail_each_call();
  // False: the operation makes fewer calls.
  bool fail(const Operation& operation, size_t nth, FileSystemCalls& own);
};

bool Failing::fail(const Operation& operation, size_t nth, FileSystemCalls& own) {
  const std::string in = fmt::format("n{}", folders.size());
  const int error = points % 2 == 0 ? EDQUOT : EIO;
  make_folder(backing + "/" + in);
  FileSystemCalls others(fs());
  int answer = 0;
  HangingCalls calls(
      backing, nth, [&] { answer = operation.make(others, in + "/"); }, error);
  const bool failed_call = calls.hangs();
  calls.let_go();
  SCOPED_TRACE(fmt::format("{}: {} of {}: {}; answer: {}", in, operation.name, calls.where(),
                           std::strerror(error), std::strerror(answer)));
  points += failed_call ? 1 : 0;
  ++answers[std::strerror(answer)];
  EXPECT_TRUE(answer == 0 || (failed_call && (answer == EIO || answer == EDQUOT)));
  std::string& now = folders[in];
  now = folder(own, in);
  EXPECT_TRUE(now == operation.left || (answer != 0 && now == kAsBefore)) << now;
  if (answer != 0 && now != operation.left) {
    EXPECT_EQ(operation.make(own, in + "/"), 0) << "again";
    now = folder(own, in);
    EXPECT_EQ(now, operation.left);
  }
  return failed_call;
}

void Failing::fail_each_call() {
  {
    FileSystemCalls own(fs());
    for (const Operation& operation : operations())
      for (size_t nth = 1; !testing::Test::HasFailure() && fail(operation, nth, own);) ++nth;
  }
  drain();
  EXPECT_EQ(fs().stats().kept_aside, 0u);
  PlainCalls plain(backing);
  for (const auto& [in, now] : folders) EXPECT_EQ(folder(plain, in), now) << in;
  restart();
  FileSystemCalls next(fs());
  for (const auto& [in, now] : folders) EXPECT_EQ(folder(next, in), now) << in << ", the next server";
  std::printf("%zu calls failed; answers:", points);
  for (const auto& [answer, count] : answers) std::printf(" %s %d,", answer.c_str(), count);
  std::printf("\n");
  EXPECT_GT(points, 100u);
  EXPECT_GT(answers[std::strerror(EDQUOT)], 10);
}

TEST(JobFsHangs, ABackingThatFailsFailsTheOperationAloneWhichMayBeMadeAgain) {
  JobWorld world;
  world.start();
  Failing failing{[&]() -> JobFs& { return world.fs(); }, world.backing(),
                  [&] { EXPECT_TRUE(world.fs().drain_all().ok()); }, [&] { world.restart(); }};
  failing.fail_each_call();
}

TEST(JobFsHangs, SoDoesThatOfTwoNodes) {
  NodesWorld world(2);
  world.start();
  Failing failing{[&]() -> JobFs& { return world.fs(0); }, world.backing(),
                  [&] { EXPECT_TRUE(world.fs(0).drain_everywhere().ok()); }, [&] { world.restart(); }};
  failing.fail_each_call();
}

// Who needs what hangs waits: the same file, whose name is changed.
TEST(JobFsHangs, AnOpenOfAFileThatIsRenamedWaitsForItsName) {
  JobWorld world;
  make_folder(world.backing() + "/n");
  world.start();
  FileSystemCalls others(world.fs());
  struct stat found;
  ASSERT_EQ(world.calls().look("n/a", &found), 0);  // all of it is known
  ASSERT_EQ(world.calls().look("n/b", &found), 0);
  size_t renames = 0;
  bool hung = true;
  for (size_t nth = 1; hung; ++nth) {
    HangingCalls calls(world.backing(), nth,
                       [&] { EXPECT_EQ(others.rename("n/a", "n/b", RENAME_EXCHANGE), 0); });
    hung = calls.hangs();
    const bool renames_now = calls.where().starts_with("renameat2");
    std::string out;
    std::thread opener([&] {
      int handle = -1;
      EXPECT_EQ(world.calls().open("n/a", O_RDWR, 0, &handle), 0);
      EXPECT_EQ(world.calls().read(handle, 0, 100, &out), 0);
      EXPECT_EQ(world.calls().write(handle, 0, out), 0);
      EXPECT_EQ(world.calls().close(handle), 0);
    });
    if (renames_now) std::this_thread::sleep_for(kCanary / 5);
    calls.let_go();
    opener.join();
    renames += renames_now;
    EXPECT_TRUE(out == "bytes of a" || out == "bytes of b") << out;
  }
  EXPECT_GT(renames, 0u);
  ASSERT_TRUE(world.fs().drain_all().ok());
  EXPECT_EQ(world.fs().stats().kept_aside, 0u);
  PlainCalls plain(world.backing());
  EXPECT_EQ(folder(plain, "n"), folder(world.calls(), "n"));
}

// What holds the mutex of the tree is noticed.
TEST(JobFsHangs, CanaryAChangeOfModesThatHoldsTheMutexStopsOthers) {
  JobWorld world;
  world.options().changes_apart = false;
  make_folder(world.backing() + "/n");
  world.start();
  FileSystemCalls others(world.fs());
  Meanwhile program{world.calls(), false};
  program.begin();
  struct stat found;
  ASSERT_EQ(world.calls().look("n/a", &found), 0);
  bool stopped = false;
  for (size_t nth = 1; !stopped && nth < 20; ++nth)
    stopped = hang(
        world.backing(), nth, program, [&] { EXPECT_EQ(others.set_mode("n/a", 0700), 0); }, nullptr, true);
  EXPECT_TRUE(stopped);
  EXPECT_EQ(world.calls().close(program.logged), 0);
}

}  // namespace
}  // namespace swale::fs::job_fs_hangs_test
