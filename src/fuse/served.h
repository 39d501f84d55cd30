// Served: the file system that a session's requests work on, and what the kernel has open of it. The kernel
// does not always say that it has closed a file: what was on its way when the mount went is dropped. So the
// end of the session releases what is left.
//
// Threads: any; it ends when no request is served any more. The file system outlives it.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_set>

#include "base/mutex.h"
#include "fs/file_system.h"
#include "fuse/ends_ahead.h"

namespace swale::fuse {

class KernelPages;

class Served {
 public:
  explicit Served(fs::FileSystem& served) : fs(served) {}
  ~Served();
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  fs::FileSystem& fs;
  KernelPages* pages = nullptr;  // set before the first request; the session's
  // The kernel can map files of whose pages it keeps none (wire.h): set before the first file is opened.
  std::atomic<bool> maps_direct_files = false;
  EndsAhead ends;                       // by the numbers of nodes
  std::atomic<uint32_t> warned_of = 0;  // bits of kWarnedCalls (request.h)

  // Takes what the kernel gets a number of. False: there is no memory, and nothing is taken.
  bool keep(std::unique_ptr<fs::OpenFile>* file, uint64_t* number) noexcept;
  bool keep(std::unique_ptr<fs::OpenDirectory>* directory, uint64_t* number) noexcept;
  // Back from the kernel.
  void release_file(uint64_t number) noexcept;
  void release_directory(uint64_t number) noexcept;

 private:
  Mutex mutex_;
  std::unordered_set<fs::OpenFile*> files_ GUARDED_BY(mutex_);
  std::unordered_set<fs::OpenDirectory*> directories_ GUARDED_BY(mutex_);
};

}  // namespace swale::fuse
