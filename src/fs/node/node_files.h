// NodeFiles: the files of a node whose bytes stand in the logs of its processes: it takes what NodeLogs hands
// out into an index for each file, reads it in place, and lets a drain take it away
// (docs/design/node-files.md).
//
//   processes ─► NodeLogs ─take()─► FileExtents of each file ─read()─► programs
//                                          │fix(), drained()
//                                          └─► Drain (drain.h) ─► backing
//
// Holes show the backing file, as far as no truncate has cut it.
//
// Threads: one at a time; processes write meanwhile.
// Invariants: (1) A write that had returned when a call here was made is seen by it; of two writes the one
// with the later order is seen. (2) Bytes leave a log only when they are overwritten, cut, removed, or when
// FilesLog durably says that they are drained: no later server shows what they were before. (3) What fix()
// has given stays readable until drained() or give_up().
// Errors: damage of logged bytes is kCorruption and names file and offset; what a process wrote wrongly is
// told (damage(), the log of the program) and missing. A failed call may be repeated.
// Memory: FileExtents', and a row (FilesLog) for each file that has bytes in logs, or is open.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "fs/log/node_logs.h"
#include "fs/node/backing.h"
#include "fs/node/drain_source.h"
#include "fs/node/file_extents.h"
#include "fs/node/files_log.h"
#include "fs/node/write_guard.h"
#include "fs/share/share_messages.h"

namespace swale::fs {

// Hears what processes have written, after it is in the index. A failure: it comes again.
class WriteWatcher {
 public:
  enum class When { kNow, kBefore };  // kBefore: a server before this one had it, and it was not drained
  virtual ~WriteWatcher() = default;
  virtual Status wrote(const meta::FileId& file, uint64_t order, const Span& span, When when) = 0;
};

class NodeFiles final : public DrainSource, private SegmentConsumer {
 public:
  // Recovers what a server before this one left. All must outlive it. options.spill_directory is needed: what
  // must survive is there.
  static Result<std::unique_ptr<NodeFiles>> open(io::Device& memory, io::Device& storage,
                                                 const NodeLogsOptions& options, Backing& backing,
                                                 WriteWatcher* watcher = nullptr) noexcept;

  NodeLogs& logs() { return *logs_; }

  // From now on it judges each write. Without one all are admitted.
  void set_guard(WriteGuard* guard) { guard_ = guard; }

  // What the name of a file leads to on the backing.
  struct There {
    std::shared_ptr<io::File> file;  // null: nothing
    Stamp stamp;
    uint64_t stored = meta::kOffsetEnd;  // bytes that are no hole, at most
  };
  // Any thread: the backing may hang.
  Result<There> look_there(const meta::FileId& file) const noexcept;
  // Whether open_file() looks there.
  bool wants_there(const meta::FileId& file) const;
  // Whether a read of it may need a backing file that is not open: find_there() and keep_there() come before.
  bool lacks_there(const meta::FileId& file) const;
  // It changes when a drain, or who calls, has changed what is there: what was seen before is old.
  uint64_t changes_there() const { return changes_there_; }

  // The file will be written: what its backing file is now must still be when it is drained. Each open has
  // one close. The first write to a file that has a name opens it, too; of others, writes are dropped, and
  // told. `there`: look_there() of it, since when nothing has changed there (of one that is open already
  // nothing is needed); null: it looks itself.
  Status open_file(const meta::FileId& file, const There* there = nullptr) noexcept;
  // The same, of a file that was made on this node since it drained anything: the backing has not got it.
  Status open_new(const meta::FileId& file) noexcept;
  void close_file(const meta::FileId& file) noexcept;

  // This node has itself changed times of the backing file, and no drain of it is under way: what it has
  // become is what it must still be at the drain, if it was `before` then.
  Status retimed(const meta::FileId& file, const Stamp& before, const Stamp& now) noexcept;

  // What a read has left to the backing file. fill() needs nothing of NodeFiles: it may take as long as the
  // backing does.
  class Holes {
   public:
    Status fill() noexcept;

