// StoreCore: the driver of the engine on real files: carries out its actions through the device's
// StorageThread.
//
// One mutex guards the engine and everything that follows from it, which stands in four parts: the open files
// (open_files.h), their syncs (file_syncs.h), the queue's slots (queue_slots.h) and what is under way on the
// log (log_operations.h); none of them knows another. No I/O happens under the mutex. Actions wait in
// `pending_`; the storage thread takes them as operations; their completions go back into the engine, whose
// new actions are collected by whoever has the mutex. Answers are given at once, in the engine's order.
//
// Threads: as Store says. Errors: an exception out of the engine poisons the store: all calls fail from then
// on, and what was acknowledged is recovered by the next open.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/contain.h"
#include "base/mutex.h"
#include "io/lock_file.h"
#include "io/storage_thread.h"
#include "tier/engine/engine.h"
#include "tier/log/log_read.h"
#include "tier/log/log_seal.h"
#include "tier/store/file_identity.h"
#include "tier/store/file_syncs.h"
#include "tier/store/file_table.h"
#include "tier/store/log_operations.h"
#include "tier/store/open_files.h"
#include "tier/store/queue_slots.h"
#include "tier/store/shared_queue.h"
#include "tier/store/store.h"

namespace swale::tier {

// What the backing directory says of the log and the queues that it was used with.
struct Marker {
  bool there = false;
  bool abandoned = false;
  uint64_t log_id = 0;
  // The log before this one. Its process went on without it, so acknowledged writes may stand in queues under
  // its id. Queues with lower numbers were flushed before it was abandoned: they are older than the backing
  // device.
  uint64_t queues_log_id = 0;  // 0: there was none
  uint64_t queues_from = 0;
  uint64_t generation = 0;  // how often it was used with a log (store_seal.h)
  // Where the ids of the files are that its records name.
  bool trusted_ids = false;
};
std::string encode_marker(const Marker& marker);

// A file that records name.
struct FoundFile {
  std::unique_ptr<io::File> file;
  uint64_t id = 0;
};

// What opening has found; store_open.cc makes it.
struct OpenedStore {
  std::unique_ptr<io::Device> device;  // the SSD directory and .swale-tier are private ones of it
  StoreOptions options;                // with the log's own id and sizes
  const char* id_attribute = kIdAttribute;
  std::unique_ptr<io::LockFile> ssd_lock;
  std::unique_ptr<io::LockFile> backing_lock;
  std::unique_ptr<io::File> log;
  std::unique_ptr<SharedQueue> queue;
  struct OldQueue {
    std::string path;
    std::unique_ptr<io::File> file;
    uint64_t base = 0;  // address of its first byte
  };
  std::vector<OldQueue> old_queues;
  Marker marker;                // as it is on the backing device; of a log that was made anew: as it will be
  std::optional<LogSeal> seal;  // as it is on the SSD
  uint64_t queue_number = 0;
  Engine::Found found;
  std::vector<FoundFile> files;      // that records name
  std::unique_ptr<FileTable> table;  // of all of them, and of those that are opened
  uint64_t kept_records = 0;         // of files that were not found, or not opened
  RecoveryReport report;
};
Result<OpenedStore> open_store(io::Device& device, const StoreOptions& options);

Result<SegmentHeader> log_geometry(io::File& log, const Options& otherwise);
Result<std::vector<SegmentScan>> scan_log(io::File& log, const SegmentHeader& geometry,
                                          const std::optional<LogSeal>& seal, RecoveryReport* report);
std::string marker_path(
    const std::string& backing_directory);  // says which log the backing directory belongs to
Status words_of(const std::string& path, const DamagedRecord& damaged);
std::string losses_path(const std::string& backing_directory);  // the list of what is lost
// `attribute`: OpenedStore::id_attribute. kNotFound: it has none.
Result<uint64_t> file_id_of(io::File& file, const char* attribute);
Status set_file_id(io::File& file, const char* attribute, uint64_t id);
uint64_t random_id();
// Opens a backing file to read and write, also one of this user's whose mode forbids it.
Result<std::unique_ptr<io::File>> open_backing(io::Device& device, const std::string& path);
// The same, of the file that `fd` (O_PATH) is of; `path` names it in messages, if it still leads to it.
Result<std::unique_ptr<io::File>> open_backing(io::Device& device, int fd, const std::string& path);
// The files that the log's records name; store_find.cc.
Status find_files(OpenedStore* opened);
class StoreCore final : public io::StorageClient {
 public:
  StoreCore(io::Device& device, OpenedStore opened);
  ~StoreCore() override;

  Status start();
  Status close(bool drain);

