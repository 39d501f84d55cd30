// The n-th allocation of a job that uses a metadata store fails, in whichever of its threads comes upon it,
// alone or with all later ones: four client threads of the C interface, and the store's servers. Every call
// answers, and its answer is true: a put that was acknowledged is found by later gets and by the next job;
// one that was refused is there segment by segment or not; nothing else is. SWALE_FAULT_ROUNDS > 1 visits
// many more n.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "swale/swale_meta.h"
#include "tests/faults/failing_new.h"

namespace swale::faults::meta_client_allocations_test {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 5;
constexpr size_t kSegments = 3;  // of a put
constexpr uint64_t kBytes = 512;
// Where memory is exhausted for good, nothing but its deadline ends a call whose answer there is no memory
// for.
constexpr const char* kOptions = "meta.deadline_s=1 meta.range=4K meta.lock_wait_s=0 io.engine=threads";
constexpr const char* kPatient = "meta.deadline_s=60 meta.range=4K meta.lock_wait_s=0 io.engine=threads";

struct Failure {
  FailingNew::Which which = FailingNew::Which::kOnce;
  uint64_t nth = 0;     // 0: none
  bool canary = false;  // a put that was refused counts as acknowledged
};

// The place of one segment: each thread's own, so that the truth needs no order among threads.
swale_meta_segment segment(int thread, int round, size_t index) {
  const auto number = static_cast<uint64_t>((round * kThreads + thread) * 3) + index;
  return {number * 2 * kBytes, kBytes, number * 7919, static_cast<uint32_t>(thread), 0};
}

enum class Put : uint8_t { kNone, kRefused, kAcknowledged };

struct Outcome {
  std::string problem;
  uint64_t allocations = 0;
  bool failed = false;   // an allocation
  uint64_t refused = 0;  // calls
};

// What one thread does and knows. Nothing of it allocates but the calls.
struct Caller {
  int thread = 0;
  std::array<Put, kRounds> puts{};
  uint64_t refused = 0;
  const char* problem = nullptr;

  void count(int code) { refused += code == SWALE_OK ? 0 : 1; }

  // The segments of an acknowledged put, by the handle that has put them.
  void get(swale_meta_file* file, int round) {
    std::array<swale_meta_range, kSegments> ranges;
    for (size_t i = 0; i < kSegments; ++i) ranges[i] = {segment(thread, round, i).offset, kBytes};
    swale_meta_found* found = nullptr;
    const int code = swale_meta_get(file, ranges.data(), ranges.size(), &found);
    count(code);
    if (code != SWALE_OK) return;
    for (size_t i = 0; i < kSegments; ++i) {
      const swale_meta_segment* segments = nullptr;
      size_t pieces = 0;
      if (swale_meta_found_at(found, i, &segments, &pieces) != SWALE_OK) problem = "a get lacks a range";
      const swale_meta_segment truth = segment(thread, round, i);
      const bool right = pieces == 1 && segments[0].offset == truth.offset && segments[0].length == kBytes &&
                         segments[0].log == truth.log && segments[0].address == truth.address;
      if (!right) problem = "a get answers OK, and does not find what was acknowledged";
    }
    swale_meta_found_free(found);
  }

