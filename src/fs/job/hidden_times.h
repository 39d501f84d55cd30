// HiddenTimes: the times of directories that this node's drains touch. Programs have made the files before,
// and a name that comes to the backing is no change of theirs: they go on seeing the times of then. Else tar
// finds "file changed as we read it" wherever a drain comes by.
//
//   drain:   const HiddenTimes::Change change(hidden_, id, std::move(directory));  // its end sets mtime back
//   stat:    hidden_.show(id, &found);
//   program: const HiddenTimes::Told told(hidden_, id);  // while it changes attributes there
//   another node's drain: hidden_.touched(directory);    // what Change::end() has said there
//
// The backing's ctime cannot be set: what the last Change has left is remembered, and shown as what it was
// before, until it is another one, which somebody else has made.
//
// Threads: any. Limits: of drains before a restart ctime is seen, and of those that other nodes lead until
// they say that they are over.
// Memory: some 100 bytes for each directory in which files were made.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "fs/peers/peer_messages.h"
#include "io/descriptor.h"
#include "meta/index/types.h"

namespace swale::fs {

class HiddenTimes {
 public:
  // `found`: the directory as the backing has it now.
  void show(const meta::FileId& directory, struct stat* found) const;

  void touched(const TouchedDirectory& directory);

  // One at a time of a directory. Its mtime is what it was, or `modified`, or what was told.
  class Change {
   public:
    Change(HiddenTimes& times, const meta::FileId& id, io::Descriptor directory,
           const timespec* modified = nullptr);
    Change(Change&& other) noexcept;
    Change& operator=(Change&&) = delete;
    ~Change() { static_cast<void>(end()); }
    // None: nothing was changed, or it was ended before.
    TouchedDirectory end();

   private:
    HiddenTimes* times_;
    const meta::FileId id_;
    io::Descriptor directory_;  // O_PATH; invalid: nothing is changed
    timespec before_ = {};      // the backing's ctime
  };

  // A program changes its attributes there, or this time. A drain that begins or ends meanwhile hears of it.
  class Told {
   public:
    Told(HiddenTimes& times, const meta::FileId& id, const timespec* modified = nullptr)
        : times_(times), id_(id), modified_(modified) {
      times_.changed(id_, modified_);
    }
    ~Told() { times_.changed(id_, modified_); }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

   private:
    HiddenTimes& times_;
    const meta::FileId id_;
    const timespec* const modified_;
  };

 private:
  struct Times {
    timespec modified = {}, changed = {};  // that are shown
    timespec left = {};                    // the backing's ctime after the change
    bool under_way = false;
  };
  static void show(const Times& times, struct stat* found);
  void changed(const meta::FileId& directory, const timespec* modified);

  mutable Mutex mutex_;
  std::unordered_map<meta::FileId, Times, meta::FileIdHash> known_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
