#include "meta/client/client.h"

#include <algorithm>
#include <utility>

namespace swale::meta {

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
  const Nanos until = system_clock().now() + deadline_ + deadline_ / 3;
  Finished finished;
  for (;;) {
    send();
    // One that was given up (its deadline, want of memory) may finish after it: its result is nobody's.
    while (core_.take_finished(&finished)) {
      if (finished.id != id) continue;
      SWALE_RETURN_IF_ERROR(finished.status);
      return finished;
    }
    done_.clear();
    // Others of this rank may have all calls that there may be: then this thread looks again, at most until its deadline.
    const Nanos now = system_clock().now();
    const Nanos look = calls_.empty() ? until : std::min(until, now + milliseconds(1));
    if (rpc_.wait(&done_, look) == 0 && system_clock().now() >= until) {
      return error(Code::kDeadlineExceeded, Scope::kOperation,
                   "the metadata servers have not answered within {:.3f} s", to_seconds(deadline_));
    }
    for (net::RpcCompletion& each : done_) core_.on_completion(each.tag, std::move(each.response));
  }
}

Result<AttributeAnswer> Client::ask(AttributeOp op, const std::string& name, uint64_t size,
                                    uint64_t generation, uint32_t mode, int64_t time_ns) {
  AttributeRequest request{.op = op,
                           .file = file_id(name),
                           .name = name,
                           .size = size,
                           .generation = generation,
                           .mode = mode,
                           .time_ns = time_ns};
  SWALE_RETURN_IF_ERROR(check(request));
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.attributes(std::move(request))));
  return std::move(finished.answer);
}

// `relocations`: known before the answer was asked for.
Status Client::take(const AttributeAnswer& answer, uint64_t relocations, File* file) {
  if (answer.attributes.generation > file->generation) file->written_end = 0;
  file->generation = std::max(file->generation, answer.attributes.generation);
  file->attributes = answer.attributes;
  if (answer.table.empty() || (file->table && file->table_relocations == relocations)) return {};
  SWALE_ASSIGN_OR_RETURN(std::vector<Run> runs, decode_table(answer.table));
  file->table_relocations = relocations;
  file->table = std::make_shared<const SealedTable>(std::move(runs));
  return {};
}

Result<File> Client::open(const std::string& name, unsigned flags, uint32_t mode, int64_t time_ns) {
  const AttributeOp op = (flags & kCreate) == 0      ? AttributeOp::kOpen
                         : (flags & kExclusive) != 0 ? AttributeOp::kCreateExclusive
                                                     : AttributeOp::kCreate;
  const uint64_t relocations = core_.relocations();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer, ask(op, name, 0, 0, mode, time_ns));
  File file;
  SWALE_RETURN_IF_ERROR(take(answer, relocations, &file));
  return file;
}

Result<Attributes> Client::stat(const std::string& name) {
  SWALE_ASSIGN_OR_RETURN(AttributeAnswer answer, ask(AttributeOp::kStat, name, 0, 0, 0, 0));
  return std::move(answer.attributes);
}

Result<Attributes> Client::close(File* file, int64_t time_ns) {
  const uint64_t relocations = core_.relocations();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer, ask(AttributeOp::kClose, file->attributes.name,
                                                           file->written_end, file->generation, 0, time_ns));
  SWALE_RETURN_IF_ERROR(take(answer, relocations, file));
  return file->attributes;
}

Status Client::truncate(File* file, uint64_t size, int64_t time_ns) {
  const uint64_t relocations = core_.relocations();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer,
                         ask(AttributeOp::kTruncate, file->attributes.name, size, 0, 0, time_ns));
  return take(answer, relocations, file);
}

Status Client::seal(File* file) {
  const uint64_t relocations = core_.relocations();
  SWALE_ASSIGN_OR_RETURN(const AttributeAnswer answer,
                         ask(AttributeOp::kSeal, file->attributes.name, 0, 0, 0, 0));
  return take(answer, relocations, file);
}

Status Client::remove(const std::string& name) {
  return ask(AttributeOp::kRemove, name, 0, 0, 0, 0).status();
}

Status Client::put(File* file, std::span<const Extent> segments) {
  SWALE_RETURN_IF_ERROR(check_segments(segments));
  if (segments.empty()) return {};
  if (file->attributes.sealed)
    return invalid_argument("put: {} is sealed and cannot change", file->attributes.name);
  SWALE_ASSIGN_OR_RETURN(const Finished finished, run(core_.put(file->attributes.file, segments)));
  if (finished.generation >
      file->generation) {  // truncated meanwhile; what was written before does not count
    file->generation = finished.generation;
    file->written_end = 0;
  }
  for (const Extent& each : segments)
    file->written_end = std::max(file->written_end, each.offset + each.length);
  return {};
}

Status Client::get(const File& file, std::span<const Range> ranges, Found* out) {
  SWALE_RETURN_IF_ERROR(check_ranges(core_.partition(), ranges));
  if (file.table && file.table_relocations == core_.relocations()) {
    out->extents.clear();
    out->ends.clear();
    for (const Range& each : ranges) {
      uint64_t next = 0;
      file.table->lookup(each.offset, each.length, SIZE_MAX - out->extents.size(), &out->extents, &next);
      out->ends.push_back(out->extents.size());
    }
    out->answered = ranges.size();
    out->resume.reset();
    return {};
  }
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.get(file.attributes.file, ranges)));
  *out = std::move(finished.found);
  return {};
}

Status Client::get_runs(const File& file, std::span<const Run> queries, std::vector<Run>* out) {
  for (const Run& each : queries) {
    if (!valid(each)) return invalid_argument("get: a run at offset {} overlaps itself", each.offset);
    constexpr uint64_t kPartsMax = uint64_t{1} << 20;
    if (std::min(blocks_of(each), span_of(each) / core_.partition().range_bytes()) > kPartsMax) {
      return invalid_argument("get: a run at offset {} lies in more than {} ranges of servers: ask for less",
                              each.offset, kPartsMax);
    }
  }
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.get_runs(file.attributes.file, queries)));
  *out = std::move(finished.runs);
  return {};
}

Status Client::scan(const File& file, uint64_t from, size_t pieces_max, std::vector<Extent>* out,
                    uint64_t* next) {
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.scan(file.attributes.file, from, pieces_max)));
  *out = std::move(finished.scanned.extents);
  *next = finished.scanned.next;
  return {};
}

Status Client::relocate(const Relocation& relocation) {
  SWALE_RETURN_IF_ERROR(run(core_.relocate(relocation)).status());
  // Servers answer the new place now. Handles that have a table of runs ask nobody: so every rank is told.
  constexpr size_t kRanksAtOnce = 512;
  std::vector<net::Rank> ranks;
  for (net::Rank rank = 0; rank < channel_.size();) {
    ranks.clear();
    for (; rank < channel_.size() && ranks.size() < kRanksAtOnce; ++rank) ranks.push_back(rank);
    const auto heard = rpc_.ask_many(ranks, {.method = static_cast<net::RpcMethod>(Method::kRelocated),
                                             .payload = {},
                                             .response_bytes_max = 64,
                                             .deadline = system_clock().now() + deadline_});
    for (const Result<std::string>& each : heard) {
      if (!each.ok()) return each.status().with_context("relocate: a rank was not told; keep the old place");
    }
  }
  return {};
}

Result<std::vector<std::string>> Client::stats() {
  SWALE_ASSIGN_OR_RETURN(Finished finished, run(core_.stats()));
  return std::move(finished.texts);
}

}  // namespace swale::meta
