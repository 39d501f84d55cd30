#include "imd/check/repair_shape.h"

#include <algorithm>
#include <string>

#include "imd/format/partitioner.h"

namespace swale::imd {
namespace {

void take_shape(const run::RunHeader& header, JobEntry* job) {
  job->ranks = header.ranks;
  job->ways = header.ways;
  job->partitioner = header.home == run::HomeRule::kPartitioner ? kLostPartitioner : kHashPartitioner;
}

}  // namespace

JobEntry job_of_logs(const Logs& logs, uint32_t number) {
  JobEntry job;
  job.number = number;
  job.id = std::string(16, '0');
  // Without a run: the segments say how many ways there were, and every rank has made its logs.
  for (auto at = logs.lower_bound({number, PartitionNumber(0)}); at != logs.end() && at->first.job == number;
       ++at) {
    job.ranks = std::max<uint32_t>(job.ranks, at->first.partition + 1);
    for (const auto& [epoch_id, epoch] : at->second.epochs) {
      for (const run::SegmentRecord& segment : epoch.segments) {
        if (!run::is_auxiliary(segment)) job.ways = segment.ways;
      }
    }
  }
  for (auto at = logs.lower_bound({number, PartitionNumber(0)}); at != logs.end() && at->first.job == number;
       ++at) {
    for (const auto& [epoch_id, epoch] : at->second.epochs) {
      if (!epoch.runs.empty()) take_shape(epoch.runs.front().header, &job);
    }
  }
  return job;
}

run::Layout layout_of_logs(const Logs& logs) {
  run::Layout layout;
  for (const auto& [id, log] : logs) {
    for (const auto& [epoch_id, epoch] : log.epochs) {
      for (const FoundRun& run : epoch.runs) {
        if (run.header.values == run::ValueRule::kPaged) layout.format = run::ShuffleFormat::kIndirect;
        if (run.header.home == run::HomeRule::kWriter) layout.format = run::ShuffleFormat::kLossy;
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
