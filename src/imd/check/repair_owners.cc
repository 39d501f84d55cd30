#include "imd/check/repair_owners.h"

#include <algorithm>
#include <charconv>

#include "imd/check/repair_shape.h"
#include "imd/format/epoch_id.h"
#include "imd/format/partitioner.h"

namespace swale::imd {
namespace {

// Whether a run may be of this job.
bool fits(const JobEntry& job, const run::RunHeader& run) {
  const bool asked = job.partitioner != kHashPartitioner;
  return run.ranks == job.ranks && run.ways == job.ways &&
         (run.home == run::HomeRule::kWriter || (run.home == run::HomeRule::kPartitioner) == asked);
}

bool fits(const JobEntry& job, const LogEpoch& epoch) {
  const auto run_fits = [&](const FoundRun& run) { return fits(job, run.header); };
  const auto segment_fits = [&](const run::SegmentRecord& segment) {
    return run::is_auxiliary(segment) || segment.ways == job.ways;
  };
  return std::ranges::all_of(epoch.runs, run_fits) && std::ranges::all_of(epoch.segments, segment_fits);
}

class MisplacedRemover {
 public:
  MisplacedRemover(const EpochOwners& owners, const std::vector<JobEntry>& jobs, uint32_t last_job,
                   Logs* logs)
      : owners_(owners), last_job_(last_job), logs_(*logs) {
    for (const JobEntry& job : jobs) jobs_.emplace(job.number, job);
  }

  Misplaced run();

 private:
  struct Known {
    std::optional<uint32_t> owner;
    std::set<uint32_t> jobs;  // in whose logs it is
  };

  void find_owners();
  bool belongs(LogId id, uint64_t epoch_id, const LogEpoch& epoch);
  bool vouches(const JobEntry& job, uint64_t epoch_id, EpochNumber number);
  bool has_both_halves(const JobEntry& job, const EpochEntry& epoch) const;
  const JobEntry& job(uint32_t number);

  const EpochOwners& owners_;
  const uint32_t last_job_;
  Logs& logs_;
  std::map<uint32_t, JobEntry> jobs_;                      // by number
  std::map<uint64_t, Known> epochs_;                       // by epoch id
  std::set<uint32_t> makers_;                              // jobs that have epochs of their own in some log
  std::map<std::pair<uint32_t, uint64_t>, bool> vouched_;  // by job and epoch id
};

const JobEntry& MisplacedRemover::job(uint32_t number) {
  const auto known = jobs_.find(number);
  if (known != jobs_.end()) return known->second;
  return jobs_.emplace(number, job_of_logs(logs_, number)).first->second;
}

// Whether in one partition the data log has all records that the index log counts.
bool MisplacedRemover::has_both_halves(const JobEntry& job, const EpochEntry& epoch) const {
  for (PartitionNumber partition(0); partition < job.ranks; ++partition) {
    const PartFacts part = look_at_part(logs_, job, epoch, partition);
    const LogEpoch& here = facts_of(logs_, {job.number, partition}).of(epoch.epoch_id);
    if (part.committed.value_or(0) > 0 && part.whole() && fits(job, here)) return true;
  }
  return false;
}

bool MisplacedRemover::vouches(const JobEntry& job, uint64_t epoch_id, EpochNumber number) {
  const auto [place, added] = vouched_.try_emplace({job.number, epoch_id}, false);
  EpochEntry epoch;
  epoch.epoch = number;
  epoch.epoch_id = epoch_id;
  if (added) place->second = has_both_halves(job, epoch);
  return place->second;
}

bool MisplacedRemover::belongs(LogId id, uint64_t epoch_id, const LogEpoch& epoch) {
  const Known& known = epochs_.at(epoch_id);
  if (known.owner == id.job || owners_.is_moved(epoch_id, id.job)) return true;
  // Repair's copy of an open epoch has the id that its first job made, and its record may be lost. Repair's
  // job makes none.
  if (known.owner) {
    return *known.owner < id.job && !owners_.has_record(epoch_id) && !makers_.contains(id.job) &&
           vouches(job(id.job), epoch_id, epoch.epoch);
  }
  if (!fits(job(id.job), epoch)) return false;
  return known.jobs.size() <= 1 || vouches(job(id.job), epoch_id, epoch.epoch);
}

void MisplacedRemover::find_owners() {
  for (const auto& [id, log] : logs_) {
    for (const auto& [epoch_id, epoch] : log.epochs) {
      const auto [place, added] = epochs_.try_emplace(epoch_id);
      if (added) {
        const auto owner = place->second.owner = owners_.owner(epoch_id, epoch.epoch);
        if (owner && owners_.makes(*owner, epoch_id, epoch.epoch)) makers_.insert(*owner);
      }
      // A repair that was stopped has left copies in files of a job that never was.
      if (id.job <= last_job_) place->second.jobs.insert(id.job);
    }
  }
}

Misplaced MisplacedRemover::run() {
  Misplaced misplaced;
  find_owners();
  std::vector<std::pair<LogId, uint64_t>> wrong;  // removed at the end: partitions vouch for each other
  for (const auto& [id, log] : logs_) {
    for (const auto& [epoch_id, epoch] : log.epochs) {
      if (belongs(id, epoch_id, epoch)) continue;
      wrong.emplace_back(id, epoch_id);
      if (const std::optional<uint32_t> owner = epochs_.at(epoch_id).owner) {
        misplaced.owned.emplace(*owner, epoch.epoch);
      } else {
        misplaced.unknown.insert(epoch.epoch);
      }
    }
  }
  for (const auto& [id, epoch_id] : wrong) logs_.at(id).epochs.erase(epoch_id);
  return misplaced;
}

}  // namespace

void EpochOwners::add_record(uint64_t epoch_id, uint32_t job) {
  uint32_t& last = recorded_[epoch_id];
  last = std::max(last, job);
}

void EpochOwners::add_job(const JobEntry& job) {
  uint64_t id = 0;
  const char* const end = job.id.data() + job.id.size();
  if (std::from_chars(job.id.data(), end, id, 16).ptr == end && id != 0) job_ids_[job.number] = id;
}

std::optional<uint32_t> EpochOwners::owner(uint64_t epoch_id, EpochNumber epoch) const {
  const auto recorded = recorded_.find(epoch_id);
  if (recorded != recorded_.end()) return recorded->second;
  const auto maker =
      std::ranges::find_if(job_ids_, [&](const auto& job) { return makes(job.first, epoch_id, epoch); });
  return maker == job_ids_.end() ? std::nullopt : std::optional<uint32_t>(maker->first);
}

bool EpochOwners::makes(uint32_t job, uint64_t epoch_id, EpochNumber epoch) const {
  const auto id = job_ids_.find(job);
  return id != job_ids_.end() && imd::epoch_id(id->second, epoch) == epoch_id;
}

Misplaced remove_misplaced(const EpochOwners& owners, const std::vector<JobEntry>& jobs, uint32_t last_job,
                           Logs* logs) {
  return MisplacedRemover(owners, jobs, last_job, logs).run();
}

}  // namespace swale::imd
