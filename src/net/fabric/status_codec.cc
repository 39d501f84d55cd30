#include "net/fabric/status_codec.h"

#include <utility>

namespace swale::net {
namespace {

constexpr size_t kTextBytesMax = kKiB;
constexpr int kErrnoMax = 4095;  // the kernel's MAX_ERRNO

}  // namespace

void append_status(std::string* out, const Status& status) {
  append_u8(out, static_cast<uint8_t>(status.code()));
  append_u8(out, static_cast<uint8_t>(status.scope()));
  append_u16(out, static_cast<uint16_t>(status.error_number()));
  append_sized(out, status.message().substr(0, kTextBytesMax));
}

Status read_status(Decoder* in) {
  const auto code = in->u8();
  const auto scope = in->u8();
  const int error_number = in->u16();
  const Bytes text = in->sized();
  if (!in->ok() || code == 0) return {};
  if (code > static_cast<uint8_t>(Code::kInternal) || scope > static_cast<uint8_t>(Scope::kFatal)) {
    return error(Code::kInternal, Scope::kOperation, "(unknown code {}) {}", code, text);
  }
  const Status status(static_cast<Code>(code), static_cast<Scope>(scope), text);
  return error_number <= kErrnoMax ? status.with_error_number(error_number) : status;
}

std::string encode_status(const Status& status) {
  std::string out;
  append_status(&out, status);
  return out;
}

Status decode_status(Bytes bytes, Status* status) {
  Decoder in(bytes);
  Status read = read_status(&in);
  SWALE_RETURN_IF_ERROR(in.finish("status of a rank"));
  *status = std::move(read);
  return {};
}

}  // namespace swale::net
