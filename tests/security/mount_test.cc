// What a mount by root lets two users do: what the backing file system itself would let them do, no more and
// no less. Each case is made on a plain directory and through the mount; errors and what they leave must be
// the same.
#include <dirent.h>
#include <fcntl.h>
#include <sys/xattr.h>

#include "fs/as_caller.h"
#include "fuse/tree_trust.h"
#include "tests/security/two_users.h"

namespace swale::security::mount_test {
namespace {

int answer(int result) { return result < 0 ? errno : 0; }

int open_and_close(const std::string& path, int flags, mode_t mode = 0) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (file < 0) return errno;
  ::close(file);
  return 0;
}

int write_to(const std::string& path, int flags = O_WRONLY, mode_t mode = 0) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (file < 0) return errno;
  const int failed = ::pwrite(file, "new content", 11, 0) == 11 ? 0 : errno;
  ::close(file);
  return failed;
}

int read_from(const std::string& path) {
  char text[16];
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int failed = ::read(file, text, sizeof(text)) >= 0 ? 0 : errno;
  ::close(file);
  return failed;
}

// A call below "plain" or "mnt" by a user, and what it must answer.
struct Case {
  std::string what;
  User user;
  std::function<int(const std::string& root)> call;
  int expected = 0;
};
constexpr int kAsPlain = -1;  // what the system's settings say

using MountSecurityTest = TwoUsers;

// Users: Alice's folder a, Bob's folder b, everybody's folder t with the sticky bit, root's files above.
void make_tree(const std::string& root) {
  const auto file = [&](const std::string& name, uid_t owner, gid_t group, mode_t mode) {
    std::ofstream(root + "/" + name) << "text";
    ASSERT_EQ(::chown((root + "/" + name).c_str(), owner, group), 0);
    ASSERT_EQ(::chmod((root + "/" + name).c_str(), mode), 0);
  };
  const auto folder = [&](const std::string& name, uid_t owner, gid_t group, mode_t mode) {
    ASSERT_EQ(::mkdir((root + "/" + name).c_str(), 0700), 0);
    ASSERT_EQ(::chown((root + "/" + name).c_str(), owner, group), 0);
    ASSERT_EQ(::chmod((root + "/" + name).c_str(), mode), 0);
  };
  file("root-secret", 0, 0, 0600);
  file("root-public", 0, 0, 0644);
  file("set-id", 0, 0, 06777);
  std::filesystem::copy_file("/bin/true", root + "/runs");
  ASSERT_EQ(::chmod((root + "/runs").c_str(), 0711), 0);
  folder("a", kAlice, kAlice, 0755);
  folder("b", kBob, kBob, 0755);
  folder("p", kBob, kBob, 0700);
  folder("n", kBob, kBob, 0744);  // names, but no way in
  folder("t", 0, 0, 01777);
  folder("team", kBob, kTeam, 02770);
  file("a/f", kAlice, kAlice, 0644);
  file("a/none", kAlice, kAlice, 0000);
  file("b/f", kBob, kBob, 0644);
  file("b/open", kBob, kBob, 0666);
  file("b/set-id", kBob, kBob, 06777);
  file("b/set-id-too", kBob, kBob, 06777);
  file("p/f", kBob, kBob, 0666);
  file("n/f", kBob, kBob, 0666);
  file("t/alice", kAlice, kAlice, 0666);
  file("t/bob", kBob, kBob, 0666);
  file("team/f", kBob, kTeam, 0660);
  file("team/not-the-group", kBob, kTeam, 0606);
}

