// Somebody who is not of the job sends to a rank of it, while the job works: frames of another job, random
// bytes, pieces of frames, frames with bits changed. Nothing of it is believed, all of it is counted, and the
// job's own data are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "net/fabric/loopback_transport.h"
#include "net/fabric/testing/transport_test_util.h"
#include "net/fabric/testing/ucx_stranger_test_util.h"
#include "net/fabric/ucx_fabric.h"
#include "net/job/job.h"

namespace swale::net::strangers_test {
namespace {

constexpr int32_t kRanks = 3;
constexpr Rank kTarget = 1;
constexpr uint32_t kFramesEach = 2'000;

const bool ucx_is_here = (register_fabric(ucx_fabric()), true);

// As local_bootstrap, and keeps the addresses.
class Overheard final : public Bootstrap {
 public:
  Overheard(std::shared_ptr<LocalGroup> group, Rank rank) : inner_(local_bootstrap(std::move(group), rank)) {}
  Rank rank() const override { return inner_->rank(); }
  int32_t size() const override { return inner_->size(); }
  Result<std::string> ask(Bytes mine, Survey* survey) override { return inner_->ask(mine, survey); }
  Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap& nodes) override {
    auto book = inner_->publish(row, nodes);
    if (book.ok() && rank() == 0) address_of_target = (*book)->find(kTarget)->address;
    return book;
  }
  static inline std::string address_of_target;  // before any Job::open of a test returns on rank 0

 private:
  std::unique_ptr<Bootstrap> inner_;
};

// Control frames with their numbers, checked to come in order from each peer.
class Numbers final : public ChannelEvents {
 public:
  void on_frame(Rank from, const FrameHeader& header, Bytes payload) override {
    const std::lock_guard lock(mutex_);
    uint32_t& next = next_[static_cast<size_t>(from)];
    if (header.sequence != next || payload != pattern(uint64_t{header.sequence} << 8 | uint64_t(from), 100))
      mistakes_ += fmt::format("frame {} of rank {}, expected {}; ", header.sequence, from, next);
    ++next;
    changed_.notify_all();
  }
  void on_sent(uint64_t) override {}
  void on_down(Rank, const Status& why) override { note(why); }
  Nanos on_progress(Nanos now) override { return now + seconds(3600); }
  void on_failure(const Status& why) override { note(why); }

  std::string wait_for_all(Rank me) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, kTestPatience, [&] {
      bool all = true;
      for (Rank each = 0; each < kRanks; ++each)
        all &= each == me || next_[static_cast<size_t>(each)] == kFramesEach;
      return all || !mistakes_.empty();
    });
    return came ? mistakes_ : "frames have not come";
  }

 private:
  void note(const Status& why) {
    const std::lock_guard lock(mutex_);
    mistakes_ += why.to_string();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t next_[kRanks] = {};
  std::string mistakes_;
};

struct Forged {
  std::string header;
  std::string payload;
};

