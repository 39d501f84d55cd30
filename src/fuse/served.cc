#include "fuse/served.h"

#include "base/contain.h"

namespace swale::fuse {
namespace {

template <class Open>
bool keep_in(std::unordered_set<Open*>* all, std::unique_ptr<Open>* open, uint64_t* number) {
  const Status kept = contain([&] { all->insert(open->get()); });
  if (!kept.ok()) return false;
  *number = reinterpret_cast<uint64_t>(open->release());
  return true;
}

}  // namespace

Served::~Served() {
  const MutexLock lock(mutex_);
  for (fs::OpenFile* const file : files_) fs.release(std::unique_ptr<fs::OpenFile>(file));
  for (fs::OpenDirectory* const directory : directories_) delete directory;
}

bool Served::keep(std::unique_ptr<fs::OpenFile>* file, uint64_t* number) noexcept {
  const MutexLock lock(mutex_);
  return keep_in(&files_, file, number);
}

bool Served::keep(std::unique_ptr<fs::OpenDirectory>* directory, uint64_t* number) noexcept {
  const MutexLock lock(mutex_);
  return keep_in(&directories_, directory, number);
}

void Served::release_file(uint64_t number) noexcept {
  auto* const file = reinterpret_cast<fs::OpenFile*>(number);
  {
    const MutexLock lock(mutex_);
    files_.erase(file);
  }
  static_cast<void>(contain([&] { fs.release(std::unique_ptr<fs::OpenFile>(file)); }));
}

void Served::release_directory(uint64_t number) noexcept {
  auto* const directory = reinterpret_cast<fs::OpenDirectory*>(number);
  {
    const MutexLock lock(mutex_);
    directories_.erase(directory);
  }
  delete directory;
}

}  // namespace swale::fuse
