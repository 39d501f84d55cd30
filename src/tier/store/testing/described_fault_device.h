// DescribedFaultDevice: io::FaultDevice for tests of a Store, which needs files with descriptors of the operating system. What
// goes by a descriptor (mappings, seeks, times) does not fail.
// Threads: as FaultDevice.
#pragma once

#include "io/fault_device.h"
#include "io/posix_device.h"

namespace swale::tier {

// A file whose calls may go wrong, and whose descriptor is the operating system's.
class DescribedFile final : public io::File {
 public:
  DescribedFile(std::unique_ptr<io::File> faulty, std::unique_ptr<io::File> plain)
      : faulty_(std::move(faulty)), plain_(std::move(plain)) {}
  Result<size_t> pread(uint64_t offset, MutableBytes out) override { return faulty_->pread(offset, out); }
  Status pwrite(uint64_t offset, Bytes data) override { return faulty_->pwrite(offset, data); }
  Status sync() override { return faulty_->sync(); }
  Result<uint64_t> size() override { return faulty_->size(); }
  Status truncate(uint64_t size) override { return faulty_->truncate(size); }
  const std::string& path() const override { return faulty_->path(); }
  int descriptor() const override { return plain_->descriptor(); }

 private:
  std::unique_ptr<io::File> faulty_;
  std::unique_ptr<io::File> plain_;
};

// For a store, which needs descriptors.
class DescribedFaultDevice final : public io::Device {
 public:
  Result<std::unique_ptr<io::Device>> anchored(const std::string& directory) override {
    return faults.anchored(directory);
  }
  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    SWALE_ASSIGN_OR_RETURN(auto faulty, faults.open(path, mode));
    SWALE_ASSIGN_OR_RETURN(auto plain,
                           posix_.open(path, mode == io::OpenMode::kRead ? mode : io::OpenMode::kReadWrite));
    return std::unique_ptr<io::File>(new DescribedFile(std::move(faulty), std::move(plain)));
  }
  Status make_directory(const std::string& path) override { return faults.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return faults.rename(from, to); }
  Status rename_new(const std::string& from, const std::string& to) override {
    return faults.rename_new(from, to);
  }
  Status remove(const std::string& path) override { return faults.remove(path); }
  Status sync_directory(const std::string& path) override { return faults.sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return faults.list(path); }
  Result<bool> exists(const std::string& path) override { return faults.exists(path); }

 private:
  io::PosixDevice posix_;

 public:
  io::FaultDevice faults{posix_};
};

}  // namespace swale::tier
