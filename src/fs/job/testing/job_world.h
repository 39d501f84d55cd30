// A job of one node with its tree, without a kernel: opened, killed and opened again on the same folders.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/rng.h"
#include "fs/job/job_fs.h"
#include "fs/testing/file_system_calls.h"
#include "fs/testing/plain_calls.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs {

class JobWorld {
 public:
  // kLosesPower: the folders of the node are on a disk that lose_power() can take what was not synced from;
  // fsync does not drain.
  enum class Storage { kPlain, kLosesPower };
  explicit JobWorld(Storage storage = Storage::kPlain) : old_mask_(::umask(0)), kind_(storage) {
    // Beside the program: /tmp may be without extended attributes.
    root_ = (std::filesystem::current_path() / "job-fs-XXXXXX").string();
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    memory_ = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/swale-job-XXXXXX" : root_ + "/memory-XXXXXX";
    EXPECT_NE(::mkdtemp(memory_.data()), nullptr);
    std::filesystem::create_directory(backing());
    std::filesystem::create_directory(plain());
    options_.backing = backing();
    options_.job = "test";
    buffer_ = storage == Storage::kPlain ? root_ + "/buffer" : "/buffer";
    options_.fsync_drains = storage == Storage::kPlain;
    options_.logs.outlives_power = !options_.fsync_drains;
    options_.state_folder = buffer_ + "/state";
    options_.logs.memory_directory = memory_ + "/node";
    options_.logs.spill_directory = buffer_ + "/spill";
    options_.logs.memory_bytes = 32 * kMiB;
    options_.logs.shape.node = "here";
    options_.logs.shape.wait_ns = 60'000'000'000;
    options_.drains_alone = false;
  }
  ~JobWorld() {
    stop();
    ::umask(old_mask_);
    std::filesystem::remove_all(root_);
    std::filesystem::remove_all(memory_);
  }
  JobWorld(const JobWorld&) = delete;
  JobWorld& operator=(const JobWorld&) = delete;

  std::string backing() const { return root_ + "/backing"; }
  std::string plain() const { return root_ + "/plain"; }
  JobFsOptions& options() { return options_; }
  JobFs& fs() { return *fs_; }
  meta::NamesClient& names() { return names_->client(); }
  io::FaultDevice& disk() { return faulty_disk_; }  // of kLosesPower
  // What JobFs has of these goes through them. (kPlain; the names have devices of their own.)
  bool devices_may_fail = false;
  io::FaultDevice& memory_faults() { return faulty_memory_; }
  io::FaultDevice& storage_faults() { return faulty_storage_; }
  io::FaultDevice& backing_faults() { return *faulty_backing_; }
  FileSystemCalls& calls() { return *calls_; }

  void start() {
    net::JobOptions of_job;
    of_job.transport = "loopback";
    of_job.posting = "direct";
    auto job = net::Job::open(net::solo_bootstrap(), of_job);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    job_ = std::move(*job);
    meta::JobNamesOptions of_names;
    of_names.deadline = seconds(60);
    auto names = meta::JobNames::open(*job_, storage(), buffer_ + "/names", of_names);
    ASSERT_TRUE(names.ok()) << names.status().to_string();
    names_ = std::move(*names);
    auto fs = open_fs();
    ASSERT_TRUE(fs.ok()) << fs.status().to_string();
    fs_ = std::move(*fs);
    calls_ = std::make_unique<FileSystemCalls>(*fs_);
  }
  // As a kill leaves it: nothing is drained.
  void stop() {
    calls_.reset();
    fs_.reset();
    if (names_) {
      EXPECT_TRUE(names_->close().ok());
    }
    names_.reset();
    if (job_) {
      EXPECT_TRUE(job_->close().ok());
    }
    job_.reset();
  }
  void restart() {
    stop();
    start();
  }
  // The backing keeps all that it has been told.
  void lose_power(uint64_t seed, io::CrashMode mode) {
    calls_.reset();
    Rng rng(seed);
    disk_.crash(rng, mode);
    fs_.reset();
    static_cast<void>(names_->close());
    names_.reset();
    static_cast<void>(job_->close());
    job_.reset();
    std::filesystem::remove_all(options_.logs.memory_directory);
    start();
  }

 private:
  Result<std::unique_ptr<JobFs>> open_fs() {
    if (!devices_may_fail)
      return JobFs::open(names_->client(), device_, storage(), backing_device(), options_);
    if (!faulty_backing_) faulty_backing_ = std::make_unique<io::FaultDevice>(backing_device());
    for (io::FaultDevice* const each : {&faulty_memory_, &faulty_storage_, faulty_backing_.get()})
      each->show_descriptors();
    return JobFs::open(names_->client(), faulty_memory_, faulty_storage_, *faulty_backing_, options_);
  }
  io::Device& storage() {
    return kind_ == Storage::kPlain ? static_cast<io::Device&>(device_) : faulty_disk_;
  }
  io::Device& backing_device() {
    if (!anchored_) {
      io::PosixOptions options;
      options.links = io::PosixOptions::Links::kNone;
      auto anchored = io::PosixDevice(options).anchored(backing());
      EXPECT_TRUE(anchored.ok()) << anchored.status().to_string();
      anchored_ = std::move(*anchored);
    }
    return *anchored_;
  }

  const mode_t old_mask_;
  const Storage kind_;
  std::string root_;
  std::string buffer_;
  std::string memory_;
  JobFsOptions options_;
  io::PosixDevice device_;
  io::MemoryDevice disk_;
  io::FaultDevice faulty_disk_{disk_};
  io::FaultDevice faulty_memory_{device_};
  io::FaultDevice faulty_storage_{device_};
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<io::FaultDevice> faulty_backing_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<JobFs> fs_;
  std::unique_ptr<FileSystemCalls> calls_;
};

// Files a, b and d/c, a link l to a, and a directory without files.
inline void make_small_tree(const std::string& root) {
  std::filesystem::create_directories(root + "/d");
  std::filesystem::create_directories(root + "/empty");
  std::ofstream(root + "/a") << "bytes of a";
  std::ofstream(root + "/b") << "bytes of b";
  std::ofstream(root + "/d/c") << "bytes of c";
  std::filesystem::create_symlink("a", root + "/l");
}

}  // namespace swale::fs
