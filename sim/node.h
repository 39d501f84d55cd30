// Node: one rank of a simulated cluster: a process with the product's state machines, the product's opening,
// and a scripted application. The events of its Simulation drive it.
//
// The opening runs as in a real process (imd::open_directory: lock, takeover, claims, agreement), on a Fiber.
// A killed process does nothing more, and its storage refuses the writes of its unwinding code.
//
// Threads: the simulation's one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "imd/write/appender.h"
#include "imd/write/writer_open.h"
#include "io/fault_device.h"
#include "sim/cluster.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/fiber.h"
#include "sim/sim_job.h"

namespace swale::sim {

// The state that all nodes of a cluster share.
struct World {
  const ClusterParams& params;
  io::Device& disk;
  const std::string& directory;
  EventQueue& events;
  Fabric& fabric;
  ClusterOutcome& outcome;  // counters, model, first epoch
  bool made = false;        // the directory existed when the cluster started
  std::function<bool()> all_over;
};

inline constexpr uint64_t kSecret = 0x5ec2e7;

class Node {
 public:
  Node(World& world, net::Rank rank);
  ~Node() { die(); }

  void start();
  // None until the opening has ended.
  const std::optional<Status>& opened() const { return opening_; }
  void arrive(net::Rank from, Bytes header, Bytes payload);
  void lose(net::Rank peer, const Status& why);  // the fabric says so
  void die();
  bool over() const { return !alive_ || script_ == Script::kDone; }
  const RankOutcome& outcome() const { return outcome_; }

 private:
  enum class Script { kOpen, kAppend, kWaitEpoch, kWaitClose, kDone };

  // Schedules an action of the process, which does nothing if the process is dead by then.
  void after(Nanos limit, std::function<void()> act);
  void at(Nanos time, std::function<void()> act);

  // Opening: the body of the fiber, and its parts.
  Status open(Fiber& fiber);
  Status start_machines();
  imd::OpenEnvironment environment(Fiber& fiber);
  Result<imd::WriterOptions> options() const;
  void sleep(Fiber& fiber, Nanos nanos);
  void resume_opening();

  // The script.
  void step_later();
  void tick_later();
  void renew_lock();
  void step();
  bool append_one();
  bool end_epoch();  // false: it has to wait
  void finish(const Status& failure);
  void shut_down();
  void advance_script();

  // Starts all work that the core has now, and lets the application continue.
  void pump();
  void pump_tasks();
  void pump_storage();

  World& world_;
  const net::Rank rank_;
  bool alive_ = true;
  bool left_ = false;  // the job
  io::FaultDevice device_;
  SimJob job_;
  std::optional<Status> opening_;
  std::optional<imd::OpenedDirectory> opened_;
  std::unique_ptr<imd::WriterCore> core_;
  std::optional<imd::Appender> appender_;
  std::optional<imd::Committer> committer_;

  Script script_ = Script::kOpen;
  uint64_t records_to_write_ = 0;
  uint64_t written_ = 0;
  uint32_t epoch_ = 0;
  std::optional<run::RecordView> large_;  // whose value is written
  imd::Appender::Need need_;              // of the append that is blocked
  bool step_planned_ = false;
  RankOutcome outcome_;
  Fiber fiber_;  // destroyed first: its body uses the members above while it unwinds
};

}  // namespace swale::sim
