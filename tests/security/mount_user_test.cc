// A mount that an ordinary user makes, by fusermount3 or in a user namespace: it has that user's rights,
// serves that user alone, and takes no identity but its own.
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <set>

#include "tests/security/two_users.h"

namespace swale::security::mount_user_test {
namespace {

constexpr uid_t kUser = 65534;  // nobody: fusermount3 wants a user who has a name

int open_and_close(const std::string& path, int flags, mode_t mode = 0) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (file < 0) return errno;
  const int failed = (flags & O_ACCMODE) == O_RDONLY || ::write(file, "bytes", 5) == 5 ? 0 : errno;
  ::close(file);
  return failed;
}

class UserMountTest : public TwoUsers {
 protected:
  void SetUp() override {
    TwoUsers::SetUp();
    if (IsSkipped()) return;
    for (const char* name : {"backing", "mnt"}) ASSERT_EQ(::chown(name, kUser, kUser), 0);
    folder("own", kUser, 0755);
    open_device_to_all();
    if (HasFatalFailure()) return;
    if (as({kUser}, [&] { return ::access(backing().c_str(), X_OK) == 0 ? 0 : errno; }) != 0)
      GTEST_SKIP() << root_ << ": a folder above it lets other users not in";
  }

  // As it is on most machines. Where it is root's alone, another one takes its place in a namespace of mounts
  // that only this process and its children see.
  void open_device_to_all() {
    struct stat found;
    ASSERT_EQ(::stat("/dev/fuse", &found), 0);
    if ((found.st_mode & 0666) == 0666) return;
    device_ = root_ + "/fuse";
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0) << ::strerror(errno);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mknod(device_.c_str(), S_IFCHR, makedev(10, 229)), 0);
    ASSERT_EQ(::chmod(device_.c_str(), 0666), 0);
    ASSERT_EQ(::mount(device_.c_str(), "/dev/fuse", nullptr, MS_BIND, nullptr), 0) << ::strerror(errno);
  }
  void TearDown() override {
    if (!device_.empty()) ::umount2("/dev/fuse", MNT_DETACH);
    TwoUsers::TearDown();
  }

  fuse::MountOptions of_user() const {
    fuse::MountOptions wanted = options();
    wanted.store.ssd_directory = root_ + "/own/ssd";
    wanted.at_unmount = tier::Store::AtClose::kDrain;
    return wanted;
  }
  // A mount by the user; `before` runs in its process first, and may answer why it cannot go on. What
  // hindered it; "" if it is there.
  std::string mount_as_user(fuse::MountOptions options, const std::function<std::string()>& before = {}) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const auto say = [&](const std::string& text) {
      static_cast<void>(::write(ends[1], text.data(), text.size()));
      return 1;
    };
    options.ready = [&](const tier::RecoveryReport&) { say("+"); };
    child_ = start({kUser}, [&] {
      ::close(ends[0]);
      if (const std::string why = before ? before() : ""; !why.empty()) return say(why);
      const Status ended = fuse::run_mount(options);
      return ended.ok() ? 0 : say(ended.to_string());
    });
    ::close(ends[1]);
    char text[1024];
    const ssize_t got = ::read(ends[0], text, sizeof(text));
    ::close(ends[0]);
    if (got == 1 && text[0] == '+') return "";
    wait_for_mount();
    return got > 0 ? std::string(text, static_cast<size_t>(got)) : "it ended and said nothing";
  }
  // The lines of all threads' status files that begin with `name`.
  std::set<std::string> said_of_threads(const std::string& name) const {
    std::set<std::string> lines;
    for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", child_))) {
      std::ifstream status(thread.path() / "status");
      for (std::string line; std::getline(status, line);)
        if (line.starts_with(name)) lines.insert(line);
    }
    return lines;
  }
  static std::string owner(const std::string& path) {
    struct stat found;
    return ::lstat(path.c_str(), &found) != 0 ? std::strerror(errno) : std::to_string(found.st_uid);
  }

  std::string device_;
};

