// RepairRun: `swale repair` as a process of a simulation, on a machine with a clock of its own. Each of its storage calls
// takes a random time, so that whoever shares the disk may act in between; a process that is killed does nothing any more, and
// its storage refuses what its unwinding code would still write.
//
// Threads: the simulation's one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "imd/check/repair.h"
#include "io/fault_device.h"
#include "sim/event_queue.h"
#include "sim/fiber.h"

namespace swale::sim {

class RepairRun {
 public:
  // `lock_wait`: how long it watches whether a lock that is there is renewed.
  RepairRun(uint64_t seed, io::Device& disk, std::string directory,
            Nanos lock_wait = io::LeaseOptions().wait);
  ~RepairRun() { kill(); }

  // Lets at most so many further events happen. False: none is left.
  bool run(uint64_t events);
  void kill();
  // None while it runs, and if it was killed.
  const std::optional<Result<imd::RepairReport>>& outcome() const { return outcome_; }

 private:
  void repair();
  void pause(Nanos nanos);

  const uint64_t seed_;
  const std::string directory_;
  const Nanos lock_wait_;
  bool alive_ = true;
  EventQueue events_;
  io::FaultDevice device_;
  std::optional<Result<imd::RepairReport>> outcome_;
  Fiber fiber_;  // destroyed first: what its body unwinds is still there
};

}  // namespace swale::sim