std::vector<Case> cases() {
  const User alice{kAlice, {}}, bob{kBob, {}}, member{kAlice, {kTeam}}, root{};
  const auto chmods = [](const char* name, mode_t mode) {
    return [=](const std::string& at) { return answer(::chmod((at + name).c_str(), mode)); };
  };
  const auto renames = [](const char* from, const char* to) {
    return [=](const std::string& at) { return answer(::rename((at + from).c_str(), (at + to).c_str())); };
  };
  const auto links = [](const char* from, const char* to) {
    return [=](const std::string& at) { return answer(::link((at + from).c_str(), (at + to).c_str())); };
  };
  const auto unlinks = [](const char* name) {
    return [=](const std::string& at) { return answer(::unlink((at + name).c_str())); };
  };
  const auto writes = [](const char* name, int flags = O_WRONLY, mode_t mode = 0) {
    return [=](const std::string& at) { return write_to(at + name, flags, mode); };
  };
  const auto reads = [](const char* name) {
    return [=](const std::string& at) { return read_from(at + name); };
  };
  const auto owns = [](const char* name, uid_t user, gid_t group) {
    return [=](const std::string& at) { return answer(::lchown((at + name).c_str(), user, group)); };
  };
  const auto dates = [](const char* name, bool now) {
    return [=](const std::string& at) {
      const timespec times[2] = {{5, now ? UTIME_NOW : 0}, {5, now ? UTIME_NOW : 0}};
      return answer(::utimensat(AT_FDCWD, (at + name).c_str(), times, 0));
    };
  };
  return {
      {"reads root's secret", alice, reads("/root-secret"), EACCES},
      {"reads what all may read", alice, reads("/root-public"), 0},
      {"writes what all may read", alice, writes("/root-public"), EACCES},
      {"cuts what all may read", alice,
       [](const std::string& at) { return answer(::truncate((at + "/root-public").c_str(), 0)); }, EACCES},
      {"opens it to cut it", alice,
       [](const std::string& at) { return open_and_close(at + "/root-public", O_RDONLY | O_TRUNC); }, EACCES},
      {"makes a file in root's folder", alice, writes("/new", O_CREAT | O_WRONLY, 0644), EACCES},
      {"runs what it may not read", alice,
       [](const std::string& at) {
         const pid_t child = ::fork();
         if (child == 0) {
           ::execl((at + "/runs").c_str(), "runs", nullptr);
           ::_exit(errno);
         }
         int state = 0;
         ::waitpid(child, &state, 0);
         return WEXITSTATUS(state);
       },
       0},
      {"reads what it may only run", alice, reads("/runs"), EACCES},
      {"changes the mode of root's file", alice, chmods("/root-public", 0777), EPERM},
      {"changes the mode of Bob's file", alice, chmods("/b/open", 0777), EPERM},
      {"changes the mode of its own", alice, chmods("/a/f", 0640), 0},
      {"gives its file away", alice, owns("/a/f", kBob, kBob), EPERM},
      {"takes Bob's file", alice, owns("/b/open", kAlice, static_cast<gid_t>(-1)), EPERM},
      {"gives its file to a group of its own", member, owns("/a/f", static_cast<uid_t>(-1), kTeam), 0},
      {"marks it for that group", member, chmods("/a/f", 02750), 0},
      {"marks it without being in the group", alice, chmods("/a/f", 02755), 0},
      {"gives it to a group that is not its own", alice, owns("/a/f", static_cast<uid_t>(-1), kBob), EPERM},
      {"root gives it away", root, owns("/a/f", kBob, kBob), 0},
      {"sets times of Bob's file", alice, dates("/b/open", false), EPERM},
      {"sets times of a file that it may write to now", alice, dates("/b/open", true), 0},
      {"writes to a file that runs as root", alice, writes("/set-id"), 0},
      {"writes to a file that runs as Bob", alice, writes("/b/set-id"), 0},
      {"root writes to a file that runs as Bob", root, writes("/b/set-id-too"), 0},
      {"cuts it", alice,
       [](const std::string& at) { return answer(::truncate((at + "/b/set-id-too").c_str(), 2)); }, 0},
      {"reads behind a closed folder", alice, reads("/p/f"), EACCES},
      {"reads behind a folder that it may only list", alice, reads("/n/f"), EACCES},
      {"lists a folder that it may only list", alice,
       [](const std::string& at) {
         DIR* const names = ::opendir((at + "/n").c_str());
         if (names == nullptr) return errno;
         int count = 0;
         while (::readdir(names) != nullptr) ++count;
         ::closedir(names);
         return count == 3 ? 0 : EIO;
       },
       0},
      {"root reads behind a closed folder", root, reads("/p/f"), 0},
      {"reads its own file that nobody may read", alice, reads("/a/none"), EACCES},
      {"makes a file that it may not write again", alice,
       writes("/a/made", O_CREAT | O_EXCL | O_WRONLY, 0444), 0},
      {"writes it again", alice, writes("/a/made"), EACCES},
      {"makes a file that runs as itself", alice, writes("/a/made-id", O_CREAT | O_WRONLY, 04755), 0},
      {"makes a device", alice,
       [](const std::string& at) { return answer(::mknod((at + "/a/d").c_str(), S_IFCHR | 0666, 0x103)); },
       EPERM},
      {"makes a pipe", alice,
       [](const std::string& at) { return answer(::mkfifo((at + "/a/pipe").c_str(), 0666)); }, 0},
      {"makes a folder", alice,
       [](const std::string& at) { return answer(::mkdir((at + "/a/d").c_str(), 0777)); }, 0},
      {"makes a folder in Bob's", alice,
       [](const std::string& at) { return answer(::mkdir((at + "/b/d").c_str(), 0777)); }, EACCES},
      {"makes a link to root's secret", alice,
       [](const std::string& at) { return answer(::symlink("../root-secret", (at + "/a/s").c_str())); }, 0},
      {"reads through it", alice, reads("/a/s"), EACCES},
      {"changes its mode", alice, chmods("/a/s", 0777), EPERM},
      {"removes Bob's file", alice, unlinks("/b/f"), EACCES},
      {"removes Bob's file from the sticky folder", alice, unlinks("/t/bob"), EPERM},
      {"renames Bob's file in the sticky folder", alice, renames("/t/bob", "/t/mine"), EPERM},
      {"replaces Bob's file in the sticky folder", alice, renames("/t/alice", "/t/bob"), EPERM},
      {"renames its own file in the sticky folder", alice, renames("/t/alice", "/t/mine"), 0},
      {"moves its own file into Bob's folder", alice, renames("/t/mine", "/b/mine"), EACCES},
      {"moves its own file into its own folder", alice, renames("/t/mine", "/a/mine"), 0},
      {"moves Bob's file into its own folder", alice, renames("/b/f", "/a/taken"), EACCES},
      {"links Bob's closed file into its own folder", alice, links("/b/f", "/a/linked"), kAsPlain},
      {"links its own file", alice, links("/a/mine", "/a/again"), 0},
      {"links its own file into Bob's folder", alice, links("/a/mine", "/b/again"), EACCES},
      {"reads the team's file as no member", alice, reads("/team/f"), EACCES},
      {"reads the team's file as a member", member, reads("/team/f"), 0},
      {"writes the team's file as a member", member, writes("/team/f"), 0},
      {"makes a file of the team", member, writes("/team/new", O_CREAT | O_WRONLY, 0660), 0},
      {"makes a folder of the team", member,
       [](const std::string& at) { return answer(::mkdir((at + "/team/d").c_str(), 0770)); }, 0},
      {"reads what all but the team may read", member, reads("/team/not-the-group"), EACCES},
      {"sets an attribute of Bob's file", alice,
       [](const std::string& at) { return answer(::setxattr((at + "/b/f").c_str(), "user.x", "y", 1, 0)); },
       EACCES},
      {"sets an attribute of its own", alice,
       [](const std::string& at) {
         return answer(::setxattr((at + "/a/mine").c_str(), "user.x", "y", 1, 0));
       },
       0},
      {"sets a trusted attribute", alice,
       [](const std::string& at) {
         return answer(::setxattr((at + "/a/mine").c_str(), "trusted.x", "y", 1, 0));
       },
       EPERM},
      {"writes by a handle whose file was closed since", alice,
       [](const std::string& at) {
         const int file = ::open((at + "/a/mine").c_str(), O_RDWR | O_CLOEXEC);
         if (file < 0 || ::fchmod(file, 0) != 0) return errno;
         char byte;
         if (::pwrite(file, "xyz", 3, 0) != 3 || ::ftruncate(file, 2) != 0 || ::pread(file, &byte, 1, 0) != 1)
           return errno;
         ::close(file);
         return read_from(at + "/a/mine") == EACCES ? 0 : EIO;
       },
       0},
  };
}

