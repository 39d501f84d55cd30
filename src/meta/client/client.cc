#include "meta/client/client.h"

#include <algorithm>
#include <utility>

#include "meta/server/server_counters.h"

namespace swale::meta {
namespace {

// Servers know a file by its id.
Result<Finished> named(Result<Finished> done, std::string_view what, const File& file) {
  if (done.ok()) return done;
  return done.status().with_context(fmt::format("{} {}", what, file.attributes.name));
}

}  // namespace

Client::Client(net::Rpc* rpc, const std::vector<net::Rank>* hosts, const Partition& partition,
               const ClientOptions& options, Nanos deadline)
    : channel_(*rpc), rpc_(rpc), hosts_(*hosts), core_(partition, options), deadline_(deadline) {}

// Hands calls to rpc_ until it takes no more for now.
void Client::send() {
  core_.take_calls(&calls_);
  size_t taken = 0;
  for (; taken < calls_.size(); ++taken) {
    const Call& each = calls_[taken];
    net::RpcCall call{.to = hosts_[each.to],
                      .method = static_cast<net::RpcMethod>(each.method),
                      .payload = each.payload,
                      .response_bytes_max = static_cast<uint32_t>(each.response_bytes_max),
                      .deadline = system_clock().now() + deadline_ / 3,
                      .tag = each.tag};
    const auto id = rpc_.call(std::move(call), net::RpcClient::Leave::kWithNext);
    if (id.ok()) continue;
    if (id.status().code() == Code::kResourceExhausted) break;  // complete some first
    core_.on_completion(each.tag, id.status());
  }
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(taken));
}

Result<Finished> Client::run(OperationId id) {
  Finished finished;
  SWALE_RETURN_IF_ERROR(run(std::span(&id, 1), std::span(&finished, 1)));
  return finished;
}

// All of the operations: the first failure, when each has finished.
Status Client::run(std::span<const OperationId> ids, std::span<Finished> finished) {
  const Nanos until = system_clock().now() + deadline_ + deadline_ / 3;
  Finished one;
  Status status;
  for (size_t open = ids.size();;) {
    send();
    // One that was given up (its deadline, want of memory) may finish after it: its result is nobody's.
    while (core_.take_finished(&one)) {
      const auto mine = std::find(ids.begin(), ids.end(), one.id);
      if (mine == ids.end()) continue;
      if (status.ok()) status = one.status;
      finished[static_cast<size_t>(mine - ids.begin())] = std::move(one);
      --open;
    }
    if (open == 0) return status;
    done_.clear();
    // Others of this rank may have all calls that there may be: then the wait is for what they leave, too.
    if (rpc_.wait(&done_, until) == 0 && system_clock().now() >= until) {
      return error(Code::kDeadlineExceeded, Scope::kOperation,
                   "the metadata servers have not answered within {:.3f} s", to_seconds(deadline_));
    }
    for (net::RpcCompletion& each : done_) core_.on_completion(each.tag, std::move(each.response));
  }
}

Result<AttributeAnswer> Client::ask(AttributeRequest request) {
  SWALE_RETURN_IF_ERROR(check(request));
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.attributes(std::move(request))));
  return std::move(finished.answer);
}

Status Client::check_writable(std::string_view what) const {
  if (!core_.read_only()) return {};
  return invalid_argument("{}: the store is open for reading only", what);
}

// By a handle.
Result<AttributeAnswer> Client::ask(AttributeOp op, const File& file, uint64_t size, int64_t time_ns) {
  return ask({.op = op,
              .file = file.attributes.file,
              .name = file.attributes.name,
              .size = size,
              .generation = file.generation,
              .time_ns = time_ns});
}

