// NodeNames: what the processes of one node ask of the tree, as a passive machine.
//
//   rim:   ask, release, on_completion, expire; then take_calls and take_finished
//
// Slots. A change takes a slot of the node until it is answered, so that each slot has one change under way,
// and the number of a repetition is the first one's: a lost answer makes nothing twice. A change whose
// deadline has passed keeps its slot until something answers it.
// Equal requests are combined: reads and opens that ask the same leave as one. One of a kind is under way;
// what comes meanwhile leaves together when it is answered. So nobody is answered by a request that left
// before he came, and a storm of a node's processes costs a server two requests.
// What the node remembers of directories (EntryCache) answers kLookUp with kEntryOnly.
// Holds. Nodes hold files, not processes: the first open tells the server, and so does the last release.
// Nobody waits for a release. It leaves when no open is under way, which may be of the same file; so a storm
// costs one. An open whose answer crosses a release of the same file does not know which of them the server
// has seen first: it holds anew.
//
// Threads: none; the owner serialises calls. Errors: kDeadlineExceeded and kUnavailable name the server and
// the request; a server's errno is in its answer.
// Limits: slots_max changes at a time, others wait; kIdleMax releases that wait for opens, others leave.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "meta/names/entry_cache.h"
#include "meta/names/name_messages.h"

namespace swale::meta {

struct NodeCall {
  uint32_t to = 0;
  uint64_t tag = 0;  // comes back with the completion
  std::string payload;
  size_t response_bytes_max = 0;
};

struct NodeNamesOptions {
  uint32_t servers = 1;
  uint64_t node = 0;  // 1 to 2^48 - 1; of no other node, in no other job
  size_t slots_max = 4096;
  bool gone_for_good = true;    // kUnavailable: the server does not come back in this job
  EntryCache* cache = nullptr;  // of this node, which its server knows
};

class NodeNames {
 public:
  using Id = uint64_t;
  static constexpr size_t kIdleMax = 64;
  struct Finished {
    Id id = 0;
    Result<NameAnswer> answer{NameAnswer()};
  };

  explicit NodeNames(const NodeNamesOptions& options) : options_(options) {}

  // `request`: its life and `from` are set here. kOpen, kHold, and kCreate with kAndHold: if the answer says
  // `held`, the caller owes a release.
  Id ask(NameRequest request, Nanos until);
  // False: this node does not hold it.
  bool release(const FileId& file, AnswerWait wait = AnswerWait::kWritten);
  void on_completion(uint64_t tag, Result<std::string> response);
  // Who has waited until now is told so.
  void expire(Nanos now);

  void take_calls(std::vector<NodeCall>* out);
  bool take_finished(Finished* out);

  bool holds(const FileId& file) const { return held_.contains(file); }
  // Those that a call answers, until its completion.
  std::vector<Id> askers(uint64_t tag) const;
  // Nothing is under way, releases included.
  bool at_rest() const { return open_.empty() && ready_.empty() && waiting_.empty(); }

 private:
  struct Asker {
    Id id;
    Nanos until;
  };
  // One request to a server, for all that ask the same.
  struct Flow {
    NameRequest request;
    NameRequest sent;  // the request, or that which holds its file anew
    std::string key;   // of what may be combined; else empty
    std::vector<Asker> askers;
    uint64_t slot = 0;               // 0: none
    uint64_t began = 0;              // events_ when `sent` left first
    uint64_t asked = 0;              // EntryCache::now() then
    std::optional<NameAnswer> held;  // what the askers get once the file is held anew
  };
  using FlowPtr = std::shared_ptr<Flow>;

  uint32_t server_of_request(const NameRequest& request) const;
  std::string describe(const NameRequest& request) const;
  void finish(Id id, Result<NameAnswer> answer);
  void begin(const FlowPtr& flow);
  void send_new(const FlowPtr& flow, NameRequest request);
  void send(const FlowPtr& flow);
  void on_failure(const FlowPtr& flow, const Status& why);
  void on_answer(const FlowPtr& flow, NameAnswer answer);
  bool crossed(const Flow& flow, const FileId& file) const;
  void hold_anew(const FlowPtr& flow);
  void held_anew(const FlowPtr& flow, NameAnswer answer);
  void end(const FlowPtr& flow, const Result<NameAnswer>& answer, bool slot_is_free);
  void send_release(const FileId& file, AnswerWait wait);
  bool remembered(const NameRequest& request, Id id);
  void remember(const Flow& flow, const NameAnswer& answer);
  void note_held(const FileId& file, size_t askers);
  void released(const FileId& file);

  const NodeNamesOptions options_;
  Id next_id_ = 1;
  uint64_t next_tag_ = 1;
  std::map<uint64_t, FlowPtr> open_;                             // by tag: at a server, or in ready_
  std::vector<uint64_t> ready_;                                  // tags of those that leave next
  std::map<std::string, FlowPtr> leaving_, under_way_, queued_;  // by key
  std::deque<FlowPtr> waiting_;                                  // for a slot
  std::vector<Finished> finished_;
  std::map<uint32_t, uint32_t> lives_;  // of servers, as far as known

  std::vector<uint64_t> numbers_;     // of each slot, the last
  std::vector<uint64_t> free_slots_;  // from 1

  uint64_t events_ = 0;
  size_t holding_ = 0;                                // flows that may hold a file when they are answered
  std::map<FileId, size_t> held_;                     // by how many
  std::map<FileId, AnswerWait> idle_;                 // let go by all, and not yet at the server
  std::map<FileId, std::vector<FlowPtr>> releasing_;  // and who holds the file anew when that has ended
  std::map<FileId, uint64_t> released_;               // when, while an earlier open may be under way
};

}  // namespace swale::meta
