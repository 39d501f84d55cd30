// Names of a job's tree: records, messages, and a server that gets any messages. Input: 1 byte that says
// what, then its bytes; for the server, each message after one byte of its length.
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "meta/names/names_core.h"

namespace swale::meta_names_fuzz {
namespace {

using namespace swale::meta;
using fuzz::require;

void record(Bytes bytes) {
  NameTable one(0), two(0);
  if (!one.replay(bytes).ok()) return;
  one.for_each_record([&](Bytes each) { require(two.replay(each).ok()); });
  require(one.entries() == two.entries() && one.nodes() == two.nodes() && one.locks() == two.locks());
}

void messages(Bytes bytes) {
  if (const auto request = decode_name_request(bytes); request.ok()) {
    const std::string again = encode(*request);
    require(decode_name_request(again).ok());
  }
  if (const auto request = decode_peer_request(bytes); request.ok()) {
    const std::string again = encode(*request);
    require(decode_peer_request(again).ok());
  }
  if (const auto answer = decode_name_answer(bytes); answer.ok()) {
    const std::string again = encode(*answer);
    require(decode_name_answer(again).ok());
  }
  if (const auto answer = decode_peer_answer(bytes); answer.ok()) {
    const std::string again = encode(*answer);
    require(decode_peer_answer(again).ok());
  }
}

struct Log final : NameLog {
  uint64_t groups = 0;
  uint64_t add(Bytes) override { return ++groups; }
  bool accepts() const override { return true; }
  Status health() const override { return {}; }
};

// A server of two. Each message gets one reply at most, and what the server calls is well formed.
void server(Bytes bytes) {
  NameTable table(0);
  Log log;
  NamesCore core(0, 2, 1, &table, &log);
  std::vector<bool> replied;
  std::vector<NameReply> replies;
  std::vector<NameCall> calls;
  while (!bytes.empty() && replied.size() < 200) {
    const size_t length = std::min<size_t>(static_cast<uint8_t>(bytes[0]), bytes.size() - 1);
    core.on_request(bytes.substr(1, length), replied.size());
    bytes.remove_prefix(1 + length);
    replied.push_back(false);
    core.on_durable(log.groups);
    for (size_t round = 0; round < 20; ++round) {
      replies.clear(), calls.clear();
      core.take_replies(&replies);
      core.take_calls(&calls);
      for (const NameReply& each : replies) {
        require(each.token < replied.size() && !replied[each.token]);
        replied[each.token] = true;
      }
      for (const NameCall& each : calls) {
        require(each.to < 2 && decode_peer_request(each.payload).ok());
        core.on_completion(each.tag, encode(PeerAnswer()));
      }
      core.on_durable(log.groups);
    }
  }
}

}  // namespace

SWALE_FUZZ_TARGET(meta_names_fuzz) {
  if (size == 0) return 0;
  const Bytes bytes = fuzz::as_bytes(data, size).substr(1);
  if (data[0] == 0) record(bytes);
  if (data[0] == 1) messages(bytes);
  if (data[0] >= 2) server(bytes);
  return 0;
}

}  // namespace swale::meta_names_fuzz