// What a stranger has: frames of an earlier job (its secret), the format, and time. Not this job's secret.
std::vector<Forged> forgeries(uint64_t earlier_secret) {
  std::vector<Forged> all;
  Rng rng(20);
  std::vector<Forged> recorded;
  for (const FrameKind kind :
       {FrameKind::kData, FrameKind::kControl, FrameKind::kCredit, FrameKind::kHeartbeat, FrameKind::kGoodbye,
        FrameKind::kExchange, FrameKind::kAbort}) {
    FrameHeader header;
    header.channel = kind == FrameKind::kGoodbye || kind == FrameKind::kExchange ? 0 : 1;
    header.secret = earlier_secret;
    header.kind = kind;
    const std::string payload = pattern(rng.next(), kind == FrameKind::kData ? 32 * kKiB : 50);
    const auto bytes = header.encode(payload);
    recorded.push_back({std::string(bytes.data(), bytes.size()), payload});
  }
  for (const Forged& each : recorded) {
    all.push_back(each);
    for (const size_t bytes : {0, 1, 4, 8, 27}) all.push_back({each.header.substr(0, bytes), each.payload});
    all.push_back({each.header, each.payload.substr(each.payload.size() / 2)});
    all.push_back({each.header + "more", each.payload});
    for (size_t bit = 0; bit < 8 * FrameHeader::kBytes; ++bit) {
      Forged flipped = each;
      flipped.header[bit / 8] = static_cast<char>(flipped.header[bit / 8] ^ (1 << bit % 8));
      all.push_back(std::move(flipped));
    }
  }
  for (int i = 0; i < 500; ++i)
    all.push_back({pattern(rng.next(), rng.next() % 65), pattern(rng.next(), rng.next() % 5'000)});
  return all;
}

// Runs a job whose ranks send each other numbers while `attack` runs; what the target has refused.
uint64_t attacked_job(const JobOptions& options, const std::function<void(uint64_t secret)>& attack) {
  auto group = std::make_shared<LocalGroup>(kRanks);
  LocalGroup beside(kRanks);
  std::atomic<uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      auto opened = Job::open(std::make_unique<Overheard>(group, rank), options);
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      Job* const job = opened->get();
      Numbers numbers;
      const uint32_t channel = job->open_channel(&numbers).value();
      std::thread attacker;
      ASSERT_TRUE(beside.allgather(rank, "").ok());
      if (rank == 0) attacker = std::thread([&] { attack(job->secret()); });
      std::vector<std::string> payloads;  // borrowed by the transport until they have been sent
      for (uint32_t i = 0; i < kFramesEach; ++i) {
        FrameHeader header;
        header.channel = channel;
        header.secret = job->secret();
        header.sequence = i;
        header.kind = FrameKind::kControl;
        payloads.push_back(pattern(uint64_t{i} << 8 | uint64_t(rank), 100));
        for (Rank to = 0; to < kRanks; ++to) {
          if (to != rank)
            static_cast<void>(job->post(channel, {to, header.encode(payloads.back()), payloads.back(), 1}));
        }
      }
      EXPECT_EQ(numbers.wait_for_all(rank), "");
      if (attacker.joinable()) attacker.join();
      EXPECT_TRUE(job->allgather("still there").ok());
      ASSERT_TRUE(beside.allgather(rank, "").ok());
      if (rank == kTarget) refused = job->refused_frames();
      EXPECT_TRUE(rank == kTarget || job->refused_frames() == 0);
      job->close_channel(channel);
      const Status closed = job->close();
      EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
  }
  for (std::thread& each : threads) each.join();
  return refused;
}

class Strangers : public testing::Test {
 protected:
  Strangers() {
    set_log_sink(
        [this](LogLevel, std::string_view message) { logged_ += message.find("dropped") != message.npos; });
  }
  ~Strangers() override { set_log_sink({}); }
  std::atomic<int> logged_{0};
};

TEST_F(Strangers, FramesInTheLoopbackAreDroppedAndCounted) {
  JobOptions options;
  options.transport = "loopback";
  size_t sent = 0;
  const uint64_t refused = attacked_job(options, [&](uint64_t secret) {
    unsigned long long id = 0;
    ASSERT_EQ(std::sscanf(Overheard::address_of_target.c_str(), "loopback:%llu:", &id), 1);
    const auto fabric = LoopbackFabric::find(id);
    ASSERT_NE(fabric, nullptr);
    for (const Forged& each : forgeries(~secret)) {
      fabric->inject(0, kTarget, each.header, each.payload);
      ++sent;
    }
  });
  EXPECT_GT(sent, 2'000u);
  EXPECT_EQ(refused, sent);
  fmt::print("{} frames of a stranger over loopback\n", sent);
  EXPECT_EQ(logged_.load(), 1) << "once, not once each";
}

// A job on several nodes takes messages by TCP, one on a node by shared memory (from this user's own
// processes alone).
TEST_F(Strangers, MessagesInUcxAreDroppedAndCounted) {
  ASSERT_TRUE(ucx_is_here);
  for (const bool one_node : {true, false}) {
    JobOptions options;
    options.listens_on_one_node = !one_node;
    size_t sent = 0;
    const uint64_t refused = attacked_job(options, [&](uint64_t secret) {
      Stranger stranger(one_node ? "posix,self" : "tcp,self");
      stranger.meet(Overheard::address_of_target);
      const auto send = [&](const std::string& header, const std::string& payload, unsigned flags) {
        stranger.send(header, payload, flags);
        ++sent;
      };
      for (const Forged& each : forgeries(~secret)) {
        // As it is, and behind what a message begins with, which lacks the secret as well.
        send(each.header, each.payload, UCP_AM_SEND_FLAG_EAGER);
        send(ucx_prefix(kUcxMagic, 0, 0, ~secret) + each.header, each.payload, UCP_AM_SEND_FLAG_EAGER);
      }
      // Not that a rank has left, nor that it speaks a protocol for which a peer is dropped.
      for (const uint32_t kind : {0u, 1u, 2u, 3u, 4u, ~0u}) {
        for (const uint32_t rank : {0u, 1u, 2u, 3u, ~0u}) {
          send(ucx_prefix(kUcxMagic, rank, kind, 0), "", UCP_AM_SEND_FLAG_EAGER);
          send(ucx_prefix(kUcxMagic, rank, kind, ~secret), std::string(kMiB, 'x'), UCP_AM_SEND_FLAG_RNDV);
        }
      }
    });
    EXPECT_GT(sent, 4'000u);
    EXPECT_EQ(refused, sent) << (one_node ? "shared memory" : "TCP");
    fmt::print("{} messages of a stranger over {}\n", sent, one_node ? "shared memory" : "TCP");
  }
}

}  // namespace
}  // namespace swale::net::strangers_test
