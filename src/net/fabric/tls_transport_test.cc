// The transport `tls`: what is its own beside the promises of all transports (transport_contract_test.cc).
#include "net/fabric/tls_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/coding.h"
#include "net/fabric/testing/tls_test_util.h"
#include "net/fabric/testing/transport_test_util.h"

namespace swale::net::tls_transport_test {
namespace {

using testing::HasSubstr;

// Ranks with one key. Their address book may lead through a wiretap.
class TlsRanks {
 public:
  explicit TlsRanks(int32_t size, TransportOptions options = {}) {
    options.key = key;
    options.secret = kSecret;
    for (Rank rank = 0; rank < size; ++rank) {
      all.push_back(tls_transport(rank, size, options).value());
      recorders.push_back(std::make_unique<Recorder>());
      addresses.push_back(all.back()->address());
    }
  }
  void start(const std::vector<TransportEvents*>& events = {}) {
    for (size_t i = 0; i < all.size(); ++i) {
      const Status status =
          all[i]->start(book_of(addresses), events.empty() ? recorders[i].get() : events[i]);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  void post(Rank from, Rank to, Bytes header, Bytes payload, uint64_t cookie = 0) {
    net::post(&at(from), &recorder(from), to, header, payload, cookie);
  }
  void close(Nanos patience = seconds(30)) {
    std::vector<std::thread> threads;
    for (auto& each : all) {
      threads.emplace_back([&each, patience] {
        if (each) static_cast<void>(each->close(Deadline::in(system_clock(), patience)));
      });
    }
    for (auto& each : threads) each.join();
  }
  TlsTransport& at(Rank rank) { return *all[static_cast<size_t>(rank)]; }
  Recorder& recorder(Rank rank) { return *recorders[static_cast<size_t>(rank)]; }

  static constexpr uint64_t kSecret = 0x1122334455667788;
  const JobKey key = JobKey::draw().value();
  std::vector<std::unique_ptr<Recorder>> recorders;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<TlsTransport>> all;
};

std::string bytes_of(const JobKey& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}

TEST(TlsTransport, BothMayDialAtOnceAndOneConnectionStays) {
  for (int round = 0; round < 30; ++round) {
    TlsRanks ranks(4);
    ranks.start();
    std::vector<std::thread> threads;
    for (Rank from = 0; from < 4; ++from) {
      threads.emplace_back([&, from] {
        for (int i = 0; i < 10; ++i) {
          for (Rank to = 0; to < 4; ++to) {
            if (to != from) ranks.post(from, to, fmt::format("{}", i), "payload");
          }
        }
      });
    }
    for (auto& each : threads) each.join();
    for (Rank rank = 0; rank < 4; ++rank) {
      Recorder& got = ranks.recorder(rank);
      ASSERT_TRUE(got.wait_for([&] { return got.frames.size() == 30 && got.sent_count == 30; }));
      {
        const std::lock_guard lock(got.mutex);
        int next[4] = {};
        for (const auto& frame : got.frames) EXPECT_EQ(frame.header, fmt::format("{}", next[frame.from]++));
        EXPECT_TRUE(got.downs.empty());
      }
      EXPECT_EQ(ranks.at(rank).connections().open, 3u);
      EXPECT_EQ(ranks.at(rank).rejected_messages(), 0u);
    }
    ranks.close();
  }
}

// Does not return from an event until it may.
class Slow final : public Recorder {
 public:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    std::unique_lock lock(gate_);
    stands_ = true;
    opened_.notify_all();
    opened_.wait_for(lock, kTestPatience, [&] { return open_; });
    lock.unlock();
    Recorder::on_frame(from, header, payload);
  }
  void wait_until_it_stands() {
    std::unique_lock lock(gate_);
    EXPECT_TRUE(opened_.wait_for(lock, kTestPatience, [&] { return stands_; }));
  }
  void let_go() {
    const std::lock_guard lock(gate_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex gate_;
  std::condition_variable opened_;
  bool open_ = false;
  bool stands_ = false;
};

TEST(TlsTransport, APayloadStaysLentWhileTheReceiverDoesNotRead) {
  TlsRanks ranks(2);
  Slow slow;
  ranks.start({&ranks.recorder(0), &slow});
  constexpr size_t kFrames = 64;
  const std::string payload = pattern(1, 3 * kMiB + 17);
  for (size_t i = 0; i < kFrames; ++i) ranks.post(0, 1, "h", payload, i);
  // What the kernel and the buffer take is a fraction of these 192 MiB.
  Recorder& sender = ranks.recorder(0);
  ASSERT_TRUE(sender.wait_for([&] { return sender.sent_count > 0; }));
  {
    const std::lock_guard lock(sender.mutex);
    EXPECT_LT(sender.sent_count, kFrames / 2);
  }
  slow.let_go();
  ASSERT_TRUE(slow.wait_for([&] { return slow.frames.size() == kFrames; }));
  for (const auto& frame : slow.frames) ASSERT_EQ(frame.payload, payload);
  ASSERT_TRUE(sender.wait_for([&] { return sender.sent_count == kFrames; }));
  ranks.close();
}

TEST(TlsTransport, AKilledRankIsDownAndOthersMeetAfterwards) {
  TlsRanks ranks(4);
  ranks.start();
  for (const Rank to : {0, 2}) ranks.post(1, to, "h", "before");
  for (const Rank rank : {0, 2}) {
    Recorder& got = ranks.recorder(rank);
    ASSERT_TRUE(got.wait_for([&] { return got.frames.size() == 1; }));
  }
  ranks.all[1].reset();  // no end mark, as the kernel does it for a dead process
  for (const Rank rank : {0, 2}) {
    Recorder& got = ranks.recorder(rank);
    ASSERT_TRUE(got.wait_for([&] { return got.downs.count(1) == 1; }));
    EXPECT_THAT(got.downs[1].message(), HasSubstr("rank 1 (host somewhere) is gone"));
  }
  // Nobody listens for the one that meets it only now.
  ranks.post(3, 1, "h", "too late", 9);
  Recorder& late = ranks.recorder(3);
  ASSERT_TRUE(late.wait_for([&] { return late.downs.count(1) == 1 && late.sent[9] == 1; }));
  ranks.post(0, 2, "h", "after");
  ranks.post(3, 0, "h", "after");
  ASSERT_TRUE(ranks.recorder(2).wait_for([&] { return ranks.recorder(2).frames.size() == 2; }));
  ASSERT_TRUE(ranks.recorder(0).wait_for([&] { return ranks.recorder(0).frames.size() == 2; }));
  ranks.close();
}

// Its kernel answers, and it does not: who waits for it is the job, not the fabric.
TEST(TlsTransport, ARankThatIsSlowerThanAHandshakesDeadlineIsWaitedFor) {
  TlsRanks ranks(2);
  const auto book = book_of(ranks.addresses);
  ASSERT_TRUE(ranks.at(0).start(book, &ranks.recorder(0)).ok());
  ranks.post(0, 1, "h", "early", 4);
  std::this_thread::sleep_for(std::chrono::nanoseconds(TlsTransport::kHandshakeDeadline + milliseconds(300)));
  ASSERT_TRUE(ranks.at(1).start(book, &ranks.recorder(1)).ok());
  ASSERT_TRUE(ranks.recorder(1).wait_for([&] { return ranks.recorder(1).frames.size() == 1; }));
  EXPECT_TRUE(ranks.recorder(0).downs.empty());
  ranks.close();
}

// It stands between the handshake and the introduction of the rank that dials, which has then said all that
// it has to say.
TEST(TlsTransport, ARankThatStandsWhileItIsMetLosesNobody) {
  TlsRanks ranks(3);
  Slow slow;
  int pieces = 0;
  Wiretap wiretap(decode_endpoints(ranks.addresses[1])->front(), [&](int direction, size_t, MutableBytes) {
    if (direction != 0 || ++pieces != 2) return;  // the end of the handshake, and the introduction
    ranks.post(2, 1, "h", "stand");
    slow.wait_until_it_stands();
  });
  const std::vector<std::string> direct = ranks.addresses;
  std::vector<std::string> through = direct;
  through[1] = wiretap.address();
  ASSERT_TRUE(ranks.at(0).start(book_of(through), &ranks.recorder(0)).ok());
  ASSERT_TRUE(ranks.at(1).start(book_of(direct), &slow).ok());
  ASSERT_TRUE(ranks.at(2).start(book_of(direct), &ranks.recorder(2)).ok());
  ranks.post(0, 1, "h", "early");
  slow.wait_until_it_stands();
  std::this_thread::sleep_for(std::chrono::nanoseconds(TlsTransport::kHandshakeDeadline + milliseconds(500)));
  slow.let_go();
  EXPECT_TRUE(slow.wait_for([&] { return slow.frames.size() == 2 || !slow.downs.empty(); }));
  EXPECT_TRUE(slow.downs.empty()) << slow.downs.begin()->second.to_string();
  EXPECT_TRUE(ranks.recorder(0).downs.empty());
  ranks.close();
}

// The canary is the same job without TLS, in whose traffic everything is found.
TEST(TlsTransport, NeitherKeyNorSecretNorDataAreOnTheWireOrInAnAddress) {
  for (const bool in_clear : {false, true}) {
    TransportOptions options;
    options.in_clear = in_clear;
    TlsRanks ranks(2, options);
    Wiretap wiretap(decode_endpoints(ranks.addresses[1])->front());
    ranks.addresses[1] = wiretap.address();
    ranks.start();
    const std::string payload = "what nobody but the receiver is to read";
    ranks.post(0, 1, "the header", payload);
    ASSERT_TRUE(ranks.recorder(1).wait_for([&] { return ranks.recorder(1).frames.size() == 1; }));
    ranks.post(1, 0, "the header", payload);
    ASSERT_TRUE(ranks.recorder(0).wait_for([&] { return ranks.recorder(0).frames.size() == 1; }));
    ranks.close();
    std::string secret;
    append_u64(&secret, TlsRanks::kSecret);
    for (const int direction : {0, 1}) {
      const std::string heard = wiretap.heard(direction);
      EXPECT_GT(heard.size(), payload.size());
      EXPECT_EQ(heard.find(bytes_of(ranks.key)), heard.npos);
      EXPECT_EQ(heard.find(payload) != heard.npos, in_clear);
      EXPECT_EQ(heard.find("the header") != heard.npos, in_clear);
      EXPECT_EQ(heard.find(secret) != heard.npos, in_clear && direction == 0) << "the introduction has it";
    }
    for (const std::string& each : ranks.addresses) {
      EXPECT_EQ(each.find(bytes_of(ranks.key)), each.npos);
      EXPECT_EQ(each.find(secret), each.npos);
    }
  }
}

TEST(TlsTransport, OneBitThatIsChangedOnTheWayEndsTheConnectionAndDeliversNothing) {
  TlsRanks ranks(2);
  std::atomic<bool> armed{false};
  Wiretap wiretap(decode_endpoints(ranks.addresses[1])->front(),
                  [&](int direction, size_t, MutableBytes bytes) {
                    if (direction == 0 && armed.exchange(false)) bytes[bytes.size() / 2] ^= 1;
                  });
  ranks.addresses[1] = wiretap.address();
  ranks.start();
  ranks.post(0, 1, "h", "whole");
  ASSERT_TRUE(ranks.recorder(1).wait_for([&] { return ranks.recorder(1).frames.size() == 1; }));
  armed.store(true);
  const std::string payload = pattern(2, 1000);
  ranks.post(0, 1, "h", payload);
  Recorder& got = ranks.recorder(1);
  ASSERT_TRUE(got.wait_for([&] { return got.downs.count(0) == 1; }));
  // OpenSSL 3.5 has another word for it.
  EXPECT_THAT(got.downs[0].message(),
              testing::AnyOf(HasSubstr("bad record mac"), HasSubstr("record layer failure")));
  EXPECT_EQ(got.frames.size(), 1u);
  ASSERT_TRUE(ranks.recorder(0).wait_for([&] { return ranks.recorder(0).downs.count(1) == 1; }));
  ranks.close();
}

TEST(TlsTransport, WithoutAKeyThereIsNoTransport) {
  const auto made = tls_transport(0, 2, {});
  EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(made.status().message(), HasSubstr("needs the job's key"));
}

TEST(TlsTransport, BytesThatAreNoAddressAreRefusedByRank) {
  TlsRanks ranks(2);
  const std::string good = ranks.addresses[1];
  EXPECT_TRUE(decode_endpoints(good).ok());
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(decode_endpoints(Bytes(good).substr(0, bytes)).ok());
  ranks.addresses[1] = good + "x";
  ranks.start();
  ranks.post(0, 1, "h", "payload", 5);
  Recorder& got = ranks.recorder(0);
  ASSERT_TRUE(got.wait_for([&] { return got.downs.count(1) == 1 && got.sent[5] == 1; }));
  EXPECT_THAT(got.downs[1].message(), HasSubstr("rank 1 (host somewhere)"));
  ranks.close();
}

TEST(TlsTransport, AnAddressThatLeadsToAnotherRankIsNotTaken) {
  TlsRanks ranks(3);
  // Rank 1's first address is rank 2's: as with private networks of containers, which have the same numbers
  // on each node.
  std::vector<Endpoint> both = {decode_endpoints(ranks.addresses[2])->front(),
                                decode_endpoints(ranks.addresses[1])->front()};
  ranks.addresses[1] = encode_endpoints(both);
  ranks.start();
  ranks.post(0, 1, "h", "for rank 1 alone");
  ASSERT_TRUE(ranks.recorder(1).wait_for([&] { return ranks.recorder(1).frames.size() == 1; }));
  EXPECT_TRUE(ranks.recorder(2).frames.empty());
  ranks.close();
}

TEST(TlsTransport, AnAddressThatLeadsToOneselfIsNotTaken) {
  TransportOptions options;
  options.silence_deadline = seconds(10);
  TlsRanks ranks(2, options);
  ranks.addresses[1] = encode_endpoints(
      {decode_endpoints(ranks.addresses[0])->front(), decode_endpoints(ranks.addresses[1])->front()});
  ranks.start();
  ranks.post(0, 1, "h", "for rank 1 alone");
  Recorder& got = ranks.recorder(1);
  EXPECT_TRUE(got.wait_for([&] { return got.frames.size() == 1; }));
  EXPECT_TRUE(ranks.recorder(0).downs.empty());
  EXPECT_EQ(ranks.at(0).rejected_messages(), 0u);
  ranks.close();
}

TEST(TlsTransport, AThreadThatWaitsDrives) {
  TlsRanks ranks(2);
  ranks.start();
  for (int i = 0; i < 100; ++i) {
    ranks.post(1, 0, "ping", "x");
    Recorder& got = ranks.recorder(0);
    const auto came = [&] {
      const std::lock_guard lock(got.mutex);
      return got.frames.size() == static_cast<size_t>(i) + 1;
    };
    if (!ranks.at(0).drive(came, system_clock().now() + seconds(60))) {
      ASSERT_TRUE(got.wait_for([&] { return got.frames.size() == static_cast<size_t>(i) + 1; }));
    }
    ASSERT_TRUE(came());
  }
  ranks.close();
}

}  // namespace
}  // namespace swale::net::tls_transport_test
