#include "imd/read/reader_tables.h"

#include <algorithm>

#include "imd/format/table_params.h"
#include "run/value_format.h"
#include "source/pair.h"

namespace swale::imd {

Result<std::shared_ptr<const OpenTable>> open_table(const ReaderFiles& files, const Manifest& manifest,
                                                    const EpochEntry& epoch, const PartitionLogs& home) {
  const auto segment =
      std::find_if(home.tables.begin(), home.tables.end(),
                   [&](const run::SegmentRecord& record) { return record.epoch_id == epoch.epoch_id; });
  if (segment == home.tables.end()) {
    return corruption("{}: names no auxiliary table of epoch {}; run `swale repair`", home.index->path(),
                      epoch.epoch);
  }
  const run::ValueRange range = run::range_of(*segment);
  const std::string path = table_log_path(files.directory, home.id);
  Result<std::unique_ptr<io::File>> opened = files.device.open(path, io::OpenMode::kRead);
  if (opened.status().code() == Code::kNotFound)
    return corruption("{}: is missing; `swale repair` makes it anew from the records", path);
  SWALE_RETURN_IF_ERROR(opened.status());
  std::shared_ptr<io::File> file(std::move(*opened));
  SWALE_ASSIGN_OR_RETURN(source::TableReader reader,
                         source::TableReader::open(*file, range.offset, range.bytes));
  files.counters.reads.add(reader.open_cost().reads);
  files.counters.bytes_read.add(reader.open_cost().bytes);
  const source::TableParams& found = reader.trailer().params;
  const source::TableParams wanted =
      table_params(manifest.job_of(epoch).ranks, home.id.partition, epoch.epoch, epoch.epoch_id);
  if (found.table_id != wanted.table_id || found.epoch != wanted.epoch || found.sources != wanted.sources) {
    return corruption(
        "{}: is table {:016x} of epoch {} with {} sources, expected {:016x} of epoch {} with {}; run `swale "
        "repair`",
        reader.where(), found.table_id, found.epoch, found.sources, wanted.table_id, wanted.epoch,
        wanted.sources);
  }
  return std::make_shared<const OpenTable>(OpenTable{std::move(file), std::move(reader)});
}

Result<std::shared_ptr<const OpenTable>> TableCache::table_of(const EpochEntry& epoch, PartitionNumber home,
                                                              uint32_t* depth) {
  const Id id{manifest_.log_of(epoch, home), epoch.epoch};
  {
    const MutexLock lock(mutex_);
    if (const auto found = open_.find(id); found != open_.end()) {
      by_age_.splice(by_age_.begin(), by_age_, found->second.age);
      return found->second.table;
    }
  }
  SWALE_ASSIGN_OR_RETURN(const auto logs, partitions_.get(epoch, home, depth));
  SWALE_ASSIGN_OR_RETURN(std::shared_ptr<const OpenTable> table, open_table(files_, manifest_, epoch, *logs));
  ++*depth;
  std::list<Id> age{id};  // both containers change, or none
  const MutexLock lock(mutex_);
  const auto [place, inserted] = open_.try_emplace(id);
  if (inserted) {
    by_age_.splice(by_age_.begin(), age);
    place->second.age = by_age_.begin();
    place->second.table = table;
  }
  while (open_.size() > kOpenMax) {
    open_.erase(by_age_.back());
    by_age_.pop_back();
  }
  return table;
}

Result<std::vector<uint32_t>> TableCache::candidates(const EpochEntry& epoch, Hash hash, uint32_t* depth) {
  const HashChoice home = choose(hash, manifest_.job_of(epoch).ranks);
  uint32_t own_depth = 0;
  SWALE_ASSIGN_OR_RETURN(const auto table, table_of(epoch, PartitionNumber(home.index), &own_depth));
  std::vector<uint32_t> partitions;
  source::TableReader::Cost cost;
  SWALE_RETURN_IF_ERROR(table->reader.candidates(source::kept_hash(home.rest), &partitions, &cost));
  files_.counters.reads.add(cost.reads);
  files_.counters.bytes_read.add(cost.bytes);
  *depth = std::max(*depth, own_depth + 1);
  return partitions;
}

}  // namespace swale::imd
