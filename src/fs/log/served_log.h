// ServedLog: the server's side of one process's log. It knows by itself which chunks there are and what of
// them was handed out; of the process's memory it believes only what check_entry and check_reservation allow.
//
// A chunk is
//   open      the process may reserve in it
//   complete  closed, and each entry is taken or refused: nothing can change that the server reads
//   spilled   complete, and in a file (SpillWriter); its slot may be free, or have the bytes still
// and goes when it is complete and none of its bytes is live.
//
// Memory: a byte for each piece, 4 for each block, and a block when it is read. Threads: one at a time.
// Errors: of this log only; damage of what the process wrote is a Problem that names
// file and offset. std::bad_alloc leaves everything as it was.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "fs/log/large_pages.h"
#include "fs/log/log_check.h"
#include "fs/log/log_format.h"
#include "fs/log/piece_checks.h"
#include "fs/log/spill_file.h"
#include "fs/log/sync_journal.h"
#include "fs/log/told_places.h"
#include "fs/log/warm_pages.h"
#include "io/device.h"
#include "meta/index/types.h"

namespace swale::fs {

enum class EntryState : uint8_t { kPending, kTaken, kRefused };

struct Chunk {
  uint64_t number = 0;
  uint32_t slot = kSlotsMax;          // kSlotsMax: not in memory
  std::unique_ptr<io::File> spilled;  // or null: no file of it is durable
  bool is_on_its_way = false;         // to a file: neither its slot nor its number goes
  Reservation seen;                   // what was last believed
  std::vector<EntryState> entries;    // `seen.entries` of them
  uint32_t known = 0;                 // no pending entry before this one
  uint32_t settled = 0;               // bytes before this offset do not change any more
  uint64_t live = 0;                  // bytes that were handed out and not dropped
  uint32_t kept_entries = 0;          // the first ones, which the journal of syncs has
  uint32_t kept_bytes = 0;            // of the payload; what is before it is durable
  uint64_t first_order = 0;           // of its first entry that was handed out
  uint64_t needed_from = 0;           // the first order of bytes that were not seen dropped; 0: all were
  uint32_t entries_max = 0;           // ChunkHead's, as the server wrote it
  uint64_t over_before = 0;           // this order was not given yet when it was found to be over
  std::vector<uint32_t> checks;       // of the settled blocks
  bool broken = false;                // its reservation is garbage
  bool complete() const { return seen.closed && known == entries.size(); }
  bool in_memory() const { return slot != kSlotsMax; }
  // A machine that loses power loses it.
  bool only_in_memory() const { return in_memory() && spilled == nullptr; }
};

// Bytes where they stand in memory, in the order of a file.
struct ShownBytes {
  static constexpr size_t kPartsMax = 256;
  std::vector<Bytes> parts;
  std::vector<std::pair<const Chunk*, uint64_t>> edges;  // blocks that parts have some of: found whole
};

// A published entry that nobody has been given yet.
struct Found {
  EntryCopy entry;
  uint64_t order = 0;  // as the memory says, for a server that comes after another one
  uint32_t log = 0;
  uint32_t index = 0;
  Chunk* chunk = nullptr;
  uint64_t stamp() const { return entry.published & ~kPublished; }
};

// Decisions that tests replace, to show that they would notice.
struct LogRules {
  const char* (*wrong_with)(const EntryCopy&, const KnownChunk&, uint64_t now_ns) = check_entry;
  // May the slot of this chunk be used again?
  bool (*is_over)(const Chunk&) = [](const Chunk& chunk) { return chunk.complete() && chunk.live == 0; };
  bool limit_stamps = true;
  bool proves_alone = true;  // that nobody else can write to a log that begins anew
  bool sync_spills = true;
  uint64_t journal_bytes_max = 512 << 10;  // of an fsync; more goes to files of its own. 0: no journal
  uint64_t journal_bytes = kJournalBytes;  // of its file
  uint64_t direct_bytes_min = 256 << 10;   // of a spill past the page cache: fewer do not keep a disk busy
  bool takes_first = true;                 // NodeFiles: before it answers for a file
  void (*before_log)(uint32_t log) = nullptr;  // take() is about to look at a log
};

inline constexpr uint32_t kProblemsMax = 32;  // messages of damage of one log

struct LogShape {
  std::string node;  // the host's name
  uint32_t chunk_bytes = kChunkBytes;
  uint32_t slots = kSlotsMax;
  uint64_t wait_ns = 0;
};

class ServedLog {
 public:
  // A new log without chunks.
  static Result<std::unique_ptr<ServedLog>> create(io::Device& device, const std::string& path, uint32_t id,
                                                   const LogShape& shape);
  // One that a server before this one has left; its process may be writing. Null: it was never finished, so
  // no process has it. Published entries that were
  // handed out before are appended to `before`, marked as taken. Chunks in `spilled` are whole in files:
  // their slots become free.
  static Result<std::unique_ptr<ServedLog>> adopt(io::Device& device, const std::string& path, uint32_t id,
                                                  const std::set<uint64_t>& spilled,
                                                  std::vector<Found>* before, std::vector<Status>* problems);
  // One of which there are spilled chunks only.
  static std::unique_ptr<ServedLog> of_spilled(uint32_t id, uint32_t chunk_bytes);
  // Call when the process is over and the chunks have gone. Makes it a log of no process, by another name and
  // id, with the memory that it has. False: another process may write there still, or it has another shape.
  // Without success: remove the file at path().
  Result<bool> begin_anew(io::Device& device, const std::string& path, uint32_t id, const LogShape& shape,
                          const LogRules& rules);
  ~ServedLog();
  ServedLog(const ServedLog&) = delete;
  ServedLog& operator=(const ServedLog&) = delete;

