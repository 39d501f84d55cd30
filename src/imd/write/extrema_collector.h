// ExtremaCollector: the extrema of one way of a partition while it is written: a group of the open epoch and one of the
// closing epoch (partition.h), and the segment that is being made of one of them.
//
// Threads: none; the owner serialises calls, except what a Task does with the group or the segment that it was given.
// Memory: memory_bytes(), made at creation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "run/extrema.h"

namespace swale::imd {

class ExtremaCollector {
 public:
  ExtremaCollector(std::span<const run::FieldPlace> fields, uint32_t blocks_max)
      : open_(std::make_unique<run::ExtremaGroup>(fields, blocks_max)),
        closing_(std::make_unique<run::ExtremaGroup>(fields, blocks_max)) {}
  static size_t memory_bytes(size_t blocks_max, size_t fields) {
    return 2 * run::ExtremaGroup::memory_bytes(blocks_max, fields) +
           run::ExtremaSegmentBuilder::memory_bytes(blocks_max);
  }

  run::ExtremaGroup& group(bool closing) { return closing ? *closing_ : *open_; }
  const run::ExtremaGroup& group(bool closing) const { return closing ? *closing_ : *open_; }

  // The open epoch closes. Requires that the one closed before has no extrema left.
  void end_epoch() { std::swap(open_, closing_); }

  run::ExtremaSegmentBuilder* segment() const { return segment_.get(); }
  void start_segment(bool closing, const run::SegmentParams& params, uint64_t index_end) {
    segment_ = std::make_unique<run::ExtremaSegmentBuilder>(group(closing), params, index_end);
  }
  // The segment is whole: its group starts anew, and its totals are added to those of the epoch.
  run::SegmentRecord finish_segment(bool closing, std::vector<run::FieldTotals>* totals) {
    run::ExtremaGroup& of = group(closing);
    totals->resize(of.fields());
    for (size_t f = 0; f < of.fields(); ++f) (*totals)[f].add(of.totals(f));
    of.clear();
    return std::exchange(segment_, nullptr)->record();
  }

 private:
  std::unique_ptr<run::ExtremaGroup> open_;
  std::unique_ptr<run::ExtremaGroup> closing_;
  std::unique_ptr<run::ExtremaSegmentBuilder> segment_;
};

}  // namespace swale::imd
