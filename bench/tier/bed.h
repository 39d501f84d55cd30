// Bed: a tier engine with a disk and an SSD in virtual time: it carries out the engine's actions. Its owner
// moves the time.
//
// Threads: one at a time. Deterministic. Errors: a request that a device has no slot for, or an action that
// no run of the benchmarks asks for, ends the process.
#pragma once

#include <functional>
#include <vector>

#include "io/disk_model.h"
#include "io/virtual_disk.h"
#include "tier/engine/engine.h"

namespace swale::tierbench {

class Bed {
 public:
  // `acknowledge` gets the answers; it may not call the bed.
  Bed(const io::Testbed& bed, const tier::Options& options, std::function<void(tier::Ticket)> acknowledge);

  tier::Engine& engine() { return engine_; }
  const tier::Engine& engine() const { return engine_; }
  const io::DiskUse& disk_use() const { return disk_.use(); }

  Nanos next_event();
  // What has happened by `now`.
  void step(Nanos now);
  // What the engine wants after a request: call after each.
  void carry_out(Nanos now);
  // Reads as a mount does, one request to each device that has a part; answered as a request.
  void read(tier::Ticket ticket, tier::FileIndex file, uint64_t offset, uint64_t length, Nanos now);

 private:
  struct Read {
    tier::Ticket ticket = 0;
    tier::ReadPlan plan;
    uint32_t left = 0;  // requests to devices; 0: free
  };

  [[noreturn]] void stuck(Nanos now) const;
  void carry_out_one(const tier::Action& action, Nanos now);
  void submit(io::VirtualDisk* disk, io::DiskRequest::Kind kind, uint64_t offset, uint64_t bytes,
              uint64_t tag, Nanos now);
  void read_part_done(uint32_t index, Nanos now);

  io::VirtualDisk disk_;
  io::VirtualDisk ssd_;
  tier::Engine engine_;
  const std::function<void(tier::Ticket)> acknowledge_;
  std::vector<tier::Action> at_once_;  // truncates and unlinks, which take no time
  std::vector<io::DiskCompletion> completions_;
  std::vector<Read> reads_;
};

}  // namespace swale::tierbench