  Result<FileIndex> open_file(const std::string& path, io::OpenMode mode);
  Result<FileIndex> adopt_file(const std::string& path);
  std::optional<FileIndex> handle_of(const FileKey& key);
  void close_file(FileIndex file);
  // Whether the caller calls help() as soon as it has told the answer.
  enum class Helps { kNo, kYes };
  Status write(FileIndex file, uint64_t offset, uint64_t length, const Store::Fill& fill,
               Helps helps = Helps::kNo);
  void help_before_answer();
  void help();
  Result<size_t> read(FileIndex file, uint64_t offset, MutableBytes out);
  Result<uint64_t> seek(FileIndex file, uint64_t offset, Store::Seek what);
  Result<uint64_t> size(FileIndex file);
  Status truncate(FileIndex file, uint64_t size);
  Status sync(FileIndex file);
  Status deferred_failure(FileIndex file);
  std::optional<FileView> view(const FileKey& key);
  void set_modified(const FileKey& key, int64_t modified_ns);
  void removed(int fd);
  Status expect_whole(int fd) const;
  Status remove(const std::string& path);
  Status rename(const std::string& from, const std::string& to);
  Status drain();
  // The same, and returns once the queues of killed processes are removed.
  Status drain_queues();
  void pause_flush(bool paused);
  Stats stats();
  std::vector<LostBytes> losses();
  Status accept_losses();
  const RecoveryReport& recovery() const { return opened_.report; }
  Durability durability() const { return opened_.options.engine.durability; }
  std::vector<std::pair<std::string, uint64_t>> dirty_files();

 private:
  struct Waiter {
    bool answered = false;
    Code code = Code::kOk;
  };
  struct SlotWrite {
    uint32_t operations = 0;
    bool direct = false;             // some of it does not stand in the log
    uint32_t failed_syncs = 0;       // of its file, when it began
    uint64_t offset = 0, bytes = 0;  // of all operations together
    Status status;
  };

  // io::StorageClient
  bool start(std::vector<io::Operation>* operations) override;
  void completed(const io::Completion& completion) override;
  void failed(const Status& why) noexcept override;

  // With the mutex.
  // Calls the engine. What it throws poisons the store.
  template <class Call>
  void engine_call(const Call& call) REQUIRES(mutex_) {
    if (!poisoned_.ok()) return;
    try {
      call();
      collect();
    } catch (...) {
      poison(status_of_exception());
    }
  }
  void poison(const Status& why) REQUIRES(mutex_);
  void collect() REQUIRES(mutex_);
  void answer(const Action& action) REQUIRES(mutex_);
  void finish(Action::Kind kind, uint32_t id, const Status& status) REQUIRES(mutex_);
  Status failure(Code code, FileIndex file, std::string_view what) REQUIRES(mutex_);

  // store_files.cc. Those that say so give the mutex up meanwhile.
  Result<FileIndex> take_in(std::unique_ptr<io::File> file);
  FileIndex add_file(std::unique_ptr<io::File> file, const BackingState& state, uint64_t id) REQUIRES(mutex_);
  Status unknown(FileIndex file) const { return invalid_argument("file handle {} is not open", file); }
  void save_times(FileIndex file) REQUIRES(mutex_);  // gives the mutex up
  void settle(FileIndex file) REQUIRES(mutex_);      // gives the mutex up
  void settle_all() REQUIRES(mutex_);                // gives the mutex up
  void look_after_files(Action::Kind kind) REQUIRES(mutex_);
  void discard(FileIndex file) REQUIRES(mutex_);
  std::string name_of(FileIndex file) const REQUIRES(mutex_);