// `heard`: before the answer was asked for.
Status Client::take(const AttributeAnswer& answer, const TableNews::Heard& heard, File* file) {
  if (answer.attributes.generation > file->generation) file->written_end = 0;
  file->generation = std::max(file->generation, answer.attributes.generation);
  file->attributes = answer.attributes;
  if (answer.table.empty()) return {};
  const uint64_t age = core_.news().age(heard, answer.attributes.file);
  if (age == TableNews::kOld || (file->table && file->table_age == age)) return {};
  Result<std::vector<Run>> runs = decode_table(answer.table);
  if (!runs.ok())
    return runs.status().with_context(
        fmt::format("{}: the table of this sealed file in its metadata server's log of attributes",
                    answer.attributes.name));
  file->table_age = age;
  file->table = std::make_shared<const SealedTable>(*std::move(runs));
  return {};
}

Result<File> Client::open(const std::string& name, unsigned flags, uint32_t mode, int64_t time_ns) {
  if ((flags & kCreate) != 0) SWALE_RETURN_IF_ERROR(check_writable("create " + name));
  const AttributeOp op = (flags & kCreate) == 0      ? AttributeOp::kOpen
                         : (flags & kExclusive) != 0 ? AttributeOp::kCreateExclusive
                                                     : AttributeOp::kCreate;
  const TableNews::Heard heard = core_.news().heard();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer,
                         ask({.op = op, .name = name, .mode = mode, .time_ns = time_ns}));
  File file;
  SWALE_RETURN_IF_ERROR(take(answer, heard, &file));
  return file;
}

Result<Attributes> Client::stat(const std::string& name) {
  SWALE_ASSIGN_OR_RETURN(AttributeAnswer answer, ask({.op = AttributeOp::kStat, .name = name}));
  return std::move(answer.attributes);
}

Result<Attributes> Client::close(File* file, int64_t time_ns) {
  if (core_.read_only()) return file->attributes;
  const TableNews::Heard heard = core_.news().heard();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer,
                         ask(AttributeOp::kClose, *file, file->written_end, time_ns));
  SWALE_RETURN_IF_ERROR(take(answer, heard, file));
  return file->attributes;
}

Status Client::truncate(File* file, uint64_t size, int64_t time_ns) {
  SWALE_RETURN_IF_ERROR(check_writable("truncate " + file->attributes.name));
  const TableNews::Heard heard = core_.news().heard();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer, ask(AttributeOp::kTruncate, *file, size, time_ns));
  return take(answer, heard, file);
}

Status Client::seal(File* file) {
  SWALE_RETURN_IF_ERROR(check_writable("seal " + file->attributes.name));
  const TableNews::Heard heard = core_.news().heard();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer, ask(AttributeOp::kSeal, *file, 0, 0));
  return take(answer, heard, file);
}

// Servers refuse the id now. Handles that have a table of runs ask nobody: so every rank is told. A
// repetition of a removal whose answer was lost does not say what it removed.
Status Client::remove(const std::string& name) {
  SWALE_RETURN_IF_ERROR(check_writable("remove " + name));
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer gone, ask({.op = AttributeOp::kRemove, .name = name}));
  if (!gone.attributes.sealed && !gone.attributes.file.none()) return {};
  return tell_all(Method::kRemoved, encode_removed(gone.attributes.file))
      .with_context(fmt::format(
          "remove {}: it is gone, and a rank was not told: its handles of this sealed file may still answer",
          name));
}

Status Client::put(File* file, std::span<const Extent> segments) {
  SWALE_RETURN_IF_ERROR(check_segments(segments));
  SWALE_RETURN_IF_ERROR(check_writable("put " + file->attributes.name));
  if (segments.empty()) return {};
  SWALE_ASSIGN_OR_RETURN(const Finished finished,
                         named(run(core_.put(file->attributes.file, segments)), "put", *file));
  if (finished.generation >
      file->generation) {  // truncated meanwhile; what was written before does not count
    file->generation = finished.generation;
    file->written_end = 0;
  }
  for (const Extent& each : segments)
    file->written_end = std::max(file->written_end, each.offset + each.length);
  return {};
}

