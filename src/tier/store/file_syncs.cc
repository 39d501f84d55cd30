#include "tier/store/file_syncs.h"

#include <utility>

namespace swale::tier {

void FileSyncs::opened(FileIndex file) {
  if (file >= files_.size()) files_.resize(file + 1);
  assert(!files_[file].open);
  files_[file] = {.open = true, .unsynced = true, .direct_unsynced = true};
}

void FileSyncs::closed(FileIndex file) {
  assert(files_[file].open && !busy(file));
  files_[file] = {};
}

void FileSyncs::written(FileIndex file, bool direct) {
  assert(files_[file].open);
  files_[file].unsynced = true;
  files_[file].direct_unsynced |= direct;
}

bool FileSyncs::want(FileIndex file) { return want(file, kFile); }

bool FileSyncs::want_all() {
  assert(left_of_all_ == 0);
  all_ = {};
  for (FileIndex file = 0; file < files_.size(); ++file)
    if (files_[file].open && want(file, kAll)) ++left_of_all_;
  return left_of_all_ > 0;
}

// True: a sync serves, or will.
bool FileSyncs::want(FileIndex index, Whom whom) {
  File& file = files_[index];
  assert(file.open);
  const bool needed = whom == kAll ? file.unsynced : file.direct_unsynced;
  if (file.serves == 0) {
    if (needed) begin(index, whom);
    return needed;
  }
  (needed ? file.next_serves : file.serves) |= whom;
  return true;
}

void FileSyncs::begin(FileIndex index, uint8_t serves) {
  File& file = files_[index];
  file.serves = serves;
  file.unsynced = file.direct_unsynced = false;
  to_begin_.push_back(index);
}

std::optional<FileIndex> FileSyncs::next() {
  if (to_begin_.empty()) return std::nullopt;
  const FileIndex file = to_begin_.back();
  to_begin_.pop_back();
  return file;
}

FileSyncs::Ended FileSyncs::ended(FileIndex index, const Status& status) {
  File& file = files_[index];
  assert(file.serves != 0);
  Ended ended;
  file.failures += !status.ok();
  const uint8_t served = std::exchange(file.serves, 0);
  if (const uint8_t next = std::exchange(file.next_serves, 0); next != 0) {
    begin(index, next);
    ended.another_to_begin = true;
  }
  ended.of_file = (served & kFile) != 0;
  if ((served & kAll) == 0) return ended;
  if (!status.ok()) all_ = status;
  assert(left_of_all_ > 0);
  ended.of_all = --left_of_all_ == 0;
  if (ended.of_all) ended.all = std::exchange(all_, {});
  return ended;
}

}  // namespace swale::tier
