#include "imd/check/verify_values.h"

#include <string>

#include "base/hash.h"

namespace swale::imd {

Status ValuesVerifier::record(const EpochEntry& epoch, const run::ScannedRecord& record,
                              const std::string& path) {
  const std::string where =
      fmt::format("{}: offset {}: record {} of run {}, epoch {}", path, record.block * run::kBlockBytes,
                  record.ordinal, record.run->run, record.run->epoch);
  SWALE_ASSIGN_OR_RETURN(const run::LargeValue large, run::decode_large_value(record.value, where));
  Sums& sums = sums_[{epoch.epoch, large.pointer.writer}];
  sums.pointed.add({1, large.pointer.value_bytes});
  sums.offsets += large.pointer.offset;
  const ValueReader::Place place{large.pointer, manifest_.job_of(epoch).number, epoch.epoch, epoch.epoch_id,
                                 hash_bytes(record.key)};
  if (large.prefix.empty()) {
    SWALE_RETURN_IF_ERROR(values_.head(place).status());
  } else {
    std::string first(large.prefix.size(), '\0');
    SWALE_RETURN_IF_ERROR(values_.read(place, 0, first));
    if (first != large.prefix) {
      return corruption("{}: its {} bytes of a large value are not the first ones of the value", where,
                        first.size());
    }
  }
  return epoch.recovered == Recovered::kPartial ? values_.check(place) : Status();
}

void ValuesVerifier::add_ranges(const PartitionLogs& logs) {
  for (const run::SegmentRecord& segment : logs.values)
    sums_[{segment.epoch, logs.partition}].range = run::range_of(segment);
}

void ValuesVerifier::finish(const std::function<bool(uint32_t)>& whole, const ProblemFn& problem,
                            const std::function<void(uint64_t)>& progress) {
  std::map<uint32_t, LargeTally> totals;
  for (const auto& [place, sums] : sums_) {
    totals[place.first].add(sums.pointed);
    if (manifest_.epochs[place.first].recovered == Recovered::kPartial) continue;
    walk(place, sums, whole(place.first), problem, progress);
  }
  for (const EpochEntry& epoch : manifest_.epochs) {
    const LargeTally& found = totals[epoch.epoch];
    if (found == epoch.large || !whole(epoch.epoch)) continue;
    problem(corruption("{}: epoch {}: the records point to {} large values of {} bytes, expected {} of {}",
                       kManifestName, epoch.epoch, found.values, found.bytes, epoch.large.values,
                       epoch.large.bytes),
            epoch.epoch);
  }
}

// Behind a head that cannot be read the walk is over: only the head says where the next one is.
void ValuesVerifier::walk(const Place& place, const Sums& sums, bool whole, const ProblemFn& problem,
                          const std::function<void(uint64_t)>& progress) {
  const auto [epoch, writer] = place;
  const Result<std::shared_ptr<io::File>> file =
      values_.file(manifest_.log_of(manifest_.epochs[epoch], writer));
  if (!file.ok()) return problem(file.status(), epoch);
  uint64_t values = 0;
  uint64_t offsets = 0;
  uint64_t at = sums.range.offset;
  while (at < sums.range.end_offset()) {
    const Result<run::ValueHead> head = read_value_head(**file, writer, at);
    if (!head.ok()) return problem(head.status(), epoch);
    if (head->epoch != epoch || head->epoch_id != manifest_.epochs[epoch].epoch_id) {
      return problem(corruption("{}: offset {}: a value of epoch {} ({:016x}) within epoch {}",
                                (*file)->path(), at, head->epoch, head->epoch_id, epoch),
                     epoch);
    }
    progress(head->value_offset() - at);
    if (const Status read = check_value(**file, *head, progress); !read.ok()) problem(read, epoch);
    ++values;
    offsets += at;
    at = head->end_offset();
  }
  if (at == sums.range.end_offset() && values == sums.range.values &&
      (!whole || (values == sums.pointed.values && offsets == sums.offsets))) {
    return;
  }
  problem(
      corruption(
          "{}: epoch {} has {} values from offset {} to {}; its index log says {} up to {}, and {} records "
          "point there",
          (*file)->path(), epoch, values, sums.range.offset, at, sums.range.values, sums.range.end_offset(),
          sums.pointed.values),
      epoch);
}

}  // namespace swale::imd
