// The records that every benchmark writes and every answer is checked against: pure functions of (key,
// epoch).
//
// Each epoch holds the keys 0..keys-1 once, as 8 bytes, in a pseudo-random order of its own. A value has 40
// bytes: unless stated, a double in [1, 2), the field that top-k asks for, and four words that do not
// compress.
//
// Threads: values and pure functions.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace swale::bench {

constexpr size_t kKeyBytes = 8;
constexpr size_t kValueWords = 5;
constexpr size_t kValueBytes = kValueWords * 8;
constexpr size_t kRecordBytes = kKeyBytes + kValueBytes;

using Value = std::array<uint64_t, kValueWords>;

struct Record {
  uint64_t key = 0;
  Value value = {};
};
static_assert(sizeof(Record) == kRecordBytes);

inline uint64_t mix(uint64_t x) {  // splitmix64's finalizer
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

enum class ValueKind {
  kWords,         // a double in [1, 2) and four words: what no codec makes smaller
  kDoubles,       // five doubles from 0 to 100
  kFloats,        // ten floats from 0 to 100
  kParticles,     // position and velocity as floats, a type of 4, an image of 5 in each direction
  kTrajectories,  // particles that swing about their places: what an epoch has is near what the last one had
};
inline constexpr const char* kValueKindNames[] = {"words", "doubles", "floats", "particles", "trajectories"};

inline Value words_of(uint64_t seed) {
  return {(seed >> 12) | (uint64_t{1023} << 52), seed * 0xd6e8feb86659fd93u,
          std::rotl(seed, 23) * 0xa0761d6478bd642fu, std::rotl(seed, 41) * 0xe7037ed1a0b428dbu,
          seed ^ 0x8ebc6af09c88c6e3u};
}

// Words that follow from the seed independently of one another, so that making a record takes as long beside
// an append as alone: what the other kinds are made of.
inline Value mixed_words_of(uint64_t seed) {
  Value words;
  for (size_t i = 0; i < kValueWords; ++i) words[i] = mix(seed + i);
  return words;
}

inline Value doubles_of(uint64_t seed) {
  Value value = mixed_words_of(seed);
  for (uint64_t& word : value)
    word = std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(word >> 11)) * 0x1p-53 * 100);
  return value;
}

// 0 to 1 from the lowest 24 bits.
inline float float_of(uint64_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits & 0xffffff)) * 0x1p-24f;
}

inline Value floats_of(uint64_t seed) {
  const Value words = mixed_words_of(seed);
  std::array<float, 2 * kValueWords> fields;
  for (size_t i = 0; i < fields.size(); ++i) fields[i] = 100 * float_of(words[i / 2] >> (i % 2 * 32));
  return std::bit_cast<Value>(fields);
}

inline Value particle_of(uint64_t seed) {
  struct {
    float position[3], velocity[3];
    int32_t type, image[3];
  } fields;
  const Value words = mixed_words_of(seed);
  for (size_t axis = 0; axis < 3; ++axis) {
    fields.position[axis] = 100 * float_of(words[axis]);
    // The sum of three is nearly normal.
    fields.velocity[axis] = float_of(words[axis] >> 32) + float_of(words[3] >> (13 * axis)) +
                            float_of(words[4] >> (13 * axis)) - 1.5f;
    fields.image[axis] = static_cast<int32_t>((words[axis] >> 24) % 5) - 2;
  }
  fields.type = static_cast<int32_t>(words[3] >> 62);
  return std::bit_cast<Value>(fields);
}

// An atom of a solid in frames of which ten to thirty make a swing: as the demo's (examples/lammps/record.h),
// its position, velocity and energy as floats, a type of 2, the step.
inline Value trajectory_of(uint64_t key, uint32_t epoch) {
  struct {
    float position[3], velocity[3], energy;
    int32_t type;
    int64_t step;
  } fields;
  float energy = 0;
  for (uint64_t axis = 0; axis < 3; ++axis) {
    const uint64_t home = mix(3 * key + axis + 1);
    const float swing = 0.2f + 0.4f * float_of(home >> 24);  // radians an epoch
    const float phase = 6.28f * float_of(home >> 40) + swing * static_cast<float>(epoch);
    const float reach = 0.05f + 0.1f * float_of(home >> 12);
    fields.position[axis] = 100 * float_of(home) + reach * std::cos(phase);
    fields.velocity[axis] = -20 * reach * swing * std::sin(phase);
    energy += fields.velocity[axis] * fields.velocity[axis] / 2;
  }
  fields.energy = energy;
  fields.type = static_cast<int32_t>(mix(key) % 10 == 0) + 1;
  fields.step = int64_t{100} * epoch;
  return std::bit_cast<Value>(fields);
}

inline Value value_of(uint64_t key, uint32_t epoch, ValueKind kind) {
  const uint64_t seed = mix(key * 0x9e3779b97f4a7c15u + epoch + 1);
  switch (kind) {
    case ValueKind::kDoubles:
      return doubles_of(seed);
    case ValueKind::kFloats:
      return floats_of(seed);
    case ValueKind::kParticles:
      return particle_of(seed);
    case ValueKind::kTrajectories:
      return trajectory_of(key, epoch);
    default:
      return words_of(seed);
  }
}

inline double field_of(const Value& value) { return std::bit_cast<double>(value[0]); }

// The order of an epoch's keys: a bijection of 0..keys-1, made of multiplications and shifts that are
// bijections of the next power of two; what falls outside walks on.
class EpochOrder {
 public:
  EpochOrder(uint64_t keys, uint32_t epoch)
      : keys_(keys),
        mask_(std::bit_ceil(keys < 4 ? 4 : keys) - 1),
        shift_(static_cast<int>(std::bit_width(mask_) + 1) / 2),
        seed_(mix(epoch + 1000)) {}

  uint64_t key_at(uint64_t position) const {
    uint64_t x = position;
    do {
      x = (x ^ seed_) & mask_;
      x = (x * 0x9e3779b97f4a7c15u) & mask_;
      x ^= x >> shift_;
      x = (x * 0xd6e8feb86659fd93u) & mask_;
      x ^= x >> shift_;
      x = (x * 0xa0761d6478bd642fu) & mask_;
      x ^= x >> shift_;
    } while (x >= keys_);
    return x;
  }

 private:
  uint64_t keys_;
  uint64_t mask_;
  int shift_;
  uint64_t seed_;
};

// What a rank of several writes of an epoch: positions first..last-1.
struct Share {
  uint64_t first = 0;
  uint64_t last = 0;
};
inline Share share_of(uint64_t keys, int rank, int ranks) {
  const auto part = [&](int at) { return keys * static_cast<uint64_t>(at) / static_cast<uint64_t>(ranks); };
  return {part(rank), part(rank + 1)};
}

// A sum over records, in any order, that tells whether two sets of records are the same.
inline uint64_t digest_of(uint64_t key, uint32_t epoch, const Value& value) {
  uint64_t digest = mix(key * 31 + epoch);
  for (const uint64_t word : value) digest = mix(digest ^ word);
  return digest;
}

}  // namespace swale::bench
