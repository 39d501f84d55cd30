// ReadOnlyFileSystem: what a file system that shows something, and changes nothing, need not say.
// Every change is EROFS. It keeps no locks, and lets go of no names by itself: the kernel's own copies of
// nodes take more memory than these.
//
// Threads: as FileSystem says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fs/file_system.h"

namespace swale::fs {

class ReadOnlyFileSystem : public FileSystem {
 public:
  void set_acls(bool) override {}
  void call_above(size_t, std::function<void()>) override {}
  std::vector<IdleName> take_idle(size_t) override { return {}; }
  int sync_directory(OpenDirectory&) override { return 0; }
  void release(std::unique_ptr<OpenFile> file) override { file.reset(); }
  int flush(OpenFile&) override { return 0; }
  int sync(OpenFile&) override { return 0; }

  int make_node(Node&, const char*, mode_t, dev_t, const Caller&, Entry*) override { return EROFS; }
  int make_directory(Node&, const char*, mode_t, const Caller&, Entry*) override { return EROFS; }
  int make_symlink(Node&, const char*, const char*, const Caller&, Entry*) override { return EROFS; }
  int read_symlink(Node&, std::string*) override { return EINVAL; }
  int link(Node&, Node&, const char*, const Caller&, Entry*) override { return EROFS; }
  int unlink(Node&, const char*, const Caller&) override { return EROFS; }
  int remove_directory(Node&, const char*, const Caller&) override { return EROFS; }
  int rename(Node&, const char*, Node&, const char*, unsigned, const Caller&) override { return EROFS; }
  int change(Node&, const Change&, const Caller&, struct stat*) override { return EROFS; }
  int set_attribute(Node&, const char*, Bytes, int, const Caller&) override { return EROFS; }
  int remove_attribute(Node&, const char*, const Caller&) override { return EROFS; }
  int create(Node&, const char*, mode_t, int, const Caller&, Entry*, std::unique_ptr<OpenFile>*) override {
    return EROFS;
  }
  int write(OpenFile&, uint64_t, uint64_t, const Caller&, const Fill&) override { return EROFS; }
  void write(OpenFile&, uint64_t, uint64_t, const Caller&, const Fill&,
             const std::function<void(int)>& answered) override {
    answered(EROFS);
  }
  int allocate(OpenFile&, int, uint64_t, uint64_t, const Caller&) override { return EROFS; }
};

}  // namespace swale::fs
