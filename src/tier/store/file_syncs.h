// FileSyncs: what of each backing file no sync has covered yet, and the syncs of one file and of all.
//
// Of one file one sync is under way at a time, because the system tells a failure to one of two. Who asks
// meanwhile shares it, if nothing was written since it began, and else gets the next one.
//
// Threads: one at a time (StoreCore's mutex). No I/O: next() says what to sync, and ended() is told.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tier/policy/options.h"

namespace swale::tier {

class FileSyncs {
 public:
  // A file that was just opened is unsynced: whoever wrote it before may not have synced it.
  void opened(FileIndex file);
  void closed(FileIndex file);
  // Bytes of it have been written; `direct`: some of them do not stand in the log. A sync that has begun need
  // not cover them.
  void written(FileIndex file, bool direct);
  bool unsynced(FileIndex file) const { return files_[file].unsynced; }
  bool busy(FileIndex file) const { return file < files_.size() && files_[file].serves != 0; }
  // How many syncs of it have failed. No later one tells of what such a one should have covered.
  uint32_t failures(FileIndex file) const { return files_[file].failures; }
  // One that FileSyncs did not ask for has failed.
  void failed(FileIndex file) { ++files_[file].failures; }

  // Somebody waits for a sync of the file's bytes that do not stand in the log. False: there are none.
  [[nodiscard]] bool want(FileIndex file);
  // Somebody waits for a sync of all files. False: there is nothing to sync.
  [[nodiscard]] bool want_all();

  // The next file whose sync begins now.
  std::optional<FileIndex> next();
  bool any_to_begin() const { return !to_begin_.empty(); }
  struct Ended {
    bool of_file = false;           // want() is served, with the status that ended() got
    bool of_all = false;            // want_all() is, with...
    Status all;                     // ...this
    bool another_to_begin = false;  // the file's next one
  };
  Ended ended(FileIndex file, const Status& status);

 private:
  enum Whom : uint8_t { kAll = 1, kFile = 2 };
  struct File {
    bool open = false;
    bool unsynced = false;
    bool direct_unsynced = false;
    uint8_t serves = 0;       // for whom a sync is under way, and...
    uint8_t next_serves = 0;  // ... for whom another one begins after it
    uint32_t failures = 0;
  };
  bool want(FileIndex file, Whom whom);
  void begin(FileIndex file, uint8_t serves);

  std::vector<File> files_;
  std::vector<FileIndex> to_begin_;  // in `serves`, not yet given out by next()
  uint32_t left_of_all_ = 0;
  Status all_;
};

}  // namespace swale::tier
