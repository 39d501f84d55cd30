// What one server of the tree does alone: entries that hash to it and nodes that it has drawn.
#include <algorithm>
#include <cerrno>

#include "meta/names/names_core.h"

namespace swale::meta {
namespace {

constexpr uint32_t kListMax = 1024;          // entries of one answer
constexpr size_t kListBytesMax = 64 * kKiB;  // of their names: an answer is one message

EntryKey key_of(const NameRequest& request) { return EntryKey(request.directory, request.name); }

}  // namespace

NameAnswer NamesCore::answer_with(const DirEntry& entry) const {
  NameAnswer answer;
  answer.entry = entry;
  if (const TreeNode* const node = table_.node(entry.file); node != nullptr) answer.node = *node;
  return answer;
}

void NamesCore::look_up(const AskedPtr& asked) {
  when_free(key_of(asked->request), [this, asked] {
    const DirEntry* const entry = table_.find(key_of(asked->request));
    if (entry == nullptr) return answer_error(asked, ENOENT);
    answer(asked, answer_with(*entry));
  });
}

void NamesCore::open(const AskedPtr& asked) {
  when_free(key_of(asked->request), [this, asked] {
    const DirEntry* const entry = table_.find(key_of(asked->request));
    if (entry == nullptr) return answer_error(asked, ENOENT);
    found(asked, *entry);
  });
}

// What an open or a creation has found. The node of an entry that was renamed may be at another server: then
// the client asks there.
void NamesCore::found(const AskedPtr& asked, const DirEntry& entry) {
  const NameRequest& request = asked->request;
  if (request.op != NameOp::kOpen) {
    if (request.op != NameOp::kCreate || (request.flags & kExclusive) != 0)
      return answer_error(asked, EEXIST);
    if (entry.type == NodeType::kDirectory) return answer_error(asked, EISDIR);
  }
  NameAnswer outcome = answer_with(entry);
  const bool holds = request.op == NameOp::kOpen || (request.flags & kAndHold) != 0;
  if (!holds || !outcome.node || entry.type != NodeType::kFile) return answer(asked, outcome);
  outcome.held = true;
  const uint64_t holder = holder_of(request.from);
  if (table_.has(entry.file, holder)) return answer(asked, outcome);
  change(asked, NameRecord().pair(StepKind::kHolder, entry.file, holder), outcome);
}

void NamesCore::create(const AskedPtr& asked) {
  const EntryKey key = key_of(asked->request);
  when_free(key, [this, asked, key] {
    if (const DirEntry* const entry = table_.find(key); entry != nullptr) return found(asked, *entry);
    if (enrolled(key.directory)) return make(asked, key);
    enrol(key.directory,
          [this, asked](int error) { error != 0 ? answer_error(asked, error) : create(asked); });
  });
}

FileId NamesCore::next_file() const {
  constexpr unsigned kLifeShift = 40;  // 2^40 ids of each life
  return {server_, std::max(table_.drawn(), uint64_t{job_} << kLifeShift) + 1};
}

void NamesCore::make_file_now(const NewFile& file, MadeFile* made, const Done& done) {
  if (table_.find(file.key) != nullptr) {
    made->error = EEXIST;
    return when_durable(AnswerWait::kWritten, done);
  }
  made->file = next_file();
  TreeNode& node = made->node;
  node.mode = file.mode;
  node.uid = file.uid;
  node.gid = file.gid;
  node.accessed_ns = node.modified_ns = node.changed_ns = file.now_ns;
  NameRecord record;
  record.counters(made->file.low, table_.grants());
  record.entry(file.key, {made->file, node.type}).node(made->file, node);
  commit(record, done, AnswerWait::kWritten);
}

void NamesCore::make(const AskedPtr& asked, const EntryKey& key) {
  const NameRequest& request = asked->request;
  if (request.value.size() > kTargetBytesMax) return answer_error(asked, ENAMETOOLONG);
  NameAnswer outcome;
  outcome.made = true;
  outcome.entry.file = next_file();
  TreeNode node;
  node.mode = request.mode;
  node.uid = request.uid;
  node.gid = request.gid;
  node.accessed_ns = node.modified_ns = node.changed_ns = request.now_ns;
  if (request.op == NameOp::kMakeDirectory) {
    node.type = NodeType::kDirectory;
    node.parent = request.directory;
  } else if (request.op == NameOp::kSymlink) {
    if (request.value.empty()) return answer_error(asked, ENOENT);
    node.type = NodeType::kLink;
    node.target = request.value;
  }
  outcome.entry.type = node.type;
  NameRecord record;
  record.counters(outcome.entry.file.low, table_.grants());
  record.entry(key, outcome.entry).node(outcome.entry.file, node);
  if (node.type == NodeType::kFile && (request.flags & kAndHold) != 0) {
    record.pair(StepKind::kHolder, outcome.entry.file, holder_of(request.from));
    outcome.held = true;
  }
  outcome.node = std::move(node);
  change(asked, record, outcome);
}

// Adds to the record that no entry leads to the file any more: it ends now, or when it is let go.
void NamesCore::drop(const FileId& file, int64_t now_ns, NameRecord* record) const {
  const TreeNode* const node = table_.node(file);
  if (node == nullptr) return;
  if (!table_.held(file)) {
    record->no_node(file);
    return;
  }
  TreeNode unlinked = *node;
  unlinked.unlinked = true;
  unlinked.changed_ns = std::max(unlinked.changed_ns, now_ns);
  record->node(file, unlinked);
}

void NamesCore::unlink(const AskedPtr& asked) {
  const EntryKey key = key_of(asked->request);
  when_free(key, [this, asked, key] {
    const DirEntry* const found = table_.find(key);
    if (found == nullptr) return answer_error(asked, ENOENT);
    if (found->type == NodeType::kDirectory) return answer_error(asked, EISDIR);
    const DirEntry entry = *found;
    NameRecord record;
    record.no_entry(key);
    if (server_of(entry.file) == server_) {
      drop(entry.file, asked->request.now_ns, &record);
      NameAnswer outcome;
      outcome.entry = entry;
      return change(asked, record, outcome);
    }
    const JobPtr job = begin(asked, IntentKind::kUnlink);
    job->intent.phase = IntentPhase::kFinishing;
    job->intent.source = key;
    job->intent.moved = entry;
    job->logged = true;
    record.intent(job->id, job->intent).answer(asked->request.from, entry);
    commit(record, [this, job](const Status& status) {
      if (status.ok()) return finish(job);
      end(job);
      fail(job->asked, status);
    });
  });
}

// Entries in the order of their keys: what is there all along comes once, whatever else comes and goes.
void NamesCore::list(const AskedPtr& asked) {
  const NameRequest& request = asked->request;
  EntryKey after;
  after.directory = request.directory;
  if (!request.name.empty()) after = key_of(request);
  const auto locked = locks_.lower_bound(after);
  if (locked != locks_.end() && locked->first.directory == request.directory) {
    return when_free(locked->first, [this, asked] { list(asked); });
  }
  NameAnswer outcome;
  const size_t most = std::clamp<uint32_t>(request.count, 1, kListMax);
  size_t bytes = 0;
  for (auto at = table_.after(after); at != table_.entries().end(); ++at) {
    if (at->first.directory != request.directory) break;
    bytes += at->first.name.size();
    if (outcome.list.size() == most || bytes > kListBytesMax) {
      outcome.more = true;
      break;
    }
    outcome.list.push_back({at->first.name, at->second});
  }
  answer(asked, std::move(outcome));
}

void NamesCore::members(const AskedPtr& asked) {
  const FileId directory = asked->request.file;
  const TreeNode* const node = table_.node(directory);
  if (node->type != NodeType::kDirectory) return answer_error(asked, ENOTDIR);
  NameAnswer outcome = answer_with({directory, node->type});
  outcome.members = table_.members(directory);
  if (directory == kRootDirectory) {
    outcome.members.clear();
    for (uint32_t each = 0; each < servers_; ++each) outcome.members.push_back(each);
  }
  answer(asked, std::move(outcome));
}

void NamesCore::node_request(const AskedPtr& asked) {
  const NameRequest& request = asked->request;
  if (server_of(request.file) != server_)
    return fail(asked, invalid_argument("file {:x}: is no file of this server", request.file.high));
  const TreeNode* const node = table_.node(request.file);
  if (request.op == NameOp::kRelease && node == nullptr) return answer(asked, {});
  if (node == nullptr) return answer_error(asked, ENOENT);
  NameAnswer outcome = answer_with({request.file, node->type});
  switch (request.op) {
    case NameOp::kStat:
      return answer(asked, std::move(outcome));
    case NameOp::kMembers:
      return members(asked);
    case NameOp::kReadUser: {
      const std::string* const value = table_.user(request.file, request.name);
      if (value == nullptr) return answer_error(asked, ENODATA);
      outcome.value = *value;
      return answer(asked, std::move(outcome));
    }
    case NameOp::kListUsers: {
      const auto [begin, end] = table_.users(request.file);
      for (auto each = begin; each != end; ++each) append_sized(&outcome.value, each->first.second);
      return answer(asked, std::move(outcome));
    }
    case NameOp::kSetNode: {
      TreeNode& set = *outcome.node;
      // A sync: what is durable needs no record.
      if (request.set == 0 && request.now_ns <= set.changed_ns) return answer(asked, std::move(outcome));
      if ((request.set & kMode) != 0) set.mode = request.mode;
      if ((request.set & kUid) != 0) set.uid = request.uid;
      if ((request.set & kGid) != 0) set.gid = request.gid;
      if ((request.set & kAccessed) != 0) set.accessed_ns = request.accessed_ns;
      if ((request.set & kModified) != 0) set.modified_ns = request.modified_ns;
      set.changed_ns = std::max(set.changed_ns, request.now_ns);
      return change(asked, NameRecord().node(request.file, set), outcome);
    }
    case NameOp::kSetUser:
    case NameOp::kRemoveUser:
      return set_user(asked);
    case NameOp::kHold:
      return hold(asked, true);
    default:
      return hold(asked, false);
  }
}

void NamesCore::set_user(const AskedPtr& asked) {
  const NameRequest& request = asked->request;
  const DirEntry entry{request.file, table_.node(request.file)->type};
  if (entry.type == NodeType::kLink) return answer_error(asked, EPERM);  // as Linux has it for "user."
  if (request.name.empty() || request.name.size() > kUserNameBytesMax) return answer_error(asked, ERANGE);
  const std::string* const value = table_.user(request.file, request.name);
  NameAnswer outcome;
  outcome.entry = entry;
  if (request.op == NameOp::kRemoveUser) {
    if (value == nullptr) return answer_error(asked, ENODATA);
    return change(asked, NameRecord().no_user(request.file, request.name), outcome);
  }
  if (value == nullptr && (request.flags & kReplaceOnly) != 0) return answer_error(asked, ENODATA);
  if (value != nullptr && (request.flags & kCreateOnly) != 0) return answer_error(asked, EEXIST);
  if (request.value.size() > kUserBytesMax) return answer_error(asked, E2BIG);
  size_t bytes = request.name.size() + request.value.size();
  const auto [begin, end] = table_.users(request.file);
  for (auto each = begin; each != end; ++each) {
    if (each->first.second != request.name) bytes += each->first.second.size() + each->second.size();
  }
  if (bytes > kUserBytesMax) return answer_error(asked, ENOSPC);
  change(asked, NameRecord().user(request.file, request.name, request.value), outcome);
}

void NamesCore::hold(const AskedPtr& asked, bool holds) {
  const FileId file = asked->request.file;
  const uint64_t holder = holder_of(asked->request.from);
  const TreeNode node = *table_.node(file);
  NameAnswer outcome = answer_with({file, node.type});
  outcome.held = holds;
  if (table_.has(file, holder) == holds) return answer(asked, outcome);
  if (holds) {
    if (node.unlinked) return answer_error(asked, ENOENT);  // it lives for those that have it open
    return change(asked, NameRecord().pair(StepKind::kHolder, file, holder), outcome);
  }
  NameRecord record;
  record.pair(StepKind::kNoHolder, file, holder);
  if (node.unlinked && table_.holders(file) == 1) record.no_node(file);
  change(asked, record, outcome);
}

void NamesCore::forget(const AskedPtr& asked) {
  const uint64_t holder = holder_of(asked->request.from);
  NameRecord record;
  for (const FileId& file : table_.held_by(holder)) {
    record.pair(StepKind::kNoHolder, file, holder);
    const TreeNode* const node = table_.node(file);
    if (node != nullptr && node->unlinked && table_.holders(file) == 1) record.no_node(file);
  }
  change(asked, record, {});
}

}  // namespace swale::meta
