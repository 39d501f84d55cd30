// Store: files on slow storage with an SSD log in front of them: the tier's engine on real files.
//
//   SSD directory:      log, queue.N (writes under way), lock
//   backing directory:  the files, as anybody can read them once they are drained; .swale-tier/ (which log,
//                       lock)
//
// A file is what it is on the backing device: device and inode, whatever its names are, and also when it has
// none any more. Its name in the log is an id in an extended attribute. Writes are copied into the shared
// queue and acknowledged as Options::durability promises.
//
// Times: the backing file's mtime becomes that of the last write or truncate when its last handle is closed,
// at a sync and at close; a later flush leaves it alone. A kill between a flush and this correction leaves
// the time of the flush.
//
// Threads: all calls are thread-safe. Two threads of its own: the device's StorageThread, and a timer.
// Errors: kBusy if another process has one of the directories; a read of bytes that are lost is kCorruption
// and names file, range and record: it never gives older bytes, until the range is overwritten or the loss is
// accepted; a write that was acknowledged and could not be stored later fails the next sync of its file.
// Limits: StoreOptions. A write may need space in the log for as long as the backing device needs to take a
// segment.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_shares.h"
#include "base/status.h"
#include "io/device.h"
#include "tier/engine/engine_stats.h"
#include "tier/policy/options.h"

namespace swale::tier {

// A file's id: only root (CAP_SYS_ADMIN) can see and change the first one; the second one its owner can, too.
inline constexpr const char* kTrustedIdAttribute = "trusted.swale.tier";
inline constexpr const char* kIdAttribute = "user.swale.tier";
inline constexpr const char* kPrivateDirectory = ".swale-tier";  // in the backing directory

struct StoreOptions {
  std::string ssd_directory;      // made if it is not there
  std::string backing_directory;  // must be there
  Options engine;                 // log_id is ignored; segments only of a new log
  uint32_t queue_slots = 64;      // writes under way
  uint32_t slot_bytes = 256 * 1024;
  size_t open_files_max = 65536;  // files with a handle or with bytes in the log: one descriptor each
  // What the process may hold. A smaller share means fewer slots, maps and files (store_memory.h).
  MemoryLimit memory = {.bytes = UINT64_MAX};
  // The user knows what is lost and wants to go on: reads give what the backing directory has. Also opens
  // without a log that the backing directory was used with.
  bool accept_loss = false;
  bool flush_paused = false;  // from the first moment, as pause_flush(true)
  // for tests: acknowledged writes that a kill catches in the queue are lost
  bool canary_unsealed_queue = false;
};

// What a log holds, without using it: for `swale tier verify` and `dump`.
struct LogReport {
  uint64_t log_id = 0;
  uint64_t segment_bytes = 0;
  uint32_t segments = 0;
  uint32_t live_segments = 0;
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t queued = 0;
  uint64_t torn = 0;             // records that were being written when the process stopped
  uint64_t generation = 0;       // how often the log was opened; 0: it has no seal
  bool closed = false;           // its last process has ended cleanly
  std::vector<Status> problems;  // damaged records, by file, offset and length; damage to the table of files
};

// An entry of the table of files.
struct KnownFile {
  uint64_t address = 0;
  bool removed = false;
  bool given_up = false;
  uint64_t file = 0;
  uint64_t inode = 0;
  std::string path;

  std::string text() const;  // a line
};

// A record of a log or of a queue, as inspect shows it.
struct LogRecord {
  std::string place;  // the file in the SSD directory: "log", "queue.3"
  std::string_view type;
  uint64_t sequence = 0;
  uint64_t file = 0;  // the file's id
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t segment = 0;
  uint64_t address = 0;

  std::string text() const;  // a line
};

// A range of a file whose newest acknowledged bytes are lost. Reads of it fail until it is overwritten.
struct LostBytes {
  std::string path;
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: unknown; any write of the file that had not been flushed
  std::string what;     // which record, and why
};

// Acknowledged bytes of a file that recovery could not find or open. They are in `kept_in`; an opening that
// finds the file brings them to it, and no other call reads or writes the file before.
struct KeptBytes {
  std::string path;     // the last known one; empty: nobody knows
  uint64_t file = 0;    // its id
  uint64_t inode = 0;   // 0: nobody knows, also in a copy of the backing directory
  int64_t born_ns = 0;  // when it was made, in ns since 1970; 0: nobody knows
  uint64_t bytes = 0;
  std::string kept_in;
  std::string why;

