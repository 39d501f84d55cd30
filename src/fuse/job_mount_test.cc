// The tree of a job through the kernel: random calls beside a plain directory, over lives of a server that
// end by a drain, without one, or by SIGKILL.
#include "fuse/job_mount.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "fs/job/testing/job_world.h"
#include "fs/testing/random_calls.h"
#include "fuse/testing/test_mount.h"

namespace swale::fuse::job_mount_test {
namespace {

constexpr uint64_t kCallsOfALife = 800;
enum class End { kDrain, kKeep, kKill };

uint64_t lives() {
  const char* factor = std::getenv("SWALE_MOUNT_LIVES");
  return factor ? std::strtoull(factor, nullptr, 10) : 6;
}

class JobMountTest : public MountRig {
 protected:
  std::string begin(End end) {
    JobMountOptions options;
    options.backing = backing();
    options.at = mountpoint();
    options.buffer = root_ + "/buffer";
    options.memory_bytes = 32 * kMiB;
    options.at_end = end == End::kDrain ? JobMountOptions::AtEnd::kDrain : JobMountOptions::AtEnd::kKeep;
    options.threads = 4;
    return start([&](const std::function<void()>& ready) {
      options.ready = [ready](const std::string&) { ready(); };
      return run_job_mount(options);
    });
  }
  void finish(End end) {
    if (end == End::kKill) return kill_mount();
    ::kill(child_, SIGTERM);
    EXPECT_EQ(wait_for_mount(), 0);
    EXPECT_FALSE(mounted());
  }
};

TEST_F(JobMountTest, RandomCallsGiveWhatAPlainDirectoryGivesAlsoAfterKills) {
  fs::PosixCalls tested(mountpoint());
  fs::PlainCalls model(plain(), fs::PlainCalls::Above::kKernel), on_backing(backing());
  uint64_t calls = 0;
  End before = End::kDrain;
  for (uint64_t life = 0; life < lives(); ++life) {
    const End end = static_cast<End>((life + 1) % 3);
    ASSERT_EQ(begin(end), "") << "life " << life;
    fs::RandomCalls random(tested, model, 9000 + life);
    if (before == End::kKill) random.even_times();  // a kill may leave others
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    ASSERT_EQ(random.run(kCallsOfALife), "") << "life " << life;
    ASSERT_EQ(random.compare_trees(), "") << "life " << life;
    finish(end);
    random.close_all();
    calls += random.calls();
    if (end == End::kDrain) {
      fs::RandomCalls compare(on_backing, model, 0);
      EXPECT_EQ(compare.compare_trees(), "") << "life " << life << ", the backing directory";
      EXPECT_FALSE(std::filesystem::exists(backing() + "/.swale"));
    }
    if (life + 1 == lives()) std::printf("%s\n%lu calls\n", random.summary().c_str(), calls);
    before = end;
  }
}

}  // namespace
}  // namespace swale::fuse::job_mount_test
