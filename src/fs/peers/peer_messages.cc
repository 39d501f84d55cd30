#include "fs/peers/peer_messages.h"

#include <algorithm>

#include "base/coding.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr uint64_t kPlacesMax = 4096;  // a path has no more names

void append_id(const meta::FileId& id, std::string* out) {
  append_u64(out, id.high);
  append_u64(out, id.low);
}
meta::FileId take_id(Decoder* in) {
  meta::FileId id;
  id.high = in->u64();
  id.low = in->u64();
  return id;
}
void append_backing(const SeenBacking& backing, std::string* out) {
  append_u64(out, backing.inode);
  append_u64(out, backing.size);
  append_u64(out, static_cast<uint64_t>(backing.modified_ns));
}
SeenBacking take_backing(Decoder* in) {
  SeenBacking backing;
  backing.inode = in->u64();
  backing.size = in->u64();
  backing.modified_ns = in->i64();
  return backing;
}

Status expect(bool good, const char* what) {
  return good ? Status() : corruption("{}: its numbers are none of a file", what);
}

}  // namespace

std::string encode(const DrainStep& step) {
  std::string out;
  append_id(step.file, &out);
  append_u64(&out, step.drain);
  append_backing(step.backing, &out);
  append_sized(&out, step.path);
  append_spans(&out, step.spans);
  return out;
}

Result<DrainStep> decode_drain_step(Bytes bytes) {
  Decoder in(bytes);
  DrainStep step;
  step.file = take_id(&in);
  step.drain = in.u64();
  step.backing = take_backing(&in);
  step.path = in.sized();
  const bool spans = take_spans(&in, &step.spans);
  SWALE_RETURN_IF_ERROR(in.finish("a step of a drain"));
  SWALE_RETURN_IF_ERROR(expect(spans && !step.file.none(), "a step of a drain"));
  return step;
}

std::string encode(const DrainWish& wish) {
  std::string out;
  append_id(wish.file, &out);
  append_backing(wish.backing, &out);
  append_varint(&out, wish.places.size());
  for (const KnownPlace& each : wish.places) {
    append_id(each.directory, &out);
    append_sized(&out, each.name);
    append_id(each.id, &out);
  }
  return out;
}

Result<DrainWish> decode_drain_wish(Bytes bytes) {
  Decoder in(bytes);
  DrainWish wish;
  wish.file = take_id(&in);
  wish.backing = take_backing(&in);
  const uint64_t places = in.varint64();
  for (uint64_t left = std::min(places, kPlacesMax); left > 0 && in.ok(); --left) {
    KnownPlace& place = wish.places.emplace_back();
    place.directory = take_id(&in);
    place.name = in.sized();
    place.id = take_id(&in);
  }
  SWALE_RETURN_IF_ERROR(in.finish("a wish for a drain"));
  SWALE_RETURN_IF_ERROR(expect(places <= kPlacesMax && !wish.file.none(), "a wish for a drain"));
  return wish;
}

std::string encode(const NameNews& news) {
  std::string out;
  append_id(news.file, &out);
  append_u8(&out, static_cast<uint8_t>(news.type));
  append_u8(&out, news.gone ? 1 : 0);
  append_id(news.directory, &out);
  append_sized(&out, news.name);
  return out;
}

Result<NameNews> decode_name_news(Bytes bytes) {
  Decoder in(bytes);
  NameNews news;
  news.file = take_id(&in);
  const uint8_t type = in.u8();
  news.type = static_cast<meta::NodeType>(type);
  news.gone = in.u8() != 0;
  news.directory = take_id(&in);
  news.name = in.sized();
  SWALE_RETURN_IF_ERROR(in.finish("news of a name"));
  const bool named = news.gone || io::is_one_name(news.name);
  SWALE_RETURN_IF_ERROR(expect(!news.file.none() && type >= 1 && type <= 3 && named, "news of a name"));
  return news;
}

std::string encode(const SealStep& step) {
  std::string out;
  append_id(step.file, &out);
  append_u8(&out, static_cast<uint8_t>(step.op));
  return out;
}

Result<SealStep> decode_seal_step(Bytes bytes) {
  Decoder in(bytes);
  SealStep step;
  step.file = take_id(&in);
  const uint8_t op = in.u8();
  step.op = static_cast<SealOp>(op);
  SWALE_RETURN_IF_ERROR(in.finish("a step of a seal"));
  SWALE_RETURN_IF_ERROR(expect(!step.file.none() && op <= 2, "a step of a seal"));
  return step;
}

std::string encode(const SealAnswer& answer) {
  std::string out;
  append_u32(&out, answer.writers);
  append_sized(&out, answer.who);
  return out;
}

Result<SealAnswer> decode_seal_answer(Bytes bytes) {
  Decoder in(bytes);
  SealAnswer answer;
  answer.writers = in.u32();
  answer.who = in.sized();
  SWALE_RETURN_IF_ERROR(in.finish("an answer about a seal"));
  return answer;
}

}  // namespace swale::fs
