// PieceChecks: a block's checksum is that of the bytes that were written, whatever became of them in memory.
#include "fs/log/piece_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/crc32c.h"
#include "base/rng.h"
#include "fs/log/testing/log_rig.h"

namespace swale::fs::piece_checks_test {
namespace {

constexpr uint32_t kChunk = 5 * kBlockBytes + 4096, kSlots = 3;

std::string random_bytes(Rng* rng, size_t bytes) {
  std::string out(bytes, '\0');
  for (char& byte : out) byte = static_cast<char>(rng->next());
  return out;
}
Bytes block_of(const std::string& payload, uint64_t index) {
  return Bytes(payload).substr(index * kBlockBytes, kBlockBytes);
}

TEST(PieceChecks, ABlockHasTheChecksumOfItsPiecesAndOfWhatLiesBetween) {
  Rng rng(7);
  uint64_t unseen = 0, seen = 0;
  for (int round = 0; round < 40; ++round) {
    PieceChecks checks(kSlots, kChunk);
    const uint32_t slot = static_cast<uint32_t>(round) % kSlots;
    std::string payload = random_bytes(&rng, kChunk - rng.below(kBlockBytes));
    std::vector<std::pair<uint32_t, uint32_t>> pieces;
    const uint64_t longest = round % 2 == 0 ? 150'000 : 40'000;
    for (uint64_t at = rng.below(200); at < payload.size();) {
      const uint64_t bytes = std::min(1 + rng.below(longest), payload.size() - at);
      pieces.emplace_back(at, bytes);
      at += bytes + rng.below(3) * rng.below(200);
    }
    const std::vector<std::pair<uint32_t, uint32_t>> in_order = pieces;
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[rng.below(i)]);
    for (const auto& [at, bytes] : pieces) {
      const std::string from = random_bytes(&rng, bytes);
      checks.copy(slot, at, payload.data() + at, from.data(), bytes);
      ASSERT_EQ(payload.compare(at, bytes, from), 0);
    }
    for (uint64_t i = 0; i * kBlockBytes < payload.size(); ++i) {
      const uint32_t before = crc32c(block_of(payload, i));
      ASSERT_EQ(checks.of_block(slot, i, block_of(payload, i)), before)
          << "round " << round << " block " << i;
      const uint64_t flipped = i * kBlockBytes + rng.below(block_of(payload, i).size());
      payload[flipped] = static_cast<char>(payload[flipped] ^ 4);
      (checks.of_block(slot, i, block_of(payload, i)) == before ? seen : unseen) += 1;
      payload[flipped] = static_cast<char>(payload[flipped] ^ 4);
    }
  }
  std::printf("%lu of %lu flipped bits do not change what the block is checked against\n", seen,
              seen + unseen);
  EXPECT_GT(seen, 9 * unseen) << "only what lies between large pieces is read from memory";
}

TEST(PieceChecks, MorePiecesThanABlockHasPlacesForAreReadFromMemory) {
  PieceChecks checks(kSlots, kChunk);
  Rng rng(8);
  std::string payload = random_bytes(&rng, kBlockBytes);
  for (uint32_t at = 0; at + 3000 <= kBlockBytes; at += 3000) {
    const std::string from = random_bytes(&rng, 3000);
    checks.copy(1, at, payload.data() + at, from.data(), 3000);
  }
  EXPECT_EQ(checks.of_block(1, 0, payload), crc32c(payload));
}

TEST(PieceChecks, ASlotThatBeginsAnewKnowsNothing) {
  PieceChecks checks(kSlots, kChunk);
  Rng rng(9);
  std::string payload = random_bytes(&rng, kChunk);
  const std::string from = random_bytes(&rng, kChunk);
  for (uint32_t slot = 0; slot < kSlots; ++slot) checks.copy(slot, 0, payload.data(), from.data(), kChunk);
  checks.forget(1);
  payload[100] = static_cast<char>(payload[100] ^ 1);
  EXPECT_EQ(checks.of_block(0, 0, block_of(payload, 0)), crc32c(block_of(from, 0)));
  EXPECT_EQ(checks.of_block(1, 0, block_of(payload, 0)), crc32c(block_of(payload, 0)));
  EXPECT_EQ(checks.of_block(2, 0, block_of(payload, 0)), crc32c(block_of(from, 0)));
}

class CheckedLog : public LogRig {
 protected:
  enum class By { kPieces, kMemory };
  // The log of the server itself, or as that of any process.
  uint32_t begin(LogWriter* writer, By by) {
    open();
    const uint32_t log = add();
    attach(*writer, log);
    if (by == By::kMemory) return log;
    auto checks = logs_->check_as_written(log);
    EXPECT_TRUE(checks.ok()) << checks.status().to_string();
    checks_ = *checks;
    writer->copy_by(checks_->copier());
    return log;
  }
  void flip(uint32_t log, uint64_t offset) const {
    std::fstream file(log_path(log), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 8);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  // Whether a bit that flips between a write and the checksum of its block is found.
  Status read_after_flip(By by) {
    LogWriter writer;
    const uint32_t log = begin(&writer, by);
    const std::string bytes = pattern(1, 3 * kBlockBytes);
    EXPECT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), static_cast<int64_t>(bytes.size()));
    take();
    flip(log, slot_begin(0, options_.shape.chunk_bytes) + kBlockBytes + 17);
    EXPECT_TRUE(logs_->settle().ok());
    std::string found(bytes.size(), '\0');
    return logs_->read(files_.taken.at(0).place, found);
  }

