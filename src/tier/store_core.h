// StoreCore: the driver of the engine on real files: carries out its actions through the device's StorageThread.
//
// One mutex guards the engine and everything that follows from it; no I/O happens under it. Actions wait in `pending_`; the
// storage thread takes them as operations; their completions go back into the engine, whose new actions are collected by
// whoever has the mutex. Answers are given at once, in the engine's order.
//
// Threads: as Store says. Errors: an exception out of the engine poisons the store: all calls fail from then on, and what was
// acknowledged is recovered by the next open.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/contain.h"
#include "base/mutex.h"
#include "io/lock_file.h"
#include "io/storage_thread.h"
#include "tier/engine.h"
#include "tier/shared_queue.h"
#include "tier/store.h"

namespace swale::tier {

// What opening has found; store_open.cc makes it.
struct OpenedStore {
  StoreOptions options;  // with the log's own id and sizes
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
  std::vector<SegmentScan> segments;
  std::vector<RecordHeader> queued;
  std::vector<std::pair<std::string, uint64_t>> files;  // of the backing directory that have an id, and it
  RecoveryReport report;
};
Result<OpenedStore> open_store(io::Device& device, const StoreOptions& options);

Result<SegmentHeader> log_geometry(io::File& log, const Options& otherwise);
Result<std::vector<SegmentScan>> scan_log(io::File& log, const SegmentHeader& geometry,
                                          RecoveryReport* report);
std::string marker_path(
    const std::string& backing_directory);    // says which log the backing directory belongs to
Result<uint64_t> file_id_of(io::File& file);  // kNotFound: it has none
Status set_file_id(io::File& file, uint64_t id);
uint64_t random_id();

class StoreCore final : public io::StorageClient {
 public:
  StoreCore(io::Device& device, OpenedStore opened);
  ~StoreCore() override;

  Status start();
  Status close(bool drain);

  Result<FileIndex> open_file(const std::string& path, io::OpenMode mode);
  Status write(FileIndex file, uint64_t offset, Bytes data);
  Result<size_t> read(FileIndex file, uint64_t offset, MutableBytes out);
  Result<uint64_t> size(FileIndex file);
  Status truncate(FileIndex file, uint64_t size);
  Status sync(FileIndex file);
  Status remove(const std::string& path);
  Status rename(const std::string& from, const std::string& to);
  Status drain();
  void pause_flush(bool paused);
  Stats stats();
  const RecoveryReport& recovery() const { return opened_.report; }
  std::vector<std::pair<std::string, uint64_t>> dirty_files();

 private:
  struct Slot {
    enum class State : uint8_t { kFree, kUsed, kAnswered } state = State::kFree;
    Code code = Code::kOk;
    bool released = false;
    bool collected = false;  // the writer has its answer
    uint32_t crc = 0;
  };
  struct Waiter {
    bool answered = false;
    Code code = Code::kOk;
    std::string rename_from;  // an unlink that is a rename over the file
    std::string rename_to;
  };
  struct FileEntry {
    std::string path;
    std::unique_ptr<io::File> file;
    uint32_t in_use = 0;  // operations under way
    bool unsynced = false;
    bool gone = false;
  };
  struct SlotWrite {
    uint32_t operations = 0;
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
  void free_slot(uint32_t slot) REQUIRES(mutex_);
  void finish(Action::Kind kind, uint32_t id, const Status& status) REQUIRES(mutex_);
  Status failure(Code code, FileIndex file, std::string_view what) REQUIRES(mutex_);
  FileIndex add_file(const std::string& path, std::unique_ptr<io::File> file, uint64_t id) REQUIRES(mutex_);
  Result<io::File*> use(FileIndex file) REQUIRES(mutex_);
  void unuse(FileIndex file) REQUIRES(mutex_) { --files_[file].in_use; }
  void limit_open_files() REQUIRES(mutex_);
  Result<FileIndex> find(const std::string& path) REQUIRES(mutex_);
  Status wait_for(Ticket ticket, Waiter* waiter, FileIndex file, std::string_view what, MutexLock* lock)
      REQUIRES(mutex_);
  void begin_action(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_append(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_slot(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_read_log(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_backing_sync(std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void sync_files(std::vector<io::Operation>* operations) REQUIRES(mutex_);
  void begin_erase(const Action& action, std::vector<io::Operation>* operations) REQUIRES(mutex_);
  // Gives the mutex up meanwhile and has it again when it returns.
  void call_blocking(const Action& action) REQUIRES(mutex_);
  Status read_piece(const ReadPiece& piece, io::File* backing, MutableBytes out);
  std::pair<io::File*, uint64_t> log_place(uint64_t address) const;
  Status abandon_log();
  std::string full_path(const std::string& path) const;
  void run_timer();
  Nanos now() const { return system_clock().now(); }

  io::Device& device_;
  OpenedStore opened_;
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
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<uint32_t> free_slots_ GUARDED_BY(mutex_);
  std::map<Ticket, Waiter*> waiters_ GUARDED_BY(mutex_);
  Ticket next_ticket_ GUARDED_BY(mutex_) = uint64_t{1} << 32;
  std::vector<FileEntry> files_ GUARDED_BY(mutex_);
  std::unordered_map<std::string, FileIndex> by_path_ GUARDED_BY(mutex_);
  size_t open_files_ GUARDED_BY(mutex_) = 0;
  size_t evict_next_ GUARDED_BY(mutex_) = 0;
  std::vector<SlotWrite> slot_writes_ GUARDED_BY(mutex_);  // by slot of the elevator
  std::vector<std::string> buffers_ GUARDED_BY(mutex_);    // of flush pieces
  std::map<uint32_t, std::array<char, kRecordHeaderBytes>> control_
      GUARDED_BY(mutex_);  // records without payload, by op
  std::vector<std::array<char, kSegmentHeaderBytes>> headers_ GUARDED_BY(mutex_);  // of erasures, by segment
  uint32_t syncs_left_ GUARDED_BY(mutex_) = 0;
  Status sync_status_ GUARDED_BY(mutex_);
  std::vector<FileIndex> to_sync_ GUARDED_BY(mutex_);
  Status last_error_ GUARDED_BY(mutex_);  // the device's words for the code that the engine hands on
};

}  // namespace swale::tier
