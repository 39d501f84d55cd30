#include "run/run_cursor.h"

#include <algorithm>
#include <cassert>

#include "run/packed_block.h"

namespace swale::run {

RunCursor::RunCursor(PartitionNumber partition, BlockNumber first_block, std::string path,
                     std::optional<uint64_t> epoch_id)
    : partition_(partition),
      path_(std::move(path)),
      epoch_id_(epoch_id),
      next_block_(first_block),
      run_end_block_(first_block) {}

Status RunCursor::malformed(BlockNumber block, std::string_view problem) const {
  return corruption("{}: offset {}: run {} of epoch {}: {}; run `swale verify`", path_, block * kBlockBytes,
                    run_.run, run_.epoch, problem);
}

Status RunCursor::feed(Bytes blocks, const RecordFn& fn) {
  if (blocks.size() % kBlockBytes != 0) {
    return corruption("{}: offset {}: the file is cut off within a block", path_,
                      next_block_ * kBlockBytes + blocks.size());
  }
  for (; !blocks.empty() && !stopped_; blocks.remove_prefix(kBlockBytes)) {
    SWALE_RETURN_IF_ERROR(feed_block(blocks.substr(0, kBlockBytes), fn));
  }
  return {};
}

Status RunCursor::finish() const {
  if (stopped_ || between_runs()) return {};
  return malformed(next_block_, fmt::format("cut off after {} of {} blocks",
                                            run_.blocks - (run_end_block_ - next_block_), run_.blocks));
}

Status RunCursor::begin_run(Bytes block) {
  SWALE_ASSIGN_OR_RETURN(run_, decode_run_header(block, partition_, next_block_, path_));
  if (epoch_id_ && run_.epoch_id != *epoch_id_) {
    return malformed(next_block_,
                     fmt::format("expected epoch id {:016x}, found {:016x}", *epoch_id_, run_.epoch_id));
  }
  seed_ = epoch_seed(partition_, run_.epoch_id);
  run_end_block_ = next_block_ + run_.blocks;
  ordinal_ = 0;
  data_bytes_ = 0;
  unfinished_.clear();
  yielded_ = 0;
  torn_ = resync_ = false;
  return {};
}

bool RunCursor::pass_block() {
  if (between_runs()) return false;
  unfinished_.clear();
  torn_ = resync_ = true;
  ++next_block_;
  if (between_runs()) end_torn_run();
  return true;
}

void RunCursor::end_torn_run() {
  left_out_ += run_.records - std::min(yielded_, run_.records);
  ++runs_;
}

Status RunCursor::feed_block(Bytes block, const RecordFn& fn) {
  if (between_runs()) SWALE_RETURN_IF_ERROR(begin_run(block));
  SWALE_RETURN_IF_ERROR(verify_block(block, seed_, next_block_, path_));
  const BlockTrailer trailer = block_trailer(block.data());
  const uint32_t expected = ordinal_ + (unfinished_.empty() ? 0 : 1);
  if (resync_ && trailer.count == 0) {  // the middle of a record that began in the skipped block
    ++next_block_;
    if (between_runs()) end_torn_run();
    return {};
  }
  if (resync_ && trailer.first_ordinal >= expected && trailer.first_ordinal < run_.records) {
    ordinal_ = trailer.first_ordinal;
  } else if (trailer.first_ordinal != expected) {
    return malformed(next_block_,
                     fmt::format("expected record {}, found {}", expected, trailer.first_ordinal));
  }
  if (run_.kind == RunKind::kUniform) {
    SWALE_RETURN_IF_ERROR(uniform_rows(block, trailer, fn));
  } else {
    SWALE_RETURN_IF_ERROR(stream_records(block, trailer, fn));
  }
  if (stopped_) return {};
  resync_ = false;
  // First the end, then the step: a failure must name the block at which it was found, or the owner would
  // look for that block after the end of what it fed.
  if (next_block_ + 1 == run_end_block_) SWALE_RETURN_IF_ERROR(end_run());
  ++next_block_;
  return {};
}

Status RunCursor::end_run() {
  if (torn_) {
    end_torn_run();
    return {};
  }
  if (ordinal_ != run_.records || !unfinished_.empty() || data_bytes_ != run_.data_bytes) {
    return malformed(next_block_, fmt::format("holds {} records with {} bytes, expected {} with {}", ordinal_,
                                              data_bytes_, run_.records, run_.data_bytes));
  }
  ++runs_;
  return {};
}

void RunCursor::yield(const RecordView& view, BlockNumber block, uint32_t row, BlockNumber end_block,
                      const RecordFn& fn) {
  const ScannedRecord record{.run = &run_,
                             .key = view.key,
                             .value = view.value,
                             .ordinal = ordinal_,
                             .block = block,
                             .row = row,
                             .end_block = end_block,
                             .large = points(run_.values, view)};
  ++ordinal_;
  ++records_;
  ++yielded_;
  data_bytes_ += view.key.size() + view.value.size();
  stopped_ = !fn(record);
}

Status RunCursor::uniform_rows(Bytes block, const BlockTrailer& trailer, const RecordFn& fn) {
  const uint32_t row_bytes = run_.key_bytes + run_.value_bytes;
  const uint32_t first_row = ordinal_ == 0 ? header_rows(row_bytes) : 0;
  const uint32_t count = std::min(rows_per_block(row_bytes) - first_row, run_.records - ordinal_);
  if (trailer.count != count || trailer.first_start != first_row * row_bytes) {
    return malformed(next_block_, fmt::format("expected {} rows from byte {}, found {} from {}", count,
                                              first_row * row_bytes, trailer.count, trailer.first_start));
  }
  const char* row = block.data() + trailer.first_start;
  if (rows_fn_ != nullptr &&
      !points(run_.values, {.key = {}, .value = {row, run_.value_bytes}, .encoded = {}})) {
    ordinal_ += count;
    records_ += count;
    yielded_ += count;
    data_bytes_ += uint64_t{count} * row_bytes;
    stopped_ = !(*rows_fn_)({row, run_.key_bytes, run_.value_bytes, count});
    return {};
  }
  for (uint32_t i = 0; i < count && !stopped_; ++i, row += row_bytes) {
    const RecordView record{
        .key = {row, run_.key_bytes}, .value = {row + run_.key_bytes, run_.value_bytes}, .encoded = {}};
    yield(record, next_block_, first_row + i, next_block_, fn);
  }
  return {};
}

Status RunCursor::stream_records(Bytes block, const BlockTrailer& trailer, const RecordFn& fn) {
  const bool packed = run_.kind == RunKind::kPacked;
  SWALE_ASSIGN_OR_RETURN(const Bytes stream, stream_of_block(block, packed, next_block_, path_, &piece_));
  const bool first = next_block_ + run_.blocks == run_end_block_;
  const bool last = next_block_ + 1 == run_end_block_;
  const size_t begin = first && !packed ? sizeof(RunHeader) : 0;
  const size_t start = trailer.count == 0 ? stream.size() : trailer.first_start;
  if (start < begin || start > stream.size() ||
      (trailer.count == 0) != (trailer.first_start == kNoRecordStarts) ||
      (unfinished_.empty() && start != begin && !resync_)) {
    return malformed(next_block_, fmt::format("{} records from byte {} on are impossible here", trailer.count,
                                              trailer.first_start));
  }
  RecordView record;
  if (!unfinished_.empty()) {
    const Bytes part = stream.substr(begin, start - begin);
    if (unfinished_.size() > kEncodedRecordBytesMax) return malformed(next_block_, "a record is too long");
    unfinished_.insert(unfinished_.end(), part.begin(), part.end());
    if (trailer.count > 0 || last) {
      const Bytes whole{unfinished_.data(), unfinished_.size()};
      if (parse_record(whole, &record) != RecordParse::kOk ||
          (trailer.count > 0 && record.encoded.size() != whole.size())) {
        return malformed(next_block_, "a record that spans blocks does not end where the next one starts");
      }
      yield(record, unfinished_block_, 0, part.empty() ? next_block_ - 1 : next_block_, fn);
      unfinished_.clear();
    }
  }
  Bytes payload = stream.substr(start);
  for (uint32_t i = 0; i < trailer.count && !stopped_; ++i) {
    const RecordParse parse = parse_record(payload, &record);
    const bool spans = parse == RecordParse::kCutOff && i + 1 == trailer.count && !last;
    if (spans) {
      unfinished_.assign(payload.begin(), payload.end());
      unfinished_block_ = next_block_;
      // The next block's first_ordinal counts from the record after this one.
      return {};
    }
    if (parse != RecordParse::kOk)
      return malformed(next_block_, fmt::format("record {} is malformed", ordinal_));
    payload.remove_prefix(record.encoded.size());
    yield(record, next_block_, 0, next_block_, fn);
  }
  return {};
}

}  // namespace swale::run
