// Whose an epoch is, for repair. A log says only by its name of which job it is, and files may have been
// exchanged or put back in the wrong place. The epoch's id says it: a record of an epoch log names the job,
// or the job's own id makes the epoch's.
//
// Threads: values. Memory: 40 bytes a record of the epoch logs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"

namespace swale::imd {

class EpochOwners {
 public:
  // The last job counts: repair copies what is left of an open epoch, and the epoch becomes its own.
  void add_record(uint64_t epoch_id, uint32_t job);
  void add_job(const JobEntry& job);
  // `job` has moved the epoch to its own logs, beside the values in those of the job that wrote it.
  void add_move(uint64_t epoch_id, uint32_t job) { moved_.emplace(epoch_id, job); }
  bool is_moved(uint64_t epoch_id, uint32_t job) const { return moved_.contains({epoch_id, job}); }

  // None: it has no record, and no job that is known has made its id.
  std::optional<uint32_t> owner(uint64_t epoch_id, EpochNumber epoch) const;
  bool has_record(uint64_t epoch_id) const { return recorded_.contains(epoch_id); }
  // Whether the job's own id makes the epoch's. Of what repair has copied that is another job's.
  bool makes(uint32_t job, uint64_t epoch_id, EpochNumber epoch) const;

 private:
  std::map<uint64_t, uint32_t> recorded_;  // by epoch id
  std::map<uint32_t, uint64_t> job_ids_;   // by number
  std::set<std::pair<uint64_t, uint32_t>> moved_;
};

// What was in logs of a job that is not theirs.
struct Misplaced {
  std::set<std::pair<uint32_t, EpochNumber>> owned;  // whose they are
  std::set<EpochNumber> unknown;                     // nobody can say it
};

// Takes from `logs` every epoch that is not of the job whose name the log has. `jobs`: those that are known;
// `last_job`: the last one that is known to have been one.
Misplaced remove_misplaced(const EpochOwners& owners, const std::vector<JobEntry>& jobs, uint32_t last_job,
                           Logs* logs);

}  // namespace swale::imd
