// The n-th allocation of every operation of a metadata server fails, alone or with all later ones: creations,
// puts, closes, truncates, seals, removals and relocations, from the request to the last sync. A server that
// goes on does what it has refused when it is asked again. One that ends leaves what the next job opens, and
// finds as it was before the operation or after it, with everything else that was acknowledged.
// SWALE_FAULT_ROUNDS > 1 visits every n; otherwise some of each operation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/contain.h"
#include "io/memory_device.h"
#include "meta/server/server_core.h"
#include "tests/faults/failing_new.h"

namespace swale::meta::meta_server_allocations_test {
namespace {

using faults::FailingNew;

const std::string kNames[] = {"the first of the files, whose name needs memory of its own",
                              "the second one of them, whose name needs memory of its own",
                              "the last one of the files, whose name needs memory of its own"};

// One server with all it needs, and what a Service does with it: one that throws in an event is asked for
// nothing more.
struct Step {
  std::string name;
  Method method;
  std::string message;
  std::string put_into = {};  // a file's name
};

class Rig {
 public:
  explicit Rig(io::Device& disk) : partition_(1, 64 << 20) {
    opened_ = [&]() -> Status {
      auto attributes = std::make_unique<AttributeTable>();
      ShardOptions options;
      options.directory = "/s";
      options.table = attributes.get();
      options.write_buffer_entries = 64;
      SWALE_ASSIGN_OR_RETURN(auto shard, Shard::open(disk, options));
      core_ = std::make_unique<ServerCore>(partition_, 0, RingMode::kRing, std::move(attributes),
                                           std::move(shard));
      core_->resume();
      pump();
      return {};
    }();
  }
  const Status& opened() const { return opened_; }
  const Status& failure() const { return failure_; }
  bool unanswered() const { return unanswered_; }
  ServerCore& core() { return *core_; }

  // A put names the id that its file has now.
  Status ask(const Step& step, FailingNew::Which which = {}, uint64_t nth = 0) {
    std::string message = step.message;
    if (!step.put_into.empty()) {
      const Attributes* const file = core_->attributes().find(step.put_into);
      const FileId id = file == nullptr ? FileId{7, 7} : file->file;
      put_u64(&message[4], id.high);
      put_u64(&message[12], id.low);
    }
    if (nth == 0) return ask(step.method, message);
    const FailingNew plan(which, nth);
    return ask(step.method, message);
  }
  Status ask(Method method, const std::string& message) {
    const uint64_t token = ++token_;
    guard([&] { core_->on_request(method, message, token); });
    pump();
    const FailingNew::Pause pause;
    const auto reply = replies_.find(token);
    if (reply != replies_.end()) return reply->second;
    unanswered_ |= failure_.ok();  // the rim knows of no failure: the client would wait
    return Status::out_of_memory();
  }
  // Calls and storage, until there is nothing more to do.
  void pump() {
    for (bool again = true; again;) {
      again = false;
      std::vector<Call> calls;
      std::vector<Reply> replies;
      {
        const FailingNew::Pause pause;
        calls.reserve(64);
        replies.reserve(64);
      }
      guard([&] { core_->take_calls(&calls); });
      for (const Call& call : calls) {
        again = true;
        guard([&] { core_->on_request(call.method, call.payload, kOwn + call.tag); });
      }
      guard([&] { core_->take_replies(&replies); });
      for (Reply& each : replies) {
        again = true;
        if (each.token >= kOwn) {
          guard([&] { core_->on_completion(each.token - kOwn, std::move(each.response)); });
        } else {
          const FailingNew::Pause pause;
          replies_.emplace(each.token, each.response.status());
        }
      }
      std::unique_ptr<Work> work;
      guard([&] { work = core_->next_work(); });
      if (work == nullptr) {
        again |= core_->has_output();
        continue;
      }
      again = true;
      work->run();
      guard([&] { core_->finish(std::move(work)); });
    }
  }

 private:
  static constexpr uint64_t kOwn = uint64_t{1} << 40;
  template <class Act>
  void guard(const Act& act) {
    const Status done = contain([&] { act(); });
    if (failure_.ok()) failure_ = done;
  }

