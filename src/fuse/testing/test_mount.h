// MountRig: a test with a mount in a child process, and the directories that it needs: backing, plain (for
// comparison) and mnt.
// Threads: one test at a time. Skips where the machine allows no mounts.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "fuse/mount.h"
#include "tier/store/serving_options.h"

namespace swale::fuse {

// Why this machine allows no FUSE mount; "" if it does. As root it is tried: a container may have /dev/fuse
// alone.
inline std::string why_no_mounts() {
  const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) return fmt::format("/dev/fuse: {}", ::strerror(errno));
  std::string why;
  std::string folder = (std::filesystem::temp_directory_path() / "swale-probe-XXXXXX").string();
  if (::geteuid() == 0 && ::mkdtemp(folder.data()) != nullptr) {
    const std::string options = fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", device);
    if (::mount("swale-probe", folder.c_str(), "fuse", 0, options.c_str()) != 0) {
      why = fmt::format("mount: {}", ::strerror(errno));
    } else {
      ::umount2(folder.c_str(), MNT_DETACH);  // nobody serves it
    }
    ::rmdir(folder.c_str());
  }
  ::close(device);
  return why;
}

class MountRig : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string why = why_no_mounts();
    if (!why.empty())
      GTEST_SKIP() << "no FUSE mounts here: " << why
                   << "; in a container, add --device /dev/fuse --cap-add SYS_ADMIN";
    // Beside the program: /tmp may be without extended attributes.
    root_ = (std::filesystem::current_path() / "mount-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    for (const char* name : {"backing", "plain", "mnt"})
      std::filesystem::create_directory(root_ + "/" + name);
    old_mask_ = ::umask(022);
  }
  void TearDown() override {
    if (root_.empty()) return;
    ::umask(old_mask_);
    if (child_ > 0) kill_mount();
    std::filesystem::remove_all(root_);
  }

  std::string backing() const { return root_ + "/backing"; }
  std::string plain() const { return root_ + "/plain"; }
  std::string mountpoint() const { return root_ + "/mnt"; }
  MountOptions options() const {
    MountOptions options;
    options.mountpoint = mountpoint();
    options.store = tier::serving_options(root_ + "/ssd", backing(), 16 * kMiB);
    options.store.engine.policy = tier::Policy::kSsdBlocking;
    options.threads = 4;
    return options;
  }

  // Serves a mount in a child process. Returns when it is there (`ready`); what hindered it otherwise.
  std::string start(const std::function<Status(const std::function<void()>& ready)>& serve) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      bool was_there = false;
      const Status ended = serve([&] {
        was_there = true;
        static_cast<void>(::write(ends[1], "+", 1));
      });
      const std::string text = ended.to_string();
      if (ended.ok()) ::_exit(0);
      // Nobody reads the pipe once the mount was there.
      static_cast<void>(was_there ? std::fprintf(stderr, "the mount's end: %s\n", text.c_str())
                                  : ::write(ends[1], text.data(), text.size()));
      ::_exit(1);
    }
    ::close(ends[1]);
    char text[1024];
    const ssize_t got = ::read(ends[0], text, sizeof(text));
    ::close(ends[0]);
    if (got == 1 && text[0] == '+') return "";
    wait_for_mount();
    return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
  }
  std::string mount(MountOptions options) {
    return start([&options](const std::function<void()>& ready) {
      options.ready = [&ready, own = options.ready](const tier::RecoveryReport& report) {
        if (own) own(report);
        ready();
      };
      return run_mount(options);
    });
  }
  int wait_for_mount() {
    int state = 0;
    ::waitpid(child_, &state, 0);
    child_ = 0;
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }
  // A mount is busy while any process of the machine looks at all mounts (df, fuser): then it tries again.
  bool take_mount_away() const {
    constexpr int kTriesMax = 3000;
    for (int tries = 0; tries < kTriesMax; ++tries) {
      if (tries > 0) ::usleep(20'000);
      if (std::system(("fusermount3 -u " + mountpoint()).c_str()) == 0) return true;
    }
    return false;
  }
  int unmount() {
    const bool gone = take_mount_away();
    EXPECT_TRUE(gone) << mountpoint() << " stays busy";
    if (gone) return wait_for_mount();
    kill_mount();
    return -1;
  }
  void kill_mount() {
    ::kill(child_, SIGKILL);
    wait_for_mount();
    static_cast<void>(std::system(("fusermount3 -uz " + mountpoint()).c_str()));
  }
  bool mounted() const {
    struct stat inside, outside;
    return ::stat(mountpoint().c_str(), &inside) != 0 || ::stat(root_.c_str(), &outside) != 0 ||
           inside.st_dev != outside.st_dev;
  }
  // Threads of the mount's process that a signal may come to.
  std::vector<std::string> threads_that_take(int signal) const {
    std::vector<std::string> takers;
    for (const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", child_))) {
      std::ifstream status(each.path() / "status");
      for (std::string word; status >> word;) {
        if (word != "SigBlk:") continue;
        uint64_t blocked = 0;
        status >> std::hex >> blocked;
        if ((blocked >> (signal - 1) & 1) == 0) takers.push_back(each.path().filename());
      }
    }
    return takers;
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string root_;
  pid_t child_ = 0;
  mode_t old_mask_ = 0;
};

}  // namespace swale::fuse
