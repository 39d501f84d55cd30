#include "fs/peers/peer_messages.h"

#include <algorithm>

#include "base/coding.h"
#include "fs/share/share_coding.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr uint64_t kPlacesMax = 4096;  // a path has no more names

Status expect(bool good, const char* what) {
  return good ? Status() : corruption("{}: its numbers are none of a file", what);
}

}  // namespace

std::string encode(const DrainStep& step) {
  std::string out;
  append_id(&out, step.file);
  append_u64(&out, step.drain);
  append_seen(&out, step.backing);
  append_sized(&out, step.path);
  append_id(&out, step.touched.directory);
  append_i64(&out, step.touched.before_ns);
  append_i64(&out, step.touched.after_ns);
  append_spans(&out, step.spans);
  return out;
}

Result<DrainStep> decode_drain_step(Bytes bytes) {
  Decoder in(bytes);
  DrainStep step;
  step.file = take_id(&in);
  step.drain = in.u64();
  step.backing = take_seen(&in);
  step.path = in.sized();
  step.touched.directory = take_id(&in);
  step.touched.before_ns = in.i64();
  step.touched.after_ns = in.i64();
  const bool spans = take_spans(&in, &step.spans);
  SWALE_RETURN_IF_ERROR(in.finish("a step of a drain"));
  SWALE_RETURN_IF_ERROR(expect(spans && !step.file.none(), "a step of a drain"));
  return step;
}

std::string encode(const DrainWish& wish) {
  std::string out;
  append_id(&out, wish.file);
  append_seen(&out, wish.backing);
  append_varint(&out, wish.places.size());
  for (const KnownPlace& each : wish.places) {
    append_id(&out, each.directory);
    append_sized(&out, each.name);
    append_id(&out, each.id);
  }
  return out;
}

Result<DrainWish> decode_drain_wish(Bytes bytes) {
  Decoder in(bytes);
  DrainWish wish;
  wish.file = take_id(&in);
  wish.backing = take_seen(&in);
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
  append_id(&out, news.file);
  append_u8(&out, static_cast<uint8_t>(news.type));
  append_u8(&out, news.gone ? 1 : 0);
  append_id(&out, news.directory);
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
  append_id(&out, step.file);
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

std::string encode(const FileStep& step) {
  std::string out;
  append_id(&out, step.file);
  return out;
}

Result<FileStep> decode_file_step(Bytes bytes) {
  Decoder in(bytes);
  FileStep step;
  step.file = take_id(&in);
  SWALE_RETURN_IF_ERROR(in.finish("a step of one file"));
  SWALE_RETURN_IF_ERROR(expect(!step.file.none(), "a step of one file"));
  return step;
}

std::string encode(const PagesAnswer& answer) {
  std::string out;
  append_u32(&out, answer.opens);
  return out;
}

Result<PagesAnswer> decode_pages_answer(Bytes bytes) {
  Decoder in(bytes);
  PagesAnswer answer;
  answer.opens = in.u32();
  SWALE_RETURN_IF_ERROR(in.finish("an answer about pages"));
  return answer;
}

std::string encode(const BeginStep& step) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(step.phase));
  return out;
}

Result<BeginStep> decode_begin_step(Bytes bytes) {
  Decoder in(bytes);
  const uint8_t phase = in.u8();
  SWALE_RETURN_IF_ERROR(in.finish("what a node says that begins"));
  SWALE_RETURN_IF_ERROR(
      expect(phase <= static_cast<uint8_t>(BeginPhase::kReady), "what a node says that begins"));
  return BeginStep{static_cast<BeginPhase>(phase)};
}

}  // namespace swale::fs
