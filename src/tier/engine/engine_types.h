// What goes out of the engine: actions for the driver, plans of reads, and the pieces of a flush.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tier/engine/extent_map.h"
#include "tier/log/log_format.h"
#include "tier/log/log_space.h"
#include "tier/log/loss_list.h"
#include "tier/policy/options.h"

namespace swale::tier {

// Each kind but kAcknowledge and kRelease is completed by Engine::completed(kind, id, …).
struct Action {
  enum class Kind : uint8_t {
    // request `ticket` has the result `code`. queued: its payload is in no log; seal its slot of the shared
    // queue first, as record `record`. released: and then as kRelease, which does not follow
    kAcknowledge,
    kRelease,  // the payload of `ticket` is needed no longer: void its slot
    // write `record` to the log at record.address, and behind it, if it has one, the payload of `ticket`
    kAppend,
    kReadLog,  // flush_piece(id): read its bytes from the log into buffer `id`
    // slot(id): write its pieces, from tickets and from buffers (Piece::op), to file and offset
    kWriteBacking,
    kSyncLog,
    kSyncBacking,  // all files
    // file `id` on the backing device, unless the log has everything of it that is not synced there
    kSyncFile,
    // write both headers of segment `id` with `generation`; beyond the log's segments: remove the old queue
    kErase,
    kTruncate,    // of the backing file to `size`
    kUnlink,      // remove the backing file
    kAbandonLog,  // make durable, on the backing device, that records of this log do not count any more
    kSaveLosses,  // make losses_to_save() durable on the backing device
  };
  Kind kind = Kind::kAcknowledge;
  Code code = Code::kOk;
  bool queued = false;
  bool released = false;
  uint32_t id = 0;
  FileIndex file = 0;
  Ticket ticket = 0;
  uint64_t size = 0;     // kTruncate; kErase: the header's sequence
  uint64_t settled = 0;  // kErase: the header's
  uint32_t generation = 0;
  RecordHeader record = {};  // kAppend, and an acknowledgement that is `queued`; of others it means nothing
};

// Bytes on their way from the log to the backing device, in a buffer of the driver: one extent, at most
// kWriteBytesMax.
struct FlushPiece {
  enum class State : uint8_t { kFree, kReading, kLoaded, kQueued };
  State state = State::kFree;
  bool passing = false;
  FileIndex file = 0;
  uint32_t length = 0;
  uint64_t offset = 0;
  uint64_t address = 0;
  uint32_t segment = 0;
  uint32_t generation = 0;  // of the segment: it may be erased and filled again before the piece is written
  RecordPlace record;       // that it is of
  ExtentMap::Position at;   // the engine's: where the extent stood in the map
};

// A part of a file.
struct FileRange {
  uint64_t begin;
  uint64_t end;
};

struct ReadPiece {
  // kZeros: behind the end of the file. kLost: was acknowledged, and is lost: the read fails.
  enum class From : uint8_t { kBacking, kLog, kQueue, kZeros, kLost };
  From from = From::kBacking;
  uint64_t offset = 0;  // in the file
  uint64_t length = 0;
  uint64_t address = 0;                      // kLog; kLost: of the record
  RecordPlace record = {};                   // kLog
  bool on_backing = false;                   // kLog: the backing device has these bytes, too
  LossReason reason = LossReason::kDamaged;  // kLost
  Ticket ticket = 0;                         // kQueue: of the write
  uint64_t skip = 0;                         // kQueue: bytes of its payload before this piece
  uint32_t pinned = 0;                       // the engine's: segment, or op
};

// What one read found. Pieces in order, without gaps; where the backing file is too short, its bytes are
// zeros.
struct ReadPlan {
  FileIndex file = 0;
  std::vector<ReadPiece> pieces;
};

}  // namespace swale::tier
