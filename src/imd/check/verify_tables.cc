#include "imd/check/verify_tables.h"

#include <algorithm>
#include <optional>
#include <string>

namespace swale::imd {

void TablesVerifier::record(const EpochEntry& epoch, PartitionNumber partition, Hash hash,
                            const ProblemFn& problem) {
  if (!TableCache::has_tables(manifest_, epoch)) return;
  const HashChoice home = choose(hash, manifest_.job_of(epoch).ranks);
  keys_.push_back({PartitionNumber(home.index), source::kept_hash(home.rest)});
  if (keys_.size() == kPairsMax) end_partition(epoch, partition, problem);
}

void TablesVerifier::end_partition(const EpochEntry& epoch, PartitionNumber partition,
                                   const ProblemFn& problem) {
  std::sort(keys_.begin(), keys_.end());
  keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  for (auto first = keys_.begin(); first != keys_.end();) {
    const auto end =
        std::find_if(first, keys_.end(), [&](const Keyed& key) { return key.home != first->home; });
    if (const OpenTable* const table = table_of(epoch, first->home, problem); table != nullptr) {
      const Status status = check_home(*table, partition, &*first, &*first + (end - first));
      if (!status.ok()) problem(status, epoch.epoch);
    }
    first = end;
  }
  keys_.clear();
}

// Keys come in the order of shards: each is read once.
Status TablesVerifier::check_home(const OpenTable& table, PartitionNumber partition, const Keyed* first,
                                  const Keyed* end) {
  const source::TableReader& reader = table.reader;
  std::optional<uint32_t> number;
  std::optional<source::Shard> shard;
  std::string bytes;
  std::vector<uint32_t> named;
  uint64_t missing = 0;
  for (; first != end; ++first) {
    const uint32_t needed = reader.index().place_of(first->kept).number;
    if (number != needed) {
      SWALE_RETURN_IF_ERROR(reader.read_shard(needed, &bytes));
      SWALE_ASSIGN_OR_RETURN(shard, reader.open_shard(bytes, needed));
      number = needed;
    }
    named.clear();
    shard->candidates(first->kept, &named);
    missing += std::find(named.begin(), named.end(), partition) == named.end() ? 1 : 0;
  }
  if (missing == 0) return {};
  return corruption("{}: does not name partition {} for {} keys that it has; run `swale repair`",
                    reader.where(), partition, missing);
}

const OpenTable* TablesVerifier::table_of(const EpochEntry& epoch, PartitionNumber home,
                                          const ProblemFn& problem) {
  const auto [place, added] = tables_.try_emplace({epoch.epoch, home});
  if (!added) return place->second.get();
  const auto logs = open_partition(files_, manifest_.log_of(epoch, home), manifest_);
  if (!logs.ok()) return nullptr;  // its own check says so
  auto table = open_table(files_, manifest_, epoch, **logs);
  if (table.ok()) {
    place->second = std::move(*table);
  } else {
    problem(table.status(), epoch.epoch);
  }
  return place->second.get();
}

void TablesVerifier::finish(const ProblemFn& problem, const std::function<void(uint64_t)>& progress) {
  for (const EpochEntry& epoch : manifest_.epochs) {
    if (!TableCache::has_tables(manifest_, epoch)) continue;
    for (PartitionNumber home(0); home < manifest_.job_of(epoch).ranks; ++home) {
      const OpenTable* const table = table_of(epoch, home, problem);
      if (table == nullptr) continue;
      const Status status = table->reader.verify();
      if (!status.ok()) problem(status, epoch.epoch);
      const source::TableIndex& index = table->reader.index();
      const source::ShardPlace last = index.place(index.trailer().shard_count - 1);
      progress(last.offset + last.bytes);
    }
  }
}

}  // namespace swale::imd
