// NodeLogs: the logs of the processes of one node, as its server has them: it hands out what they have
// written in one order, reads it in place, and keeps them supplied with memory (docs/design/file-logs.md).
//
//   take()   everything that is published, in the node's order ─► consumer
//   serve()  grants chunks; frees those that are over; spills the oldest when memory is short
//   wait()   until a process needs one of the two
//
// Threads: one at a time; processes write meanwhile. It has no threads of its own.
// Invariants: (1) A write that had returned when take() was called has been handed out when it returns; of
// two writes of which one began after the other had returned, the first is handed out first. (2) What was
// handed out stays readable until it is dropped. (3) No bytes in a log can make it wait or fail for another
// process (a log's file that is cut by name can: see the page).
// Errors: damage in a process's memory goes to SegmentConsumer::damaged; calls go on. An allocation that
// fails is kResourceExhausted; the call may be repeated, and nothing is lost or handed out twice.
// Memory: a byte for each piece, 4 for each block; what is handed out at once.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fs/log/published_maps.h"
#include "fs/log/served_log.h"
#include "fs/log/spill_writer.h"
#include "fs/log/warm_pages.h"
#include "io/descriptor.h"
#include "io/device.h"
#include "meta/index/types.h"

namespace swale::fs {

// Bytes of a file that stand at a place in a log of this node.
struct Segment {
  meta::FileId file;
  uint64_t offset = 0;
  uint64_t length = 0;
  meta::Place place;
  uint64_t order = 0;  // a later one wins
};

class SegmentConsumer {
 public:
  virtual ~SegmentConsumer() = default;
  // Ascending in order. After a failure the same segments come again. Must not call the logs.
  virtual Status take(std::span<const Segment> segments) = 0;
  // Something that a process wrote is lost; the message names file and offset.
  virtual void damaged(const Status& status) = 0;
};

struct NodeLogsOptions {
  std::string memory_directory;  // on the node's memory file system; made, 0700
  std::string spill_directory;   // on node-local storage; empty: no spill
  uint64_t memory_bytes = 1 << 30;
  LogShape shape;          // of new logs
  uint32_t first_log = 1;  // no log of the job has had this number or a higher one
  // A spilled chunk whose bytes were overwritten stays until memory alone has nothing that may have done so:
  // a machine that loses power finds the old bytes or the new ones.
  bool outlives_power = false;
  LogRules rules;
};

class NodeLogs {
 public:
  static constexpr uint64_t kWarmPart = 4;  // of the memory, at most, are large pages that wait for logs

  // Finds the logs of a server that came before. kBusy: one lives. The devices must outlive it.
  static Result<std::unique_ptr<NodeLogs>> open(io::Device& memory, io::Device& storage,
                                                const NodeLogsOptions& options) noexcept;
  ~NodeLogs();
  NodeLogs(const NodeLogs&) = delete;
  NodeLogs& operator=(const NodeLogs&) = delete;

  // What the server before this one had handed out and what was not dropped, in its order. Call it once,
  // before take(). The consumer may have seen all of it.
  Status recover(SegmentConsumer& consumer) noexcept;

  // No write that is taken from now on gets a lower order than this.
  void count_from(uint64_t order) { next_order_ = std::max(next_order_, order); }

  // A log for a process, with its first chunk. kNoSpace: neither memory nor spill has space for it.
  Result<uint32_t> add_log() noexcept;
  // Of a log that this process itself writes, before its first write: LogWriter::copy_by.
  Result<std::shared_ptr<PieceChecks>> check_as_written(uint32_t log) noexcept;
  // For the process of a log: this, and the bell, as open files of its own.
  struct Descriptors {
    io::Descriptor log;
    io::Descriptor bell;
  };
  Result<Descriptors> descriptors(uint32_t log) const noexcept;
  Status take(SegmentConsumer& consumer) noexcept;
  // The process is over. Its log stays until its bytes are dropped.
  Status end_log(uint32_t log, SegmentConsumer& consumer) noexcept;
  // Whether its process must tell the server of each write (LogWriter::must_show).
  void set_mapped(uint32_t log, bool mapped) noexcept;

