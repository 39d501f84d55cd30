#include "tier/log/log_space.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "tier/log/log_format.h"

namespace swale::tier {

LogSpace::LogSpace(const Options& options)
    : segment_bytes_(options.segment_bytes),
      per_segment_(1 / static_cast<double>(options.segment_bytes)),
      usable_bytes_(options.segment_bytes - segment_tail_bytes(options.log_alignment)),
      alignment_(options.log_alignment),
      capacity_bytes_(options.segment_count * options.segment_bytes),
      segments_(options.segment_count),
      count_(options.segment_count),
      real_count_(options.segment_count),
      free_count_(options.segment_count) {}

std::optional<uint64_t> LogSpace::reserve(uint64_t bytes, Nanos now) {
  seal_if_full(bytes);
  if (active_ == kNone) {
    if (free_count_ == 0) return std::nullopt;
    const auto found = std::find_if(segments_.begin(), segments_.begin() + real_count_,
                                    [](const Segment& segment) { return !segment.live(); });
    --free_count_;
    active_ = static_cast<uint32_t>(found - segments_.begin());
    found->state = Segment::State::kActive;
    found->ordinal = ++ordinal_;
    found->used_bytes = round_up(kSegmentHeaderBytes, alignment_);
    found->shields_from = ~0ull;
    found->first_write = now;
    used_bytes_ += found->used_bytes;
  }
  Segment& segment = segments_[active_];
  if (segment.used_bytes + bytes > usable_bytes_) return std::nullopt;  // larger than any segment
  const uint64_t address = begin_of(active_) + segment.used_bytes;
  segment.used_bytes += bytes;
  used_bytes_ += bytes;
  ++segment.appending;
  segment.last_write = now;
  index_record(active_, address);
  return address;
}

void LogSpace::index_record(uint32_t index, uint64_t address) {
  auto& records = segments_[index].records;
  if (records.size() == records.capacity()) records.reserve(records.size() + records.size() / 4 + 64);
  records.push_back(static_cast<uint32_t>((address - begin_of(index)) / kRecordUnit));
}

// Records are often alike in size, so the place of an address among the begins is guessed in proportion. From
// there the search doubles its steps.
RecordPlace LogSpace::record_of(uint32_t index, uint64_t address) const {
  const Segment& segment = segments_[index];
  const auto unit = static_cast<uint32_t>((address - begin_of(index)) / kRecordUnit);
  const auto begins = segment.records.begin();
  const auto count = static_cast<ptrdiff_t>(segment.records.size());
  const double share =
      static_cast<double>(address - begin_of(index)) / static_cast<double>(segment.used_bytes);
  const auto guess =
      std::min(count - 1, static_cast<ptrdiff_t>(std::min(1.0, share) * static_cast<double>(count)));
  const auto end_of = [&](ptrdiff_t record) {
    return record + 1 == count ? segment.used_bytes : begins[record + 1] * kRecordUnit;
  };
  if (begins[guess] <= unit && (guess + 1 == count || unit < begins[guess + 1])) {
    const uint64_t begin = begins[guess] * kRecordUnit;
    return {begin_of(index) + begin, end_of(guess) - begin};
  }
  ptrdiff_t low = guess;       // begins at or before the address
  ptrdiff_t high = guess + 1;  // begins after it, or is the end
  for (ptrdiff_t step = 1; low > 0 && begins[low] > unit; step *= 2)
    high = low, low = std::max<ptrdiff_t>(0, low - step);
  for (ptrdiff_t step = 1; high < count && begins[high] <= unit; step *= 2)
    low = high, high = std::min(count, high + step);
  const auto next = std::upper_bound(begins + low, begins + high, unit);
  assert(next != begins);
  const uint64_t begin = *(next - 1) * kRecordUnit;
  return {begin_of(index) + begin, end_of(next - begins - 1) - begin};
}

size_t LogSpace::index_bytes() const {
  size_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.records.capacity() * sizeof(uint32_t);
  return bytes;
}

void LogSpace::seal_active() {
  if (active_ == kNone) return;
  segments_[active_].state = Segment::State::kSealed;
  active_ = kNone;
  sealed_ = true;
}

void LogSpace::seal_if_full(uint64_t bytes) {
  if (active_ == kNone) return;
  if (segments_[active_].used_bytes + bytes > usable_bytes_) seal_active();
}

void LogSpace::shield(uint32_t segment, uint32_t older) {
  if (segment == older) return;
  segments_[segment].shields_from = std::min(segments_[segment].shields_from, segments_[older].ordinal);
}

bool LogSpace::may_go_before_others(uint32_t segment) const {
  const Segment& own = segments_[segment];
  if (own.shields_from >= own.ordinal) return true;
  return std::none_of(segments_.begin(), segments_.end(), [&own](const Segment& other) {
    return other.live() && other.ordinal >= own.shields_from && other.ordinal < own.ordinal;
  });
}

void LogSpace::freed(uint32_t index) {
  Segment& segment = segments_[index];
  assert(segment.dirty_bytes == 0 && segment.appending == 0 && segment.pins == 0);
  used_bytes_ -= segment.used_bytes;
  const uint32_t generation = segment.generation;
  segment = Segment{};
  segment.generation = generation;
  if (index < real_count_) ++free_count_;
}

void LogSpace::restore(uint32_t index, uint32_t generation, uint64_t used_bytes, bool live) {
  Segment& segment = segments_[index];
  segment.generation = generation;
  if (!live) return;
  --free_count_;
  segment.state = Segment::State::kSealed;
  segment.used_bytes = used_bytes;
  used_bytes_ += used_bytes;
}

void LogSpace::restore_record(uint32_t segment, uint64_t address) { index_record(segment, address); }

std::vector<uint32_t> LogSpace::sealed_records(uint32_t index) const {
  const Segment& segment = segments_[index];
  std::vector<uint32_t> sealed;
  sealed.reserve(segment.records.size());
  std::set_difference(segment.records.begin(), segment.records.end(), segment.unsealed.begin(),
                      segment.unsealed.end(), std::back_inserter(sealed));
  return sealed;
}

uint32_t LogSpace::add_recovered_queue() {
  segments_.emplace_back();
  segments_.back().state = Segment::State::kSealed;
  return count_++;
}

}  // namespace swale::tier
