// Layout: the choices that are made once, with a directory, and stand in its swale.json: how blocks are
// compressed and what the index consists of. All but the default exist to be compared with it
// (docs/design/benchmarks.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/codec.h"
#include "run/format.h"

namespace swale::run {

enum class IndexKind : uint8_t {
  kSketch,  // quotiented fingerprints, transposed by slices: filter and exact index in one
  // For comparison only:
  kBloom,         // Bloom filters and block fences, transposed likewise
  kBlockedBloom,  // the same, all bits of a key in one line of 512
  kPapers,        // per run one Bloom filter and all fences, not transposed (deltafs-scaling-2018, Fig. 9)
};

// What travels to the home of a key, and what stays with the rank that appends (deltafs-streaming-2020,
// section 4.2).
enum class ShuffleFormat : uint8_t {
  kBase,      // records move
  kIndirect,  // keys and pointers move; values of 12 bytes and more stay in the writer's value pages
  // records stay in the writer's runs; 34 bits of each key's hash and the rank move, into auxiliary tables
  kLossy,
};

inline constexpr uint32_t kBloomBitsDefault = 10;  // a record; 0: no filter, only fences
inline constexpr uint32_t kBloomBitsMax = 32;

struct Layout {
  Codec compression = Codec::kNone;
  IndexKind index = IndexKind::kSketch;
  uint32_t bloom_bits = kBloomBitsDefault;  // a record; sketches have none
  ShuffleFormat format = ShuffleFormat::kBase;

  // With Bloom filters in place of sketches: for comparison only.
  bool filtered() const { return index != IndexKind::kSketch; }
  // Of compression and index.
  bool standard() const { return compression == Codec::kNone && !filtered(); }
  ValueRule values() const {
    return format == ShuffleFormat::kIndirect ? ValueRule::kPaged : ValueRule::kLarge;
  }
  bool operator==(const Layout& other) const {
    return format == other.format && compression == other.compression && index == other.index &&
           (!filtered() || bloom_bits == other.bloom_bits);
  }
};

constexpr std::string_view kIndexNames[] = {"sketch", "bloom", "blocked_bloom", "papers"};
constexpr std::string_view index_name(IndexKind kind) { return kIndexNames[static_cast<int>(kind)]; }
constexpr std::optional<IndexKind> index_named(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (name == kIndexNames[i]) return static_cast<IndexKind>(i);
  }
  return std::nullopt;
}

constexpr std::string_view kShuffleFormatNames[] = {"base", "indirect", "lossy"};
constexpr std::string_view format_name(ShuffleFormat format) {
  return kShuffleFormatNames[static_cast<int>(format)];
}
constexpr std::optional<ShuffleFormat> format_named(std::string_view name) {
  for (int i = 0; i < 3; ++i) {
    if (name == kShuffleFormatNames[i]) return static_cast<ShuffleFormat>(i);
  }
  return std::nullopt;
}

}  // namespace swale::run
