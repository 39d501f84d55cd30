#include "sim/tls_net.h"

#include <algorithm>
#include <cassert>

#include "net/fabric/address_book.h"
#include "net/fabric/tls_internal.h"

namespace swale::sim {
namespace {

constexpr Nanos kTurnDelayMax = 20'000;
constexpr int kTurnsAtOnce = 4;
constexpr uint64_t kSecret = 0x8877665544332211;

// The same for every seed: the bytes on the wire differ all the same, because OpenSSL draws its own, but not
// their number.
net::JobKey key() {
  net::JobKey made;
  std::fill(made.bytes.begin(), made.bytes.end(), static_cast<uint8_t>('k'));
  return made;
}

}  // namespace

class TlsNet::Member final : public net::TransportEvents {
 public:
  Member(TlsNet& net, net::Rank rank) : net_(net), rank_(rank) {
    tls_ = std::make_unique<net::tls_internal::Tls>(rank, net.params_.ranks, net.wire_.host(rank));
    net::TransportOptions options;
    options.key = key();
    options.secret = kSecret;
    options.silence_deadline = net.params_.silence_deadline;
    options.in_clear = net.params_.in_clear;
    if (net.params_.rekey_after != 0)
      options.settings = {{"REKEY_AFTER", std::to_string(net.params_.rekey_after)}};
    if (const Status made = tls_->init(options); !made.ok()) net.failure_ = made;
  }

  void on_frame(net::Rank from, Bytes header, Bytes payload) override {
    if (!dying) net_.told_.on_frame(rank_, from, header, payload);
  }
  void on_sent(uint64_t cookie) override {
    lent.erase(cookie);
    if (!dying) net_.told_.on_sent(rank_, cookie);
  }
  void on_down(net::Rank peer, const Status& why) override {
    if (!dying) net_.told_.on_down(rank_, peer, why);
  }
  Nanos on_progress(Nanos) override { return kForever; }
  void on_failure(const Status& why) override {
    if (net_.failure_.ok()) net_.failure_ = why;
  }

  net::tls_internal::Tls* tls() { return tls_.get(); }
  const net::tls_internal::Tls* tls() const { return tls_.get(); }
  void end() { tls_.reset(); }

  std::map<uint64_t, std::string> lent;  // payloads, by cookie
  bool planned = false;                  // a turn
  uint64_t spins = 0;                    // turns since something has happened
  bool in_turn = false;
  bool ending = false;
  bool dying = false;
  Nanos stopped_until = 0;

 private:
  TlsNet& net_;
  const net::Rank rank_;
  std::unique_ptr<net::tls_internal::Tls> tls_;
};

TlsNet::TlsNet(EventQueue& events, const Params& params, Events told)
    : events_(events),
      params_(params),
      told_(std::move(told)),
      wire_(events, params.wire, [this](int host) { wake(host); }) {
  std::vector<std::string> rows;
  for (net::Rank rank = 0; rank < params_.ranks; ++rank) {
    members_.push_back(std::make_unique<Member>(*this, rank));
    if (!failure_.ok()) return;
    rows.push_back(net::encode_address(rank, fmt::format("sim-{}", rank), at(rank).tls()->address()));
  }
  const auto book = net::make_book(rows);
  for (net::Rank rank = 0; rank < params_.ranks; ++rank) {
    const Status begun = book.ok() ? at(rank).tls()->begin(*book, &at(rank)) : book.status();
    if (failure_.ok()) failure_ = begun;
  }
}

TlsNet::~TlsNet() {
  for (const auto& member : members_) member->dying = true;
}

net::Endpoint TlsNet::door(net::Rank rank) const {
  return net::decode_endpoints(at(rank).tls()->address())->front();
}

// Also asked for hosts of strangers, who have no turns, and while members are made.
void TlsNet::wake(net::Rank rank) {
  if (static_cast<size_t>(rank) >= members_.size()) return;
  at(rank).spins = 0;
  plan(rank);
}

void TlsNet::plan(net::Rank rank) {
  Member& member = at(rank);
  if (member.dying || std::exchange(member.planned, true)) return;
  events_.at(std::max(events_.now(), member.stopped_until) + events_.delay(kTurnDelayMax),
             [this, rank] { turn(rank); });
}

void TlsNet::turn(net::Rank rank) {
  Member& member = at(rank);
  member.planned = false;
  if (member.dying) return;
  if (events_.now() < member.stopped_until) return plan(rank);
  member.in_turn = true;
  bool did = true;
  for (int i = 0; i < kTurnsAtOnce && did; ++i, ++turns_) did = member.tls()->step(!member.ending);
  member.in_turn = false;
  if (member.dying) return;
  if (!did && member.tls()->rests()) return;
  longest_spin_ = std::max(longest_spin_, ++member.spins);
  plan(rank);
}

void TlsNet::post(net::Rank from, net::Rank to, Bytes header, Bytes payload, uint64_t cookie) {
  Member& member = at(from);
  if (member.dying) return;
  const auto kept = member.lent.emplace(cookie, std::string(payload));
  assert(kept.second);
  if (member.tls()->post(to, header, kept.first->second, cookie)) member.on_sent(cookie);
  wake(from);
}

void TlsNet::drop(net::Rank rank, net::Rank peer, const Status& why) {
  if (at(rank).dying) return;
  at(rank).tls()->drop(peer, why);
  wake(rank);
}

// From inside of an event of its own it dies after it: nothing of it is heard from here on anyway.
void TlsNet::kill(net::Rank rank) {
  Member& member = at(rank);
  member.dying = true;
  if (member.in_turn) return events_.at(events_.now(), [this, rank] { kill(rank); });
  if (member.tls() == nullptr) return;
  member.end();
  wire_.kill(rank);
}

void TlsNet::stop(net::Rank rank, Nanos until) { at(rank).stopped_until = until; }
bool TlsNet::alive(net::Rank rank) const { return !at(rank).dying; }

void TlsNet::begin_end(net::Rank rank) {
  at(rank).ending = true;
  at(rank).tls()->begin_end();
  wake(rank);
}
bool TlsNet::ended(net::Rank rank) { return at(rank).dying || at(rank).tls()->ended(); }
void TlsNet::end_all(net::Rank rank) {
  if (!at(rank).dying) at(rank).tls()->end_all();
}

size_t TlsNet::half_open(net::Rank rank) { return at(rank).tls()->connections().half_open; }
uint64_t TlsNet::rejected(net::Rank rank) const { return at(rank).tls()->rejected_messages(); }

}  // namespace swale::sim
