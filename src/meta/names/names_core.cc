#include "meta/names/names_core.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/contain.h"

namespace swale::meta {

// ---- requests

template <class Event>
void NamesCore::contained(const Event& event) noexcept {
  if (!broken_.ok()) return;
  broken_ = contain(event);
}

void NamesCore::on_request(Bytes payload, uint64_t token) {
  contained([&] {
    const Status status = from_peer(payload) ? peer_request(payload, token) : client_request(payload, token);
    if (!status.ok()) reply(token, status);
  });
  if (!broken_.ok()) refuse(token, broken_);
}

// A refusal for which there is no memory either is none: whoever asked waits for its deadline.
void NamesCore::refuse(uint64_t token, const Status& why) noexcept {
  const bool answered = std::any_of(replies_.begin(), replies_.end(),
                                    [token](const NameReply& each) { return each.token == token; });
  if (!answered) static_cast<void>(contain([&] { reply(token, why); }));
}

Status NamesCore::client_request(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(NameRequest request, decode_name_request(payload));
  if (request.life != job_) {
    reply(token, encode_life(job_));
    return {};
  }
  SWALE_RETURN_IF_ERROR(health());
  const auto asked = std::make_shared<Asked>();
  if (changes(request.op)) {
    bool known = false;
    SWALE_RETURN_IF_ERROR(repeated(request, token, &known));
    if (known) return {};
    if (!log_.accepts()) return error(Code::kBusy, Scope::kOperation, "the open group of records is full");
    slots_[request.from.client] = {request.from.number, asked, {}};
  }
  asked->request = std::move(request);
  asked->tokens = {token};
  start(asked);
  return {};
}

// A change that has come before is not made again. An older one's answer was heard long ago.
Status NamesCore::repeated(const NameRequest& request, uint64_t token, bool* known) {
  const auto [client, number] = request.from;
  if (!slots_.contains(client)) {
    const LastAnswer* const last = table_.answer(client);
    if (last != nullptr) slots_[client] = {last->number, nullptr, encode(answer_with(last->entry))};
  }
  const auto found = slots_.find(client);
  if (found == slots_.end() || found->second.number < number) return {};
  if (found->second.number > number) {
    return error(Code::kAborted, Scope::kOperation, "request {} of client {}: a later one has come before it",
                 number, client);
  }
  *known = true;
  if (found->second.asked != nullptr) {
    found->second.asked->tokens.push_back(token);
  } else {
    reply_when_durable(token, found->second.answer, request.wait);
  }
  return {};
}

void NamesCore::start(const AskedPtr& asked) {
  const NameRequest& request = asked->request;
  const auto wrong_name = [](Bytes name) {
    return name.size() > kEntryNameBytesMax ? ENAMETOOLONG : valid_name(name) ? 0 : EINVAL;
  };
  switch (request.op) {
    case NameOp::kLookUp:
    case NameOp::kCreate:
    case NameOp::kOpen:
    case NameOp::kMakeDirectory:
    case NameOp::kSymlink:
    case NameOp::kUnlink:
    case NameOp::kRemoveDirectory:
    case NameOp::kRename: {
      if (const int wrong = wrong_name(request.name); wrong != 0) return answer_error(asked, wrong);
      if (request.directory.none() ||
          server_of(EntryKey(request.directory, request.name), servers_) != server_)
        return fail(asked, invalid_argument("{}: is no name of this server", request.name));
      break;
    }
    case NameOp::kList:
      return list(asked);
    case NameOp::kForget:
      return forget(asked);
    default:
      return node_request(asked);
  }
  switch (request.op) {
    case NameOp::kLookUp:
      return look_up(asked);
    case NameOp::kOpen:
      return open(asked);
    case NameOp::kUnlink:
      return unlink(asked);
    case NameOp::kRemoveDirectory:
      return remove_directory(asked);
    case NameOp::kRename:
      if (const int wrong = wrong_name(request.target_name); wrong != 0) return answer_error(asked, wrong);
      if (request.target.none() || request.flags > kExchange) return answer_error(asked, EINVAL);
      return rename(asked, false);
    default:
      return create(asked);
  }
}

bool NamesCore::make_file(const NewFile& file, MadeFile* made, const Done& done) {
  const EntryKey& key = file.key;
  if (!health().ok() || !log_.accepts() || !valid_name(key.name) || server_of(key, servers_) != server_ ||
      locks_.contains(key) || !enrolled(key.directory))
    return false;
  contained([&] { make_file_now(file, made, done); });
  return broken_.ok();
}

Status NamesCore::peer_request(Bytes payload, uint64_t token) {
  SWALE_ASSIGN_OR_RETURN(const PeerRequest request, decode_peer_request(payload));
  if (request.life != job_) {
    reply(token, encode_life(job_));
    return {};
  }
  if (request.server >= servers_ || request.transaction.server >= servers_)
    return invalid_argument("a request of server {} of the tree: there are {}", request.server, servers_);
  SWALE_RETURN_IF_ERROR(health());
  const TreeNode* const node = table_.node(request.file);
  switch (request.op) {
    case PeerOp::kEnrol:
      on_enrol(request, token);
      break;
    case PeerOp::kLeave:
      on_leave(request, token);
      break;
    case PeerOp::kRemove:
      on_remove(request, token);
      break;
    case PeerOp::kLock:
      on_lock(request, token);
      break;
    case PeerOp::kDecide:
      on_decide(request, token);
      break;
    case PeerOp::kInquire:
      if (const auto job = jobs_.find(request.transaction); job != jobs_.end()) {
        job->second->inquiries.push_back(token);
      } else {
        reply_peer(token, {});
      }
      break;
    case PeerOp::kParent:
      if (node == nullptr || node->type != NodeType::kDirectory) {
        reply_peer(token, {.error = ENOENT});
      } else {
        reply_peer(token, {.entry = DirEntry{node->parent, NodeType::kDirectory}});
      }
      break;
    case PeerOp::kUncache:
      if (cache_ != nullptr) cache_->forget(request.key);
      reply(token, encode(PeerAnswer()));
      break;
    case PeerOp::kDrop:
    case PeerOp::kSetParent: {
      NameRecord record;
      if (request.op == PeerOp::kDrop) {
        if (node != nullptr && !node->unlinked) drop(request.file, node->changed_ns, &record);
      } else if (node != nullptr && node->move < request.grant) {  // not one that a later move has overtaken
        TreeNode moved = *node;
        moved.parent = request.other;
        moved.move = request.grant;
        record.node(request.file, moved);
      }
      commit_for_peer(record, token);
      break;
    }
  }
  return {};
}

// ---- records

// Changes the table; then `done`, when that is durable. An empty record: when all before it is.
void NamesCore::commit(const NameRecord& record, Done done, AnswerWait wait) {
  if (const Status why = health(); !why.ok()) return done(why);
  if (!record.empty()) {
    const size_t before = table_.changes();
    if (const Status status = table_.apply(record.bytes()); !status.ok()) return done(status);
    try {
      last_group_ = log_.add(record.bytes());
    } catch (...) {
      table_.undo_to(before);
      throw;
    }
  }
  when_durable(wait, std::move(done));
}

void NamesCore::when_durable(AnswerWait wait, Done done) {
  Durable& durable = wait == AnswerWait::kSynced ? synced_ : written_;
  if (last_group_ <= durable.group && durable.waits.empty()) return done({});
  durable.waits.push_back({last_group_, std::move(done)});
  if (wait == AnswerWait::kWritten) return;
  log_.sync_next();
  if (last_group_ <= written_.group && health().ok()) sync_written();
}

// All that waits for a sync was written before anybody did: a record that says nothing new brings one.
void NamesCore::sync_written() {
  const NameRecord record = NameRecord().counters(table_.drawn(), table_.grants());
  commit(
      record, [](const Status&) {}, AnswerWait::kWritten);
  log_.sync_next();
}

void NamesCore::on_durable(uint64_t written, uint64_t synced) {
  contained([&] {
    written_.group = written;
    synced_.group = synced;
    for (Durable* const durable : {&written_, &synced_}) {
      while (!durable->waits.empty() && durable->waits.front().group <= durable->group) {
        const Done done = std::move(durable->waits.front().done);
        durable->waits.pop_front();
        done({});
      }
    }
    if (!synced_.waits.empty() && last_group_ <= written_.group && health().ok()) sync_written();
    for (const Transaction& each : std::exchange(ended_, {})) forget_intent(each);
  });
}

void NamesCore::on_void(const Status& why) {
  contained([&] {
    auto waits = std::exchange(written_.waits, {});
    last_group_ = written_.group;
    // Of those that wait for a sync, some are written and wait on.
    while (!synced_.waits.empty() && (synced_.waits.back().group > written_.group || !health().ok())) {
      waits.push_back(std::move(synced_.waits.back()));
      synced_.waits.pop_back();
    }
    for (const Wait& each : waits) each.done(why);
  });
}

void NamesCore::reply_when_durable(uint64_t token, std::string response, AnswerWait wait) {
  when_durable(wait, [this, token, response = std::move(response)](const Status& status) {
    status.ok() ? reply(token, response) : reply(token, status);
  });
}

// ---- answers

// Waits for what the answer shows, also if it has changed nothing.
void NamesCore::answer(const AskedPtr& asked, NameAnswer answer) {
  when_durable(asked->request.wait, [this, asked, response = encode(answer)](const Status& status) {
    if (!status.ok()) return fail(asked, status);
    for (const uint64_t token : asked->tokens) reply(token, response);
    asked->tokens.clear();
    const auto slot = slots_.find(asked->request.from.client);
    if (slot == slots_.end() || slot->second.asked != asked) return;
    slot->second.asked = nullptr;
    slot->second.answer = response;
    if (slots_.size() <= NameTable::kClientsMax) return;
    for (auto each = slots_.begin(); each != slots_.end(); ++each) {  // the table knows what has changed it
      if (each->second.asked == nullptr && each != slot) {
        slots_.erase(each);
        return;
      }
    }
  });
}

void NamesCore::answer_error(const AskedPtr& asked, int error) { answer(asked, {.error = error}); }

// Nothing was done: a repetition is tried anew.
void NamesCore::fail(const AskedPtr& asked, const Status& status) {
  for (const uint64_t token : asked->tokens) reply(token, status);
  asked->tokens.clear();
  const auto slot = slots_.find(asked->request.from.client);
  if (slot != slots_.end() && slot->second.asked == asked) slots_.erase(slot);
}

// A change that this server makes alone: the record has its answer.
void NamesCore::change(const AskedPtr& asked, const NameRecord& record, const NameAnswer& outcome) {
  NameRecord whole = record;
  whole.answer(asked->request.from, outcome.entry);
  commit(
      whole,
      [this, asked, outcome](const Status& status) {
        status.ok() ? answer(asked, outcome) : fail(asked, status);
      },
      asked->request.wait);
}

// ---- calls

void NamesCore::call(uint32_t to, const PeerRequest& request, std::function<void(Result<PeerAnswer>)> done) {
  const uint64_t tag = next_tag_++;
  PeerRequest sent = request;
  sent.life = lives_[to];
  calls_open_[tag] = [this, to, request, done = std::move(done)](const Result<std::string>& response) {
    if (!response.ok()) return done(response.status());
    if (const auto life = other_life(*response); life) {
      lives_[to] = std::max(lives_[to], *life);
      return call(to, request, done);
    }
    done(decode_peer_answer(*response));
  };
  calls_.push_back({to, tag, encode(sent)});
}

void NamesCore::ask(uint32_t to, const PeerRequest& request, std::function<void(const PeerAnswer&)> done) {
  call(to, request, [this, to, request, done = std::move(done)](const Result<PeerAnswer>& answer) {
    if (answer.ok()) return done(*answer);
    if (health().ok()) ask(to, request, done);
  });
}

void NamesCore::on_completion(uint64_t tag, Result<std::string> response) {
  const auto found = calls_open_.find(tag);
  if (found == calls_open_.end()) return;
  contained([&] {
    const auto done = std::move(found->second);
    calls_open_.erase(found);
    done(std::move(response));
  });
}

void NamesCore::take_replies(std::vector<NameReply>* out) {
  std::move(replies_.begin(), replies_.end(), std::back_inserter(*out));
  replies_.clear();
}

void NamesCore::take_calls(std::vector<NameCall>* out) {
  std::move(calls_.begin(), calls_.end(), std::back_inserter(*out));
  calls_.clear();
}

// ---- recovery

void NamesCore::resume() {
  contained([this] { resume_all(); });
}

void NamesCore::resume_all() {
  for (const auto& [key, lock] : table_.locks()) locks_[key].holder = lock.holder;
  for (const auto& [key, lock] : table_.locks()) inquire(key, lock.holder);
  const auto intents = table_.intents();
  for (const auto& [id, intent] : intents) {
    const auto job = std::make_shared<Job>();
    job->id = id;
    job->intent = intent;
    job->logged = true;
    job->asked = std::make_shared<Asked>();
    job->asked->request.from = intent.from;
    NameRequest& request = job->asked->request;
    request.op = intent.kind == IntentKind::kRename            ? NameOp::kRename
                 : intent.kind == IntentKind::kRemoveDirectory ? NameOp::kRemoveDirectory
                                                               : NameOp::kUnlink;
    request.flags = intent.flags;
    request.directory = intent.source.directory, request.name = intent.source.name;
    request.target = intent.target.directory, request.target_name = intent.target.name;
    const LastAnswer* const last = table_.answer(intent.from.client);
    if (last == nullptr || last->number <= intent.from.number)
      slots_[intent.from.client] = {intent.from.number, job->asked, {}};
    jobs_[id] = job;
    if (intent.phase == IntentPhase::kFinishing) {
      finish(job);
      continue;
    }
    if (intent.move != 0) job->keys.push_back(moves_key());
    job->keys.push_back(intent.source);
    if (intent.kind == IntentKind::kRename) job->keys.push_back(intent.target);
    job->locked = job->keys.size();
    for (const EntryKey& key : job->keys) {
      if (local(key)) locks_[key].holder = id;
    }
    ask_to_remove(job);
  }
}

}  // namespace swale::meta
