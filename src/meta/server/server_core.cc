#include "meta/server/server_core.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/contain.h"

namespace swale::meta {

ServerCore::ServerCore(const Partition& partition, Server server, RingMode mode,
                       std::unique_ptr<AttributeTable> attributes, std::unique_ptr<Shard> shard)
    : partition_(partition),
      server_(server),
      ranges_(&partition_, server),
      attributes_(std::move(attributes)),
      shard_(std::move(shard)),
      delegate_({.server = server, .servers = partition.servers(), .mode = mode}, this) {}

ServerCore::~ServerCore() = default;

// ---- requests

void ServerCore::on_request(Method method, Bytes payload, uint64_t token) {
  ++counters_.requests;
  const bool joins_shard = method == Method::kPut || method == Method::kTrim || method == Method::kForget ||
                           method == Method::kRelocate;
  if (joins_shard && !held_.empty()) {  // not before those that came earlier
    held_.push_back({method, std::string(payload), token});
    return;
  }
  const Status status = attempt(method, payload, token);
  if (status.ok() || held(method, payload, token, status)) return;
  waits_added_ |= joins_shard;  // a shard without space makes another attempt
  refuse(token, status);
}

// After want of memory, what it has changed is whole, or was taken back.
Status ServerCore::attempt(Method method, Bytes payload, uint64_t token) {
  try {
    replies_.reserve(replies_.size() + 1);
    return handle(method, payload, token);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

void ServerCore::refuse(uint64_t token, const Status& why) {
  ++counters_.refused;
  reply(token, why.with_context(fmt::format("metadata server {}", server_)));
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
    case Method::kNames:  // for the server of a tree
      break;
  }
  return error(Code::kUnsupported, Scope::kOperation, "no method {}", static_cast<int>(method));
}

// A shard that is full now takes the request later. Requests for attributes may overtake those that wait
// here: a client has one change under way at a time (attribute_table.h).
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

// A request stays the first one until it has its reply, or a group that will give it one.
void ServerCore::retry_held() {
  while (!held_.empty()) {
    const Held& first = held_.front();
    const Status status = attempt(first.method, first.payload, first.token);
    if (status.code() == Code::kBusy) return;
    if (!status.ok()) refuse(first.token, status);
    held_.pop_front();
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
  assert(tag < next_tag_);
  if (const auto own = delegate_calls_.find(tag); own != delegate_calls_.end()) {
    const uint64_t id = own->second;
    delegate_calls_.erase(own);
    delegate_.on_answer(id, response);
  } else if (const auto follow = follow_up_calls_.find(tag); follow != follow_up_calls_.end()) {
    const std::string name = std::move(follow->second);
    follow_up_calls_.erase(follow);
    on_follow_up(name, std::move(response));
  } else {
    assert(false && "a completion that no call waits for");
  }
}

// ---- storage

// kBusy: after the next commit. A shard that has failed commits nothing more: there is nothing to wait for.
Status ServerCore::takes_records() const {
  if (!shard_->health().ok() || shard_->accepts_records()) return {};
  return error(Code::kBusy, Scope::kOperation, "the open group is full");
}

void ServerCore::when_durable(uint64_t group, std::function<void(const Status&)> act) {
  assert(group <= shard_->open_group());
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

// A duplicate may wait for a group before the last one, so all are looked at. What act() adds waits for later
// groups. Only act() allocates: what throws here ends the rank's servers.
void ServerCore::release(const Status& failure) {
  const size_t count = waits_.size();
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool durable = waits_[i].group <= shard_->durable_group();
    if (durable || !failure.ok()) {
      if (const auto act = std::exchange(waits_[i].act, nullptr)) act(durable ? Status() : failure);
    } else if (i != kept++) {
      waits_[kept - 1] = std::move(waits_[i]);
    }
  }
  waits_.erase(waits_.begin() + static_cast<ptrdiff_t>(kept), waits_.begin() + static_cast<ptrdiff_t>(count));
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
  assert(work != nullptr);
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

bool ServerCore::consistent() const {
  if (!attributes_->consistent() || !shard_->consistent()) return false;
  for (const Waiting& each : waits_) {
    if (each.group <= shard_->durable_group() || each.group > last_group_) return false;
  }
  std::map<std::string_view, uint32_t> calls;
  for (const auto& [tag, name] : follow_up_calls_) {
    if (tag >= next_tag_ || delegate_calls_.contains(tag)) return false;
    ++calls[name];
  }
  for (const auto& [name, job] : jobs_) {
    if (job.change.request.name != name || job.what == FollowUp::kNone || job.open_calls != calls[name])
      return false;
  }
  return calls.size() == jobs_.size();
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
