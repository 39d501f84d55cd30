#include "sim/sim_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "net/talk/conversation.h"

namespace swale::sim {
namespace {

net::Liveness::Params watch_of(const SimJob::Params& params) {
  net::Liveness::Params watch;
  watch.rank = params.rank;
  watch.size = params.size;
  watch.host_of = [](net::Rank rank) { return fmt::format("sim-{}", rank); };
  watch.silence_deadline = params.silence_deadline;
  watch.heartbeat_interval = params.silence_deadline / 5;
  return watch;
}

}  // namespace

SimJob::SimJob(const Params& params, EventQueue& events, Fabric& fabric, Events told)
    : params_(params),
      events_(events),
      fabric_(fabric),
      told_(std::move(told)),
      liveness_(watch_of(params)),
      tree_(params.rank, params.size) {}

void SimJob::poll() {
  if (params_.size == 1 || told_.over()) return;
  const net::Liveness::Due due = liveness_.poll(events_.now());
  for (const net::Rank peer : due.heartbeats) post_own(peer, net::FrameKind::kHeartbeat, {});
  for (const net::Liveness::Silent& each : due.silent)
    if (!fabric_.drop(params_.rank, each.peer, each.why)) lose(each.peer, each.why);
  events_.at(std::max(due.next, events_.now() + 1), [this] { poll(); });
}

void SimJob::lose(net::Rank peer, const Status& why) {
  liveness_.on_down(peer);
  tree_.on_gone(peer, why);
  post_exchange();
  told_.on_exchange();
  told_.on_down(peer, why);
}

void SimJob::post(const net::Post& post) {
  liveness_.note_sent(post.to);
  fabric_.send(params_.rank, post.to, {post.header.data(), post.header.size()}, post.payload);
}

void SimJob::post_own(net::Rank to, net::FrameKind kind, Bytes payload) {
  net::FrameHeader header;
  header.secret = params_.secret;
  header.kind = kind;
  const auto bytes = header.encode(payload);
  liveness_.note_sent(to);
  fabric_.send(params_.rank, to, {bytes.data(), bytes.size()}, payload);
}

void SimJob::post_exchange() {
  for (const auto& [to, message] : tree_.take_outgoing()) post_own(to, net::FrameKind::kExchange, message);
}

// As net::Job::give_up does.
void SimJob::give_up(const Status& why) {
  tree_.give_up(why);
  post_exchange();
  told_.on_exchange();
  told_.on_failure(why);
}

// As net::Job does: drops frames without the job's secret; damage ends the job on this rank.
void SimJob::arrive(net::Rank from, Bytes bytes, Bytes payload) {
  const Result<net::FrameHeader> header = net::FrameHeader::decode(bytes, payload, params_.secret);
  if (!header.ok()) {
    if (header.status().scope() == Scope::kOperation) return;
    return give_up(error(Code::kCorruption, Scope::kFatal, "rank {}: from rank {}: {}", params_.rank, from,
                         header.status().message()));
  }
  liveness_.note_heard(from);
  if (header->kind == net::FrameKind::kHeartbeat) return;
  if (header->kind != net::FrameKind::kExchange) {
    if (header->channel - kChannel < net::Conversation::kRoutedChannels)
      told_.on_frame(from, *header, payload);
    return;
  }
  tree_.on_message(from, payload);
  post_exchange();
  told_.on_exchange();
}

net::Ranks SimJob::ranks(Fiber& fiber) {
  return {params_.rank, params_.size, [this, &fiber](Bytes mine) { return least(fiber, mine); }};
}

Result<std::string> SimJob::least(Fiber& fiber, Bytes mine) {
  if (params_.size == 1) return std::string(mine);
  tree_.begin(mine, net::ExchangeTree::Answer::kLeast);
  post_exchange();
  // Children that have not sent anything yet may be dead already: watch them from here on.
  for (const net::Rank each : tree_.awaited()) post_own(each, net::FrameKind::kHeartbeat, {});
  for (;;) {
    if (std::optional<Result<net::ExchangeTree::Parts>> answer = tree_.take()) {
      if (!answer->ok()) return answer->status();
      return (*answer)->empty() ? std::string() : std::move((*answer)->begin()->second);
    }
    if (!fiber.wait()) return error(Code::kAborted, Scope::kFatal, "this process is dead");
  }
}

}  // namespace swale::sim
