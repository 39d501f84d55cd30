// DescribedFaultDevice: io::FaultDevice for tests of a Store, which needs files with descriptors of the
// operating system. What goes by a descriptor (mappings, seeks, times) does not fail.
// Threads: as FaultDevice.
#pragma once

#include "io/fault_device.h"
#include "io/posix_device.h"
#include "io/testing/forwarding_file.h"

namespace swale::tier {

// A file whose calls may go wrong, and whose descriptor is the operating system's.
class DescribedFile final : public io::ForwardingFile {
 public:
  DescribedFile(std::unique_ptr<io::File> faulty, std::unique_ptr<io::File> plain)
      : ForwardingFile(std::move(faulty)), plain_(std::move(plain)) {}
  int descriptor() const override { return plain_->descriptor(); }

 private:
  std::unique_ptr<io::File> plain_;
};

// For a store, which needs descriptors. An anchored one has the faults of the one that it was made from.
class DescribedDevice : public io::Device {
 public:
  DescribedDevice(io::Device& faults, io::Device& plain) : faults_(faults), plain_(plain) {}
  DescribedDevice(std::unique_ptr<io::Device> faults, std::unique_ptr<io::Device> plain)
      : own_faults_(std::move(faults)),
        own_plain_(std::move(plain)),
        faults_(*own_faults_),
        plain_(*own_plain_) {}

  Result<std::unique_ptr<io::Device>> anchored(const std::string& directory) override {
    SWALE_ASSIGN_OR_RETURN(auto faulty, faults_.anchored(directory));
    SWALE_ASSIGN_OR_RETURN(auto plain, plain_.anchored(directory));
    return std::unique_ptr<io::Device>(new DescribedDevice(std::move(faulty), std::move(plain)));
  }
  Result<std::unique_ptr<io::Device>> anchored_private(const std::string& directory) override {
    SWALE_ASSIGN_OR_RETURN(auto faulty, faults_.anchored_private(directory));
    SWALE_ASSIGN_OR_RETURN(auto plain, plain_.anchored_private(directory));
    return std::unique_ptr<io::Device>(new DescribedDevice(std::move(faulty), std::move(plain)));
  }
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    SWALE_ASSIGN_OR_RETURN(auto faulty, faults_.open(path, mode));
    SWALE_ASSIGN_OR_RETURN(auto plain,
                           plain_.open(path, mode == io::OpenMode::kRead ? mode : io::OpenMode::kReadWrite));
    return std::unique_ptr<io::File>(new DescribedFile(std::move(faulty), std::move(plain)));
  }
  Status make_directory(const std::string& path) override { return faults_.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return faults_.rename(from, to); }
  Status rename_new(const std::string& from, const std::string& to) override {
    return faults_.rename_new(from, to);
  }
  Status remove(const std::string& path) override { return faults_.remove(path); }
  Status sync_directory(const std::string& path) override { return faults_.sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return faults_.list(path); }
  Result<bool> exists(const std::string& path) override { return faults_.exists(path); }

 private:
  const std::unique_ptr<io::Device> own_faults_;
  const std::unique_ptr<io::Device> own_plain_;
  io::Device& faults_;
  io::Device& plain_;
};

struct FaultsOfPosix {
  io::PosixDevice posix;
  io::FaultDevice faults{posix};
};

class DescribedFaultDevice final : private FaultsOfPosix, public DescribedDevice {
 public:
  DescribedFaultDevice() : DescribedDevice(FaultsOfPosix::faults, posix) {}
  using FaultsOfPosix::faults;
};

}  // namespace swale::tier
