// PassRanks: what the ranks of a job tell each other in a pass of `swale optimize`. Each has a range of
// hashes: the partition of its number in the new cluster.
//
// Threads: one at a time. All calls are collective but range and `is_first`; a rank that is lost, or does not
// come by the job's collective deadline, fails them on all others, by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/cluster_list.h"
#include "imd/format/record_tally.h"
#include "imd/optimize/stripe.h"
#include "net/job/job.h"

namespace swale::imd {

// What the first rank has decided.
struct PassOrder {
  uint32_t number = 0;                      // of the new cluster; 0: there is nothing to do
  uint64_t epochs_left = 0;                 // for the next pass
  std::vector<ClusterEntry::Epoch> epochs;  // that are copied
  std::vector<uint32_t> sources;            // numbers of clusters that are replaced and have freed epochs

  std::string encode() const;
  static Result<PassOrder> decode(Bytes bytes);
};

class PassRanks {
 public:
  explicit PassRanks(net::Job& job) : job_(job) {}

  net::Job& job() const { return job_; }
  uint32_t size() const { return static_cast<uint32_t>(job_.size()); }
  bool is_first() const { return job_.rank() == 0; }
  HashRange range() const;

  // OK if all are, else the failure of the lowest failing rank, with its number.
  Status agree(const Status& mine);
  // kInvalidArgument on all ranks if one says something else than the first.
  Status same(Bytes text, std::string_view what);
  // What the first rank gives, of any length.
  Result<std::string> from_first(Bytes text);
  // Sums over all ranks, which give as many.
  Result<std::vector<RecordTally>> sum(std::span<const RecordTally> mine);

 private:
  net::Job& job_;
};

}  // namespace swale::imd
