// One server, and requests that no client of ours makes: garbage, cut and damaged messages, lengths of zero,
// ends beyond 2^63, lattices upon lattices. Each gets one reply; what is refused changes nothing; what is not
// is right.
#include "meta/server/server_core.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::meta::server_core_test {
namespace {

constexpr FileId kFile{3, 4};

class OneServer {
 public:
  explicit OneServer(ShardOptions options = {}) : partition_(1, 64 << 20) {
    EXPECT_TRUE(memory_.make_directory("/s").ok());
    auto attributes = std::make_unique<AttributeTable>();
    options.directory = "/s";
    options.table = attributes.get();
    auto shard = Shard::open(disk_, options);
    core_ = std::make_unique<ServerCore>(partition_, 0, RingMode::kRing, std::move(attributes),
                                         *std::move(shard));
  }

  // The one reply to a request. A server has to answer when its storage has nothing more to do.
  Result<std::string> ask(Method method, Bytes message) {
    core_->on_request(method, message, ++token_);
    for (;;) {
      std::vector<Call> calls;
      core_->take_calls(&calls);
      for (const Call& call : calls) {  // to itself, with tags for tokens that no client has
        core_->on_request(call.method, call.payload, kOwn + call.tag);
      }
      std::vector<Reply> replies;
      core_->take_replies(&replies);
      for (Reply& each : replies) {
        if (each.token >= kOwn) {
          core_->on_completion(each.token - kOwn, std::move(each.response));
        } else {
          EXPECT_TRUE(replies_.emplace(each.token, std::move(each.response)).second) << "two replies";
        }
      }
      std::unique_ptr<Work> work = core_->next_work();
      if (work != nullptr) {
        work->run();
        core_->finish(std::move(work));
      } else if (calls.empty() && replies.empty() && !core_->has_output()) {
        break;
      }
    }
    EXPECT_TRUE(core_->consistent());
    const auto reply = replies_.find(token_);
    if (reply == replies_.end()) return error(Code::kInternal, Scope::kOperation, "no reply");
    return reply->second;
  }

  Status put(std::vector<Extent> extents, std::vector<meta::Run> runs = {}) {
    DetectedBatch batch;
    batch.run_at.assign(runs.size(), extents.size());
    batch.extents = std::move(extents);
    batch.runs = std::move(runs);
    return ask(Method::kPut, encode_put(0, kFile, {1, ++number_}, batch)).status();
  }

