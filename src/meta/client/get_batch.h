// GetBatch: the ranges of one call of get, as few questions. Regular patterns among the ranges (strides,
// tiles, ranges that follow one another) are asked for as runs, and what servers answer is cut back to the
// ranges.
//
// The pattern is found as in puts (RunDetector), with a range's offset in place of an address. A run stands
// for ranges that followed one another in the call, in whatever order its blocks ascend: the ranges of a run
// are known by the bytes that they have together. Runs of few blocks are asked for as ranges: a run's
// question costs more than a range's.
//
// Cost: finding a pattern 5 to 8 ns a range; a piece of an answer 3 to 5 ns where ranges ascend as the blocks
// do.
// Threads: one at a time. The ranges outlive the batch. Errors: answer() says kCorruption; std::bad_alloc.
#pragma once

#include <span>
#include <vector>

#include "meta/server/messages.h"

namespace swale::meta {

class GetBatch {
 public:
  static constexpr size_t kRangesMin = 16;  // fewer are asked for as they are

  // Requires what check_ranges does.
  explicit GetBatch(std::span<const ByteRange> ranges);

  // Nothing is regular: ask for the ranges as they are.
  bool empty() const { return items_.empty(); }
  std::span<const Run> queries() const { return queries_; }
  // What is asked for beside the queries.
  std::span<const ByteRange> rest() const { return rest_; }

  // The pieces of all ranges. `runs` answers the queries, `rest` what was asked for beside them. Writes over
  // what *out holds: a result that is used again costs no memory.
  Status answer(const FoundRuns& runs, const Found& rest, Found* out);

 private:
  // Ranges from the end of the item before on that one question stands for.
  struct Item {
    size_t ranges_end;
    size_t question;  // of queries_ or of rest_
    bool is_run;
  };

  // Where the next piece and the end of the next range go. Beyond these, *found holds an older answer.
  struct Writer {
    Found* found;
    size_t pieces = 0, ranges = 0;

    void add(const Extent& piece, size_t first);  // joined with the last one of those from `first` on
    void end_range() { found->ends[ranges++] = pieces; }
  };

  void take(uint64_t bytes);
  static bool answer_in_order(std::span<const Run> runs, std::span<const ByteRange> ranges, Writer* out);
  static void answer_by_offset(std::span<const Extent> pieces, std::span<const ByteRange> ranges,
                               Writer* out);
  Status answer_run(const Run& query, std::span<const Run> runs, std::span<const ByteRange> ranges,
                    Writer* out);

  const std::span<const ByteRange> ranges_;
  size_t taken_ = 0;  // of ranges_, while items are made
  std::vector<Item> items_;
  std::vector<Run> queries_;
  std::vector<ByteRange> rest_;
  std::vector<Extent> pieces_;  // of one run's answer
};

}  // namespace swale::meta