  Status read(const meta::Place& place, MutableBytes out) noexcept;
  bool show(const meta::Place& place, uint64_t length, ShownBytes* shown) noexcept;  // ServedLog::show
  // Takes checksums of what was handed out and has come to rest: of all, or of one chunk (false: there is
  // none). Call the first one before a drain, and the second one when nobody writes. A spill takes its own.
  Status settle() noexcept;
  bool settle_next() noexcept;
  // These bytes of segments will not be read again. Each byte is dropped once.
  Status drop(const meta::Place& place, uint64_t length) noexcept;

  // For processes that read in logs by themselves (map_format.h). False: a write is under way, or there
  // are too many logs.
  bool tell_marks(ToldPlaces* told) const noexcept;
  // False: no space for it. What is not in memory is not told.
  bool tell_place(const meta::Place& place, uint64_t length, uint64_t offset, ToldPlaces* told) noexcept;
  // The maps that processes read by, made at the first call.
  Result<PublishedMaps*> maps() noexcept;
  void withdraw_maps(const meta::FileId& file) noexcept {
    if (maps_ != nullptr) maps_->withdraw(file);
  }
  // A file changes without a write.
  void announce_change() noexcept { page_->epoch.fetch_add(1); }

  // Grants chunks from memory that is free, at once.
  void grant_at_once() noexcept;
  // Fails if a chunk could not be spilled; it stays in memory.
  Status serve() noexcept;
  // A chunk with bytes, up to `end`, that memory alone has: a machine that loses power loses them.
  struct ChunkPart {
    uint32_t log = 0;
    uint64_t number = 0;
    uint32_t end = 0;
    friend auto operator<=>(const ChunkPart&, const ChunkPart&) = default;
  };
  std::optional<ChunkPart> in_memory(const meta::Place& place, uint64_t length) const;
  // What was handed out of these parts survives the machine when it returns another than kNotYet: a process
  // is in the middle of a write to one of them, which gets no other one: take(), and call it again.
  // kJournal: with the time, in the journal. kFiles: the chunks are spilled, and the time is not kept.
  enum class Kept : uint8_t { kNotYet, kJournal, kFiles };
  Result<Kept> keep(std::span<const ChunkPart> parts, const FileTime& time) noexcept;
  // What the journal of a server before this one says: the last time of each file.
  const std::map<meta::FileId, int64_t>& found_times() const { return found_times_; }
  // Waits for chunks on their way to storage. A thread that has called serve() or keep() does so before it
  // ends.
  Status rest() noexcept;
  // What writers get that wait for a chunk (ENOSPC, EDQUOT, EIO), until one is granted; 0: they wait.
  void refuse(int error_number) noexcept;
  // A process waits for a chunk, and serve() had none for it.
  bool starves() const;
  // Steps for a time when nobody writes; false: there is nothing to do. Chunks on their way to storage
  // arrive, and what waited for them goes. Then memory is made ready for processes to come: as much as there
  // was at once, in half of the memory.
  bool arrive_next() noexcept;
  bool prepare_next() noexcept;
  // The file of a chunk that is over, which has no name any more, or null. To close it takes a disk
  // milliseconds: do so when nobody waits. serve() closes those beyond 512.
  std::unique_ptr<io::File> take_nameless() noexcept;
  size_t nameless_files() const { return nameless_.size(); }
  size_t prepared_logs() const { return prepared_.size(); }
  // Sleeps until a process rings, at most `nanos`. True: one did. May run beside other calls.
  bool wait(Nanos nanos) noexcept;
  bool has_rung() const;  // wait() would not sleep

  std::vector<uint32_t> logs() const;
  uint64_t memory_bytes() const;                                      // reserved now
  uint64_t free_bytes() const;                                        // of them, no chunk's
  uint64_t warm_bytes() const { return warm_ ? warm_->bytes() : 0; }  // beside it: WarmPages
  uint64_t spilled_bytes() const;                                     // in files now
  size_t spilled_chunks() const;                                      // an open file each
  uint64_t live_bytes() const;
  // What was handed out before this order is in no log any more: no successor hands it out again.
  uint64_t oldest_order() const;

