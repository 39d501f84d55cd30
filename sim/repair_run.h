// RepairRun: `swale repair` as a process of a simulation, on a machine with its own clock. Each storage call
// takes a random time, so that other users of the disk may act in between. A killed process does nothing
// more, and its storage refuses the writes of its unwinding code.
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
  // `lock_wait`: how long it watches whether an existing lock is renewed.
  RepairRun(uint64_t seed, io::Device& disk, std::string directory,
            Nanos lock_wait = io::LeaseOptions().wait);
  ~RepairRun() { kill(); }

  // Runs at most so many further events. False: none is left.
  bool run(uint64_t events);
  void kill();
  // None while it runs, or if it was killed.
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
  Fiber fiber_;  // destroyed first: its body uses the members above while it unwinds
};

}  // namespace swale::sim
