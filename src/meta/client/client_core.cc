#include "meta/client/client_core.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace swale::meta {

Status check_segments(std::span<const Extent> segments) {
  for (const Extent& each : segments) {
    if (each.length == 0 || each.offset >= kOffsetEnd || each.length > kOffsetEnd - each.offset) {
      return invalid_argument(
          "put: a segment of {} bytes at offset {}: expected 1 byte or more, and an end of at most 2^63",
          each.length, each.offset);
    }
    if (each.place.log == kHoleLog)
      return invalid_argument("put: a segment in log {}: expected a smaller number", each.place.log);
  }
  return {};
}

namespace {
constexpr uint64_t kCutsMax = uint64_t{1} << 20;  // parts of all ranges, or runs, of a get at their servers
}  // namespace

// A run has a part in each range of a server that it spans, unless its blocks lie further apart.
Status check_queries(const Partition& partition, std::span<const Run> queries) {
  uint64_t cuts = 0;
  for (const Run& each : queries) {
    if (!valid(each)) return invalid_argument("get: a run at offset {} overlaps itself", each.offset);
    const uint64_t bytes = partition.range_bytes();
    const uint64_t of_block = each.length / bytes + 2;
    const uint64_t of_blocks = blocks_of(each) > kCutsMax ? kCutsMax : blocks_of(each) * of_block;
    cuts += std::min(of_blocks, span_of(each) / bytes + 2);
    if (cuts > kCutsMax) {
      return invalid_argument(
          "get: its runs, up to the one at offset {}, lie in more than {} ranges of servers: ask for less",
          each.offset, kCutsMax);
    }
  }
  return {};
}

Status check_ranges(const Partition& partition, std::span<const Range> ranges) {
  // Mostly nothing is odd: ranges of a byte or more, shorter than a server's, that end where files may end.
  bool odd = ranges.size() > kCutsMax;
  const uint64_t longest = partition.range_bytes() - 1;
  for (const Range& each : ranges)
    odd |= each.length - 1 >= longest || each.offset > kOffsetEnd - each.length;
  if (!odd) return {};
  uint64_t cuts = 0;
  for (const Range& each : ranges) {
    cuts += each.length < partition.range_bytes() ? 1 : each.length / partition.range_bytes() + 1;
    if (cuts > kCutsMax) {
      return invalid_argument(
          "get: its ranges lie in more than {} ranges of servers: ask for less, or scan the file", kCutsMax);
    }
    if (each.length == 0 || each.offset >= kOffsetEnd || each.length > kOffsetEnd - each.offset) {
      return invalid_argument(
          "get: a range of {} bytes at offset {}: expected 1 byte or more, and an end of at most 2^63",
          each.length, each.offset);
    }
  }
  return {};
}

class ClientCore::Operation {
 public:
  virtual ~Operation() = default;
  virtual void begin(ClientCore* core) = 0;
  // The answer to a part; the operation may send more.
  virtual Status on_answer(ClientCore* core, size_t part, Bytes response) = 0;
  // All parts are answered.
  virtual void end(Finished*) {}
  // Where else a part that could not be answered may go; none: repeat it.
  virtual std::optional<Server> other_way(Server) { return std::nullopt; }

  Finished finished;
  size_t open_parts = 0;
};

ClientCore::ClientCore(const Partition& partition, const ClientOptions& options)
    : partition_(partition), options_(options) {
  assert(options_.client != 0 && options_.home < partition_.servers() && options_.attempts_max > 0);
}
ClientCore::~ClientCore() = default;

OperationId ClientCore::start(std::unique_ptr<Operation> operation) {
  const OperationId id = next_id_++;
  operation->finished.id = id;
  Operation* const begun = operation.get();
  operations_.emplace(id, std::move(operation));
  begun->begin(this);
  if (begun->open_parts == 0) {
    begun->end(&begun->finished);
    finished_.push_back(std::move(operations_.at(id)));
    operations_.erase(id);
  }
  return id;
}

void ClientCore::send(Operation* operation, size_t part, Server to, Method method, std::string payload,
                      size_t response_bytes_max) {
  assert(to < partition_.servers() && payload.size() >= 4);  // it begins with the server
  Call call{to, method, std::move(payload), next_tag_++, response_bytes_max};
  ++operation->open_parts;
  sent_.emplace(call.tag, Sent{operation->finished.id, call, part, 1});
  calls_.push_back(std::move(call));
}