TEST_F(UserMountTest, ByFusermountItServesItsUserAlone) {
  if (::getpwuid(kUser) == nullptr) GTEST_SKIP() << "user " << kUser << " has no name here";
  struct stat helper;
  if (::stat("/usr/bin/fusermount3", &helper) != 0 || (helper.st_mode & S_ISUID) == 0 || helper.st_uid != 0)
    GTEST_SKIP() << "/usr/bin/fusermount3 is not root's with the set-uid bit: users cannot mount here";
  ASSERT_EQ(mount_as_user(of_user()), "");
  EXPECT_EQ(as({kUser}, [] { return open_and_close("mnt/f", O_CREAT | O_RDWR, 0644); }), 0);
  EXPECT_EQ(as({kBob}, [] { return open_and_close("mnt/f", O_RDONLY); }), EACCES);
  EXPECT_EQ(as({}, [] { return open_and_close("mnt/f", O_RDONLY); }), EACCES) << "root, too";
  EXPECT_EQ(as({kUser}, [] { return ::chown("mnt/f", kBob, kBob) == 0 ? 0 : errno; }), EPERM);
  EXPECT_EQ(as({kUser}, [] { return ::mknod("mnt/d", S_IFCHR | 0666, 0x103) == 0 ? 0 : errno; }), EPERM);
  EXPECT_EQ(said_of_threads("Uid:"), std::set<std::string>{fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}", kUser)});
  EXPECT_EQ(said_of_threads("CapPrm:"), std::set<std::string>{"CapPrm:\t0000000000000000"});
  EXPECT_EQ(as({kUser}, [this] { return take_mount_away() ? 0 : 1; }), 0);
  EXPECT_EQ(wait_for_mount(), 0);
  EXPECT_EQ(content("backing/f"), "bytes");
  EXPECT_EQ(owner("backing/f"), std::to_string(kUser));
  char id[64];
  EXPECT_GT(::getxattr("backing/f", tier::kIdAttribute, id, sizeof(id)), 0) << "an id of the user's kind";
  EXPECT_LT(::getxattr("backing/f", tier::kTrustedIdAttribute, id, sizeof(id)), 0);
}

// fusermount3 asks /etc/fuse.conf whether users may; where it says no, the message names the file.
TEST_F(UserMountTest, ForOthersOnlyWhereTheAdministratorAllowsIt) {
  if (said("grep -s '^user_allow_other' /etc/fuse.conf") != "")
    GTEST_SKIP() << "/etc/fuse.conf allows it here";
  fuse::MountOptions wanted = of_user();
  wanted.allow_other = true;
  EXPECT_NE(mount_as_user(wanted).find("user_allow_other"), std::string::npos);
}

// Its user is root there, and nowhere else: no right that the user has not.
TEST_F(UserMountTest, InAUserNamespaceItActsAsItsUser) {
  const auto become_root_there = []() -> std::string {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
      return fmt::format("skip: no user namespaces here: {}", std::strerror(errno));
    ::prctl(PR_SET_DUMPABLE, 1);  // its files in /proc are its own again
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", kUser);
    std::ofstream("/proc/self/gid_map") << fmt::format("0 {} 1", kUser);
    return ::geteuid() == 0 ? "" : "the map of users was not taken";
  };
  // Who uses the mount must be in its namespace: the mount is seen nowhere else. So all is done there.
  const auto use = [this](const tier::RecoveryReport&) {
    std::ofstream report(root_ + "/own/report");
    report << "write " << open_and_close(mountpoint() + "/f", O_CREAT | O_RDWR, 0644) << "\n";
    report << "root's " << open_and_close(mountpoint() + "/roots", O_RDWR) << "\n";
    report << "give " << (::chown((mountpoint() + "/f").c_str(), kBob, kBob) == 0 ? 0 : errno) << "\n";
    report << "device " << (::mknod((mountpoint() + "/d").c_str(), S_IFCHR | 0666, 0x103) == 0 ? 0 : errno)
           << "\n";
  };
  file("backing/roots", 0, 0600);
  const pid_t child = start({kUser}, [&] {
    std::string why = become_root_there();
    fuse::MountOptions wanted = of_user();
    const pid_t serving = ::getpid();
    wanted.ready = [&](const tier::RecoveryReport& recovery) {
      if (::fork() != 0) return;
      use(recovery);
      ::kill(serving, SIGTERM);
      ::_exit(0);
    };
    if (why.empty()) why = fuse::run_mount(wanted).to_string();
    std::ofstream(root_ + "/own/why") << why;
    return 0;
  });
  ::waitpid(child, nullptr, 0);
  const std::string why = content("own/why");
  if (why.starts_with("skip: ")) GTEST_SKIP() << why;
  EXPECT_EQ(why, Status().to_string());
  EXPECT_EQ(content("own/report"),
            fmt::format("write 0\nroot's {}\ngive {}\ndevice {}\n", EACCES, EINVAL, EPERM));
  EXPECT_EQ(content("backing/f"), "bytes");
  EXPECT_EQ(owner("backing/f"), std::to_string(kUser));
  EXPECT_EQ(content("backing/roots"), "text");
}

}  // namespace
}  // namespace swale::security::mount_user_test
