// The devices that the contract tests run on: every Device, and PosixDevice with every engine and page-cache
// mode.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "io/device.h"
#include "io/fault_device.h"
#include "io/limited_device.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "io/virtual_device.h"

namespace swale::io {

// A directory of the operating system that is removed at the end of the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "swale-device-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A device and a directory of it that the test may fill.
class Fixture {
 public:
  virtual ~Fixture() = default;
  virtual Device& device() = 0;
  virtual std::string root() const = 0;

  // Why this machine cannot run this fixture; empty: it can.
  std::string unavailable() {
    const auto file = device().open(root() + "/probe", OpenMode::kCreate);
    if (!file.ok()) return file.status().to_string();
    const auto queue = device().make_queue(1);
    if (!queue.ok()) return queue.status().to_string();
    return device().remove(root() + "/probe").ok() ? "" : "the probe cannot be removed";
  }
};

class PosixFixture : public Fixture {
 public:
  explicit PosixFixture(PosixOptions options = {}) : device_(options) {}
  Device& device() override { return device_; }
  std::string root() const override { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  PosixDevice device_;
};

class MemoryFixture : public Fixture {
 public:
  Device& device() override { return device_; }
  std::string root() const override { return "/"; }

 private:
  MemoryDevice device_;
};

class FaultFixture : public Fixture {
 public:
  Device& device() override { return faults_; }
  std::string root() const override { return ""; }

 private:
  MemoryDevice memory_;
  FaultDevice faults_{memory_};
};

// With a limit that no test reaches.
class LimitedFixture : public Fixture {
 public:
  explicit LimitedFixture(const std::function<std::unique_ptr<Fixture>()>& make) : below_(make()) {}
  Device& device() override { return limited_; }
  std::string root() const override { return below_->root(); }

 private:
  const std::unique_ptr<Fixture> below_;
  LimitedDevice limited_{below_->device(), 1'000'000'000'000};
};

// On a disk in virtual time, which passes as the calls need it.
class VirtualFixture : public Fixture {
 public:
  explicit VirtualFixture(const char* model) : virtual_(memory_, *disk_model(model), clock_) {}
  Device& device() override { return virtual_; }
  std::string root() const override { return ""; }

 private:
  MemoryDevice memory_;
  ManualClock clock_;
  VirtualDevice virtual_;
};

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Fixture>()> make;
};

inline void PrintTo(const Implementation& implementation, std::ostream* out) { *out << implementation.name; }

template <class T, class... Args>
Implementation implementation(std::string name, Args... args) {
  return {std::move(name), [args...] { return std::make_unique<T>(args...); }};
}

inline std::vector<Implementation> posix_implementations() {
  using Engine = PosixOptions::Engine;
  using Direct = PosixOptions::Direct;
  return {
      implementation<PosixFixture>("PosixUringBuffered", PosixOptions{Engine::kUring, Direct::kNever}),
      implementation<PosixFixture>("PosixUringDirect", PosixOptions{Engine::kUring, Direct::kAlways}),
      implementation<PosixFixture>("PosixThreadsBuffered", PosixOptions{Engine::kThreads, Direct::kNever}),
      implementation<PosixFixture>("PosixThreadsDirect", PosixOptions{Engine::kThreads, Direct::kAlways})};
}

inline std::vector<Implementation> all_implementations() {
  std::vector<Implementation> all = posix_implementations();
  all.push_back(implementation<PosixFixture>("Posix"));
  all.push_back(implementation<MemoryFixture>("Memory"));
  all.push_back(implementation<FaultFixture>("Fault"));
  all.push_back(implementation<VirtualFixture>("VirtualDisk", "paper-fitted"));
  all.push_back(implementation<VirtualFixture>("VirtualFlash", "cloud-ssd"));
  const size_t plain = all.size();
  for (size_t i = 0; i < plain; ++i)
    all.push_back(implementation<LimitedFixture>("Limited" + all[i].name, all[i].make));
  return all;
}

// Runs each test over the implementation that is its parameter, or skips it where this machine cannot.
class OverDevices : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    fixture_ = GetParam().make();
    const std::string reason = fixture_->unavailable();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  Device& device() { return fixture_->device(); }
  std::string in_root(const std::string& name) { return fixture_->root() + "/" + name; }
  std::unique_ptr<File> open(const std::string& name, OpenMode mode) {
    Result<std::unique_ptr<File>> file = device().open(in_root(name), mode);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? std::move(file).value() : nullptr;
  }
  void write(const std::string& name, Bytes content) {
    const auto file = open(name, OpenMode::kOpenOrCreate);
    ASSERT_TRUE(file->truncate(0).ok());
    ASSERT_TRUE(file->pwrite(0, content).ok());
  }
  std::string read(const std::string& name) {
    const Result<std::string> content = read_file(device(), in_root(name), 64 * kMiB);
    return content.ok() ? *content : content.status().to_string();
  }

  std::unique_ptr<Fixture> fixture_;
};

inline std::string implementation_name(const ::testing::TestParamInfo<Implementation>& info) {
  return info.param.name;
}

}  // namespace swale::io
