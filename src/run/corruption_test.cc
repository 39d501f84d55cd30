// Flips every single bit of small logs: what is read afterwards is an error or the truth, nothing else.
// Canaries: the same checks with verification switched off must find wrong data, or they could not find any.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/testing/run_test_support.h"

namespace swale::run::corruption_test {
namespace {

using test::PartitionInMemory;
using test::Records;

constexpr PartitionNumber kPartition(7);

enum class Outcome { kRight, kError, kWrong };

class BitFlips : public testing::Test {
 protected:
  void SetUp() override {
    Rng rng(60);
    Records uniform = test::random_records(rng, 90, 8, 40);
    Records variable = test::random_records(rng, 8, 8, 1000);
    variable.emplace_back("key", "");
    for (int i = 0; i < 40; ++i) variable.emplace_back("hot", "hot");
    partition_.add_run(uniform);
    partition_.add_run(variable);
    partition_.finish_epoch();
    Status status;
    records_ = test::scan(partition_.data, kPartition, &status);
    ASSERT_EQ(records_.size(), 139u);
    for (const auto& [key, value] : records_) values_[key].push_back(value);
    // A key in each block: of the first record that starts there, or of the one that goes through it.
    RunCursor cursor(kPartition, BlockNumber(0), "data");
    std::string previous;
    BlockNumber next_block;
    ASSERT_TRUE(cursor
                    .feed(partition_.data,
                          [&](const ScannedRecord& record) {
                            if (record.block > next_block) probes_.push_back(previous);
                            previous = record.key;
                            if (record.block >= next_block) probes_.push_back(previous);
                            next_block = std::max(next_block, record.block + 1);
                            return true;
                          })
                    .ok());
    probes_.push_back(previous);
  }

  Outcome scan_outcome(const std::string& data) {
    Status status;
    const Records found = test::scan(data, kPartition, &status);
    if (!status.ok()) return Outcome::kError;
    return found == records_ ? Outcome::kRight : Outcome::kWrong;
  }

  Outcome find_outcome(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      const test::Found found = partition_.find(key, partition_.segments[0]);
      if (!found.status.ok()) return Outcome::kError;
      if (found.values != values_[key]) return Outcome::kWrong;
    }
    return Outcome::kRight;
  }

  PartitionInMemory partition_;
  Records records_;
  std::vector<std::string> probes_;
  std::map<std::string, std::vector<std::string>> values_;
};

// The run header decides how a run is walked before its block is verified: flip all its bits, too.
TEST_F(BitFlips, InTheDataLogAreAllNoticedByAScan) {
  std::string data = partition_.data;
  size_t points = 0;
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
    ASSERT_EQ(scan_outcome(data), Outcome::kError) << "bit " << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ 1 << bit % 8);
    ++points;
  }
  EXPECT_EQ(scan_outcome(data), Outcome::kRight);
  printf("%zu bits flipped\n", points);
}

TEST_F(BitFlips, InTheDataLogNeverGiveAWrongAnswer) {
  size_t errors = 0;
  for (size_t byte = 0; byte < partition_.data.size(); ++byte) {
    char& changed = partition_.data[byte];
    changed = static_cast<char>(changed ^ 1 << byte % 8);
    const Outcome outcome = find_outcome(probes_);
    ASSERT_NE(outcome, Outcome::kWrong) << "byte " << byte;
    errors += outcome == Outcome::kError ? 1 : 0;
    changed = static_cast<char>(changed ^ 1 << byte % 8);
  }
  EXPECT_EQ(errors, partition_.data.size());
}

TEST_F(BitFlips, CanaryBlocksThatAreNotVerifiedGiveWrongAnswers) {
  const SegmentRecord segment = partition_.segments[0];
  size_t wrong = 0;
  BlockWalk walk;
  for (size_t byte = 64; byte < kPayloadBytes; ++byte) {
    partition_.data[byte] = static_cast<char>(partition_.data[byte] ^ 1);
    walk.forget();
    for (const auto& [key, expected] : values_) {
      auto slice = partition_.open_slice(segment, *locate_slice(segment, test::rest_of(key)));
      ASSERT_TRUE(slice.ok());
      std::vector<std::string> found;
      ASSERT_TRUE(slice
                      ->candidates(test::rest_of(key),
                                   [&](const Candidate& candidate) {
                                     if (candidate.block != 0 || candidate.block_count != 1) return;
                                     const auto match = RecordMatch::in_verified(
                                         candidate, Bytes(partition_.data).substr(0, kBlockBytes), key, &walk,
                                         "data");
                                     if (match.ok() && *match) found.emplace_back((*match)->value);
                                   })
                      .ok());
      wrong += !found.empty() && found != expected ? 1 : 0;
    }
    partition_.data[byte] = static_cast<char>(partition_.data[byte] ^ 1);
    if (wrong > 100) break;
  }
  EXPECT_GT(wrong, 100u);
}

