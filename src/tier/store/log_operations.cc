#include "tier/store/log_operations.h"

#include <cassert>

namespace swale::tier {
namespace {

constexpr uint32_t kOfLog = 0, kOfTable = 1;  // the parts of a sync of the log

}  // namespace

uint64_t tag_of(Action::Kind kind, uint32_t id) { return static_cast<uint64_t>(kind) << 32 | id; }

io::Operation write_of(io::File* file, uint64_t offset, Bytes from, uint64_t tag) {
  io::Operation operation;
  operation.kind = io::Operation::Kind::kWrite;
  operation.file = file;
  operation.offset = offset;
  operation.from = from;
  operation.tag = tag;
  return operation;
}

io::Operation sync_of(io::File* file, uint64_t tag) {
  io::Operation operation;
  operation.kind = io::Operation::Kind::kSync;
  operation.file = file;
  operation.tag = tag;
  return operation;
}

LogOperations::LogOperations(const Options& options, io::File* log, FileTable* table)
    : options_(options), log_(*log), table_(*table), erasures_(options.segment_count) {}

void LogOperations::append_control(const Action& action, std::vector<io::Operation>* operations) {
  const RecordHeader& record = action.record;
  assert(!record.has_payload());
  std::string& bytes = control_[action.id];
  bytes.assign(record.space(options_.log_alignment), '\0');
  encode_record_header(record, options_.log_id, bytes);
  encode_record_end(record, options_.log_id, MutableBytes(bytes).last(kRecordHeaderBytes));
  operations->push_back(write_of(&log_, record.address, bytes, tag_of(action.kind, action.id)));
}

void LogOperations::erase(const Action& action, std::vector<io::Operation>* operations) {
  assert(action.id < erasures_.size());
  Erasure& erasure = erasures_[action.id];
  assert(erasure.left == 0);
  encode_segment_header({.index = action.id,
                         .generation = action.generation,
                         .log_id = options_.log_id,
                         .segment_size = options_.segment_bytes,
                         .segment_count = options_.segment_count,
                         .alignment = options_.log_alignment,
                         .sequence = action.size,
                         .settled = action.settled},
                        erasure.header);
  const uint64_t begin = action.id * options_.segment_bytes;
  const uint64_t copy = begin + options_.segment_bytes - segment_tail_bytes(options_.log_alignment);
  erasure.left = 2;
  erasure.status = {};
  const Bytes header(erasure.header.data(), erasure.header.size());
  for (const uint64_t at : {begin, copy})
    operations->push_back(write_of(&log_, at, header, tag_of(action.kind, action.id)));
}

// What a record's file is must be durable no later than the record: a sync of the log is one of the table of
// files, too.
void LogOperations::sync(std::vector<io::Operation>* operations) {
  assert(sync_parts_ == 0);
  syncing_table_ = table_.begin_sync();
  sync_parts_ = syncing_table_ ? 2 : 1;
  sync_status_ = {};
  operations->push_back(sync_of(&log_, tag_of(Action::Kind::kSyncLog, kOfLog)));
  if (syncing_table_)
    operations->push_back(sync_of(syncing_table_.get(), tag_of(Action::Kind::kSyncLog, kOfTable)));
}

std::optional<Status> LogOperations::ended(Action::Kind kind, uint32_t id, const Status& status) {
  if (kind == Action::Kind::kSyncLog) return sync_ended(id, status);
  if (kind == Action::Kind::kAppend) control_.erase(id);
  if (kind == Action::Kind::kErase) {
    Erasure& erasure = erasures_[id];
    assert(erasure.left > 0);
    if (!status.ok()) erasure.status = status;
    if (--erasure.left > 0) return std::nullopt;
    return erasure.status;
  }
  return status;
}

// The table's failure is told, and costs nothing that is acknowledged.
std::optional<Status> LogOperations::sync_ended(uint32_t part, const Status& status) {
  assert(sync_parts_ > 0);
  if (part == kOfTable) {
    table_.synced(status);
    syncing_table_.reset();
  } else {
    sync_status_ = status;
  }
  if (--sync_parts_ > 0) return std::nullopt;
  return sync_status_;
}

}  // namespace swale::tier
