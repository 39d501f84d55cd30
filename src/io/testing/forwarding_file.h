// ForwardingFile: a file that passes all calls that every file has on to another one. Tests override those
// that they watch, change or make fail.
// Threads: as the other file.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "io/device.h"

namespace swale::io {

class ForwardingFile : public File {
 public:
  explicit ForwardingFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Result<size_t> pread(uint64_t offset, MutableBytes out) override { return file_->pread(offset, out); }
  Status pwrite(uint64_t offset, Bytes data) override { return file_->pwrite(offset, data); }
  Status sync() override { return file_->sync(); }
  Result<uint64_t> size() override { return file_->size(); }
  Status truncate(uint64_t size) override { return file_->truncate(size); }
  void announce(uint64_t offset, uint64_t bytes) override { file_->announce(offset, bytes); }
  const std::string& path() const override { return file_->path(); }
  int descriptor() const override { return file_->descriptor(); }

 private:
  const std::unique_ptr<File> file_;
};

}  // namespace swale::io
