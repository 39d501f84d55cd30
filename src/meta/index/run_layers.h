// RunLayers: the regular runs of one file, whole, in layers of boxes.
//
// A layer has the strides of its runs. They turn a file offset into coordinates: with strides s2 > s1 > s0,
// offset x is (x / s2, rest / s1, rest / s0, rest). A run that crosses no border of that grid is a box: a
// range of each coordinate. Boxes have a byte in common exactly if their ranges do, whatever their counts:
// two lattices are compared by arithmetic, never block by block. Boxes of one layer are disjoint, so a lookup
// meets at most one run a layer for each byte, and finds it by two searches: by phase (the last coordinate),
// then by the first one.
//
//   strided by 16 clients: 1 layer, 16 phases, 1 box each.    4 x 4 tiles: 1 layer, 4 phases, 4 boxes each.
//   BTIO, q x q processes: 1 layer of planes and lines, q phases with q * q boxes each.
//
// A run that fits no layer's grid begins a layer. A third level of a small count is taken apart first.
//
// Threads: one at a time. Errors: std::bad_alloc leaves the layers as they were, or with a part of the run
// inserted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "meta/index/lattice.h"
#include "meta/index/log.h"

namespace swale::meta {

struct StoredRun {
  Run run;
  Sequence sequence = 0;
};

class RunLayers {
 public:
  // Whether the run can be inserted with at most layers_max layers above one another in its range.
  bool fits(const Run& run, unsigned layers_max) const;

  // Later sequences win. Older runs that the new one covers whole are dropped. If nothing but runs of this
  // object was put into the file since `quiet_since`, the run may be joined with the one that it continues.
  void insert(const Run& run, Sequence sequence, Sequence quiet_since);

  // Drops bytes at and after `size`.
  void truncate(uint64_t size);

  // Puts rules into effect that move each run whole or not at all (rules_for_whole). Allocates nothing.
  void relocate(std::span<const SequencedRelocation> rules);

  // Appends all runs that have a byte in [begin, end).
  void find(uint64_t begin, uint64_t end, std::vector<StoredRun>* out) const;

  enum class Cut { kExact, kOther };
  // Appends the parts of runs that have bytes of the query's blocks: disjoint ones, if one layer at most has
  // runs in the query's range. kOther: the query has another shape, or several layers do; nothing was
  // appended.
  Cut intersect(const Run& query, std::vector<StoredRun>* out) const;

  bool empty() const { return layers_.empty(); }
  size_t runs() const;
  size_t layers() const { return layers_.size(); }
  size_t memory_bytes() const;
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Layer& layer : layers_) {
      for (const Phase& phase : layer.phases) {
        for (const Box& box : phase.boxes) visit(layer.run_of(phase.phase, box), box.sequence);
      }
    }
  }

 private:
  using Counts = std::array<uint64_t, kRunLevels>;

  struct Box {
    Counts first;  // coordinates of the first block, innermost first
    Counts count;  // 1 where the run has no such level
    Counts address_stride;
    uint64_t length;
    Place place;
    Sequence sequence;
  };
  struct Coordinates {
    Counts at{};
    uint64_t phase = 0;
  };
  // Boxes whose blocks begin at one phase, by their first outermost coordinate.
  struct Phase {
    uint64_t phase = 0;
    std::vector<Box> boxes;
    std::vector<uint64_t> end_max;  // of the outermost coordinate, among boxes[0..i]
  };
  struct Layer {
    uint32_t levels = 0;
    Counts stride{};
    uint64_t shift = 0;       // added to offsets before they are taken apart
    uint64_t length_max = 0;  // of blocks
    uint64_t begin = 0, end = 0;
    std::vector<Phase> phases;

    Coordinates coordinates(uint64_t offset) const;
    // False if the run is no box of this grid. It may have fewer levels than the layer.
    bool box_of(const Run& run, Coordinates* at, Box* box) const;
    Run run_of(uint64_t phase, const Box& box) const;
    // Calls visit(phase index, box index) for each box that has a byte in common; stops if it returns false.
    template <class Visit>
    void visit(uint64_t phase, const Box& box, const Visit& visit) const;
    bool disjoint(uint64_t phase, const Box& box) const;  // from all boxes that it does not cover whole
    void drop_covered(uint64_t phase, const Box& box);
    void add(uint64_t phase, const Box& box);
    bool join(uint64_t phase, const Box& box, Sequence quiet_since);
  };

  bool accepts(const Layer& layer, const Run& run) const;
  size_t layers_over(uint64_t begin, uint64_t end) const;
  static bool taken_apart(const Run& run);
  static Layer layer_for(const Run& run);

  std::vector<Layer> layers_;
};

}  // namespace swale::meta
