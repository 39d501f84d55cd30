#include "meta/attributes/attributes.h"

#include <algorithm>

namespace swale::meta {

std::string_view op_name(AttributeOp op) {
  switch (op) {
    case AttributeOp::kCreate:
      return "create";
    case AttributeOp::kCreateExclusive:
      return "create exclusively";
    case AttributeOp::kOpen:
      return "open";
    case AttributeOp::kStat:
      return "stat";
    case AttributeOp::kClose:
      return "close";
    case AttributeOp::kTruncate:
      return "truncate";
    case AttributeOp::kSeal:
      return "seal";
    case AttributeOp::kRemove:
      return "remove";
  }
  return "unknown";
}

Status check(const AttributeRequest& request) {
  if (request.op < AttributeOp::kCreate || request.op > AttributeOp::kRemove) {
    return invalid_argument("request {} of attributes: unknown", static_cast<int>(request.op));
  }
  if (request.name.empty() || request.name.size() > kNameBytesMax) {
    return invalid_argument("{}: a name of {} bytes: expected 1 to {}", op_name(request.op),
                            request.name.size(), kNameBytesMax);
  }
  if (request.size > kOffsetEnd) {
    return invalid_argument("{} {}: a size of {} bytes: expected at most 2^63", op_name(request.op),
                            request.name, request.size);
  }
  return {};
}

bool mergeable(const AttributeRequest& a, const AttributeRequest& b) {
  if (a.op != b.op || a.file != b.file || a.name != b.name) return false;
  if (a.op == AttributeOp::kTruncate) return a.size == b.size;
  // A second removal would have to wait for a second creation.
  if (a.op == AttributeOp::kRemove) return a.from == b.from;
  return true;
}

void merge(const AttributeRequest& from, AttributeRequest* into) {
  into->time_ns = std::max(into->time_ns, from.time_ns);
  if (into->op != AttributeOp::kClose) return;  // the first one stands for all
  if (from.generation > into->generation) {
    into->generation = from.generation;
    into->size = from.size;
  } else if (from.generation == into->generation) {
    into->size = std::max(into->size, from.size);
  }
}

void append_file(std::string* out, const FileId& file) {
  append_u64(out, file.high);
  append_u64(out, file.low);
}

FileId decode_file_id(Decoder* in) {
  const uint64_t high = in->u64();
  return {high, in->u64()};
}

void append_attributes(std::string* out, const Attributes& attributes) {
  append_file(out, attributes.file);
  append_u64(out, attributes.size);
  append_u64(out, attributes.generation);
  append_u32(out, attributes.mode);
  append_u8(out, attributes.sealed ? 1 : 0);
  append_i64(out, attributes.created_ns);
  append_i64(out, attributes.modified_ns);
  append_u64(out, attributes.creator.client);
  append_u64(out, attributes.creator.number);
  append_sized(out, attributes.name);
}

Attributes read_attributes(Decoder* in) {
  Attributes attributes;
  attributes.file = decode_file_id(in);
  attributes.size = in->u64();
  attributes.generation = in->u64();
  attributes.mode = in->u32();
  attributes.sealed = in->u8() != 0;
  attributes.created_ns = in->i64();
  attributes.modified_ns = in->i64();
  attributes.creator.client = in->u64();
  attributes.creator.number = in->u64();
  attributes.name = in->sized();
  return attributes;
}

void append_request(std::string* out, const AttributeRequest& request) {
  append_u8(out, static_cast<uint8_t>(request.op));
  append_file(out, request.file);
  append_u64(out, request.from.client);
  append_u64(out, request.from.number);
  append_u64(out, request.size);
  append_u64(out, request.generation);
  append_u32(out, request.mode);
  append_i64(out, request.time_ns);
  append_sized(out, request.name);
}

Result<AttributeRequest> read_request(Decoder* in) {
  AttributeRequest request;
  request.op = static_cast<AttributeOp>(in->u8());
  request.file = decode_file_id(in);
  request.from.client = in->u64();
  request.from.number = in->u64();
  request.size = in->u64();
  request.generation = in->u64();
  request.mode = in->u32();
  request.time_ns = in->i64();
  request.name = in->sized();
  SWALE_RETURN_IF_ERROR(in->status("a request for attributes"));
  SWALE_RETURN_IF_ERROR(check(request));
  return request;
}

std::string encode_answer(const AttributeAnswer& answer) {
  std::string out;
  append_attributes(&out, answer.attributes);
  append_sized(&out, answer.table);
  return out;
}

Result<AttributeAnswer> decode_answer(Bytes bytes) {
  Decoder in(bytes);
  AttributeAnswer answer;
  answer.attributes = read_attributes(&in);
  answer.table = in.sized();
  SWALE_RETURN_IF_ERROR(in.finish("an answer with attributes"));
  return answer;
}

}  // namespace swale::meta
