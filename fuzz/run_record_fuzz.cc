// A record that decodes is what encodes to it again, up to longer varints.
#include <string>

#include "fuzz/run_fuzz_support.h"
#include "fuzz/target.h"
#include "run/record.h"

namespace swale::run_record_fuzz {

SWALE_FUZZ_TARGET(run_record_fuzz) {
  const Bytes bytes(reinterpret_cast<const char*>(data), size);
  run::RecordView record;
  if (run::parse_record(bytes, &record) != run::RecordParse::kOk) return 0;
  const bool large = run::is_large(record);
  std::string again;
  if (large) {
    again = run::encode_large_record(record.key, record.value);
  } else {
    again.resize(run::encoded_record_bytes(record.key.size(), record.value.size()));
    run::fuzz::require(run::encode_record(record.key, record.value, again.data()) ==
                       again.data() + again.size());
  }
  run::RecordView reread;
  run::fuzz::require(run::parse_record(again, &reread) == run::RecordParse::kOk);
  run::fuzz::require(again.size() <= record.encoded.size() && run::is_large(reread) == large);
  run::fuzz::require(reread.key == record.key && reread.value == record.value);
  return 0;
}

}  // namespace swale::run_record_fuzz
