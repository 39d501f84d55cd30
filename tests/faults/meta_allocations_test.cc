// The n-th allocation of every call of a metadata shard and of a store of attributes fails, alone or with all
// later ones of that call: the call answers a failure and has done nothing, or it is done. What was
// acknowledged is there afterwards, in memory and for the next job. SWALE_FAULT_ROUNDS > 1 visits every n;
// otherwise some of each call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/contain.h"
#include "io/memory_device.h"
#include "meta/attributes/attribute_table.h"
#include "meta/index/shard.h"
#include "tests/faults/failing_new.h"

namespace swale::meta::meta_allocations_test {
namespace {

using faults::FailingNew;

constexpr FileId kFile{1, 2};
constexpr FileId kSecond{3, 4}, kThird{1, 4};

ShardOptions small_options() {
  ShardOptions options;
  options.directory = "/s";
  options.write_buffer_entries = 40;
  options.compression_buffer_bytes = 300;
  options.run_blocks_min = 4;
  return options;
}

Run strided(uint64_t offset, uint64_t count, LogId log) {
  Run run;
  run.offset = offset, run.length = 10, run.place = {log, 0}, run.levels = 1;
  run.level[0] = {count, 64, 10};
  return run;
}

std::vector<Extent> scattered(uint64_t seed, uint64_t count) {
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < count; ++i)
    extents.push_back(
        {(seed * 7919 + i * 104'729) % 100'000, 1 + (seed + i) % 90, {static_cast<LogId>(i % 5), i * 100}});
  return extents;
}

Status put(Shard& shard, const FileId& file, std::span<const Extent> extents, std::span<const Run> runs,
           uint64_t number) {
  const Put one{file, extents, runs, {}};
  return shard.put({9, number}, std::span(&one, 1)).status();
}

// All that a shard says.
std::string content(Shard& shard) {
  std::string text;
  for (const FileId& file : {kFile, kSecond, kThird}) {
    std::vector<Extent> extents;
    uint64_t next = 0;
    const Status status = shard.scan(file, 0, 1'000'000, nullptr, &extents, &next);
    if (status.code() == Code::kNotFound) text += " removed:";
    if (!status.ok() && status.code() != Code::kNotFound) return status.to_string();
    const FileSize size = shard.size(file);
    text += fmt::format("{} {} {}:", size.known, size.generation, size.size);
    for (const Extent& each : extents)
      text += fmt::format(" {}+{}={}@{}", each.offset, each.length, each.place.log, each.place.address);
  }
  return text;
}

// Where two contents part.
std::string difference(const std::string& a, const std::string& b) {
  const auto at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const size_t from = at < 60 ? 0 : at - 60;
  return fmt::format("...{} instead of ...{}", a.substr(from, 120), b.substr(from, 120));
}

// One call. What it needs is prepared when the script is made, so that only the shard allocates.
struct Step {
  std::string name;
  std::function<Status(Shard&)> act;
  enum class Kind { kChange, kCommit, kOther } kind = Kind::kOther;
};

std::vector<Step> script() {
  std::vector<Step> steps;
  uint64_t number = 0;
  const auto change = [&](std::string name, std::function<Status(Shard&)> act) {
    steps.push_back({std::move(name), std::move(act), Step::Kind::kChange});
  };
  const auto commit = [&] {
    steps.push_back({"commit", [](Shard& shard) { return shard.commit(); }, Step::Kind::kCommit});
  };
  const auto background = [&] {
    steps.push_back({"background",
                     [](Shard& shard) {
                       std::unique_ptr<Work> work = shard.next_background();
                       if (work == nullptr) return ok_status();
                       work->run();
                       return shard.finish(std::move(work));
                     },
                     Step::Kind::kOther});
  };
  for (uint64_t round = 0; round < 3; ++round) {
    change("put of extents", [extents = scattered(round, 30), n = ++number](Shard& shard) {
      return put(shard, kFile, extents, {}, n);
    });
    commit();
    change("put of runs",
           [runs = std::vector<Run>{strided(round * 1000, 50, 7), strided(round * 500 + 20, 30, 8)},
            n = ++number](Shard& shard) { return put(shard, kSecond, {}, runs, n); });
    change("put of both",
           [extents = scattered(round + 50, 20), runs = std::vector<Run>{strided(round * 70, 9, 6)},
            n = ++number](Shard& shard) { return put(shard, kFile, extents, runs, n); });
    commit();
    background();
    change("truncate", [round, n = ++number](Shard& shard) {
      return shard.truncate({9, n}, kSecond, 1500 + round, round * 2 + 1).status();
    });
    change("relocate", [round, n = ++number](Shard& shard) {
      return shard.relocate({9, n}, {7, 0, 200 + round * 10, {20, round * 1000}}).status();
    });
    commit();
    background();
    background();
  }
  change("remove", [n = ++number](Shard& shard) { return shard.remove({9, n}, kFile, 100).status(); });
  change("put after it", [extents = scattered(99, 10), n = ++number](Shard& shard) {
    return put(shard, kThird, extents, {}, n);
  });
  commit();
  steps.push_back({"lookup",
                   [found = std::make_shared<Found>()](Shard& shard) {
                     const Range range{kThird, 0, 50'000};
                     return shard.lookup(std::span(&range, 1), 1000, found.get());
                   },
                   Step::Kind::kOther});
  steps.push_back({"lookup of runs",
                   [found = std::make_shared<std::vector<Run>>()](Shard& shard) {
                     const Run query = strided(20, 20, 0);
                     found->clear();
                     return shard.lookup_runs(kSecond, std::span(&query, 1), 1000, found.get(), nullptr);
                   },
                   Step::Kind::kOther});
  steps.push_back({"drain", [](Shard& shard) { return shard.drain(); }, Step::Kind::kOther});
  return steps;
}

// The n that are visited of those at which a call can fail: the first ones, then every seventh.
bool visited(uint64_t n) {
  static const bool all = [] {
    const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
    return rounds != nullptr && std::atoi(rounds) > 1;
  }();
  return all || n <= 12 || n % 7 == 0;
}

struct Outcome {
  std::string problem;
  bool failed = false;     // an allocation
  bool refused = false;    // the call
  bool read_only = false;  // afterwards
};

// Runs the script with a failure in call `at`. The twin has what was acknowledged.
Outcome run(const std::vector<Step>& steps, size_t at, FailingNew::Which which, uint64_t nth, bool canary) {
  Outcome outcome;
  io::MemoryDevice disk, other;
  static_cast<void>(disk.make_directory("/s"));
  static_cast<void>(other.make_directory("/s"));
  std::unique_ptr<Shard> shard = *Shard::open(disk, small_options());
  const std::unique_ptr<Shard> twin = *Shard::open(other, small_options());
  std::vector<size_t> pending;  // changes that joined a group and are not known to be durable
  const auto acknowledge = [&] {
    for (const size_t each : pending) {
      const Status done = steps[each].act(*twin);
      if (!done.ok()) outcome.problem = "the twin: " + done.to_string();
    }
    pending.clear();
    static_cast<void>(twin->drain());
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    Status status;
    if (i == at) {
      const FailingNew plan(which, nth);
      status = steps[i].act(*shard);
    } else {
      status = steps[i].act(*shard);
      for (int tries = 0; status.code() == Code::kBusy && tries < 3; ++tries) {
        if (std::unique_ptr<Work> work = shard->next_background()) {
          work->run();
          static_cast<void>(shard->finish(std::move(work)));
        }
        status = steps[i].act(*shard);
      }
      if (!status.ok() && shard->health().ok()) {
        outcome.problem = fmt::format("{} fails after it: {}", steps[i].name, status.to_string());
        return outcome;
      }
    }
    if (i == at) outcome.failed = FailingNew::failed() > 0;
    outcome.refused |= !status.ok();
    if (steps[i].kind == Step::Kind::kChange && status.ok()) pending.push_back(i);
    if (canary && i == at && steps[i].kind == Step::Kind::kChange) pending.push_back(i);
    if (steps[i].kind == Step::Kind::kCommit && status.ok()) acknowledge();
    if (!shard->health().ok()) {
      outcome.read_only = true;
      if (status.ok()) outcome.problem = "a call that made the shard read-only answered OK";
      break;
    }
    if (!status.ok() && steps[i].kind == Step::Kind::kCommit) pending.clear();  // void
  }
  const std::string expected = content(*twin);
  if (!outcome.read_only && outcome.problem.empty()) {
    // A last call that has failed is made again; then the shard is as its twin.
    static_cast<void>(shard->commit());
    acknowledge();
    const Status drained = shard->drain();
    if (!drained.ok()) outcome.problem = "drain: " + drained.to_string();
    if (outcome.problem.empty() && content(*shard) != content(*twin))
      outcome.problem = "other bytes: " + difference(content(*shard), content(*twin));
  }
  const std::string with_pending = [&] {
    acknowledge();
    return content(*twin);
  }();
  shard.reset();
  const auto reopened = Shard::open(disk, small_options());
  if (!reopened.ok()) {
    outcome.problem = "the next job: " + reopened.status().to_string();
  } else if (outcome.problem.empty() && content(**reopened) != expected &&
             content(**reopened) != with_pending) {
    outcome.problem = "other bytes for the next job";
  }
  return outcome;
}

constexpr FailingNew::Which kBoth[] = {FailingNew::Which::kOnce, FailingNew::Which::kFromThere};

TEST(MetaAllocations, OfEveryCallOfAShardFailAndLoseNothing) {
  const std::vector<Step> steps = script();
  uint64_t points = 0, refused = 0, read_only = 0;
  for (size_t at = 0; at < steps.size(); ++at) {
    for (const auto which : kBoth) {
      for (uint64_t nth = 1;; ++nth) {
        if (!visited(nth)) continue;
        const Outcome outcome = run(steps, at, which, nth, false);
        ASSERT_EQ(outcome.problem, "") << "call " << at << " (" << steps[at].name << "), allocation " << nth;
        if (!outcome.failed) break;
        ++points;
        refused += outcome.refused ? 1 : 0;
        read_only += outcome.read_only ? 1 : 0;
      }
    }
  }
  fmt::print("{} failed allocations in {} calls: {} were told, {} made the shard read-only\n", points,
             steps.size(), refused, read_only);
  EXPECT_GT(points, 500u);
  EXPECT_GT(refused, points / 2);
}

TEST(MetaAllocations, CanaryAPutThatFailedAndCountsAllTheSameIsFoundOut) {
  const std::vector<Step> steps = script();
  const auto last_put =
      std::find_if(steps.begin(), steps.end(), [](const Step& step) { return step.name == "put after it"; });
  const auto at = static_cast<size_t>(last_put - steps.begin());
  EXPECT_NE(run(steps, at, FailingNew::Which::kOnce, 1, true).problem, "");
}

TEST(MetaAllocations, OfAnOpeningFailAndTheNextOneFindsEverything) {
  const std::vector<Step> steps = script();
  uint64_t points = 0;
  for (const auto which : kBoth) {
    for (uint64_t nth = 1;; ++nth) {
      if (!visited(nth)) continue;
      io::MemoryDevice disk;
      ASSERT_TRUE(disk.make_directory("/s").ok());
      std::string expected;
      {
        auto shard = *Shard::open(disk, small_options());
        for (size_t i = 0; i < 12; ++i) ASSERT_TRUE(steps[i].act(*shard).ok());
        expected = content(*shard);
      }
      Status status;
      bool failed = false;
      {
        const ShardOptions options = small_options();
        const FailingNew plan(which, nth);
        status = Shard::open(disk, options).status();
        failed = FailingNew::failed() > 0;
      }
      if (!failed) break;
      ++points;
      const auto again = Shard::open(disk, small_options());
      ASSERT_TRUE(again.ok()) << nth << ": " << again.status().to_string();
      ASSERT_EQ(content(**again), expected) << "allocation " << nth << ": " << status.to_string();
    }
  }
  fmt::print("{} failed allocations of an opening\n", points);
  EXPECT_GT(points, 50u);
}

AttributeRequest attribute(AttributeOp op, uint64_t number) {
  AttributeRequest request;
  request.op = op;
  request.name = "a file whose name needs memory of its own";
  request.from = {1, number};
  request.size = 100 * number;
  request.generation = 50;
  request.time_ns = static_cast<int64_t>(number);
  return request;
}

// Changes, commits and checkpoints: after a failure the table is that of before or after the call, and the
// log has what was acknowledged.
TEST(MetaAllocations, OfATableOfAttributesFailAndLoseNothing) {
  uint64_t points = 0;
  for (const uint64_t table_bytes_min : {uint64_t{300}, uint64_t{1 << 20}}) {
    for (const auto which : kBoth) {
      for (uint64_t at = 0; at < 12; ++at) {
        for (uint64_t nth = 1;; ++nth) {
          if (!visited(nth)) continue;
          io::MemoryDevice disk;
          ASSERT_TRUE(disk.make_directory("/s").ok());
          ShardOptions options = small_options();
          options.table_bytes_min = table_bytes_min;
          AttributeTable table, found;
          options.table = &table;
          auto shard = *Shard::open(disk, options);
          uint64_t acknowledged = 0, attempted = 0;
          bool failed = false;
          for (uint64_t i = 0; i < 12 && shard->health().ok(); ++i) {
            const AttributeRequest what =
                attribute(i == 0 ? AttributeOp::kCreate : AttributeOp::kClose, i + 1);
            std::unique_ptr<FailingNew> plan;
            if (i == at) plan = std::make_unique<FailingNew>(which, nth);
            // The rim's boundary: what throws stops the server (Service::fail).
            const Status done = contain([&]() -> Status {
              std::string record;
              SWALE_RETURN_IF_ERROR(table.apply(what, &record).status());
              const uint64_t group = shard->add_record(record);
              SWALE_RETURN_IF_ERROR(shard->commit());
              if (group > shard->durable_group()) return Status::out_of_memory();
              std::unique_ptr<Work> work = shard->next_background();
              if (work == nullptr) return {};
              work->run();
              static_cast<void>(
                  shard->finish(std::move(work)));  // the change is durable whatever becomes of it
              return {};
            });
            if (i == at) failed = FailingNew::failed() > 0;
            plan.reset();
            attempted = what.size;
            if (!done.ok()) break;
            acknowledged = what.size;
          }
          shard.reset();
          options.table = &found;
          const auto again = Shard::open(disk, options);
          ASSERT_TRUE(again.ok()) << again.status().to_string();
          const Attributes* const file = found.find("a file whose name needs memory of its own");
          const uint64_t size = file == nullptr ? 0 : file->size;
          ASSERT_TRUE(size == attempted || size == acknowledged || (size == 0 && acknowledged <= 100))
              << "call " << at << ", allocation " << nth << ": " << size;
          if (!failed) break;
          ++points;
        }
      }
    }
  }
  fmt::print("{} failed allocations of a table of attributes\n", points);
  EXPECT_GT(points, 200u);
}

}  // namespace
}  // namespace swale::meta::meta_allocations_test
