// CrashWorld: an engine on devices in memory, a byte-for-byte model of what was promised, and crashes. For
// tests.
//
// Random requests go in, actions are carried out one at a time in random order, and at any point the process
// is killed or the power fails: actions under way happen, happen in part, or do not happen; without power,
// what was not synced too. Then the log is scanned and recovered, and each byte must be what was
// acknowledged, or what a request that was under way wrote. Records may be damaged while nobody runs, or
// under a running process: a byte of one may then be refused, and must never be older than what was
// acknowledged.
//
// Threads: one at a time. Deterministic by its seed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tier/engine/engine.h"
#include "tier/engine/testing/crash_image.h"
#include "tier/log/log_read.h"

namespace swale::tier {

class CrashWorld {
 public:
  CrashWorld(const Options& options, uint64_t seed);

  // One random step: a request, an action carried out, or time. "" or what is wrong.
  std::string step();
  // Kill (page cache) or power failure (other modes), recovery, and a check of all bytes.
  // `damages`: so many records are damaged in between.
  std::string crash(uint32_t damages = 0);
  // Carries everything out, drains, and compares the backing device with the model.
  enum class Drain { kMustWork, kMayFail, kNobodyLooks };  // kNobodyLooks: bytes are not compared
  std::string settle(Drain drain = Drain::kMustWork);

  // Damages records of the log that were acknowledged, under the feet of the engine: a bit of a header, of an
  // end, of the checks or of the payload, or a sector of it.
  void damage(uint32_t records);
  uint64_t damaged() const { return damaged_; }
  uint64_t refused_bytes() const { return refused_bytes_; }  // found in checks
  // The user accepts what is lost.
  std::string accept();
  // A request of the caller's choice, to one of the files.
  void write(int name, uint64_t offset, uint64_t length);
  void truncate(int name, uint64_t size);
  // Before the first step: crashes cut the power, whatever the mode. With the page cache as the promise, what
  // counts is what a sync of its file covered.
  void cut_power() { cut_power_ = true; }
  // Many writes have exactly the range of another one.
  void repeat_ranges() { repeat_ranges_ = true; }

  void fail_next(Action::Kind kind) {  // from now on
    failing_.insert(kind);
    may_refuse_ = true;
  }
  void heal() { failing_.clear(); }
  // Actions of this kind do not end until resume(): a device that hangs.
  void hang(Action::Kind kind) { hanging_.insert(kind); }
  void resume() { hanging_.clear(); }
  // The clock that the engine is told jumps, ahead or back. The world's own goes on.
  void jump_clock(Nanos by) { clock_offset_ += by; }
  void pause_flush() { engine_->pause_flush(true, clock()); }
  const Engine& engine() const { return *engine_; }
  const std::map<std::string, uint64_t>& visited() const { return visited_; }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t refused() const { return refused_; }

 private:
  struct Request {
    enum class Kind { kWrite, kTruncate, kUnlink, kSync, kDrain } kind;
    int name;
    uint64_t offset;
    std::string payload;
    bool answered = false;
    std::vector<Ticket> covered = {};  // of a sync: who had written each byte when it was asked for
  };
  struct NamedFile {
    FileIndex index;
    uint64_t id;
    std::string content;          // as acknowledged
    std::vector<bool> uncertain;  // bytes of failed writes: anything
    // answers may come in another order than effects: the younger request wins
    std::vector<Ticket> written_by;
    std::vector<Ticket> synced_by;  // whose bytes a sync has made durable
    std::vector<Ticket> told_by;    // whose bytes may be gone for ever: a sync has failed, which is told once
    std::vector<std::pair<Ticket, uint64_t>> cuts;  // truncates and unlinks, and the size that they left
    std::vector<bool> lost;                         // a read was refused: it stays so
    std::vector<bool> damaged;                      // a record of this byte was: a read may be refused
    bool busy = false;                              // a truncate or unlink is under way
    // What is there if the power fails now: a truncate has failed, but has cut the file, not durably. And
    // that truncate.
    std::shared_ptr<NamedFile> uncut;
    Ticket cut_by = 0;
  };
  struct Queued {
    RecordHeader record;
    std::string payload;
  };
  // What a read gave: bytes, and which of them it refused.
  struct ReadBytes {
    std::string bytes;
    std::vector<bool> refused;
    std::string wrong;
  };
  enum class Part { kHeader, kEnd, kChecks, kPayload, kSector };

