// Shard: the unit of an auxiliary table that a query reads: some 8,000 to 16,000 keys, or fewer.
//
// A ribbon shard gives each key one source, with fingerprint bits that tell most keys which are not there.
// Further sources of a key are in a maplet after the ribbon (*extras*), which every query asks. A shard with
// few keys or with many extras is a maplet alone.
//
// Invariant: candidates() of a key that was built in names all of its sources, whatever else it names.
// Threads: a ShardBuilder belongs to one thread; a Shard is a view, for one thread at a time.
// Format: docs/formats/source-table.md, "Shard".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "source/cuckoo.h"
#include "source/maplet.h"
#include "source/ribbon.h"
#include "source/table_format.h"

namespace swale::source {

inline constexpr uint32_t kRibbonKeysMin = 500;    // fewer are a maplet
inline constexpr uint32_t kExtrasPercentMax = 30;  // more are a maplet

// The value that a ribbon stores: the source, and a fingerprint of the key in what is left of value_bits.
// With a count of sources that is no power of two, the fingerprint has a fraction of a bit more.
class ValueCode {
 public:
  explicit ValueCode(const TableParams& params)
      : sources_(params.sources), fingerprints_((uint64_t{1} << params.value_bits()) / params.sources) {}

  uint32_t encode(uint64_t fraction, uint32_t source) const {
    return static_cast<uint32_t>(source + sources_ * fingerprint(fraction));
  }
  // False if the value cannot be this key's.
  bool decode(uint64_t fraction, uint32_t value, uint32_t* source) const {
    const uint64_t found = value / sources_;
    *source = static_cast<uint32_t>(value - found * sources_);
    return found == fingerprint(fraction);
  }

 private:
  uint64_t fingerprint(uint64_t fraction) const {
    return high_product(next_fraction(fraction, 77), fingerprints_);
  }

  uint64_t sources_;
  uint64_t fingerprints_;
};

// The hash within its shard, as a fraction of 2^64.
constexpr uint64_t shard_fraction(uint64_t kept, uint32_t shard_bits) {
  return shard_bits >= kHashBits ? 0 : kept << (kSourceBits + shard_bits);
}
constexpr uint32_t shard_number(uint64_t kept, uint32_t shard_bits) {
  return static_cast<uint32_t>(kept >> (kHashBits - shard_bits));
}

class ShardBuilder {
 public:
  ShardBuilder(const TableParams& params, uint32_t shard_bits) : params_(params), shard_bits_(shard_bits) {}

  struct Counts {
    uint32_t keys = 0;
    uint32_t extras = 0;
    uint32_t bumped = 0;  // to the second or third layer
  };
  // Replaces *out by the shard of these pairs, which are sorted and all different. Throws std::bad_alloc.
  Counts build(std::span<const Pair> pairs, uint32_t number, std::string* out);

 private:
  void split(std::span<const Pair> pairs);
  bool append_ribbon(ShardHeader* header, Counts* counts, std::string* out);
  bool append_last_layer(std::span<const RibbonKey> keys, ShardHeader* header, std::string* out);
  void append_all_as_maplet(std::span<const Pair> pairs, ShardHeader* header, std::string* out);

  TableParams params_;
  uint32_t shard_bits_;
  RibbonSolver solver_;
  std::vector<RibbonKey> keys_;  // the first source of each key
  std::vector<MapletEntry> extras_;
  std::vector<RibbonKey> bumped_;
  std::vector<RibbonKey> layer_;
  std::vector<RibbonKey> last_;
};

// A cuckoo table as a shard.
void build_cuckoo_shard(const CuckooTable& table, const TableParams& params, uint32_t number,
                        std::string* out);

class Shard {
 public:
  // `bytes` are all of the shard, and must outlive this. kCorruption names `where`.
  static Result<Shard> open(Bytes bytes, const TableParams& params, uint32_t shard_bits, uint32_t number,
                            std::string_view where);

  // Appends the sources that may have the key; doubles are possible.
  void candidates(uint64_t kept, std::vector<uint32_t>* out) const;

  const ShardHeader& header() const { return header_; }

 private:
  struct Layer {
    const char* thresholds = nullptr;
    const char* rows = nullptr;
  };

  Shard(const TableParams& params, uint32_t shard_bits, const ShardHeader& header)
      : code_(params), value_bits_(params.value_bits()), shard_bits_(shard_bits), header_(header) {}

  bool place_ribbon(Bytes body, const TableParams& params);
  bool place_maplet(Bytes body, const TableParams& params);
  bool place_cuckoo(Bytes body, const TableParams& params);
  bool ribbon_answer(uint64_t fraction, uint32_t* value) const;

  ValueCode code_;
  uint32_t value_bits_;
  uint32_t shard_bits_;
  ShardHeader header_;
  Layer layers_[3];
  MapletView maplet_;  // extras of a ribbon shard, or all of a maplet shard
  CuckooShape cuckoo_;
  const char* body_ = nullptr;
};

}  // namespace swale::source
