// Requests to an I/O server and its answers, entries of directories, space, and names. Input: 1 byte that
// says what, then its bytes. What decodes keeps its promises and encodes to what decodes to the same.
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "iond/iond_messages.h"

namespace swale::iond_messages_fuzz {
namespace {

using namespace swale::iond;
using fuzz::require;

void request(Bytes bytes) {
  const auto message = decode_iond_request(bytes);
  if (!message.ok()) return;
  require(message->striping.check().ok());
  require(message->name.size() <= kIondNameBytesMax && message->other.size() <= kIondNameBytesMax);
  require(message->offset + message->length >= message->offset);
  const std::string again = encode_iond_request(*message, message->data.size()) + std::string(message->data);
  const auto same = decode_iond_request(again);
  require(same.ok() && same->file == message->file && same->inode == message->inode &&
          same->offset == message->offset && same->length == message->length &&
          same->flags == message->flags && same->mode == message->mode &&
          same->modified_ns == message->modified_ns && same->striping == message->striping &&
          same->name == message->name && same->other == message->other && same->data == message->data);
}

void answer(Bytes bytes) {
  const auto message = decode_iond_answer(bytes);
  if (!message.ok()) return;
  const std::string again = encode_iond_answer(*message);  // `same` points into it
  const auto same = decode_iond_answer(again);
  require(same.ok() && same->file == message->file && same->id == message->id &&
          same->inode == message->inode && same->size == message->size && same->first == message->first &&
          same->mode == message->mode && same->links == message->links &&
          same->created_ns == message->created_ns && same->modified_ns == message->modified_ns &&
          same->changed_ns == message->changed_ns && same->error == message->error &&
          same->code == message->code && same->data == message->data);
  const Status failed = failure_of(*message);
  require(failed.ok() == (message->error == 0) && failed.error_number() == message->error);
}

void space(Bytes bytes) {
  const auto found = decode_iond_space(bytes);
  require(found.ok() == (bytes.size() == 40));
  if (found.ok()) require(encode_iond_space(*found) == bytes);
}

void entries(Bytes bytes) {
  const auto found = decode_iond_entries(bytes, "");
  if (!found.ok()) return;
  std::string again;
  for (const IondEntry& each : *found) append_iond_entry(&again, each);
  const auto same = decode_iond_entries(again, "");
  require(same.ok() && same->size() == found->size());
  for (size_t i = 0; i < found->size(); ++i) {
    const IondEntry& each = (*found)[i];
    require(each.name == (*same)[i].name && each.kind == (*same)[i].kind && each.inode == (*same)[i].inode);
    require(i == 0 || (*found)[i - 1].name < each.name);
    require(each.name.find('/') == std::string::npos);
  }
}

void name(Bytes bytes) {
  if (!check_iond_name(bytes).ok()) return;
  require(!bytes.empty() && bytes.front() != '/' && bytes != "..");
  require(bytes.find("/../") == Bytes::npos && !bytes.starts_with("../") && !bytes.ends_with("/.."));
}

}  // namespace

SWALE_FUZZ_TARGET(iond_messages_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      request(bytes);
      break;
    case 1:
      answer(bytes);
      break;
    case 3:
      entries(bytes);
      break;
    case 4:
      space(bytes);
      break;
    default:
      name(bytes);
  }
  return 0;
}

}  // namespace swale::iond_messages_fuzz
