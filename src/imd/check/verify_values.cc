#include "imd/check/verify_values.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/hash.h"

namespace swale::imd {
namespace {

constexpr uint64_t kPagesAtOnce = 256;

}  // namespace

Status ValuesVerifier::record(const EpochEntry& epoch, const run::ScannedRecord& record,
                              const std::string& path) {
  const std::string where =
      fmt::format("{}: offset {}: record {} of run {}, epoch {}", path, record.block * run::kBlockBytes,
                  record.ordinal, record.run->run, record.run->epoch);
  const run::ValueRule rule = manifest_.layout.values();
  SWALE_ASSIGN_OR_RETURN(const run::LargeValue large, run::decode_stored_value(rule, record.value, where));
  const bool paged = rule == run::ValueRule::kPaged;
  const uint64_t begin = large.pointer.offset;
  Sums& sums = sums_[{epoch.epoch, large.pointer.writer}];
  sums.pointed.add({1, large.pointer.value_bytes});
  sums.offsets += paged ? run::value_tile(begin, begin + large.pointer.value_bytes) : begin;
  SWALE_ASSIGN_OR_RETURN(const ValueReader::Place place,
                         ValueReader::place_of(manifest_, epoch, record.key, record.value, where));
  if (large.prefix.empty()) {
    if (!paged) SWALE_RETURN_IF_ERROR(values_.head(place).status());
  } else {
    std::string first(large.prefix.size(), '\0');
    SWALE_RETURN_IF_ERROR(values_.read(place, 0, first));
    if (first != large.prefix) {
      return corruption("{}: its {} bytes of a value are not the first ones of the value", where,
                        first.size());
    }
  }
  return has_ranges(epoch) ? Status() : values_.check(place);
}

void ValuesVerifier::add_ranges(const PartitionLogs& logs) {
  for (const run::SegmentRecord& segment : logs.values)
    sums_[{segment.epoch, logs.id.partition}].range = run::range_of(segment);
}

void ValuesVerifier::finish(const std::function<bool(EpochNumber)>& whole, const ProblemFn& problem,
                            const std::function<void(uint64_t)>& progress) {
  std::map<uint32_t, LargeTally> totals;
  for (const auto& [place, sums] : sums_) {
    totals[place.first].add(sums.pointed);
    if (!has_ranges(manifest_.epochs[place.first])) continue;
    if (manifest_.layout.values() == run::ValueRule::kPaged) {
      walk_pages(place, sums, whole(place.first), problem, progress);
    } else {
      walk(place, sums, whole(place.first), problem, progress);
    }
  }
  for (const EpochEntry& epoch : manifest_.epochs) {
    const LargeTally& found = totals[epoch.epoch];
    if (found == epoch.large || epoch.freed || !whole(epoch.epoch)) continue;
    problem(corruption("{}: epoch {}: the records point to {} large values of {} bytes, expected {} of {}",
                       kManifestName, epoch.epoch, found.values, found.bytes, epoch.large.values,
                       epoch.large.bytes),
            epoch.epoch);
  }
}

// After a head that cannot be read the walk is over: only the head says where the next one is.
void ValuesVerifier::walk(const Place& place, const Sums& sums, bool whole, const ProblemFn& problem,
                          const std::function<void(uint64_t)>& progress) {
  const auto [epoch, writer] = place;
  const Result<std::shared_ptr<io::File>> file =
      values_.file(run::ValueRule::kLarge, manifest_.log_of(manifest_.epochs[epoch], writer));
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

// After a damaged page the walk goes on: places of pages are known.
void ValuesVerifier::walk_pages(const Place& place, const Sums& sums, bool whole, const ProblemFn& problem,
                                const std::function<void(uint64_t)>& progress) {
  const auto [epoch, writer] = place;
  const EpochEntry& entry = manifest_.epochs[epoch];
  const Result<std::shared_ptr<io::File>> file =
      values_.file(run::ValueRule::kPaged, manifest_.log_of(entry, writer));
  if (!file.ok()) return problem(file.status(), epoch);
  const std::string& path = (*file)->path();
  const uint64_t first = sums.range.offset / run::kValuePageBytes;
  const uint64_t end = sums.range.end_offset() / run::kValuePageBytes;
  std::vector<char> pages(std::min<uint64_t>(end - first, kPagesAtOnce) * run::kValuePageBytes);
  uint64_t values = 0;
  bool all_right = true;
  for (uint64_t at = first; at < end; at += kPagesAtOnce) {
    const MutableBytes out(pages.data(), std::min(end - at, kPagesAtOnce) * run::kValuePageBytes);
    if (const Status read = io::read_exactly(**file, at * run::kValuePageBytes, out); !read.ok())
      return problem(read, epoch);
    progress(out.size());
    for (uint64_t i = 0; i * run::kValuePageBytes < out.size(); ++i) {
      const Bytes page = view(out).substr(i * run::kValuePageBytes, run::kValuePageBytes);
      const Status right = check_page(page, writer, at + i, epoch, entry.epoch_id, path);
      if (!right.ok()) problem(right, epoch);
      all_right = all_right && right.ok();
      if (right.ok()) values += run::value_page_trailer(page).values;
    }
  }
  if (!all_right) return;
  const uint64_t begin = first * run::kValuePagePayloadBytes;
  const uint64_t tile = run::value_tile(begin, begin + sums.pointed.bytes);
  const bool counted = values == sums.range.values && first * run::kValuePageBytes == sums.range.offset;
  const bool covered = sums.pointed.values == values && sums.offsets == tile &&
                       run::pages_of(sums.pointed.bytes) == end - first;
  if (counted && (!whole || covered)) return;
  problem(
      corruption("{}: epoch {} has {} values in pages {} to {}; its index log says {}, and {} records point "
                 "there, for {} bytes{}",
                 path, epoch, values, first, end, sums.range.values, sums.pointed.values, sums.pointed.bytes,
                 covered ? "" : " that do not lie side by side"),
      epoch);
}

}  // namespace swale::imd
