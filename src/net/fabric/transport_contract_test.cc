// The promises of transport.h, over every implementation. Ranks are transports of one process.
#include <gtest/gtest.h>

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "base/hash.h"
#include "base/testing/test_shared_memory.h"
#include "base/testing/test_threads.h"
#include "net/fabric/testing/transport_test_util.h"
#include "net/route/router.h"

namespace swale::net::transport_contract_test {
namespace {

constexpr size_t kFrameBytesMax = 32 * kKiB;

size_t entries_of(const char* path) {
  size_t count = 0;
  if (DIR* directory = ::opendir(path)) {
    while (::readdir(directory) != nullptr) ++count;
    ::closedir(directory);
  }
  return count;
}

const testing::Environment* const own_shared_memory =
    testing::AddGlobalTestEnvironment(new test::OwnSharedMemory);

Nanos process_cpu() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

class TransportContract : public testing::TestWithParam<FabricKind> {
 protected:
  ~TransportContract() override { close_all(); }

  void open(int32_t size) {
    std::vector<TransportEvents*> events;
    for (Rank rank = 0; rank < size; ++rank) {
      recorders_.push_back(std::make_unique<Recorder>());
      events.push_back(recorders_.back().get());
    }
    open(size, events);
  }
  void open(int32_t size, const std::vector<TransportEvents*>& events) {
    transports_ = GetParam().make(size);
    ASSERT_EQ(transports_.size(), static_cast<size_t>(size));
    std::vector<std::string> addresses;
    for (auto& each : transports_) {
      addresses.push_back(each->address());
      EXPECT_LE(addresses.back().size(), 4 * kKiB);
    }
    for (size_t i = 0; i < transports_.size(); ++i) {
      const Status status = transports_[i]->start(book_of(addresses), events[i]);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  // As the ranks of a job would: all at once.
  void close_all() {
    std::vector<std::thread> threads;
    for (auto& each : transports_) {
      threads.emplace_back([&each] {
        const Status status = each->close(Deadline::in(system_clock(), seconds(30)));
        EXPECT_TRUE(status.ok()) << status.to_string();
      });
    }
    for (auto& each : threads) each.join();
    transports_.clear();
  }

  void post(Rank from, Rank to, Bytes header, Bytes payload, uint64_t cookie) {
    net::post(&transport(from), &recorder(from), to, header, payload, cookie);
  }
  Recorder& recorder(Rank rank) { return *recorders_[static_cast<size_t>(rank)]; }
  Transport& transport(Rank rank) { return *transports_[static_cast<size_t>(rank)]; }

  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

std::vector<size_t> interesting_sizes() {
  std::vector<size_t> sizes = {
      0, 1, 2, 7, 8, 63, 64, 65, 255, 1023, 4095, 4096, 8191, 8192, 8193, kFrameBytesMax - 1, kFrameBytesMax};
  Rng rng(1);
  while (sizes.size() < 120) sizes.push_back(rng.below(kFrameBytesMax + 1));
  return sizes;
}

TEST_P(TransportContract, FramesOfAllSizesArriveWholeInOrderAndCookiesComeHomeOnce) {
  constexpr Rank kRanks = 3;
  open(kRanks);
  const std::vector<size_t> sizes = interesting_sizes();
  std::vector<std::string> payloads;
  for (size_t i = 0; i < sizes.size(); ++i) payloads.push_back(pattern(i, sizes[i]));
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (Rank from = 0; from < kRanks; ++from) {
      for (Rank to = 0; to < kRanks; ++to) {
        if (to == from) continue;
        const std::string header = fmt::format("{}>{}:{}", from, to, i).append(i % 40, 'h');
        post(from, to, header, payloads[i], i * kRanks + static_cast<size_t>(to));
      }
    }
  }
  const size_t expected = sizes.size() * (kRanks - 1);
  for (Rank rank = 0; rank < kRanks; ++rank) {
    Recorder& got = recorder(rank);
    ASSERT_TRUE(got.wait_for([&] { return got.frames.size() == expected && got.sent_count == expected; }))
        << got.frames.size() << " frames, " << got.sent_count << " sent";
    const std::lock_guard lock(got.mutex);
    std::vector<size_t> next(kRanks, 0);
    for (const auto& frame : got.frames) {
      const size_t i = next[static_cast<size_t>(frame.from)]++;
      ASSERT_EQ(frame.header, fmt::format("{}>{}:{}", frame.from, rank, i).append(i % 40, 'h'));
      ASSERT_EQ(frame.payload, payloads[i]);
    }
    for (const auto& [cookie, times] : got.sent) EXPECT_EQ(times, 1) << "cookie " << cookie;
    EXPECT_TRUE(got.downs.empty());
  }
}

TEST_P(TransportContract, FramesPostedJustBeforeCloseArriveAtPeersThatHaveMet) {
  open(2);
  post(0, 1, "h", "we have met", 0);
  ASSERT_TRUE(recorder(1).wait_for([&] { return recorder(1).frames.size() == 1; }));
  const std::string payload = pattern(7, kFrameBytesMax);
  for (uint64_t i = 1; i < 200; ++i) post(0, 1, "h", payload, i);
  close_all();
  EXPECT_EQ(recorder(1).frames.size(), 200u);
  EXPECT_EQ(recorder(0).sent_count, 200u);
  EXPECT_TRUE(recorder(0).downs.empty());
  EXPECT_TRUE(recorder(1).downs.empty());
}

TEST_P(TransportContract, EventsAndNotPollingEndTheSleep) {
  open(2);  // the recorders ask to be called again in an hour
  for (uint64_t i = 0; i < 20; ++i) {
    post(0, 1, "ping", Bytes(), i);
    ASSERT_TRUE(recorder(1).wait_for([&] { return recorder(1).frames.size() == i + 1; }));
    post(1, 0, "pong", Bytes(), i);
    ASSERT_TRUE(recorder(0).wait_for([&] { return recorder(0).frames.size() == i + 1; }));
  }
  for (int i = 0; i < 20; ++i) {
    size_t calls;
    {
      const std::lock_guard lock(recorder(0).mutex);
      calls = recorder(0).progress_calls;
    }
    transport(0).wake();
    ASSERT_TRUE(recorder(0).wait_for([&] { return recorder(0).progress_calls > calls; }));
  }
}

TEST_P(TransportContract, IdleTakesAboutNoCpu) {
  open(3);
  for (Rank to : {1, 2}) post(0, to, "h", "payload", 1);
  for (Rank rank : {1, 2})
    ASSERT_TRUE(recorder(rank).wait_for([&] { return recorder(rank).frames.size() == 1; }));
  ASSERT_TRUE(recorder(0).wait_for([&] { return recorder(0).sent_count == 2; }));
  // CPU of the whole process, three progress threads and UCX's own: the interval is real time, the bound is
  // not.
  Nanos least = kForever;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Nanos before = process_cpu();
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable never;
    never.wait_for(lock, std::chrono::milliseconds(300), [] { return false; });
    least = std::min(least, process_cpu() - before);
  }
  EXPECT_LT(least, milliseconds(15)) << "5 % of 300 ms";
}

TEST_P(TransportContract, DropReportsThePeerOnceAndGivesCookiesBack) {
  open(3);
  post(0, 1, "h", "before", 0);
  ASSERT_TRUE(recorder(1).wait_for([&] { return recorder(1).frames.size() == 1; }));
  const Status why = error(Code::kUnavailable, Scope::kPeer, "rank 1 has been silent");
  transport(0).drop(1, why);
  transport(0).drop(1, why);
  Recorder& got = recorder(0);
  ASSERT_TRUE(got.wait_for([&] { return got.downs.count(1) == 1; }));
  EXPECT_EQ(got.downs[1].message(), "rank 1 has been silent");
  const std::string payload = pattern(3, kFrameBytesMax);
  for (uint64_t i = 1; i <= 20; ++i) post(0, 1, "h", payload, i);
  post(0, 2, "h", "the others stay", 21);
  ASSERT_TRUE(got.wait_for([&] { return got.sent_count == 22; })) << got.sent_count;
  ASSERT_TRUE(recorder(2).wait_for([&] { return recorder(2).frames.size() == 1; }));
  transport(1).drop(0, why);  // its view of the matter, or its close would wait for our end
  ASSERT_TRUE(recorder(1).wait_for([&] { return recorder(1).downs.count(0) == 1; }));
}

TEST_P(TransportContract, NothingIsLeftAfterClose) {
  const auto once = [&] {
    open(3);
    for (Rank from = 0; from < 3; ++from) {
      for (Rank to = 0; to < 3; ++to) {
        if (to != from) post(from, to, "h", "payload", 0);
      }
    }
    for (auto& each : recorders_) ASSERT_TRUE(each->wait_for([&] { return each->frames.size() == 2; }));
    test::note_shared_memory_of(::getpid());
    close_all();
    recorders_.clear();
  };
  once();  // what libraries keep for good is open now
  const size_t descriptors = entries_of("/proc/self/fd");
  const size_t threads = test::threads_of_this_process();
  const size_t segments = test::shared_memory_files().size();
  once();
  EXPECT_LE(entries_of("/proc/self/fd"), descriptors);
  EXPECT_LE(test::threads_expecting(threads), threads);
  EXPECT_LE(test::shared_memory_files().size(), segments);
}

// A rank as the pipeline will be: a Router over the Transport, frames consumed as they come.
class RouterRank : public TransportEvents {
 public:
  RouterRank(Rank rank, int32_t size, uint64_t frames_per_peer)
      : rank_(rank),
        size_(size),
        goal_(frames_per_peer),
        router_({rank, size, 1, kSecret, 4}),
        next_(static_cast<size_t>(size)) {}
  static constexpr uint64_t kSecret = 77;
  static constexpr size_t kBuffers = 4;