TEST_F(MountSecurityTest, AUserMayDoWhatTheBackingFileSystemLets) {
  in_both(make_tree);
  ASSERT_EQ(mount(for_others()), "");
  for (const Case& one : cases()) {
    const int plain = as(one.user, [&] { return one.call("plain"); });
    if (one.expected != kAsPlain) {
      EXPECT_EQ(plain, one.expected) << one.what << ", plain";
    }
    EXPECT_EQ(as(one.user, [&] { return one.call("mnt"); }), plain) << one.what << ", mounted";
  }
  const auto expected = rights("plain");
  EXPECT_EQ(rights("mnt"), expected);
  EXPECT_EQ(unmount(), 0);
  ASSERT_EQ(mount(for_others()), "");
  EXPECT_EQ(rights("mnt"), expected) << "by a kernel that knows nothing yet";
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountSecurityTest, CanaryAMountThatIsRootForAllDiffers) {
  in_both(make_tree);
  fuse::MountOptions wanted = for_others();
  wanted.all_as_this_process = true;
  ASSERT_EQ(mount(wanted), "");
  for (const Case& one : cases())
    for (const char* root : {"plain", "mnt"}) as(one.user, [&] { return one.call(root); });
  const auto expected = rights("plain"), found = rights("mnt");
  EXPECT_NE(found, expected);
  EXPECT_NE(found.at("a/made"), expected.at("a/made")) << "whose file it is";
  EXPECT_EQ(unmount(), 0);
}

