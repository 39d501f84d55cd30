#include "meta/index/run_layers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "meta/index/relocation.h"

namespace swale::meta {
namespace {

// Third levels of counts up to here are taken apart: the cells of a process of BTIO (20 in class E) stand in
// a diagonal, whose stride differs from process to process; their lines and planes are the same for all.
constexpr uint64_t kApartMax = 64;

bool ranges_meet(uint64_t a, uint64_t a_count, uint64_t b, uint64_t b_count) {
  return a < b + b_count && b < a + a_count;
}
bool range_covers(uint64_t outer, uint64_t outer_count, uint64_t inner, uint64_t inner_count) {
  return outer <= inner && inner + inner_count <= outer + outer_count;
}

Run item_of(const Run& run, uint64_t index) {
  Run item = run;
  const Level level = run.level[run.levels - 1];
  item.levels = run.levels - 1;
  item.level[item.levels] = {};
  item.offset += index * level.stride;
  item.place.address += index * level.address_stride;
  return item;
}

}  // namespace

RunLayers::Coordinates RunLayers::Layer::coordinates(uint64_t offset) const {
  Coordinates found;
  uint64_t rest = offset + shift;
  for (uint32_t l = levels; l-- > 0;) {
    found.at[l] = rest / stride[l];
    rest -= found.at[l] * stride[l];
  }
  found.phase = rest;
  return found;
}

bool RunLayers::Layer::box_of(const Run& run, Coordinates* at, Box* box) const {
  *at = coordinates(run.offset);
  uint64_t inner = at->phase + run.length;
  uint32_t taken = 0;  // levels of the run that have a level of the grid
  for (uint32_t l = 0; l < kRunLevels; ++l) {
    box->first[l] = at->at[l];
    box->count[l] = 1;
    box->address_stride[l] = 0;
    if (l >= levels) continue;
    if (inner > stride[l]) return false;
    if (taken < run.levels && run.level[taken].stride == stride[l]) {
      box->count[l] = run.level[taken].count;
      box->address_stride[l] = run.level[taken++].address_stride;
    }
    inner += (box->first[l] + box->count[l] - 1) * stride[l];
  }
  if (taken != run.levels) return false;
  box->length = run.length;
  box->place = run.place;
  return true;
}

Run RunLayers::Layer::run_of(uint64_t phase, const Box& box) const {
  Run run;
  run.offset = phase - shift;
  for (uint32_t l = 0; l < levels; ++l) {
    run.offset += box.first[l] * stride[l];
    if (box.count[l] > 1) run.level[run.levels++] = {box.count[l], stride[l], box.address_stride[l]};
  }
  run.length = box.length;
  run.place = box.place;
  return run;
}

template <class Visit>
void RunLayers::Layer::visit(uint64_t phase, const Box& box, const Visit& visit) const {
  const uint32_t top = levels - 1;
  const auto after = std::lower_bound(phases.begin(), phases.end(), phase + box.length,
                                      [](const Phase& p, uint64_t wanted) { return p.phase < wanted; });
  for (auto n = static_cast<size_t>(after - phases.begin()); n-- > 0;) {
    const Phase* const p = &phases[n];
    if (p->phase + length_max <= phase) break;
    const auto last =
        std::lower_bound(p->boxes.begin(), p->boxes.end(), box.first[top] + box.count[top],
                         [top](const Box& b, uint64_t wanted) { return b.first[top] < wanted; });
    for (auto i = static_cast<size_t>(last - p->boxes.begin()); i-- > 0;) {
      if (p->end_max[i] <= box.first[top]) break;
      const Box& other = p->boxes[i];
      bool meet = ranges_meet(p->phase, other.length, phase, box.length);
      for (uint32_t l = 0; l < levels; ++l)
        meet = meet && ranges_meet(other.first[l], other.count[l], box.first[l], box.count[l]);
      if (meet && !visit(n, i)) return;
    }
  }
}

namespace {

template <class Box>
bool covers(uint32_t levels, uint64_t phase, const Box& box, uint64_t inner_phase, const Box& inner) {
  if (!range_covers(phase, box.length, inner_phase, inner.length)) return false;
  for (uint32_t l = 0; l < levels; ++l) {
    if (!range_covers(box.first[l], box.count[l], inner.first[l], inner.count[l])) return false;
  }
  return true;
}

}  // namespace

bool RunLayers::Layer::disjoint(uint64_t phase, const Box& box) const {
  bool all_covered = true;
  visit(phase, box, [&](size_t p, size_t i) {
    return all_covered = covers(levels, phase, box, phases[p].phase, phases[p].boxes[i]);
  });
  return all_covered;
}

void RunLayers::Layer::drop_covered(uint64_t phase, const Box& box) {
  std::vector<std::pair<size_t, size_t>> found;
  visit(phase, box, [&](size_t p, size_t i) {
    found.emplace_back(p, i);
    return true;
  });
  if (found.empty()) return;
  std::sort(found.begin(), found.end());
  // Positions ascend within a phase: move what stays to the front.
  for (size_t f = 0; f < found.size();) {
    Phase& in = phases[found[f].first];
    size_t kept = found[f].second;
    for (size_t i = kept; i < in.boxes.size(); ++i) {
      if (f < found.size() && &phases[found[f].first] == &in && found[f].second == i) {
        ++f;
      } else {
        in.boxes[kept++] = in.boxes[i];
      }
    }
    in.boxes.resize(kept);
    in.end_max.resize(kept);
    uint64_t most = 0;
    for (size_t i = 0; i < kept; ++i) {
      most = std::max(most, in.boxes[i].first[levels - 1] + in.boxes[i].count[levels - 1]);
      in.end_max[i] = most;
    }
  }
  std::erase_if(phases, [](const Phase& p) { return p.boxes.empty(); });
}

void RunLayers::Layer::add(uint64_t phase, const Box& box) {
  auto p = std::lower_bound(phases.begin(), phases.end(), phase,
                            [](const Phase& a, uint64_t wanted) { return a.phase < wanted; });
  if (p == phases.end() || p->phase != phase) p = phases.insert(p, Phase{phase, {}, {}});
  const uint32_t top = levels - 1;
  p->boxes.reserve(p->boxes.size() + 1);
  p->end_max.reserve(p->end_max.size() + 1);
  const auto at = std::upper_bound(p->boxes.begin(), p->boxes.end(), box.first[top],
                                   [top](uint64_t wanted, const Box& b) { return wanted < b.first[top]; });
  auto i = static_cast<size_t>(at - p->boxes.begin());
  p->boxes.insert(at, box);
  p->end_max.push_back(0);
  uint64_t most = i == 0 ? 0 : p->end_max[i - 1];
  for (; i < p->boxes.size(); ++i) {
    most = std::max(most, p->boxes[i].first[top] + p->boxes[i].count[top]);
    p->end_max[i] = most;
  }
  const Run run = run_of(phase, box);
  const bool first = begin == end;
  begin = first ? run.offset : std::min(begin, run.offset);
  end = first ? end_of(run) : std::max(end, end_of(run));
  length_max = std::max(length_max, box.length);
}

// Whether the box continues another one, and is part of it now.
bool RunLayers::Layer::join(uint64_t phase, const Box& box, Sequence quiet_since) {
  const auto p = std::lower_bound(phases.begin(), phases.end(), phase,
                                  [](const Phase& a, uint64_t wanted) { return a.phase < wanted; });
  if (p == phases.end() || p->phase != phase) return false;
  const uint32_t top = levels - 1;
  const auto after = std::upper_bound(p->boxes.begin(), p->boxes.end(), box.first[top],
                                      [top](uint64_t wanted, const Box& b) { return wanted < b.first[top]; });
  if (after == p->boxes.begin()) return false;
  Box& before = after[-1];
  bool same = before.sequence > quiet_since && before.length == box.length &&
              before.place.log == box.place.log && before.first[top] + before.count[top] == box.first[top];
  for (uint32_t l = 0; l < top; ++l) {
    same = same && before.first[l] == box.first[l] && before.count[l] == box.count[l] &&
           before.address_stride[l] == box.address_stride[l];
  }
  if (!same) return false;
  const uint64_t distance = box.place.address - before.place.address;
  uint64_t step = before.count[top] > 1 ? before.address_stride[top] : 0;
  if (before.count[top] == 1) {
    step = box.count[top] > 1 ? box.address_stride[top] : distance;
  }
  if ((box.count[top] > 1 && box.address_stride[top] != step) || distance != step * before.count[top])
    return false;
  before.address_stride[top] = step;
  before.count[top] += box.count[top];
  before.sequence = box.sequence;
  const uint64_t box_end = before.first[top] + before.count[top];
  for (auto i = static_cast<size_t>(after - p->boxes.begin()) - 1; i < p->end_max.size(); ++i)
    p->end_max[i] = std::max(p->end_max[i], box_end);
  end = std::max(end, end_of(run_of(phase, before)));
  return true;
}

// The grid of offset 0 if the run is a box of it, else the grid that begins with the run.
RunLayers::Layer RunLayers::layer_for(const Run& run) {
  Layer layer;
  layer.levels = std::max<uint32_t>(1, run.levels);
  // A single block is what a truncate left of a run.
  layer.stride[0] = 2 * std::bit_ceil(run.length);
  for (uint32_t l = 0; l < run.levels; ++l) layer.stride[l] = run.level[l].stride;
  Coordinates at;
  Box box;
  if (!layer.box_of(run, &at, &box)) {
    const uint64_t top = layer.stride[layer.levels - 1];
    layer.shift = top - run.offset % top;
  }
  return layer;
}

bool RunLayers::accepts(const Layer& layer, const Run& run) const {
  Coordinates at;
  Box box;
  return layer.box_of(run, &at, &box) && layer.disjoint(at.phase, box);
}

size_t RunLayers::layers_over(uint64_t begin, uint64_t end) const {
  return static_cast<size_t>(std::count_if(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    return layer.begin < end && begin < layer.end;
  }));
}

