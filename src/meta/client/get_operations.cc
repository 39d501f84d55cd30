// Gets of ranges and of runs: split among the servers that own the bytes, and answers put together.
#include <algorithm>
#include <cassert>

#include "meta/client/operation.h"
#include "meta/index/lattice.h"

namespace swale::meta {

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

Status check_ranges(const Partition& partition, std::span<const ByteRange> ranges) {
  // Mostly nothing is odd: ranges of a byte or more, shorter than a server's, whose first and last bytes
  // stand below kOffsetEnd, a power of two.
  static_assert(kOffsetEnd == uint64_t{1} << 63);
  const uint64_t longest = partition.range_bytes() - 1;
  bool odd = ranges.size() > kCutsMax;
  uint64_t bits = 0;  // of all first and last bytes
  for (const ByteRange& each : ranges) {
    const uint64_t to_last = each.length - 1;
    odd |= to_last >= longest;
    bits |= each.offset | (each.offset + to_last);
  }
  odd |= bits >= kOffsetEnd;
  if (!odd) return {};
  uint64_t cuts = 0;
  for (const ByteRange& each : ranges) {
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

class ClientCore::GetOperation final : public Operation {
 public:
  GetOperation(const Partition& partition, const FileId& file, std::span<const ByteRange> ranges)
      : file_(file) {
    if (partition.servers() > 1) {
      cut(partition, ranges);
    } else if (!ranges.empty()) {  // the only server owns all: nothing is cut
      shares_.push_back({.ranges = {ranges.begin(), ranges.end()}});
      whole_ = true;
    }
  }

  void begin(ClientCore* core) override {
    for (size_t part = 0; part < shares_.size(); ++part) send_rest(core, part);
  }

  Status on_answer(ClientCore* core, size_t part, Bytes response) override {
    Share& share = shares_[part];
    SWALE_ASSIGN_OR_RETURN(Found found, decode_found(response, asked(share)));
    if (share.answered == 0 && found.answered == share.ranges.size()) {
      share.answered = found.answered;
      share.found = std::move(found);
      return {};
    }
    const size_t base = share.found.extents.size();
    for (size_t i = 0; i < found.answered; ++i) share.found.ends.push_back(base + found.ends[i]);
    share.found.extents.insert(share.found.extents.end(), found.extents.begin(), found.extents.end());
    const bool stuck = found.answered == 0 && share.found.extents.size() == base;
    share.answered += found.answered;
    if (share.answered == share.ranges.size()) return {};
    ByteRange& next = share.ranges[share.answered];
    if (found.resume) {
      const uint64_t end = next.offset + next.length;
      if (*found.resume < next.offset || *found.resume >= end || (stuck && *found.resume == next.offset))
        return corruption("an answer to a get: go on at {} in a range that ends at {}", *found.resume, end);
      next = {*found.resume, end - *found.resume};
    }
    send_rest(core, part);
    return {};
  }

  // Puts the pieces of all servers together, in the order of the ranges.
  void end(Finished* out) override {
    for ([[maybe_unused]] const Share& each : shares_)
      assert(each.answered == each.ranges.size() && each.found.ends.size() == each.answered);
    if (whole_) {
      out->found = std::move(shares_[0].found);
      out->found.answered = out->found.ends.size();
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
          append_joined(from.extents[i], first, &out->found.extents);
      }
      out->found.ends.push_back(out->found.extents.size());
    }
    out->found.answered = ends_.size();
  }

 private:
  struct Share {
    Server server = 0;
    std::vector<ByteRange> ranges;
    Found found{};
    size_t answered = 0;
  };

  // Each range at the borders of its servers' ranges.
  void cut(const Partition& partition, std::span<const ByteRange> ranges) {
    std::vector<int32_t> place(partition.servers(), -1);
    for (const ByteRange& range : ranges) {
      uint64_t at = range.offset;
      const uint64_t end = range.offset + range.length;
      while (at < end) {
        const uint64_t some = std::min(end - at, partition.range_bytes() - at % partition.range_bytes());
        const Server server = partition.server_of(file_, at);
        if (place[server] < 0) {
          place[server] = static_cast<int32_t>(shares_.size());
          shares_.emplace_back().server = server;
        }
        const auto share = static_cast<uint32_t>(place[server]);
        shares_[share].ranges.push_back({at, some});
        order_.push_back(share);
        at += some;
      }
      ends_.push_back(order_.size());
    }
    whole_ = shares_.size() == 1 && order_.size() == ends_.size();
  }
  static size_t asked(const Share& share) {
    return std::min(share.ranges.size() - share.answered, kItemsMax);
  }
  void send_rest(ClientCore* core, size_t part) {
    const Share& share = shares_[part];
    const auto rest = std::span(share.ranges).subspan(share.answered, asked(share));
    core->send(this, part, share.server, Method::kGet, encode_get(share.server, file_, kPiecesMax, rest),
               bytes(rest.size()));
  }
  // A small get reserves little, so that many fit into the window of a peer.
  static size_t bytes(size_t ranges) {
    return ranges <= 4 ? kResponseBytesMax / 4 + 4096 : kResponseBytesMax + 2 * kMiB;
  }

  const FileId file_;
  std::vector<Share> shares_;
  bool whole_ = false;           // one share has the ranges as they are
  std::vector<uint32_t> order_;  // the shares of all cuts, in the order of the ranges
  std::vector<size_t> ends_;     // of each range, in order_
};

OperationId ClientCore::get(const FileId& file, std::span<const ByteRange> ranges) {
  assert(check_ranges(partition_, ranges).ok());
  return start(std::make_unique<GetOperation>(partition_, file, ranges));
}

class ClientCore::RunsOperation final : public Operation {
 public:
  RunsOperation(const Partition& partition, const FileId& file, std::span<const Run> queries) : file_(file) {
    if (partition.servers() == 1) {  // it owns all: nothing is cut
      if (!queries.empty()) shares_.push_back({.queries = {queries.begin(), queries.end()}});
      whole_ = true;
      return;
    }
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
    SWALE_ASSIGN_OR_RETURN(FoundRuns some, decode_found_runs(response, share.sent - share.answered));
    if (share.answered == 0) {
      share.found = std::move(some);
      share.answered = share.sent;
      send_next(core, part);
      return {};
    }
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
    if (whole_) {
      if (!shares_.empty()) all = std::move(shares_[0].found);
      return;
    }
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
    Server server = 0;
    std::vector<Run> queries;
    size_t sent = 0, answered = 0;
    FoundRuns found{};
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
    const auto next = std::span(share.queries).subspan(share.sent, some);
    share.sent += some;
    core->send(this, part, share.server, Method::kGetRuns, encode_runs_query(share.server, file_, next),
               kResponseBytesMax);
  }

  const FileId file_;
  std::vector<int32_t> place_;  // of each server among the shares
  std::vector<Share> shares_;
  bool whole_ = false;           // one share has the queries as they are
  std::vector<uint32_t> order_;  // the shares of all parts, in the order of the queries
  std::vector<size_t> ends_;     // of each query, in order_
};

OperationId ClientCore::get_runs(const FileId& file, std::span<const Run> queries) {
  assert(check_queries(partition_, queries).ok());
  return start(std::make_unique<RunsOperation>(partition_, file, queries));
}

}  // namespace swale::meta
