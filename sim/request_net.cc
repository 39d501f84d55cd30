#include "sim/request_net.h"

#include <cassert>
#include <utility>

namespace swale::sim {

void RequestNet::down(uint32_t server) {
  assert(servers_[server].up);
  servers_[server].up = false;
  ++servers_[server].life;
  for (const auto& [call, open] : open_) {
    if (open.to == server && open.to_life != servers_[server].life) fail(call);
  }
}

uint64_t RequestNet::open(const Caller& caller, uint32_t to) {
  const uint64_t call = next_++;
  open_.emplace(call, Call{caller, to, servers_[to].life});
  events_.at(events_.now() + kPatience, [this, call] {
    complete(call, error(Code::kDeadlineExceeded, Scope::kOperation, "no answer in time"));
  });
  return call;
}

bool RequestNet::lose() {
  const bool lost = events_.rng().below(1000) < lose_per_mille_;
  lost_ += lost;
  return lost;
}

void RequestNet::carry(uint64_t call, std::function<void()> arrive) {
  const Call& open = open_.at(call);
  events_.after(kDelay, [this, call, to = open.to, life = open.to_life, arrive = std::move(arrive)] {
    if (!lives(to, life)) return fail(call);
    arrive();
  });
}

void RequestNet::carry_copy(uint32_t to, Nanos delay, std::function<void()> arrive) {
  events_.after(delay, [this, to, arrive = std::move(arrive)] {
    if (servers_[to].up) arrive();
  });
}

void RequestNet::answer(uint64_t call, Result<std::string> response) {
  if (lose()) return;  // the caller's patience ends
  end(call, std::move(response));
}

void RequestNet::end(uint64_t call, Result<std::string> result) {
  events_.after(kDelay, [this, call, result = std::move(result)] { complete(call, result); });
}

void RequestNet::fail(uint64_t call) {
  end(call, error(Code::kUnavailable, Scope::kPeer, "the network lost it"));
}

void RequestNet::complete(uint64_t call, const Result<std::string>& result) {
  const auto found = open_.find(call);
  if (found == open_.end()) return;
  const Caller caller = found->second.caller;
  open_.erase(found);
  if (caller.kind == Caller::Kind::kServer && !lives(caller.index, caller.life)) return;
  answered_(caller, result);
}

}  // namespace swale::sim