Status Client::get(const File& file, std::span<const ByteRange> ranges, Found* out) {
  SWALE_RETURN_IF_ERROR(check_ranges(core_.partition(), ranges));
  if (file.table && core_.news().is(file.table_age, file.attributes.file)) {
    out->extents.clear();
    out->ends.clear();
    for (const ByteRange& each : ranges) {
      uint64_t next = 0;
      file.table->lookup(each.offset, each.length, SIZE_MAX - out->extents.size(), &out->extents, &next);
      out->ends.push_back(out->extents.size());
    }
    out->answered = ranges.size();
    out->resume.reset();
    return {};
  }
  if (core_.detects_runs() && ranges.size() >= GetBatch::kRangesMin) {
    GetBatch batch(ranges);
    if (!batch.empty()) {
      const Status status = get_batch(file, &batch, out);
      // What was put there may be so irregular that runs would say it in too many words.
      if (status.code() != Code::kResourceExhausted) return status;
    }
  }
  SWALE_ASSIGN_OR_RETURN(Finished finished, named(run(core_.get(file.attributes.file, ranges)), "get", file));
  *out = std::move(finished.found);
  return {};
}

Status Client::get_batch(const File& file, GetBatch* batch, Found* out) {
  const FileId& id = file.attributes.file;
  const OperationId ids[] = {core_.get_runs(id, batch->queries()), core_.get(id, batch->rest())};
  Finished finished[2];
  const Status status = run(ids, finished);
  if (!status.ok()) return status.with_context("get " + file.attributes.name);
  return batch->answer(finished[0].found_runs, finished[1].found, out);
}

Status Client::get_runs(const File& file, std::span<const Run> queries, FoundRuns* out) {
  SWALE_RETURN_IF_ERROR(check_queries(core_.partition(), queries));
  SWALE_ASSIGN_OR_RETURN(Finished finished,
                         named(run(core_.get_runs(file.attributes.file, queries)), "get", file));
  *out = std::move(finished.found_runs);
  return {};
}

Status Client::scan(const File& file, uint64_t from, size_t pieces_max, std::vector<Extent>* out,
                    uint64_t* next) {
  SWALE_ASSIGN_OR_RETURN(Finished finished,
                         named(run(core_.scan(file.attributes.file, from, pieces_max)), "scan", file));
  *out = std::move(finished.scanned.extents);
  *next = finished.scanned.next;
  return {};
}

Status Client::relocate(const Relocation& relocation) {
  SWALE_RETURN_IF_ERROR(check_writable("relocate"));
  SWALE_RETURN_IF_ERROR(run(core_.relocate(relocation)).status());
  // Servers answer the new place now. Handles that have a table of runs ask nobody: so every rank is told.
  return tell_all(Method::kRelocated, {}).with_context("relocate: a rank was not told; keep the old place");
}

Status Client::tell_all(Method method, const std::string& payload) {
  constexpr size_t kRanksAtOnce = 512;
  std::vector<net::Rank> ranks;
  for (net::Rank rank = 0; rank < channel_.size();) {
    ranks.clear();
    for (; rank < channel_.size() && ranks.size() < kRanksAtOnce; ++rank) ranks.push_back(rank);
    const auto heard = rpc_.ask_many(ranks, {.method = static_cast<net::RpcMethod>(method),
                                             .payload = payload,
                                             .response_bytes_max = 64,
                                             .deadline = system_clock().now() + deadline_});
    for (const Result<std::string>& each : heard) {
      if (!each.ok()) return each.status();
    }
  }
  return {};
}

Result<Counters> Client::stats() {
  SWALE_ASSIGN_OR_RETURN(const Finished finished, run(core_.stats()));
  Counters all = Counters::of_ranks(0);
  for (const std::string& message : finished.texts) {
    SWALE_ASSIGN_OR_RETURN(const Counters each, Counters::read(message, server_counter_rows()));
    all.merge(each);
  }
  return all;
}

}  // namespace swale::meta
