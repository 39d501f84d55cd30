#include "bench/tier/replay.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "bench/tier/bed.h"

namespace swale::tierbench {
namespace {

using Kind = tier::TraceRecord::Kind;

constexpr uint64_t kPartBytes = 256 * kKiB;  // as tier::serving_options
constexpr tier::Ticket kDrain = ~tier::Ticket{0} - 1;

// The trace's requests with files numbered from 0, each life of an inode one of them, and no longer than
// kPartBytes.
struct Requests {
  std::vector<tier::TraceRecord> list;
  std::vector<uint64_t> ends;  // by file

  explicit Requests(const std::vector<tier::TraceRecord>& records) {
    std::unordered_map<uint64_t, uint64_t> numbers;
    for (const tier::TraceRecord& record : records) {
      if (record.kind == Kind::kRename) continue;  // the engine knows no names
      const bool gone = record.kind == Kind::kUnlink && record.offset == 0;
      if (record.kind == Kind::kUnlink && !gone) continue;
      const auto [number, made] = numbers.try_emplace(record.file, ends.size());
      if (made) ends.push_back(0);
      add(record, number->second);
      if (gone) numbers.erase(number);
    }
  }

 private:
  void add(tier::TraceRecord record, uint64_t number) {
    record.file = number;
    const bool bytes = record.kind == Kind::kRead || record.kind == Kind::kWrite;
    if (!bytes) return list.push_back(record);
    if (record.offset >= tier::kFileBytesMax) return;
    const uint64_t end = record.offset + std::min(record.length, tier::kFileBytesMax - record.offset);
    ends[number] = std::max(ends[number], end);
    for (uint64_t at = record.offset; at < end; at += kPartBytes) {
      record.offset = at;
      record.length = std::min(kPartBytes, end - at);
      list.push_back(record);
    }
  }
};

class Replay {
 public:
  Replay(const io::Testbed& bed, const tier::Options& options, const Requests& requests,
         const ReplayOptions& how)
      : requests_(requests.list),
        how_(how),
        begun_(requests.list.size(), 0),
        bed_(bed, options, [this](tier::Ticket ticket) { acknowledge(ticket); }) {
    uint64_t base = 0;
    for (size_t file = 0; file < requests.ends.size(); ++file) {
      static_cast<void>(bed_.engine().open_file(file + 1, base, 0));
      base += round_up(requests.ends[file], kMiB);
    }
  }

  Replayed run() {
    while (!drained_) {
      Nanos next = bed_.next_event();
      if (may_begin()) next = std::min(next, std::max(now_, start_of(next_)));
      if (next == kForever) {
        std::fprintf(stderr, "bench_tier: the replay is stuck at request %zu: %s\n", next_,
                     bed_.engine().describe().c_str());
        std::abort();
      }
      now_ = std::max(now_, next);
      bed_.step(now_);
      while (may_begin() && start_of(next_) <= now_) begin(next_++);
      if (next_ < requests_.size() || under_way_ > 0 || draining_) continue;
      draining_ = true;
      result_.acknowledged_s = to_seconds(now_);
      bed_.engine().drain(kDrain, now_);
      bed_.carry_out(now_);
    }
    result_.drained_s = to_seconds(now_);
    result_.requests = requests_.size();
    result_.wait_mean_ms = waits_ / 1e6 / static_cast<double>(std::max<size_t>(1, requests_.size()));
    result_.stats = bed_.engine().stats();
    return result_;
  }

 private:
  bool may_begin() const { return next_ < requests_.size() && under_way_ < how_.in_flight; }
  Nanos start_of(size_t index) const {
    return how_.speed <= 0 ? 0 : static_cast<Nanos>(static_cast<double>(requests_[index].time) / how_.speed);
  }

  void begin(size_t index) {
    const tier::TraceRecord& request = requests_[index];
    const auto file = static_cast<tier::FileIndex>(request.file);
    tier::Engine& engine = bed_.engine();
    ++under_way_;
    begun_[index] = now_;
    switch (request.kind) {
      case Kind::kRead:
        result_.read_bytes += request.length;
        return bed_.read(index, file, request.offset, request.length, now_);
      case Kind::kWrite:
        engine.write(index, file, request.offset, static_cast<uint32_t>(std::min(request.length, kPartBytes)),
                     now_);
        break;
      case Kind::kTruncate:
        engine.truncate(index, file, request.offset, now_);
        break;
      case Kind::kUnlink:
        engine.unlink(index, file, now_);
        break;
      case Kind::kSync:
      case Kind::kRename:
        engine.sync(index, file, now_);
        break;
    }
    bed_.carry_out(now_);
  }

  void acknowledge(tier::Ticket ticket) {
    if (ticket == kDrain) {
      drained_ = true;
      return;
    }
    if (ticket >= requests_.size()) return;  // the engine's own
    --under_way_;
    const auto wait = static_cast<double>(now_ - begun_[ticket]);
    waits_ += wait;
    result_.wait_max_ms = std::max(result_.wait_max_ms, wait / 1e6);
  }

  const std::vector<tier::TraceRecord>& requests_;
  const ReplayOptions& how_;
  std::vector<Nanos> begun_;
  Bed bed_;
  size_t next_ = 0;
  uint32_t under_way_ = 0;
  Nanos now_ = 0;
  bool draining_ = false;
  bool drained_ = false;
  double waits_ = 0;
  Replayed result_;
};

}  // namespace

Replayed replay(const io::Testbed& bed, const tier::Options& options,
                const std::vector<tier::TraceRecord>& records, const ReplayOptions& how) {
  const Requests requests(records);
  return Replay(bed, options, requests, how).run();
}

}  // namespace swale::tierbench
