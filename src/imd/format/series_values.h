// SeriesValues: takes the series of a cluster in order and gives the values that they hold, each whole: parts
// of a value that stand in several series of its key are joined.
// Threads: one. Memory: one value.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "imd/format/series.h"

namespace swale::imd {

class SeriesValues {
 public:
  // `epochs`: of the cluster.
  explicit SeriesValues(uint32_t epochs) : epochs_(epochs) {}

  // Calls fn(const SeriesValue&) for each value that ends in this series; none is of the kind kContinues.
  // False: it is no series, or does not continue what the one before has begun.
  template <class Fn>
  bool take(Bytes key, Bytes series, Fn&& fn) {
    bool right = !waits_ || key == key_;
    const bool known = walk_series(series, epochs_, [&](const SeriesValue& value) {
      if (waits_) right = right && value.index == index_;
      if (!right) return;
      if (waits_) front_.append(value.bytes);
      if (value.kind == SeriesKind::kContinues) return wait(key, value);
      fn(SeriesValue{value.index, value.kind, waits_ ? Bytes(front_) : value.bytes});
      waits_ = false;
    });
    return known && right;
  }
  // No value waits for its end.
  bool complete() const { return !waits_; }
  // After damage: what waits has no end.
  void forget() { waits_ = false; }

 private:
  void wait(Bytes key, const SeriesValue& value) {
    if (!waits_) front_.assign(value.bytes);
    waits_ = true;
    key_.assign(key);
    index_ = value.index;
  }

  const uint32_t epochs_;
  bool waits_ = false;
  std::string key_;  // of the value that waits
  uint32_t index_ = 0;
  std::string front_;
};

}  // namespace swale::imd
