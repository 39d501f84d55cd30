// Strangers at the ports of the transport `tls`, while ranks of the job send each other frames. Nothing that
// a stranger sends is looked at by anybody but OpenSSL; what he can have of a rank is bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/coding.h"
#include "base/rng.h"
#include "base/testing/sanitizers.h"
#include "net/fabric/testing/tls_test_util.h"
#include "net/fabric/testing/transport_test_util.h"

namespace swale::net::tls_strangers_test {
namespace {

using testing::HasSubstr;
using Step = TlsSession::Step;

constexpr Rank kTarget = 1;
constexpr uint64_t kSecret = 0x8877665544332211;

// Three ranks; 0 and 2 send to the target while an attack runs.
class TlsStrangers : public testing::Test {
 protected:
  TlsStrangers() {
    TransportOptions options;
    options.key = key_;
    options.secret = kSecret;
    for (Rank rank = 0; rank < 3; ++rank) {
      ranks_.push_back(tls_transport(rank, 3, options).value());
      recorders_.push_back(std::make_unique<Recorder>());
      addresses_.push_back(ranks_.back()->address());
    }
    for (Rank rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(at(rank).start(book_of(addresses_), recorders_[static_cast<size_t>(rank)].get()).ok());
    door_ = decode_endpoints(addresses_[kTarget])->front();
  }
  ~TlsStrangers() override {
    std::vector<std::thread> threads;
    for (auto& each : ranks_) {
      threads.emplace_back([&each] {
        const Status status = each->close(Deadline::in(system_clock(), seconds(30)));
        EXPECT_TRUE(status.ok()) << status.to_string();
      });
    }
    for (auto& each : threads) each.join();
  }

  // Frames go through, from those that have met and from those that have not.
  void check_the_job() {
    for (const Rank from : {0, 2}) {
      for (int i = 0; i < 50; ++i)
        net::post(&at(from), recorders_[static_cast<size_t>(from)].get(), kTarget,
                  fmt::format("{}", sent_[from]++), payload_, 0);
    }
    Recorder& got = *recorders_[kTarget];
    ASSERT_TRUE(got.wait_for([&] { return got.frames.size() == static_cast<size_t>(sent_[0] + sent_[2]); }));
    const std::lock_guard lock(got.mutex);
    int next[3] = {};
    for (const auto& frame : got.frames) {
      ASSERT_EQ(frame.header, fmt::format("{}", next[frame.from]++));
      ASSERT_EQ(frame.payload, payload_);
    }
    EXPECT_TRUE(got.downs.empty());
  }
  bool wait_until_rejected(uint64_t expected) {
    const Nanos until = system_clock().now() + seconds(60);
    while (at(kTarget).rejected_messages() < expected && system_clock().now() < until) ::usleep(1'000);
    return at(kTarget).rejected_messages() >= expected;
  }
  // Counting may follow the close that the stranger sees.
  void expect_rejected(uint64_t expected) {
    EXPECT_TRUE(wait_until_rejected(expected));
    EXPECT_EQ(at(kTarget).rejected_messages(), expected);
  }
  TlsTransport& at(Rank rank) { return *ranks_[static_cast<size_t>(rank)]; }

  const JobKey key_ = JobKey::draw().value();
  const std::string payload_ = pattern(3, 3'000);
  std::vector<std::unique_ptr<TlsTransport>> ranks_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::string> addresses_;
  Endpoint door_;
  int sent_[3] = {};
};

// Of a handshake that succeeds, what the one who dials sends: heard by a wiretap.
std::string recorded_dial(const JobKey& key) {
  TransportOptions options;
  options.key = key;
  options.secret = kSecret;
  Recorder recorders[2];
  std::vector<std::unique_ptr<TlsTransport>> two;
  std::vector<std::string> addresses;
  for (Rank rank = 0; rank < 2; ++rank) {
    two.push_back(tls_transport(rank, 3, options).value());
    addresses.push_back(two.back()->address());
  }
  addresses.push_back(addresses.back());
  Wiretap wiretap(decode_endpoints(addresses[1])->front());
  addresses[1] = wiretap.address();
  for (Rank rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(two[static_cast<size_t>(rank)]->start(book_of(addresses), &recorders[rank]).ok());
  net::post(two[0].get(), &recorders[0], 1, "h", "recorded", 0);
  EXPECT_TRUE(recorders[1].wait_for([&] { return recorders[1].frames.size() == 1; }));
  return wiretap.heard(0);
}

TEST_F(TlsStrangers, BytesThatAreNoHandshakeOrPiecesOfOneOrAnOldOneAreCountedAndClosed) {
  check_the_job();
  Rng rng(29);
  const std::string dial = recorded_dial(key_);
  ASSERT_GT(dial.size(), 300u);
  uint64_t wrong = 0;
  const auto try_bytes = [&](const std::string& bytes) {
    RawClient stranger(door_);
    ASSERT_TRUE(stranger.connected());
    stranger.send(bytes);
    ASSERT_TRUE(stranger.wait_for_close());
    ++wrong;
  };
  for (int i = 0; i < 100; ++i) {
    std::string bytes = pattern(rng.next(), 5 + rng.below(5'000));
    bytes[0] = static_cast<char>(0x80 | bytes[0]);  // never the beginning of a record that goes on for long
    try_bytes(bytes);
  }
  // The key's own handshake and data, said again: the other side's part is another one each time.
  for (int i = 0; i < 10; ++i) try_bytes(dial);
  // With one bit changed in the first message.
  for (int i = 0; i < 50; ++i) {
    std::string changed = dial;
    const size_t bit = 8 * 43 + rng.below(8 * 150);  // behind the lengths, in random, ciphers and extensions
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    try_bytes(changed);
  }
  expect_rejected(wrong);
  // Whoever goes before he has said anything whole is no reason for anything.
  for (size_t bytes = 0; bytes < 200; bytes += 7) {
    RawClient stranger(door_);
    stranger.send(Bytes(dial).substr(0, bytes));
    stranger.finish_sending();
    ASSERT_TRUE(stranger.wait_for_close());
  }
  check_the_job();
}

TEST_F(TlsStrangers, WithoutTheKeyOrWithAnotherOneNobodyGetsThroughTheHandshake) {
  SSL_CTX* without = SSL_CTX_new(TLS_client_method());
  for (int i = 0; i < 5; ++i) {
    RawClient raw(door_);
    SSL* ssl = SSL_new(without);
    const int fd = raw.release();
    SSL_set_fd(ssl, fd);
    EXPECT_NE(SSL_connect(ssl), 1);
    SSL_free(ssl);
    ::close(fd);
  }
  SSL_CTX_free(without);
  const auto another = TlsContext::make(JobKey::draw().value()).value();
  for (int i = 0; i < 5; ++i) {
    TlsClient stranger(another.get(), door_);
    EXPECT_NE(stranger.shake_hands(), Step::kDone);
    EXPECT_THAT(stranger.why(), HasSubstr("alert"));
  }
  expect_rejected(10);
  check_the_job();
  // The canary: with the key it is one handshake.
  const auto own = TlsContext::make(key_).value();
  TlsClient friendly(own.get(), door_);
  EXPECT_EQ(friendly.shake_hands(), Step::kDone) << friendly.why();
}

std::string introduction(uint32_t magic, uint32_t rank, uint32_t to, uint64_t secret) {
  std::string out;
  append_u32(&out, magic);
  append_u32(&out, rank);
  append_u32(&out, to);
  append_u64(&out, secret);
  return out;
}

TEST_F(TlsStrangers, WhoHasTheKeyAndSpeaksNonsenseIsRefused) {
  constexpr uint32_t kMagic = 0x31545753;
  const auto context = TlsContext::make(key_).value();
  const auto closes = [&](uint8_t kind, const std::string& payload, uint8_t header_bytes = 0) {
    TlsClient client(context.get(), door_);
    ASSERT_EQ(client.shake_hands(), Step::kDone) << client.why();
    client.say(kind, payload, header_bytes);
    EXPECT_EQ(client.hear(), "");
  };
  const std::string good = introduction(kMagic, 0, kTarget, kSecret);
  closes(2, introduction(kMagic + 1, 0, kTarget, kSecret));
  closes(2, introduction(kMagic, 3, kTarget, kSecret));
  closes(2, introduction(kMagic, ~0u, kTarget, kSecret));
  closes(2, introduction(kMagic, kTarget, kTarget, kSecret));
  closes(2, introduction(kMagic, 0, kTarget, ~kSecret));
  closes(2, good + "x");
  closes(2, good.substr(1));
  closes(2, "");
  closes(0, good);  // a frame before the introduction
  closes(1, "");
  closes(3, "");
  closes(4, good);
  closes(99, good);
  closes(2, std::string(60'000, 'x'));
  closes(0, good, 65);
  expect_rejected(15);
  // Meant for another rank: told so.
  TlsClient lost(context.get(), door_);
  ASSERT_EQ(lost.shake_hands(), Step::kDone);
  lost.say(2, introduction(kMagic, 0, 2, kSecret));
  EXPECT_EQ(lost.hear(), std::string("\4\0\0\0\4\0\0\0\2\0\0\0", 12));
  check_the_job();
}

TEST_F(TlsStrangers, HalfOpenConnectionsAreBoundedAndRanksMeetBesideThem) {
  std::vector<RawClient> strangers;
  const std::string piece("\x16\x03\x01\x01\x00\x01\x00", 7);  // a hello begins
  for (int i = 0; i < 1'500; ++i) {
    strangers.emplace_back(door_);
    if (!strangers.back().connected()) {
      strangers.pop_back();
      break;
    }
    if (i % 2 == 0) strangers.back().send(piece);
    EXPECT_LE(at(kTarget).connections().half_open, TlsTransport::kHalfOpenMin);
  }
  ASSERT_GT(strangers.size(), 1'000u) << "how many descriptors does this test have?";
  EXPECT_TRUE(wait_until_rejected(500))
      << "connections may wait in the kernel until the listener gets a core";
  check_the_job();  // ranks 0 and 2 have not met the target before
  // None holds on for longer than the deadline.
  const Nanos until = system_clock().now() + 4 * TlsTransport::kHandshakeDeadline;
  while (at(kTarget).connections().half_open > 0 && system_clock().now() < until) ::usleep(10'000);
  EXPECT_EQ(at(kTarget).connections().half_open, 0u);
  check_the_job();
}

Nanos process_cpu() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// MiB of this process that are in memory.
size_t resident_mib() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096 >> 20;
}

// A node scanner, or somebody who means it: what each of them has cost is given back.
TEST_F(TlsStrangers, TenThousandConnectionsLeaveNothing) {
  check_the_job();
  const size_t descriptors_before = descriptors();
  constexpr size_t kAtATime = 400;
  const std::string piece("\x16\x03\x01\x01\x00\x01\x00", 7);
  size_t made = 0, memory_before = 0;
  {
    std::deque<RawClient> strangers;
    for (; made < 10'000; ++made) {
      if (made == 2 * kAtATime) memory_before = resident_mib();
      strangers.emplace_back(door_);
      ASSERT_TRUE(strangers.back().connected()) << made;
      if (made % 3 == 0) strangers.back().send(piece);
      if (made % 3 == 1) strangers.back().send("GET / HTTP/1.1\r\n\r\n");
      if (strangers.size() > kAtATime) strangers.pop_front();
      if (made % 100 == 0) {
        EXPECT_LE(at(kTarget).connections().half_open, TlsTransport::kHalfOpenMin);
      }
    }
  }
  check_the_job();
  // Every third one has sent what is no TLS. Who says nothing wrong and is gone before a slow listener comes
  // to it may be a rank that has changed its mind: that is not counted.
  EXPECT_TRUE(wait_until_rejected(made / 3 - TlsTransport::kHalfOpenMin));
  const Nanos until = system_clock().now() + seconds(60);
  while (descriptors() > descriptors_before && system_clock().now() < until) ::usleep(10'000);
  EXPECT_LE(descriptors(), descriptors_before);
  if (!test::kAddressSanitizer) {
    EXPECT_LT(resident_mib(), memory_before + 20);
  }
}

// It has proved that it has the key, and is slow with its introduction; the flood comes behind it.
TEST_F(TlsStrangers, AFloodDropsStrangersBeforeThoseWhoHaveTheKey) {
  const auto context = TlsContext::make(key_).value();
  TlsClient slow(context.get(), door_);
  ASSERT_EQ(slow.shake_hands(), Step::kDone) << slow.why();
  std::vector<RawClient> strangers;
  for (size_t i = 0; i < TlsTransport::kHalfOpenMin + 20; ++i) strangers.emplace_back(door_);
  const Nanos until = system_clock().now() + seconds(4);
  while (at(kTarget).rejected_messages() == 0 && system_clock().now() < until) ::usleep(1'000);
  EXPECT_GT(at(kTarget).rejected_messages(), 0u);
  slow.say(2, introduction(0x31545753, 0, 2, kSecret));
  EXPECT_EQ(slow.hear(), std::string("\4\0\0\0\4\0\0\0\2\0\0\0", 12)) << "meant for another rank";
  strangers.clear();
  check_the_job();
}

// Strangers and ranks are one process here, so it has no descriptor left for either.
TEST_F(TlsStrangers, AtTheLimitOfDescriptorsTheListenerGoesOnAndDoesNotSpin) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = descriptors() + 40;
  std::vector<RawClient> strangers;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Nanos until = system_clock().now() + seconds(20);
  while (at(kTarget).rejected_messages() == 0 && system_clock().now() < until) {
    RawClient stranger(door_);
    if (stranger.connected()) {
      strangers.push_back(std::move(stranger));
      continue;
    }
    // They may have taken the listener's reserve when it gave that up: it takes the next one that is free.
    ::usleep(50'000);
    if (at(kTarget).rejected_messages() == 0 && !strangers.empty()) strangers.pop_back();
  }
  EXPECT_GT(at(kTarget).rejected_messages(), 0u);
  Nanos least = kForever;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Nanos cpu = process_cpu();
    ::usleep(300'000);
    least = std::min(least, process_cpu() - cpu);
  }
  EXPECT_LT(least, milliseconds(60)) << "20 % of 300 ms";
  strangers.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  check_the_job();
}

// Listens where a rank is said to be, and shows a certificate of its own.
class Impostor {
 public:
  Impostor() : listener_(TlsListener::make().value()), context_(SSL_CTX_new(TLS_server_method())) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -1'000);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 100'000);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    thread_ = std::thread([this] { run(); });
  }
  ~Impostor() {
    stop_.store(true);
    thread_.join();
    SSL_CTX_free(context_);
  }
  std::string address() const { return encode_endpoints({listener_->endpoints().front()}); }
  std::atomic<int> handshakes{0};
  std::atomic<int> visits{0};

 private:
  void run() {
    while (!stop_.load()) {
      pollfd event{listener_->sockets().front(), POLLIN, 0};
      if (::poll(&event, 1, 20) <= 0) continue;
      const int fd = listener_->accept(event.fd).fd;
      if (fd < 0) continue;
      ++visits;
      SSL* ssl = SSL_new(context_);
      SSL_set_fd(ssl, fd);
      int done = -1;
      for (int tries = 0; tries < 100 && done != 1; ++tries) {
        done = SSL_accept(ssl);
        if (done != 1 && SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ) break;
        pollfd more{fd, POLLIN, 0};
        ::poll(&more, 1, 20);
      }
      handshakes += done == 1;
      SSL_free(ssl);
      ::close(fd);
    }
  }
  std::unique_ptr<TlsListener> listener_;
  SSL_CTX* context_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(TlsImpostor, AServerWithACertificateInPlaceOfTheKeyGetsNothing) {
  Impostor impostor;
  TransportOptions options;
  options.key = JobKey::draw().value();
  auto rank = tls_transport(0, 2, options).value();
  Recorder recorder;
  ASSERT_TRUE(rank->start(book_of({rank->address(), impostor.address()}), &recorder).ok());
  net::post(rank.get(), &recorder, 1, "h", "for rank 1", 3);
  ASSERT_TRUE(recorder.wait_for([&] { return recorder.downs.count(1) == 1 && recorder.sent[3] == 1; }));
  EXPECT_THAT(recorder.downs[1].message(), HasSubstr("TLS handshake"));
  EXPECT_TRUE(rank->close(Deadline::in(system_clock(), seconds(10))).ok());
  EXPECT_GE(impostor.visits.load(), 1);
  EXPECT_EQ(impostor.handshakes.load(), 0);
}

}  // namespace
}  // namespace swale::net::tls_strangers_test