// With it, the kernel would let root's flushes pass over the quota of the file's owner.
TEST_F(MountSecurityTest, NoThreadOfTheMountMayPassOverQuotas) {
  ASSERT_EQ(mount(for_others()), "");
  file("mnt/f", kAlice, 0644);
  size_t threads = 0;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", child_))) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("CapPrm:")) continue;
      const uint64_t has = std::stoull(line.substr(8), nullptr, 16);
      EXPECT_EQ(has >> CAP_SYS_RESOURCE & 1, 0u) << line;
      EXPECT_EQ(has >> CAP_SETGID & 1, 1u) << line;
      ++threads;
    }
  }
  EXPECT_GE(threads, 3u);
  EXPECT_EQ(unmount(), 0);
}

// By the commands of the package acl.
class MountAclTest : public TwoUsers {
 protected:
  void SetUp() override {
    TwoUsers::SetUp();
    if (IsSkipped()) return;
    if (std::system("command -v setfacl getfacl >/dev/null") != 0)
      GTEST_SKIP() << "setfacl is not installed (package acl)";
    in_both(make_tree);
  }
  void both(const User& user, const std::string& command, int expected = 0) {
    for (const char* root : {"plain", "mnt"})
      EXPECT_EQ(shell(user, "cd " + std::string(root) + " && " + command), expected)
          << command << " in " << root;
  }
};

TEST_F(MountAclTest, AnAclThatDeniesIsEnforced) {
  for (const char* root : {"plain", "backing"})
    ASSERT_EQ(shell({}, "cd " + std::string(root) +
                            " && setfacl -m u:20001:--- b/open && setfacl -m u:20001:--- t"),
              0);
  ASSERT_EQ(mount(for_others()), "");
  both({kAlice}, "cat b/open", 1);
  both({kAlice}, "echo x >> b/open", 2);
  both({kAlice}, "cat t/bob", 1);
  both({kBob}, "cat b/open t/bob");
  both({kAlice}, "cat b/f");
  // Given through the mount, with the file's pages and attributes in the kernel's cache.
  both({kBob}, "setfacl -m u:20001:--- b/f");
  both({kAlice}, "cat b/f", 1);
  both({kAlice}, "setfacl -b b/f", 1);
  both({kBob}, "setfacl -b b/f");
  both({kAlice}, "cat b/f");
  EXPECT_EQ(rights("mnt"), rights("plain"));
  EXPECT_EQ(unmount(), 0);
  EXPECT_EQ(rights("backing"), rights("plain"));
}

