// ClientCore: what a client does with the servers of a metadata store, as a passive machine: operations and
// completions in, calls and finished operations out.
//
// An operation is split by Partition into calls to the servers that are concerned, and its answers are
// merged. A call that gets no answer is repeated under its first number, which the servers know again; a
// delegate that does not answer is bypassed to the root of the file. An operation finishes once, with the
// first failure that no repetition could help.
//
// Threads: one at a time. Errors: finished operations carry them; std::bad_alloc leaves the operation
// unfinished: give the client up. Limits: kItemsMax extents or ranges a message; larger operations become
// several messages, one after the other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "meta/client/table_news.h"
#include "meta/server/delegate.h"
#include "meta/server/messages.h"
#include "meta/server/partition.h"
#include "meta/server/server_core.h"

namespace swale::meta {

using OperationId = uint64_t;

struct ClientOptions {
  uint64_t client = 0;  // unlike every other client's, for ever; not 0
  Server home = 0;      // whose delegate serves this client
  RingMode mode = RingMode::kRing;
  unsigned attempts_max = 3;
  bool detect_runs = true;          // false: for comparison
  bool read_only = false;           // changes are refused before anybody is asked
  const TableNews* news = nullptr;  // what this rank has heard; none: nothing comes
};

// What an operation has found, in the member that belongs to it.
struct Finished {
  OperationId id = 0;
  Status status;
  uint64_t generation = 0;         // put: the file's, as the servers know it
  Found found;                     // get
  FoundRuns found_runs;            // get_runs
  Scanned scanned;                 // scan
  AttributeAnswer answer;          // attributes
  std::vector<std::string> texts;  // counters, one message of each server
};

class ClientCore {
 public:
  ClientCore(const Partition& partition, const ClientOptions& options);
  ~ClientCore();

  // Requires lengths above 0 and ends of at most kOffsetEnd (check_segments).
  OperationId put(const FileId& file, std::span<const Extent> segments);
  OperationId get(const FileId& file, std::span<const ByteRange> ranges);
  OperationId get_runs(const FileId& file, std::span<const Run> queries);  // valid ones
  OperationId scan(const FileId& file, uint64_t from, size_t pieces_max);
  OperationId attributes(AttributeRequest request);  // request.from is set here
  OperationId relocate(const Relocation& relocation);
  OperationId stats();

  void take_calls(std::vector<Call>* out);
  void on_completion(uint64_t tag, Result<std::string> response);
  bool take_finished(Finished* out);
  bool at_rest() const { return operations_.empty() && finished_.empty(); }

  const Partition& partition() const { return partition_; }
  uint64_t client() const { return options_.client; }
  bool detects_runs() const { return options_.detect_runs; }
  bool read_only() const { return options_.read_only; }
  const TableNews& news() const { return options_.news == nullptr ? no_news_ : *options_.news; }

 private:
  class Operation;
  class PutOperation;
  class GetOperation;
  class RunsOperation;
  class AllOperation;
  class RelocateOperation;
  class AttributeOperation;
  struct Sent {
    OperationId operation;
    Call call;  // to be repeated
    size_t part;
    unsigned attempts;
  };

  OperationId start(std::unique_ptr<Operation> operation);
  void send(Operation* operation, size_t part, Server to, Method method, std::string payload,
            size_t response_bytes_max);
  uint64_t next_number() { return ++number_; }

  const Partition partition_;
  const ClientOptions options_;
  const TableNews no_news_;
  uint64_t number_ = 0;
  uint64_t next_id_ = 1;
  uint64_t next_tag_ = 1;
  std::unordered_map<OperationId, std::unique_ptr<Operation>> operations_;
  std::unordered_map<uint64_t, Sent> sent_;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<Operation>> finished_;
};

Status check_segments(std::span<const Extent> segments);
Status check_ranges(const Partition& partition, std::span<const ByteRange> ranges);
Status check_queries(const Partition& partition, std::span<const Run> queries);

}  // namespace swale::meta