 private:
  NodeLogs(io::Device& memory, io::Device& storage, const NodeLogsOptions& options)
      : memory_(memory), storage_(storage), options_(options) {}
  Status open_folders();
  Status find_logs();
  Status lock_node();
  Status map_node();
  Status map_bell();
  Status save_next_log();
  void tell(SegmentConsumer& consumer);
  Status take_found(SegmentConsumer& consumer);
  bool settle_one();
  Status hand_out(const std::vector<Found>& found, SegmentConsumer& consumer);
  Status supply(ServedLog& log);
  void free_what_is_over();
  std::string path_of(uint32_t log) const;
  Result<uint32_t> draw_number();  // of a log
  Result<std::unique_ptr<ServedLog>> make_log();
  Result<bool> prepare();
  Result<bool> prepare_logs();
  bool warm_up();
  Result<bool> make_large();
  Status reserve_slot(ServedLog& log, ServedLog::Pages pages);
  bool wants_prepared() const;
  void release(std::unique_ptr<ServedLog>& log);
  void discard(ServedLog& log);
  std::vector<std::unique_ptr<ServedLog>>::iterator poorest_prepared();
  Result<bool> keep_ready(std::unique_ptr<ServedLog>& log);
  void note_use();
  bool free_other_slot(const ServedLog& wanting);
  // kNothing: there is no chunk that could go.
  enum class Spilled { kNothing, kOne };
  enum class Open { kStay, kMayGo };
  Result<Spilled> spill_oldest(Open open, const ServedLog* only);
  Status supply_by_spilling(ServedLog& log, Open open);
  Status spill_ahead();
  Status start_spill(ServedLog& log, Chunk& chunk);
  Status note_names(Status spilled);
  void grant_next(ServedLog& log, Chunk& spilled);
  static bool close(ServedLog& log, Chunk& chunk);
  Status find_journal(std::map<uint32_t, std::map<uint64_t, SpillIndex>>* spilled);
  Result<SpillIndex> spill_found(const SpillIndex& chunk, Bytes payload);
  Result<std::optional<Kept>> keep_in_journal(std::span<const ChunkPart> parts, const FileTime& time);
  Result<bool> renew_journal();
  Result<Kept> keep_in_files(std::span<const ChunkPart> parts);
  Chunk* oldest(bool (*fits)(const Chunk&), const ServedLog* only, ServedLog** log);
  uint64_t chunks_ahead(const ServedLog& log) const;
  bool has_memory() const { return memory_bytes() + options_.shape.chunk_bytes <= options_.memory_bytes; }
  bool is_short() const { return memory_bytes() - free_bytes() > options_.memory_bytes / 4 * 3; }
  bool may_go(Chunk& chunk, uint64_t oldest_in_memory) const;
  void keep_for_what_goes();
  uint64_t oldest_in_memory() const;
  Result<Chunk*> chunk_at(const meta::Place& place, uint64_t length, ServedLog** log);

  io::Device& memory_;
  io::Device& storage_;
  const NodeLogsOptions options_;
  std::unique_ptr<io::Device> memory_folder_;
  std::unique_ptr<io::Device> spill_folder_;
  std::unique_ptr<io::File> node_;  // locked while this lives
  std::unique_ptr<io::File> bell_file_;
  Bell* bell_ = nullptr;
  NodePage* page_ = nullptr;  // of node_
  uint32_t rung_seen_ = 0;
  std::map<uint32_t, std::unique_ptr<ServedLog>> logs_;
  std::vector<std::unique_ptr<ServedLog>> prepared_;  // of no process yet, without chunks
  LargePages large_pages_;
  std::unique_ptr<WarmPages> warm_;  // null: slots are too small for large pages
  bool makes_large_ = true;          // slots that are ready, of small ones
  uint64_t logs_most_ = 0;           // of processes, at the same time
  uint32_t slots_most_ = 0;          // of a process
  std::vector<Found> found_;
  std::vector<Found> before_;  // of the server before, until recover()
  std::vector<Status> problems_;
  std::unique_ptr<PublishedMaps> maps_;   // null: nobody has asked
  std::unique_ptr<SpillWriter> spills_;   // null: no folder to spill to; ends before the logs
  std::unique_ptr<SyncJournal> journal_;  // null: no folder to spill to
  std::map<meta::FileId, int64_t> found_times_;
  bool had_no_chunk_ = false;  // the last serve(), for a writer that waited
  bool fails_ahead_ = false;   // a chunk that need not go yet could not
  std::vector<std::unique_ptr<io::File>> nameless_;
  uint64_t oldest_removed_ = kOrderMax;  // of spilled chunks: a machine that loses power may find them again
  size_t over_and_kept_ = 0;             // spilled chunks that wait for others to be spilled
  uint32_t next_log_ = 1;
  uint64_t next_order_ = 1;
};

}  // namespace swale::fs
