// FileSystemCalls: FileCalls on a FileSystem in this process: what the kernel does above it (path walks,
// O_APPEND), without a kernel.
// Threads: one.
#pragma once

#include "fs/file_system.h"
#include "fs/testing/file_calls.h"

namespace swale::fs {

class FileSystemCalls final : public FileCalls {
 public:
  // All calls as `caller`; by default as the thread that makes this.
  explicit FileSystemCalls(FileSystem& fs, const Caller& caller = Caller::this_thread())
      : fs_(fs), caller_(caller) {}

  int open(const std::string& path, int flags, mode_t mode, int* handle) override;
  int close(int handle) override;
  int flush(int handle) { return fs_.flush(*files_.at(handle).file); }
  void abandon(int handle);  // closes it as it is for a process that is killed before the kernel could flush
  int write(int handle, uint64_t offset, Bytes data) override;
  int read(int handle, uint64_t offset, size_t size, std::string* out) override;
  int map_write(int handle, uint64_t offset, Bytes data) override { return write_at(handle, offset, data); }
  int map_read(int handle, uint64_t offset, size_t size, std::string* out) override {
    return read(handle, offset, size, out);
  }
  int resize(int handle, uint64_t size) override;
  int sync(int handle) override { return fs_.sync(*files_.at(handle).file); }
  int allocate(int handle, int mode, uint64_t offset, uint64_t length) override {
    return fs_.allocate(*files_.at(handle).file, mode, offset, length, caller_);
  }
  int seek(int handle, uint64_t offset, int whence, uint64_t* found) override {
    return fs_.seek(*files_.at(handle).file, offset, whence, found);
  }
  int copy(int from, uint64_t from_offset, int to, uint64_t to_offset, uint64_t length,
           uint64_t* copied) override {
    return fs_.copy(*files_.at(from).file, from_offset, *files_.at(to).file, to_offset, length, caller_,
                    copied);
  }
  int command(int handle, unsigned long command, Bytes in, std::string* out) {
    return fs_.command(*files_.at(handle).file, command, in, out);
  }
  int state(int handle, struct stat* state) override {
    return fs_.attributes(*files_.at(handle).node, state);
  }
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
  struct Opened {
    std::unique_ptr<OpenFile> file;
    Node* node = nullptr;  // has a lookup
    int flags = 0;
  };

  int write_at(int handle, uint64_t offset, Bytes data);
  // Calls `body` with the node of a path, or of its parent and the last name.
  template <class Body>
  int with(const std::string& path, const Body& body);
  template <class Body>
  int with_parent(const std::string& path, const Body& body);

  FileSystem& fs_;
  const Caller caller_;
  std::map<int, Opened> files_;
  int next_ = 1;
};

}  // namespace swale::fs