void ClientCore::take_calls(std::vector<Call>* out) {
  std::move(calls_.begin(), calls_.end(), std::back_inserter(*out));
  calls_.clear();
}

bool ClientCore::take_finished(Finished* out) {
  if (finished_.empty()) return false;
  *out = std::move(finished_.front()->finished);
  finished_.erase(finished_.begin());
  return true;
}

void ClientCore::on_completion(uint64_t tag, Result<std::string> response) {
  const auto found = sent_.find(tag);
  if (found == sent_.end()) return;
  Sent sent = std::move(found->second);
  sent_.erase(found);
  Operation& operation = *operations_.at(sent.operation);
  assert(operation.open_parts > 0);
  Status status = response.status();
  if (!status.ok() && unreached(status) && operation.finished.status.ok()) {
    const std::optional<Server> other = operation.other_way(sent.call.to);
    if (other || sent.attempts < options_.attempts_max) {
      if (other) {
        sent.call.to = *other;
        put_u32(sent.call.payload.data(), *other);
      }
      sent.call.tag = next_tag_++;
      ++sent.attempts;
      calls_.push_back(sent.call);
      sent_.emplace(sent.call.tag, std::move(sent));
      return;
    }
  }
  if (status.ok() && operation.finished.status.ok()) {
    status = operation.on_answer(this, sent.part, *response);
  }
  if (!status.ok() && operation.finished.status.ok()) operation.finished.status = status;
  if (--operation.open_parts > 0) return;
  if (operation.finished.status.ok()) operation.end(&operation.finished);
  finished_.push_back(std::move(operations_.at(sent.operation)));
  operations_.erase(sent.operation);
}

// ---- put

class ClientCore::PutOperation final : public Operation {
 public:
  PutOperation(const FileId& file, std::vector<ServerPut> puts)
      : file_(file), puts_(std::move(puts)), at_(puts_.size()), run_at_(puts_.size()) {}

  void begin(ClientCore* core) override {
    for (size_t part = 0; part < puts_.size(); ++part) send_next(core, part);
  }

  Status on_answer(ClientCore* core, size_t part, Bytes response) override {
    Decoder in(response);
    finished.generation = std::max(finished.generation, in.u64());
    SWALE_RETURN_IF_ERROR(in.finish("an answer to a put"));
    send_next(core, part);
    return {};
  }

 private:
  // The next items of a server's share, in their order: later ones win.
  void send_next(ClientCore* core, size_t part) {
    const DetectedBatch& all = puts_[part].items;
    size_t& extent = at_[part];
    size_t& run = run_at_[part];
    if (extent == all.extents.size() && run == all.runs.size()) return;
    const RequestName name{core->client(), core->next_number()};
    const Server to = puts_[part].server;
    if (extent == 0 && run == 0 && all.size() <= kItemsMax) {
      extent = all.extents.size();
      run = all.runs.size();
      return core->send(this, part, to, Method::kPut, encode_put(to, file_, name, all), 4096);
    }
    DetectedBatch some;
    while (some.size() < kItemsMax && (extent < all.extents.size() || run < all.runs.size())) {
      if (run < all.runs.size() && all.run_at[run] <= extent) {
        some.run_at.push_back(some.extents.size());
        some.runs.push_back(all.runs[run++]);
      } else {
        some.extents.push_back(all.extents[extent++]);
      }
    }
    core->send(this, part, to, Method::kPut, encode_put(to, file_, name, some), 4096);
  }

  const FileId file_;
  const std::vector<ServerPut> puts_;
  std::vector<size_t> at_;      // extents sent, by part
  std::vector<size_t> run_at_;  // runs sent
};

OperationId ClientCore::put(const FileId& file, std::span<const Extent> segments) {
  assert(!options_.read_only && check_segments(segments).ok());
  DetectedBatch batch;
  if (options_.detect_runs) {
    RunDetector detector;
    detector.add(segments, &batch);
    detector.finish(&batch);
  } else {
    batch.extents.assign(segments.begin(), segments.end());
  }
  return start(std::make_unique<PutOperation>(file, partition_.split(file, batch)));
}

// ---- get

