// Messages of keys: whatever comes is refused whole, or gives ascending hashes that encode to a message of
// the same keys.
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "source/key_message.h"

namespace swale::source::source_keys_fuzz {
namespace {

using fuzz::require;

std::vector<Pair> decode(std::string message, bool* ok) {
  const size_t bytes = message.size();
  message.append(kSlackBytes, '\xa5');
  std::vector<Pair> pairs;
  *ok = decode_key_message(message.data(), bytes, 9, &pairs).ok();
  return pairs;
}

void run(Bytes input) {
  bool ok = false;
  const std::vector<Pair> pairs = decode(std::string(input), &ok);
  require(ok == !pairs.empty());
  if (!ok) return;
  std::vector<uint64_t> hashes;
  for (const Pair pair : pairs) {
    require(pair_source(pair) == 9);
    require(hashes.empty() || pair_hash(pair) > hashes.back());
    hashes.push_back(pair_hash(pair));
  }
  std::string again;
  encode_key_message(hashes, &again);
  require(decode(again, &ok) == pairs && ok);
}

}  // namespace

SWALE_FUZZ_TARGET(source_keys_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::source::source_keys_fuzz
