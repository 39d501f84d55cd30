// Changes of attributes at a file's root: the change and its record, then its second half at all servers.
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/contain.h"
#include "meta/server/run_table.h"
#include "meta/server/server_core.h"

namespace swale::meta {
namespace {

bool changes_attributes(AttributeOp op) { return op != AttributeOp::kOpen && op != AttributeOp::kStat; }

Method method_of(FollowUp what) {
  return what == FollowUp::kTrim     ? Method::kTrim
         : what == FollowUp::kForget ? Method::kForget
                                     : Method::kCollect;
}

}  // namespace

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

}  // namespace swale::meta