TEST_F(BitFlips, InTheSlicesNeverGiveAWrongAnswer) {
  const SegmentRecord segment = partition_.segments[0];
  const size_t end = segment_bytes(segment);
  size_t errors = 0;
  size_t harmless = 0;
  for (size_t bit = 0; bit < end * 8; ++bit) {
    char& changed = partition_.index[bit / 8];
    changed = static_cast<char>(changed ^ 1 << bit % 8);
    const Outcome outcome = find_outcome(probes_);
    ASSERT_NE(outcome, Outcome::kWrong) << "bit " << bit;
    (outcome == Outcome::kError ? errors : harmless) += 1;
    changed = static_cast<char>(changed ^ 1 << bit % 8);
  }
  const uint32_t used = get_u32(partition_.index.data() + offsetof(SliceHeader, total_bytes));
  EXPECT_EQ(errors, used * 8);  // the rest is padding, which nobody reads
  EXPECT_EQ(harmless, (end - used) * 8);
}

TEST_F(BitFlips, CanarySlicesWithAFittingChecksumGiveWrongAnswers) {
  const SegmentRecord segment = partition_.segments[0];
  const uint32_t used = get_u32(partition_.index.data() + offsetof(SliceHeader, total_bytes));
  const std::string before = partition_.index;
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  size_t wrong = 0;
  for (size_t byte = 16; byte < used; ++byte) {
    partition_.index[byte] = static_cast<char>(partition_.index[byte] ^ 1 << byte % 8);
    const Bytes covered = Bytes(partition_.index).substr(4, used - 4);
    put_u32(partition_.index.data(), crc32c_extend(segment_seed(kPartition, segment), covered));
    wrong += find_outcome(keys) == Outcome::kWrong ? 1 : 0;
    partition_.index = before;
  }
  EXPECT_GT(wrong, 100u);
}

// An overflowing slice is verified in two parts.
TEST(BitFlipsOverflow, InAnOverflowingSliceNeverGiveAWrongAnswer) {
  Rng rng(61);
  PartitionInMemory partition;
  Records records = test::random_records(rng, 6000, 8, 0);
  for (int i = 0; i < 2500; ++i) records.emplace_back("12345678", "");
  partition.add_run(records, 64);
  partition.finish_epoch();
  const SegmentRecord segment = partition.segments[0];
  ASSERT_GT(segment.overflow_units, 0u);
  const auto inside = locate_slice(segment, test::rest_of("12345678"));
  auto slice = Slice::open(segment, kPartition, *inside,
                           Bytes(partition.index).substr(inside->offset, inside->bytes), "index");
  ASSERT_TRUE(slice.ok());
  const auto beyond = slice->overflow();
  ASSERT_TRUE(beyond.has_value());
  for (const SliceLocation& part : {*inside, *beyond}) {
    for (size_t byte = 0; byte < part.bytes; ++byte) {
      char& changed = partition.index[part.offset + byte];
      changed = static_cast<char>(changed ^ 1 << byte % 8);
      ASSERT_FALSE(partition.open_slice(segment, *inside).ok()) << byte;
      changed = static_cast<char>(changed ^ 1 << byte % 8);
    }
  }
  EXPECT_EQ(partition.find("12345678", segment).values.size(), 2500u);
}

TEST_F(BitFlips, InTheFooterAreAllNoticed) {
  const uint64_t offset = test::last_footer_offset(partition_.index);
  std::string footer = partition_.index.substr(offset);
  for (size_t bit = 0; bit < footer.size() * 8; ++bit) {
    footer[bit / 8] = static_cast<char>(footer[bit / 8] ^ 1 << bit % 8);
    ASSERT_FALSE(decode_footer(footer, kPartition, offset, "index").ok()) << "bit " << bit;
    footer[bit / 8] = static_cast<char>(footer[bit / 8] ^ 1 << bit % 8);
  }
  EXPECT_TRUE(decode_footer(footer, kPartition, offset, "index").ok());
}

TEST_F(BitFlips, CanaryFooterWithAFittingChecksumDiffers) {
  const uint64_t offset = test::last_footer_offset(partition_.index);
  FooterPart part =
      decode_footer(Bytes(partition_.index).substr(offset), kPartition, offset, "index").value();
  ++part.records[0].epoch;
  const auto decoded = decode_footer(encode_footer(part), kPartition, offset, "index");
  ASSERT_TRUE(decoded.ok());
  EXPECT_NE(decoded->records[0], partition_.segments[0]);
}

}  // namespace
}  // namespace swale::run::corruption_test