  void work(swale_meta* store) {
    swale_meta_file* file = nullptr;
    for (int tries = 0; tries < 3 && file == nullptr; ++tries)
      count(swale_meta_file_open(store, "shared", SWALE_CREATE, 0600, &file));
    if (file == nullptr) return;
    for (int round = 0; round < kRounds; ++round) {
      std::array<swale_meta_segment, kSegments> segments;
      for (size_t i = 0; i < kSegments; ++i) segments[i] = segment(thread, round, i);
      const int code = swale_meta_put(file, segments.data(), segments.size());
      count(code);
      puts[static_cast<size_t>(round)] = code == SWALE_OK ? Put::kAcknowledged : Put::kRefused;
      if (code == SWALE_OK) get(file, round);
    }
    count(swale_meta_file_close(file));
  }
};

// What the next job finds, beside what the callers know.
std::string compare(const std::string& path, const std::array<Caller, kThreads>& callers, bool canary) {
  swale_job* job = nullptr;
  swale_meta* store = nullptr;
  swale_meta_file* file = nullptr;
  if (swale_job_open(nullptr, nullptr, &job) != SWALE_OK) return swale_last_error();
  std::string problem;
  if (swale_meta_open(job, path.c_str(), SWALE_CREATE, kPatient, &store) != SWALE_OK) {
    problem = std::string("the next job: ") + swale_last_error();
  } else if (swale_meta_file_open(store, "shared", SWALE_CREATE, 0600, &file) != SWALE_OK) {
    problem = swale_last_error();
  }
  std::vector<swale_meta_segment> all;
  const auto collect = [](void* to, const swale_meta_segment* each) {
    static_cast<std::vector<swale_meta_segment>*>(to)->push_back(*each);
    return 0;
  };
  if (problem.empty() && swale_meta_scan(file, 0, collect, &all) != SWALE_OK) problem = swale_last_error();
  size_t known = 0;
  for (const Caller& caller : callers) {
    for (int round = 0; problem.empty() && round < kRounds; ++round) {
      const Put put = caller.puts[static_cast<size_t>(round)];
      for (size_t i = 0; i < kSegments; ++i) {
        const swale_meta_segment truth = segment(caller.thread, round, i);
        bool there = false;
        for (const swale_meta_segment& each : all)
          there |= each.offset == truth.offset && each.length == truth.length && each.log == truth.log &&
                   each.address == truth.address;
        known += there && put != Put::kNone ? 1 : 0;
        if (!there && (put == Put::kAcknowledged || (canary && put == Put::kRefused)))
          problem =
              fmt::format("thread {}, put {}: an acknowledged segment is missing", caller.thread, round);
      }
    }
  }
  if (problem.empty() && known != all.size())
    problem = fmt::format("{} segments were found that nobody put there", all.size() - known);
  if (file != nullptr) static_cast<void>(swale_meta_file_close(file));
  if (store != nullptr) static_cast<void>(swale_meta_close(store));
  static_cast<void>(swale_job_close(job));
  return problem;
}

Outcome run(const std::string& path, const Failure& failure) {
  Outcome outcome;
  swale_job* job = nullptr;
  swale_meta* store = nullptr;
  if (swale_job_open(nullptr, nullptr, &job) != SWALE_OK ||
      swale_meta_open(job, path.c_str(), SWALE_CREATE, failure.nth == 0 ? kPatient : kOptions, &store) !=
          SWALE_OK) {
    outcome.problem = swale_last_error();
    return outcome;
  }
  std::array<Caller, kThreads> callers;
  std::latch ready(kThreads + 1), go(1);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    callers[static_cast<size_t>(thread)].thread = thread;
    threads.emplace_back([&, thread] {
      ready.arrive_and_wait();
      go.wait();
      callers[static_cast<size_t>(thread)].work(store);
    });
  }
  ready.arrive_and_wait();
  {
    const FailingNew plan(failure.which, failure.nth, FailingNew::Threads::kAll);
    go.count_down();
    for (std::thread& thread : threads) thread.join();
    outcome.allocations = FailingNew::seen();
    outcome.failed = FailingNew::failed() > 0;
  }
  static_cast<void>(swale_meta_close(store));  // after a failure it may say that it was not in order
  static_cast<void>(swale_job_close(job));
  for (const Caller& each : callers) {
    outcome.refused += each.refused;
    if (each.problem != nullptr) outcome.problem = each.problem;
  }
  if (outcome.problem.empty()) outcome.problem = compare(path, callers, failure.canary);
  return outcome;
}

class MetaClientAllocations : public testing::Test {
 protected:
  void SetUp() override {
    const std::string base = std::filesystem::exists("/dev/shm") ? "/dev/shm" : testing::TempDir();
    folder_ = fmt::format("{}/swale-meta-allocations-{}", base, ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Outcome run_once(const Failure& failure) {
    const std::string path = fmt::format("{}/{}", folder_, number_++);
    Outcome outcome = run(path, failure);
    std::filesystem::remove_all(path);
    return outcome;
  }

 private:
  std::string folder_;
  uint64_t number_ = 0;
};

TEST_F(MetaClientAllocations, ThatFailUnderClientThreadsLoseNothingAndAnswerNothingWrong) {
  const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
  const bool many = rounds != nullptr && std::atoi(rounds) > 1;
  // The fewest of some runs: on a busy machine a run may have twice as many.
  uint64_t allocations = std::numeric_limits<uint64_t>::max();
  for (int run = 0; run < 3; ++run) {
    const Outcome good = run_once({});
    ASSERT_EQ(good.problem, "");
    ASSERT_EQ(good.refused, 0u);
    allocations = std::min(allocations, good.allocations);
  }
  uint64_t points = 0, told = 0;
  for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
    const bool once = which == FailingNew::Which::kOnce;
    const uint64_t points_max = once ? (many ? 2000 : 50) : (many ? 200 : 6);
    for (uint64_t i = 0; i < points_max; ++i) {
      // A run in which none has failed was one with fewer allocations: so many are divided from then on.
      Outcome outcome;
      for (int tries = 0; tries < 5 && !outcome.failed; ++tries) {
        const uint64_t nth = 1 + i * allocations / points_max;
        outcome = run_once({which, nth});
        ASSERT_EQ(outcome.problem, "") << "allocation " << nth << (once ? "" : " and all later ones");
        if (!outcome.failed) allocations = std::min(allocations, outcome.allocations);
      }
      points += outcome.failed ? 1 : 0;
      told += outcome.refused > 0 ? 1 : 0;
    }
  }
  fmt::print("{} of {} allocations failed, {} runs had calls that were refused\n", points, allocations, told);
  EXPECT_GT(points, 30u);
  EXPECT_GT(told, points / 3);
}

TEST_F(MetaClientAllocations, CanaryARefusedPutThatCountsIsFoundOut) {
  const uint64_t allocations = run_once({}).allocations;
  bool found = false;
  for (uint64_t part = 1; part < 5; ++part)
    found |= !run_once({FailingNew::Which::kFromThere, allocations * part / 5, true}).problem.empty();
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace swale::faults::meta_client_allocations_test