  void run(Transport* transport) {
    {
      const std::lock_guard lock(mutex_);
      transport_ = transport;
      for (Rank to = 0; to < size_; ++to) {
        if (to == rank_) continue;
        for (size_t i = 0; i < kBuffers; ++i) fill(to, static_cast<size_t>(to) * kBuffers + i);
      }
      pump();
    }
  }
  bool finished() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTestPatience, [&] {
      return received_ == goal_ * static_cast<uint64_t>(size_ - 1) && out_ == 0;
    });
  }

 private:
  void on_frame(Rank from, Bytes header, Bytes payload) override {
    const std::lock_guard lock(mutex_);
    const auto decoded = FrameHeader::decode(header, payload, kSecret);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    const Status status = router_.on_frame(from, *decoded);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (decoded->kind == FrameKind::kData) {
      const uint64_t number = next_[static_cast<size_t>(from)]++;
      EXPECT_EQ(payload.size(), kFrameBytesMax);
      EXPECT_EQ(hash_bytes(payload), hash_bytes(contents(from, rank_, number)));
      ++received_;
      router_.consumed(from);
      changed_.notify_all();
    }
    pump();
  }
  void on_sent(uint64_t cookie) override {
    const std::lock_guard lock(mutex_);
    sent(cookie);
    pump();
  }
  void sent(uint64_t cookie) {
    if (cookie == kNoCookie) return;
    --out_;
    fill(static_cast<Rank>(cookie / kBuffers), cookie);
    changed_.notify_all();
  }
  void on_down(Rank peer, const Status& why) override { ADD_FAILURE() << peer << ": " << why.to_string(); }
  Nanos on_progress(Nanos now) override { return now + seconds(3600); }
  void on_failure(const Status& why) override { ADD_FAILURE() << why.to_string(); }

