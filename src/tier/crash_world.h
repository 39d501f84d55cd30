// CrashWorld: an engine on devices in memory, a byte-for-byte model of what was promised, and crashes. For tests.
//
// Random requests go in, actions are carried out one at a time in random order, and at any point the process is killed or the
// power fails: actions under way happen, happen in part, or do not happen; without power, what was not synced too. Then the
// log is scanned and recovered, and each byte must be what was acknowledged, or what a request that was under way wrote.
//
// Threads: one at a time. Deterministic by its seed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tier/engine.h"

namespace swale::tier {

// Bytes on a device: what a running process reads, and what is left when the power fails.
class Image {
 public:
  void write(uint64_t offset, Bytes bytes);
  void resize(uint64_t size);
  void sync();
  void lose_power(Rng* rng);  // what was not synced happens, happens in part, or does not
  std::string read(uint64_t offset, uint64_t length) const;  // zeros behind the end
  uint64_t size() const { return now_.size(); }
  const std::string& bytes() const { return now_; }

 private:
  struct Change {
    uint64_t offset;
    std::string bytes;
    bool resize;
  };
  static void apply(std::string* to, const Change& change);
  std::string now_;
  std::string durable_;
  std::vector<Change> changes_;
};

class CrashWorld {
 public:
  CrashWorld(const Options& options, uint64_t seed);

  // One random step: a request, an action carried out, or time. "" or what is wrong.
  std::string step();
  // Kill (page cache) or power failure (other modes), recovery, and a check of all bytes.
  std::string crash();
  // Carries everything out, drains, and compares the backing device with the model.
  enum class Drain { kMustWork, kMayFail, kNobodyLooks };  // kNobodyLooks: bytes are not compared
  std::string settle(Drain drain = Drain::kMustWork);

  void fail_next(Action::Kind kind) { failing_.insert(kind); }  // from now on
  void heal() { failing_.clear(); }
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
  };
  struct NamedFile {
    FileIndex index;
    uint64_t id;
    std::string content;          // as acknowledged
    std::vector<bool> uncertain;  // bytes of failed writes: anything
    std::vector<Ticket>
        written_by;  // answers may come in another order than effects: the younger request wins
    std::vector<std::pair<Ticket, uint64_t>> cuts;  // truncates and unlinks, and the size that they left
    bool busy = false;                              // a truncate or unlink is under way
  };
  struct Queued {
    RecordHeader record;
    std::string payload;
  };

  void open_name(int name);
  void start();
  std::string request();
  void collect();
  std::string answer(const Action& action);
  static void make_uncertain(NamedFile* file, uint64_t from);
  void take_write(Ticket ticket, const Request& request, bool ok);
  std::string perform(size_t position);
  void apply(const Action& action, double part);
  std::string read_address(uint64_t address, uint64_t length) const;
  std::string read_file(const NamedFile& file, uint64_t offset, uint64_t length);
  std::string check_range(int name, uint64_t offset, uint64_t length);
  std::string check_bytes(int name, uint64_t offset, Bytes found) const;
  std::string payload(uint64_t length);

  static constexpr int kNames = 3;
  static constexpr uint64_t kFileBytes = 6000;

  Options options_;
  Rng rng_;
  Nanos now_ = 0;
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
  Ticket next_ticket_ = 1;
  uint64_t next_id_ = 1;
  std::set<Action::Kind> failing_;
  std::map<std::string, uint64_t> visited_;
  uint64_t acknowledged_ = 0;
  uint64_t refused_ = 0;
  std::string last_ = "start";
  bool abandoned_ = false;
  int drain_again_ = 0;
};

}  // namespace swale::tier