bool RunLayers::taken_apart(const Run& run) {
  return run.levels == kRunLevels && run.level[run.levels - 1].count <= kApartMax;
}

bool RunLayers::fits(const Run& run, unsigned layers_max) const {
  for (const Layer& layer : layers_) {
    if (accepts(layer, run)) return true;
  }
  if (layers_over(run.offset, end_of(run)) < layers_max) return true;
  if (!taken_apart(run)) return false;
  for (uint64_t i = 0; i < run.level[run.levels - 1].count; ++i) {
    if (!fits(item_of(run, i), layers_max)) return false;
  }
  return true;
}

void RunLayers::insert(const Run& run, Sequence sequence, Sequence quiet_since) {
  Layer* chosen = nullptr;
  for (Layer& layer : layers_) {
    if (accepts(layer, run)) {
      chosen = &layer;
      break;
    }
  }
  if (chosen == nullptr) {
    if (taken_apart(run)) {
      for (uint64_t i = 0; i < run.level[run.levels - 1].count; ++i)
        insert(item_of(run, i), sequence, quiet_since);
      return;
    }
    layers_.push_back(layer_for(run));
    chosen = &layers_.back();
  }
  Coordinates at;
  Box box;
  chosen->box_of(run, &at, &box);
  box.sequence = sequence;
  chosen->drop_covered(at.phase, box);
  if (layers_.size() == 1 && chosen->join(at.phase, box, quiet_since)) return;
  chosen->add(at.phase, box);
}