class ClientCore::GetOperation final : public Operation {
 public:
  GetOperation(const Partition& partition, const FileId& file, std::span<const Range> ranges) {
    std::vector<int32_t> place(partition.servers(), -1);
    for (const Range& range : ranges) {
      uint64_t at = range.offset;
      const uint64_t end = range.offset + range.length;
      while (at < end) {
        const uint64_t cut = std::min(end - at, partition.range_bytes() - at % partition.range_bytes());
        const Server server = partition.server_of(file, at);
        if (place[server] < 0) {
          place[server] = static_cast<int32_t>(shares_.size());
          shares_.push_back({server, {file, kPiecesMax, {}}, {}, 0});
        }
        const auto share = static_cast<uint32_t>(place[server]);
        shares_[share].get.ranges.push_back({file, at, cut});
        order_.push_back(share);
        at += cut;
      }
      ends_.push_back(order_.size());
    }
  }

  void begin(ClientCore* core) override {
    for (size_t part = 0; part < shares_.size(); ++part) send_rest(core, part);
  }

  Status on_answer(ClientCore* core, size_t part, Bytes response) override {
    Share& share = shares_[part];
    SWALE_ASSIGN_OR_RETURN(Found found, decode_found(response, asked(share)));
    const size_t base = share.found.extents.size();
    for (size_t i = 0; i < found.answered; ++i) share.found.ends.push_back(base + found.ends[i]);
    if (base == 0) {
      share.found.extents = std::move(found.extents);
    } else {
      share.found.extents.insert(share.found.extents.end(), found.extents.begin(), found.extents.end());
    }
    const bool stuck = found.answered == 0 && share.found.extents.size() == base;
    share.answered += found.answered;
    if (share.answered == share.get.ranges.size()) return {};
    Range& next = share.get.ranges[share.answered];
    if (found.resume) {
      const uint64_t end = next.offset + next.length;
      if (*found.resume < next.offset || *found.resume >= end || (stuck && *found.resume == next.offset))
        return corruption("an answer to a get: go on at {} in a range that ends at {}", *found.resume, end);
      next = {next.file, *found.resume, end - *found.resume};
    }
    send_rest(core, part);
    return {};
  }

  // Puts the pieces of all servers together, in the order of the ranges.
  void end(Finished* out) override {
    for ([[maybe_unused]] const Share& each : shares_)
      assert(each.answered == each.get.ranges.size() && each.found.ends.size() == each.answered);
    if (shares_.size() == 1 && order_.size() == ends_.size()) {
      out->found = std::move(shares_[0].found);
      out->found.answered = ends_.size();
      return;
    }
    std::vector<size_t> next(shares_.size());
    size_t cut = 0;
    for (const size_t last : ends_) {
      const size_t first = out->found.extents.size();
      for (; cut < last; ++cut) {
        const Found& from = shares_[order_[cut]].found;
        const size_t index = next[order_[cut]]++;
        for (size_t i = index == 0 ? 0 : from.ends[index - 1]; i < from.ends[index]; ++i)
          add(from.extents[i], first, &out->found.extents);
      }
      out->found.ends.push_back(out->found.extents.size());
    }
    out->found.answered = ends_.size();
  }

 private:
  struct Share {
    Server server;
    GetMessage get;
    Found found;
    size_t answered;
  };

  static size_t asked(const Share& share) {
    return std::min(share.get.ranges.size() - share.answered, kItemsMax);
  }
  void send_rest(ClientCore* core, size_t part) {
    const Share& share = shares_[part];
    const size_t some = asked(share);
    if (some == share.get.ranges.size())
      return core->send(this, part, share.server, Method::kGet, encode_get(share.server, share.get),
                        bytes(some));
    GetMessage rest{share.get.file, share.get.pieces_max, {}};
    const auto first = share.get.ranges.begin() + static_cast<ptrdiff_t>(share.answered);
    rest.ranges.assign(first, first + static_cast<ptrdiff_t>(some));
    core->send(this, part, share.server, Method::kGet, encode_get(share.server, rest), bytes(some));
  }
  // A small get reserves little, so that many fit into the window of a peer.
  static size_t bytes(size_t ranges) {
    return ranges <= 4 ? kResponseBytesMax / 4 + 4096 : kResponseBytesMax + 2 * kMiB;
  }
  static void add(const Extent& piece, size_t first, std::vector<Extent>* out) {
    if (out->size() > first) {
      Extent& last = out->back();
      if (last.offset + last.length == piece.offset && last.place.log == piece.place.log &&
          last.place.address + last.length == piece.place.address) {
        last.length += piece.length;
        return;
      }
    }
    out->push_back(piece);
  }

