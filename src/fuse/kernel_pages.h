// KernelPages: what a mount tells the kernel unasked: it drops pages of files, believes in later ends. Also
// runs the calls that wait for drops.
//
// The kernel drops pages when reads of them have been answered. So no thread that answers the kernel may wait
// for a drop: a call that may do so runs in a thread of its own.
//
// Threads: any; start() and stop() by the one that serves the mount. Limits: a thread for each such call, of
// which each process of the node makes one at a time.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include <functional>

#include "base/mutex.h"
#include "fs/file_system.h"

namespace swale::fuse {

class KernelPages {
 public:
  KernelPages(fs::FileSystem* fs, fuse_session* session) : fs_(fs), session_(session) {}
  KernelPages(const KernelPages&) = delete;
  KernelPages& operator=(const KernelPages&) = delete;

  void start();
  // The kernel believes that the file has bytes up to `end`, until it gets attributes.
  void show_end(fuse_ino_t number, uint64_t end) noexcept;
  // Runs it in a thread of its own; here, where there is none to have.
  void run_aside(std::function<void()> call) noexcept;
  // When the session serves no more: it serves what is still waited for.
  void stop() noexcept;

 private:
  void drop(fs::Node& node);
  bool begin_one();
  bool is_idle();
  void end_one();

  fs::FileSystem* const fs_;
  fuse_session* const session_;
  Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  size_t under_way_ GUARDED_BY(mutex_) = 0;  // drops, ends, and calls
  CondVar idle_;
};

// Answers the kernel's requests of a session that is to end, until `done`.
void serve_until(fuse_session* session, const std::function<bool()>& done);

}  // namespace swale::fuse
