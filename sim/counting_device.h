// CountingDevice: storage that keeps nothing and counts what it is given, for simulations of which only the
// bytes matter.
// Reading back is kNotFound: nothing of a writer that has memory enough does so.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/device.h"

namespace swale::sim {

class CountingDevice final : public io::Device {
 public:
  uint64_t written_bytes() const { return written_bytes_; }

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenMode mode) override {
    if (mode == io::OpenMode::kRead || mode == io::OpenMode::kReadWrite) return keeps_nothing(path);
    return std::unique_ptr<io::File>(std::make_unique<CountingFile>(*this, path));
  }
  Result<std::unique_ptr<io::Device>> anchored(const std::string& directory) override {
    return keeps_nothing(directory);
  }
  Status make_directory(const std::string& /*path*/) override { return {}; }
  Status rename(const std::string& /*from*/, const std::string& /*to*/) override { return {}; }
  Status rename_new(const std::string& /*from*/, const std::string& /*to*/) override { return {}; }
  Status remove(const std::string& /*path*/) override { return {}; }
  Status sync_directory(const std::string& /*path*/) override { return {}; }
  Result<std::vector<std::string>> list(const std::string& /*path*/) override {
    return std::vector<std::string>();
  }
  Result<bool> exists(const std::string& /*path*/) override { return false; }

 private:
  class CountingFile final : public io::File {
   public:
    CountingFile(CountingDevice& device, std::string path) : device_(device), path_(std::move(path)) {}
    Result<size_t> pread(uint64_t /*offset*/, MutableBytes /*out*/) override { return keeps_nothing(path_); }
    Status pwrite(uint64_t /*offset*/, Bytes data) override {
      device_.written_bytes_ += data.size();
      return {};
    }
    Status sync() override { return {}; }
    Result<uint64_t> size() override { return keeps_nothing(path_); }
    Status truncate(uint64_t /*size*/) override { return {}; }
    const std::string& path() const override { return path_; }

   private:
    CountingDevice& device_;
    const std::string path_;
  };

  static Status keeps_nothing(const std::string& path) {
    return error(Code::kNotFound, Scope::kFile, "{}: this device only counts what is written", path);
  }

  uint64_t written_bytes_ = 0;
};

}  // namespace swale::sim
