#include "source/key_message.h"

#include <cassert>

namespace swale::source {

void encode_key_message(std::span<const uint64_t> hashes, std::string* out) {
  assert(!hashes.empty() && hashes.size() <= kKeyMessageKeysMax);
  append_varint(out, hashes.size());
  BitWriter writer(out);
  const uint32_t rice = rice_parameter(kHashEnd / hashes.size());
  uint64_t least = 0;
  for (const uint64_t hash : hashes) {
    assert(hash >= least && hash < kHashEnd);
    writer.put_rice(hash - least, rice);
    least = hash + 1;
  }
  writer.finish();
}

Status decode_key_message(const char* message, size_t bytes, uint32_t source, std::vector<Pair>* out) {
  const size_t before = out->size();
  uint64_t count = 0;
  const char* const codes = get_varint64(message, message + bytes, &count);
  bool whole = codes != nullptr && count >= 1 && count <= kKeyMessageKeysMax;
  if (whole) {
    const uint32_t rice = rice_parameter(kHashEnd / count);
    const uint64_t end = static_cast<uint64_t>(message + bytes - codes) * 8;
    uint64_t bit = 0;
    uint64_t least = 0;
    for (uint64_t i = 0; i < count && whole; ++i) {
      uint64_t gap = 0;
      whole = least < kHashEnd && read_rice(codes, &bit, end, rice, &gap) && gap < kHashEnd - least;
      if (!whole) break;
      out->push_back(make_pair(least + gap, source));
      least += gap + 1;
    }
    whole = whole && end - bit < 8;
  }
  if (whole) return ok_status();
  out->resize(before);
  return error(Code::kCorruption, Scope::kPeer, "a message of {} bytes from rank {} is no list of keys",
               bytes, source);
}

}  // namespace swale::source