   private:
    friend NodeFiles;
    struct Part {
      uint64_t offset = 0;
      MutableBytes out;
    };
    meta::FileId file_;
    std::shared_ptr<io::File> backing_;
    std::vector<Part> parts_;
    bool opens_ = false;  // what lacks_there()
  };
  // Fewer bytes only at the end of the file. `holes`: gets what is to be filled then; null: it is filled.
  // kNotFound: of a hole, if lacks_there(), and there are `holes`.
  Result<size_t> read(const meta::FileId& file, uint64_t offset, MutableBytes out,
                      Holes* holes = nullptr) noexcept;
  // The same without a copy: they stay until the next call. False: read() has them, or says what is wrong.
  bool show(const meta::FileId& file, uint64_t offset, uint64_t length, ShownBytes* shown) noexcept;
  // `stored`: how many bytes are no hole, at most.
  Result<uint64_t> size(const meta::FileId& file, uint64_t* stored = nullptr) noexcept;
  // What stands in [offset, end) of a file: bytes of logs, or of its backing file, with zeros behind
  // backing_end. Empty behind the end of the file.
  struct Stretch {
    uint64_t end = 0;
    uint64_t size = 0;  // of the file
    bool logged = false;
    std::shared_ptr<io::File> backing;  // null: zeros
    uint64_t backing_end = 0;
  };
  // kNotFound: as read().
  Result<Stretch> stretch(const meta::FileId& file, uint64_t offset) noexcept;
  // Where logs have the file's bytes from told->offset on, for a process that reads there by itself. kBusy:
  // somebody is in the middle of a write.
  Status tell_places(const meta::FileId& file, ToldPlaces* told) noexcept;
  // The same for all processes that read it (map_format.h): answer->offset is asked for. `own`: of a file
  // that other nodes write, too: what of it is told. It is asked when all writes that had returned are taken
  // in.
  struct OwnParts {
    Span span;  // told; answer->offset is in it
    RangeMap<char> bytes;
    uint64_t size = 0;  // of the file
  };
  using AskOwn = std::function<Result<OwnParts>()>;
  Status publish_map(const meta::FileId& file, MapRequest* answer, const AskOwn& own = nullptr) noexcept;
  // From where on publish_map() would tell, if it could.
  Result<uint64_t> map_begin(const meta::FileId& file, uint64_t offset) noexcept;
  // Whether logs have bytes of it.
  bool is_logged(const meta::FileId& file) const;
  void withdraw_maps(const meta::FileId& file) noexcept { logs_->withdraw_maps(file); }
  // Durable when it returns. Writes that had returned before are cut, no later ones.
  Status truncate(const meta::FileId& file, uint64_t size) noexcept;
  // No name leads to the file, and nobody has it open: its bytes go.
  Status remove(const meta::FileId& file) noexcept;

  // For files that other nodes write, too (shared_files.h).
  // Takes in what was written, and says up to which order that is; or draws one that no write has.
  Result<uint64_t> taken() noexcept;
  Result<uint64_t> draw_order() noexcept;
  // No write that is taken from now on, and nothing that is drawn, has this order or a lower one.
  void go_on_after(uint64_t order) noexcept;
  // The bytes that this node's processes have written. kNotFound: it does not have all of them.
  Status read_own(const meta::FileId& file, const Span& span, MutableBytes out) noexcept;
  // What the backing file was when this node opened the file, or drained it last; none: the file is not open
  // here, and has no bytes here.
  std::optional<SeenBacking> seen_backing(const meta::FileId& file) const;
  // The backing file that this node has open, for find_there() and keep_there(); null: none.
  There open_backing(const meta::FileId& file) const;
  // Any thread: the same, if it has that inode; else what the file's name leads to. kNotFound: that has
  // another one, too.
  Result<There> find_there(const meta::FileId& file, uint64_t inode, There open) const noexcept;
  // Since `changes` (changes_there()) it may have become an older one, which is dropped.
  void keep_there(const meta::FileId& file, const There& there, uint64_t changes) noexcept;
  bool is_open(const meta::FileId& file) const;
  // Opens what the file's name leads to on the backing. Any thread.
  Result<std::shared_ptr<io::File>> open_there(const meta::FileId& file) const noexcept;
  // Another node has brought the file to the backing. `there`: open_there() of it; null: it stays as it was.
  void on_backing(const meta::FileId& file, std::shared_ptr<io::File> there) noexcept;
  // As truncate, of what was written up to that order: `keep` has been written since.
  Status cut(const meta::FileId& file, uint64_t order, uint64_t size, std::span<const Span> keep) noexcept;

  // Takes in what processes have written.
  Status take() noexcept;
  Status end_log(uint32_t log) noexcept;
  // Supplies writers with memory. When starves() afterwards, a drain of oldest() makes space.
  Status serve() noexcept;
  // Have bytes or a size that the backing has not; of those that are not in `but`, the ones whose bytes wait
  // longest, the oldest first.
  std::vector<meta::FileId> oldest(size_t count, const std::set<meta::FileId>& but = {}) const;
  std::vector<meta::FileId> undrained() const;
  bool is_undrained(const meta::FileId& file) const;
  // It is, by more than a drain has that is under way: another drain must come.
  bool awaits_drain(const meta::FileId& file) const;

