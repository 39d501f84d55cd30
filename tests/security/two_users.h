// TwoUsers: a mount by root that serves everybody, and two ordinary users who call it; needs root. The users
// exist by their numbers alone.
// Threads: one test at a time; a user is a child process.
#pragma once

#include <grp.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fuse/testing/test_mount.h"

namespace swale::security {

inline constexpr uid_t kAlice = 20001, kBob = 20002;
inline constexpr gid_t kTeam = 20100;  // Alice's and Bob's, as a supplementary group

struct User {
  uid_t id = 0;
  std::vector<gid_t> groups = {};
};

class TwoUsers : public fuse::MountRig {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs two users: run it as root";
    MountRig::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
    const int here = ::chdir(root_.c_str());  // users need no way to it from above
    ASSERT_EQ(here, 0);
  }
  void TearDown() override {
    if (::chdir("..") == 0) MountRig::TearDown();
  }

  // What `body` answers, in a process of the user: 0 or an errno.
  int as(const User& user, const std::function<int()>& body) const {
    const pid_t child = start(user, body);
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 255;
  }
  pid_t start(const User& user, const std::function<int()>& body) const {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::umask(022);
    if (user.id != 0 &&
        (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
         ::setresgid(user.id, user.id, user.id) != 0 || ::setresuid(user.id, user.id, user.id) != 0))
      ::_exit(254);
    ::_exit(body());
  }
  int shell(const User& user, const std::string& command) const {
    return as(user, [&] {
      const int state = std::system(("exec >/dev/null 2>&1; " + command).c_str());
      return WIFEXITED(state) ? WEXITSTATUS(state) : 255;
    });
  }
  // What a command says, run by root.
  static std::string said(const std::string& command) {
    std::string text;
    FILE* const pipe = ::popen(command.c_str(), "r");
    char part[512];
    while (pipe != nullptr && std::fgets(part, sizeof(part), pipe) != nullptr) text += part;
    if (pipe != nullptr) ::pclose(pipe);
    return text;
  }

  fuse::MountOptions for_others() const {
    fuse::MountOptions wanted = options();
    wanted.allow_other = true;
    wanted.at_unmount = tier::Store::AtClose::kDrain;
    return wanted;
  }

  // The same in the plain directory and in the backing one, by root, before the mount.
  void in_both(const std::function<void(const std::string& root)>& make) {
    for (const char* root : {"plain", "backing"}) make(root);
  }
  static void file(const std::string& path, uid_t owner, mode_t mode, const std::string& content = "text") {
    std::ofstream(path) << content;
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  static void folder(const std::string& path, uid_t owner, mode_t mode) {
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }

  // Each name below `root`: mode, owner, group, size, links, and its ACLs.
  static std::map<std::string, std::string> rights(const std::string& root) {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string path = entry.path().string(), name = path.substr(root.size() + 1);
      if (name.starts_with(".swale-tier")) continue;
      struct stat state = {};
      EXPECT_EQ(::lstat(path.c_str(), &state), 0) << path;
      found[name] = fmt::format("mode {:o} owner {}:{} links {} size {}", state.st_mode, state.st_uid,
                                state.st_gid, S_ISDIR(state.st_mode) ? 0 : state.st_nlink,
                                S_ISREG(state.st_mode) ? state.st_size : 0);
      if (!S_ISLNK(state.st_mode)) found[name] += "\n" + said("getfacl -npE --omit-header '" + path + "'");
    }
    return found;
  }
};

}  // namespace swale::security
