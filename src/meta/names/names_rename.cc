// Renames, and the end of every operation on several servers.
//
//   lock (moves_key if a directory changes its parent, then both entries, in the order of keys) -> check
//   -> [the replaced directory is removed, by an intent] -> one record: the source's entry, the intent, the
//   answer -> the target's entry, dropped file, parents -> the lock of moves_key -> answer
#include <cerrno>
#include <utility>

#include "meta/names/names_core.h"

namespace swale::meta {
namespace {

constexpr uint32_t kDepthMax = 1 << 16;  // of a directory

bool is_directory(const std::optional<DirEntry>& entry) {
  return entry && entry->type == NodeType::kDirectory;
}

}  // namespace

// ---- operations on several servers

NamesCore::JobPtr NamesCore::begin(const AskedPtr& asked, IntentKind kind) {
  const auto job = std::make_shared<Job>();
  job->id = {server_, job_, next_transaction_++};
  job->asked = asked;
  job->intent.kind = kind;
  job->intent.from = asked->request.from;
  jobs_[job->id] = job;
  return job;
}

void NamesCore::end(const JobPtr& job) {
  jobs_.erase(job->id);
  for (const uint64_t token : job->inquiries) reply_peer(token, {});
  job->inquiries.clear();
}

// Gives back the locks that were taken, and those at other servers with one message each: whoever misses it
// inquires.
void NamesCore::unlock(const JobPtr& job) {
  const size_t locked = std::exchange(job->locked, 0);
  for (size_t i = 0; i < locked; ++i) {
    const EntryKey& key = job->keys[i];
    if (local(key)) {
      release(key, job->id);
      continue;
    }
    PeerRequest request;
    request.op = PeerOp::kDecide;
    request.key = key;
    request.transaction = job->id;
    call(server_of(key, servers_), request, [](const Result<PeerAnswer>&) {});
  }
}

void NamesCore::abort(const JobPtr& job, int error) {
  unlock(job);
  end(job);
  answer_error(job->asked, error);
}

// Everything anew: what was locked is free for others meanwhile.
void NamesCore::again(const JobPtr& job, bool moves) {
  const bool rename_job = job->intent.kind == IntentKind::kRename;
  end(job);
  unlock(job);
  rename_job ? rename(job->asked, moves) : remove_directory(job->asked);
}

// ---- rename

void NamesCore::rename(const AskedPtr& asked, bool moves) {
  const NameRequest& request = asked->request;
  const EntryKey source(request.directory, request.name);
  const EntryKey target(request.target, request.target_name);
  if (source == target) {
    return when_free(source, [this, asked, source] {
      const DirEntry* const entry = table_.find(source);
      answer_error(asked, entry == nullptr ? ENOENT : (asked->request.flags & kNoReplace) != 0 ? EEXIST : 0);
    });
  }
  const JobPtr job = begin(asked, IntentKind::kRename);
  job->intent.flags = request.flags;
  job->intent.source = source;
  job->intent.target = target;
  if (moves) job->keys.push_back(moves_key());
  job->keys.push_back(std::min(source, target));
  job->keys.push_back(std::max(source, target));
  lock_next(job);
}

void NamesCore::lock_next(const JobPtr& job) {
  if (job->locked == job->keys.size()) return check_rename(job);
  const EntryKey& key = job->keys[job->locked];
  if (local(key)) {
    const auto take = [this, job, key](int error) {
      if (error != 0) return abort(job, error);
      acquire(key, job->id, [this, job, key] {
        if (key == job->intent.target) {
          const DirEntry* const entry = table_.find(key);
          job->intent.replaced = entry != nullptr ? std::optional(*entry) : std::nullopt;
        }
        ++job->locked;
        lock_next(job);
      });
    };
    return key == job->intent.target ? enrol(key.directory, take) : take(0);
  }
  PeerRequest request;
  request.op = PeerOp::kLock;
  request.key = key;
  request.transaction = job->id;
  ask(server_of(key, servers_), request, [this, job, key](const PeerAnswer& answer) {
    if (answer.error != 0) return abort(job, answer.error);
    if (key == moves_key()) {
      job->intent.move = answer.grant;
    } else {
      job->intent.replaced = answer.entry;
      job->intent.grant = answer.grant;
    }
    ++job->locked;
    lock_next(job);
  });
}

// All is locked. The order of errors is that of Linux (fs/namei.c, do_renameat2 and vfs_rename).
void NamesCore::check_rename(const JobPtr& job) {
  Intent& intent = job->intent;
  const DirEntry* const found = table_.find(intent.source);
  if (found == nullptr) return abort(job, ENOENT);
  intent.moved = *found;
  const bool exchange = (intent.flags & kExchange) != 0;
  if (intent.replaced && (intent.flags & kNoReplace) != 0) return abort(job, EEXIST);
  if (!intent.replaced && exchange) return abort(job, ENOENT);
  const FileId from = intent.source.directory, to = intent.target.directory;
  // While no directory moves, the walks below see one tree: also where they only choose between two errors.
  const bool moves = from != to && (is_directory(intent.moved) || is_directory(intent.replaced));
  if (moves && intent.move == 0) return again(job, true);
  if (from == to) return check_types(job);
  const auto above = [this, job, from, exchange] {
    if (!is_directory(job->intent.replaced)) return check_types(job);
    walk(from, job->intent.replaced->file, 0, [this, job, exchange](bool inside) {
      inside ? abort(job, exchange ? EINVAL : ENOTEMPTY) : check_types(job);
    });
  };
  if (!is_directory(intent.moved)) return above();
  walk(to, intent.moved->file, 0, [this, job, above](bool inside) { inside ? abort(job, EINVAL) : above(); });
}

// Whether `stop` is `from` or above it.
void NamesCore::walk(const FileId& from, const FileId& stop, uint32_t steps,
                     std::function<void(bool found)> then) {
  if (from == stop || steps == kDepthMax) return then(true);
  if (from == kRootDirectory || server_of(from) >= servers_) return then(false);
  PeerRequest request;
  request.op = PeerOp::kParent;
  request.file = from;
  ask(server_of(from), request, [this, stop, steps, then = std::move(then)](const PeerAnswer& answer) {
    if (answer.error != 0 || !answer.entry) return then(false);
    walk(answer.entry->file, stop, steps + 1, then);
  });
}

void NamesCore::check_types(const JobPtr& job) {
  Intent& intent = job->intent;
  const bool exchange = (intent.flags & kExchange) != 0;
  const auto commit_now = [this, job] { commit_rename(job); };
  if (exchange || !intent.replaced) return uncache(job, commit_now);
  if (is_directory(intent.moved) && !is_directory(intent.replaced)) return abort(job, ENOTDIR);
  if (!is_directory(intent.moved) && is_directory(intent.replaced)) return abort(job, EISDIR);
  if (!is_directory(intent.replaced)) return uncache(job, commit_now);
  uncache(job, [this, job] { begin_removal(job); });
}

// The moment at which the rename happens: the record of this server. What others must do stands in it.
void NamesCore::commit_rename(const JobPtr& job) {
  Intent& intent = job->intent;
  const bool removed_one = intent.phase == IntentPhase::kRemoving && job->logged;
  const bool exchange = (intent.flags & kExchange) != 0;
  NameRecord record;
  exchange ? record.entry(intent.source, *intent.replaced) : record.no_entry(intent.source);
  if (local(intent.target)) record.entry(intent.target, *intent.moved);
  const bool drops = !exchange && intent.replaced && !is_directory(intent.replaced);
  if (drops && server_of(intent.replaced->file) == server_)
    drop(intent.replaced->file, job->asked->request.now_ns, &record);
  Intent finishing = intent;
  finishing.phase = IntentPhase::kFinishing;
  Job after;
  after.id = job->id;
  after.intent = finishing;
  const bool others = !finishing_calls(after).empty() || intent.move != 0;
  if (others)
    record.intent(job->id, finishing);
  else if (removed_one)
    record.no_intent(job->id);
  record.answer(intent.from, *intent.moved);
  const auto done = [this, job, others, removed_one](const Status& status) {
    if (!status.ok()) {
      if (removed_one && health().ok()) return ask_to_remove(job);  // it must come to its end
      unlock(job);
      end(job);
      return fail(job->asked, status);
    }
    job->logged = others;
    job->intent.phase = IntentPhase::kFinishing;
    for (const EntryKey& key : job->keys) {
      if (local(key)) release(key, job->id);
    }
    job->locked = 0;
    finish(job);
  };
  commit(record, done, others || removed_one ? AnswerWait::kSynced : job->asked->request.wait);
}

// What other servers are told after an intent's record, in any order and any number of times.
std::vector<std::pair<uint32_t, PeerRequest>> NamesCore::finishing_calls(const Job& job) const {
  const Intent& intent = job.intent;
  std::vector<std::pair<uint32_t, PeerRequest>> calls;
  const auto drop = [&](const FileId& file) {
    PeerRequest request;
    request.op = PeerOp::kDrop;
    request.file = file;
    calls.emplace_back(server_of(file), request);
  };
  if (intent.kind == IntentKind::kUnlink) drop(intent.moved->file);
  if (intent.kind != IntentKind::kRename) return calls;
  const bool exchange = (intent.flags & kExchange) != 0;
  if (!local(intent.target)) {
    PeerRequest request;
    request.op = PeerOp::kDecide;
    request.key = intent.target;
    request.transaction = job.id;
    request.commit = true;
    request.entry = intent.moved;
    request.grant = intent.grant;
    calls.emplace_back(server_of(intent.target, servers_), request);
  }
  if (!exchange && intent.replaced && !is_directory(intent.replaced) &&
      server_of(intent.replaced->file) != server_) {
    drop(intent.replaced->file);
  }
  const auto set_parent = [&](const std::optional<DirEntry>& entry, const FileId& parent) {
    if (!is_directory(entry) || intent.source.directory == intent.target.directory) return;
    PeerRequest request;
    request.op = PeerOp::kSetParent;
    request.file = entry->file;
    request.other = parent;
    request.grant = intent.move;
    calls.emplace_back(server_of(entry->file), request);
  };
  set_parent(intent.moved, intent.target.directory);
  if (exchange) set_parent(intent.replaced, intent.source.directory);
  return calls;
}

// The moves of directories go on when the parents are right.
void NamesCore::finish(const JobPtr& job) {
  finish_calls(job, finishing_calls(*job), [this, job] {
    std::vector<std::pair<uint32_t, PeerRequest>> last;
    if (job->intent.move != 0) {
      PeerRequest request;
      request.op = PeerOp::kDecide;
      request.key = moves_key();
      request.transaction = job->id;
      last.emplace_back(0, request);
    }
    finish_calls(job, std::move(last), [this, job] {
      if (job->logged) forget_intent(job->id);
      finished(job);
    });
  });
}

void NamesCore::finish_calls(const JobPtr& job, std::vector<std::pair<uint32_t, PeerRequest>> calls,
                             Act then) {
  if (calls.empty()) return then();
  job->open_calls = calls.size();
  for (const auto& [to, request] : calls) {
    ask(to, request, [job, then](const PeerAnswer&) {
      if (--job->open_calls == 0) then();
    });
  }
}

// Nobody waits for it. If its record finds no space, it is tried again when another one has found some.
void NamesCore::forget_intent(const Transaction& id) {
  const auto kept = [this, id](const Status& status) {
    if (!status.ok()) ended_.push_back(id);
  };
  commit(NameRecord().no_intent(id), kept);
}

void NamesCore::finished(const JobPtr& job) {
  NameAnswer outcome;
  outcome.entry = *job->intent.moved;
  end(job);
  answer(job->asked, outcome);
}

}  // namespace swale::meta
