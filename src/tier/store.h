// Store: files on slow storage with an SSD log in front of them: the tier's engine on real files.
//
//   SSD directory:      log, queue.N (writes under way), lock
//   backing directory:  the files, as anybody can read them once they are drained; .swale-tier/ (which log, lock)
//
// A file's name in the log is an id in the extended attribute user.swale.tier of its backing file. Writes are copied into the
// shared queue and acknowledged as Options::durability promises.
//
// Threads: all calls are thread-safe. Two threads of its own: the device's StorageThread, and a timer.
// Errors: kBusy if another process has one of the directories; kCorruption names what a damaged log has lost; a write that was
// acknowledged and could not be stored later fails the next sync of its file.
// Limits: StoreOptions. A write may need space in the log for as long as the backing device needs to take a segment.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/device.h"
#include "tier/engine_stats.h"
#include "tier/options.h"

namespace swale::tier {

struct StoreOptions {
  std::string ssd_directory;      // made if it is not there
  std::string backing_directory;  // must be there
  Options engine;                 // log_id is ignored; segments only of a new log
  uint32_t queue_slots = 64;      // writes under way
  uint32_t slot_bytes = 256 * 1024;
  size_t open_files_max = 256;  // descriptors of backing files
  bool canary_unsealed_queue =
      false;  // for tests: acknowledged writes that a kill catches in the queue are lost
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
  std::vector<Status> problems;  // damaged records, by file, offset and length
};

// What opening found and did.
struct RecoveryReport {
  bool made_anew = false;
  uint64_t log_bytes_read = 0;
  uint64_t records = 0;
  uint64_t dropped = 0;  // of files that are gone
  uint64_t queued = 0;   // of records: writes of a killed process that were under way
  uint64_t dirty_bytes = 0;
  uint64_t truncates = 0;  // carried out again
  std::vector<Status> damaged;
};

class StoreCore;

class Store {
 public:
  using Handle = uint32_t;

  static Result<std::unique_ptr<Store>> open(io::Device& device, const StoreOptions& options);
  ~Store();  // as close(kKeep)

  // kDrain: returns when everything is on the backing device. kKeep: what is in the log stays there for the next open.
  enum class AtClose { kDrain, kKeep };
  Status close(AtClose how);

  // Paths are relative to the backing directory, without "..". A handle stays valid while the store is open.
  Result<Handle> open_file(const std::string& path, io::OpenMode mode);
  Status write(Handle file, uint64_t offset, Bytes data);
  Result<size_t> read(Handle file, uint64_t offset,
                      MutableBytes out);  // fewer bytes only at the end of the file
  Result<uint64_t> size(Handle file);
  Status truncate(Handle file, uint64_t size);
  Status sync(Handle file);
  Status remove(const std::string& path);
  Status rename(const std::string& from,
                const std::string& to);  // replaces `to`; handles of `from` stay valid
  Status drain();
  void pause_flush(bool paused);

  Stats stats() const;
  const RecoveryReport& recovery() const;
  std::vector<std::pair<std::string, uint64_t>> dirty_files()
      const;  // what the loss of the SSD would cost now

  // Reads the log of a store that nobody has open. `visit` gets a line for each record, if it is set.
  static Result<LogReport> inspect(io::Device& device, const std::string& ssd_directory,
                                   const std::function<void(const std::string&)>& visit);

 private:
  explicit Store(std::shared_ptr<StoreCore> core) : core_(std::move(core)) {}
  std::shared_ptr<StoreCore> core_;
};

}  // namespace swale::tier