  std::shared_ptr<PieceChecks> checks_;
};

TEST_F(CheckedLog, AFlipBeforeTheBlockComesToRestIsFound) {
  const Status status = read_after_flip(By::kPieces);
  EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
  EXPECT_NE(
      status.to_string().find(fmt::format("65536 bytes at {}", slot_begin(0, kChunkBytes) + kBlockBytes)),
      std::string::npos)
      << status.to_string();
}

// The canary: a checksum that is made of what memory has then takes the flip for the write.
TEST_F(CheckedLog, WithoutChecksumsOfPiecesItWouldPass) { EXPECT_TRUE(read_after_flip(By::kMemory).ok()); }

TEST_F(CheckedLog, ManyThreadsWriteChunkAfterChunkInTheSameSlots) {
  constexpr uint64_t kThreads = 4, kWrites = 60, kBytesMax = 200'000;
  small_chunks(kChunk + 8192, 8);
  LogWriter writer;
  begin(&writer, By::kPieces);
  std::map<uint64_t, std::string> written;  // by offset
  for (uint64_t round = 0; round < 6; ++round) {
    written.clear();
    for (uint64_t i = 0; i < kThreads * kWrites; ++i)
      written[i * kBytesMax] =
          pattern(round * 1000 + i, 1 + i * 7919 * (round + 1) % (i % 3 == 0 ? 40'000 : 9000));
    std::vector<std::thread> threads;
    std::atomic<uint64_t> ended = 0;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = t; i < kThreads * kWrites; i += kThreads) {
          const std::string& bytes = written.at(i * kBytesMax);
          EXPECT_EQ(writer.write(kFile, i * kBytesMax, bytes.data(), bytes.size()),
                    static_cast<int64_t>(bytes.size()));
        }
        ended.fetch_add(1);
      });
    }
    while (ended.load() < kThreads) {
      take();
      serve();
      static_cast<void>(logs_->settle_next());
    }
    for (std::thread& thread : threads) thread.join();
    take();
    ASSERT_TRUE(logs_->settle().ok());
    uint64_t read = 0;
    for (const Segment& segment : files_.taken) {
      std::string found(segment.length, '\0');
      const Status status = logs_->read(segment.place, found);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const auto at = std::prev(written.upper_bound(segment.offset));
      ASSERT_EQ(at->second.compare(segment.offset - at->first, segment.length, found), 0);
      read += segment.length;
    }
    ASSERT_GT(read, 1u << 20);
    files_.drop_all(*logs_);
    serve();
  }
}

}  // namespace
}  // namespace swale::fs::piece_checks_test