  uint32_t id() const { return id_; }
  uint32_t chunk_bytes() const { return chunk_bytes_; }
  const std::string& path() const { return path_; }
  const std::map<uint64_t, Chunk>& chunks() const { return chunks_; }
  Chunk* find(uint64_t number);

  // Appends what is published and stamped before `limit_ns`. Damage is refused and told.
  void scan(uint64_t limit_ns, const LogRules& rules, std::vector<Found>* found,
            std::vector<Status>* problems);
  static void mark_taken(const Found& found, uint64_t order) noexcept;
  void publish_order(const Found& found, uint64_t order) noexcept;
  // For the server's own writes to this log, before the first one (LogWriter::copy_by).
  std::shared_ptr<PieceChecks> check_as_written();
  // Takes checksums of what has come to rest: of all; of one chunk (false: there is none); of this one.
  void settle();
  bool settle_next();
  void settle(Chunk& chunk);

  // For processes that read here by themselves: changes before a chunk comes or loses its slot.
  void announce_by(std::atomic<uint64_t>* epoch) { epoch_ = epoch; }
  // False: a write is under way.
  bool mark(LogMark* mark) const;
  // Of bytes of a chunk in memory, without the offset. Appends the checksums. False: no space for them.
  bool tell(const Chunk& chunk, uint32_t place, uint32_t bytes, uint64_t offset, ToldPlaces* told) const;

  // Each block that has a checksum is checked; parts of the one that was checked last cost a copy.
  Status read(Chunk& chunk, uint32_t place, MutableBytes out);
  // The same without a copy: they stay until the next call that is not const. False: they are not in memory,
  // or damaged, which read() tells.
  bool show(const Chunk& chunk, uint64_t place, uint64_t bytes, ShownBytes* shown) const;

  // The process is over. What it has reserved and not published is nothing.
  void end() noexcept;
  // What comes from now on is seen by take(), or its writer sees this (LogWriter::must_show).
  void set_mapped(bool mapped) noexcept;
  void abandon_pending() noexcept;
  bool ended() const { return ended_; }
  bool in_memory() const { return head_ != nullptr; }

  // Memory. A grant needs a free slot that is reserved.
  bool needs_chunk() const;                      // a writer waits, or would
  bool wants_chunk(uint64_t ahead) const;        // fewer than `ahead` are less than half full
  uint64_t full_chunks(uint64_t at_most) const;  // that it has
  bool has_open_chunk() const;
  bool has_reserved_slot() const;
  enum class Pages { kLeft, kWritten };
  // kNoSpace: the memory file system is full.
  Status reserve_slot(LargePages& large, Pages pages = Pages::kLeft);
  void grant();
  void refuse(int error_number) noexcept;
  uint32_t reserved_slots() const { return reserved_slots_; }
  bool had_chunk() const { return next_number_ > 0; }
  // Some of the memory that it began with was never written to.
  bool is_fresh() const { return next_number_ < reserved_slots_; }
  uint32_t free_slots() const;        // reserved, and no chunk's
  uint32_t small_free_slots() const;  // of these, not of large pages
  enum class Which { kAny, kOfSmallPages };
  bool give_back_slot(Which which = Which::kAny) noexcept;  // the memory of one of them
  bool take_back_empty() noexcept;                          // a chunk that no write has come to
  void close(Chunk& chunk) noexcept;                        // so that it can be spilled
  Reservation reservation(const Chunk& chunk) const;        // unchecked
  void free_slot(Chunk& chunk) noexcept;                    // of a chunk that is over or spilled
  void forget(uint64_t number) noexcept { chunks_.erase(number); }
  // Of a chunk in memory. What a process changes there afterwards is damage, which its checksums tell.
  Bytes payload(const Chunk& chunk) const { return {memory_of(chunk), chunk.seen.used}; }
  // Bytes of the payload before this offset are at rest, and their entries are the first `known` ones.
  uint32_t end_at_rest(const Chunk& chunk) const;
  // What comes to rest after what the journal has. Entries that are damaged are told, and left out.
  JournalRecord unkept(const Chunk& chunk, std::vector<Status>* problems);
  // Of a complete one. Entries that are damaged meanwhile are told, and left out.
  SpillIndex index_of(const Chunk& chunk, std::vector<Status>* problems);
  void add_spilled(SpillIndex index, std::unique_ptr<io::File> file, std::vector<Found>* before);

