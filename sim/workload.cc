#include "sim/workload.h"

#include "base/hash.h"
#include "run/record.h"

namespace swale::sim {
namespace {

constexpr size_t kStampBytes = 16;  // epoch, writer, number

}  // namespace

Record make_record(const WorkloadParams& params, uint64_t seed, EpochNumber epoch, int32_t writer,
                   uint64_t number) {
  std::string stamp;
  append_u32(&stamp, epoch);
  append_u32(&stamp, static_cast<uint32_t>(writer));
  append_u64(&stamp, number);
  Rng rng(hash_bytes_seeded(stamp, seed));
  const uint64_t key_number = params.hot_key && number % 2 == 0 ? 0 : rng.below(params.keys);

  Record record;
  append_u64(&record.key, key_number);
  size_t value_bytes = 40;
  if (params.variable_sizes) {
    record.key.resize(1 + key_number % 200, 'k');
    append_u64(&record.key, key_number);
    value_bytes = rng.chance(1, 50) ? 8000 + rng.below(8000) : kStampBytes + rng.below(200);
  }
  if (params.large_values && rng.chance(1, 30)) value_bytes = run::kValueBytesMax + 1 + rng.below(100'000);
  record.value = stamp;
  while (record.value.size() < value_bytes) append_u64(&record.value, rng.next());
  record.value.resize(value_bytes);
  return record;
}

int32_t writer_of(Bytes value) {
  return value.size() < kStampBytes ? -1 : static_cast<int32_t>(get_u32(value.data() + 4));
}

}  // namespace swale::sim
