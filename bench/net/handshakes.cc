// bench_handshakes PEERS [ROUNDS]: how long a rank takes until it has a TLS connection with each of PEERS
// ranks of its job and an answer from each. All ranks are transports of this process, so both sides of each
// handshake are in the time. Prints milliseconds of each round, and of as many connections without TLS.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "net/fabric/address_book.h"
#include "net/fabric/tls_transport.h"

namespace swale::net {
namespace {

// Answers what it hears, or counts the answers.
class Peer final : public TransportEvents {
 public:
  void on_frame(Rank from, Bytes, Bytes) override {
    ++heard;
    if (answers) static_cast<void>(transport->post(from, "pong", Bytes(), 0));
  }
  void on_sent(uint64_t) override {}
  void on_down(Rank, const Status&) override {}  // ranks end one after the other
  Nanos on_progress(Nanos now) override { return now + seconds(3600); }
  void on_failure(const Status& why) override { std::fprintf(stderr, "%s\n", why.to_string().c_str()); }

  Transport* transport = nullptr;
  bool answers = false;
  std::atomic<int> heard{0};
};

Result<double> round_ms(int32_t peers, bool in_clear) {
  TransportOptions options;
  SWALE_ASSIGN_OR_RETURN(options.key, JobKey::draw());
  options.in_clear = in_clear;
  std::vector<std::unique_ptr<TlsTransport>> ranks;
  std::vector<std::string> rows;
  std::vector<Peer> events(static_cast<size_t>(peers) + 1);
  for (Rank rank = 0; rank <= peers; ++rank) {
    SWALE_ASSIGN_OR_RETURN(std::unique_ptr<TlsTransport> made, tls_transport(rank, peers + 1, options));
    events[ranks.size()].transport = made.get();
    events[ranks.size()].answers = rank != 0;
    rows.push_back(encode_address(rank, "here", made->address()));
    ranks.push_back(std::move(made));
  }
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<const AddressBook> book, make_book(rows));
  for (size_t i = 0; i < ranks.size(); ++i) SWALE_RETURN_IF_ERROR(ranks[i]->start(book, &events[i]));
  const Nanos begin = system_clock().now();
  for (Rank rank = 1; rank <= peers; ++rank) static_cast<void>(ranks[0]->post(rank, "ping", Bytes(), 0));
  const auto all = [&] { return events[0].heard.load() == peers; };
  // Refused while the progress thread is at work.
  while (!all() && system_clock().now() < begin + seconds(60)) {
    if (!ranks[0]->drive(all, begin + seconds(60))) ::usleep(100);
  }
  const double ms = to_seconds(system_clock().now() - begin) * 1e3;
  if (!all())
    return error(Code::kDeadlineExceeded, Scope::kFatal, "{} of {} answers", events[0].heard.load(), peers);
  for (auto& each : ranks) static_cast<void>(each->close(Deadline{0}));
  return ms;
}

int run(int32_t peers, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const Result<double> tls = round_ms(peers, false);
    const Result<double> clear = round_ms(peers, true);
    if (!tls.ok() || !clear.ok()) {
      std::fprintf(stderr, "%s\n", (tls.ok() ? clear.status() : tls.status()).to_string().c_str());
      return 1;
    }
    std::printf("%.1f %.1f\n", *tls, *clear);
  }
  return 0;
}

}  // namespace
}  // namespace swale::net

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_handshakes PEERS [ROUNDS]\n");
    return 2;
  }
  return swale::net::run(std::atoi(argv[1]), argc > 2 ? std::atoi(argv[2]) : 1);
}
