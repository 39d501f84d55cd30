// The limits of the backing file system hold for those who write through a mount by root: a flush by root
// takes no more than its caller could. Each on a small file system of its own, in a file; skipped, with the
// kernel's word for it, where that has no such limit.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/quota.h>
#include <sys/mount.h>
#include <sys/quota.h>
#include <sys/statvfs.h>

#include "fuse/kept_blocks.h"
#include "tests/security/two_users.h"

namespace swale::security::mount_quota_test {
namespace {

constexpr uint64_t kDiskMib = 160;
constexpr uint64_t kLimitMib = 8;

class MountLimitsTest : public TwoUsers {
 protected:
  void TearDown() override {
    if (child_ > 0) kill_mount();
    if (is_mounted_) ::umount2("backing", MNT_DETACH);
    is_mounted_ = false;
    TwoUsers::TearDown();
  }
  // A small disk below "backing". "": it is there; else why not.
  std::string make_disk(const std::string& maker, const std::string& type, const std::string& options) {
    if (std::system(("command -v mkfs." + type + " > /dev/null").c_str()) != 0)
      return "mkfs." + type + " is not installed";
    if (std::system(fmt::format("truncate -s {}M disk && {} disk > made 2>&1", kDiskMib, maker).c_str()) != 0)
      return content("made");
    const std::string mount = fmt::format("mount -o loop,{} disk backing > made 2>&1", options);
    if (std::system(mount.c_str()) != 0) return content("made");
    is_mounted_ = true;
    EXPECT_EQ(::chmod("backing", 0777), 0);
    return "";
  }
  // Writes this much into a new file through the mount, as Alice: 0, or the errno that a write, or at last
  // fsync or close, has told.
  int write_as_alice(const std::string& path, uint64_t mib) const {
    return as({kAlice}, [&] {
      const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
      if (file < 0) return errno;
      const std::string bytes(kMiB, 'a');
      int failed = 0;
      for (uint64_t i = 0; i < mib && failed == 0; ++i)
        if (::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(i * kMiB)) < 0) failed = errno;
      if (::fsync(file) != 0 && failed == 0) failed = errno;
      if (::close(file) != 0 && failed == 0) failed = errno;
      return failed;
    });
  }
  // Root of a container may be without that right.
  static bool may_pass_over_limits() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("CapEff:"))
        return std::stoull(line.substr(8), nullptr, 16) >> CAP_SYS_RESOURCE & 1;
    return false;
  }
  static uint64_t mib_of(const std::string& path) {
    struct stat found;
    return ::stat(path.c_str(), &found) != 0 ? 0 : static_cast<uint64_t>(found.st_blocks) * 512 / kMiB;
  }
  fuse::MountOptions drained() const {
    fuse::MountOptions wanted = for_others();
    wanted.store.engine.policy = tier::Policy::kSsdBlocking;
    wanted.store.engine.segment_count = 4;
    return wanted;
  }

  bool is_mounted_ = false;
};

// A user's quota: the blocks count for the owner of the file, whoever flushes them.
TEST_F(MountLimitsTest, AUsersQuotaHoldsAndIsToldAtFsyncOrClose) {
  const std::string why = make_disk("mkfs.ext4 -q -O quota", "ext4", "usrquota");
  if (!why.empty()) GTEST_SKIP() << "no ext4 with user quotas here: " << why;
  std::string device = said("findmnt -no SOURCE backing");
  device.pop_back();
  if_dqblk limit{};
  limit.dqb_bhardlimit = limit.dqb_bsoftlimit = kLimitMib * 1024;  // KiB
  limit.dqb_valid = QIF_BLIMITS;
  ASSERT_EQ(::quotactl(QCMD(Q_SETQUOTA, USRQUOTA), device.c_str(), static_cast<int>(kAlice),
                       reinterpret_cast<caddr_t>(&limit)),
            0)
      << ::strerror(errno);
  EXPECT_EQ(write_as_alice("backing/plain", 2 * kLimitMib), EDQUOT);
  ASSERT_EQ(::unlink("backing/plain"), 0);
  ASSERT_EQ(mount(drained()), "");
  EXPECT_EQ(write_as_alice("mnt/over", 2 * kLimitMib), EDQUOT);
  EXPECT_EQ(write_as_alice("mnt/more", 1), EDQUOT);
  EXPECT_EQ(shell({}, "rm mnt/over mnt/more"), 0);
  EXPECT_EQ(write_as_alice("mnt/within", kLimitMib / 2), 0) << "what was removed counts no more";
  EXPECT_EQ(as({}, [] { return std::ofstream("mnt/roots").put('r').good() ? 0 : 1; }), 0);
  EXPECT_EQ(unmount(), 0);
}