TEST_F(MountAclTest, AnAclThatGrantsIsEnforced) {
  ASSERT_EQ(mount(for_others()), "");
  both({kAlice}, "cat root-secret", 1);
  both({}, "setfacl -m u:20001:rw root-secret");
  both({kAlice}, "cat root-secret && echo more >> root-secret");
  both({kBob}, "cat root-secret", 1);
  both({}, "setfacl -m g:20100:r root-secret");
  both({kBob, {kTeam}}, "cat root-secret");
  both({kBob, {kTeam}}, "echo more >> root-secret", 2);
  both({}, "chmod g-w root-secret");  // the ACL's mask
  both({kAlice}, "echo more >> root-secret", 2);
  EXPECT_EQ(rights("mnt"), rights("plain"));
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountAclTest, WhatIsMadeInheritsTheFoldersAcl) {
  ASSERT_EQ(mount(for_others()), "");
  both({kBob}, "setfacl -d -m u:20001:rw,g:20100:rx,o::- b && setfacl -m u:20001:rwx b");
  both({kBob},
       "umask 077; echo x > b/new; mkdir b/folder; mkfifo b/pipe; ln -s new b/link; echo y > b/folder/deep");
  both({kAlice},
       "umask 0; cat b/new; echo z >> b/new; echo w > b/of-alice; (set -C; umask 077; echo v > b/folder/x)",
       2);
  both({kAlice}, "cat b/new b/of-alice");
  both({kBob}, "setfacl -k b; umask 027; echo x > b/after; mkdir b/folder-after");
  EXPECT_EQ(rights("mnt"), rights("plain"));
  EXPECT_EQ(unmount(), 0);
  EXPECT_EQ(rights("backing"), rights("plain"));
}

// A mount that an ordinary user makes for others has that user's rights alone.
TEST_F(MountSecurityTest, AnOrdinaryUserServesOthersOnlyFromATreeThatNobodyElseWritesTo) {
  const auto said = [this](const std::function<void()>& make,
                           size_t directories_max = fuse::kDirectoriesMax) {
    std::filesystem::remove_all("backing");
    folder("backing", kAlice, 0755);
    folder("backing/d", kAlice, 0755);
    folder("backing/d/e", 0, 0755);
    make();
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(as({kAlice},
                 [&] {
                   const std::string text(fuse::check_trust("backing", directories_max).message());
                   return ::write(ends[1], text.data(), text.size()) < 0 ? errno : 0;
                 }),
              0);
    ::close(ends[1]);
    char text[1024];
    const ssize_t got = ::read(ends[0], text, sizeof(text));
    ::close(ends[0]);
    return std::string(text, static_cast<size_t>(std::max<ssize_t>(0, got)));
  };
  EXPECT_EQ(said([] {}), "");
  const auto modes = [](mode_t mode) { return [=] { ASSERT_EQ(::chmod("backing/d/e", mode), 0); }; };
  for (const mode_t mode : {0777, 0757, 0775, 01777}) {
    const std::string text = said(modes(mode));
    EXPECT_NE(text.find("backing/d/e"), std::string::npos) << text;
    EXPECT_NE(text.find("--trust-tree"), std::string::npos) << text;
  }
  EXPECT_NE(said([] { ASSERT_EQ(::chown("backing/d", kBob, kBob), 0); }).find("belongs to user 20002"),
            std::string::npos);
  EXPECT_NE(said([] { ASSERT_EQ(::chown("backing", kBob, kBob), 0); }), "");
  EXPECT_NE(said(modes(0700)).find("backing/d/e"), std::string::npos) << "cannot be seen";
  EXPECT_NE(said([] {}, 2).find("more than 2 directories"), std::string::npos);
  // The command of a mount says so before it makes anything.
  said(modes(0777));
  const fuse::MountOptions wanted = for_others();
  EXPECT_EQ(as({kAlice}, [&] { return static_cast<int>(fuse::run_mount(wanted).code()); }),
            static_cast<int>(Code::kInvalidArgument));
  EXPECT_FALSE(std::filesystem::exists("ssd"));
}

}  // namespace
}  // namespace swale::security::mount_test
