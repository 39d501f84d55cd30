// Ranks talk by TLS while memory runs out, at every allocation in turn: every payload comes home once, and
// every frame arrives, in order and as it was sent, unless one of the two ranks hears that the other one is
// gone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "net/fabric/address_book.h"
#include "net/fabric/tls_transport.h"

namespace swale::net::tls_alloc_test {
namespace {

using swale::test::Allocations;

constexpr int32_t kRanks = 3;
constexpr uint32_t kFrames = 9;  // to each of the two others

// Takes no memory.
class Counts final : public TransportEvents {
 public:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    const uint32_t number = get_u32(header.data());
    const bool whole = payload.size() == get_u32(header.data() + 4) &&
                       payload.find_first_not_of(static_cast<char>('a' + number)) == payload.npos;
    if (!whole || number != frames[static_cast<size_t>(from)]) wrong = true;
    ++frames[static_cast<size_t>(from)];
  }
  void on_sent(uint64_t cookie) override { ++sent[cookie]; }
  void on_down(Rank peer, const Status&) override { ++downs[static_cast<size_t>(peer)]; }
  Nanos on_progress(Nanos now) override { return now + seconds(3600); }
  void on_failure(const Status&) override {}

  std::array<std::atomic<uint32_t>, kRanks> frames{};
  std::array<std::atomic<int>, kRanks> downs{};
  std::array<std::atomic<int>, 2 * (kFrames + 1)> sent{};
  std::atomic<bool> wrong{false};
};

class Ranks {
 public:
  explicit Ranks(Posting posting) {
    TransportOptions options;
    options.posting = posting;
    options.key = JobKey::draw().value();
    options.silence_deadline = seconds(10);
    std::vector<std::string> rows;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      all_.push_back(tls_transport(rank, kRanks, options).value());
      rows.push_back(encode_address(rank, "somewhere", all_.back()->address()));
    }
    const std::shared_ptr<const AddressBook> book = make_book(rows).value();
    for (size_t i = 0; i < kRanks; ++i) EXPECT_TRUE(all_[i]->start(book, &events[i]).ok());
  }
  ~Ranks() {
    std::vector<std::thread> threads;
    for (auto& each : all_) {
      threads.emplace_back(
          [&each] { static_cast<void>(each->close(Deadline::in(system_clock(), seconds(10)))); });
    }
    for (auto& each : threads) each.join();
  }

  // Of rank 0. What the post refuses, for want of memory, has not been posted.
  void post(Rank to, const std::string& payload) {
    const auto index = static_cast<size_t>(to);
    char header[8];
    put_u32(header, posted[index]);
    put_u32(header + 4, static_cast<uint32_t>(payload.size()));
    const uint64_t cookie = (index - 1) * (kFrames + 1) + posted[index];
    bool free = false;
    const Allocations::Library inside;
    const Status status =
        contain([&] { free = all_[0]->post(to, Bytes(header, sizeof(header)), payload, cookie); });
    if (!status.ok()) return;
    ++posted[index];
    if (free) events[0].on_sent(cookie);
  }

  bool arrived(Rank at) const {
    return events[static_cast<size_t>(at)].frames[0] == posted[static_cast<size_t>(at)];
  }
  bool gone(Rank other) const {
    return events[0].downs[static_cast<size_t>(other)] != 0 ||
           events[static_cast<size_t>(other)].downs[0] != 0;
  }
  bool all_home() const {
    for (const size_t to : {1, 2}) {
      for (uint32_t i = 0; i < posted[to]; ++i) {
        if (events[0].sent[(to - 1) * (kFrames + 1) + i] != 1) return false;
      }
    }
    return true;
  }
  bool wait_until_done() const {
    const Nanos until = system_clock().now() + seconds(40);
    while (system_clock().now() < until) {
      if (all_home() && (arrived(1) || gone(1)) && (arrived(2) || gone(2))) return true;
      ::usleep(500);
    }
    return false;
  }

  std::array<Counts, kRanks> events;
  std::array<uint32_t, kRanks> posted{};

 private:
  std::vector<std::unique_ptr<TlsTransport>> all_;
};

std::vector<std::string> payloads() {
  std::vector<std::string> all;
  for (uint32_t i = 0; i <= kFrames; ++i)
    all.emplace_back(i % 4 == 3 ? 400 * kKiB : 100, static_cast<char>('a' + i));
  return all;
}

// False: too few allocations were made for the n-th to fail.
bool talk_while_failing(Posting posting, bool met, int64_t n, int64_t length) {
  const std::vector<std::string> payload = payloads();
  Ranks ranks(posting);
  if (met) {
    for (const Rank to : {1, 2}) ranks.post(to, payload[0]);
    EXPECT_TRUE(ranks.wait_until_done());
  }
  Allocations::fail(n, length);
  for (uint32_t i = 0; i < kFrames; ++i) {
    for (const size_t to : {1, 2}) ranks.post(static_cast<Rank>(to), payload[ranks.posted[to]]);
  }
  EXPECT_TRUE(ranks.wait_until_done())
      << "allocation " << n << " and " << length - 1 << " behind it: all home " << ranks.all_home() << ", of "
      << ranks.posted[1] << " and " << ranks.posted[2] << " frames came " << ranks.events[1].frames[0]
      << " and " << ranks.events[2].frames[0];
  const bool hit = Allocations::hit();
  Allocations::stop();
  for (const Counts& each : ranks.events) EXPECT_FALSE(each.wrong) << "allocation " << n;
  return hit;
}

class TlsWithoutMemory : public testing::TestWithParam<std::tuple<Posting, bool>> {};
INSTANTIATE_TEST_SUITE_P(
    , TlsWithoutMemory, testing::Combine(testing::Values(Posting::kQueue, Posting::kDirect), testing::Bool()),
    [](const auto& row) {
      return std::string(std::get<0>(row.param) == Posting::kQueue ? "Queue" : "Direct") +
             (std::get<1>(row.param) ? "Met" : "Meeting");
    });

TEST_P(TlsWithoutMemory, FramesArriveInOrderOrARankIsGone) {
  Allocations::spare_this_thread();
  const auto [posting, met] = GetParam();
  for (const int64_t length : {1, 6}) {
    int64_t n = 1;
    while (talk_while_failing(posting, met, n, length) && !HasFailure()) ASSERT_LT(++n, 1'000);
    EXPECT_GT(n, 3) << "it allocates nothing";
  }
}

}  // namespace
}  // namespace swale::net::tls_alloc_test
