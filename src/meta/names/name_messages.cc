#include "meta/names/name_messages.h"

#include "meta/index/log.h"

namespace swale::meta {
namespace {

void append_optional(std::string* out, const std::optional<DirEntry>& entry) {
  append_u8(out, entry ? 1 : 0);
  if (entry) append_entry(out, *entry);
}

// False: it has a type that there is not.
bool read_optional(Decoder* in, std::optional<DirEntry>* entry) {
  if (in->u8() == 0) return true;
  *entry = read_entry(in);
  return valid((*entry)->type);
}

constexpr uint32_t kOtherLife = ~uint32_t{0};  // in the place of an errno

}  // namespace

std::string encode_life(uint32_t life) {
  std::string out;
  append_u32(&out, kOtherLife);
  append_u32(&out, life);
  return out;
}

std::optional<uint32_t> other_life(Bytes response) {
  Decoder in(response);
  const bool other = in.u32() == kOtherLife;
  const uint32_t life = in.u32();
  return other && in.finished() ? std::optional(life) : std::nullopt;
}

std::string encode(const NameRequest& request) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(request.op));
  append_u32(&out, request.life);
  append_u64(&out, request.from.client);
  append_u64(&out, request.from.number);
  append_u8(&out, static_cast<uint8_t>(request.wait));
  append_u8(&out, request.flags);
  append_file_id(request.directory, &out);
  append_sized(&out, request.name);
  append_file_id(request.target, &out);
  append_sized(&out, request.target_name);
  append_file_id(request.file, &out);
  append_u8(&out, request.set);
  append_u32(&out, request.mode);
  append_u32(&out, request.uid);
  append_u32(&out, request.gid);
  append_i64(&out, request.accessed_ns);
  append_i64(&out, request.modified_ns);
  append_i64(&out, request.now_ns);
  append_sized(&out, request.value);
  append_u32(&out, request.count);
  return out;
}

Result<NameRequest> decode_name_request(Bytes payload) {
  Decoder in(payload);
  NameRequest request;
  request.op = static_cast<NameOp>(in.u8());
  request.life = in.u32();
  request.from.client = in.u64();
  request.from.number = in.u64();
  request.wait = static_cast<AnswerWait>(in.u8());
  request.flags = in.u8();
  request.directory = read_file_id(&in);
  request.name = in.sized();
  request.target = read_file_id(&in);
  request.target_name = in.sized();
  request.file = read_file_id(&in);
  request.set = in.u8();
  request.mode = in.u32();
  request.uid = in.u32();
  request.gid = in.u32();
  request.accessed_ns = in.i64();
  request.modified_ns = in.i64();
  request.now_ns = in.i64();
  request.value = in.sized();
  request.count = in.u32();
  SWALE_RETURN_IF_ERROR(in.finish("a request to the tree"));
  const bool read = request.op >= NameOp::kLookUp && request.op <= NameOp::kListUsers;
  if (!read && (request.op < NameOp::kFirstChange || request.op > NameOp::kLast))
    return invalid_argument("a request to the tree: unknown operation {}", static_cast<int>(request.op));
  if (changes(request.op) && (request.from.client == 0 || request.from.number == 0))
    return invalid_argument("a request to the tree: a change without its client and number");
  return request;
}

std::string encode(const NameAnswer& answer) {
  std::string out;
  append_u32(&out, static_cast<uint32_t>(answer.error));
  append_entry(&out, answer.entry);
  append_u8(&out, static_cast<uint8_t>((answer.made ? 1 : 0) | (answer.held ? 2 : 0) | (answer.node ? 4 : 0) |
                                       (answer.more ? 8 : 0)));
  if (answer.node) append_node(&out, *answer.node);
  append_sized(&out, answer.value);
  append_u32(&out, static_cast<uint32_t>(answer.list.size()));
  for (const ListedEntry& each : answer.list) {
    append_sized(&out, each.name);
    append_entry(&out, each.entry);
  }
  append_u32(&out, static_cast<uint32_t>(answer.members.size()));
  for (const uint64_t each : answer.members) append_u64(&out, each);
  return out;
}

Result<NameAnswer> decode_name_answer(Bytes bytes) {
  Decoder in(bytes);
  NameAnswer answer;
  answer.error = static_cast<int>(in.u32());
  answer.entry = read_entry(&in);
  const uint8_t flags = in.u8();
  answer.made = (flags & 1) != 0;
  answer.held = (flags & 2) != 0;
  answer.more = (flags & 8) != 0;
  if ((flags & 4) != 0) answer.node = read_node(&in);
  answer.value = in.sized();
  for (uint32_t left = in.u32(); left > 0 && in.ok(); --left) {
    ListedEntry each;
    each.name = in.sized();
    each.entry = read_entry(&in);
    if (in.ok()) answer.list.push_back(std::move(each));
  }
  for (uint32_t left = in.u32(); left > 0 && in.ok(); --left) {
    const uint64_t each = in.u64();
    if (in.ok()) answer.members.push_back(each);
  }
  SWALE_RETURN_IF_ERROR(in.finish("an answer of the tree"));
  return answer;
}

std::string encode(const PeerRequest& request) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(request.op));
  append_u32(&out, request.life);
  append_file_id(request.file, &out);
  append_file_id(request.other, &out);
  append_key(&out, request.key);
  append_transaction(&out, request.transaction);
  append_u64(&out, request.from.client);
  append_u64(&out, request.from.number);
  append_u32(&out, request.server);
  append_u8(&out, request.commit ? 1 : 0);
  append_optional(&out, request.entry);
  append_u64(&out, request.grant);
  return out;
}

Result<PeerRequest> decode_peer_request(Bytes payload) {
  Decoder in(payload);
  PeerRequest request;
  request.op = static_cast<PeerOp>(in.u8());
  request.life = in.u32();
  request.file = read_file_id(&in);
  request.other = read_file_id(&in);
  request.key = read_key(&in);
  request.transaction = read_transaction(&in);
  request.from.client = in.u64();
  request.from.number = in.u64();
  request.server = in.u32();
  request.commit = in.u8() != 0;
  const bool entry = read_optional(&in, &request.entry);
  request.grant = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("a request of a server of the tree"));
  const bool keyed =
      request.op == PeerOp::kLock || request.op == PeerOp::kDecide || request.op == PeerOp::kUncache;
  if (request.op < PeerOp::kEnrol || request.op > PeerOp::kUncache || !entry ||
      (keyed && request.key != moves_key() &&
       (request.key.directory.none() || !valid_name(request.key.name)))) {
    return invalid_argument("a request of a server of the tree: operation {} on what cannot be",
                            static_cast<int>(request.op));
  }
  return request;
}

std::string encode(const PeerAnswer& answer) {
  std::string out;
  append_u32(&out, static_cast<uint32_t>(answer.error));
  append_u8(&out, static_cast<uint8_t>(answer.outcome));
  append_optional(&out, answer.entry);
  append_u64(&out, answer.grant);
  return out;
}

Result<PeerAnswer> decode_peer_answer(Bytes bytes) {
  Decoder in(bytes);
  PeerAnswer answer;
  answer.error = static_cast<int>(in.u32());
  answer.outcome = static_cast<Outcome>(in.u8());
  const bool entry = read_optional(&in, &answer.entry);
  answer.grant = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("an answer of a server of the tree"));
  if (!entry || answer.outcome > Outcome::kBusy)
    return corruption("an answer of a server of the tree: malformed");
  return answer;
}

}  // namespace swale::meta
