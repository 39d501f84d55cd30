// Dataset: what a benchmark writes, and what is asked for: so many epochs of so many records (workload.h).
// Threads: a value.
#pragma once

#include <cstdint>
#include <utility>

#include "bench/arguments.h"
#include "bench/workload.h"

namespace swale::bench {

struct Dataset {
  uint64_t keys = 0;  // of each epoch
  uint32_t epochs = 1;
  ValueKind values = ValueKind::kWords;
  // the first record of epoch 0 is written with one bit wrong: who checks answers has to see it
  bool canary = false;

  double records() const { return static_cast<double>(keys) * epochs; }
  Value value(uint64_t key, uint32_t epoch) const { return value_of(key, epoch, values); }

  // The n-th key that queries ask for; successive ones are unrelated.
  uint64_t query_key(uint64_t n) const { return mix(n * 0x2545f4914f6cdd1du + 77) % keys; }

  // Ends the program with WRONG ANSWER if these bytes are not the value.
  void expect(uint64_t key, uint32_t epoch, const void* found, size_t bytes) const;

  // fn(const Record&) for the records of an epoch, or a share of them.
  template <class Fn>
  void for_each(uint32_t epoch, Share share, Fn&& fn) const {
    // What most programs time: the choice of the kind is not in its loop.
    if (values == ValueKind::kWords)
      return walk(epoch, share, fn,
                  [](uint64_t key, uint32_t e) { return value_of(key, e, ValueKind::kWords); });
    walk(epoch, share, fn, [this](uint64_t key, uint32_t e) { return value(key, e); });
  }
  template <class Fn>
  void for_each(uint32_t epoch, Fn&& fn) const {
    for_each(epoch, {0, keys}, std::forward<Fn>(fn));
  }

 private:
  template <class Fn, class ValueAt>
  void walk(uint32_t epoch, Share share, Fn& fn, const ValueAt& value_at) const {
    const EpochOrder order(keys, epoch);
    const auto record_at = [&](uint64_t position) {
      const uint64_t key = order.key_at(position);
      return Record{key, value_at(key, epoch)};
    };
    if (canary && epoch == 0 && share.first == 0 && share.last > 0) {
      Record record = record_at(share.first++);
      record.value.back() ^= 1;
      fn(std::as_const(record));
    }
    for (uint64_t position = share.first; position < share.last; ++position) {
      const Record record = record_at(position);
      fn(record);
    }
  }
};

enum class Canary { kRefused, kAllowed };

// --keys N (in each epoch) --epochs N --values words|doubles|floats|particles|trajectories; --canary 1, where
// allowed.
Dataset dataset_of(Arguments& arguments, Canary canary, uint64_t keys = 4'000'000, uint32_t epochs = 5);

}  // namespace swale::bench