// btrfs limits a folder (a subvolume) in place of a user, and lets nobody pass but who may pass over limits.
TEST_F(MountLimitsTest, AFoldersLimitHoldsAndIsToldAtFsyncOrClose) {
  const std::string why = make_disk("mkfs.btrfs -q", "btrfs", "noatime");
  if (!why.empty()) GTEST_SKIP() << "no btrfs here: " << why;
  ASSERT_EQ(std::system(fmt::format("btrfs quota enable backing > made 2>&1 && btrfs subvolume create "
                                    "backing/limited >> made 2>&1 && chmod 777 backing/limited && btrfs "
                                    "qgroup limit {}M backing/limited >> made 2>&1",
                                    kLimitMib)
                            .c_str()),
            0)
      << content("made");
  EXPECT_EQ(write_as_alice("backing/limited/plain", 2 * kLimitMib), EDQUOT);
  ASSERT_EQ(::unlink("backing/limited/plain"), 0);
  ASSERT_EQ(std::system("sync; btrfs filesystem sync backing > made 2>&1"), 0);
  ASSERT_EQ(mount(drained()), "");
  EXPECT_EQ(write_as_alice("mnt/limited/over", 2 * kLimitMib), EDQUOT);
  EXPECT_EQ(write_as_alice("mnt/outside", 2 * kLimitMib), 0) << "others go on";
  EXPECT_LE(mib_of("backing/limited/over"), kLimitMib);
  EXPECT_EQ(shell({}, "rm mnt/limited/over"), 0);
  EXPECT_EQ(unmount(), 0);
}

// ext4 keeps a part of the disk for processes of one user, root if nobody says more, and for those that may
// pass over limits. A flush is root's: so the mount takes that part, unless it is kept for another user
// (resuid). Root itself may pass over limits; the mount has given that right up.
TEST_F(MountLimitsTest, WhatIsKeptForRootIsNotTakenByAUserWhereResuidIsSet) {
  const std::string why = make_disk("mkfs.ext4 -q -m 20", "ext4", "noatime,resuid=1");
  if (!why.empty()) GTEST_SKIP() << "no ext4 here: " << why;
  EXPECT_EQ(fuse::warning_of_kept_blocks("backing"), "");
  const auto free_mib = [] {
    struct statvfs found;
    EXPECT_EQ(::statvfs("backing", &found), 0);
    return found.f_bfree * found.f_frsize / kMiB;
  };
  EXPECT_EQ(write_as_alice("backing/plain", kDiskMib), ENOSPC);
  const uint64_t kept = free_mib();
  ASSERT_GT(kept, kDiskMib / 10) << "the plain file system keeps some";
  ASSERT_EQ(::unlink("backing/plain"), 0);
  ASSERT_EQ(mount(drained()), "");
  EXPECT_EQ(write_as_alice("mnt/all", kDiskMib), ENOSPC);
  EXPECT_GE(free_mib() + 2, kept);
  if (may_pass_over_limits()) {
    const std::string part(kMiB, 'r');
    EXPECT_TRUE((std::ofstream("backing/roots") << part).flush().good()) << "root has it";
  }
  EXPECT_EQ(shell({}, "rm mnt/all"), 0);
  // Its handles end in the background. A flush of it that still runs when all is drained fails, and the end
  // with it.
  for (int tries = 0; free_mib() < kDiskMib / 2 && tries < 6000; ++tries) ::usleep(10'000);
  EXPECT_GE(free_mib(), kDiskMib / 2) << "it still has its blocks";
  EXPECT_EQ(unmount(), 0);
}

TEST_F(MountLimitsTest, WhoMountsForOthersIsToldWhatIsKeptForRoot) {
  const std::string why = make_disk("mkfs.ext4 -q -m 20", "ext4", "noatime");
  if (!why.empty()) GTEST_SKIP() << "no ext4 here: " << why;
  const std::string told = fuse::warning_of_kept_blocks("backing");
  EXPECT_NE(told.find("backing: its file system keeps"), std::string::npos) << told;
  EXPECT_NE(told.find("resuid=1"), std::string::npos) << told;
  EXPECT_EQ(fuse::warning_of_kept_blocks("/proc"), "");
}

}  // namespace
}  // namespace swale::security::mount_quota_test
