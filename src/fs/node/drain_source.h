// DrainSource: what a Drain asks of those that have a file's bytes: NodeFiles, or the nodes of a job together
// (fs/peers).
//
// Threads: as Drain says. Errors: after a failure the file is still fixed.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fs/node/file_extents.h"
#include "fs/node/files_log.h"

namespace swale::fs {

// Is the file what it was seen to be? A stamp that another node has taken has no device: machines number
// devices in their own way.
inline bool is_as_seen(const Stamp& seen, Stamp now) {
  if (seen.device == 0) now.device = 0;
  return now == seen;
}

class DrainSource {
 public:
  // A state of a file that is to be drained.
  struct Fixed {
    uint64_t order = 0;
    uint64_t size = 0;
    uint64_t backing_end = 0;  // of the backing file, these bytes are part of it
    Stamp backing;             // what the backing file must be, or
    Stamp ours;                // what a drain that was killed has made of it
    bool is_open = false;      // reads need the backing file
    std::vector<FileExtents::Piece> pieces;
  };
  struct Done {
    meta::FileId file;
    const Fixed* fixed = nullptr;
    Stamp now;                                  // what the file on the backing is
    bool aside = false;                         // that is not ours, which is beside it
    std::shared_ptr<io::File> there = nullptr;  // the same, open to be read; null: look for it
  };

  virtual ~DrainSource() = default;
  // kBusy: the file is being drained; kNotFound: there is nothing to drain.
  virtual Result<Fixed> fix(const meta::FileId& file) noexcept = 0;
  virtual Status read_piece(const FileExtents::Piece& piece, uint64_t from, MutableBytes out) noexcept = 0;
  // Bytes that are not among the pieces are in their places, synced, when it returns. May wait; needs nothing
  // of NodeFiles.
  virtual Status write_others(const meta::FileId& file, io::File& out) noexcept {
    static_cast<void>(file), static_cast<void>(out);
    return {};
  }
  // The files are about to be replaced by these. In one record; durable when it returns.
  virtual Status announce(std::span<const std::pair<meta::FileId, Stamp>> ours) noexcept = 0;
  // All of them is on the backing, durably; in one record.
  virtual Status drained(std::span<const Done> files) noexcept = 0;
  virtual void give_up(const meta::FileId& file) noexcept = 0;
};

}  // namespace swale::fs
