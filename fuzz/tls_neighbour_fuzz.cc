// TLS at a rank's port, from two sides: strangers, who say anything in place of a handshake, and rank 0,
// which has the job's key and says anything under it. Rank 1 listens; rank 2 is honest: each of its frames
// arrives, once, in order and unchanged, whatever the others do. The job's ranks part within their deadline.
//
// The two ranks are real transports on real sockets, so an input takes a few milliseconds.
// Input: records of 1 byte that says what happens, and what that takes (hostile_input.h).
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/hostile_input.h"
#include "fuzz/target.h"
#include "net/fabric/address_book.h"
#include "net/fabric/tls_context.h"
#include "net/fabric/tls_listener.h"
#include "net/fabric/tls_session.h"
#include "net/fabric/tls_transport.h"

namespace swale::tls_neighbour_fuzz {
namespace {

using namespace swale::net;
using fuzz::HostileInput;
using fuzz::require;
using Step = TlsSession::Step;

constexpr Rank kHostile = 0, kTarget = 1, kHonest = 2;
constexpr int32_t kRanks = 3;
constexpr uint64_t kSecret = 0x8877665544332211;
constexpr uint32_t kMagic = 0x31545753;  // "SWT1"
constexpr size_t kStepsMax = 60;
constexpr int kPatienceMs = 60'000;  // for what must come
constexpr uint8_t kFrame = 0, kIntroduction = 2;

// What a rank is told; the target's must be what the honest rank has sent.
class Heard final : public TransportEvents {
 public:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    const std::lock_guard lock(mutex_);
    require(from == kHostile || from == kHonest);
    require(!down_[static_cast<size_t>(from)]);
    require(header.size() <= Transport::kHeaderBytesMax && payload.size() <= TlsTransport::kPayloadBytesMax);
    if (from == kHonest)
      require(header == fmt::format("{}", honest_++) && payload == std::string(3'000, 'h'));
    changed_.notify_all();
  }
  void on_sent(uint64_t) override {}
  void on_down(Rank peer, const Status& why) override {
    const std::lock_guard lock(mutex_);
    require(peer == kHostile && !down_[static_cast<size_t>(peer)] && !why.ok());
    down_[static_cast<size_t>(peer)] = true;
  }
  Nanos on_progress(Nanos now) override { return now + seconds(3600); }
  void on_failure(const Status&) override { require(false); }

  void wait_for_honest(uint64_t frames) {
    std::unique_lock lock(mutex_);
    require(
        changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return honest_ == frames; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t honest_ = 0;
  std::array<bool, kRanks> down_ = {};
};

int dial(const Endpoint& to) {
  const int fd = ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(fd >= 0 && ::connect(fd, to.get(), to.bytes) == 0);
  return fd;
}

// What is sent to a connection that the target has closed goes nowhere.
void send_raw(int fd, Bytes bytes) {
  static_cast<void>(!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

class Attack {
 public:
  explicit Attack(const JobKey& key) : context_(TlsContext::make(key).value()) {
    TransportOptions options;
    options.key = key;
    options.secret = kSecret;
    for (const Rank rank : {kTarget, kHonest}) ranks_.push_back(tls_transport(rank, kRanks, options).value());
    const std::vector<std::string> addresses = {nobody(), target().address(), honest().address()};
    require(target().start(*make_book(rows(addresses)), &target_heard_).ok());
    require(honest().start(*make_book(rows(addresses)), &honest_heard_).ok());
    door_ = decode_endpoints(addresses[kTarget])->front();
    honest_frame();  // whoever comes first with the key can take a rank's place
  }
  ~Attack() {
    honest_frame();
    session_.reset();
    for (const int fd : strangers_) ::close(fd);
    std::thread other([this] { close(&honest()); });
    close(&target());
    other.join();
  }

  void step(HostileInput* in) {
    switch (in->byte() % 8) {
      case 0:
        return stranger(in);
      case 1:
        return meet(introduction(kHostile, kTarget, kSecret));
      case 2:
        return meet(introduction(static_cast<uint32_t>(in->number()), static_cast<uint32_t>(in->number()),
                                 in->byte() % 4 == 0 ? in->number() : kSecret));
      case 3:
        return record(kFrame, in->byte() % 65, in->byte() % 4 == 0 ? in->number() % 200'000 : in->byte(), in);
      case 4:
        return record(in->byte() % 6, in->byte(), in->number(), in);
      case 5:
        return say(in->text());  // under the key, but no record
      case 6:
        return under_the_key_in_clear(in);
      default:
        return honest_frame();
    }
  }

 private:
  TlsTransport& target() { return *ranks_[0]; }
  TlsTransport& honest() { return *ranks_[1]; }
  static void close(TlsTransport* rank) {
    require(rank->close(Deadline::in(system_clock(), seconds(60))).ok());
  }
  // An address at which nobody listens: the hostile rank is never dialled, because nobody posts to it.
  std::string nobody() { return target().address(); }
  static std::vector<std::string> rows(const std::vector<std::string>& addresses) {
    std::vector<std::string> rows;
    for (const auto& each : addresses)
      rows.push_back(encode_address(static_cast<Rank>(rows.size()), "a", each));
    return rows;
  }
  static std::string introduction(uint32_t rank, uint32_t to, uint64_t secret) {
    std::string payload;
    append_u32(&payload, kMagic);
    append_u32(&payload, rank);
    append_u32(&payload, to);
    append_u64(&payload, secret);
    return payload;
  }

  void stranger(HostileInput* in) {
    if (strangers_.size() < 8 || in->byte() % 2 == 0) strangers_.push_back(dial(door_));
    send_raw(strangers_[in->byte() % strangers_.size()], in->text());
    if (in->byte() % 4 == 0) ::shutdown(strangers_.back(), SHUT_WR);
  }

  // A connection whose handshake succeeds; the one before it ends.
  void meet(const std::string& introduction) {
    session_ = TlsSession::make(context_.get(), &buffers_, dial(door_), TlsSession::Side::kDials).value();
    Step step = Step::kAgain;
    while (step == Step::kAgain) {
      step = session_->handshake();
      session_->flush();
      pollfd event{session_->fd(), POLLIN, 0};
      if (step == Step::kAgain) require(::poll(&event, 1, kPatienceMs) == 1);
    }
    require(step == Step::kDone);
    record(kIntroduction, 0, introduction.size(), introduction);
  }

  void record(uint8_t kind, uint8_t header_bytes, uint64_t payload_bytes, HostileInput* in) {
    // Of a long payload only a part follows, now and then: the record never ends, or the next one is taken
    // for its rest.
    const size_t follow = in->byte() % 8 == 0 ? in->byte() : std::min<uint64_t>(payload_bytes, 70'000);
    std::string body(in->text());
    body.resize(header_bytes + follow, 'x');
    record(kind, header_bytes, payload_bytes, body);
  }
  void record(uint8_t kind, uint8_t header_bytes, uint64_t payload_bytes, const std::string& body) {
    std::string record;
    append_u32(&record, static_cast<uint32_t>(payload_bytes));
    append_u8(&record, kind);
    append_u8(&record, header_bytes);
    append_u16(&record, 0);
    say(record + body);
  }
  void say(Bytes bytes) {
    for (; session_ && !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), TlsSession::kPutMax))) {
      if (session_->flush() != Step::kDone || !session_->room() ||
          !session_->put(bytes.substr(0, TlsSession::kPutMax)))
        session_.reset();
    }
    if (session_ && session_->flush() == Step::kFailed) session_.reset();
  }
  // Bytes in the connection that are not TLS's.
  void under_the_key_in_clear(HostileInput* in) {
    const Bytes bytes = in->text();
    if (session_) send_raw(session_->fd(), bytes);
  }

  void honest_frame() {
    const std::string header = fmt::format("{}", honest_sent_++);
    static_cast<void>(honest().post(kTarget, header, payload_, 0));
    target_heard_.wait_for_honest(honest_sent_);
  }

  const std::unique_ptr<TlsContext> context_;
  const std::string payload_ = std::string(3'000, 'h');
  Heard target_heard_;
  Heard honest_heard_;
  std::vector<std::unique_ptr<TlsTransport>> ranks_;
  Endpoint door_;
  TlsBuffers buffers_;
  std::unique_ptr<TlsSession> session_;  // the hostile rank's; may be closed by the target
  std::vector<int> strangers_;
  uint64_t honest_sent_ = 0;
};

}  // namespace

SWALE_FUZZ_TARGET(tls_neighbour_fuzz) {
  static const JobKey key = [] {
    set_log_level(LogLevel::kOff);  // each stranger is worth a line
    return JobKey::draw().value();
  }();
  HostileInput in(fuzz::as_bytes(data, size));
  Attack attack(key);
  for (size_t steps = 0; !in.empty() && steps < kStepsMax; ++steps) attack.step(&in);
  return 0;
}

}  // namespace swale::tls_neighbour_fuzz
