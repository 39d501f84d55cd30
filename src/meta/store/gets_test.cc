// Gets whose ranges are regular: they are asked for as runs, and answered like ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "base/rng.h"
#include "io/memory_device.h"
#include "meta/client/get_batch.h"
#include "meta/index/lattice.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::store_test {
namespace {

constexpr uint64_t kBytes = 64 * 1024;

// What each byte of the file is mapped to; {0, 0}: a hole.
using ByteMap = std::vector<Place>;

struct Shape {
  uint64_t offset = 0, length = 0;
  uint64_t count[2] = {1, 1}, stride[2] = {0, 0};  // of the program's loops, the inner one first
  bool descends = false;

  std::vector<ByteRange> ranges() const {
    std::vector<ByteRange> all;
    for (uint64_t j = 0; j < count[1]; ++j) {
      for (uint64_t i = 0; i < count[0]; ++i) all.push_back({offset + i * stride[0] + j * stride[1], length});
    }
    if (descends) std::reverse(all.begin(), all.end());
    return all;
  }
};

// Rows of pieces, columns of pieces (the inner loop strides further than the outer one), pieces without a
// gap.
Shape draw_shape(Rng* rng) {
  Shape shape;
  shape.length = 1 + rng->below(24);
  shape.count[0] = 1 + rng->below(40);
  shape.stride[0] = shape.length + (rng->below(3) == 0 ? 0 : rng->below(60));
  if (rng->below(2) == 0) {
    shape.count[1] = 1 + rng->below(12);
    shape.stride[1] = shape.count[0] * shape.stride[0] + rng->below(2) * rng->below(300);
    if (rng->below(2) == 0) {
      std::swap(shape.count[0], shape.count[1]);
      std::swap(shape.stride[0], shape.stride[1]);
    }
  }
  shape.descends = rng->below(6) == 0;
  uint64_t span = shape.length;
  for (const int l : {0, 1}) span += (shape.count[l] - 1) * shape.stride[l];
  if (span >= kBytes) return draw_shape(rng);
  shape.offset = rng->below(kBytes - span);
  return shape;
}

std::vector<Extent> draw_put(Rng* rng, uint64_t* address, ByteMap* bytes) {
  std::vector<Extent> segments;
  const auto log = static_cast<LogId>(1 + rng->below(3));
  const uint64_t step = rng->below(3) * 7;
  for (const ByteRange& range : draw_shape(rng).ranges()) {
    segments.push_back({range.offset, range.length, {log, *address}});
    for (uint64_t i = 0; i < range.length; ++i) (*bytes)[range.offset + i] = {log, *address + i};
    *address += range.length + step;
  }
  return segments;
}

std::vector<ByteRange> draw_get(Rng* rng) {
  std::vector<ByteRange> ranges;
  for (uint64_t shapes = 1 + rng->below(3); shapes > 0; --shapes) {
    const std::vector<ByteRange> some = draw_shape(rng).ranges();
    ranges.insert(ranges.end(), some.begin(), some.end());
    for (uint64_t single = rng->below(4); single > 0; --single) {
      const uint64_t offset = rng->below(kBytes - 200);
      ranges.push_back({offset, 1 + rng->below(200)});
    }
  }
  return ranges;
}

void expect_answers(const std::vector<ByteRange>& ranges, const Found& found, const ByteMap& bytes) {
  ASSERT_EQ(found.ends.size(), ranges.size());
  ASSERT_EQ(found.answered, ranges.size());
  size_t at = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    uint64_t next = ranges[r].offset;
    const uint64_t end = next + ranges[r].length;
    for (; at < found.ends[r]; ++at) {
      const Extent& piece = found.extents[at];
      ASSERT_LE(next, piece.offset);
      ASSERT_GT(piece.length, 0u);
      ASSERT_LE(piece.offset + piece.length, end);
      for (; next < piece.offset; ++next) ASSERT_EQ(bytes[next], Place()) << "byte " << next;
      for (; next < piece.offset + piece.length; ++next) {
        const Place place{piece.place.log, piece.place.address + (next - piece.offset)};
        ASSERT_EQ(bytes[next], place) << "byte " << next;
      }
    }
    for (; next < end; ++next) ASSERT_EQ(bytes[next], Place()) << "byte " << next;
  }
}

