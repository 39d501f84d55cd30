// NamesCore: one server's part in the tree, as a passive machine: requests and completions in, replies and
// calls to other servers out. docs/design/file-system.md says how each operation goes and what a crash
// leaves.
//
//   rim:   on_request, on_completion, on_durable; then take_replies and take_calls. Records go to a NameLog.
//
// A call may go to the server itself: the rim loops it back. A failed completion is called again, so the rim
// decides how long it waits before it says that a server does not answer.
//
// Enrolment. A server takes entries of a directory after it has enrolled at the directory's node. Who removes
// a directory asks those that are enrolled to leave, which only one without its entries does. Meanwhile
// nobody enrols. So no entry can slip in, and nobody remembers what was removed.
// Locks. A rename, and the removal of a directory, lock their entries; whoever asks for a locked entry waits.
// A rename locks in one order of keys (moves_key first), so none waits for another one in a ring. A lock at
// another server than the rename's own is a record; its server asks the rename's server what became of it.
// Caches. Nodes remember entries of directories (EntryCache). Who renames or removes such an entry has each
// node forget it, while it is locked: nobody can learn it anew before it has changed. A node that is gone
// remembers nothing.
// Intents. What must happen at several servers is a record of the first one, made with the change itself.
// resume() goes on with what it finds.
//
// Until when an answer waits. A client says for its change whether that is to survive a killed process, or
// the machine (AnswerWait): the record is written, or synced, too. What another server hears is synced: a
// server that loses what was only written loses nothing that others have built on.
//
// Invariants: (1) nothing is answered, sent or decided on a record before it is durable, in that sense; (2)
//   each request gets one reply, or waits for a server that does not answer; (3) a repeated change is
//   answered as at first.
// Memory. What runs out of it in the middle has perhaps taken a lock: the server refuses that request, which
// may yet have happened, and all from then on (health(), kResourceExhausted), until the rim opens it anew
// from its log, as after a kill.
// Threads: none. Errors: an errno in the answer; a failed reply: nothing was done, repeat it, or the log has
// failed for good.
// Limits: what waits is bounded by what clients may have under way.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "meta/names/entry_cache.h"
#include "meta/names/name_messages.h"
#include "meta/names/name_table.h"

namespace swale::meta {

// Where the records of a server go: the log of its shard.
class NameLog {
 public:
  virtual ~NameLog() = default;
  // The group that the record joins; groups ascend, and become durable in order (NamesCore::on_durable).
  virtual uint64_t add(Bytes record) = 0;
  // Somebody waits for a sync of what was added: the next group is not to sync later.
  virtual void sync_next() {}
  virtual bool accepts() const = 0;   // false: changes of clients wait for the next commit
  virtual Status health() const = 0;  // not OK: takes no more for good
};

// A file that a caller in the server's own process makes.
struct NewFile {
  EntryKey key = {};
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t now_ns = 0;
};
struct MadeFile {
  int error = 0;  // EEXIST
  FileId file = {};
  TreeNode node = {};
};

struct NameCall {
  uint32_t to = 0;
  uint64_t tag = 0;  // comes back with the completion
  std::string payload;
};
struct NameReply {
  uint64_t token = 0;
  Result<std::string> response{std::string()};
};

class NamesCore {
 public:
  // `job`: the number of the shard's job, from 1, in no two lives of a server the same: its life. Ids have
  // it, so that none is drawn twice, whatever a crash has lost.
  // `cache`: of the node that this server is on; null: it has none.
  NamesCore(uint32_t server, uint32_t servers, uint32_t job, NameTable* table, NameLog* log,
            EntryCache* cache = nullptr)
      : server_(server), servers_(servers), job_(job), table_(*table), log_(*log), cache_(cache) {
    replies_.reserve(kRepliesKept);
  }

  void resume();  // once, before the first request
  void on_request(Bytes payload, uint64_t token);
  void on_completion(uint64_t tag, Result<std::string> response);
  // An exclusive create without a message, which nobody repeats, and whose maker does not hold the file:
  // `done` hears when *made is written, or why it is not. False: it needs other servers, or waits for
  // somebody: ask as others do.
  bool make_file(const NewFile& file, MadeFile* made, const std::function<void(const Status&)>& done);
  // Groups until `written` are, and of these those until `synced`, too.
  void on_durable(uint64_t written, uint64_t synced);
  void on_durable(uint64_t group) { on_durable(group, group); }
  // The groups that were not durable are void, and the log has undone the table.
  void on_void(const Status& why);
  void take_replies(std::vector<NameReply>* out);
  void take_calls(std::vector<NameCall>* out);
  bool has_output() const { return !replies_.empty() || !calls_.empty(); }

