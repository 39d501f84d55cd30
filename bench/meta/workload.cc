#include "bench/meta/workload.h"

#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "bench/arguments.h"

namespace swale::bench {
namespace {

constexpr uint64_t kTileRow = 64;  // elements
constexpr uint64_t kTileElement = 4096;
constexpr uint64_t kTilesAcross = 4;
constexpr uint64_t kBtioPoint = 40;

}  // namespace

Workload::Workload(const std::string& pattern, uint64_t entries, uint64_t clients)
    : pattern_(pattern), entries_(entries), clients_(clients) {
  if (pattern == "btio") {  // as many points as give about `entries` lines: n * n * q of them
    q_ = static_cast<uint64_t>(std::lround(std::sqrt(static_cast<double>(clients))));
    clients_ = q_ * q_;
    points_ =
        static_cast<uint64_t>(std::sqrt(static_cast<double>(entries) / static_cast<double>(q_))) / q_ * q_;
    if (points_ < q_) die("--entries: too few for btio");
    line_ = points_ / q_;
    entries_ = points_ * points_ * q_;
    segment_ = line_ * kBtioPoint;
  } else if (pattern == "tile") {
    clients_ = kTilesAcross * kTilesAcross;
    segment_ = kTileElement;
    entries_ = entries / (clients_ * kTileRow) * (clients_ * kTileRow);
  } else {
    entries_ = entries / clients_ * clients_;
  }
  if (entries_ == 0) die("--entries: too few");
  if (pattern == "random") {
    permutation_.resize(entries_);
    std::iota(permutation_.begin(), permutation_.end(), 0);
    Rng rng(3);
    for (uint64_t i = entries_ - 1; i > 0; --i) std::swap(permutation_[i], permutation_[rng.below(i + 1)]);
    owner_place_.resize(entries_);
    for (uint32_t i = 0; i < entries_; ++i) owner_place_[permutation_[i]] = i;
  } else if (pattern != "strided" && pattern != "tile" && pattern != "btio" && pattern != "segmented") {
    die("--pattern: " + pattern);
  }
  const uint64_t each = entries_ / clients_;
  for (uint64_t first = 0; first < each; first += kMessage) {
    for (uint32_t client = 0; client < clients_; ++client)
      messages_.push_back({client, first, static_cast<uint32_t>(std::min<uint64_t>(kMessage, each - first))});
  }
}

meta::Extent Workload::entry(uint32_t client, uint64_t number) const {
  const uint64_t address = number * segment_;
  uint64_t offset = 0;
  if (pattern_ == "strided") {
    offset = (number * clients_ + client) * segment_;
  } else if (pattern_ == "segmented") {
    offset = (client * (entries_ / clients_) + number) * segment_;
  } else if (pattern_ == "random") {
    offset = uint64_t{permutation_[number * clients_ + client]} * segment_;
  } else if (pattern_ == "tile") {
    const uint64_t x = client % kTilesAcross, y = client / kTilesAcross;
    const uint64_t rows = entries_ / clients_ / kTileRow;
    const uint64_t row = y * rows + number / kTileRow;
    offset = ((row * kTilesAcross + x) * kTileRow + number % kTileRow) * segment_;
  } else {
    const uint64_t cell = number / (line_ * line_), in_cell = number % (line_ * line_);
    const uint64_t i = client / q_, j = client % q_;
    const uint64_t x = (i + cell) % q_, y = (j + cell) % q_;
    const uint64_t z_point = cell * line_ + in_cell / line_, y_point = y * line_ + in_cell % line_;
    offset = ((z_point * points_ + y_point) * points_ + x * line_) * kBtioPoint;
  }
  return {offset, segment_, {client, address}};
}

void Workload::message(uint64_t batch, uint64_t m, std::vector<meta::Extent>* out) const {
  out->clear();
  const uint64_t number = batch * (kBatch / kMessage) + m;
  if (number >= messages_.size()) return;
  const Message& message = messages_[number];
  for (uint32_t i = 0; i < message.count; ++i) out->push_back(entry(message.client, message.first + i));
}

void Workload::gets(uint64_t batch, uint64_t m, std::vector<meta::Extent>* out) const {
  if (pattern_ != "random") return message(batch, m, out);
  out->clear();
  Rng rng(1000 + batch * 64 + m);
  for (size_t i = 0; i < kMessage; ++i) {
    const uint64_t place = owner_place_[rng.below(entries_)];
    out->push_back(entry(static_cast<uint32_t>(place % clients_), place / clients_));
  }
}

}  // namespace swale::bench
