// Files that programs make past the kernel: which creates pass, and what a program may send.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/rng.h"
#include "fs/job/job_files.h"
#include "fs/job/job_marks.h"
#include "fs/job/light_server.h"
#include "fs/job/testing/job_world.h"
#include "fs/log/light_format.h"
#include "io/descriptor.h"
#include "io/unix_address.h"

namespace swale::fs::light_test {
namespace {

constexpr int kEndTriesMax = 6'000;  // looks, 10 ms apart

// One that modes bind, whoever runs the test.
Credentials bound() { return {::geteuid(), ::getegid(), ::getpid(), {}, false}; }

class LightTest : public testing::Test {
 protected:
  void start() {
    world_.start();
    folder_ = std::filesystem::path(world_.options().logs.memory_directory).parent_path();
    auto server = LightServer::open(fs(), folder_, "/the/top");
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
  }
  void TearDown() override { server_.reset(); }
  JobFs& fs() { return world_.fs(); }
  const Caller caller_ = Caller::this_thread();

  // A directory of the tree, which the kernel knows for as long as the test runs; and the plain one.
  void make_directory(const std::string& name, mode_t mode) {
    Entry entry;
    ASSERT_EQ(fs().make_directory(*fs().root(), name.c_str(), 0755, caller_, &entry), 0);
    struct stat found;
    ASSERT_EQ(fs().change(*entry.node, {.mode = mode}, caller_, &found), 0);
    fs().forget(entry.node, 1);
    const std::string plain = world_.plain() + "/" + name;
    ASSERT_EQ(::mkdir(plain.c_str(), 0755), 0);
    ASSERT_EQ(::chmod(plain.c_str(), mode), 0);
  }
  void make_file(const std::string& name) {
    Entry entry;
    std::unique_ptr<OpenFile> file;
    ASSERT_EQ(fs().create(*fs().root(), name.c_str(), 0644, O_WRONLY | O_CREAT, caller_, &entry, &file), 0);
    fs().release(std::move(file));
    fs().forget(entry.node, 1);
    const io::Descriptor plain(::open((world_.plain() + "/" + name).c_str(), O_WRONLY | O_CREAT, 0644));
    ASSERT_TRUE(plain.valid());
  }
  void make_link(const std::string& name, const std::string& target) {
    Entry entry;
    ASSERT_EQ(fs().make_symlink(*fs().root(), name.c_str(), target.c_str(), caller_, &entry), 0);
    fs().forget(entry.node, 1);
    ASSERT_EQ(::symlink(target.c_str(), (world_.plain() + "/" + name).c_str()), 0);
  }
  // 0: it was made, and is closed.
  int create(const std::string& path, const Credentials& who, uint64_t directory = 1) {
    JobFs::LightCreate wanted{directory, path, O_WRONLY, 0644, 022, &who};
    fs().serve_light({}, {&wanted, 1});
    if (wanted.failed == 0) fs().serve_light({&wanted.made, 1}, {});
    return wanted.failed;
  }
  // The same in the plain directory, by a process that modes bind: the kernel's word.
  int create_there(const std::string& path) const {
    const pid_t child = ::fork();
    if (child == 0) {
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[2] = {};
      if (::syscall(SYS_capset, &header, none) != 0) ::_exit(255);
      const int fd = ::open((world_.plain() + "/" + path).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
      ::_exit(fd >= 0 ? 0 : errno);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  bool may_there(const std::string& path, int access) const {
    const pid_t child = ::fork();
    if (child == 0) {
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[2] = {};
      if (::syscall(SYS_capset, &header, none) != 0) ::_exit(255);
      ::_exit(::access((world_.plain() + "/" + path).c_str(), access) == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  int looks_that_are_wrong(int* seen);
  // Of files whose name goes while a program has them open: those that end with it.
  int that_end_with_their_names();
  // Of paths in directories of all modes: those that pass here, and would not in the kernel.
  int passes_that_are_wrong(int* passed);

  io::Descriptor meet() {
    io::Descriptor folder(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    io::Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = io::unix_address(folder, kLightSocket);
    EXPECT_EQ(::connect(made.get(), io::general(address), sizeof(address)), 0);
    LightWelcome said;
    EXPECT_EQ(::recv(made.get(), &said, sizeof(said), 0), static_cast<ssize_t>(sizeof(said)));
    EXPECT_EQ(said.error, 0);
    EXPECT_STREQ(said.top, "/the/top");
    return made;
  }
  static LightRequest request_for(LightCall call, uint32_t handle = 0, const std::string& path = "") {
    LightRequest request;
    request.call = call;
    request.handle = handle;
    request.directory = 1;
    request.flags = O_WRONLY;
    request.mode = 0644;
    request.path_bytes = static_cast<uint32_t>(path.size());
    path.copy(request.path, path.size());
    return request;
  }
  static void send(const io::Descriptor& to, const LightRequest& request) {
    const bool has_path = request.call == LightCall::kCreate || request.call == LightCall::kLook;
    const size_t bytes = kLightHeadBytes + (has_path ? request.path_bytes : 0);
    EXPECT_EQ(::send(to.get(), &request, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  static LightAnswer ask(const io::Descriptor& to, const LightRequest& request) {
    send(to, request);
    LightAnswer answer;
    answer.error = -1;
    EXPECT_EQ(::recv(to.get(), &answer, sizeof(answer), 0), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }
  uint64_t open_in_the_end(uint64_t wanted) {
    for (int i = 0; i < kEndTriesMax && fs().stats().light_open != wanted; ++i) ::usleep(10'000);
    return fs().stats().light_open;
  }

  JobWorld world_;
  std::string folder_;
  std::unique_ptr<LightServer> server_;
};

int LightTest::passes_that_are_wrong(int* passed) {
  int wrong = 0;
  for (mode_t mode = 0; mode < 01000; mode += 0100) {
    const std::string folder = fmt::format("mode{:o}", mode);
    make_directory(folder, mode | 0077);  // what others may do is no matter
    for (const std::string name : {"new", "below/new"}) {
      const std::string path = folder + "/" + name;
      if (name == "below/new") {  // made before the mode binds
        ::chmod((world_.plain() + "/" + folder).c_str(), 0755);
        ::mkdir((world_.plain() + "/" + folder + "/below").c_str(), 0755);
        ::chmod((world_.plain() + "/" + folder).c_str(), mode | 0077);
        Entry above, below;
        EXPECT_EQ(fs().lookup(*fs().root(), folder.c_str(), &above), 0);
        EXPECT_EQ(fs().make_directory(*above.node, "below", 0755, caller_, &below), 0);
        fs().forget(below.node, 1);
        fs().forget(above.node, 1);
      }
      const int here = create(path, bound()), there = create_there(path);
      *passed += here == 0;
      wrong += (here == 0) != (there == 0);
    }
    ::chmod((world_.plain() + "/" + folder).c_str(), 0755);
    ::chmod((world_.backing() + "/" + folder).c_str(), 0755);
  }
  return wrong;
}

TEST_F(LightTest, ModesOfDirectoriesBind) {
  start();
  int passed = 0;
  EXPECT_EQ(passes_that_are_wrong(&passed), 0);
  EXPECT_EQ(passed, 2 + 4);  // write and search: in two; search: below four
}

TEST_F(LightTest, CanaryOneThatAsksNoModes) {
  world_.options().light_looks_at_modes = false;
  start();
  int passed = 0;
  EXPECT_EQ(passes_that_are_wrong(&passed), 16 - 6);
}

int LightTest::looks_that_are_wrong(int* seen) {
  int wrong = 0;
  for (mode_t mode = 0; mode < 01000; mode += 0100) {
    const std::string folder = fmt::format("mode{:o}", mode);
    make_directory(folder, mode | 0077);
    for (int access = 0; access <= (R_OK | W_OK | X_OK); ++access) {
      struct stat found;
      const int here = fs().look_light(1, folder, access, bound(), &found);
      const int below = fs().look_light(1, folder + "/missing", access, bound(), &found);
      *seen += here == 0;
      wrong += (here == 0) != may_there(folder, access) || below == 0;
    }
    ::chmod((world_.plain() + "/" + folder).c_str(), 0755);
    ::chmod((world_.backing() + "/" + folder).c_str(), 0755);
  }
  return wrong;
}

TEST_F(LightTest, LooksAreTheKernels) {
  start();
  int seen = 0;
  EXPECT_EQ(looks_that_are_wrong(&seen), 0);
  EXPECT_EQ(seen, 27);  // of each mode, its subsets
  EXPECT_EQ(fs().stats().light_looks, 27u);
}

TEST_F(LightTest, CanaryLooksThatAskNoModes) {
  world_.options().light_looks_at_modes = false;
  start();
  int seen = 0;
  EXPECT_EQ(looks_that_are_wrong(&seen), 64 - 27);
}

TEST_F(LightTest, ALookSeesWhatFstatDoes) {
  start();
  const io::Descriptor program = meet();
  LightRequest create = request_for(LightCall::kCreate, 0, "file");
  const uint32_t handle = ask(program, create).handle;
  ASSERT_NE(handle, 0u);
  const LightAnswer by_path = ask(program, request_for(LightCall::kLook, 0, "file"));
  const LightAnswer by_handle = ask(program, request_for(LightCall::kStat, handle));
  EXPECT_EQ(by_path.error, 0);
  EXPECT_EQ(std::memcmp(&by_path.stat, &by_handle.stat, sizeof(by_path.stat)), 0);
  EXPECT_EQ(fs().unlink(*fs().root(), "file", caller_), 0);
  EXPECT_EQ(ask(program, request_for(LightCall::kLook, 0, "file")).error, ENOENT);
  make_link("link", "file");
  EXPECT_EQ(ask(program, request_for(LightCall::kLook, 0, "link")).error, ELOOP);
}

TEST_F(LightTest, WhoOverridesModesAndWhoIsOfAGroup) {
  start();
  struct stat directory = {};
  directory.st_mode = S_IFDIR | 0570;
  directory.st_uid = 1;
  directory.st_gid = 2;
  EXPECT_TRUE((Credentials{7, 7, 0, {}, true}.may(directory, W_OK | X_OK)));
  EXPECT_FALSE((Credentials{1, 2, 0, {}, false}.may(directory, W_OK | X_OK)));  // the owner is no member
  EXPECT_TRUE((Credentials{7, 2, 0, {}, false}.may(directory, W_OK | X_OK)));
  EXPECT_TRUE((Credentials{7, 7, 0, {5, 2}, false}.may(directory, W_OK | X_OK)));
  EXPECT_FALSE((Credentials{7, 7, 0, {5}, false}.may(directory, X_OK)));
  const auto own = credentials_of({::geteuid(), ::getegid(), ::getpid(), 0, {}});
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_EQ(own->user, ::geteuid());
  EXPECT_FALSE(credentials_of({::geteuid() + 1, ::getegid(), ::getpid(), 0, {}}).ok());
}

TEST_F(LightTest, WhatIsNotMadeHereTheKernelIsAsked) {
  start();
  make_directory("folder", 0755);
  make_file("file");
  make_link("link", "folder");
  make_link("nothing", "missing");
  const std::string long_name(300, 'n');
  for (const std::string path :
       {"file", "folder", "file/new", "missing/new", "link/new", "link", "nothing", ".", "..", "folder/.",
        "folder/..", "folder/", "folder/../new", "folder/./new", "", "/", "/new", ".swale", ".swale/new"})
    EXPECT_NE(create(path, bound()), 0) << path;
  EXPECT_NE(create(std::string("a\0b", 3), bound()), 0);
  EXPECT_NE(create("new", bound(), 12345), 0);  // no such directory
  EXPECT_EQ(create("new", bound()), 0);
  EXPECT_EQ(create("new", bound()), EEXIST);
  EXPECT_EQ(create("folder/new", bound()), 0);
  EXPECT_EQ(create("folder//newer", bound()), 0);
  EXPECT_FALSE(std::filesystem::exists(world_.backing() + "/.swale/new"));
}

TEST_F(LightTest, AFileIsReachedByWhatWasLentOnceWhateverItsNameIs) {
  start();
  const io::Descriptor program = meet();
  const uint32_t handle = ask(program, request_for(LightCall::kCreate, 0, "file")).handle;
  ASSERT_NE(handle, 0u);
  const uint64_t inode = ask(program, request_for(LightCall::kStat, handle)).stat.inode;
  EXPECT_EQ(fs().unlink(*fs().root(), "file", caller_), 0);
  EXPECT_EQ(ask(program, request_for(LightCall::kStat, handle)).stat.links, 0u);
  const std::string lent = ask(program, request_for(LightCall::kReopen, handle)).name;
  Entry entry;
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(fs().lookup(*fs().root(), lent.c_str(), &entry), ENOENT);  // so the kernel makes it
  ASSERT_EQ(fs().create(*fs().root(), lent.c_str(), 0600, O_WRONLY | O_CREAT, caller_, &entry, &file), 0);
  EXPECT_EQ(entry.attributes.st_ino, inode);
  send(program, request_for(LightCall::kClose, handle));
  EXPECT_EQ(open_in_the_end(0), 0u);
  fs().release(std::move(file));
  fs().forget(entry.node, 1);
  // A name that was used is one like others.
  EXPECT_EQ(fs().create(*fs().root(), lent.c_str(), 0600, O_WRONLY | O_CREAT, caller_, &entry, &file), 0);
  EXPECT_NE(entry.attributes.st_ino, inode);
  fs().release(std::move(file));
  fs().forget(entry.node, 1);
}

int LightTest::that_end_with_their_names() {
  int ended = 0;
  const io::Descriptor program = meet();
  for (const bool replaced : {false, true})
    for (const int opens : {1, 2}) {
      const std::string name = fmt::format("file{}{}", replaced, opens);
      const uint32_t handle = ask(program, request_for(LightCall::kCreate, 0, name)).handle;
      EXPECT_NE(handle, 0u);
      const uint64_t inode = ask(program, request_for(LightCall::kStat, handle)).stat.inode;
      Entry entry;
      std::unique_ptr<OpenFile> also;  // through the mount
      if (opens == 2) {
        EXPECT_EQ(fs().lookup(*fs().root(), name.c_str(), &entry), 0);
        EXPECT_EQ(fs().open_file(*entry.node, O_RDONLY, caller_, &also), 0);
      }
      if (replaced) make_file("new");
      EXPECT_EQ(replaced ? fs().rename(*fs().root(), "new", *fs().root(), name.c_str(), 0, caller_)
                         : fs().unlink(*fs().root(), name.c_str(), caller_),
                0);
      if (also) fs().release(std::move(also));
      if (opens == 2) fs().forget(entry.node, 1);
      const LightAnswer open = ask(program, request_for(LightCall::kStat, handle));
      ended += open.error != 0 || open.stat.links != 0;
      send(program, request_for(LightCall::kClose, handle));
      EXPECT_EQ(open_in_the_end(0), 0u);
      EXPECT_EQ(world_.names().stat({inode >> 52, inode & ((uint64_t{1} << 52) - 1)}).status().posix_error(),
                ENOENT);
    }
  return ended;
}

TEST_F(LightTest, AnOpenFileOutlivesItsNameAndNothingElseDoes) {
  start();
  EXPECT_EQ(that_end_with_their_names(), 0);
}

TEST_F(LightTest, CanaryAFileThatIsHeldForNobody) {
  world_.options().holds_late = false;
  start();
  EXPECT_EQ(that_end_with_their_names(), 4);
}

TEST_F(LightTest, WhatWasLentGivesNoMoreThanTheOpenDid) {
  start();
  const io::Descriptor program = meet();
  const uint32_t handle = ask(program, request_for(LightCall::kCreate, 0, "file")).handle;
  const std::string lent = ask(program, request_for(LightCall::kReopen, handle)).name;
  Entry entry;
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(fs().create(*fs().root(), lent.c_str(), 0600, O_RDWR | O_CREAT, caller_, &entry, &file), EACCES);
}

TEST_F(LightTest, APrograms_EndClosesWhatItHasOpen) {
  start();
  {
    const io::Descriptor program = meet();
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(ask(program, request_for(LightCall::kCreate, 0, fmt::format("file{}", i))).error, 0);
    EXPECT_EQ(fs().stats().light_open, 10u);
    send(program, request_for(LightCall::kClose, 3));
    EXPECT_EQ(ask(program, request_for(LightCall::kCreate, 0, "again")).handle, 3u);
  }
  EXPECT_EQ(open_in_the_end(0), 0u);
  const io::Descriptor stays = meet();
  EXPECT_EQ(ask(stays, request_for(LightCall::kCreate, 0, "stays")).error, 0);
  server_.reset();  // closes it
  EXPECT_EQ(fs().stats().light_open, 0u);
  LightAnswer answer;
  EXPECT_EQ(::recv(stays.get(), &answer, sizeof(answer), 0), 0);
}

// Any bytes: the server answers, or ends the connection, and serves others on.
TEST_F(LightTest, AProgramMaySendAnything) {
  start();
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const io::Descriptor program = meet();
    LightRequest request =
        request_for(static_cast<LightCall>(rng.below(7)), static_cast<uint32_t>(rng.below(3)),
                    std::string(rng.below(kLightPathMax), 'p'));
    if (rng.below(4) == 0) request.path_bytes = static_cast<uint32_t>(rng.below(1u << 31));
    const size_t bytes = rng.below(3) == 0
                             ? rng.below(sizeof(request) + 1)
                             : kLightHeadBytes + std::min<size_t>(request.path_bytes, kLightPathMax);
    EXPECT_EQ(::send(program.get(), &request, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    if (request.call == LightCall::kClose || bytes == 0) continue;
    LightAnswer answer;
    EXPECT_GE(::recv(program.get(), &answer, sizeof(answer), 0), 0);
  }
  const io::Descriptor program = meet();
  EXPECT_EQ(ask(program, request_for(LightCall::kStat, 5)).error, EBADF);
  EXPECT_EQ(ask(program, request_for(LightCall::kCreate, 0, "after-all")).error, 0);
}

// Creates past the kernel while names change by it: each name ends as one of them has left it.
TEST_F(LightTest, NamesChangeMeanwhile) {
  start();
  std::atomic<bool> over = false;
  std::atomic<int> made = 0;
  std::vector<std::thread> programs;
  for (int i = 0; i < 3; ++i)
    programs.emplace_back([&] {
      while (!over.load()) made += create("name", bound()) == 0;
    });
  int failed = 0, removed = 0;
  for (int i = 0; i < 300 || removed < 20; ++i) {
    Entry entry;
    const int unlinked = fs().unlink(*fs().root(), "name", caller_);
    removed += unlinked == 0;
    failed += unlinked != 0 && unlinked != ENOENT;
    if (i % 3 == 0 && fs().make_directory(*fs().root(), "name", 0755, caller_, &entry) == 0) {
      fs().forget(entry.node, 1);
      failed += fs().remove_directory(*fs().root(), "name", caller_) != 0;
    }
    if (i % 5 == 0) {
      const int renamed = fs().rename(*fs().root(), "name", *fs().root(), "other", 0, caller_);
      failed += renamed != 0 && renamed != ENOENT;
    }
  }
  over = true;
  for (std::thread& each : programs) each.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GE(made.load(), removed);
  Entry entry;
  if (fs().lookup(*fs().root(), "name", &entry) == 0) {
    EXPECT_TRUE(S_ISREG(entry.attributes.st_mode));
    fs().forget(entry.node, 1);
  }
}

}  // namespace
}  // namespace swale::fs::light_test
