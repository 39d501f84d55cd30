#include "meta/server/server_core.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/contain.h"
#include "meta/server/run_table.h"

namespace swale::meta {
namespace {

constexpr size_t kTableRunsMax = 4096;                   // of a table of at most kTableBytesMax bytes
constexpr uint64_t kOwnedRangesMax = uint64_t{1} << 16;  // that are walked for one run of a table

bool changes_attributes(AttributeOp op) { return op != AttributeOp::kOpen && op != AttributeOp::kStat; }

Method method_of(FollowUp what) {
  return what == FollowUp::kTrim     ? Method::kTrim
         : what == FollowUp::kForget ? Method::kForget
                                     : Method::kCollect;
}

uint64_t bytes_within(const Run& run, uint64_t begin, uint64_t end) {
  std::vector<Run> parts;
  clip(run, begin, end, &parts);
  uint64_t bytes = 0;
  for (const Run& part : parts) bytes += blocks_of(part) * part.length;
  return bytes;
}

}  // namespace

ServerCore::ServerCore(const Partition& partition, Server server, RingMode mode,
                       std::unique_ptr<AttributeTable> attributes, std::unique_ptr<Shard> shard)
    : partition_(partition),
      server_(server),
      ranges_(&partition_, server),
      attributes_(std::move(attributes)),
      shard_(std::move(shard)),
      delegate_({.server = server, .servers = partition.servers(), .mode = mode}, this) {}

ServerCore::~ServerCore() = default;

// One change of the table and its record, which joins the open group; or neither.
template <class Act>
auto ServerCore::change_attributes(const Act& act) {
  const size_t before = attributes_->changes();
  try {
    std::string record;
    auto result = act(&record);
    shard_->add_record(record);
    return result;
  } catch (...) {
    attributes_->undo_to(before);
    throw;
  }
}

void ServerCore::resume() {
  assert(jobs_.empty());
  for (AttributeTable::Pending& each : attributes_->pending()) {
    Applied applied;
    applied.follow_up = each.what;
    applied.trim_size = each.trim_size;
    applied.answer.attributes.file = each.request.file;
    applied.answer.attributes.generation = each.generation;
    begin_follow_up({std::move(each.request), {}}, applied);
  }
}

// ---- requests

void ServerCore::on_request(Method method, Bytes payload, uint64_t token) {
  ++counters_.requests;
  const bool joins_shard = method == Method::kPut || method == Method::kTrim || method == Method::kForget ||
                           method == Method::kRelocate;
  if (joins_shard && !held_.empty()) {  // not before those that came earlier
    held_.push_back({method, std::string(payload), token});
    return;
  }
  replies_.reserve(replies_.size() + 1);
  Status status;
  try {
    status = handle(method, payload, token);
  } catch (const std::bad_alloc&) {  // what it has changed is whole, or was taken back
    status = Status::out_of_memory();
  }
  if (status.ok() || held(method, payload, token, status)) return;
  waits_added_ |= joins_shard;  // a shard without space makes another attempt
  ++counters_.refused;
  reply(token, status.with_context(fmt::format("metadata server {}", server_)));
}

Status ServerCore::handle(Method method, Bytes payload, uint64_t token) {
  switch (method) {
    case Method::kPut:
      return put(payload, token);
    case Method::kGet:
      return get(payload, token);
    case Method::kGetRuns:
      return get_runs(payload, token);
    case Method::kScan:
      return scan(payload, token);
    case Method::kTrim:
    case Method::kForget:
      return trim(method, payload, token);
    case Method::kRelocate:
      return relocate(payload, token);
    case Method::kRelocateTables:
      return relocate_tables(payload, token);
    case Method::kCollect:
      return collect(payload, token);
    case Method::kAttributes:
      return attribute_request(payload, token);
    case Method::kStats: {
      std::string message;
      all_counters().append_to(&message);
      reply(token, std::move(message));
      return {};
    }
    case Method::kRelocated:  // for the rank
    case Method::kRemoved:
      break;
  }
  return error(Code::kUnsupported, Scope::kOperation, "no method {}", static_cast<int>(method));
}

// A shard that is full now takes the request later. Requests for attributes may overtake those that wait
// here:
// a client has one change under way at a time (attribute_table.h).
bool ServerCore::held(Method method, Bytes payload, uint64_t token, const Status& why) {
  if (why.code() != Code::kBusy) return false;
  waits_added_ = true;
  assert(method == Method::kPut || method == Method::kTrim || method == Method::kForget ||
         method == Method::kRelocate ||  // those that on_request keeps in order
         method == Method::kAttributes || method == Method::kCollect || method == Method::kRelocateTables);
  held_.push_back({method, std::string(payload), token});
  counters_.held_max = std::max<uint64_t>(counters_.held_max, held_.size());
  return true;
}

void ServerCore::retry_held() {
  while (!held_.empty()) {
    Held first = std::move(held_.front());
    held_.pop_front();
    Status status;
    try {
      replies_.reserve(replies_.size() + 1);
      status = handle(first.method, first.payload, first.token);
    } catch (const std::bad_alloc&) {  // what it has changed is whole, or was taken back
      status = Status::out_of_memory();
    }
    if (status.code() == Code::kBusy) {
      held_.push_front(std::move(first));
      return;
    }
    if (!status.ok()) reply(first.token, status.with_context(fmt::format("metadata server {}", server_)));
  }
}

StoredThings ServerCore::stored() const {
  return {attributes_->files(), attributes_->tables_bytes(), shard_->state().index_memory_bytes,
          shard_->record_memory_bytes()};
}

uint64_t ServerCore::stored_count() const {
  const ShardCounters& shard = shard_->counters();
  constexpr uint64_t kThingsOfACheckpoint = 1024;  // it adds blocks to the index, some thousand at a time
  constexpr uint64_t kBytesOfAThing = 512;
  return attributes_->files() + shard.runs + kThingsOfACheckpoint * shard.checkpoints +
         shard_->record_memory_bytes() / kBytesOfAThing;
}

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

// ---- attributes

// kBusy: after the next commit. A shard that has failed commits nothing more: there is nothing to wait for.
Status ServerCore::takes_records() const {
  if (!shard_->health().ok() || shard_->accepts_records()) return {};
  return error(Code::kBusy, Scope::kOperation, "the open group is full");
}

Status ServerCore::attribute_request(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(AttributeRequest request, decode_attributes(payload));
  const Server root = partition_.root_of(request.name);
  if (root != server_) {
    ++counters_.attribute_requests;
    delegate_.on_request(std::move(request), root, token);
    return {};
  }
  SWALE_RETURN_IF_ERROR(takes_records());
  ++counters_.attribute_requests;
  change({std::move(request), {token}});
  return {};
}

void ServerCore::change(Change change) {
  const AttributeOp op = change.request.op;
  if (const auto job = jobs_.find(change.request.name); job != jobs_.end() && changes_attributes(op)) {
    std::deque<Change>& queue = job->second.queue;
    const auto fits = [&](const Change& each) { return mergeable(change.request, each.request); };
    const auto same = std::find_if(queue.begin(), queue.end(), fits);
    if (same == queue.end()) {
      queue.push_back(std::move(change));
    } else {
      merge(change.request, &same->request);
      same->tokens.insert(same->tokens.end(), change.tokens.begin(), change.tokens.end());
    }
    return;
  }
  if (changes_attributes(op) && !shard_->health().ok()) return reply_all(change.tokens, shard_->health());
  const bool creates = op == AttributeOp::kCreate || op == AttributeOp::kCreateExclusive;
  if (creates && !no_growth_.ok() && attributes_->find(change.request.name) == nullptr)
    return reply_all(change.tokens, no_growth_);
  const Result<Applied> applied =
      change_attributes([&](std::string* record) { return attributes_->apply(change.request, record); });
  if (!applied.ok()) return reply_all(change.tokens, applied.status());
  if (applied->follow_up != FollowUp::kNone) return begin_follow_up(std::move(change), *applied);
  when_attributes_durable([this, tokens = std::move(change.tokens),
                           response = encode_answer(applied->answer)](const Status& status) {
    status.ok() ? reply_all(tokens, response) : reply_all(tokens, status);
  });
}

void ServerCore::begin_follow_up(Change change, const Applied& applied) {
  ++counters_.follow_ups;
  const std::string name = change.request.name;
  assert(applied.follow_up != FollowUp::kNone && !jobs_.contains(name));
  FollowUpJob& job = jobs_[name];
  job.change = std::move(change);
  job.file = applied.answer.attributes.file;
  job.what = applied.follow_up;
  job.generation = applied.answer.attributes.generation;
  job.trim_size = applied.trim_size;
  job.again = applied.again;
  try {
    when_attributes_durable([this, name](const Status& status) {
      if (status.ok()) return start_follow_up(name);
      jobs_.at(name).failure = status;
      end_follow_up(name);
    });
  } catch (const std::bad_alloc&) {
    if (const auto left = jobs_.find(name); left != jobs_.end() && left->second.open_calls == 0)
      jobs_.erase(left);
    throw;
  }
}

void ServerCore::start_follow_up(const std::string& name) {
  FollowUpJob& job = jobs_.at(name);
  assert(job.open_calls == 0 && job.collected.empty());
  job.relocations = table_relocations_;
  const bool trims = job.what == FollowUp::kTrim;
  const FileMessage message{job.file, trims ? job.trim_size : 0,
                            job.what == FollowUp::kCollect ? 0 : job.generation};
  const size_t response = job.what == FollowUp::kCollect ? 64 + kTableRunsMax * 104 : 4096;
  try {
    for (Server to = 0; to < partition_.servers(); ++to) {
      const uint64_t tag = next_tag_++;
      follow_up_calls_.emplace(tag, name);
      call(to, method_of(job.what), encode_file(to, message), response, tag);
      ++job.open_calls;
    }
  } catch (const std::bad_alloc&) {
    follow_up_calls_.erase(next_tag_ - 1);
    job.failure = Status::out_of_memory();  // once those that were called have answered
    if (job.open_calls == 0) end_follow_up(name);
  }
}

void ServerCore::on_follow_up(const std::string& name, Result<std::string> response) {
  FollowUpJob& job = jobs_.at(name);
  Status status = response.status();
  if (status.ok() && job.what == FollowUp::kCollect) {
    Result<Collected> part = decode_collected(*response);
    status = part.status();
    if (part.ok()) job.collected.push_back(*std::move(part));
  }
  if (job.failure.ok() && !status.ok()) job.failure = status;
  assert(job.open_calls > 0);
  if (--job.open_calls == 0) end_follow_up(name);
}

void ServerCore::end_follow_up(const std::string& name) {
  assert(jobs_.at(name).open_calls == 0);
  FollowUpJob job = std::move(jobs_.at(name));
  jobs_.erase(name);
  const AttributeRequest& request = job.change.request;
  Result<AttributeAnswer> done = AttributeAnswer();
  if (!job.failure.ok()) {
    done = job.failure.with_context(fmt::format("{} {}", op_name(request.op), request.name));
  } else if (!shard_->health().ok()) {
    done = shard_->health();
  } else {
    const Status kept = contain([&] {
      std::string table;
      if (job.what == FollowUp::kCollect && job.relocations == table_relocations_)
        table = joined_table(job.collected);
      done = change_attributes([&](std::string* record) {
        return attributes_->followed(request, job.what, job.generation, std::move(table), record);
      });
    });
    if (!kept.ok()) done = kept;  // as if a server had failed: it is done again
  }
  // Before those that wait. It may begin another follow-up.
  if (job.again && done.ok()) {
    change(std::move(job.change));
    for (Change& each : job.queue) change(std::move(each));
    return;
  }
  when_attributes_durable([this, tokens = std::move(job.change.tokens),
                           response = done.ok() ? Result<std::string>(encode_answer(*done))
                                                : Result<std::string>(done.status())](const Status& status) {
    status.ok() || !response.ok() ? reply_all(tokens, response) : reply_all(tokens, status);
  });
  for (Change& each : job.queue) change(std::move(each));
}

// The delegate's actions.
void ServerCore::forward(uint32_t server, const AttributeRequest& request, uint64_t id) {
  const uint64_t tag = next_tag_++;
  delegate_calls_.emplace(tag, id);
  call(server, Method::kAttributes, encode_attributes(server, request), kTableBytesMax + 16 * kKiB, tag);
}
void ServerCore::answer(uint64_t token, const Result<std::string>& response) { reply(token, response); }

void ServerCore::reply_all(const std::vector<uint64_t>& tokens, const Result<std::string>& response) {
  for (const uint64_t token : tokens) reply(token, response);
}

void ServerCore::on_completion(uint64_t tag, Result<std::string> response) {
  if (const auto own = delegate_calls_.find(tag); own != delegate_calls_.end()) {
    const uint64_t id = own->second;
    delegate_calls_.erase(own);
    delegate_.on_answer(id, response);
  } else if (const auto follow = follow_up_calls_.find(tag); follow != follow_up_calls_.end()) {
    const std::string name = std::move(follow->second);
    follow_up_calls_.erase(follow);
    on_follow_up(name, std::move(response));
  }
}

// ---- storage

void ServerCore::when_durable(uint64_t group, std::function<void(const Status&)> act) {
  last_group_ = std::max(last_group_, group);
  if (group <= shard_->durable_group()) return act({});
  if (!shard_->health().ok()) return act(shard_->health());
  waits_added_ = true;
  waits_.push_back({group, std::move(act)});
}

// Also of an answer that changed nothing: it may show changes that are not durable yet.
void ServerCore::when_attributes_durable(std::function<void(const Status&)> act) {
  when_durable(shard_->add_record({}), std::move(act));
}

// A duplicate may wait for a group before the last one, so all are looked at.
void ServerCore::release(const Status& failure) {
  std::deque<Waiting> all;
  all.swap(waits_);
  std::deque<Waiting> rest;
  for (Waiting& each : all) {
    if (each.group <= shard_->durable_group()) {
      each.act({});
    } else if (!failure.ok()) {
      each.act(failure);
    } else {
      rest.push_back(std::move(each));
    }
  }
  // What act() has added waits for later groups.
  for (Waiting& each : waits_) rest.push_back(std::move(each));
  waits_.swap(rest);
}

std::unique_ptr<Work> ServerCore::next_work() {
  std::unique_ptr<Work> work;
  const bool accepted = shard_->accepts_records();
  if (shard_->background_first()) work = shard_->next_background();
  if (work == nullptr) work = shard_->next_commit();
  if (work == nullptr) work = shard_->next_background();
  if (!accepted && shard_->accepts_records()) {  // what waited for this checkpoint's beginning
    retry_held();
    if (work == nullptr) work = shard_->next_commit();
  }
  // There was no memory for a commit, and none will come: nobody else would tell those that wait for it.
  if (work == nullptr && !shard_->health().ok()) {
    release(shard_->health());
    retry_held();
  }
  return work;
}

void ServerCore::finish(std::unique_ptr<Work> work) {
  // A commit that failed has made every group void that is not durable, for good (health) or until there is
  // space again.
  const bool commit = work->kind() == WorkKind::kCommit;
  const Status done = shard_->finish(std::move(work));
  // No commit comes for a void group, and its number is given again: nothing is to wait for it any more.
  if (commit && !done.ok() && shard_->health().ok()) last_group_ = shard_->durable_group();
  release(commit ? done : shard_->health());
  retry_held();
}

void ServerCore::take_replies(std::vector<Reply>* out) {
  std::move(replies_.begin(), replies_.end(), std::back_inserter(*out));
  replies_.clear();
}
void ServerCore::take_calls(std::vector<Call>* out) {
  delegate_.flush();
  std::move(calls_.begin(), calls_.end(), std::back_inserter(*out));
  calls_.clear();
}

Counters ServerCore::all_counters() const {
  return server_counters({.server = counters_,
                          .shard = shard_->counters(),
                          .state = shard_->state(),
                          .ring = delegate_.counters(),
                          .files = attributes_->files(),
                          .reserved_bytes = reserved_bytes_,
                          .stored_bytes = content_bytes(stored()),
                          .failed = !shard_->health().ok()},
                         server_);
}

}  // namespace swale::meta
