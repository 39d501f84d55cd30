// Files that programs make past the kernel: which creates pass, and what a program may send.
#include <atomic>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "fs/job/testing/light_rig.h"

namespace swale::fs::light_test {
namespace {

class LightTest : public LightRig {
 protected:
  int looks_that_are_wrong(int* seen);
  // Of files whose name goes while a program has them open: those that end with it.
  int that_end_with_their_names(int flags);
  // Of paths in directories of all modes: those that pass here, and would not in the kernel.
  int passes_that_are_wrong(int* passed);
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
      const int here = create(path, bound()), there = open_there(path, kCreates);
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
  LightRequest create = request_for(LightCall::kOpen, 0, "file");
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
  const uint32_t handle = ask(program, request_for(LightCall::kOpen, 0, "file")).handle;
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

int LightTest::that_end_with_their_names(int flags) {
  int ended = 0;
  const io::Descriptor program = meet();
  for (const bool replaced : {false, true})
    for (const int opens : {1, 2}) {
      const std::string name = fmt::format("file{:x}-{}{}", flags, replaced, opens);
      if ((flags & O_CREAT) == 0) make_file(name);
      LightRequest open = request_for(LightCall::kOpen, 0, name);
      open.flags = static_cast<uint32_t>(flags);
      const uint32_t handle = ask(program, open).handle;
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
      const LightAnswer left = ask(program, request_for(LightCall::kStat, handle));
      ended += left.error != 0 || left.stat.links != 0;
      send(program, request_for(LightCall::kClose, handle));
      EXPECT_EQ(open_in_the_end(0), 0u);
      EXPECT_EQ(world_.names().stat({inode >> 52, inode & ((uint64_t{1} << 52) - 1)}).status().posix_error(),
                ENOENT);
    }
  return ended;
}

TEST_F(LightTest, AnOpenFileOutlivesItsNameAndNothingElseDoes) {
  start();
  for (const int flags : {kCreates, O_RDWR, O_RDONLY}) EXPECT_EQ(that_end_with_their_names(flags), 0);
}

TEST_F(LightTest, CanaryAFileThatIsHeldForNobody) {
  world_.options().holds_late = false;
  start();
  for (const int flags : {kCreates, O_RDWR, O_RDONLY}) EXPECT_EQ(that_end_with_their_names(flags), 4);
}

TEST_F(LightTest, WhatWasLentGivesNoMoreThanTheOpenDid) {
  start();
  const io::Descriptor program = meet();
  const uint32_t handle = ask(program, request_for(LightCall::kOpen, 0, "file")).handle;
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
      EXPECT_EQ(ask(program, request_for(LightCall::kOpen, 0, fmt::format("file{}", i))).error, 0);
    EXPECT_EQ(fs().stats().light_open, 10u);
    send(program, request_for(LightCall::kClose, 3));
    EXPECT_EQ(ask(program, request_for(LightCall::kOpen, 0, "again")).handle, 3u);
  }
  EXPECT_EQ(open_in_the_end(0), 0u);
  const io::Descriptor stays = meet();
  EXPECT_EQ(ask(stays, request_for(LightCall::kOpen, 0, "stays")).error, 0);
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
    request.flags = static_cast<uint32_t>(rng.below(4) == 0 ? rng.below(1ull << 32) : kCreates);
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
  EXPECT_EQ(ask(program, request_for(LightCall::kOpen, 0, "after-all")).error, 0);
}

// Creates past the kernel while names change by it: each name ends as one of them has left it.
// Passes that come again and again keep no change waiting.
TEST(LightGateTest, AChangeGetsThroughPassesThatNeverCease) {
  LightGate gate;
  std::atomic<bool> over = false;
  std::atomic<uint64_t> passed = 0;
  std::vector<std::thread> passing;
  for (int i = 0; i < 4; ++i)
    passing.emplace_back([&] {
      while (!over.load()) {
        const LightGate::Pass pass(gate);
        if (pass.open()) ++passed;
      }
    });
  while (passed.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 1'000; ++i) const LightGate::Closed closed(gate);
  over = true;
  for (std::thread& each : passing) each.join();
}

TEST_F(LightTest, NamesChangeMeanwhile) {
  start();
  std::atomic<bool> over = false;
  std::atomic<int> made = 0;
  std::vector<std::thread> programs;
  for (int i = 0; i < 3; ++i)
    programs.emplace_back([&] {
      while (!over.load()) {
        if (create("name", bound()) != 0) continue;
        ++made;
        made.notify_one();
      }
    });
  int failed = 0, removed = 0;
  for (int i = 0; i < 300 || removed < 20; ++i) {
    Entry entry;
    const int before = made.load();
    const int unlinked = fs().unlink(*fs().root(), "name", caller_);
    removed += unlinked == 0;
    failed += unlinked != 0 && unlinked != ENOENT;
    if (unlinked == ENOENT) made.wait(before);  // the gate is open meanwhile
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
