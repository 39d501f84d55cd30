// The n-th allocation fails, for every n, while a job of several ranks opens a directory, writes epochs and
// closes it: no abort, no waiting for ever; what was answered OK is there afterwards, whole, and nothing else
// is; and the next job writes on.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/contain.h"
#include "base/log.h"
#include "base/testing/test_allocations.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::imd::writer_alloc_test {
namespace {

using swale::test::Allocations;
using swale::test::kForGood;
using Contents = std::map<std::string, std::vector<std::string>>;

constexpr char kDir[] = "/dir";
constexpr std::chrono::seconds kDeadline(100);

struct Shape {
  const char* name = "";
  int32_t ranks = 2;
  uint32_t ways = 1;
  int records = 40;
  int large = 0;
  bool overlapped = false;
  bool with_schema = false;
  const char* posting = "direct";
};

std::string key_of(uint32_t epoch, net::Rank rank, int i) {
  return fmt::format("k-{}-{}-{}", epoch, rank, i);
}

std::string value_of(const Shape& shape, uint32_t epoch, net::Rank rank, int i) {
  const size_t bytes = i < shape.large ? run::kValueBytesMax + 100 + static_cast<size_t>(i) : 40;
  std::string value(bytes, static_cast<char>('a' + (epoch + static_cast<uint32_t>(rank + i)) % 26));
  const std::string label = fmt::format("{:08}", i);
  return value.replace(0, label.size(), label);
}

WriterOptions options_of(const Shape& shape) {
  WriterOptions options;
  options.memory_bytes = 6 * kMiB;
  options.ways = shape.ways;
  if (shape.with_schema) options.schema = run::Schema::parse("energy:f4;rest:u1x36;_:*", "energy").value();
  return options;
}

// What the ranks did and were told.
struct Story {
  std::mutex mutex;
  std::map<uint32_t, int> ended;    // ranks that appended all of the epoch with OK and ended it
  std::map<uint32_t, int> told_ok;  // ranks that were told that it is committed
  int failures = 0;                 // calls that failed
};

// The canary swallows a failed append: it ends the epoch as if nothing had happened.
enum class Conduct { kHonest, kSwallowsAFailedAppend };

class RankOfJob {
 public:
  RankOfJob(net::Job& job, const Shape& shape, Conduct conduct, Story* story)
      : job_(job), shape_(shape), conduct_(conduct), story_(story) {}

  void run(io::Device& device, uint32_t epochs) {
    const WriterOptions options = options_of(shape_);
    const std::string directory = kDir;
    std::unique_ptr<Writer> writer;
    call([&] {
      auto opened = Writer::open(job_, device, directory, Writer::Create::kIfMissing, options);
      if (opened.ok()) writer = *std::move(opened);
      return opened.status();
    });
    if (!writer) return;
    for (uint32_t epoch = 0; epoch < epochs && good_; ++epoch) write_epoch(*writer, epoch);
    if (good_ && shape_.overlapped) wait(*writer, epochs - 1);
    call([&] { return writer->close(); });
    const Allocations::Library inside;
    writer.reset();
  }

 private:
  void write_epoch(Writer& writer, uint32_t epoch) {
    for (int i = 0; i < shape_.records && good_; ++i) {
      const std::string key = key_of(epoch, job_.rank(), i);
      const std::string value = value_of(shape_, epoch, job_.rank(), i);
      const bool swallow = conduct_ == Conduct::kSwallowsAFailedAppend && i == 7;
      if (!swallow) call([&] { return writer.append(key, value); });
    }
    if (good_ && shape_.overlapped && epoch > 0) wait(writer, epoch - 1);
    if (!good_) return;
    {
      const std::lock_guard lock(story_->mutex);
      ++story_->ended[epoch];
    }
    call([&] { return writer.epoch_end_begin(epoch, 0.5 * epoch); });
    if (good_ && !shape_.overlapped) wait(writer, epoch);
  }
  void wait(Writer& writer, uint32_t epoch) {
    call([&] { return writer.epoch_end_wait(); });
    const std::lock_guard lock(story_->mutex);
    if (good_) ++story_->told_ok[epoch];
  }
  template <class Body>
  void call(const Body& body) {
    bool failed = false;
    {
      const Allocations::Library inside;
      // As the C interface does.
      failed = !contain(body).ok();
    }
    if (!failed) return;
    Allocations::stop();  // memory is there again
    good_ = false;
    const std::lock_guard lock(story_->mutex);
    ++story_->failures;
  }

