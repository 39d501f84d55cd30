// Power cuts on real file systems, ext4 and XFS, while the ranks of a real job write (cut_disk.h says what is
// lost). Every epoch that some rank was told of is there after the restart, whole; a later job appends.
// SWALE_FAULT_ROUNDS multiplies the cases (make test-long).
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/rng.h"
#include "tests/faults/cut_disk.h"
#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"

namespace swale::faults::power_cut_test {
namespace {

constexpr Seconds kPatience(120);
constexpr int kEpochs = 4;
constexpr uint64_t kRecords = 20'000;

uint64_t rounds() {
  const char* factor = std::getenv("SWALE_FAULT_ROUNDS");
  return factor != nullptr ? std::strtoull(factor, nullptr, 10) : 1;
}

LaunchParams job_on(const CutDisk& disk, const JobFiles& files, int size, int epochs, uint64_t records) {
  LaunchParams params = files.job(size, epochs, records);
  params.arguments[0] = disk.path() + "/directory";
  return params;
}

struct Tally {
  std::atomic<int> cuts{0}, told{0}, epochs{0};
};

// Where the cut comes: shortly after this line of rank 0.
constexpr const char* kAfter[] = {"joined", "open", "append 1", "end 1", "end 2", "closing"};

void run_case(const std::string& kind, uint64_t seed, Tally* tally) {
  Rng rng(seed);
  const JobFiles files;
  std::string why;
  const std::unique_ptr<CutDisk> disk = CutDisk::make(kind, files.scratch(), &why);
  ASSERT_NE(disk, nullptr) << why;
  const std::string after = kAfter[seed % std::size(kAfter)];
  const std::string name = fmt::format("{}, after \"{}\" (seed {})", kind, after, seed);
  const std::string path = disk->path() + "/directory";
  Launcher job(job_on(*disk, files, 1 + static_cast<int>(seed / 2 % 2), kEpochs, kRecords));
  ASSERT_TRUE(job.wait_for_line(0, after, kPatience)) << name << "\n" << job.describe();
  job.watch(Seconds(static_cast<double>(rng.below(20'000)) / 1e6));
  disk->cut();
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << name << ": somebody hangs\n" << job.describe();
  ++tally->cuts;
  for (int rank = 0; rank < job.size(); ++rank) {
    EXPECT_EQ(job.end(rank).signal, 0) << name << "\n" << job.describe();
    tally->told += job.end(rank).find("failed") != nullptr ? 1 : 0;
  }
  ASSERT_TRUE(disk->restart()) << name;
  const int64_t promised = promised_epochs(job);
  tally->epochs += static_cast<int>(promised);
  for (const std::string& problem : check_job_files(path, promised))
    ADD_FAILURE() << name << ": " << problem << "\n" << job.describe();
  Launcher later(job_on(*disk, files, 2, 1, 500));
  ASSERT_TRUE(later.wait_for_ends(kPatience)) << name << ": the later job hangs\n" << later.describe();
  for (int rank = 0; rank < later.size(); ++rank)
    EXPECT_EQ(later.end(rank).status, 0) << name << ": the later job\n" << later.describe();
  for (const std::string& problem : check_job_files(path, promised + 1))
    ADD_FAILURE() << name << ", after the later job: " << problem;
}

class PowerCut : public testing::TestWithParam<const char*> {
 protected:
  // Where it is refused, so are the mounts of a CutDisk.
  static void SetUpTestSuite() { static_cast<void>(keep_mounts_to_oneself()); }
  // What a disk of one's own lacks here (loop devices, root, mkfs.xfs); empty: nothing. That is said and is
  // no skip, which would fail CI on a machine whose kernel has no loop devices: the simulator cuts the power
  // everywhere.
  void SetUp() override {
    const JobFiles files;
    if (CutDisk::make(GetParam(), files.scratch(), &missing_) == nullptr)
      fmt::print("{}: no power cut on a real file system here: {}\n", GetParam(), missing_);
    else
      missing_.clear();
  }
  std::string missing_;
};
INSTANTIATE_TEST_SUITE_P(FileSystems, PowerCut, testing::Values("ext4", "xfs"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(PowerCut, KeepsEveryEpochThatARankWasToldOf) {
  if (!missing_.empty()) return;
  Tally tally;
  in_parallel(12 * rounds(), [&](size_t i) { run_case(GetParam(), i + 1, &tally); });
  EXPECT_EQ(tally.cuts, static_cast<int>(12 * rounds()));
  fmt::print("{}: {} power cuts, {} ranks told, {} epochs read back whole; the kernel has {}device mapper\n",
             GetParam(), tally.cuts.load(), tally.told.load(), tally.epochs.load(),
             has_device_mapper() ? "a " : "no ");
}

// Canary: the cut does cut. What was not synced is gone, what was synced is there, and a missing epoch is
// noticed.
TEST_P(PowerCut, LosesWhatWasNotSynced) {
  if (!missing_.empty()) return;
  const JobFiles files;
  std::string why;
  const std::unique_ptr<CutDisk> disk = CutDisk::make(GetParam(), files.scratch(), &why);
  ASSERT_NE(disk, nullptr) << why;
  const std::string content(100'000, 's');
  const auto write = [&](const std::string& name, bool sync) {
    const int file =
        ::open((disk->path() + "/" + name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
    if (sync) {
      ASSERT_EQ(::fsync(file), 0);
    }
    ::close(file);
  };
  write("synced", true);
  write("not-synced", false);
  Launcher job(job_on(*disk, files, 1, 1, 100));
  ASSERT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  // The kernel writes back by itself every few seconds, and may do so just before a cut, but not each time.
  bool lost = false;
  for (int time = 0; time < 5 && !lost; ++time) {
    const std::string name = fmt::format("not-synced-{}", time);
    write(name, false);
    disk->cut();
    ASSERT_TRUE(disk->restart());
    lost = !std::filesystem::exists(disk->path() + "/" + name);
  }
  EXPECT_TRUE(lost);
  EXPECT_EQ(std::filesystem::file_size(disk->path() + "/synced"), content.size());
  EXPECT_TRUE(check_job_files(disk->path() + "/directory", 1).empty());
  EXPECT_FALSE(check_job_files(disk->path() + "/directory", 2).empty());
}

}  // namespace
}  // namespace swale::faults::power_cut_test