 private:
  static constexpr uint64_t kNoBlock = ~uint64_t{0};
  enum class Slot : uint8_t { kUnreserved, kFree, kUsed, kUnusable };

  explicit ServedLog(uint32_t id) : id_(id) {}
  Status map(io::Device& device, const std::string& path, io::OpenMode mode);
  void begin_head(const LogShape& shape) noexcept;
  Status adopt_slot(uint32_t slot, const std::set<uint64_t>& spilled, std::vector<Found>* before,
                    std::vector<Status>* problems);
  Status empty_slot(uint32_t slot);
  void adopt_entries(Chunk& chunk, std::vector<Found>* before, std::vector<Status>* problems);
  bool believe_reservation(Chunk& chunk, std::vector<Status>* problems);
  void tell(std::vector<Status>* problems, Status problem);
  Status problem_at(const Chunk& chunk, uint32_t index, const char* what) const;
  void advance(Chunk& chunk) noexcept;
  void announce_change() noexcept {
    if (epoch_ != nullptr) epoch_->fetch_add(1);
  }
  uint64_t file_offset(const Chunk& chunk, uint64_t place) const {
    return slot_begin(chunk.slot, chunk_bytes_) + place;
  }
  char* memory_of(const Chunk& chunk) const { return slot_of(head_, chunk.slot, chunk_bytes_); }
  std::vector<SpilledEntry> entries_of(const Chunk& chunk, uint32_t first, uint32_t end,
                                       std::vector<Status>* problems);
  uint32_t make_entries(uint32_t slot) noexcept;
  // In a chunk, where so many entries begin.
  uint32_t entries_place(uint32_t entries) const {
    return chunk_bytes_ - static_cast<uint32_t>(sizeof(ChunkHead) + sizeof(LogEntry) * entries);
  }
  size_t index_of(std::vector<Slot>::const_iterator slot) const {
    return static_cast<size_t>(slot - slot_.begin());
  }
  uint64_t begin_of(std::vector<Slot>::const_iterator slot) const {
    return slot_begin(index_of(slot), chunk_bytes_);
  }
  // Its last page stays small: see give_back_slot.
  uint64_t large_bytes_of_slot() const { return large_pages_of(chunk_bytes_) * kLargePageBytes; }
  Status read_bytes(Chunk& chunk, uint32_t place, MutableBytes out);
  Status check_block(Chunk& chunk, uint64_t index, Bytes block) const;
  Result<Bytes> checked_block(Chunk& chunk, uint64_t index);

  uint32_t id_;
  uint32_t chunk_bytes_ = 0;
  uint32_t slots_ = 0;
  std::string path_;
  std::unique_ptr<io::File> file_;
  LogHead* head_ = nullptr;
  std::map<uint64_t, Chunk> chunks_;
  std::vector<Chunk*> open_;  // not complete, or not settled
  std::vector<Slot> slot_;
  std::vector<uint32_t> payload_before_;  // of each slot: so many bytes may be of chunks before
  std::vector<bool> warm_;                // of each slot: ChunkHead::warm
  std::vector<bool> large_;               // of each slot: its memory is large pages
  uint32_t entries_lately_ = 0;           // of the chunk whose slot became free last
  // Or null: checksums of what a process writes are made at rest.
  std::shared_ptr<PieceChecks> piece_checks_;
  // A block that was read and found whole: it does not change any more. Whoever reads in the order of a file
  // comes back to it, as records do not end where blocks do.
  Buffer checked_;
  uint64_t checked_number_ = 0;  // of its chunk
  uint64_t checked_index_ = kNoBlock;
  uint64_t next_number_ = 0;
  std::atomic<uint64_t>* epoch_ = nullptr;  // or nobody reads here
  uint32_t reserved_slots_ = 0;
  uint32_t problems_told_ = 0;
  bool ended_ = false;
};

}  // namespace swale::fs
