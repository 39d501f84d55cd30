#include "bench/dataset.h"

#include <fmt/format.h>

#include <cstring>

namespace swale::bench {

void Dataset::expect(uint64_t key, uint32_t epoch, const void* found, size_t bytes) const {
  const Value right = value(key, epoch);
  if (bytes != kValueBytes || std::memcmp(found, right.data(), kValueBytes) != 0)
    die(fmt::format("WRONG ANSWER: key {} epoch {}", key, epoch));
}

Dataset dataset_of(Arguments& arguments, Canary canary, uint64_t keys, uint32_t epochs) {
  Dataset data;
  data.keys = arguments.number("keys", keys);
  data.epochs = static_cast<uint32_t>(arguments.number("epochs", epochs));
  data.values = static_cast<ValueKind>(arguments.choice("values", kValueKindNames));
  if (canary == Canary::kAllowed) data.canary = arguments.number("canary", 0) != 0;
  return data;
}

}  // namespace swale::bench