  net::Job& job_;
  const Shape& shape_;
  const Conduct conduct_;
  Story* story_;
  bool good_ = true;
};

// All ranks as threads. Never returns if they do not come back: a test that waits for ever says where.
void run_job(const Shape& shape, io::Device& device, uint32_t epochs, Conduct conduct, Story* story,
             const std::function<void()>& when_open, const std::string& what) {
  const auto group = std::make_shared<net::LocalGroup>(shape.ranks);
  std::vector<std::future<void>> ends;
  std::barrier all_open(shape.ranks, [&]() noexcept { when_open(); });
  for (net::Rank rank = 0; rank < shape.ranks; ++rank) {
    ends.push_back(std::async(std::launch::async, [&, rank] {
      Allocations::spare_this_thread();
      net::JobOptions options;
      options.transport = "loopback";
      options.posting = shape.posting;
      // A rank that fails may meet another when that one has left already; over loopback nobody tells it so.
      options.close_deadline = seconds(5);
      auto job = net::Job::open(shape.ranks == 1 ? net::solo_bootstrap() : net::local_bootstrap(group, rank),
                                options);
      ASSERT_TRUE(job.ok()) << job.status().to_string();
      all_open.arrive_and_wait();
      RankOfJob(**job, shape, conduct, story).run(device, epochs);
      static_cast<void>((*job)->close());
    }));
  }
  // Memory that is short for good is short for a while: then it has to be told.
  static_cast<void>(ends.front().wait_for(std::chrono::milliseconds(200)));
  Allocations::stop();
  for (std::future<void>& end : ends) {
    if (end.wait_for(kDeadline) == std::future_status::ready) continue;
    fmt::print(stderr, "{}: a rank waits for ever\n", what);
    std::abort();
  }
}

Contents contents_of(const Shape& shape, uint32_t epoch) {
  Contents all;
  for (net::Rank rank = 0; rank < shape.ranks; ++rank) {
    for (int i = 0; i < shape.records; ++i)
      all[key_of(epoch, rank, i)].push_back(value_of(shape, epoch, rank, i));
  }
  return all;
}

// What is wrong with the directory; nothing if all is well.
std::string complaint(const Shape& shape, io::Device& device, Story& story) {
  if (!*device.exists(manifest_path(kDir))) {
    return story.told_ok.empty() ? "" : "an epoch was acknowledged, and there is no directory";
  }
  auto reader = Reader::open(device, kDir, {});
  if (!reader.ok()) return reader.status().to_string();
  const auto committed = static_cast<uint32_t>((*reader)->manifest().epochs.size());
  for (const auto& [epoch, ranks] : story.told_ok) {
    if (epoch >= committed) return fmt::format("epoch {} was acknowledged and is not there", epoch);
  }
  for (uint32_t epoch = 0; epoch < committed; ++epoch) {
    if (story.ended[epoch] != shape.ranks)
      return fmt::format("epoch {} is committed, {} ranks have ended it", epoch, story.ended[epoch]);
    const Contents expected = contents_of(shape, epoch);
    for (const auto& [key, values] : expected) {
      const auto found = (*reader)->get(key, epoch);
      if (!found.ok()) return fmt::format("epoch {}, {}: {}", epoch, key, found.status().to_string());
      if (found->size() != 1 || found->front().bytes != values.front())
        return fmt::format("epoch {}, {}: {} values, or another one", epoch, key, found->size());
    }
    uint64_t records = 0;
    const Status scanned = (*reader)->scan(epoch, [&](uint32_t, Bytes, Bytes) {
      ++records;
      return true;
    });
    if (!scanned.ok()) return scanned.to_string();
    if (records != expected.size())
      return fmt::format("epoch {}: {} records too many", epoch, records - expected.size());
  }
  return "";
}

struct Outcome {
  bool hit = false;
  int64_t seen = 0;
  int failures = 0;
  std::string complaint;
};

Outcome visit(const Shape& shape, int64_t n, int64_t length, Conduct conduct = Conduct::kHonest) {
  io::MemoryDevice device;
  Story story;
  const std::string what = fmt::format("{}: allocation {} (and {} behind it)", shape.name, n, length - 1);
  run_job(
      shape, device, 3, conduct, &story, [&] { Allocations::fail(n, length); }, what);
  Allocations::stop();
  Outcome outcome{Allocations::hit(), Allocations::seen(), story.failures, complaint(shape, device, story)};
  if (!outcome.complaint.empty()) return outcome;
  // The next job writes on.
  Story next;
  run_job(
      shape, device, 1, Conduct::kHonest, &next, [] {}, what + ", the job after");
  if (next.failures != 0 || next.told_ok[0] != shape.ranks) outcome.complaint = "the next job failed";
  return outcome;
}

int64_t stride_of(int64_t total, int64_t points) {
  if (const char* set = std::getenv("SWALE_ALLOC_POINTS")) points = std::strtoll(set, nullptr, 10);
  return points == 0 ? 1 : std::max<int64_t>(1, total / points);
}

void visit_all(const Shape& shape, int64_t points) {
  Allocations::spare_this_thread();
  set_log_level(LogLevel::kOff);
  const int64_t total = visit(shape, kForGood, 1).seen;
  const int64_t stride = stride_of(total, points);
  int visited = 0, failed = 0;
  for (int64_t n = 1 + stride / 2; n <= total + total / 10; n += stride) {
    for (const int64_t length : {int64_t{1}, int64_t{20}, kForGood}) {
      if (stride > 1 && (n / stride) % 3 != (length == 1 ? 0 : length == 20 ? 1 : 2)) continue;
      const Outcome outcome = visit(shape, n, length);
      ASSERT_EQ(outcome.complaint, "")
          << shape.name << ", allocation " << n << " of " << total << ", " << length;
      if (!outcome.hit) continue;
      ++visited;
      failed += outcome.failures != 0 ? 1 : 0;
    }
  }
  set_log_level(LogLevel::kWarn);
  fmt::print("{}: {} of {} allocations failed; told in {}\n", shape.name, visited, total, failed);
  EXPECT_GT(failed, 0);
}

TEST(WriterAllocations, SmallValues) { visit_all({.name = "small values"}, 60); }

TEST(WriterAllocations, LargeValuesExtremaAndTwoWaysOverlapped) {
  visit_all({.name = "large values, extrema, two ways, overlapped",
             .ways = 2,
             .records = 60,
             .large = 6,
             .overlapped = true,
             .with_schema = true},
            60);
}

TEST(WriterAllocations, ThreeRanksAndAQueue) {
  visit_all(
      {.name = "three ranks, posting by a queue", .ranks = 3, .records = 30, .large = 2, .posting = "queue"},
      40);
}

TEST(WriterAllocations, OneRank) { visit_all({.name = "one rank", .ranks = 1, .large = 2}, 30); }

TEST(WriterAllocations, CanaryASwallowedAppendIsNoticed) {
  Allocations::spare_this_thread();
  EXPECT_NE(visit({.name = "canary"}, kForGood, 1, Conduct::kSwallowsAFailedAppend).complaint, "");
}

}  // namespace
}  // namespace swale::imd::writer_alloc_test
