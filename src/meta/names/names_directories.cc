// Enrolment, removal of directories, and locks of entries.
#include <cerrno>
#include <utility>

#include "meta/names/names_core.h"

namespace swale::meta {

// ---- enrolment

// `then` runs when this server may take entries of the directory, or with the errno that says why not.
void NamesCore::enrol(const FileId& directory, OnError then) {
  if (enrolled(directory)) return then(0);
  if (server_of(directory) >= servers_) return then(ENOENT);
  std::vector<OnError>& waiting = enrolling_[directory];
  waiting.push_back(std::move(then));
  if (waiting.size() > 1) return;
  PeerRequest request;
  request.op = PeerOp::kEnrol;
  request.file = directory;
  request.server = server_;
  ask(server_of(directory), request, [this, directory](const PeerAnswer& answer) {
    const auto waits = std::move(enrolling_[directory]);
    enrolling_.erase(directory);
    // What follows in the log is durable no earlier than this record.
    if (answer.error == 0)
      commit(
          NameRecord().enrolled(directory), [](const Status&) {}, AnswerWait::kWritten);
    for (const OnError& each : waits) each(answer.error);
  });
}

void NamesCore::on_enrol(const PeerRequest& request, uint64_t token) {
  if (const auto removal = removals_.find(request.file); removal != removals_.end()) {
    removal->second.enrolments.push_back([this, request, token] { on_enrol(request, token); });
    return;
  }
  const TreeNode* const node = table_.node(request.file);
  if (node == nullptr) return reply_peer(token, {.error = ENOENT});
  if (node->type != NodeType::kDirectory) return reply_peer(token, {.error = ENOTDIR});
  NameRecord record;
  if (!table_.member(request.file, request.server))
    record.pair(StepKind::kMember, request.file, request.server);
  commit_for_peer(record, token);
}

// An entry that is being made, or a rename's lock, makes the directory busy: whoever removes it comes again.
void NamesCore::on_leave(const PeerRequest& request, uint64_t token) {
  EntryKey first;
  first.directory = request.file;
  const auto lock = locks_.lower_bound(first);
  if (enrolling_.contains(request.file) || (lock != locks_.end() && lock->first.directory == request.file))
    return reply_peer(token, {.outcome = Outcome::kBusy});
  if (table_.has_entries(request.file)) return reply_peer(token, {.outcome = Outcome::kNotEmpty});
  NameRecord record;
  if (table_.enrolled(request.file)) record.not_enrolled(request.file);
  commit_for_peer(record, token);
}

// ---- removal, at the server of the directory's node

void NamesCore::on_remove(const PeerRequest& request, uint64_t token) {
  const FileId directory = request.file;
  const Transaction& id = request.transaction;
  const auto past = past_removals_.find({directory, {id.server, id.job}});
  if (past != past_removals_.end() && id.number <= past->second.number)
    return reply_peer(token, {.outcome = past->second.outcome});
  if (const auto under_way = removals_.find(directory); under_way != removals_.end()) {
    if (under_way->second.id == id)
      under_way->second.tokens.push_back(token);
    else
      reply_peer(token, {.outcome = Outcome::kBusy});
    return;
  }
  if (table_.node(directory) == nullptr) return reply_peer(token, {});
  if (directory == kRootDirectory) return reply_peer(token, {.outcome = Outcome::kNotEmpty});
  Removal& removal = removals_[directory];
  removal.id = id;
  removal.tokens = {token};
  const std::vector<uint64_t> members = table_.members(directory);
  removal.open_calls = members.size();
  if (members.empty()) return decide_removal(directory);
  for (const uint64_t each : members) ask_to_leave(directory, static_cast<uint32_t>(each));
}

void NamesCore::ask_to_leave(const FileId& directory, uint32_t member) {
  PeerRequest request;
  request.op = PeerOp::kLeave;
  request.file = directory;
  ask(member, request, [this, directory](const PeerAnswer& answer) {
    Removal& removal = removals_.at(directory);
    if (removal.outcome != Outcome::kNotEmpty && answer.outcome != Outcome::kDone)
      removal.outcome = answer.outcome;
    if (--removal.open_calls == 0) decide_removal(directory);
  });
}

// All members have answered. The record of the removed node is the moment at which the directory ends.
void NamesCore::decide_removal(const FileId& directory) {
  if (removals_.at(directory).outcome != Outcome::kDone) return end_removal(directory, {});
  commit(NameRecord().no_node(directory),
         [this, directory](const Status& status) { end_removal(directory, status); });
}

void NamesCore::end_removal(const FileId& directory, const Status& status) {
  const auto found = removals_.find(directory);
  const Removal removal = std::move(found->second);
  removals_.erase(found);
  if (status.ok() && removal.outcome != Outcome::kDone) {
    past_removals_[{directory, {removal.id.server, removal.id.job}}] = {removal.id.number, removal.outcome};
  } else if (status.ok()) {
    const auto begin = past_removals_.lower_bound({directory, {0, 0}});
    auto end = begin;
    while (end != past_removals_.end() && end->first.first == directory) ++end;
    past_removals_.erase(begin, end);
  }
  for (const uint64_t token : removal.tokens) {
    status.ok() ? reply_peer(token, {.outcome = removal.outcome}) : reply(token, status);
  }
  for (const Act& each : removal.enrolments) each();
}

// ---- removal, at the server of the entry

void NamesCore::remove_directory(const AskedPtr& asked) {
  const EntryKey key(asked->request.directory, asked->request.name);
  const JobPtr job = begin(asked, IntentKind::kRemoveDirectory);
  job->intent.source = key;
  job->keys = {key};
  acquire(key, job->id, [this, job, key] {
    job->locked = 1;
    const DirEntry* const entry = table_.find(key);
    if (entry == nullptr) return abort(job, ENOENT);
    if (entry->type != NodeType::kDirectory) return abort(job, ENOTDIR);
    job->intent.moved = *entry;
    uncache(job, [this, job] { begin_removal(job); });
  });
}

void NamesCore::begin_removal(const JobPtr& job) {
  job->logged = true;
  commit(NameRecord().intent(job->id, job->intent), [this, job](const Status& status) {
    if (status.ok()) return ask_to_remove(job);
    unlock(job);
    end(job);
    fail(job->asked, status);
  });
}

// The directory that the job removes: of a rename, the one that is replaced.
void NamesCore::ask_to_remove(const JobPtr& job) {
  const bool rename = job->intent.kind == IntentKind::kRename;
  PeerRequest request;
  request.op = PeerOp::kRemove;
  request.file = (rename ? job->intent.replaced : job->intent.moved)->file;
  request.transaction = job->id;
  request.from = job->intent.from;
  ask(server_of(request.file), request,
      [this, job](const PeerAnswer& answer) { on_removed(job, answer.outcome); });
}

// Once the directory is gone the job must come to its end; before, it may still be given up.
void NamesCore::on_removed(const JobPtr& job, Outcome outcome) {
  const bool rename_job = job->intent.kind == IntentKind::kRename;
  if (outcome == Outcome::kDone) return rename_job ? commit_rename(job) : end_rmdir(job);
  commit(NameRecord().no_intent(job->id), [this, job, outcome](const Status& status) {
    if (!status.ok()) return health().ok() ? ask_to_remove(job) : fail(job->asked, status);
    if (outcome == Outcome::kNotEmpty) return abort(job, ENOTEMPTY);
    again(job, job->intent.move != 0);
  });
}

void NamesCore::end_rmdir(const JobPtr& job) {
  NameRecord record;
  record.no_entry(job->intent.source).no_intent(job->id).answer(job->intent.from, *job->intent.moved);
  commit(record, [this, job](const Status& status) {
    if (!status.ok()) return health().ok() ? ask_to_remove(job) : fail(job->asked, status);
    unlock(job);
    finished(job);
  });
}

// ---- caches

// The entries of directories that the job locks and changes leave all caches; then `then`.
void NamesCore::uncache(const JobPtr& job, Act then) {
  const auto is_directory = [](const std::optional<DirEntry>& entry) {
    return entry && entry->type == NodeType::kDirectory;
  };
  std::vector<EntryKey> keys;
  if (is_directory(job->intent.moved)) keys.push_back(job->intent.source);
  if (is_directory(job->intent.replaced)) keys.push_back(job->intent.target);
  if (keys.empty()) return then();
  job->open_calls = keys.size() * servers_;
  for (const EntryKey& key : keys) {
    for (uint32_t node = 0; node < servers_; ++node) {
      uncache_at(node, key, [job, then] {
        if (--job->open_calls == 0) then();
      });
    }
  }
}

void NamesCore::uncache_at(uint32_t node, const EntryKey& key, Act then) {
  PeerRequest request;
  request.op = PeerOp::kUncache;
  request.key = key;
  call(node, request, [this, node, key, then = std::move(then)](const Result<PeerAnswer>& answer) {
    if (answer.ok() || answer.status().code() == Code::kUnavailable) return then();
    if (health().ok()) uncache_at(node, key, then);
  });
}

// ---- locks

void NamesCore::when_free(const EntryKey& key, Act act) {
  const auto lock = locks_.find(key);
  if (lock == locks_.end()) return act();
  lock->second.waiting.push_back([this, key, act = std::move(act)] { when_free(key, act); });
}

void NamesCore::acquire(const EntryKey& key, const Transaction& id, Act act) {
  const auto [lock, fresh] = locks_.try_emplace(key);
  if (fresh) lock->second.holder = id;
  if (lock->second.holder == id) return act();
  lock->second.waiting.push_back([this, key, id, act = std::move(act)] { acquire(key, id, act); });
}

void NamesCore::release(const EntryKey& key, const Transaction& id) {
  const auto lock = locks_.find(key);
  if (lock == locks_.end() || lock->second.holder != id) return;
  const auto waiting = std::move(lock->second.waiting);
  locks_.erase(lock);
  for (const Act& each : waiting) each();
}

// A lock for a rename at another server (of moves_key: of any server).
void NamesCore::on_lock(const PeerRequest& request, uint64_t token) {
  const std::pair waiting(request.transaction, request.key);
  const auto lock = locks_.find(request.key);
  const bool holds = lock != locks_.end() && lock->second.holder == request.transaction;
  if (holds && !lock_tokens_.contains(waiting)) {
    // The answer was lost; or the rename has ended, and this is a late copy that nobody waits for.
    if (table_.lock(request.key) == nullptr) return reply_peer(token, {.error = ECANCELED});
    lock_tokens_[waiting] = token;
    return grant(request.key, request.transaction);
  }
  const auto [at, fresh] = lock_tokens_.insert_or_assign(waiting, token);
  if (!fresh) return;
  const auto locked = [this, waiting] {
    if (!lock_tokens_.contains(waiting)) return release(waiting.second, waiting.first);  // given up meanwhile
    grant(waiting.second, waiting.first);
  };
  const auto enrolled_or_not = [this, waiting, locked](int error) {
    if (error == 0) return acquire(waiting.second, waiting.first, locked);
    const auto found = lock_tokens_.find(waiting);
    if (found == lock_tokens_.end()) return;
    reply_peer(found->second, {.error = error});
    lock_tokens_.erase(found);
  };
  request.key == moves_key() ? enrolled_or_not(0) : enrol(request.key.directory, enrolled_or_not);
}

void NamesCore::grant(const EntryKey& key, const Transaction& id) {
  NameRecord record;
  uint64_t number = table_.grants() + 1;
  if (const HeldLock* const held = table_.lock(key); held != nullptr && held->holder == id) {
    number = held->grant;  // the answer was lost
  } else {
    record.lock(key, {id, number}).counters(table_.drawn(), number);
  }
  commit(record, [this, key, id, number](const Status& status) {
    const auto waiting = lock_tokens_.find({id, key});
    if (waiting == lock_tokens_.end()) return;
    const uint64_t token = waiting->second;
    lock_tokens_.erase(waiting);
    if (!status.ok()) {
      reply(token, status);
      return release(key, id);
    }
    PeerAnswer answer;
    if (const DirEntry* const entry = table_.find(key); entry != nullptr) answer.entry = *entry;
    answer.grant = number;
    reply_peer(token, answer);
    inquire(key, id);
  });
}

// What becomes of the key that a rename has locked. If it is not locked, or by a later grant to a late copy
// of the request, this was done before.
void NamesCore::on_decide(const PeerRequest& request, uint64_t token) {
  if (!request.commit) lock_tokens_.erase({request.transaction, request.key});
  const HeldLock* const held = table_.lock(request.key);
  if (held == nullptr || held->holder != request.transaction ||
      (request.commit && held->grant != request.grant)) {
    return reply_peer(token, {});
  }
  NameRecord record;
  record.no_lock(request.key);
  if (request.commit && request.entry) record.entry(request.key, *request.entry);
  commit(record, [this, token, request](const Status& status) {
    if (!status.ok()) return reply(token, status);
    reply(token, encode(PeerAnswer()));
    release(request.key, request.transaction);
  });
}

// Waits until the rename has ended. If the lock is still there then, the rename never happened: its server
// was killed before it had decided.
void NamesCore::inquire(const EntryKey& key, const Transaction& id) {
  PeerRequest request;
  request.op = PeerOp::kInquire;
  request.transaction = id;
  call(id.server, request, [this, key, id](const Result<PeerAnswer>& answer) {
    const HeldLock* const held = table_.lock(key);
    if (held == nullptr || held->holder != id || !health().ok()) return;
    if (!answer.ok()) return inquire(key, id);
    commit(NameRecord().no_lock(key),
           [this, key, id](const Status& status) { status.ok() ? release(key, id) : inquire(key, id); });
  });
}

}  // namespace swale::meta
