// Batches of keys: whatever comes, the store takes all of a batch or nothing, and hands out what it has
// counted. The input is a batch as it is, and once more with its length and checksum made right.
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "source/pair_store.h"

namespace swale::source::source_batch_fuzz {
namespace {

using fuzz::require;

void take(Bytes batch) {
  auto store = PairStore::create({EpochNumber(0), 100, PairStore::kMemoryMin, nullptr});
  require(store.ok());
  const Status status = store->add(batch);
  require(status.ok() == (store->pairs() > 0));
  uint64_t seen = 0;
  uint64_t last = 0;
  require(store
              ->each_shard(3,
                           [&](uint32_t shard, std::span<const Pair> pairs) {
                             for (const Pair pair : pairs) {
                               require(pair_hash(pair) >> (kHashBits - 3) == shard);
                               require(seen == 0 || pair > last);
                               last = pair;
                               ++seen;
                             }
                             return ok_status();
                           })
              .ok());
  require(seen == store->pairs());  // a batch has no doubles
}

void run(Bytes input) {
  take(input);
  if (input.size() < kBatchHeaderBytes) return;
  std::string sealed(input);
  put_u32(sealed.data() + 4, static_cast<uint32_t>(sealed.size()));
  put_u32(sealed.data() + 8, 0);
  put_u32(sealed.data() + 12, get_u32(sealed.data() + 12) % 100);
  sealed[18] = static_cast<char>(kBatchVersion);
  put_u32(sealed.data(), crc32c(Bytes(sealed).substr(4)));
  take(sealed);
}

}  // namespace

SWALE_FUZZ_TARGET(source_batch_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::source::source_batch_fuzz