TEST(Gets, AnswerRegularRangesLikeAnyOthers) {
  for (const int32_t ranks : {1, 3}) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(fmt::format("{} ranks, seed {}", ranks, seed));
      io::MemoryDevice device;
      std::atomic<uint64_t> queries = 0;
      run_ranks(ranks, device, small_ranges(), [&](RankOf& rank) {
        if (rank.job.rank() == 0) {
          Rng rng(seed);
          ByteMap bytes(kBytes);
          uint64_t address = 100;
          Found found;  // a result is written over the one before it
          auto file = rank.client->open("f", Client::kCreate, 0, 0);
          ASSERT_TRUE(file.ok());
          for (int round = 0; round < 12; ++round) {
            ASSERT_TRUE(rank.client->put(&*file, draw_put(&rng, &address, &bytes)).ok());
            for (int i = 0; i < 8; ++i) {
              const std::vector<ByteRange> ranges = draw_get(&rng);
              const Status status = rank.client->get(*file, ranges, &found);
              ASSERT_TRUE(status.ok()) << status.to_string();
              ASSERT_NO_FATAL_FAILURE(expect_answers(ranges, found, bytes));
            }
          }
        }
        barrier(rank);
        rank.store.with_servers([&](ServerCore& core) { queries += core.counters().run_queries; });
      });
      EXPECT_GT(queries, 50u);
    }
  }
}

// A rank's part of a strided file costs the only server one question, whatever ranges it has.
TEST(Gets, AskForAPatternOnce) {
  io::MemoryDevice device;
  run_ranks(1, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    std::vector<Extent> segments;
    std::vector<ByteRange> ranges;
    for (uint64_t i = 0; i < 4096; ++i) {
      segments.push_back({i * 64, 8, {1, i * 8}});
      ranges.push_back({i * 64, 8});
    }
    ASSERT_TRUE(rank.client->put(&*file, segments).ok());
    Found found;
    ASSERT_TRUE(rank.client->get(*file, ranges, &found).ok());
    EXPECT_THAT(found.extents, testing::ElementsAreArray(segments));
    rank.store.with_servers([](ServerCore& core) {
      EXPECT_EQ(core.counters().run_queries, 1u);
      EXPECT_EQ(core.counters().ranges, 0u);
    });
  });
}

// Regular questions about a file in small pieces: the answer is longer than runs may say, and comes as
// pieces.
TEST(Gets, OfMorePiecesThanRunsMaySayAreAnswered) {
  io::MemoryDevice device;
  StoreOptions options = small_ranges();
  options.range_bytes = 64 * kMiB;
  run_ranks(1, device, options, [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    constexpr uint64_t kPieces = 40'000;
    Rng rng(1);
    std::vector<Extent> segments;
    for (uint64_t i = 0; i < kPieces; ++i) segments.push_back({i * 4, 2, {1, rng.below(uint64_t{1} << 40)}});
    ASSERT_TRUE(rank.client->put(&*file, segments).ok());
    std::vector<ByteRange> ranges;
    for (uint64_t i = 0; i < 100; ++i) ranges.push_back({i * 1600, 1598});
    Found found;
    const Status status = rank.client->get(*file, ranges, &found);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(found.extents, segments);
  });
}

// When no put comes any more, what was put is brought into sorted files, without a call.
TEST(Gets, FindOnePlaceWhenTheServersHaveComeToRest) {
  io::MemoryDevice device;
  run_ranks(1, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    Rng rng(5);
    std::vector<Extent> segments;
    for (uint64_t i = 0; i < 5000; ++i) segments.push_back({i * 4, 3, {1, rng.below(uint64_t{1} << 40)}});
    for (size_t i = 0; i < segments.size(); i += 500)
      ASSERT_TRUE(rank.client->put(&*file, std::span(segments).subspan(i, 500)).ok());
    ShardState state;
    for (int look = 0; look < 12'000; ++look) {
      rank.store.with_servers([&](ServerCore& core) { state = core.shard().state(); });
      if (state.filed_entries == segments.size() && state.layers == 1 && state.buffer_memory_bytes < 4096)
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(state.filed_entries, segments.size());
    EXPECT_EQ(state.buffered_entries + state.compressed_entries, 0u);
    EXPECT_EQ(state.layers, 1u);
    EXPECT_LT(state.buffer_memory_bytes, 4096u);
    std::vector<ByteRange> all = {{0, segments.back().offset + 3}};
    Found found;
    ASSERT_TRUE(rank.client->get(*file, all, &found).ok());
    EXPECT_EQ(found.extents, segments);
    ASSERT_TRUE(rank.client->put(&*file, std::span(segments).first(1)).ok());  // and puts go on
  });
}

