// FileCalls: what the random test (random_calls.h) asks of a file system, by path and handle; each call
// answers 0 or an errno.
//
// PosixCalls makes system calls below a directory: a plain one, or a mount. The tests of TierFs have one
// without a kernel.
// Threads: one.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace swale::fs {

class FileCalls {
 public:
  virtual ~FileCalls() = default;

  virtual int open(const std::string& path, int flags, mode_t mode, int* handle) = 0;
  virtual int close(int handle) = 0;
  virtual int write(int handle, uint64_t offset, Bytes data) = 0;  // with O_APPEND: at the end
  virtual int read(int handle, uint64_t offset, size_t size, std::string* out) = 0;
  virtual int map_write(int handle, uint64_t offset, Bytes data) = 0;  // within the file, and synced
  virtual int map_read(int handle, uint64_t offset, size_t size, std::string* out) = 0;
  virtual int resize(int handle, uint64_t size) = 0;
  virtual int sync(int handle) = 0;
  virtual int allocate(int handle, int mode, uint64_t offset, uint64_t length) = 0;
  virtual int seek(int handle, uint64_t offset, int whence, uint64_t* found) = 0;
  virtual int copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t length,
                   uint64_t* copied) = 0;
  virtual int state(int handle, struct stat* state) = 0;

  virtual int truncate(const std::string& path, uint64_t size) = 0;
  virtual int look(const std::string& path, struct stat* state) = 0;  // lstat
  virtual int unlink(const std::string& path) = 0;
  virtual int rename(const std::string& from, const std::string& to, unsigned flags) = 0;
  virtual int link(const std::string& from, const std::string& to) = 0;
  virtual int make_symlink(const std::string& target, const std::string& path) = 0;
  virtual int read_symlink(const std::string& path, std::string* target) = 0;
  virtual int make_directory(const std::string& path, mode_t mode) = 0;
  virtual int remove_directory(const std::string& path) = 0;
  virtual int list(const std::string& path,
                   std::vector<std::string>* names) = 0;  // sorted, without "." and ".."
  virtual int set_mode(const std::string& path, mode_t mode) = 0;
  virtual int set_time(const std::string& path, int64_t modified_s) = 0;
  virtual int set_attribute(const std::string& path, const std::string& name, const std::string& value) = 0;
  virtual int get_attribute(const std::string& path, const std::string& name, std::string* value) = 0;
  virtual int remove_attribute(const std::string& path, const std::string& name) = 0;
  virtual int list_attributes(const std::string& path, std::vector<std::string>* names) = 0;  // sorted
};

class PosixCalls : public FileCalls {
 public:
  explicit PosixCalls(std::string root) : root_(std::move(root)) {}

  int open(const std::string& path, int flags, mode_t mode, int* handle) override;
  int close(int handle) override;
  int write(int handle, uint64_t offset, Bytes data) override;
  int read(int handle, uint64_t offset, size_t size, std::string* out) override;
  int map_write(int handle, uint64_t offset, Bytes data) override;
  int map_read(int handle, uint64_t offset, size_t size, std::string* out) override;
  int resize(int handle, uint64_t size) override;
  int sync(int handle) override;
  int allocate(int handle, int mode, uint64_t offset, uint64_t length) override;
  int seek(int handle, uint64_t offset, int whence, uint64_t* found) override;
  int copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t length,
           uint64_t* copied) override;
  int state(int handle, struct stat* state) override;
  int truncate(const std::string& path, uint64_t size) override;
  int look(const std::string& path, struct stat* state) override;
  int unlink(const std::string& path) override;
  int rename(const std::string& from, const std::string& to, unsigned flags) override;
  int link(const std::string& from, const std::string& to) override;
  int make_symlink(const std::string& target, const std::string& path) override;
  int read_symlink(const std::string& path, std::string* target) override;
  int make_directory(const std::string& path, mode_t mode) override;
  int remove_directory(const std::string& path) override;
  int list(const std::string& path, std::vector<std::string>* names) override;
  int set_mode(const std::string& path, mode_t mode) override;
  int set_time(const std::string& path, int64_t modified_s) override;
  int set_attribute(const std::string& path, const std::string& name, const std::string& value) override;
  int get_attribute(const std::string& path, const std::string& name, std::string* value) override;
  int remove_attribute(const std::string& path, const std::string& name) override;
  int list_attributes(const std::string& path, std::vector<std::string>* names) override;

 private:
  std::string at(const std::string& path) const { return root_ + "/" + path; }
  std::string root_;
};

// "user.a\0user.b\0" as a sorted list, without the store's own.
std::vector<std::string> attribute_names(const std::string& text);

}  // namespace swale::fs