void RunLayers::relocate(std::span<const SequencedRelocation> rules) {
  for (Layer& layer : layers_) {
    for (Phase& phase : layer.phases) {
      for (Box& box : phase.boxes)
        rules_for_whole(rules, layer.run_of(phase.phase, box), box.sequence, &box.place);
    }
  }
}

void RunLayers::truncate(uint64_t size) {
  std::vector<Run> parts;
  for (Layer& layer : layers_) {
    if (layer.end <= size) continue;
    Layer kept;
    kept.levels = layer.levels, kept.stride = layer.stride, kept.shift = layer.shift;
    for (const Phase& phase : layer.phases) {
      for (const Box& box : phase.boxes) {
        parts.clear();
        clip(layer.run_of(phase.phase, box), 0, size, &parts);
        for (const Run& part : parts) {  // each is a box inside the old one
          Coordinates at;
          Box cut;
          if (!kept.box_of(part, &at, &cut)) continue;
          cut.sequence = box.sequence;
          kept.add(at.phase, cut);
        }
      }
    }
    layer = std::move(kept);
  }
  std::erase_if(layers_, [](const Layer& layer) { return layer.phases.empty(); });
}

void RunLayers::find(uint64_t begin, uint64_t end, std::vector<StoredRun>* out) const {
  for (const Layer& layer : layers_) {
    if (layer.begin >= end || begin >= layer.end) continue;
    Run range;
    range.offset = begin;
    range.length = end - begin;
    Coordinates at;
    Box box;
    if (layer.box_of(range, &at, &box)) {
      layer.visit(at.phase, box, [&](size_t p, size_t i) {
        const Box& found = layer.phases[p].boxes[i];
        out->push_back({layer.run_of(layer.phases[p].phase, found), found.sequence});
        return true;
      });
      continue;
    }
    for (const Phase& phase : layer.phases) {
      for (const Box& one : phase.boxes) {
        const Run run = layer.run_of(phase.phase, one);
        if (touches(run, begin, end)) out->push_back({run, one.sequence});
      }
    }
  }
}