  std::vector<Extent> content() {
    std::vector<Extent> extents;
    uint64_t next = 0;
    EXPECT_TRUE(core_->shard().scan(kFile, 0, 100'000, nullptr, &extents, &next).ok());
    return extents;
  }
  ServerCore& core() { return *core_; }
  io::FaultDevice& disk() { return disk_; }

 private:
  static constexpr uint64_t kOwn = uint64_t{1} << 40;
  io::MemoryDevice memory_;
  io::FaultDevice disk_{memory_};
  const Partition partition_;
  std::unique_ptr<ServerCore> core_;
  uint64_t token_ = 0, number_ = 0;
  std::map<uint64_t, Result<std::string>> replies_;
};

Run lattice(uint64_t offset, uint64_t length, uint64_t count, uint64_t stride) {
  Run run;
  run.offset = offset, run.length = length, run.place = {7, offset}, run.levels = 1;
  run.level[0] = {count, stride, length};
  return run;
}

// A message of each kind, all of them right.
std::vector<std::pair<Method, std::string>> messages() {
  DetectedBatch batch;
  batch.extents = {{5000, 10, {1, 0}}, {5010, 20, {2, 77}}};
  batch.runs = {lattice(6000, 8, 20, 64)};
  batch.run_at = {1};
  AttributeRequest create;
  create.op = AttributeOp::kCreate;
  create.name = "f";
  create.from = {1, 1};
  return {{Method::kPut, encode_put(0, {9, 9}, {5, 1}, batch)},
          {Method::kGet, encode_get(0, {kFile, 100, {{kFile, 0, 500}, {kFile, 100, 5000}}})},
          {Method::kGetRuns, encode_runs_query(0, kFile, std::vector{lattice(0, 8, 50, 64)})},
          {Method::kScan, encode_scan(0, {kFile, 0, 100})},
          {Method::kTrim, encode_file(0, {{9, 9}, 100, 5})},
          {Method::kForget, encode_file(0, {{9, 9}, 0, 6})},
          {Method::kRelocate, encode_relocate(0, {{5, 2}, {50, 0, 100, {51, 0}}})},
          {Method::kCollect, encode_file(0, {{9, 9}, 0, 0})},
          {Method::kAttributes, encode_attributes(0, create)},
          {Method::kStats, std::string(4, '\0')}};
}

TEST(ServerCore, CutAndDamagedMessagesAreRefusedOrHarmless) {
  OneServer server;
  ASSERT_TRUE(server.put({{0, 100, {1, 0}}, {200, 50, {2, 0}}}, {lattice(1000, 10, 40, 64)}).ok());
  const std::vector<Extent> before = server.content();
  uint64_t refused = 0, asked = 0;
  Rng rng(6);
  for (const auto& [method, message] : messages()) {
    const auto send = [&](const std::string& bytes) {
      const Result<std::string> reply = server.ask(method, bytes);
      ++asked;
      ASSERT_NE(reply.status().code(), Code::kInternal) << reply.status().to_string();
      refused += reply.ok() ? 0 : 1;
    };
    for (size_t length = 0; length < message.size(); ++length) send(message.substr(0, length));
    for (int i = 0; i < 300; ++i) {
      std::string damaged = message;
      for (uint64_t n = 1 + rng.below(3); n > 0; --n) {
        // Files of the message alone: bytes of another file would be a right message.
        const size_t at = 20 + rng.below(damaged.size() > 20 ? damaged.size() - 20 : 1);
        if (at < damaged.size()) damaged[at] = static_cast<char>(rng.next());
      }
      send(damaged);
    }
    for (int i = 0; i < 100; ++i) {
      std::string garbage(rng.below(200), '\0');
      for (char& byte : garbage) byte = static_cast<char>(rng.next());
      send(garbage);
    }
    ASSERT_TRUE(server.core().shard().health().ok());
  }
  std::printf("%llu damaged requests, %llu refused\n", static_cast<unsigned long long>(asked),
              static_cast<unsigned long long>(refused));
  EXPECT_GT(refused, asked / 3);
  EXPECT_EQ(server.content(), before);
  // Canary: a right one does change it.
  ASSERT_TRUE(server.put({{0, 10, {3, 3}}}).ok());
  EXPECT_NE(server.content(), before);
}

TEST(ServerCore, LengthsOfZeroAndEndsBeyondTheLastByteAreRefused) {
  OneServer server;
  for (const Extent& bad :
       {Extent{5, 0, {1, 0}}, Extent{kOffsetEnd, 1, {1, 0}}, Extent{kOffsetEnd - 1, 2, {1, 0}},
        Extent{UINT64_MAX, UINT64_MAX, {1, 0}}, Extent{0, 1, {kHoleLog, 0}}}) {
    EXPECT_EQ(server.put({bad}).code(), Code::kInvalidArgument);
  }
  meta::Run run = lattice(kOffsetEnd - 100, 10, 5, 64);
  EXPECT_EQ(server.put({}, {run}).code(), Code::kInvalidArgument);
  run = lattice(0, 10, UINT64_MAX, UINT64_MAX / 2);
  EXPECT_EQ(server.put({}, {run}).code(), Code::kInvalidArgument);
  run = lattice(0, 100, 5, 64);  // overlaps itself
  EXPECT_EQ(server.put({}, {run}).code(), Code::kInvalidArgument);
  for (const Range& bad : {Range{kFile, 0, 0}, Range{kFile, kOffsetEnd, 1}, Range{kFile, 1, UINT64_MAX}}) {
    EXPECT_EQ(server.ask(Method::kGet, encode_get(0, {kFile, 10, {bad}})).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(server.ask(Method::kTrim, encode_file(0, {kFile, UINT64_MAX, 9})).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(server.ask(Method::kRelocate, encode_relocate(0, {{5, 9}, {1, 100, 50, {2, 0}}})).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(server.content().empty());
  // The last bytes that a file can have.
  ASSERT_TRUE(server.put({{kOffsetEnd - 10, 10, {1, 5}}}, {lattice(kOffsetEnd - 2048, 10, 20, 64)}).ok());
  EXPECT_EQ(server.content().size(), 21u);
  EXPECT_EQ(server.content().back(), (Extent{kOffsetEnd - 10, 10, {1, 5}}));
  EXPECT_EQ(server.core().shard().size(kFile).size, kOffsetEnd);
}

// It joins no group, so none becomes durable for its sake.
TEST(ServerCore, APutOfNothingIsAnswered) {
  OneServer server;
  for (const RequestName& from : {RequestName{}, RequestName{7, 1}})
    EXPECT_TRUE(server.ask(Method::kPut, encode_put(0, kFile, from, {})).ok());
  ASSERT_TRUE(server.put({{0, 100, {1, 0}}}).ok());
  EXPECT_TRUE(server.ask(Method::kPut, encode_put(0, kFile, {}, {})).ok());
  EXPECT_EQ(server.content().size(), 1u);
}

AttributeRequest attribute(AttributeOp op, const std::string& name, uint64_t number) {
  AttributeRequest request;
  request.op = op;
  request.name = name;
  request.from = {1, number};
  return request;
}

// A checkpoint fails for good while changes of attributes wait for a commit, which then never comes, and the
// open group is full: nothing waits for ever, and what was refused is not shown.
TEST(ServerCore, AFailedCheckpointLeavesNobodyWaiting) {
  ShardOptions options;
  options.table_bytes_min = 1000;
  options.group_bytes_max = 60;  // one change
  OneServer server(options);
  uint64_t number = 0;
  std::unique_ptr<Work> checkpoint;
  ServerCore& core = server.core();
  while (checkpoint == nullptr) {
    ++number;
    core.on_request(Method::kAttributes,
                    encode_attributes(0, attribute(AttributeOp::kCreate, fmt::format("f{}", number), number)),
                    number);
    while (std::unique_ptr<Work> work = core.next_work()) {
      if (work->kind() == WorkKind::kCheckpoint) {
        checkpoint = std::move(work);
        break;
      }
      work->run();
      core.finish(std::move(work));
    }
    ASSERT_LT(number, 100u);
  }
  const uint64_t waits = number + 1, held = number + 2;
  for (const uint64_t each : {waits, held})
    core.on_request(Method::kAttributes,
                    encode_attributes(0, attribute(AttributeOp::kCreate, fmt::format("f{}", each), each)),
                    each);
  server.disk().inject({.kind = io::CallKind::kWrite});
  checkpoint->run();
  core.finish(std::move(checkpoint));
  while (std::unique_ptr<Work> work = core.next_work()) {
    work->run();
    core.finish(std::move(work));
  }
  std::vector<Reply> replies;
  core.take_replies(&replies);
  std::map<uint64_t, Status> answers;
  for (const Reply& each : replies) EXPECT_TRUE(answers.emplace(each.token, each.response.status()).second);
  EXPECT_TRUE(answers.contains(waits) && !answers[waits].ok());
  EXPECT_TRUE(answers.contains(held) && !answers[held].ok());
  EXPECT_NE(core.attributes().find("f1"), nullptr);
  EXPECT_EQ(core.attributes().find(fmt::format("f{}", waits)), nullptr);
  // Questions are answered, changes refused.
  const auto ask = [&](AttributeOp op, const std::string& name) {
    core.on_request(Method::kAttributes, encode_attributes(0, attribute(op, name, 999)), 999);
    replies.clear();
    core.take_replies(&replies);
    return replies.empty() ? error(Code::kInternal, Scope::kOperation, "no reply")
                           : replies[0].response.status();
  };
  EXPECT_TRUE(ask(AttributeOp::kStat, "f1").ok());
  EXPECT_EQ(ask(AttributeOp::kCreate, "another").code(), Code::kIoError);
}

TEST(ServerCore, LatticesUponLatticesStayWithinMemory) {
  OneServer server;
  std::vector<meta::Run> runs;  // they overlap in layer upon layer: 12 M blocks, as entries 480 MB
  for (uint64_t i = 0; i < 120; ++i) runs.push_back(lattice(i * 3, 2, 100'000, 1000 + i));
  ASSERT_TRUE(server.put({}, runs).ok());
  const ShardState state = server.core().shard().state();
  EXPECT_LT((state.buffered_entries + state.compressed_entries + state.filed_entries) * 40, 20u << 20);
  std::vector<Extent> some;
  uint64_t next = 0;
  ASSERT_TRUE(server.core().shard().scan(kFile, 0, 1000, nullptr, &some, &next).ok());
  EXPECT_EQ(some.size(), 1000u);
}

}  // namespace
}  // namespace swale::meta::server_core_test
