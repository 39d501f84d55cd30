// Control messages of the epoch protocol and statuses: any bytes give a message or an error, and a message
// that was decoded encodes to bytes that decode to the same ones.
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "imd/format/messages.h"
#include "net/fabric/status_codec.h"

namespace swale::messages_fuzz {

SWALE_FUZZ_TARGET(messages_fuzz) {
  const Bytes input = fuzz::as_bytes(data, size);
  if (const auto message = imd::decode_message(input, 3); message.ok()) {
    const std::string once = imd::encode(*message);
    const auto again = imd::decode_message(once, 3);
    fuzz::require(again.ok() && imd::encode(*again) == once);
  }
  Status status;
  if (net::decode_status(input, &status).ok()) {
    Status again;
    fuzz::require(net::decode_status(net::encode_status(status), &again).ok() &&
                  again.code() == status.code() && again.error_number() == status.error_number());
  }
  return 0;
}

}  // namespace swale::messages_fuzz
