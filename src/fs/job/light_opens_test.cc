// Files that are there and are opened past the kernel: which opens pass, what O_TRUNC cuts, and what becomes
// of names, pages and seals meanwhile.
#include "fs/job/testing/light_rig.h"

namespace swale::fs::light_test {
namespace {

constexpr int kFlags[] = {O_RDONLY,
                          O_WRONLY,
                          O_RDWR,
                          O_WRONLY | O_TRUNC,
                          O_RDWR | O_TRUNC,
                          O_WRONLY | O_APPEND,
                          O_RDWR | O_CREAT,
                          O_WRONLY | O_CREAT | O_TRUNC,
                          O_RDONLY | O_CREAT,
                          O_WRONLY | O_CREAT | O_EXCL};

class LightOpensTest : public LightRig {
 protected:
  // Opens of files of all modes: those that pass here, and would not in the kernel.
  int passes_that_are_wrong(int* passed, int* left_to_kernel);
  void write(OpenFile& file, uint64_t offset, std::string_view text, bool appends = false) {
    Caller caller = caller_;
    caller.appends = appends;
    int failed = -1;
    fs().write_bytes(file, offset, text, caller, [&](int result) { failed = result; });
    EXPECT_EQ(failed, 0);
  }
  void make_written(const std::string& name) {
    make_file(name);
    Node* node = nullptr;
    auto file = open_by_kernel(name, O_WRONLY, &node);
    write(*file, 0, "ten bytes.");
    close_by_kernel(std::move(file), node);
  }
};

int LightOpensTest::passes_that_are_wrong(int* passed, int* left_to_kernel) {
  int wrong = 0;
  for (mode_t mode = 0; mode < 01000; mode += 0100) {
    const std::string name = fmt::format("mode{:o}", mode);
    make_file(name, mode | 0066);  // a mode without w for all is a seal; what others may do is no matter
    for (const int flags : kFlags) {
      const int here = open(name, flags, bound()), there = open_there(name, flags);
      *passed += here == 0;
      wrong += here == 0 && there != 0;
      *left_to_kernel += here != 0 && there == 0;
    }
  }
  return wrong;
}

TEST_F(LightOpensTest, ModesOfFilesBind) {
  start();
  int passed = 0, left_to_kernel = 0;
  EXPECT_EQ(passes_that_are_wrong(&passed, &left_to_kernel), 0);
  // r: 2 of the flags in 4 modes; w without x: 4 in 2; both without x: 3 in 1.
  EXPECT_EQ(passed, 2 * 4 + 4 * 2 + 3);
  EXPECT_EQ(left_to_kernel, 4 * 2 + 3);  // with x: somebody may be running it
  EXPECT_EQ(fs().stats().light_opens, static_cast<uint64_t>(passed));
  EXPECT_EQ(fs().stats().light_open, 0u);
}

TEST_F(LightOpensTest, CanaryOneThatAsksNoModes) {
  world_.options().light_looks_at_modes = false;
  start();
  int passed = 0, left_to_kernel = 0;
  // r: 2 in the other 4 modes; w without x: 4 in 2; both without x: 3 in 3.
  EXPECT_EQ(passes_that_are_wrong(&passed, &left_to_kernel), 2 * 4 + 4 * 2 + 3 * 3);
}

TEST_F(LightOpensTest, WhatIsNotOpenedHereTheKernelIsAsked) {
  start();
  make_directory("folder", 0755);
  make_file("file");
  make_link("link", "file");
  make_link("to-folder", "folder");
  make_link("nothing", "missing");
  for (const std::string path : {"folder", "link", "to-folder/new", "nothing", "missing", ".", "..", "file/x",
                                 "file/", "folder/../file", "", ".swale"})
    for (const int flags : {O_RDONLY, O_RDWR, O_WRONLY | O_TRUNC})
      EXPECT_NE(open(path, flags, bound()), 0) << path;
  EXPECT_NE(open("file", O_RDONLY | O_TRUNC, bound()), 0);
  EXPECT_EQ(open("file", O_RDWR, bound()), 0);
  EXPECT_EQ(open("folder/made", O_RDWR | O_CREAT, bound()), 0);
  EXPECT_EQ(open("folder/made", O_RDWR | O_CREAT, bound()), 0);
  EXPECT_EQ(open("folder//made", O_RDONLY, bound()), 0);
  EXPECT_EQ(fs().stats().light_creates, 1u);
}

TEST_F(LightOpensTest, AFileOfOthersInAStickyDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  start();
  std::filesystem::create_directory(world_.backing() + "/sticky");
  std::filesystem::permissions(world_.backing() + "/sticky", std::filesystem::perms(01777));
  const std::string path = world_.backing() + "/sticky/theirs";
  std::ofstream(path) << "theirs";
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_NE(open("sticky/theirs", O_WRONLY | O_CREAT, bound()), 0);
  EXPECT_EQ(open("sticky/theirs", O_WRONLY, bound()), 0);
}

TEST_F(LightOpensTest, ASealedFileIsOpenedToBeReadOnly) {
  start();
  make_written("file");
  Entry entry;
  struct stat found;
  ASSERT_EQ(fs().lookup(*fs().root(), "file", &entry), 0);
  ASSERT_EQ(fs().change(*entry.node, {.mode = 0444}, caller_, &found), 0);
  Credentials root = bound();
  root.overrides = true;
  EXPECT_EQ(open("file", O_WRONLY, root), EPERM);
  EXPECT_EQ(open("file", O_WRONLY | O_TRUNC, root), EPERM);
  EXPECT_EQ(open("file", O_RDONLY, root), 0);
  // An open that was refused keeps nobody from the seal, nor the seal's end.
  ASSERT_EQ(fs().change(*entry.node, {.mode = 0644}, caller_, &found), 0);
  EXPECT_EQ(open("file", O_WRONLY, root), 0);
  fs().forget(entry.node, 1);
  EXPECT_EQ(content("file"), "ten bytes.");
}

TEST_F(LightOpensTest, ACutIsSeenByAllThatHaveTheFileOpen) {
  start();
  make_written("file");
  Node* node = nullptr;
  auto appending = open_by_kernel("file", O_WRONLY | O_APPEND | O_DIRECT, &node);
  struct stat found;
  EXPECT_EQ(open("file", O_RDWR | O_CREAT | O_TRUNC, bound()), 0);
  EXPECT_EQ(fs().attributes(*node, &found), 0);
  EXPECT_EQ(found.st_size, 0);
  write(*appending, 10, "next", true);  // where the kernel still believes the end
  close_by_kernel(std::move(appending), node);
  EXPECT_EQ(content("file"), "next");
}

TEST_F(LightOpensTest, WhereTheKernelHasPagesItCutsTheFile) {
  start();
  make_written("file");
  Node* node = nullptr;
  auto kept = open_by_kernel("file", O_RDWR, &node);
  EXPECT_EQ(open("file", O_WRONLY | O_TRUNC, bound()), EBUSY);
  EXPECT_EQ(open("file", O_WRONLY, bound()), 0);
  EXPECT_EQ(content("file"), "ten bytes.");
  close_by_kernel(std::move(kept), node);
  EXPECT_EQ(open("file", O_WRONLY | O_TRUNC, bound()), 0);
  EXPECT_EQ(content("file"), "");
}

TEST_F(LightOpensTest, AFileOfTheBackingAndOneThatWasDrained) {
  start();
  std::ofstream(world_.backing() + "/there") << "on the backing";
  make_written("drained");
  ASSERT_TRUE(fs().drain_all().ok());
  for (const std::string name : {"there", "drained"}) {
    EXPECT_EQ(open(name, O_RDONLY, bound()), 0) << name;
    EXPECT_EQ(open(name, O_RDWR, bound()), 0) << name;
    EXPECT_EQ(content(name).size(), name == "there" ? 14u : 10u);
    EXPECT_EQ(open(name, O_WRONLY | O_TRUNC, bound()), 0) << name;
    EXPECT_EQ(content(name), "");
  }
  ASSERT_TRUE(fs().drain_all().ok());
  EXPECT_EQ(std::filesystem::file_size(world_.backing() + "/there"), 0u);
  EXPECT_EQ(std::filesystem::file_size(world_.backing() + "/drained"), 0u);
}

// What fails once is asked for again: by the same name the kernel would make a new file.
TEST_F(LightOpensTest, TheKernelGetsWhatWasOpenedAndNoMore) {
  start();
  make_written("file");
  const io::Descriptor program = meet();
  for (const int access : {O_RDONLY, O_WRONLY, O_RDWR}) {
    LightRequest request = request_for(LightCall::kOpen, 0, "file");
    request.flags = static_cast<uint32_t>(access);
    const uint32_t handle = ask(program, request).handle;
    const uint64_t inode = ask(program, request_for(LightCall::kStat, handle)).stat.inode;
    Entry entry;
    std::unique_ptr<OpenFile> file;
    const auto reopen = [&](int flags) {
      const std::string lent = ask(program, request_for(LightCall::kReopen, handle)).name;
      return fs().create(*fs().root(), lent.c_str(), 0600, flags | O_CREAT, caller_, &entry, &file);
    };
    EXPECT_EQ(reopen(access == O_RDWR ? O_RDONLY : O_RDWR), EACCES);
    ASSERT_EQ(reopen(access), 0);
    EXPECT_EQ(entry.attributes.st_ino, inode);
    close_by_kernel(std::move(file), entry.node);
    send(program, request_for(LightCall::kClose, handle));
  }
  EXPECT_EQ(open_in_the_end(0), 0u);
}

TEST_F(LightOpensTest, AHandleIsGrantedALogAndAMapAsADescriptorIs) {
  start();
  const auto joined = fs().add_program();
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  make_written("file");
  const io::Descriptor program = meet();
  const auto open_it = [&](int flags) {
    LightRequest request = request_for(LightCall::kOpen, 0, "file");
    request.flags = static_cast<uint32_t>(flags);
    return ask(program, request).handle;
  };
  const auto grant = [&](uint32_t handle, const AttachToken& token) {
    GrantRequest request{token};
    const int failed = ask_tree(program, handle, kAskShortCut, &request);
    EXPECT_EQ(failed == 0, request.file_low != 0);
    return failed;
  };
  const uint32_t reads = open_it(O_RDONLY), appends = open_it(O_WRONLY | O_APPEND), both = open_it(O_RDWR);
  EXPECT_EQ(grant(reads, joined->token), EBADF);
  EXPECT_EQ(grant(appends, joined->token), EINVAL);
  EXPECT_EQ(grant(both, {1, 2}), EPERM);
  EXPECT_EQ(grant(99, joined->token), EBADF);
  Node* node = nullptr;
  auto kept = open_by_kernel("file", O_RDONLY, &node);
  EXPECT_EQ(grant(both, joined->token), EBUSY);
  close_by_kernel(std::move(kept), node);
  EXPECT_EQ(grant(both, joined->token), 0);
  MapRequest map;
  EXPECT_EQ(ask_tree(program, both, kAskMap, &map), 0);
  EXPECT_EQ(std::string(map.folder), world_.options().logs.memory_directory);
  EXPECT_EQ(ask_tree(program, both, kAskSeal, &map), EOPNOTSUPP);
  LightRequest commit = request_for(LightCall::kAsk, both);
  commit.flags = static_cast<uint32_t>(kAskCommit);
  EXPECT_EQ(ask(program, commit).error, 0);
  EXPECT_TRUE(fs().end_program(joined->log).ok());
}

}  // namespace
}  // namespace swale::fs::light_test
