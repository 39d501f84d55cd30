#include "imd/format/messages.h"

#include <utility>

#include "base/coding.h"

namespace swale::imd {
namespace {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class Tag : uint8_t { kEnd = 1, kDurable = 2, kCommitted = 3, kClose = 5 };

void append_tally(std::string* out, const RecordTally& tally) {
  append_u64(out, tally.records);
  append_u64(out, tally.data_bytes);
  append_u64(out, tally.digest);
}

RecordTally read_tally(Decoder* in) {
  RecordTally tally;
  tally.records = in->u64();
  tally.data_bytes = in->u64();
  tally.digest = in->u64();
  return tally;
}

void append_stamp(std::string* out, const net::CallStamp& stamp) {
  append_u32(out, stamp.number);
  append_u32(out, stamp.job_calls);
}

net::CallStamp read_stamp(Decoder* in) {
  net::CallStamp stamp;
  stamp.number = in->u32();
  stamp.job_calls = in->u32();
  return stamp;
}

void append_tag(std::string* out, Tag tag) { append_u8(out, static_cast<uint8_t>(tag)); }

void append_body(std::string* out, const EndMessage& message) {
  append_tag(out, Tag::kEnd);
  append_u32(out, message.epoch);
  append_u64(out, message.records);
  append_stamp(out, message.call);
}

void append_body(std::string* out, const DurableMessage& message) {
  append_tag(out, Tag::kDurable);
  append_u32(out, message.epoch);
  append_u32(out, static_cast<uint32_t>(message.step_rank));
  append_i64(out, message.step);
  append_double(out, message.time);
  append_tally(out, message.appended);
  append_tally(out, message.indexed);
  message.extrema.append_to(out);
  append_u64(out, message.large.values);
  append_u64(out, message.large.bytes);
  message.stats.append_to(out);
  append_u64(out, message.keys);
}

void append_body(std::string* out, const CommittedMessage& message) {
  append_tag(out, Tag::kCommitted);
  append_u32(out, message.epoch);
}

void append_body(std::string* out, const CloseMessage& message) {
  append_tag(out, Tag::kClose);
  append_stamp(out, message.call);
  append_u8(out, static_cast<uint8_t>(message.word));
}

}  // namespace

std::string encode(const Message& message) {
  std::string out;
  std::visit([&](const auto& body) { append_body(&out, body); }, message);
  return out;
}

namespace {

template <class Body>
Result<Message> whole(const Decoder& in, net::Rank from, Bytes bytes, Body body) {
  if (in.finished()) return Message(std::move(body));
  return error(Code::kCorruption, Scope::kPeer, "rank {} sent a malformed control message of {} bytes", from,
               bytes.size());
}

}  // namespace

Result<Message> decode_message(Bytes bytes, net::Rank from) {
  Decoder in(bytes);
  switch (static_cast<Tag>(in.u8())) {
    case Tag::kEnd: {
      EndMessage end;
      end.epoch = EpochNumber(in.u32());
      end.records = in.u64();
      end.call = read_stamp(&in);
      return whole(in, from, bytes, end);
    }
    case Tag::kDurable: {
      DurableMessage durable;
      durable.epoch = EpochNumber(in.u32());
      durable.step_rank = static_cast<net::Rank>(in.u32());
      durable.step = in.i64();
      durable.time = in.f64();
      durable.appended = read_tally(&in);
      durable.indexed = read_tally(&in);
      durable.extrema = ExtremaSummary::read(&in);
      durable.large.values = in.u64();
      durable.large.bytes = in.u64();
      durable.stats = EpochStats::read(&in);
      durable.keys = in.u64();
      return whole(in, from, bytes, std::move(durable));
    }
    case Tag::kCommitted: {
      const CommittedMessage committed{EpochNumber(in.u32())};
      return whole(in, from, bytes, committed);
    }
    case Tag::kClose: {
      CloseMessage close;
      close.call = read_stamp(&in);
      const uint8_t word = in.u8();
      if (word > static_cast<uint8_t>(CloseWord::kEverybody)) break;
      close.word = static_cast<CloseWord>(word);
      return whole(in, from, bytes, close);
    }
  }
  return error(Code::kCorruption, Scope::kPeer, "rank {} sent an unknown control message of {} bytes", from,
               bytes.size());
}

}  // namespace swale::imd
