// Programs of several nodes that read by the maps that their servers publish: what they see of each other's
// bytes, beside a model of the table of visibility (docs/design/node-files.md), and what a change asks of
// nodes that have maps.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "fs/job/testing/nodes_world.h"
#include "fs/log/map_reader.h"

namespace swale::fs::map_nodes_test {
namespace {

using How = MapReader::How;

constexpr size_t kNodes = 3;
constexpr int kReadWrite = O_RDWR | O_CREAT | O_DIRECT;  // the kernel keeps no pages of it

std::string pattern(uint64_t write, size_t bytes) {
  std::string out(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((write * 2654435761u + i * 31) >> 3 | 1);
  return out;
}

// A process of a node that has the file open.
struct Program {
  NodesWorld& world;
  size_t node;
  int file = -1;
  std::unique_ptr<MapReader> reads{new MapReader()};  // too large for a stack
  MapRequest map = {};
  bool met = false;
  uint64_t questions = 0, by_map = 0;

  Program(NodesWorld& in, size_t of_node) : world(in), node(of_node) {
    EXPECT_EQ(calls().open("file", kReadWrite, 0644, &file), 0);
  }
  ~Program() { reads->close(); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  FileSystemCalls& calls() { return world.calls(node); }
  void write(uint64_t offset, const std::string& bytes) { EXPECT_EQ(calls().write(file, offset, bytes), 0); }
  int commit() { return calls().flush(file); }
  std::string read(uint64_t offset, size_t bytes) {
    std::string out;
    EXPECT_EQ(calls().read(file, offset, bytes, &out), 0);
    return out;
  }
  int ask(uint64_t offset) {
    MapRequest request;
    request.offset = offset;
    std::string out;
    const int failed =
        calls().command(file, kAskMap, Bytes(reinterpret_cast<const char*>(&request), sizeof(request)), &out);
    if (failed == 0) std::memcpy(&map, out.data(), sizeof(map));
    return failed;
  }
  MapReader::Outcome look(uint64_t offset, MutableBytes out) {
    return reads->read(map.slot, map.ticket, offset, out.data(), out.size());
  }
  MapReader::Outcome look_or_ask(uint64_t offset, MutableBytes out) {
    const auto got = met ? look(offset, out) : MapReader::Outcome();
    if (got.how != How::kNoMap) return got;
    ++questions;
    if (ask(offset) != 0) return {};
    met = met || reads->open(map);
    EXPECT_TRUE(met);
    return look(offset, out);
  }
  // What the map has not the mount has.
  std::string read_both_ways(uint64_t offset, size_t bytes, size_t* in_map = nullptr) {
    std::string out(bytes, '\0');
    const auto got = look_or_ask(offset, out);
    by_map += got.how == How::kAll || got.how == How::kPart;
    if (in_map != nullptr) *in_map = got.bytes;
    out.resize(got.bytes);
    return got.how == How::kAll ? out : out + read(offset + got.bytes, bytes - got.bytes);
  }
};

class MapNodes : public testing::Test {
 protected:
  void start() {
    world_.start();
    make_programs();
  }
  void make_programs() {
    for (size_t node = 0; node < kNodes; ++node) programs_[node] = std::make_unique<Program>(world_, node);
  }
  void TearDown() override {
    for (auto& each : programs_) each.reset();
  }
  void restart() {
    for (auto& each : programs_) each.reset();
    world_.restart();
    make_programs();
  }
  Program& on(size_t node) { return *programs_[node]; }
  uint64_t random_calls(uint64_t calls);

  NodesWorld world_{kNodes};
  std::array<std::unique_ptr<Program>, kNodes> programs_;
};

// What is committed, and over it what a node has not committed yet.
struct Model {
  struct Write {
    uint64_t offset;
    std::string bytes;
  };
  std::string committed;
  std::array<std::vector<Write>, kNodes> fresh;

  static void put(const Write& write, std::string* out) {
    if (out->size() < write.offset + write.bytes.size()) out->resize(write.offset + write.bytes.size(), '\0');
    out->replace(write.offset, write.bytes.size(), write.bytes);
  }
  std::string seen_on(size_t node) const {
    std::string all = committed;
    for (const Write& each : fresh[node]) put(each, &all);
    return all;
  }
  void commit(size_t node) {
    committed = seen_on(node);
    fresh[node].clear();
  }
  // What a node may read there. Bytes that others have not committed are the mount's, old or new.
  bool allows(size_t node, uint64_t offset, size_t bytes, const std::string& got, size_t by_map) const {
    const std::string own = seen_on(node);
    const std::string now = offset < own.size() ? own.substr(offset, bytes) : std::string();
    if (got == now) return true;
    if (got.size() != now.size() || got.substr(0, by_map) != now.substr(0, by_map)) return false;
    std::array<std::string, kNodes> seen;
    for (size_t each = 0; each < kNodes; ++each) seen[each] = seen_on(each);
    for (size_t i = by_map; i < got.size(); ++i) {
      const auto shows = [&](const std::string& all) {
        return offset + i < all.size() && all[offset + i] == got[i];
      };
      if (got[i] != now[i] && std::none_of(seen.begin(), seen.end(), shows)) return false;
    }
    return true;
  }
};

// Returns the wrong reads.
uint64_t MapNodes::random_calls(uint64_t calls) {
  constexpr uint64_t kFileBytes = 1 << 17;
  Model model;
  Rng rng(7);
  uint64_t wrong = 0, reads = 0, drains = 0, truncates = 0;
  const auto commit = [&](size_t node) {
    EXPECT_EQ(on(node).commit(), 0);
    model.commit(node);
  };
  for (uint64_t call = 0; call < calls; ++call) {
    const size_t node = rng.below(kNodes);
    const std::string bytes = pattern(call, 1 + rng.below(10'000));
    const uint64_t offset = rng.below(kFileBytes), dice = rng.below(60);
    if (dice < 6) {
      on(node).write(offset, bytes);
      model.fresh[node].push_back({offset, bytes});
    } else if (dice < 9) {
      commit(node);
    } else if (dice == 9 && rng.below(4) == 0) {
      EXPECT_EQ(on(node).calls().resize(on(node).file, offset), 0);
      model.commit(node);
      model.committed.resize(offset, '\0');
      ++truncates;
    } else if (dice == 10 && rng.below(8) == 0) {
      for (size_t each = 0; each < kNodes; ++each) commit(each);
      EXPECT_TRUE(world_.fs(node).drain_everywhere().ok());
      ++drains;
    } else {
      size_t by_map = 0;
      const std::string got = on(node).read_both_ways(offset, bytes.size(), &by_map);
      wrong += model.allows(node, offset, bytes.size(), got, by_map) ? 0 : 1;
      ++reads;
    }
  }
  uint64_t by_map = 0, questions = 0;
  for (const auto& each : programs_) by_map += each->by_map, questions += each->questions;
  std::printf("%lu of %lu reads by maps, after %lu questions; %lu truncates, %lu drains\n", by_map, reads,
              questions, truncates, drains);
  EXPECT_GT(by_map, reads / 20);
  EXPECT_GT(truncates, 0u);
  return wrong;
}

TEST_F(MapNodes, RandomReadsByMapsGiveWhatTheTablePromises) {
  start();
  EXPECT_EQ(random_calls(6'000), 0u);
}

TEST_F(MapNodes, CanaryAChangeThatTakesNoMapBack) {
  world_.share_rules.takes_back = false;
  start();
  EXPECT_GT(random_calls(2'000), 0u);
}

// Numbers that ascend, each committed by another node than the one before, beside readers on all.
TEST_F(MapNodes, AReadThatBeginsAfterACommitShowsIt) {
  constexpr uint64_t kCommits = 600, kValues = 251;
  start();
  std::atomic<uint64_t> begun = 0, done = 0, checked = 0, by_map = 0;
  std::vector<std::thread> readers;
  for (size_t node = 0; node < kNodes; ++node)
    readers.emplace_back([&, node] {
      Program& program = on(node);
      std::string out(1, '\0');
      while (done.load() < kCommits) {
        const uint64_t before = done.load();
        const auto got = program.look_or_ask(0, out);
        const uint64_t since = begun.load() - before;
        if (got.how != How::kAll || got.bytes != 1 || since >= kValues) continue;
        const uint64_t behind = (static_cast<uint8_t>(out[0]) + kValues - before % kValues) % kValues;
        EXPECT_LE(behind, since) << "commit " << before << " was over, " << int{out[0]} << " was read";
        ++checked;
        if (behind > since) return;
      }
      by_map += program.questions;
    });
  for (uint64_t number = 1; number <= kCommits && !HasFailure(); ++number) {
    Program writer(world_, number % kNodes);
    begun.store(number);
    writer.write(0, std::string(1, static_cast<char>(number % kValues)));
    EXPECT_EQ(writer.commit(), 0);
    done.store(number);
    EXPECT_EQ(writer.calls().close(writer.file), 0);
  }
  done.store(kCommits);
  for (std::thread& reader : readers) reader.join();
  std::printf("%lu reads by maps beside %lu commits\n", checked.load(), kCommits);
  EXPECT_GT(checked.load(), 100u);
}

TEST_F(MapNodes, BytesOfOtherNodesAndHolesAreTheMounts) {
  start();
  const std::string own = pattern(1, 10'000), others = pattern(2, 10'000);
  on(0).write(0, own);
  on(1).write(10'000, others);
  on(0).write(40'000, own);
  ASSERT_EQ(on(0).commit(), 0);
  ASSERT_EQ(on(1).commit(), 0);
  std::string out(15'000, '\0');
  auto got = on(0).look_or_ask(0, out);
  EXPECT_EQ(got.how, How::kPart);
  EXPECT_EQ(out.substr(0, got.bytes), own) << "up to the other node's";
  EXPECT_EQ(on(0).look_or_ask(12'000, out).how, How::kNothing);
  EXPECT_EQ(on(0).look_or_ask(30'000, out).how, How::kNothing) << "a hole";
  got = on(0).look_or_ask(40'000, out);
  EXPECT_EQ(got.how, How::kAll) << "up to the end of the file";
  EXPECT_EQ(out.substr(0, got.bytes), own);
  EXPECT_EQ(on(0).questions, 1u);
  got = on(1).look_or_ask(10'000, MutableBytes(out).first(10'000));
  EXPECT_EQ(got.how, How::kAll);
  EXPECT_EQ(out.substr(0, 10'000), others);
  on(1).write(0, "over it");
  EXPECT_EQ(on(0).look(0, out).how, How::kPart) << "it is not committed";
  EXPECT_EQ(out[0], own[0]);
  EXPECT_EQ(on(1).look_or_ask(0, MutableBytes(out).first(7)).how, How::kAll) << "and counts on its node";
  EXPECT_EQ(out.substr(0, 7), "over it");
  ASSERT_EQ(on(1).commit(), 0);
  EXPECT_EQ(on(0).look(0, out).how, How::kNoMap);
  EXPECT_EQ(on(0).read_both_ways(0, 7), "over it");
  ASSERT_EQ(on(1).calls().resize(on(1).file, 40'005), 0);
  EXPECT_EQ(on(0).read_both_ways(40'000, 100), own.substr(0, 5));
  EXPECT_EQ(on(2).ask(0), EAGAIN) << "it has nothing of the file";
}

// What nodes say to each other, by method.
struct Calls {
  std::atomic<uint64_t> asks = 0, take_backs = 0;
  std::atomic<CallFate> of_take_backs = CallFate::kGoes;
  CallFate note(PeerMethod method) {
    if (method == PeerMethod::kAsk) ++asks;
    if (method != PeerMethod::kTakeBack) return CallFate::kGoes;
    ++take_backs;
    return of_take_backs.load();
  }
};

TEST_F(MapNodes, ACommitAsksThoseThatHaveMapsAndNobodyElse) {
  Calls calls;
  world_.fate = [&](PeerMethod method) { return calls.note(method); };
  start();
  std::string out(4'096, '\0');
  on(0).write(0, pattern(1, 4'096));
  ASSERT_EQ(on(0).commit(), 0);
  on(1).write(8'192, pattern(2, 4'096));
  ASSERT_EQ(on(1).commit(), 0);
  EXPECT_EQ(calls.take_backs.load(), 0u);
  const auto asked = [&](const std::function<void()>& body) {
    const uint64_t before = calls.asks.load();
    body();
    return calls.asks.load() - before;
  };
  const auto change = [&] {
    on(1).write(8'192, "new");
    ASSERT_EQ(on(1).commit(), 0);
  };
  const uint64_t plain = asked(change);
  const uint64_t reads = world_.fs(0).stats().reads, roots = world_.fs(0).stats().asked_roots;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(on(0).look_or_ask(0, out).how, How::kAll);
  EXPECT_EQ(world_.fs(0).stats().reads, reads);
  EXPECT_EQ(world_.fs(0).stats().asked_roots, roots + 1);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(on(0).read(0, 4'096), out);
  std::printf("100 reads of 4 KiB: by a map 0 requests, 1 question to the root; else %lu and %lu\n",
              world_.fs(0).stats().reads - reads, world_.fs(0).stats().asked_roots - roots - 1);
  EXPECT_EQ(world_.fs(0).stats().reads, reads + 100);
  EXPECT_EQ(world_.fs(0).stats().asked_roots, roots + 101);
  const uint64_t held = asked(change);
  EXPECT_EQ(calls.take_backs.load(), 1u);
  EXPECT_EQ(held, 2 * plain) << "the commit, and that the node has let go";
  EXPECT_EQ(asked(change), plain);
  EXPECT_EQ(calls.take_backs.load(), 1u) << "it has no map any more";
  ASSERT_EQ(on(0).look_or_ask(0, out).how, How::kAll);
  on(0).write(100, "own");
  ASSERT_EQ(on(0).commit(), 0);
  EXPECT_EQ(calls.take_backs.load(), 1u) << "its own changes are its own matter";
}

TEST_F(MapNodes, AChangeThatCannotTakeAMapBackIsNotMade) {
  Calls calls;
  world_.fate = [&](PeerMethod method) { return calls.note(method); };
  start();
  const std::string bytes = pattern(1, 4'096);
  std::string out(4'096, '\0');
  on(0).write(0, bytes);
  ASSERT_EQ(on(0).commit(), 0);
  const auto read = [&] {
    EXPECT_EQ(on(0).look_or_ask(0, out).how, How::kAll);
    return out;
  };
  ASSERT_EQ(read(), bytes);
  on(1).write(0, "AAA");
  calls.of_take_backs = CallFate::kIsLost;
  EXPECT_EQ(on(1).commit(), EIO);
  EXPECT_EQ(read(), bytes) << "no commit that has ended is older";
  EXPECT_EQ(on(1).commit(), EIO) << "still";
  calls.of_take_backs = CallFate::kAnswerIsLost;
  EXPECT_EQ(on(1).commit(), EIO);
  EXPECT_EQ(on(0).look(0, out).how, How::kNoMap);
  calls.of_take_backs = CallFate::kComesTwice;
  EXPECT_EQ(on(1).commit(), 0);
  EXPECT_EQ(on(0).read_both_ways(0, 5), "AAA" + bytes.substr(3, 2));
  calls.of_take_backs = CallFate::kIsLost;
  ASSERT_EQ(on(0).look_or_ask(100, MutableBytes(out).first(100)).how, How::kAll);
  EXPECT_EQ(on(1).calls().resize(on(1).file, 50), EIO);
  calls.of_take_backs = CallFate::kGoes;
  EXPECT_EQ(on(1).calls().resize(on(1).file, 50), 0);
  for (size_t node = 0; node < kNodes; ++node)
    EXPECT_EQ(on(node).read_both_ways(0, 100), "AAA" + bytes.substr(3, 47)) << node;
}

TEST_F(MapNodes, ANodeThatDiesWithAMapLetsNoOlderBytesBeRead) {
  start();
  const std::string bytes = pattern(1, 4'096);
  std::string out(4'096, '\0');
  on(2).write(0, bytes);
  ASSERT_EQ(on(2).commit(), 0);
  ASSERT_EQ(on(2).look_or_ask(0, out).how, How::kAll);
  const std::unique_ptr<MapReader> left = std::move(on(2).reads);
  const MapRequest map = on(2).map;
  const auto read_on = [&] { return left->read(map.slot, map.ticket, 0, out.data(), out.size()).how; };
  on(2).reads.reset(new MapReader());
  on(1).write(0, "AAA");
  world_.kill(2);
  EXPECT_EQ(on(1).commit(), EIO) << "the program may read on";
  for (auto& each : programs_) each.reset();
  world_.restart();
  EXPECT_EQ(read_on(), How::kNoMap) << "the next servers may commit";
  make_programs();
  EXPECT_EQ(on(1).commit(), 0);
  for (size_t node = 0; node < kNodes; ++node) {
    const std::string now = on(node).read_both_ways(0, 5);
    EXPECT_TRUE(now == "AAA" + bytes.substr(3, 2)) << now;
  }
  left->close();
}

TEST_F(MapNodes, AnOpenThatMayMapTakesAMapThatIsBeingMadeAway) {
  int mapped = -1;
  std::atomic<bool> opens = false;
  world_.fate = [&](PeerMethod method) {
    if (method == PeerMethod::kAsk && opens.exchange(false)) {
      EXPECT_EQ(world_.calls(1).open("file", O_RDWR, 0, &mapped), 0);
    }
    return CallFate::kGoes;
  };
  start();
  for (size_t node = 0; node < kNodes; ++node) {
    on(node).write(node * 100, pattern(node, 100));
    ASSERT_EQ(on(node).commit(), 0);
  }
  ASSERT_EQ(on(1).ask(100), 0);
  opens = true;
  const int failed = on(1).ask(100);
  const bool asked_another_node = mapped >= 0;
  EXPECT_EQ(failed, asked_another_node ? EAGAIN : 0);
  if (!asked_another_node) GTEST_SKIP() << "the node is the root of the file";
  opens = false;
  EXPECT_EQ(on(1).ask(100), EBUSY);
  EXPECT_EQ(world_.calls(1).close(mapped), 0);
  EXPECT_EQ(on(1).ask(100), 0);
}

}  // namespace
}  // namespace swale::fs::map_nodes_test