  // gives the mutex up
  void hand_in(uint32_t slot, FileIndex file, uint64_t offset, uint32_t length, Helps helps) REQUIRES(mutex_);
  // What the engine answers to a request: `call` hands it in under the ticket that it gets. `file` and `what`
  // are for the words of a failure. Gives the mutex up meanwhile.
  template <class Call>
  Status ask(FileIndex file, std::string_view what, MutexLock* lock, const Call& call) REQUIRES(mutex_) {
    Waiter waiter;
    const Ticket ticket = next_ticket_++;
    waiters_[ticket] = &waiter;
    engine_call([&]() REQUIRES(mutex_) { call(ticket); });
    return wait_for(ticket, &waiter, file, what, lock);
  }
  Status wait_for(Ticket ticket, Waiter* waiter, FileIndex file, std::string_view what, MutexLock* lock)
      REQUIRES(mutex_);
  void begin_action(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  std::pair<uint64_t, Bytes> record_bytes(const Action& action) REQUIRES(mutex_);
  void begin_append(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_slot(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void help_with(size_t slots_max) REQUIRES(mutex_);  // gives the mutex up meanwhile
  void wake_for_pending() REQUIRES(mutex_);
  void tell_write(FileIndex file, const SlotWrite& write, const Status& status) REQUIRES(mutex_);
  void slot_done(uint32_t slot, const Status& status, Helps helps) REQUIRES(mutex_);  // gives the mutex up
  const char* flushed_bytes(uint32_t buffer) REQUIRES(mutex_);
  void log_was_read(uint32_t id, size_t bytes);
  void begin_read_log(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_backing_sync() REQUIRES(mutex_);  // gives the mutex up
  void begin_file_sync(FileIndex file) REQUIRES(mutex_);
  void file_synced(FileIndex file, const Status& status) REQUIRES(mutex_);  // gives the mutex up
  void sync_files(std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_erase(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  // Gives the mutex up meanwhile and has it again when it returns.
  void call_blocking(const Action& action) REQUIRES(mutex_);
  Status read_piece(const ReadPiece& piece, io::File* backing, MutableBytes out);
  // store_losses.cc
  Status read_backing(const ReadPiece& piece, io::File* backing, MutableBytes out);
  Status read_log_piece(const ReadPiece& piece, io::File* backing, MutableBytes out);
  Status read_log_bytes(uint64_t address, MutableBytes out);
  Status lost(const std::string& path, const ReadPiece& piece) const;
  std::string loss_words(LossReason reason, uint64_t address) const;
  Status save_loss_list(const LossList& list);
  std::vector<LostBytes> lost_bytes() REQUIRES(mutex_);
  // Says in the log that all of it was acknowledged.
  void settle_log(MutexLock* lock) REQUIRES(mutex_);
  // What a flush has read, if it fails its checks.
  std::vector<Engine::FileRange> damage_of(const FlushPiece& piece, Bytes record);
  bool is_old_queue(uint64_t address) const { return address >= log_bytes_; }
  std::pair<io::File*, uint64_t> log_place(uint64_t address) const;
  Status abandon_log();
  void seal_log();  // store_seal.cc
  Status log_is_there() const;
  Status end_claim();
  std::string full_path(const std::string& path) const;
  void run_timer();
  Nanos now() const { return system_clock().now(); }

  // store_files.cc: the table of files
  Status expect_room_for_a_file(const std::string& path) EXCLUDES(mutex_);
  void note_file(uint64_t id, FileIdentity identity) EXCLUDES(mutex_);
  Status expect_whole(uint64_t id, const std::string& path) const;
  bool is_kept(const KeptBytes& kept, int fd) const;
  void give_up_removed(int fd) EXCLUDES(mutex_);
  void sync_removals() REQUIRES(mutex_);  // gives the mutex up

  io::Device& device_;
  OpenedStore opened_;
  BackingRoot root_;
  const uint64_t log_bytes_;
  std::shared_ptr<io::StorageThread> storage_;
  std::thread timer_;

  Mutex mutex_;
  CondVar answered_;
  CondVar slot_free_;
  CondVar timer_changed_;
  std::unique_ptr<Engine> engine_ GUARDED_BY(mutex_);
  Status poisoned_ GUARDED_BY(mutex_);
  Nanos timer_due_ GUARDED_BY(mutex_) = kForever;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::deque<Action> pending_ GUARDED_BY(mutex_);
  QueueSlots slots_ GUARDED_BY(mutex_);
  std::map<Ticket, Waiter*> waiters_ GUARDED_BY(mutex_);
  Ticket next_ticket_ GUARDED_BY(mutex_) = uint64_t{1} << 32;
  // Writes to the backing device that the engine asks for now need no storage thread: this thread calls
  // help() before it waits for anything.
  bool helps_ GUARDED_BY(mutex_) = false;
  bool helping_ GUARDED_BY(mutex_) = false;
  uint32_t slow_writes_ GUARDED_BY(mutex_) = 0;  // by helpers: counts down with each quick one
  // What the engine wants of the writer that has asked (write): it appends to the log itself, which saves two
  // changes of threads.
  Ticket own_ticket_ GUARDED_BY(mutex_) = kRecoveryTicket;
  std::optional<Action> own_append_ GUARDED_BY(mutex_);
  Mutex adoption_;  // taken before mutex_: a file gets one id
  OpenFiles files_ GUARDED_BY(mutex_);
  FileSyncs file_syncs_ GUARDED_BY(mutex_);
  uint64_t next_base_ GUARDED_BY(mutex_) = 0;
  uint64_t erasures_ GUARDED_BY(mutex_) = 0;               // when waiting files were looked at
  std::vector<SlotWrite> slot_writes_ GUARDED_BY(mutex_);  // by slot of the elevator
  std::vector<std::string> buffers_ GUARDED_BY(mutex_);    // of flush pieces
  LogOperations log_operations_ GUARDED_BY(mutex_);
  Nanos removals_due_ GUARDED_BY(mutex_) = kForever;  // when removals in the table of files are synced
  Status last_error_ GUARDED_BY(mutex_);  // the device's words for the code that the engine hands on
};

}  // namespace swale::tier
