#include "meta/index/relocation.h"

#include <algorithm>

namespace swale::meta {
namespace {

// One after the run's last address; 0 if its addresses do not ascend below 2^63.
uint64_t address_end(const Run& run) {
  uint64_t end = run.place.address;
  if (end >= kOffsetEnd) return 0;
  for (uint32_t l = 0; l < run.levels; ++l) {
    uint64_t span = 0;
    if (__builtin_mul_overflow(run.level[l].count - 1, run.level[l].address_stride, &span) ||
        __builtin_add_overflow(end, span, &end) || end >= kOffsetEnd)
      return 0;
  }
  return end + run.length;
}

}  // namespace

Place relocated(std::span<const SequencedRelocation> rules, Place place, uint64_t length, Sequence sequence,
                uint64_t* whole) {
  *whole = length;
  for (const SequencedRelocation& relocation : rules) {
    const Relocation& rule = relocation.rule;
    if (relocation.sequence < sequence || rule.from != place.log) continue;
    if (place.address >= rule.end) continue;
    if (place.address < rule.begin) {
      *whole = std::min(*whole, rule.begin - place.address);
      continue;
    }
    *whole = std::min(*whole, rule.end - place.address);
    place = {rule.to.log, rule.to.address + (place.address - rule.begin)};
  }
  return place;
}

void relocate_rows(std::span<const SequencedRelocation> rules, std::vector<Entry>* rows) {
  std::vector<Entry> moved;
  moved.reserve(rows->size());
  for (Entry row : *rows) {
    while (row.length > 0) {
      Entry part = row;
      if (row.log != kHoleLog) {
        const Place place = relocated(rules, {row.log, row.address}, row.length, row.sequence, &part.length);
        part.log = place.log;
        part.address = place.address;
      }
      moved.push_back(part);
      row.drop_front(part.length);
    }
  }
  rows->swap(moved);
}

size_t rules_for_whole(std::span<const SequencedRelocation> rules, const Run& run, Sequence sequence,
                       Place* place) {
  const uint64_t end = address_end(run);
  *place = run.place;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Relocation& rule = rules[i].rule;
    if (rules[i].sequence < sequence || rule.from != place->log) continue;
    if (end == 0) return i;
    uint64_t last = 0;  // one after it
    if (__builtin_add_overflow(place->address, end - run.place.address, &last)) return i;
    if (place->address >= rule.end || last <= rule.begin) continue;
    if (place->address < rule.begin || last > rule.end) return i;
    *place = {rule.to.log, rule.to.address + (place->address - rule.begin)};
  }
  return rules.size();
}

}  // namespace swale::meta
