#include "iond/iond_messages.h"

#include <algorithm>

#include "base/coding.h"
#include "tier/engine/extent_map.h"
#include "tier/store/store.h"

namespace swale::iond {
namespace {

constexpr uint8_t kVersion = 4;
constexpr uint32_t kErrnoMax = 4095;  // as in Linux

}  // namespace

std::vector<std::string> iond_method_names() {
  return {"open",
          "close",
          "write",
          "read",
          "truncate",
          "attributes",
          "sync",
          "remove",
          "rename",
          "drain",
          "leave",
          "ping",
          "stats",
          "make a directory",
          "remove a directory",
          "list",
          "look",
          "set attributes",
          "make a symbolic link",
          "read a symbolic link",
          "link",
          "get an attribute",
          "list attributes",
          "put an attribute",
          "remove an attribute",
          "space",
          "check",
          "allocate",
          "sync a directory"};
}

std::string encode_iond_request(const IondRequest& request, size_t data_bytes) {
  std::string out;
  out.reserve(120 + request.name.size() + request.other.size() + data_bytes);
  append_u8(&out, kVersion);
  append_u64(&out, request.file);
  append_varint(&out, request.inode);
  append_varint(&out, request.offset);
  append_varint(&out, request.length);
  append_varint(&out, request.flags);
  append_varint(&out, request.mode);
  append_i64(&out, request.modified_ns);
  append_varint(&out, request.striping.stripe_bytes);
  append_varint(&out, request.striping.servers);
  append_varint(&out, request.striping.first);
  append_sized(&out, request.name);
  append_sized(&out, request.other);
  return out;
}

Result<IondRequest> decode_iond_request(Bytes message) {
  Decoder in(message);
  IondRequest request;
  const uint8_t version = in.u8();
  if (in.ok() && version != kVersion)
    return corruption("a request to an I/O server has version {}; this build knows {}", version, kVersion);
  request.file = in.u64();
  request.inode = in.varint64();
  request.offset = in.varint64();
  request.length = in.varint64();
  request.flags = in.varint32();
  request.mode = in.varint32();
  request.modified_ns = in.i64();
  request.striping.stripe_bytes = in.varint64();
  request.striping.servers = in.varint32();
  request.striping.first = in.varint32();
  request.name = in.sized();
  request.other = in.sized();
  request.data = in.rest();
  SWALE_RETURN_IF_ERROR(in.finish("a request to an I/O server"));
  if (request.offset > tier::kFileBytesMax || request.length > tier::kFileBytesMax - request.offset)
    return invalid_argument("a request for {} bytes at {}: parts of files have at most {} bytes",
                            request.length, request.offset, tier::kFileBytesMax);
  if (request.name.size() > kIondNameBytesMax || request.other.size() > kIondNameBytesMax)
    return invalid_argument("a name of {} bytes: at most {} are allowed",
                            std::max(request.name.size(), request.other.size()), kIondNameBytesMax);
  if ((request.flags & ~uint32_t{kIondFlagsAll}) != 0)
    return invalid_argument("flags {:#x} of a request to an I/O server are unknown", request.flags);
  SWALE_RETURN_IF_ERROR(request.striping.check());
  return request;
}

std::string encode_iond_answer(const IondAnswer& answer) {
  std::string out;
  out.reserve(80 + answer.data.size());
  append_u8(&out, kVersion);
  append_u8(&out, static_cast<uint8_t>(answer.code));
  append_u32(&out, static_cast<uint32_t>(answer.error));
  append_u64(&out, answer.file);
  append_u64(&out, answer.id);
  append_u64(&out, answer.inode);
  append_u64(&out, answer.size);
  append_u32(&out, answer.first);
  append_u32(&out, answer.mode);
  append_u32(&out, answer.links);
  append_i64(&out, answer.created_ns);
  append_i64(&out, answer.modified_ns);
  append_i64(&out, answer.changed_ns);
  out.append(answer.data);
  return out;
}

Result<IondAnswer> decode_iond_answer(Bytes message) {
  Decoder in(message);
  IondAnswer answer;
  const uint8_t version = in.u8();
  if (in.ok() && version != kVersion)
    return corruption("an answer of an I/O server has version {}; this build knows {}", version, kVersion);
  const uint8_t code = in.u8();
  const uint32_t failed = in.u32();
  answer.file = in.u64();
  answer.id = in.u64();
  answer.inode = in.u64();
  answer.size = in.u64();
  answer.first = in.u32();
  answer.mode = in.u32();
  answer.links = in.u32();
  answer.created_ns = in.i64();
  answer.modified_ns = in.i64();
  answer.changed_ns = in.i64();
  answer.data = in.rest();
  SWALE_RETURN_IF_ERROR(in.finish("an answer of an I/O server"));
  if (answer.size > tier::kFileBytesMax)
    return corruption("an answer of an I/O server says that a part has {} bytes", answer.size);
  if (failed > kErrnoMax || code > static_cast<uint8_t>(Code::kInternal) || (code == 0) != (failed == 0))
    return corruption("an answer of an I/O server has the error {} of kind {}", failed, code);
  answer.code = static_cast<Code>(code);
  answer.error = static_cast<int>(failed);
  return answer;
}

std::string encode_iond_failure(const Status& failure) {
  return encode_iond_answer({.code = failure.code(),
                             .error = failure.error_number(),
                             .data = failure.message().substr(0, kIondFailureBytesMax)});
}

Status failure_of(const IondAnswer& answer) {
  if (answer.error == 0) return {};
  return Status(answer.code, Scope::kFile, answer.data).with_error_number(answer.error);
}

std::string encode_iond_space(const IondSpace& space) {
  std::string out;
  for (const uint64_t each : {space.bytes, space.free, space.available, space.files, space.files_free})
    append_u64(&out, each);
  return out;
}

Result<IondSpace> decode_iond_space(Bytes data) {
  Decoder in(data);
  IondSpace space;
  for (uint64_t* const each : {&space.bytes, &space.free, &space.available, &space.files, &space.files_free})
    *each = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("the space of an I/O server"));
  return space;
}

