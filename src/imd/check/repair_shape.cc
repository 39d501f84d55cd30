#include "imd/check/repair_shape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/hash.h"

namespace swale::imd {
namespace {

constexpr uint32_t kWaysTried = 4096;
constexpr uint32_t kRanksTried = 4096;  // beyond those that have logs: whose files are gone

struct Range {
  Hash least = ~Hash{0};
  Hash greatest = 0;
};

struct JobFacts {
  uint32_t ranks_min = 0;
  uint32_t ways = 0;  // as segments say; 0: there are none
  uint32_t greatest_way = 0;
  std::map<std::pair<uint32_t, uint32_t>, Range> keys;  // by partition and way
};

void add_log(LogId id, const LogFacts& log, JobFacts* job) {
  job->ranks_min = std::max(job->ranks_min, id.partition + 1);
  for (const auto& [epoch_id, epoch] : log.epochs) {
    for (const run::SegmentRecord& segment : epoch.segments) {
      if ((segment.flags & run::kAuxiliarySegment) == 0) job->ways = segment.ways;
    }
    for (const FoundRun& run : epoch.runs) {
      job->greatest_way = std::max<uint32_t>(job->greatest_way, run.header.way);
      Range& range = job->keys[{id.partition, run.header.way}];
      range.least = std::min(range.least, run.least);
      range.greatest = std::max(range.greatest, run.greatest);
    }
  }
}

// Both choices are monotone in the hash: the least and the greatest key speak for all between.
bool fits(const JobFacts& job, uint32_t ranks, uint32_t ways) {
  return std::all_of(job.keys.begin(), job.keys.end(), [&](const auto& entry) {
    const auto& [place, range] = entry;
    for (const Hash hash : {range.least, range.greatest}) {
      const HashChoice home = choose(hash, ranks);
      if (home.index != place.first) return false;
      if (ways > 0 && choose(home.rest, ways).index != place.second) return false;
    }
    return true;
  });
}

}  // namespace

std::optional<JobEntry> guess_job(const Logs& logs, uint32_t job_number) {
  JobFacts facts;
  for (const auto& [id, log] : logs) {
    if (id.job == job_number) add_log(id, log, &facts);
  }
  const uint32_t ranks_min = std::max(facts.ranks_min, 1u);
  for (uint32_t ranks = ranks_min; ranks <= ranks_min + kRanksTried; ++ranks) {
    if (!fits(facts, ranks, 0)) continue;
    const uint32_t first = facts.ways > 0 ? facts.ways : facts.greatest_way + 1;
    const uint32_t last = facts.ways > 0 ? facts.ways : std::max(first, kWaysTried);
    for (uint32_t ways = first; ways <= last; ++ways) {
      if (!fits(facts, ranks, ways)) continue;
      JobEntry job;
      job.number = job_number;
      job.id = std::string(16, '0');
      job.ranks = static_cast<int32_t>(ranks);
      job.ways = ways;
      return job;
    }
  }
  return std::nullopt;
}

run::Layout guess_layout(const Logs& logs) {
  run::Layout layout;
  for (const auto& [id, log] : logs) {
    for (const auto& [epoch_id, epoch] : log.epochs) {
      for (const FoundRun& run : epoch.runs) {
        if (run.header.kind == run::RunKind::kPacked)
          layout.compression = static_cast<Codec>(run.header.codec);
      }
      for (const run::SegmentRecord& segment : epoch.segments) {
        if (!run::is_filter_segment(segment)) continue;
        const bool blocked = (segment.flags & run::kBlockedBloomSegment) != 0;
        layout.index = blocked ? run::IndexKind::kBlockedBloom : run::IndexKind::kBloom;
        layout.bloom_bits = segment.filter_bits;
      }
    }
  }
  return layout;
}

}  // namespace swale::imd