  void make_log();
  void open_name(int name);
  void start();
  std::string request();
  void collect();
  std::string answer(const Action& action);
  static void make_uncertain(NamedFile* file, uint64_t from);
  static void cut(NamedFile* file, Ticket ticket, uint64_t size);
  std::string take_failed_truncate(Ticket ticket, const Request& request);
  static void take_write(NamedFile* file, Ticket ticket, const Request& request, bool ok);
  std::string perform(size_t position);
  std::vector<size_t> performable() const;
  Nanos clock() const { return now_ + clock_offset_; }
  void apply(const Action& action, double part);
  std::string read_queue(uint64_t address, uint64_t length);
  Result<LogDamage> verified(const RecordPlace& place, uint64_t address, MutableBytes out) const;
  void read_log(uint32_t id);
  SegmentHeader segment_header(uint32_t index) const;
  void write_segment_headers(const SegmentHeader& header, double part);
  void write_record(const Action& action, double part);
  std::vector<SegmentScan> scan(Bytes log) const;
  void mend_log(std::vector<SegmentScan>* scans, uint64_t writes_max);
  void recover_in_part();
  bool cuts_power() const { return cut_power_ || options_.durability != Durability::kPageCache; }
  void damage_record(const RecordHeader& record);
  void read_piece(const ReadPiece& piece, const NamedFile& file, ReadBytes* out);
  ReadBytes read_file(const NamedFile& file, uint64_t offset, uint64_t length);
  std::string check_range(int name, uint64_t offset, uint64_t length);
  std::string check_bytes(int name, uint64_t offset, const ReadBytes& found);
  std::string check_cut(int name, uint64_t size, const ReadBytes& found) const;
  std::string check_crash(int name, const ReadBytes& found);
  std::string check_backing(int name);
  void take_found(NamedFile* file, const ReadBytes& found);
  static void take_sync(NamedFile* file, const std::vector<Ticket>& covered);
  void forget_unsynced();
  std::string payload(uint64_t length);

  static constexpr int kNames = 3;
  static constexpr uint64_t kFileBytes = 6000;
  static constexpr Nanos kWaitMax = 3'600'000'000'000;  // of the world's time, until everything is drained

  Options options_;
  Rng rng_;
  Nanos now_ = 0;
  Nanos clock_offset_ = 0;
  std::unique_ptr<Engine> engine_;
  Image log_;
  std::map<uint64_t, Image> backing_;        // by id
  std::map<Ticket, Queued> queue_;           // of this process
  std::vector<Queued> old_queue_;            // of killed ones
  std::map<uint64_t, size_t> old_queue_at_;  // address: which
  std::vector<NamedFile> names_;
  std::map<Ticket, Request> requests_;
  std::vector<Action> actions_;
  std::vector<std::string> buffers_;
  std::map<uint32_t, std::vector<Engine::FileRange>> damaged_reads_;  // by piece
  LossList saved_losses_;
  Ticket next_ticket_ = 1;
  uint64_t next_id_ = 1;
  std::set<Action::Kind> failing_;
  std::set<Action::Kind> hanging_;
  std::map<std::string, uint64_t> visited_;
  uint64_t acknowledged_ = 0;
  uint64_t refused_ = 0;
  std::string last_ = "start";
  std::string broken_;  // what no process may do, seen while an action was carried out
  bool abandoned_ = false;
  bool cut_power_ = false;
  bool repeat_ranges_ = false;
  bool may_refuse_ = false;                                  // a device fails
  std::set<std::pair<uint64_t, uint64_t>> damaged_records_;  // address and sequence: each one once
  uint64_t damaged_ = 0;
  uint64_t refused_bytes_ = 0;
  int drain_again_ = 0;
};

}  // namespace swale::tier
