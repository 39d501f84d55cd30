// What a server does with requests for its part of the index: puts, gets, scans, trims, relocations, and its
// part of a sealed file's table.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/contain.h"
#include "meta/server/run_table.h"
#include "meta/server/server_core.h"

namespace swale::meta {
namespace {

constexpr uint64_t kOwnedRangesMax = uint64_t{1} << 16;  // that are walked for one run of a table

uint64_t bytes_within(const Run& run, uint64_t begin, uint64_t end) {
  std::vector<Run> parts;
  clip(run, begin, end, &parts);
  uint64_t bytes = 0;
  for (const Run& part : parts) bytes += bytes_of(part);
  return bytes;
}

}  // namespace

Status ServerCore::put(Bytes payload, uint64_t token) {
  SWALE_RETURN_IF_ERROR(no_growth_);
  SWALE_ASSIGN_OR_RETURN(const PutMessage message, decode_put(payload));
  if (attributes_->refuses_puts(message.file)) {
    return invalid_argument("put: file {:016x}{:016x} is sealed and cannot change", message.file.high,
                            message.file.low);
  }
  SWALE_ASSIGN_OR_RETURN(const uint64_t trimmed, stage_owed_trim(message.file));
  const Put one{message.file, message.items.extents, message.items.runs, message.items.run_at};
  SWALE_ASSIGN_OR_RETURN(const uint64_t group,
                         shard_->put({message.from.client, message.from.number}, std::span(&one, 1)));
  ++counters_.puts;
  when_durable(group, [this, token, file = message.file, trimmed](const Status& status) {
    if (!status.ok()) return reply(token, status);
    trim_is_durable(file, trimmed);
    std::string generation;
    append_u64(&generation, shard_->size(file).generation);
    reply(token, std::move(generation));
  });
  return {};
}

// A trim that failed here may come again, and must not cut what is put meanwhile. Its generation; 0: none is
// owed.
Result<uint64_t> ServerCore::stage_owed_trim(const FileId& file) {
  const auto owed = owed_trims_.find(file);
  if (owed == owed_trims_.end()) return 0;
  const auto& [id, trim] = *owed;
  SWALE_RETURN_IF_ERROR(shard_->truncate({}, id, trim.size, trim.generation).status());
  return trim.generation;
}

void ServerCore::trim_is_durable(const FileId& file, uint64_t generation) {
  const auto owed = owed_trims_.find(file);
  if (owed != owed_trims_.end() && owed->second.generation <= generation) owed_trims_.erase(owed);
}

Status ServerCore::check_owned(const FileId& file, uint64_t begin, uint64_t end) const {
  const uint64_t bytes = partition_.range_bytes();
  if (partition_.servers() == 1) return {};
  if (partition_.server_of(file, begin) == server_ && begin / bytes == (end - 1) / bytes) return {};
  return invalid_argument(
      "bytes {} to {} of a file are not all of a range of this server: do ranks differ in meta.range or in "
      "the "
      "number of servers?",
      begin, end);
}

Status ServerCore::get(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const GetMessage message, decode_get(payload));
  for (const Range& range : message.ranges) {
    SWALE_RETURN_IF_ERROR(check_owned(message.file, range.offset, range.offset + range.length));
  }
  SWALE_RETURN_IF_ERROR(shard_->lookup(message.ranges, message.pieces_max, &found_));
  ++counters_.gets;
  counters_.ranges += message.ranges.size();
  counters_.pieces += found_.extents.size();
  reply(token, encode_found(found_));
  return {};
}

void ServerCore::on_gets(std::span<const WaitingGet> gets) {
  const Status joined = gets.size() > 1 ? contain([&] { return get_joined(gets); })
                                        : error(Code::kUnsupported, Scope::kOperation, "one get");
  if (joined.ok()) return;
  for (const WaitingGet& each : gets) on_request(Method::kGet, each.payload, each.token);
}

// Fails, with no reply, if there is anything about them that one reply alone can say.
Status ServerCore::get_joined(std::span<const WaitingGet> gets) {
  constexpr size_t kRangesMax = 64 * 1024;
  std::vector<Range> ranges;
  std::vector<size_t> ends;
  for (const WaitingGet& each : gets) {
    SWALE_ASSIGN_OR_RETURN(const GetMessage message, decode_get(each.payload));
    for (const Range& range : message.ranges)
      SWALE_RETURN_IF_ERROR(check_owned(message.file, range.offset, range.offset + range.length));
    ranges.insert(ranges.end(), message.ranges.begin(), message.ranges.end());
    ends.push_back(ranges.size());
    if (ranges.size() > kRangesMax || message.pieces_max < kPiecesMax)
      return error(Code::kResourceExhausted, Scope::kOperation, "gets that are answered one by one");
  }
  SWALE_RETURN_IF_ERROR(shard_->lookup(ranges, kPiecesMax, &found_));
  if (found_.answered < ranges.size())
    return error(Code::kResourceExhausted, Scope::kOperation, "an answer of more than one message");
  std::vector<Reply> replies;
  size_t first = 0;
  for (size_t i = 0; i < gets.size(); ++i) {
    Reply& one = replies.emplace_back();
    one.token = gets[i].token;
    one.response = encode_found_part(found_, first, ends[i] - first);
    first = ends[i];
  }
  replies_.reserve(replies_.size() + replies.size());
  std::move(replies.begin(), replies.end(), std::back_inserter(replies_));
  counters_.requests += gets.size();
  counters_.gets += gets.size();
  counters_.joined_gets += gets.size();
  counters_.ranges += ranges.size();
  counters_.pieces += found_.extents.size();
  return {};
}

