// ServerCore: one metadata server as a passive machine: requests and completions in, replies, calls to other
// servers and storage work out. It joins a Shard (the index of the ranges that it owns), an AttributeTable
// (the files whose root it is, logged by the shard) and a Delegate (its place in the ring).
//
//   rim:   on_request, on_completion; then take_replies and take_calls; next_work -> Work::run on any thread
//          -> finish
//
// What a request changed is durable before its reply leaves. A truncate, removal or seal has a second half:
// once its record is durable, the root asks all servers to trim, forget or collect, and replies when all
// have. Other changes of the same file wait for that; equal ones are combined. A restart finishes what it
// finds half done (resume()).
//
// A server whose trim found no space still owes it: it trims before the next put of the file, in the same
// group. So what is put after the failed truncate is newer than the cut, whoever repeats the cut later.
//
// Invariants: (1) each request gets exactly one reply; (2) puts that the shard cannot take yet wait in the
// order in which they came, and so do later ones; (3) after a failed sync of the log every change is refused
// with the first failure;
//   (4) a group that finds no space is void: its requests are answered with that, and later ones may succeed.
// Threads: all calls by one thread at a time, but for Work::run. Errors: replies carry them; messages name
// the server.
// Limits: what waits is bounded by what callers may have under way (net::RpcParams).
// server_core.cc: requests come and wait, storage. server_index.cc: requests for the index.
// server_changes.cc: changes of attributes and their second halves.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "meta/attributes/attribute_table.h"
#include "meta/index/shard.h"
#include "meta/server/delegate.h"
#include "meta/server/messages.h"
#include "meta/server/partition.h"
#include "meta/server/served_core.h"
#include "meta/server/server_counters.h"
#include "meta/server/server_memory.h"

namespace swale::meta {

class ServerCore final : public ServedCore, private Delegate::Actions {
 public:
  // The shard was opened with the table.
  ServerCore(const Partition& partition, Server server, RingMode mode,
             std::unique_ptr<AttributeTable> attributes, std::unique_ptr<Shard> shard);
  ~ServerCore() override;

  // Finishes truncates and removals that a crash has cut in half. Once, before the first request of a client;
  // those of other servers that resume may have come.
  void resume() override;
  // Whether a second half is under way.
  bool follows_up() const override { return !jobs_.empty(); }

  void on_request(Method method, Bytes payload, uint64_t token) override;
  // Gets that wait together: their ranges are looked up at once, which costs less a range than one after the
  // other.
  struct WaitingGet {
    Bytes payload;
    uint64_t token;
  };
  void on_gets(std::span<const WaitingGet> gets);
  void on_completion(uint64_t tag, Result<std::string> response) override;
  // Appends what has become ready. Call them when all requests and completions that there are have been
  // handed over: equal requests for attributes are combined until then.
  void take_replies(std::vector<Reply>* out) override;
  void take_calls(std::vector<Call>* out) override;
  bool has_output() const override { return !replies_.empty() || !calls_.empty(); }

  bool take_waits() override { return std::exchange(waits_added_, false); }
  std::unique_ptr<Work> next_work() override;
  void finish(std::unique_ptr<Work> work) override;

  // What is stored, for the budget of the process. Costs O(files).
  StoredThings stored() const;
  // Cheap: about how many things are stored, which only needs to grow as they do.
  uint64_t stored_count() const;
  // From now on new files and puts are refused for this reason; OK: no longer. What is stored stays usable.
  void refuse_growth(const Status& why) { no_growth_ = why; }
  // What the process has reserved for this server, without what is stored: for its counters.
  void note_reserved(uint64_t bytes) { reserved_bytes_ = bytes; }

  Server server() const { return server_; }
  Shard& shard() override { return *shard_; }
  const AttributeTable& attributes() const { return *attributes_; }
  const ServerCounters& counters() const { return counters_; }
  const Delegate::Counters& delegate_counters() const { return delegate_.counters(); }
  Counters all_counters() const;
  bool consistent() const;  // between two calls; for tests: looks at everything

 private:
  static constexpr size_t kTableRunsMax = 4096;  // of a table of at most kTableBytesMax bytes