  const Partition partition_;
  Status opened_, failure_;
  std::unique_ptr<ServerCore> core_;
  uint64_t token_ = 0;
  bool unanswered_ = false;
  std::map<uint64_t, Status> replies_;
};

AttributeRequest attribute(AttributeOp op, size_t file, uint64_t number, uint64_t size = 0) {
  AttributeRequest request;
  request.op = op;
  request.name = kNames[file];
  request.from = {3, number};
  request.size = size;
  request.generation = 1000;
  request.time_ns = 5;
  return request;
}

std::vector<Step> script() {
  std::vector<Step> steps;
  uint64_t number = 0;
  const auto change = [&](std::string name, AttributeOp op, size_t file, uint64_t size = 0) {
    steps.push_back(
        {std::move(name), Method::kAttributes, encode_attributes(0, attribute(op, file, ++number, size))});
  };
  const auto put = [&](size_t file, uint64_t offset) {
    DetectedBatch batch;
    for (uint64_t i = 0; i < 5; ++i) batch.extents.push_back({offset + i * 100, 50, {4, i * 7 + offset}});
    Run run;
    run.offset = offset + 5000, run.length = 10, run.place = {5, 0}, run.levels = 1;
    run.level[0] = {20, 64, 10};
    batch.runs.push_back(run);
    batch.run_at.push_back(batch.extents.size());
    steps.push_back({"put", Method::kPut, encode_put(0, {}, {4, ++number}, batch), kNames[file]});
  };
  change("create", AttributeOp::kCreate, 0);
  put(0, 0);
  change("create exclusively", AttributeOp::kCreateExclusive, 1);
  put(1, 100);
  change("close", AttributeOp::kClose, 0, 700);
  change("truncate", AttributeOp::kTruncate, 0, 450);
  put(0, 4000);
  change("seal", AttributeOp::kSeal, 1);
  steps.push_back({"relocate", Method::kRelocate, encode_relocate(0, {{4, ++number}, {4, 0, 120, {9, 0}}})});
  change("create", AttributeOp::kCreate, 2);
  put(2, 300);
  change("remove", AttributeOp::kRemove, 2);
  change("create again", AttributeOp::kCreate, 2);
  put(2, 600);
  change("truncate again", AttributeOp::kTruncate, 0, 100);
  change("close again", AttributeOp::kClose, 2, 9000);
  return steps;
}

// All that the server says of its files, without what counts attempts.
std::string content(Rig& rig) {
  std::string text;
  for (const std::string& name : kNames) {
    const Attributes* const found = rig.core().attributes().find(name);
    text += found == nullptr ? "\n-" : fmt::format("\n{} sealed {}", found->size, found->sealed);
    if (found == nullptr) continue;
    const FileId file = found->file;
    text += rig.core().attributes().refuses_puts(file) ? " refuses puts:" : " takes puts:";
    std::vector<Extent> extents;
    uint64_t next = 0;
    const Status status = rig.core().shard().scan(file, 0, 100'000, nullptr, &extents, &next);
    if (!status.ok()) return status.to_string();
    for (const Extent& each : extents)
      text += fmt::format(" {}+{}={}@{}", each.offset, each.length, each.place.log, each.place.address);
  }
  return text;
}

// After the first `count` steps without `skipped`, for the job that comes then.
const std::string& expected(const std::vector<Step>& steps, size_t count, size_t skipped) {
  static std::map<std::pair<size_t, size_t>, std::string> known;
  const auto [place, added] = known.try_emplace({count, skipped});
  if (!added) return place->second;
  io::MemoryDevice disk;
  static_cast<void>(disk.make_directory("/s"));
  {
    Rig rig(disk);
    for (size_t i = 0; i < count; ++i) {
      if (i != skipped) static_cast<void>(rig.ask(steps[i]));
    }
  }
  Rig next(disk);
  place->second = next.opened().ok() ? content(next) : next.opened().to_string();
  return place->second;
}

bool visited(uint64_t n) {
  static const bool all = [] {
    const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
    return rounds != nullptr && std::atoi(rounds) > 1;
  }();
  return all || n <= 40 || n % 7 == 0;
}

struct Outcome {
  std::string problem;
  bool failed = false;   // an allocation
  bool refused = false;  // the operation
  bool again = false;    // it was asked for once more
  bool ended = false;    // the server takes nothing more
};

Outcome run(const std::vector<Step>& steps, size_t at, FailingNew::Which which, uint64_t nth, bool canary) {
  Outcome outcome;
  io::MemoryDevice disk;
  static_cast<void>(disk.make_directory("/s"));
  size_t done = 0;
  {
    Rig rig(disk);
    for (; done < steps.size() && !outcome.ended; ++done) {
      Status status = done == at ? rig.ask(steps[done], which, nth) : rig.ask(steps[done]);
      if (rig.unanswered()) {
        outcome.problem = steps[done].name + ": there is no answer";
        return outcome;
      }
      outcome.ended = !rig.failure().ok() || !rig.core().shard().health().ok();
      if (done == at) {
        outcome.failed = FailingNew::failed() > 0;
        outcome.refused = !status.ok();
        // A server that goes on does it when it is asked again, as a client does.
        outcome.again = outcome.refused && !outcome.ended && !canary;
        if (outcome.again) status = rig.ask(steps[done]);
        if (canary) status = {};
      }
      if (!outcome.ended && !status.ok() && !canary) {
        outcome.problem = fmt::format("{}: {}", steps[done].name, status.to_string());
        return outcome;
      }
    }
  }
  const std::string with = expected(steps, done, SIZE_MAX);
  const std::string without = expected(steps, done, at);
  Rig next(disk);
  if (!next.opened().ok()) {
    outcome.problem = "the next job: " + next.opened().to_string();
    return outcome;
  }
  const std::string found = content(next);
  const bool may_be_without = outcome.refused && !outcome.again && !canary;
  if (found != with && !(may_be_without && found == without))
    outcome.problem = fmt::format("found{}\ninstead of{}\nor{}", found, with, without);
  return outcome;
}

constexpr FailingNew::Which kBoth[] = {FailingNew::Which::kOnce, FailingNew::Which::kFromThere};

TEST(MetaServerAllocations, OfEveryOperationFailAndTheNextJobFindsItDoneOrNot) {
  const std::vector<Step> steps = script();
  uint64_t points = 0, refused = 0, ended = 0;
  for (size_t at = 0; at < steps.size(); ++at) {
    for (const auto which : kBoth) {
      for (uint64_t nth = 1;; ++nth) {
        if (!visited(nth)) continue;
        const Outcome outcome = run(steps, at, which, nth, false);
        ASSERT_EQ(outcome.problem, "") << "step " << at << " (" << steps[at].name << "), allocation " << nth
                                       << (which == FailingNew::Which::kOnce ? "" : " and all later ones");
        if (!outcome.failed) break;
        ++points;
        refused += outcome.refused ? 1 : 0;
        ended += outcome.ended ? 1 : 0;
      }
    }
  }
  fmt::print("{} failed allocations in {} operations: {} were told, {} ended the server\n", points,
             steps.size(), refused, ended);
  EXPECT_GT(points, 500u);
  EXPECT_GT(refused, points / 3);
}

TEST(MetaServerAllocations, CanaryARefusedCreationThatCountsIsFoundOut) {
  const std::vector<Step> steps = script();
  EXPECT_NE(run(steps, 2, FailingNew::Which::kFromThere, 1, true).problem, "");
}

// ---- requests that the shard could not take at once

ShardOptions options_of(AttributeTable* table, size_t write_buffer_entries) {
  ShardOptions options;
  options.directory = "/s";
  options.table = table;
  options.table_bytes_min = 1000;
  options.write_buffer_entries = write_buffer_entries;
  return options;
}

// A server whose rim looks for work when it has a reason to, as a Service does: one that is given none
// sleeps.
class SleepyRim {
 public:
  explicit SleepyRim(size_t write_buffer_entries = 64) : partition_(1, 64 << 20) {
    EXPECT_TRUE(disk_.make_directory("/s").ok());
    auto attributes = std::make_unique<AttributeTable>();
    auto shard = Shard::open(disk_, options_of(attributes.get(), write_buffer_entries));
    core_ = std::make_unique<ServerCore>(partition_, 0, RingMode::kRing, std::move(attributes),
                                         *std::move(shard));
  }
  ServerCore& core() { return *core_; }
  uint64_t create() {
    AttributeRequest request;
    request.op = AttributeOp::kCreate;
    request.name = fmt::format("a file whose name needs memory of its own, {}", ++token_);
    request.from = {1, token_};
    core_->on_request(Method::kAttributes, encode_attributes(0, request), token_);
    return token_;
  }
  uint64_t put() {
    DetectedBatch batch;
    for (uint64_t i = 0; i < 30; ++i) batch.extents.push_back({(token_ * 31 + i) * 100, 50, {4, i * 7}});
    core_->on_request(Method::kPut, encode_put(0, {3, 4}, {4, token_ + 1}, batch), ++token_);
    return token_;
  }
  // Until there is nothing to do, beginning with `work`.
  void go_on(std::unique_ptr<Work> work) {
    for (; work != nullptr; work = core_->next_work()) {
      work->run();
      core_->finish(std::move(work));
    }
    EXPECT_TRUE(core_->consistent());
    std::vector<Reply> replies;
    core_->take_replies(&replies);
    for (const Reply& each : replies)
      EXPECT_TRUE(replies_.emplace(each.token, each.response.status()).second) << "two replies";
  }
  bool answered(uint64_t token) const { return replies_.contains(token); }

 private:
  io::MemoryDevice disk_;
  const Partition partition_;
  std::unique_ptr<ServerCore> core_;
  uint64_t token_ = 0;
  std::map<uint64_t, Status> replies_;
};

// A change waits until a checkpoint has begun; the checkpoint finds no memory, and begins later. The change
// is committed now: nothing else would wake the rim.
TEST(MetaServerAllocations, AChangeThatWaitedForACheckpointIsCommittedThoughThatFindsNoMemory) {
  uint64_t points = 0, later = 0;
  for (uint64_t nth = 1;; ++nth) {
    SleepyRim rim;
    ServerCore& core = rim.core();
    rim.create();
    std::unique_ptr<Work> commit = core.next_work();
    for (int i = 0; core.shard().accepts_records(); ++i) {
      ASSERT_LT(i, 200);
      rim.create();
      commit->run();
      core.finish(std::move(commit));
      commit = core.next_work();
      ASSERT_EQ(commit->kind(), WorkKind::kCommit);
      ASSERT_EQ(core.next_work(), nullptr);  // the checkpoint waits for the commit, and changes for it
    }
    const uint64_t held = rim.create();
    commit->run();
    core.finish(std::move(commit));
    std::unique_ptr<Work> work;
    bool failed = false;
    {
      const FailingNew plan(FailingNew::Which::kOnce, nth);
      work = core.next_work();
      failed = FailingNew::failed() > 0;
    }
    later += failed && work != nullptr && work->kind() == WorkKind::kCommit ? 1 : 0;
    rim.go_on(std::move(work));
    ASSERT_TRUE(rim.answered(held)) << "allocation " << nth;
    ASSERT_TRUE(core.shard().health().ok());
    if (!failed) break;
    ++points;
  }
  EXPECT_GT(points, 10u);
  EXPECT_GT(later, 5u);
}

// It is refused, and the server goes on: what throws here would end all servers of the rank.
TEST(MetaServerAllocations, AHeldRequestThatFindsNoMemoryIsRefused) {
  uint64_t points = 0;
  for (uint64_t nth = 1;; ++nth) {
    SleepyRim rim(32);
    ServerCore& core = rim.core();
    std::unique_ptr<Work> flush;
    std::vector<uint64_t> asked;
    for (int i = 0; core.shard().accepts(); ++i) {
      ASSERT_LT(i, 200);
      asked.push_back(rim.put());
      while (std::unique_ptr<Work> work = core.next_work()) {
        if (work->kind() == WorkKind::kFlush) {
          flush = std::move(work);
          continue;
        }
        work->run();
        core.finish(std::move(work));
      }
    }
    ASSERT_NE(flush, nullptr);
    asked.push_back(rim.put());
    asked.push_back(rim.create());
    flush->run();
    bool failed = false;
    {
      const FailingNew plan(FailingNew::Which::kOnce, nth);
      core.finish(std::move(flush));  // it is tried again
      failed = FailingNew::failed() > 0;
    }
    rim.go_on(core.next_work());
    for (const uint64_t each : asked) ASSERT_TRUE(rim.answered(each)) << "allocation " << nth << ", " << each;
    if (!failed) break;
    ++points;
  }
  EXPECT_GT(points, 5u);
}

}  // namespace
}  // namespace swale::meta::meta_server_allocations_test