  // The chunks of logs with bytes of the file that would be lost with this machine's memory.
  Result<std::vector<NodeLogs::ChunkPart>> in_memory(const meta::FileId& file) noexcept;
  // NodeLogs::keep of them: durable on this node.
  Result<NodeLogs::Kept> keep(std::span<const NodeLogs::ChunkPart> parts, const FileTime& time) noexcept;

  using Fixed = DrainSource::Fixed;
  using Done = DrainSource::Done;
  Result<Fixed> fix(const meta::FileId& file) noexcept override;
  Status announce(std::span<const std::pair<meta::FileId, Stamp>> ours) noexcept override;
  Status read_piece(const FileExtents::Piece& piece, uint64_t from, MutableBytes out) noexcept override;
  Status drained(std::span<const Done> files) noexcept override;
  void give_up(const meta::FileId& file) noexcept override;

  const std::vector<Status>& damage() const { return damage_; }  // the first kDamageMax
  static constexpr size_t kDamageMax = 32;

 private:
  // Files in the order of a number; those of one number in that of their ids.
  using Order = std::set<std::pair<uint64_t, meta::FileId>>;
  struct File {
    FileRow row;
    FileExtents extents;
    uint64_t size = 0;
    uint64_t first_order = 0;  // of the oldest segment since the last drain; 0: none
    uint32_t opens = 0;
    bool fresh = false;  // the backing has no file yet
    bool fixed = false;
    std::vector<FileExtents::Piece> held;  // overwritten while the file is fixed
    std::shared_ptr<io::File> backing;     // for holes
    uint64_t backing_inode = 0;            // of it, if find_there() has looked; else 0
    Order* in = nullptr;  // waiting_ or over_, where it is at `place`; else `spare` is its place
    Order::iterator place = {};
    Order::node_type spare = {};
    // Of the backing file's bytes: that are no hole, at most. Nobody asks again: the backing may hang.
    uint64_t backing_stored = meta::kOffsetEnd;

    bool dirty() const { return fresh || !extents.empty() || row.size_order != 0 || !row.cuts.empty(); }
  };
  using Files = std::unordered_map<meta::FileId, std::unique_ptr<File>, meta::FileIdHash>;

  NodeFiles(Backing& backing, WriteWatcher* watcher) : backing_(backing), watcher_(watcher) {}

  Status take(std::span<const Segment> segments) override;
  void damaged(const Status& status) override;

  static std::string name_of(const meta::FileId& file);
  Status recover();
  Status take_in();
  Status apply(const Segment& segment);
  Result<File*> file_of(const Segment& segment);
  bool is_admitted(const Segment& segment);
  void drop(const FileExtents::Piece& piece) noexcept;
  void keep_or_drop(File& file, const FileExtents::Piece& piece) noexcept;
  static void make_room_to_keep(File& file, uint64_t offset, uint64_t end);
  uint64_t next_order();
  Result<File*> known(const meta::FileId& file);
  Status tell_taken_places(const meta::FileId& id, const OwnParts* own, ToldPlaces* told);
  Status cut_file(const meta::FileId& id, File& file, uint64_t order, uint64_t size,
                  std::span<const Span> keep);
  Status look_at_backing(const meta::FileId& id, File& file, const There* there = nullptr);
  void leave_logs(const Done& done) noexcept;
  bool may_be_there(const File& file) const;
  Status add_hole(const meta::FileId& id, File& file, uint64_t offset, MutableBytes out, Holes* holes);
  static Status lacks(const meta::FileId& id);
  void forget_clean() noexcept;
  Files::iterator add(const meta::FileId& id, std::unique_ptr<File> file);
  void erase(Files::iterator at) noexcept;
  void put_in_order(const meta::FileId& id, File& file) noexcept;

  Backing& backing_;
  WriteWatcher* const watcher_;  // or null
  WriteGuard* guard_ = nullptr;
  bool takes_first_ = true;
  uint64_t changes_there_ = 0;
  std::unique_ptr<FilesLog> rows_;
  std::unique_ptr<NodeLogs> logs_;
  PlaceTable places_;
  Files files_;
  // After each change of a file it is where it belongs: put_in_order().
  Order waiting_;                 // to be drained: by the order of the oldest segment; those without one last
  Order over_;                    // closed and drained: by their floors
  std::vector<Segment> pending_;  // handed out, and not yet in the index
  size_t applied_ = 0;            // of them
  uint64_t part_ = 0;             // bytes of the next one that are in the index
  uint64_t order_ = 0;            // the latest that was taken in
  bool recovering_ = false;
  uint64_t oldest_seen_ = 0;  // when clean files were forgotten last
  std::vector<Status> damage_;
};

}  // namespace swale::fs