  Status text() const;  // with what to do
};

// What opening found and did.
struct RecoveryReport {
  bool made_anew = false;
  uint64_t log_bytes_read = 0;
  uint64_t records = 0;
  uint64_t dropped = 0;  // of files that were removed
  uint64_t queued = 0;   // of records: writes of a killed process that were under way
  uint64_t dirty_bytes = 0;
  uint64_t truncates = 0;  // carried out again
  uint64_t torn = 0;       // records that were being written when the process stopped: never acknowledged
  uint64_t mended = 0;     // records with a damaged copy of their header, which was written anew
  // records, by file and offset of the log; queues of unknown logs, which were kept
  std::vector<Status> damaged;
  std::vector<LostBytes> lost;  // by file and offset: with accept_loss, accepted
  std::vector<KeptBytes> kept;
  uint64_t brought_bytes = 0;  // that had been kept, to files that were found now
};

// What a file is on the backing device.
struct FileKey {
  uint64_t device = 0;
  uint64_t inode = 0;
  bool operator==(const FileKey&) const = default;
};

// What the store knows better than the backing file. Times in ns since 1970.
struct FileView {
  uint64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  // The bytes that the backing file's blocks do not have yet are at most so many: what was written since the
  // store has the file.
  uint64_t written_bytes = 0;
};

class StoreCore;

class Store {
 public:
  using Handle = uint32_t;
  // Puts the bytes of a write where they are wanted.
  using Fill = std::function<Status(MutableBytes)>;
  using Answered = std::function<void(const Status&)>;
  enum class Seek { kData, kHole };

  static Result<std::unique_ptr<Store>> open(io::Device& device, const StoreOptions& options);
  ~Store();  // as close(kKeep)

  // kDrain: returns when everything is on the backing device. kKeep: what is in the log stays there for the
  // next open.
  enum class AtClose { kDrain, kKeep };
  Status close(AtClose how);

  // Paths are relative to the backing directory, without "..". Each handle is closed once; those that are
  // left end with the store. kResourceExhausted: StoreOptions::open_files_max, or the process's limit of
  // descriptors.
  Result<Handle> open_file(const std::string& path, io::OpenMode mode);
  // The same for callers that look after names themselves: by any path that leads to the file,
  // /proc/self/fd/N, too.
  Result<Handle> adopt_file(const std::string& path);
  // Another handle of a file that the store has. None: it has no handle and nothing in the log, so the
  // backing file says all.
  std::optional<Handle> handle_of(const FileKey& key);
  void close_file(Handle file);

  Status write(Handle file, uint64_t offset, Bytes data);
  // `fill` is called once for each part, in order, with the part's place in the queue.
  Status write(Handle file, uint64_t offset, uint64_t length, const Fill& fill);
  // The same for a server of requests, with threads to spare: calls `answered` once the write is
  // acknowledged, or has failed, and carries out some writes to the backing device in this thread, which
  // spares a change of threads for each.
  void write(Handle file, uint64_t offset, uint64_t length, const Fill& fill, const Answered& answered);
  Result<size_t> read(Handle file, uint64_t offset,
                      MutableBytes out);  // fewer bytes only at the end of the file
  // The next byte at or after `offset` that may differ from zero, or the next hole (the end of the file
  // counts as one). kNotFound: there is none, or `offset` is not before the end of the file.
  Result<uint64_t> seek(Handle file, uint64_t offset, Seek what);
  Result<uint64_t> size(Handle file);
  Status truncate(Handle file, uint64_t size);
  Status sync(Handle file);
  // What the next sync will fail with, because an acknowledged write was lost. The next sync still does.
  Status deferred_failure(Handle file);

  // An error if acknowledged bytes of the file of this descriptor (O_PATH also) are kept aside
  // (RecoveryReport::kept): the backing file is older than they are.
  Status expect_whole(int fd) const;
  // None: as handle_of.
  std::optional<FileView> view(const FileKey& key);
  void set_modified(const FileKey& key, int64_t modified_ns);
  // The caller has removed the file's last name: what is in the log goes with the last handle, and what is
  // kept aside at once. `fd`: of the file, O_PATH also.
  void removed(int fd);
  Status remove(const std::string& path);                         // the bytes stay for handles that are open
  Status rename(const std::string& from, const std::string& to);  // replaces `to`
  Status drain();
  void pause_flush(bool paused);

  Stats stats() const;
  Durability durability() const;
  const RecoveryReport& recovery() const;
  // What reads refuse now; also in .swale-tier/lost of the backing directory.
  std::vector<LostBytes> losses() const;
  Status accept_losses();
  // what the loss of the SSD would cost now
  std::vector<std::pair<std::string, uint64_t>> dirty_files() const;

  // What is kept aside below a backing directory, whoever has it open.
  static Result<std::vector<KeptBytes>> kept(io::Device& device, const std::string& backing_directory);
  // Reads the log of a store that nobody has open. `visit` gets each record, if it is set.
  static Result<LogReport> inspect(io::Device& device, const std::string& ssd_directory,
                                   const std::function<void(const LogRecord&)>& visit,
                                   const std::function<void(const KnownFile&)>& visit_file = {});

 private:
  Store(MemoryBudget::Reservation memory, std::shared_ptr<StoreCore> core)
      : memory_(std::move(memory)), core_(std::move(core)) {}
  MemoryBudget::Reservation memory_;
  std::shared_ptr<StoreCore> core_;
};

}  // namespace swale::tier
