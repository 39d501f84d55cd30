#include "fs/share/share_messages.h"

#include <algorithm>

#include "fs/share/share_coding.h"

namespace swale::fs {
namespace {

constexpr uint64_t kSpansMax = 1 << 24;  // what a message may unfold to

// Places ascend; each is told by what lies between it and the one before.
struct Places {
  Decoder& in;
  uint64_t at = 0;

  bool next(uint64_t skip, uint64_t length, Span* span) {
    if (skip > meta::kOffsetEnd - at || length == 0 || length > meta::kOffsetEnd - at - skip) return false;
    *span = {at + skip, at + skip + length};
    at = span->end;
    return true;
  }
};

void append_holds(std::string* out, const std::vector<ShareHold>& holds) {
  append_varint(out, holds.size());
  for (const ShareHold& each : holds) {
    append_u32(out, each.node);
    append_u64(out, each.number);
  }
}

void take_holds(Decoder* in, std::vector<ShareHold>* holds) {
  for (uint64_t left = in->varint64(); left > 0 && in->ok(); --left) {
    const NodeId node = in->u32();
    holds->push_back({node, in->u64()});
  }
}

}  // namespace

void append_spans(std::string* out, const std::vector<Span>& spans) {
  std::string body;
  uint64_t count = 0, end = 0;
  for (size_t i = 0; i < spans.size(); ++count) {
    const uint64_t length = spans[i].end - spans[i].begin;
    const uint64_t stride = i + 1 < spans.size() ? spans[i + 1].begin - spans[i].begin : 0;
    size_t last = i;
    while (last + 1 < spans.size() && spans[last + 1].begin - spans[last].begin == stride &&
           spans[last + 1].end - spans[last + 1].begin == length)
      ++last;
    append_varint(&body, spans[i].begin - end);
    append_varint(&body, length);
    append_varint(&body, last - i);
    if (last > i) append_varint(&body, stride);
    end = spans[last].end;
    i = last + 1;
  }
  append_varint(out, count);
  out->append(body);
}

bool take_spans(Decoder* in, std::vector<Span>* spans) {
  Places places{*in};
  for (uint64_t left = in->varint64(); left > 0 && in->ok(); --left) {
    const uint64_t skip = in->varint64(), length = in->varint64(), more = in->varint64();
    Span span;
    if (!in->ok() || more > kSpansMax || spans->size() + more >= kSpansMax ||
        !places.next(skip, length, &span))
      return false;
    spans->push_back(span);
    const uint64_t stride = more > 0 ? in->varint64() : 0;
    for (uint64_t i = 0; i < more; ++i) {
      if (stride < length || !places.next(stride - length, length, &span)) return false;
      spans->push_back(span);
    }
  }
  return in->ok();
}

std::string encode(const ShareRequest& request) {
  std::string out;
  append_u8(&out, static_cast<uint8_t>(request.op));
  append_u32(&out, request.node);
  append_id(&out, request.file);
  for (const uint64_t word : {request.order, request.span.begin, request.span.end, request.size})
    append_u64(&out, word);
  append_seen(&out, request.backing);
  append_spans(&out, request.spans);
  if (request.op == ShareOp::kLetGo) append_holds(&out, request.holds);
  return out;
}

Result<ShareRequest> decode_share_request(Bytes bytes) {
  Decoder in(bytes);
  ShareRequest request;
  const uint8_t op = in.u8();
  request.op = static_cast<ShareOp>(op);
  request.node = in.u32();
  request.file = take_id(&in);
  request.order = in.u64();
  request.span.begin = in.u64();
  request.span.end = in.u64();
  request.size = in.u64();
  request.backing = take_seen(&in);
  const bool spans = take_spans(&in, &request.spans);
  if (spans && request.op == ShareOp::kLetGo) take_holds(&in, &request.holds);
  SWALE_RETURN_IF_ERROR(in.finish("a request to the root of a file"));
  if (!spans || op < static_cast<uint8_t>(ShareOp::kLook) || op > static_cast<uint8_t>(ShareOp::kLetGo) ||
      request.file.none() || request.size > meta::kOffsetEnd || request.backing.size > meta::kOffsetEnd ||
      request.span.begin > request.span.end || request.span.end > meta::kOffsetEnd)
    return corruption("a request to the root of a file: op {} of node {}: its numbers are none of a file", op,
                      request.node);
  return request;
}

std::string encode(const FetchRequest& request) {
  std::string out;
  append_id(&out, request.file);
  append_spans(&out, request.spans);
  return out;
}

Result<FetchRequest> decode_fetch_request(Bytes bytes) {
  Decoder in(bytes);
  FetchRequest request;
  request.file = take_id(&in);
  const bool spans = take_spans(&in, &request.spans);
  SWALE_RETURN_IF_ERROR(in.finish("a request for bytes of a file"));
  uint64_t total = 0;
  for (const Span& span : request.spans) total += std::min(span.end - span.begin, kFetchBytesMax + 1);
  if (!spans || request.file.none() || total > kFetchBytesMax)
    return corruption("a request for {} bytes of a file: its numbers are none of a file", total);
  return request;
}

std::string encode(const ShareAnswer& answer) {
  std::string out;
  append_u32(&out, static_cast<uint32_t>(answer.error));
  for (const uint64_t word :
       {answer.size, answer.backing_end, answer.backing_inode, answer.committed, answer.offset})
    append_u64(&out, word);
  append_varint(&out, answer.parts.size());
  uint64_t end = 0;
  for (const SharePart& part : answer.parts) {
    append_varint(&out, part.span.begin - end);
    append_varint(&out, part.span.end - part.span.begin);
    append_u32(&out, part.node);
    end = part.span.end;
  }
  if (!answer.holds.empty()) append_holds(&out, answer.holds);
  return out;
}

Result<ShareAnswer> decode_share_answer(Bytes bytes) {
  Decoder in(bytes);
  ShareAnswer answer;
  answer.error = static_cast<int>(in.u32());
  answer.size = in.u64();
  answer.backing_end = in.u64();
  answer.backing_inode = in.u64();
  answer.committed = in.u64();
  answer.offset = in.u64();
  Places places{in};
  bool good = true;
  for (uint64_t left = in.varint64(); good && left > 0 && in.ok(); --left) {
    const uint64_t skip = in.varint64(), length = in.varint64();
    SharePart part;
    part.node = in.u32();
    good = in.ok() && places.next(skip, length, &part.span);
    if (good) answer.parts.push_back(part);
  }
  if (good && in.remaining() > 0) take_holds(&in, &answer.holds);
  if (good) SWALE_RETURN_IF_ERROR(in.finish("an answer of the root of a file"));
  if (!good || answer.size > meta::kOffsetEnd)
    return corruption("an answer of the root of a file: its numbers are none of a file");
  return answer;
}

}  // namespace swale::fs
