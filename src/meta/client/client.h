// Client: the operations of a metadata store as calls that wait: a ClientCore on net::Rpc.
//
// A File remembers what its handle knows: the generation and the end of what it has written, for close, and
// the runs of a sealed file, with which gets need no server.
//
// Threads: one at a time; a File too. Errors: kNotFound (also: the handle's file was removed),
// kAlreadyExists, kInvalidArgument (also: the file is sealed); kUnavailable and kDeadlineExceeded name the
// rank, its host, the request and the time. An operation that failed so may have been done, in part or in
// full; repeating it is safe.
// Limits: meta.deadline_s for each operation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/counters.h"
#include "meta/client/client_core.h"
#include "meta/client/get_batch.h"
#include "meta/server/run_table.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

struct File {
  Attributes attributes;  // as of the last call that brought them
  uint64_t generation = 0;
  uint64_t written_end = 0;                  // of puts by this handle in that generation
  std::shared_ptr<const SealedTable> table;  // of a sealed file
  uint64_t table_age = TableNews::kOld;      // what its rank had heard when it was asked for
};

class Client {
 public:
  enum OpenFlags : unsigned { kCreate = 1, kExclusive = 2 };

  Client(net::Rpc* rpc, const std::vector<net::Rank>* hosts, const Partition& partition,
         const ClientOptions& options, Nanos deadline);

  Result<File> open(const std::string& name, unsigned flags, uint32_t mode, int64_t time_ns);
  Result<Attributes> stat(const std::string& name);
  // Tells the file's root how far this handle has written. Answers the attributes after that.
  Result<Attributes> close(File* file, int64_t time_ns);
  Status truncate(File* file, uint64_t size, int64_t time_ns);
  Status seal(File* file);
  // When it is OK, all handles of the file, of all ranks, get kNotFound from then on, also when its name is
  // another file's.
  Status remove(const std::string& name);

  Status put(File* file, std::span<const Extent> segments);
  // The pieces of each range, ascending; holes are left out.
  Status get(const File& file, std::span<const ByteRange> ranges, Found* out);
  // The bytes of the blocks of each query, as runs; those of a query do not overlap.
  Status get_runs(const File& file, std::span<const Run> queries, FoundRuns* out);
  // Up to about pieces_max pieces a server, from `from` on, in order. *next: where to go on; kOffsetEnd:
  // done.
  Status scan(const File& file, uint64_t from, size_t pieces_max, std::vector<Extent>* out, uint64_t* next);
  // When it is OK, no get by any handle of any rank answers the old place any more. After a failure both
  // places must stay.
  Status relocate(const Relocation& relocation);
  Result<Counters> stats();  // merged over the servers

  // False: an operation was given up before it finished, by its deadline or for want of memory.
  bool at_rest() const { return core_.at_rest() && calls_.empty(); }

 private:
  Result<Finished> run(OperationId id);
  Status run(std::span<const OperationId> ids, std::span<Finished> finished);
  Status get_batch(const File& file, GetBatch* batch, Found* out);
  Result<AttributeAnswer> ask(AttributeRequest request);
  Result<AttributeAnswer> ask(AttributeOp op, const File& file, uint64_t size, int64_t time_ns);
  Status take(const AttributeAnswer& answer, const TableNews::Heard& heard, File* file);
  Status check_writable(std::string_view what) const;
  Status tell_all(Method method, const std::string& payload);
  void send();

  net::Rpc& channel_;
  net::RpcClient rpc_;
  const std::vector<net::Rank>& hosts_;
  ClientCore core_;
  const Nanos deadline_;
  std::vector<Call> calls_;  // not yet taken by rpc_
  std::vector<net::RpcCompletion> done_;
};

}  // namespace swale::meta
