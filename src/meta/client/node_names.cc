#include "meta/client/node_names.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace swale::meta {
namespace {

constexpr size_t kAnswerBytes = 8 * kKiB;        // a node with the longest target
constexpr size_t kLongAnswerBytes = 160 * kKiB;  // a listing, or user attributes

bool may_hold(const NameRequest& request) {
  return request.op == NameOp::kOpen || request.op == NameOp::kHold ||
         (request.op == NameOp::kCreate && (request.flags & kAndHold) != 0);
}

bool may_combine(const NameRequest& request) {
  return !changes(request.op) || request.op == NameOp::kOpen || request.op == NameOp::kHold;
}

size_t answer_bytes(NameOp op) {
  const bool is_long =
      op == NameOp::kList || op == NameOp::kMembers || op == NameOp::kReadUser || op == NameOp::kListUsers;
  return is_long ? kLongAnswerBytes : kAnswerBytes;
}

std::string_view word_of(NameOp op) {
  switch (op) {
    case NameOp::kLookUp:
      return "look up";
    case NameOp::kStat:
      return "stat";
    case NameOp::kMembers:
    case NameOp::kList:
      return "list";
    case NameOp::kReadUser:
    case NameOp::kListUsers:
      return "read user attributes of";
    case NameOp::kCreate:
      return "create";
    case NameOp::kOpen:
      return "open";
    case NameOp::kMakeDirectory:
      return "mkdir";
    case NameOp::kSymlink:
      return "symlink";
    case NameOp::kUnlink:
      return "unlink";
    case NameOp::kRemoveDirectory:
      return "rmdir";
    case NameOp::kRename:
      return "rename";
    case NameOp::kSetNode:
      return "set attributes of";
    case NameOp::kSetUser:
    case NameOp::kRemoveUser:
      return "set user attributes of";
    case NameOp::kHold:
      return "hold";
    case NameOp::kRelease:
      return "release";
    case NameOp::kForget:
      return "forget";
  }
  return "ask";
}

}  // namespace

// ---- requests

uint32_t NodeNames::server_of_request(const NameRequest& request) const {
  switch (request.op) {
    case NameOp::kLookUp:
    case NameOp::kCreate:
    case NameOp::kOpen:
    case NameOp::kMakeDirectory:
    case NameOp::kSymlink:
    case NameOp::kUnlink:
    case NameOp::kRemoveDirectory:
    case NameOp::kRename:
      return server_of(EntryKey(request.directory, request.name), options_.servers);
    default:  // also of kList, where `file` only says which server
      return server_of(request.file);
  }
}

std::string NodeNames::describe(const NameRequest& request) const {
  const bool in_directory = !request.directory.none();
  const FileId& id = in_directory ? request.directory : request.file;
  return fmt::format("{} {}{} {:x}.{:x} at server {}", word_of(request.op),
                     in_directory && !request.name.empty() ? request.name + " in " : "",
                     in_directory ? "directory" : "file", id.high, id.low, server_of_request(request));
}

NodeNames::Id NodeNames::ask(NameRequest request, Nanos until) {
  const Id id = next_id_++;
  if (server_of_request(request) >= options_.servers) {
    NameAnswer absent;  // no server has drawn such an id
    absent.error = ENOENT;
    finish(id, std::move(absent));
    return id;
  }
  if (remembered(request, id)) return id;
  const bool combines = may_combine(request);
  request.from = {};
  std::string key;
  if (combines) {
    NameRequest same = request;
    same.now_ns = 0;
    key = encode(same);
    for (auto* const flows : {&leaving_, &queued_}) {
      const auto found = flows->find(key);
      if (found == flows->end()) continue;
      found->second->askers.push_back({id, until});
      return id;
    }
  }
  const auto flow = std::make_shared<Flow>();
  flow->request = std::move(request);
  flow->key = std::move(key);
  flow->askers.push_back({id, until});
  if (combines && under_way_.contains(flow->key)) {
    queued_[flow->key] = flow;
  } else {
    begin(flow);
  }
  return id;
}

