// Files of a rendezvous directory: whatever stands in them, the same records come out however the bytes are
// cut in two, since a reader may come in the middle of an append. Input: u16 where to cut, then edits of
// valid records and rubbish.
#include "base/coding.h"
#include "base/hash.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/meeting/rendezvous_file.h"

namespace swale::rendezvous_fuzz {
namespace {

using namespace swale::net;

std::string read(Bytes bytes, size_t* done) {
  std::string seen;
  *done = decode_records(bytes, [&](const RendezvousRecord& record) { seen += encode_record(record); });
  fuzz::require(*done <= bytes.size());
  return seen;
}

// A record whose checksum is made right, so that what is behind it is reached.
std::string sealed(Bytes body) {
  std::string bytes = encode_record({RendezvousKind::kGather, 1, 2, 3, 4, std::string(body)});
  if (body.size() >= 32) bytes.replace(16, 32, body.substr(0, 32));
  put_u64(bytes.data() + 8, hash_bytes(Bytes(bytes).substr(16)));
  return bytes;
}

}  // namespace

SWALE_FUZZ_TARGET(rendezvous_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  if (input.size() < 3) return 0;
  const Bytes body = input.substr(3);
  std::string file = (input[2] & 1) != 0 ? sealed(body) : std::string(body);
  if ((input[2] & 2) != 0) file += encode_record({});
  if ((input[2] & 4) != 0) file.insert(0, "SWRZ");
  size_t done = 0, first = 0, second = 0;
  const std::string whole = read(file, &done);
  const size_t cut = get_u16(input.data()) % (file.size() + 1);
  std::string parts = read(Bytes(file).substr(0, cut), &first);
  parts += read(Bytes(file).substr(first), &second);
  fuzz::require(parts == whole);
  return 0;
}

}  // namespace swale::rendezvous_fuzz