  // Not OK: it ran out of memory, or its log takes no more.
  Status health() const { return broken_.ok() ? log_.health() : broken_; }
  // Operations that are not finished: intents, locks, removals.
  size_t under_way() const { return jobs_.size() + locks_.size() + removals_.size() + enrolling_.size(); }

 private:
  using Act = std::function<void()>;
  using Done = std::function<void(const Status&)>;
  using OnError = std::function<void(int error)>;
  // A request of a client, and the tokens of its repetitions.
  struct Asked {
    NameRequest request;
    std::vector<uint64_t> tokens;
  };
  using AskedPtr = std::shared_ptr<Asked>;
  // The last change of a client: under way or answered.
  struct Slot {
    uint64_t number = 0;
    AskedPtr asked;
    std::string answer;
  };
  struct Lock {
    Transaction holder;
    std::deque<Act> waiting;
  };
  // An operation on several servers that this one has begun.
  struct Job {
    Transaction id;
    Intent intent;
    AskedPtr asked;
    bool logged = false;         // its intent is in the table
    std::vector<EntryKey> keys;  // to lock, in order
    size_t locked = 0;           // how many of them are
    size_t open_calls = 0;
    std::vector<uint64_t> inquiries;
  };
  using JobPtr = std::shared_ptr<Job>;
  // A directory with its node here that is to be removed.
  struct Removal {
    Transaction id;
    std::vector<uint64_t> tokens;
    size_t open_calls = 0;
    Outcome outcome = Outcome::kDone;
    std::vector<Act> enrolments;  // that wait for the outcome
  };

  static constexpr size_t kRepliesKept = 64;  // the memory of refusals

  // names_core.cc: requests, records, replies
  void refuse(uint64_t token, const Status& why) noexcept;
  template <class Event>
  void contained(const Event& event) noexcept;
  void resume_all();
  Status client_request(Bytes payload, uint64_t token);
  Status peer_request(Bytes payload, uint64_t token);
  Status repeated(const NameRequest& request, uint64_t token, bool* known);
  void start(const AskedPtr& asked);
  void commit(const NameRecord& record, Done done, AnswerWait wait = AnswerWait::kSynced);
  void when_durable(AnswerWait wait, Done done);
  void sync_written();
  void reply(uint64_t token, Result<std::string> response) {
    replies_.push_back({token, std::move(response)});
  }
  void reply_when_durable(uint64_t token, std::string response, AnswerWait wait);
  void reply_peer(uint64_t token, const PeerAnswer& answer) {
    reply_when_durable(token, encode(answer), AnswerWait::kSynced);
  }
  // The peer hears that the record is durable, or why it is not.
  void commit_for_peer(const NameRecord& record, uint64_t token) {
    commit(record, [this, token](const Status& status) {
      status.ok() ? reply(token, encode(PeerAnswer())) : reply(token, status);
    });
  }
  void answer(const AskedPtr& asked, NameAnswer answer);
  void answer_error(const AskedPtr& asked, int error);
  void fail(const AskedPtr& asked, const Status& status);
  void change(const AskedPtr& asked, const NameRecord& record, const NameAnswer& outcome);
  void call(uint32_t to, const PeerRequest& request, std::function<void(Result<PeerAnswer>)> done);
  // Until it is answered.
  void ask(uint32_t to, const PeerRequest& request, std::function<void(const PeerAnswer&)> done);

  // names_entries.cc: what one server does alone
  void look_up(const AskedPtr& asked);
  void list(const AskedPtr& asked);
  void members(const AskedPtr& asked);
  void create(const AskedPtr& asked);
  void found(const AskedPtr& asked, const DirEntry& entry);
  void make(const AskedPtr& asked, const EntryKey& key);
  FileId next_file() const;
  void make_file_now(const NewFile& file, MadeFile* made, const Done& done);
  void open(const AskedPtr& asked);
  void unlink(const AskedPtr& asked);
  void node_request(const AskedPtr& asked);
  void set_user(const AskedPtr& asked);
  void hold(const AskedPtr& asked, bool holds);
  void forget(const AskedPtr& asked);
  void drop(const FileId& file, int64_t now_ns, NameRecord* record) const;
  NameAnswer answer_with(const DirEntry& entry) const;