RunLayers::Cut RunLayers::intersect(const Run& query, std::vector<StoredRun>* out) const {
  const Layer* only = nullptr;
  const uint64_t end = end_of(query);
  for (const Layer& layer : layers_) {
    if (layer.begin >= end || query.offset >= layer.end) continue;
    if (only != nullptr) return Cut::kOther;
    only = &layer;
  }
  if (only == nullptr) return Cut::kExact;
  Coordinates at;
  Box box;
  if (!only->box_of(query, &at, &box)) return Cut::kOther;
  only->visit(at.phase, box, [&](size_t p, size_t i) {
    const uint64_t phase = only->phases[p].phase;
    const Box& found = only->phases[p].boxes[i];
    Box part = found;
    const uint64_t from = std::max(phase, at.phase);
    part.length = std::min(phase + found.length, at.phase + box.length) - from;
    part.place.address += from - phase;
    for (uint32_t l = 0; l < only->levels; ++l) {
      part.first[l] = std::max(found.first[l], box.first[l]);
      part.count[l] = std::min(found.first[l] + found.count[l], box.first[l] + box.count[l]) - part.first[l];
      part.place.address += (part.first[l] - found.first[l]) * found.address_stride[l];
    }
    out->push_back({only->run_of(from, part), found.sequence});
    return true;
  });
  return Cut::kExact;
}

size_t RunLayers::runs() const {
  size_t count = 0;
  for (const Layer& layer : layers_) {
    for (const Phase& phase : layer.phases) count += phase.boxes.size();
  }
  return count;
}

size_t RunLayers::memory_bytes() const {
  size_t bytes = layers_.capacity() * sizeof(Layer);
  for (const Layer& layer : layers_) {
    bytes += layer.phases.capacity() * sizeof(Phase);
    for (const Phase& phase : layer.phases)
      bytes += phase.boxes.capacity() * sizeof(Box) + phase.end_max.capacity() * sizeof(uint64_t);
  }
  return bytes;
}

}  // namespace swale::meta
