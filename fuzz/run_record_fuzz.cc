// A record that decodes is what encodes to it again, up to longer varints.
#include <vector>

#include "fuzz/run_fuzz_support.h"
#include "run/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace swale;
  const Bytes bytes(reinterpret_cast<const char*>(data), size);
  const auto record = run::decode_record(bytes, "fuzz");
  if (!record.ok()) return 0;
  if (run::is_large(*record)) {
    const std::string again = run::encode_large_record(record->key, record->value);
    const auto reread = run::decode_record(again, "fuzz");
    run::fuzz::require(again.size() <= record->encoded.size() && reread.ok() && run::is_large(*reread));
    run::fuzz::require(reread->key == record->key && reread->value == record->value);
    return 0;
  }
  std::vector<char> again(run::encoded_record_bytes(record->key.size(), record->value.size()));
  const char* const end = run::encode_record(record->key, record->value, again.data());
  run::fuzz::require(end == again.data() + again.size() && again.size() <= record->encoded.size());
  const auto reread = run::decode_record({again.data(), again.size()}, "fuzz");
  run::fuzz::require(reread.ok() && reread->key == record->key && reread->value == record->value);
  return 0;
}