Status ServerCore::get_runs(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const RunsMessage message, decode_runs_query(payload));
  for (const Run& query : message.queries)
    SWALE_RETURN_IF_ERROR(check_owned(message.file, query.offset, end_of(query)));
  FoundRuns found;
  constexpr size_t kRunsMax = kResponseBytesMax / 128;
  SWALE_RETURN_IF_ERROR(
      shard_->lookup_runs(message.file, message.queries, kRunsMax, &found.runs, &found.ends));
  ++counters_.gets;
  counters_.run_queries += message.queries.size();
  reply(token, encode_found_runs(found));
  return {};
}

Status ServerCore::scan(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const ScanMessage message, decode_scan(payload));
  Scanned scanned;
  SWALE_RETURN_IF_ERROR(shard_->scan(message.file, message.from, message.pieces_max, &ranges_,
                                     &scanned.extents, &scanned.next));
  reply(token, encode_scanned(scanned));
  return {};
}

Status ServerCore::trim(Method method, Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const FileMessage message, decode_file(payload));
  uint64_t group = 0;
  if (method == Method::kTrim) {
    if (message.size <= kOffsetEnd) {  // else the shard refuses it for good
      FileMessage& owed = owed_trims_[message.file];
      if (owed.generation < message.generation) owed = message;
    }
    SWALE_ASSIGN_OR_RETURN(group, shard_->truncate({}, message.file, message.size, message.generation));
  } else {
    SWALE_ASSIGN_OR_RETURN(group, shard_->remove({}, message.file, message.generation));
    change_attributes([&](std::string* record) {
      attributes_->allow_puts(message.file, record);
      return true;
    });
    group = std::max(group, shard_->add_record({}));
  }
  when_durable(group, [this, token, message](const Status& status) {
    if (!status.ok()) return reply(token, status);
    trim_is_durable(message.file, message.generation);
    reply(token, std::string());
  });
  return {};
}

Status ServerCore::relocate(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const RelocateMessage message, decode_relocate(payload));
  SWALE_ASSIGN_OR_RETURN(const uint64_t group,
                         shard_->relocate({message.from.client, message.from.number}, message.relocation));
  when_durable(group, [this, token](const Status& status) {
    status.ok() ? reply(token, std::string()) : reply(token, status);
  });
  return {};
}

// All servers have done the relocation. A table that is collected meanwhile may have both places
// (end_follow_up).
Status ServerCore::relocate_tables(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const RelocateMessage message, decode_relocate(payload));
  SWALE_RETURN_IF_ERROR(shard_->health());
  SWALE_RETURN_IF_ERROR(takes_records());
  ++table_relocations_;
  std::vector<std::pair<std::string, std::string>> moved;
  attributes_->for_each_table([&](const std::string& name, Bytes table) {
    Result<std::optional<std::string>> after = relocated_table(table, message.relocation);
    if (!after.ok()) after = std::optional(std::string());  // nobody could read it
    if (*after) moved.emplace_back(name, **std::move(after));
  });
  for (auto& [name, table] : moved) {
    change_attributes([&](std::string* record) {
      attributes_->replace_table(name, std::move(table), record);
      return true;
    });
  }
  when_attributes_durable([this, token](const Status& status) {
    status.ok() ? reply(token, std::string()) : reply(token, status);
  });
  return {};
}

// From here on puts of the file are refused. What was accepted before is in the answer.
Status ServerCore::collect(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const FileMessage message, decode_file(payload));
  SWALE_RETURN_IF_ERROR(shard_->health());
  SWALE_RETURN_IF_ERROR(takes_records());
  change_attributes([&](std::string* record) {
    attributes_->refuse_puts(message.file, record);
    return true;
  });
  when_durable(std::max(last_group_, shard_->add_record({})),
               [this, token, file = message.file](const Status& status) {
                 status.ok() ? reply(token, encode_collected(collected(file))) : reply(token, status);
               });
  return {};
}

Collected ServerCore::collected(const FileId& file) {
  Collected part;
  if (!shard_->run_table(file, kTableRunsMax, nullptr, &part.runs).ok()) return {};
  for (const Run& run : part.runs) {
    uint64_t ranges = 0;
    for (uint64_t from = run.offset; from < end_of(run);) {
      const auto [begin, end] = ranges_.next_owned(file, from);
      if (begin == end || begin >= end_of(run)) break;
      if (++ranges > kOwnedRangesMax) return {};
      part.bytes += bytes_within(run, begin, end);
      from = end;
    }
  }
  part.complete = true;
  return part;
}

}  // namespace swale::meta
