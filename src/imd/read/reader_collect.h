// CollectSink: keeps the hits of a query in memory and gives them out in order, once it has ended well. For
// queries that ask clusters: if one of them turns out to be damaged, nothing of it has been given out, and
// values that stand in parts in several series are joined.
// Threads: one. Memory: all values of the keys that are asked at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imd/read/reader_query.h"

namespace swale::imd {

class CollectSink final : public Query::Sink {
 public:
  bool hit(const Query::Hit& hit) override;
  void clear();

  // Puts the hits in order, by key, epoch and append, and joins parts. kCorruption if a value lacks one.
  Status settle();
  // Gives all hits to `to` until that stops, in this order. Call after settle.
  Status give(Query::Sink& to);

 private:
  struct Kept {
    size_t key_index;
    EpochNumber epoch;
    uint64_t sequence;
    size_t at;  // in bytes_
    size_t size;
    SeriesKind kind;
  };

  // fn(const Kept&, Bytes value) for each hit, joined; false stops.
  template <class Fn>
  Status each(Fn&& fn) const;

  std::vector<Kept> hits_;
  std::string bytes_;
};

}  // namespace swale::imd