  std::vector<Share> shares_;
  std::vector<uint32_t> order_;  // the shares of all cuts, in the order of the ranges
  std::vector<size_t> ends_;     // of each range, in order_
};

OperationId ClientCore::get(const FileId& file, std::span<const Range> ranges) {
  assert(check_ranges(partition_, ranges).ok());
  return start(std::make_unique<GetOperation>(partition_, file, ranges));
}

class ClientCore::RunsOperation final : public Operation {
 public:
  RunsOperation(const Partition& partition, const FileId& file, std::span<const Run> queries) : file_(file) {
    place_.assign(partition.servers(), -1);
    for (const Run& query : queries) {
      split(partition, query);
      ends_.push_back(order_.size());
    }
  }
  void begin(ClientCore* core) override {
    for (size_t part = 0; part < shares_.size(); ++part) send_next(core, part);
  }
  Status on_answer(ClientCore* core, size_t part, Bytes response) override {
    Share& share = shares_[part];
    SWALE_ASSIGN_OR_RETURN(const FoundRuns some, decode_found_runs(response, share.sent - share.answered));
    const size_t base = share.found.runs.size();
    share.found.runs.insert(share.found.runs.end(), some.runs.begin(), some.runs.end());
    for (const size_t end : some.ends) share.found.ends.push_back(base + end);
    share.answered = share.sent;
    send_next(core, part);
    return {};
  }
  // The answers of all servers, in the order of the queries and of each query's parts.
  void end(Finished* out) override {
    FoundRuns& all = out->found_runs;
    std::vector<size_t> next(shares_.size());
    size_t part = 0;
    for (const size_t last : ends_) {
      for (; part < last; ++part) {
        const FoundRuns& from = shares_[order_[part]].found;
        const size_t index = next[order_[part]]++;
        const size_t first = index == 0 ? 0 : from.ends[index - 1];
        all.runs.insert(all.runs.end(), from.runs.begin() + static_cast<ptrdiff_t>(first),
                        from.runs.begin() + static_cast<ptrdiff_t>(from.ends[index]));
      }
      all.ends.push_back(all.runs.size());
    }
  }

 private:
  struct Share {
    Server server;
    std::vector<Run> queries;
    size_t sent = 0, answered = 0;
    FoundRuns found;
  };
  // A query's parts, each in one range of a server.
  void split(const Partition& partition, const Run& query) {
    const uint64_t bytes = partition.range_bytes();
    std::vector<Run> parts;
    for (uint64_t at = query.offset; at < end_of(query);) {
      const uint64_t end = std::min(end_of(query), (at / bytes + 1) * bytes);
      parts.clear();
      clip(query, at, end, &parts);
      if (parts.empty()) {  // a gap: on to the next block
        at = block_at(query, first_block_after(query, end)).offset;
        continue;
      }
      const Server server = partition.server_of(file_, at);
      if (place_[server] < 0) {
        place_[server] = static_cast<int32_t>(shares_.size());
        shares_.emplace_back().server = server;
      }
      const auto share = static_cast<uint32_t>(place_[server]);
      std::vector<Run>& mine = shares_[share].queries;
      mine.insert(mine.end(), parts.begin(), parts.end());
      order_.insert(order_.end(), parts.size(), share);
      at = end;
    }
  }
  void send_next(ClientCore* core, size_t part) {
    constexpr size_t kQueriesMax = 8192;  // answered by 4 runs each, if they are regular
    Share& share = shares_[part];
    if (share.sent == share.queries.size()) return;
    const size_t some = std::min(share.queries.size() - share.sent, kQueriesMax);
    const auto first = share.queries.begin() + static_cast<ptrdiff_t>(share.sent);
    share.sent += some;
    core->send(this, part, share.server, Method::kGetRuns,
               encode_runs_query(share.server, {file_, {first, first + static_cast<ptrdiff_t>(some)}}),
               kResponseBytesMax);
  }

  const FileId file_;
  std::vector<int32_t> place_;  // of each server among the shares
  std::vector<Share> shares_;
  std::vector<uint32_t> order_;  // the shares of all parts, in the order of the queries
  std::vector<size_t> ends_;     // of each query, in order_
};

OperationId ClientCore::get_runs(const FileId& file, std::span<const Run> queries) {
  assert(check_queries(partition_, queries).ok());
  return start(std::make_unique<RunsOperation>(partition_, file, queries));
}

// ---- all servers