// A change leaves when there is a slot for it.
void NodeNames::begin(const FlowPtr& flow) {
  if (!flow->key.empty()) leaving_[flow->key] = flow;
  if (changes(flow->request.op)) {
    if (free_slots_.empty() && numbers_.size() < options_.slots_max) {
      numbers_.push_back(0);
      free_slots_.push_back(numbers_.size());
    }
    if (free_slots_.empty()) {
      waiting_.push_back(flow);
      return;
    }
    flow->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  holding_ += may_hold(flow->request) ? 1 : 0;
  send_new(flow, flow->request);
}

void NodeNames::send_new(const FlowPtr& flow, NameRequest request) {
  request.from = {options_.node << 16 | flow->slot, flow->slot == 0 ? 0 : ++numbers_[flow->slot - 1]};
  flow->sent = std::move(request);
  flow->began = events_;
  flow->asked = options_.cache != nullptr ? options_.cache->now() : 0;
  send(flow);
}

void NodeNames::send(const FlowPtr& flow) {
  const uint64_t tag = next_tag_++;
  open_[tag] = flow;
  ready_.push_back(tag);
}

void NodeNames::take_calls(std::vector<NodeCall>* out) {
  for (const uint64_t tag : std::exchange(ready_, {})) {
    Flow& flow = *open_.at(tag);
    const uint32_t to = server_of_request(flow.sent);
    flow.sent.life = lives_[to];
    out->push_back({to, tag, encode(flow.sent), answer_bytes(flow.sent.op)});
    if (flow.key.empty()) continue;
    if (const auto left = leaving_.find(flow.key); left != leaving_.end() && left->second.get() == &flow) {
      under_way_[flow.key] = left->second;
      leaving_.erase(left);
    }
  }
}

std::vector<NodeNames::Id> NodeNames::askers(uint64_t tag) const {
  std::vector<Id> ids;
  const auto found = open_.find(tag);
  if (found == open_.end()) return ids;
  for (const Asker& each : found->second->askers) ids.push_back(each.id);
  return ids;
}

bool NodeNames::take_finished(Finished* out) {
  if (finished_.empty()) return false;
  *out = std::move(finished_.back());
  finished_.pop_back();
  return true;
}

void NodeNames::finish(Id id, Result<NameAnswer> answer) {
  Finished& finished = finished_.emplace_back();
  finished.id = id;
  finished.answer = std::move(answer);
}

void NodeNames::expire(Nanos now) {
  const auto tell = [&](const FlowPtr& flow) {
    std::erase_if(flow->askers, [&](const Asker& each) {
      if (each.until > now) return false;
      finish(each.id, error(Code::kDeadlineExceeded, Scope::kOperation, "{}: no answer in time",
                            describe(flow->request)));
      return true;
    });
  };
  for (const auto& [tag, flow] : open_) tell(flow);
  for (const auto& [key, flow] : queued_) tell(flow);
  for (const auto& [file, flows] : releasing_) {
    for (const FlowPtr& each : flows) tell(each);
  }
  for (const FlowPtr& each : waiting_) tell(each);
  std::erase_if(waiting_, [this](const FlowPtr& flow) {  // they have changed nothing
    if (!flow->askers.empty() || flow->request.op == NameOp::kRelease) return false;
    if (!flow->key.empty()) leaving_.erase(flow->key);
    return true;
  });
  std::erase_if(queued_, [](const auto& each) { return each.second->askers.empty(); });
}

// ---- completions

void NodeNames::on_completion(uint64_t tag, Result<std::string> response) {
  const auto found = open_.find(tag);
  if (found == open_.end()) return;
  const FlowPtr flow = std::move(found->second);
  open_.erase(found);
  if (!response.ok()) return on_failure(flow, response.status());
  const uint32_t to = server_of_request(flow->sent);
  if (const auto life = other_life(*response); life) {
    lives_[to] = std::max(lives_[to], *life);
    return send(flow);
  }
  Result<NameAnswer> answer = decode_name_answer(*response);
  if (!answer.ok()) return end(flow, answer.status().with_context(describe(flow->request)), false);
  flow->held ? held_anew(flow, *std::move(answer)) : on_answer(flow, *std::move(answer));
}

// Nobody repeats a change after its deadline: what the caller does next must not meet it. It has perhaps
// happened, and may come late: so its slot is not used again. To hold and to let go harms nobody.
void NodeNames::on_failure(const FlowPtr& flow, const Status& why) {
  const Code code = why.code();
  const bool may_pass = code == Code::kDeadlineExceeded || code == Code::kBusy ||
                        (code == Code::kUnavailable && !options_.gone_for_good);
  const NameOp op = flow->request.op;
  const bool wanted =
      !flow->askers.empty() || op == NameOp::kRelease || op == NameOp::kOpen || op == NameOp::kHold;
  if (may_pass && wanted) return send(flow);
  const bool nothing_was_done = code == Code::kNoSpace || code == Code::kBusy;
  end(flow, why.with_context(describe(flow->request)), nothing_was_done);
}

bool NodeNames::remembered(const NameRequest& request, Id id) {
  if (options_.cache == nullptr || request.op != NameOp::kLookUp || (request.flags & kEntryOnly) == 0)
    return false;
  const auto entry = options_.cache->find(EntryKey(request.directory, request.name));
  if (!entry) return false;
  NameAnswer answer;
  answer.entry = *entry;
  finish(id, std::move(answer));
  return true;
}

void NodeNames::remember(const Flow& flow, const NameAnswer& answer) {
  const NameOp op = flow.request.op;
  if (options_.cache == nullptr || answer.error != 0 || answer.entry.type != NodeType::kDirectory) return;
  if (op != NameOp::kLookUp && op != NameOp::kMakeDirectory) return;
  options_.cache->note(EntryKey(flow.request.directory, flow.request.name), answer.entry.file, flow.asked);
}

void NodeNames::on_answer(const FlowPtr& flow, NameAnswer answer) {
  remember(*flow, answer);
  if (!answer.held || !may_hold(flow->request)) return end(flow, answer, true);
  const FileId file = answer.entry.file;
  if (!crossed(*flow, file)) {
    note_held(file, flow->askers.size());
    return end(flow, answer, true);
  }
  flow->held = std::move(answer);
  hold_anew(flow);
}

void NodeNames::end(const FlowPtr& flow, const Result<NameAnswer>& answer, bool slot_is_free) {
  if (may_hold(flow->request)) --holding_;
  if (holding_ == 0) {
    released_.clear();
    for (const auto& [file, wait] : std::exchange(idle_, {})) send_release(file, wait);
  }
  for (const Asker& each : flow->askers) finish(each.id, answer);
  flow->askers.clear();
  if (flow->slot != 0 && slot_is_free) free_slots_.push_back(flow->slot);
  if (!flow->key.empty()) {
    leaving_.erase(flow->key);
    under_way_.erase(flow->key);
    if (const auto next = queued_.find(flow->key); next != queued_.end()) {
      const FlowPtr begun = next->second;
      queued_.erase(next);
      begin(begun);
    }
  }
  if (flow->request.op == NameOp::kRelease) released(flow->request.file);
  while (!waiting_.empty() && !free_slots_.empty()) {
    const FlowPtr begun = waiting_.front();
    waiting_.pop_front();
    begin(begun);
  }
}

// ---- holds

bool NodeNames::release(const FileId& file, AnswerWait wait) {
  const auto found = held_.find(file);
  if (found == held_.end()) return false;
  if (--found->second > 0) return true;
  held_.erase(found);
  if (holding_ > 0 && idle_.size() < kIdleMax) {
    idle_[file] = wait;
  } else {
    send_release(file, wait);
  }
  return true;
}

void NodeNames::send_release(const FileId& file, AnswerWait wait) {
  releasing_[file];
  const auto flow = std::make_shared<Flow>();
  flow->request.op = NameOp::kRelease;
  flow->request.wait = wait;
  flow->request.file = file;
  begin(flow);
}

void NodeNames::note_held(const FileId& file, size_t askers) {
  idle_.erase(file);
  held_[file] += askers + 1;
  release(file);  // the one too many: nobody may wait for the answer any more
}

bool NodeNames::crossed(const Flow& flow, const FileId& file) const {
  if (releasing_.contains(file)) return true;
  const auto ended = released_.find(file);
  return ended != released_.end() && ended->second > flow.began;
}

void NodeNames::released(const FileId& file) {
  const auto flows = std::move(releasing_[file]);
  releasing_.erase(file);
  if (holding_ > 0) released_[file] = ++events_;
  for (const FlowPtr& each : flows) hold_anew(each);
}

// As a change of its own, after the release.
void NodeNames::hold_anew(const FlowPtr& flow) {
  const FileId file = flow->held->entry.file;
  if (const auto releasing = releasing_.find(file); releasing != releasing_.end()) {
    releasing->second.push_back(flow);
    return;
  }
  NameRequest request;
  request.op = NameOp::kHold;
  request.file = file;
  request.wait = flow->request.wait;
  send_new(flow, std::move(request));
}

void NodeNames::held_anew(const FlowPtr& flow, NameAnswer answer) {
  const FileId file = flow->held->entry.file;
  if (answer.error == 0 && crossed(*flow, file)) return hold_anew(flow);
  const NameAnswer first = *std::exchange(flow->held, std::nullopt);
  if (answer.error == 0) {
    note_held(file, flow->askers.size());
    return end(flow, first, true);
  }
  // Nobody held it, and it was unlinked: the name leads elsewhere now.
  const NameOp op = flow->request.op;
  if (op == NameOp::kOpen || (op == NameOp::kCreate && !first.made)) return send_new(flow, flow->request);
  if (op == NameOp::kCreate) answer.error = ESTALE;
  end(flow, answer, true);
}

}  // namespace swale::meta