  // names_directories.cc: enrolment, removal, locks
  bool enrolled(const FileId& directory) const {
    return directory == kRootDirectory || table_.enrolled(directory);
  }
  void enrol(const FileId& directory, OnError then);
  void on_enrol(const PeerRequest& request, uint64_t token);
  void on_leave(const PeerRequest& request, uint64_t token);
  void on_remove(const PeerRequest& request, uint64_t token);
  void ask_to_leave(const FileId& directory, uint32_t member);
  void decide_removal(const FileId& directory);
  void end_removal(const FileId& directory, const Status& status);
  void remove_directory(const AskedPtr& asked);
  void ask_to_remove(const JobPtr& job);
  void on_removed(const JobPtr& job, Outcome outcome);
  void end_rmdir(const JobPtr& job);
  void when_free(const EntryKey& key, Act act);
  void acquire(const EntryKey& key, const Transaction& id, Act act);
  void release(const EntryKey& key, const Transaction& id);
  void on_lock(const PeerRequest& request, uint64_t token);
  void grant(const EntryKey& key, const Transaction& id);
  void on_decide(const PeerRequest& request, uint64_t token);
  void inquire(const EntryKey& key, const Transaction& id);

  void begin_removal(const JobPtr& job);
  void uncache(const JobPtr& job, Act then);
  void uncache_at(uint32_t node, const EntryKey& key, Act then);

  // names_rename.cc
  JobPtr begin(const AskedPtr& asked, IntentKind kind);
  void end(const JobPtr& job);
  void rename(const AskedPtr& asked, bool moves);
  void lock_next(const JobPtr& job);
  void unlock(const JobPtr& job);
  void abort(const JobPtr& job, int error);
  void again(const JobPtr& job, bool moves);
  void check_rename(const JobPtr& job);
  void check_types(const JobPtr& job);
  void walk(const FileId& from, const FileId& stop, uint32_t steps, std::function<void(bool found)> then);
  void commit_rename(const JobPtr& job);
  std::vector<std::pair<uint32_t, PeerRequest>> finishing_calls(const Job& job) const;
  void finish(const JobPtr& job);
  void finish_calls(const JobPtr& job, std::vector<std::pair<uint32_t, PeerRequest>> calls, Act then);
  void finished(const JobPtr& job);
  void forget_intent(const Transaction& id);
  bool local(const EntryKey& key) const { return key != moves_key() && server_of(key, servers_) == server_; }

  const uint32_t server_;
  const uint32_t servers_;
  const uint32_t job_;
  NameTable& table_;
  NameLog& log_;
  EntryCache* const cache_;
  Status broken_;

  std::map<uint64_t, Slot> slots_;  // by client
  std::map<Transaction, JobPtr> jobs_;
  std::vector<Transaction> ended_;  // whose intents are still in the table, for want of space
  std::map<EntryKey, Lock> locks_;
  std::map<std::pair<Transaction, EntryKey>, uint64_t> lock_tokens_;  // of calls that wait for a lock
  std::map<FileId, std::vector<OnError>> enrolling_;
  std::map<FileId, Removal> removals_;
  // The last removal of a directory that a server has asked for in a job, and how it ended: a late copy of
  // the request must not remove what has become empty since.
  struct PastRemoval {
    uint64_t number = 0;
    Outcome outcome = Outcome::kDone;
  };
  std::map<std::pair<FileId, std::pair<uint32_t, uint32_t>>, PastRemoval> past_removals_;

  struct Wait {
    uint64_t group;
    Done done;
  };
  // Of one kind of AnswerWait: until which group it is so, and who waits, in order.
  struct Durable {
    uint64_t group = 0;
    std::deque<Wait> waits = {};
  };
  Durable written_, synced_;
  uint64_t last_group_ = 0;  // that a record has joined
  std::map<uint64_t, std::function<void(Result<std::string>)>> calls_open_;
  std::map<uint32_t, uint32_t> lives_;  // of servers, as far as known
  uint64_t next_tag_ = 1;
  uint64_t next_transaction_ = 1;
  std::vector<NameReply> replies_;
  std::vector<NameCall> calls_;
};

}  // namespace swale::meta