// First every server's index, then the tables of runs at the roots: what is collected for a table after that
// is new.
class ClientCore::RelocateOperation final : public Operation {
 public:
  RelocateOperation(uint32_t servers, const RelocateMessage& message)
      : servers_(servers), message_(message) {}
  void begin(ClientCore* core) override { send_all(core, Method::kRelocate, 4096); }
  Status on_answer(ClientCore* core, size_t, Bytes) override {
    if (++answers_ == servers_) send_all(core, Method::kRelocateTables, 4096);
    return {};
  }

 private:
  void send_all(ClientCore* core, Method method, size_t response) {
    for (Server to = 0; to < servers_; ++to)
      core->send(this, to, to, method, encode_relocate(to, message_), response);
  }

  const uint32_t servers_;
  const RelocateMessage message_;
  uint64_t answers_ = 0;
};

class ClientCore::AllOperation final : public Operation {
 public:
  AllOperation(uint32_t servers, Method method, std::function<std::string(Server)> payload)
      : method_(method), payload_(std::move(payload)), scans_(servers) {}
  void begin(ClientCore* core) override {
    finished.texts.resize(scans_.size());
    for (Server to = 0; to < scans_.size(); ++to)
      core->send(this, to, to, method_, payload_(to),
                 method_ == Method::kScan ? kResponseBytesMax : 64 * kKiB);
  }
  Status on_answer(ClientCore*, size_t part, Bytes response) override {
    if (method_ == Method::kStats) finished.texts[part] = std::string(response);
    if (method_ != Method::kScan) return {};
    SWALE_ASSIGN_OR_RETURN(scans_[part], decode_scanned(response));
    return {};
  }
  // Sorted up to where the server that came least far has stopped.
  void end(Finished* out) override {
    if (method_ != Method::kScan) return;
    Scanned& all = out->scanned;
    for (const Scanned& each : scans_) all.next = std::min(all.next, each.next);
    for (const Scanned& each : scans_) {
      for (const Extent& extent : each.extents) {
        if (extent.offset < all.next) all.extents.push_back(extent);
      }
    }
    merge_extents(&all.extents);
  }

 private:
  const Method method_;
  const std::function<std::string(Server)> payload_;
  std::vector<Scanned> scans_;
};

OperationId ClientCore::scan(const FileId& file, uint64_t from, size_t pieces_max) {
  const auto payload = [=](Server to) { return encode_scan(to, {file, from, pieces_max}); };
  return start(std::make_unique<AllOperation>(partition_.servers(), Method::kScan, payload));
}

OperationId ClientCore::relocate(const Relocation& relocation) {
  const RequestName name{client(), next_number()};
  return start(std::make_unique<RelocateOperation>(partition_.servers(), RelocateMessage{name, relocation}));
}

OperationId ClientCore::stats() {
  const auto payload = [](Server to) {
    std::string out;
    append_u32(&out, to);
    return out;
  };
  return start(std::make_unique<AllOperation>(partition_.servers(), Method::kStats, payload));
}

// ---- attributes

class ClientCore::AttributeOperation final : public Operation {
 public:
  AttributeOperation(AttributeRequest request, Server first, Server root)
      : request_(std::move(request)), first_(first), root_(root) {}
  void begin(ClientCore* core) override {
    core->send(this, 0, first_, Method::kAttributes, encode_attributes(first_, request_),
               kTableBytesMax + 16 * kKiB);
  }
  Status on_answer(ClientCore*, size_t, Bytes response) override {
    SWALE_ASSIGN_OR_RETURN(finished.answer, decode_answer(response));
    const Attributes& attributes = finished.answer.attributes;
    if (request_.op == AttributeOp::kCreateExclusive && attributes.creator != request_.from) {
      return error(Code::kAlreadyExists, Scope::kFile, "create {}: the file exists", request_.name);
    }
    return {};
  }
  std::optional<Server> other_way(Server tried) override {
    return tried == root_ ? std::nullopt : std::optional(root_);
  }

 private:
  const AttributeRequest request_;
  const Server first_;
  const Server root_;
};

OperationId ClientCore::attributes(AttributeRequest request) {
  request.from = {client(), next_number()};
  const Server root = partition_.root_of(request.name);
  const Server first = options_.mode == RingMode::kPlain ? root : options_.home;
  return start(std::make_unique<AttributeOperation>(std::move(request), first, root));
}

}  // namespace swale::meta
