#include "imd/write/value_log.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::imd {
namespace {

// Checksums are made of so much before it is written: it is still in the cache then.
constexpr size_t kWriteBytes = 256 * kKiB;
static_assert(kWriteBytes % run::kValuePieceBytes == 0);

}  // namespace

void ValueLog::begin_epoch(EpochNumber epoch, uint64_t epoch_id) {
  epoch_ = epoch;
  epoch_id_ = epoch_id;
  written_ = {};
}

Status ValueLog::make_file() {
  SWALE_ASSIGN_OR_RETURN(file_, device_->open(path_, io::OpenMode::kCreate));
  return device_->sync_directory(folder_);
}

// Pieces first: their checksums are part of the head, which therefore is written last, though it lies in
// front.
Status ValueLog::write_value(uint32_t seed, Bytes value, run::ValueHead* head) {
  const uint64_t begin = head->value_offset();
  for (size_t at = 0; at < value.size(); at += kWriteBytes) {
    const Bytes part = value.substr(at, kWriteBytes);
    for (size_t in = 0; in < part.size(); in += run::kValuePieceBytes) {
      head->pieces.push_back(
          run::value_piece_checksum(seed, begin + at + in, part.substr(in, run::kValuePieceBytes)));
    }
    SWALE_RETURN_IF_ERROR(file_->pwrite(begin + at, part));
  }
  return file_->pwrite(head->offset, run::encode_value_head(head));
}

Result<run::ValuePointer> ValueLog::append(Hash key_hash, Bytes value) {
  assert(!value.empty() && value.size() <= run::kLargeValueBytesMax);
  if (!file_) SWALE_RETURN_IF_ERROR(make_file());
  run::ValueRange& range = written_.range;
  if (range.values == 0) range.offset = end_ = round_up(end_, run::kValueAlignment);
  run::ValueHead head;
  head.offset = end_;
  head.epoch_id = epoch_id_;
  head.key_hash = key_hash;
  head.epoch = epoch_;
  head.writer = writer_;
  head.value_bytes = static_cast<uint32_t>(value.size());
  head.pieces.reserve(run::value_pieces(head.value_bytes));
  SWALE_RETURN_IF_ERROR(write_value(run::epoch_seed(writer_, epoch_id_), value, &head));
  end_ = head.end_offset();
  ++range.values;
  range.bytes = end_ - range.offset;
  written_.tally.add({1, value.size()});
  return run::ValuePointer{head.offset, head.value_bytes, writer_, head.checksum};
}

}  // namespace swale::imd