  static std::string contents(Rank from, Rank to, uint64_t number) {
    std::string out(kFrameBytesMax, static_cast<char>(number));
    const std::string label = fmt::format("{}>{}:{}", from, to, number);
    out.replace(0, label.size(), label);
    return out;
  }
  void fill(Rank to, size_t buffer) {
    uint64_t& number = filled_[to];
    if (number == goal_) return;
    buffers_[buffer] = contents(rank_, to, number++);
    ++out_;
    router_.submit(to, FrameKind::kData, buffers_[buffer], buffer);
  }
  void pump() {
    if (transport_ == nullptr) return;  // the others were faster
    while (const auto post = router_.next_post()) {
      const Bytes header(post->header.data(), post->header.size());
      if (transport_->post(post->to, header, post->payload, post->cookie)) sent(post->cookie);
    }
  }

  const Rank rank_;
  const int32_t size_;
  const uint64_t goal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Transport* transport_ = nullptr;
  Router router_;
  std::map<Rank, uint64_t> filled_;
  std::map<size_t, std::string> buffers_;
  std::vector<uint64_t> next_;
  uint64_t received_ = 0;
  uint64_t out_ = 0;
};

TEST_P(TransportContract, RoutersExchangeAtFullSpeedInAllDirections) {
  constexpr Rank kRanks = 3;
  std::vector<std::unique_ptr<RouterRank>> ranks;
  std::vector<TransportEvents*> events;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<RouterRank>(rank, kRanks, 500));
    events.push_back(ranks.back().get());
  }
  open(kRanks, events);
  for (Rank rank = 0; rank < kRanks; ++rank) ranks[static_cast<size_t>(rank)]->run(&transport(rank));
  for (auto& each : ranks) ASSERT_TRUE(each->finished());
  close_all();
}

INSTANTIATE_TEST_SUITE_P(
    AllFabrics, TransportContract,
    testing::Values(
        FabricKind{"loopback", [](int32_t size) { return make_loopback(size, Posting::kQueue); }},
        FabricKind{"loopback_direct", [](int32_t size) { return make_loopback(size, Posting::kDirect); }},
        FabricKind{"ucx_shared_memory",
                   [](int32_t size) { return make_ucx(size, "sm,self", Posting::kQueue); }},
        FabricKind{"ucx_shared_memory_direct",
                   [](int32_t size) { return make_ucx(size, "sm,self", Posting::kDirect); }},
        FabricKind{"ucx_tcp", [](int32_t size) { return make_ucx(size, "tcp,self", Posting::kQueue); }},
        FabricKind{"ucx_tcp_direct",
                   [](int32_t size) { return make_ucx(size, "tcp,self", Posting::kDirect); }},
        FabricKind{"tls", [](int32_t size) { return make_tls(size, Posting::kQueue); }},
        FabricKind{"tls_direct", [](int32_t size) { return make_tls(size, Posting::kDirect); }},
        // New keys every few frames, so that each test passes several changes of them.
        FabricKind{"tls_new_keys",
                   [](int32_t size) {
                     TransportOptions options;
                     options.settings = {{"REKEY_AFTER", "7"}};
                     return make_tls(size, Posting::kDirect, options);
                   }}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace swale::net::transport_contract_test