void append_iond_entry(std::string* out, const IondEntry& entry) {
  append_u8(out, static_cast<uint8_t>(entry.kind));
  append_varint(out, entry.inode);
  append_sized(out, entry.name);
}

Result<std::vector<IondEntry>> decode_iond_entries(Bytes data, std::string_view after) {
  std::vector<IondEntry> entries;
  Decoder in(data);
  std::string_view before = after;
  while (in.ok() && !in.finished()) {
    const uint8_t kind = in.u8();
    const uint64_t inode = in.varint64();
    const std::string_view name = in.sized();
    if (!in.ok()) break;
    if (kind < static_cast<uint8_t>(IondEntryKind::kFile) ||
        kind > static_cast<uint8_t>(IondEntryKind::kSymlink))
      return corruption("an entry of a directory has the kind {}; this build knows 1 to 4", kind);
    if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos || name <= before)
      return corruption("a name of {} bytes in a directory: expected one after the one before it",
                        name.size());
    before = name;
    entries.push_back({std::string(name), static_cast<IondEntryKind>(kind), inode});
  }
  SWALE_RETURN_IF_ERROR(in.finish("the entries of a directory"));
  return entries;
}

bool is_private_name(std::string_view part) {
  return part == tier::kPrivateDirectory || part == kPartsDirectory;
}

Status check_iond_name(std::string_view name) {
  if (name.empty() || name.size() > kIondNameBytesMax || name.find('\0') != std::string_view::npos)
    return invalid_argument("a name of {} bytes: expected 1 to {}, without NUL", name.size(),
                            kIondNameBytesMax);
  for (std::string_view rest = name;;) {
    const size_t end = rest.find('/');
    const std::string_view part = rest.substr(0, end);
    if (part.empty() || part == "." || part == "..")
      return invalid_argument("{}: expected a relative path without \".\", \"..\" and empty parts", name);
    if (is_private_name(part)) return invalid_argument("{}: {} is a directory of Swale itself", name, part);
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
}

}  // namespace swale::iond