  // A change of attributes by everybody who asked for it.
  struct Change {
    AttributeRequest request;
    std::vector<uint64_t> tokens;
  };
  // A file whose second half is under way, and who waits for it.
  struct FollowUpJob {
    Change change;
    FileId file;
    FollowUp what = FollowUp::kNone;
    uint64_t generation = 0;
    uint64_t trim_size = 0;
    bool again = false;  // the change is applied when this is done (Applied::again)
    uint32_t open_calls = 0;
    Status failure;
    std::vector<Collected> collected;
    uint64_t relocations = 0;  // of tables when the collection began
    std::deque<Change> queue;
  };
  // What happens when a group is durable, or its log has failed.
  struct Waiting {
    uint64_t group;
    std::function<void(const Status&)> act;
  };

  void forward(uint32_t server, const AttributeRequest& request, uint64_t id) override;
  void answer(uint64_t token, const Result<std::string>& response) override;

  Status handle(Method method, Bytes payload, uint64_t token);
  Status put(Bytes payload, uint64_t token);
  Status get(Bytes payload, uint64_t token);
  Status get_joined(std::span<const WaitingGet> gets);
  Status get_runs(Bytes payload, uint64_t token);
  Status scan(Bytes payload, uint64_t token);
  Status trim(Method method, Bytes payload, uint64_t token);
  Result<uint64_t> stage_owed_trim(const FileId& file);
  void trim_is_durable(const FileId& file, uint64_t generation);
  Status relocate(Bytes payload, uint64_t token);
  Status relocate_tables(Bytes payload, uint64_t token);
  Status collect(Bytes payload, uint64_t token);
  Status attribute_request(Bytes payload, uint64_t token);
  Status takes_records() const;
  Status check_owned(const FileId& file, uint64_t begin, uint64_t end) const;

  Status attempt(Method method, Bytes payload, uint64_t token);
  void refuse(uint64_t token, const Status& why);
  bool held(Method method, Bytes payload, uint64_t token, const Status& why);
  void retry_held();
  // One change of the table and its record, which joins the open group; or neither.
  template <class Act>
  auto change_attributes(const Act& act) {
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
  void when_durable(uint64_t group, std::function<void(const Status&)> act);
  void when_attributes_durable(std::function<void(const Status&)> act);
  void release(const Status& failure);

  void change(Change change);
  void begin_follow_up(Change change, const Applied& applied);
  void start_follow_up(const std::string& name);
  void on_follow_up(const std::string& name, Result<std::string> response);
  void end_follow_up(const std::string& name);
  Collected collected(const FileId& file);
  void reply(uint64_t token, Result<std::string> response) {
    replies_.push_back({token, std::move(response)});
  }
  void reply_all(const std::vector<uint64_t>& tokens, const Result<std::string>& response);
  void call(Server to, Method method, std::string payload, size_t response_bytes_max, uint64_t tag) {
    calls_.push_back({to, method, std::move(payload), tag, response_bytes_max});
  }

  const Partition partition_;
  const Server server_;
  const ServerRanges ranges_;
  const std::unique_ptr<AttributeTable> attributes_;
  const std::unique_ptr<Shard> shard_;  // logs the table
  Delegate delegate_;

  struct Held {
    Method method;
    std::string payload;
    uint64_t token;
  };
  std::deque<Held> held_;  // puts and the like until the shard accepts them
  std::deque<Waiting> waits_;
  uint64_t table_relocations_ = 0;
  uint64_t last_group_ = 0;  // that a request has joined and that is not void
  std::unordered_map<FileId, FileMessage, FileIdHash> owed_trims_;  // asked for and not durable
  std::unordered_map<std::string, FollowUpJob> jobs_;               // by the file's name
  std::unordered_map<uint64_t, std::string> follow_up_calls_;       // tag -> name
  std::unordered_map<uint64_t, uint64_t> delegate_calls_;           // tag -> the delegate's id
  uint64_t next_tag_ = 1;
  Status no_growth_;
  uint64_t reserved_bytes_ = 0;
  bool waits_added_ = false;
  std::vector<Reply> replies_;
  std::vector<Call> calls_;
  Found found_;
  ServerCounters counters_;
};

}  // namespace swale::meta
