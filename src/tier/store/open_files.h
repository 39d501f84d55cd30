// OpenFiles: the backing files that a store has open: their descriptors, handles, names and times. Bytes of a
// file without handles may still be in the log or under way; it waits, and is looked at again.
//
// Threads: one at a time (StoreCore's mutex). No I/O but the look for a name.
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/device.h"
#include "tier/policy/options.h"
#include "tier/store/store.h"

namespace swale::tier {

// What the file is, and what it says of itself; it may have no name any more.
struct BackingState {
  FileKey key;
  FileView view;
  bool unlinked = false;
};
Result<BackingState> state_of(io::File& file);

struct OpenFile {
  std::unique_ptr<io::File> file;  // null: the index is free
  FileKey key;
  uint64_t id = 0;
  uint32_t references = 0;     // handles
  uint32_t in_use = 0;         // operations under way
  bool unlinked = false;       // has no name
  bool discarded = false;      // and the engine was told to forget its bytes
  bool waits = false;          // in waiting()
  bool times_unsaved = false;  // the backing file's mtime is not view's
  bool write_failed = false;   // the last write to the backing device; told once until one succeeds
  FileView view;               // but for the size, which the engine knows
};

class OpenFiles {
 public:
  // `index`: free.
  OpenFile& add(FileIndex index, std::unique_ptr<io::File> file, const BackingState& state, uint64_t id);
  // The file, to be closed; the index is free.
  std::unique_ptr<io::File> remove(FileIndex index);

  OpenFile& operator[](FileIndex index) { return files_[index]; }
  const OpenFile& operator[](FileIndex index) const { return files_[index]; }
  FileIndex end() const { return static_cast<FileIndex>(files_.size()); }  // free ones are among those below
  bool is_open(FileIndex index) const { return index < files_.size() && files_[index].file; }
  bool has_handle(FileIndex index) const { return index < files_.size() && files_[index].references > 0; }
  std::optional<FileIndex> find(const FileKey& key) const;
  bool has_id(uint64_t id) const { return by_id_.contains(id); }
  const std::unordered_map<uint64_t, FileIndex>& by_id() const { return by_id_; }
  size_t count() const { return by_key_.size(); }

  // An operation of the file begins: it stays open until the end.
  io::File* use(FileIndex index) {
    assert(is_open(index));
    ++files_[index].in_use;
    return files_[index].file.get();
  }
  void unuse(FileIndex index) {
    assert(files_[index].in_use > 0);
    --files_[index].in_use;
  }

  // Its times are those of now: a program has changed it.
  void modify(FileIndex index);
  void set_modified(FileIndex index, int64_t modified_ns);

  // A file without handles that cannot be closed yet.
  void wait(FileIndex index);
  const std::vector<FileIndex>& waiting() const { return waiting_; }

  // The path by which the system knows the file now; empty: it is not open.
  std::string name_of(FileIndex index) const;

 private:
  struct KeyHash {
    size_t operator()(const FileKey& key) const { return key.inode * 0x9e3779b97f4a7c15 ^ key.device; }
  };

  std::vector<OpenFile> files_;
  std::unordered_map<FileKey, FileIndex, KeyHash> by_key_;
  std::unordered_map<uint64_t, FileIndex> by_id_;
  std::vector<FileIndex> waiting_;
};

}  // namespace swale::tier