// A shard that has come to rest has nothing to bring, until the next put.
TEST(Settle, BringsWhatThereIsOnce) {
  io::MemoryDevice disk;
  ASSERT_TRUE(disk.make_directory("/s").ok());
  ShardOptions options;
  options.directory = "/s";
  auto shard = *Shard::open(disk, options);
  EXPECT_FALSE(shard->settle());
  for (int round = 0; round < 3; ++round) {
    Rng rng(static_cast<uint64_t>(round));
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < 100; ++i) extents.push_back({rng.below(100'000), 5, {1, rng.below(1'000'000)}});
    const Put put{{1, 2}, extents, {}, {}};
    ASSERT_TRUE(shard->put({}, std::span(&put, 1)).ok());
    ASSERT_TRUE(shard->commit().ok());
    EXPECT_EQ(shard->next_background(), nullptr);
    EXPECT_TRUE(shard->settle());
    while (std::unique_ptr<Work> work = shard->next_background()) {
      work->run();
      ASSERT_TRUE(shard->finish(std::move(work)).ok());
    }
    EXPECT_FALSE(shard->settle());
    EXPECT_EQ(shard->state().buffered_entries + shard->state().compressed_entries, 0u);
    EXPECT_GT(shard->state().filed_entries, 0u);
  }
}

// A row in a store of many files: its checkpoint would write all of them anew.
TEST(Settle, LeavesALittleWhereItIs) {
  io::MemoryDevice disk;
  ASSERT_TRUE(disk.make_directory("/s").ok());
  ShardOptions options;
  options.directory = "/s";
  auto shard = *Shard::open(disk, options);
  const Extent extent{5, 5, {1, 77}};
  for (uint64_t file = 1; file <= 1000; ++file) {
    const Put put{{1, file}, std::span(&extent, 1), {}, {}};
    ASSERT_TRUE(shard->put({}, std::span(&put, 1)).ok());
  }
  ASSERT_TRUE(shard->drain().ok());
  const Put again{{1, 5}, std::span(&extent, 1), {}, {}};
  ASSERT_TRUE(shard->put({}, std::span(&again, 1)).ok());
  ASSERT_TRUE(shard->commit().ok());
  EXPECT_FALSE(shard->settle());
  EXPECT_EQ(shard->next_background(), nullptr);
}

// What a question may cost a server has a bound, however few words it has.
TEST(Gets, OfRunsWithoutEndAreRefused) {
  io::MemoryDevice device;
  run_ranks(1, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    const std::vector<Extent> irregular = {{1, 1, {1, 5}}, {64 * 7, 1, {1, 99}}};
    ASSERT_TRUE(rank.client->put(&*file, irregular).ok());
    FoundRuns found;
    meta::Run long_block;
    long_block.length = kOffsetEnd;
    EXPECT_EQ(rank.client->get_runs(*file, std::span(&long_block, 1), &found).code(), Code::kInvalidArgument);
    const std::vector<meta::Run> many(40, run_of(Extent{0, uint64_t{200} << 20, {}}));  // 51,200 ranges each
    EXPECT_EQ(rank.client->get_runs(*file, many, &found).code(), Code::kInvalidArgument);
  });
  StoreOptions options = small_ranges();
  options.range_bytes = uint64_t{1} << 40;
  io::MemoryDevice other;
  run_ranks(1, other, options, [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    const std::vector<Extent> irregular = {{1, 1, {1, 5}}, {64 * 7, 1, {1, 99}}};
    ASSERT_TRUE(rank.client->put(&*file, irregular).ok());
    meta::Run holes;
    holes.length = 1, holes.levels = 1;
    holes.level[0] = {1 << 18, 64, 0};
    FoundRuns found;
    EXPECT_TRUE(rank.client->get_runs(*file, std::span(&holes, 1), &found).ok());
    const std::vector<meta::Run> queries(8, holes);
    EXPECT_EQ(rank.client->get_runs(*file, queries, &found).code(), Code::kResourceExhausted);
  });
}

class JoinedGets : public ::testing::Test {
 protected:
  JoinedGets() {
    EXPECT_TRUE(disk_.make_directory("/s").ok());
    ShardOptions options;
    options.directory = "/s";
    auto shard = *Shard::open(disk_, options);
    std::vector<Extent> extents;
    for (uint64_t i = 0; i < 1000; ++i) extents.push_back({i * 10, 6, {1, (i * 7919) % 1000 * 100}});
    const Put put{kFile, extents, {}, {}};
    EXPECT_TRUE(shard->put({}, std::span(&put, 1)).ok());
    EXPECT_TRUE(shard->commit().ok());
    core_ = std::make_unique<ServerCore>(partition_, 0, RingMode::kPlain, std::make_unique<AttributeTable>(),
                                         std::move(shard));
  }
  // The replies, by token: those of the gets one after the other, or of all together.
  std::map<uint64_t, std::string> ask(const std::vector<std::string>& messages, bool together) {
    std::vector<ServerCore::WaitingGet> gets;
    for (uint64_t i = 0; i < messages.size(); ++i) gets.push_back({messages[i], i + 1});
    if (together) {
      core_->on_gets(gets);
    } else {
      for (const auto& each : gets) core_->on_request(Method::kGet, each.payload, each.token);
    }
    std::vector<Reply> replies;
    core_->take_replies(&replies);
    std::map<uint64_t, std::string> by_token;
    for (const Reply& each : replies)
      EXPECT_TRUE(by_token.emplace(each.token, each.response.ok() ? *each.response : "error").second);
    return by_token;
  }
  std::string message(Rng* rng, size_t pieces_max = kPiecesMax) {
    GetMessage get{kFile, pieces_max, {}};
    for (int i = 0; i < 50; ++i) get.ranges.push_back({kFile, rng->below(11'000), 1 + rng->below(40)});
    return encode_get(0, get);
  }

  static constexpr FileId kFile{1, 2};
  io::MemoryDevice disk_;
  const Partition partition_{1, 64 * kMiB};
  std::unique_ptr<ServerCore> core_;
};

TEST_F(JoinedGets, AreAnsweredAsOneAfterTheOther) {
  Rng rng(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> messages;
    for (uint64_t i = 0; i < 1 + rng.below(6); ++i) messages.push_back(message(&rng));
    if (round % 2 == 1) messages.insert(messages.begin(), encode_get(0, {kFile, kPiecesMax, {}}));
    if (round % 3 == 1) messages.push_back(encode_get(0, {kFile, kPiecesMax, {}}));
    const uint64_t before = core_->counters().joined_gets;
    const auto together = ask(messages, true);
    EXPECT_EQ(core_->counters().joined_gets - before, messages.size() > 1 ? messages.size() : 0);
    EXPECT_EQ(together.size(), messages.size());
    EXPECT_EQ(together, ask(messages, false));
  }
}

TEST_F(JoinedGets, OfWhichOneIsWrongFailThatOneAlone) {
  Rng rng(2);
  const std::vector<std::string> messages = {message(&rng), message(&rng).substr(0, 100), message(&rng, 3)};
  const auto together = ask(messages, true);
  EXPECT_EQ(together, ask(messages, false));
  EXPECT_EQ(together.at(2), "error");
  EXPECT_NE(together.at(1), "error");
  EXPECT_EQ(core_->counters().joined_gets, 0u);
}

std::vector<ByteRange> twenty_ranges() {
  std::vector<ByteRange> ranges;
  for (uint64_t i = 0; i < 20; ++i) ranges.push_back({i * 10, 4});
  return ranges;
}

Status answer_with(const std::vector<Run>& runs, Found* found) {
  const std::vector<ByteRange> ranges = twenty_ranges();
  GetBatch batch(ranges);
  EXPECT_EQ(batch.queries().size(), 1u);
  EXPECT_TRUE(batch.rest().empty());
  return batch.answer({runs, {runs.size()}}, {}, found);
}

Run run_at(uint64_t offset, uint64_t length, uint64_t count, uint64_t stride) {
  Run run{offset, length, {1, offset}, 1, {}};
  run.level[0] = {count, stride, stride};
  return run;
}

TEST(GetBatchAnswers, OfOneRunOrManyInAnyOrderAreTheSame) {
  Found whole, parts;
  ASSERT_TRUE(answer_with({run_at(0, 4, 20, 10)}, &whole).ok());
  EXPECT_EQ(whole.extents.size(), 20u);
  ASSERT_TRUE(answer_with({run_at(10, 4, 10, 20), run_at(0, 4, 10, 20)}, &parts).ok());
  EXPECT_EQ(parts.extents, whole.extents);
  EXPECT_EQ(parts.ends, whole.ends);
}

TEST(GetBatchAnswers, ThatNobodyAskedForAreRefused) {
  Found found;
  const std::vector<std::vector<meta::Run>> wrong = {
      {run_at(0, 4, 21, 10)},                        // ends too late
      {run_at(0, 5, 19, 10)},                        // too many bytes
      {run_at(0, 4, 5, 10), run_at(10, 4, 5, 10)}};  // bytes twice
  for (const auto& runs : wrong) EXPECT_EQ(answer_with(runs, &found).code(), Code::kCorruption);
  const std::vector<ByteRange> ranges = twenty_ranges();
  EXPECT_EQ(GetBatch(ranges).answer({}, {}, &found).code(), Code::kCorruption);  // none
}

}  // namespace
}  // namespace swale::meta::store_test
