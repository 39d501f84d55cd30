#include "sim/cluster.h"

#include <algorithm>
#include <utility>

#include "imd/format/generation.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/node.h"

namespace swale::sim {

MakeFabric& default_fabric() {
  static MakeFabric made = [](const ClusterParams& params, EventQueue& events, Fabric::Arrive arrive,
                              const Fabric::Lose&) {
    return std::make_unique<Fabric>(events, kSecret, params.faults.frames, std::move(arrive));
  };
  return made;
}

class Simulation {
 public:
  Simulation(const ClusterParams& params, io::Device& device, std::string directory)
      : params_(params),
        directory_(std::move(directory)),
        events_(params.seed),
        fabric_(params.fabric(
            params, events_,
            [this](net::Rank from, net::Rank to, Bytes header, Bytes payload) {
              nodes_[static_cast<size_t>(to)]->arrive(from, header, payload);
            },
            [this](net::Rank at, net::Rank peer, const Status& why) {
              nodes_[static_cast<size_t>(at)]->lose(peer, why);
            })),
        world_{params_,  device,   directory_, events_,
               *fabric_, outcome_, false,      [this] { return all_over(); }} {}

  ~Simulation() {
    for (const std::unique_ptr<Node>& node : nodes_) node->die();
  }

  // Lets the ranks open the directory.
  Status open() {
    SWALE_ASSIGN_OR_RETURN(world_.made, imd::has_manifest(world_.disk, directory_));
    for (net::Rank rank = 0; rank < params_.ranks; ++rank)
      nodes_.push_back(std::make_unique<Node>(world_, rank));
    for (const std::unique_ptr<Node>& node : nodes_) node->start();
    if (params_.faults.killed >= 0 && params_.faults.kill_in_opening) plan_kill();
    while (!opening_is_over() && events_.step()) {
    }
    for (const std::unique_ptr<Node>& node : nodes_) {
      if (node->opened() && !node->opened()->ok()) return *node->opened();
    }
    if (params_.faults.killed >= 0 && !params_.faults.kill_in_opening) plan_kill();
    return {};
  }

  bool run(uint64_t events) {
    for (uint64_t count = 0; count < events; ++count) {
      if (!events_.step()) return false;
      ++outcome_.events;
    }
    return !events_.empty();
  }

  void kill(net::Rank rank) {
    nodes_[static_cast<size_t>(rank)]->die();
    fabric_->kill(rank);
  }

  ClusterOutcome outcome() const {
    ClusterOutcome outcome = outcome_;
    for (const std::unique_ptr<Node>& node : nodes_) outcome.ranks.push_back(node->outcome());
    outcome.data_frames = fabric_->frames(FrameClass::kData);
    outcome.control_frames = fabric_->frames(FrameClass::kControl);
    outcome.own_frames = fabric_->frames(FrameClass::kOwn);
    outcome.time = events_.now();
    return outcome;
  }

 private:
  void plan_kill() {
    events_.at(events_.now() + params_.faults.kill_time, [this] { kill(params_.faults.killed); });
  }
  bool opening_is_over() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const std::unique_ptr<Node>& node) {
      return node->opened().has_value() || node->over();
    });
  }
  bool all_over() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const std::unique_ptr<Node>& node) { return node->over(); });
  }

  const ClusterParams params_;
  const std::string directory_;
  EventQueue events_;
  std::unique_ptr<Fabric> fabric_;
  ClusterOutcome outcome_;
  World world_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

Cluster::Cluster(std::unique_ptr<Simulation> simulation) : simulation_(std::move(simulation)) {}
Cluster::~Cluster() = default;
bool Cluster::run(uint64_t events) { return simulation_->run(events); }
void Cluster::kill(net::Rank rank) { simulation_->kill(rank); }
ClusterOutcome Cluster::outcome() const { return simulation_->outcome(); }

Result<std::unique_ptr<Cluster>> Cluster::open(const ClusterParams& params, io::Device& device,
                                               const std::string& directory) {
  auto simulation = std::make_unique<Simulation>(params, device, directory);
  SWALE_RETURN_IF_ERROR(simulation->open());
  return std::unique_ptr<Cluster>(new Cluster(std::move(simulation)));
}

Result<ClusterOutcome> run_cluster(const ClusterParams& params, io::Device& device,
                                   const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster, Cluster::open(params, device, directory));
  cluster->run(params.faults.events_max);
  return cluster->outcome();
}

uint32_t promised(const ClusterOutcome& outcome) {
  uint32_t most = 0;
  for (const RankOutcome& rank : outcome.ranks) most = std::max(most, rank.epochs_ok);
  return outcome.first_epoch + most;
}

}  // namespace swale::sim
