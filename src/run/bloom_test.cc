// Filters: no record is ever missed, and absent keys pass as often as theory says.
#include "run/bloom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "run/testing/run_test_support.h"

namespace swale::run::bloom_test {
namespace {

using test::PartitionInMemory;
using test::Records;

// The chance that all probes of an absent record hit bits that `records` others set among `bits`.
double plain_rate(double records, double bits, double probes) {
  return std::pow(1 - std::pow(1 - 1 / bits, probes * records), probes);
}

// The same in lines of 512 bits, which have different numbers of records (Poisson).
double blocked_rate(double records, double lines, double probes) {
  const double mean = records / lines;
  double chance = std::exp(-mean);
  double rate = 0;
  for (int in_line = 0; in_line < 400; ++in_line) {
    rate += chance * plain_rate(in_line, 512, probes);
    chance *= mean / (in_line + 1);
  }
  return rate;
}

struct Measured {
  double rate;
  double theory;
};

Measured measure(const BloomShape& shape, uint64_t records, Rng& rng) {
  std::string filter(shape.bytes(records), '\0');
  std::vector<Hash> rests;
  for (uint64_t i = 0; i < records; ++i) {
    rests.push_back(rng.next());
    BloomProbe(shape, rests.back()).add(filter.data(), filter.size());
  }
  for (const Hash rest : rests) {
    EXPECT_TRUE(BloomProbe(shape, rest).may_be_in(filter.data(), filter.size()));
    // differs in the bits that do not count
    const Hash alike = rest ^ ((Hash{1} << (64 - kFilterHashBits)) - 1);
    EXPECT_TRUE(BloomProbe(shape, alike).may_be_in(filter.data(), filter.size()));
  }
  constexpr int kAsked = 400'000;
  int passed = 0;
  for (int i = 0; i < kAsked; ++i)
    passed += BloomProbe(shape, rng.next()).may_be_in(filter.data(), filter.size()) ? 1 : 0;
  const auto n = static_cast<double>(records);
  const auto bytes = static_cast<double>(filter.size());
  return {passed / static_cast<double>(kAsked), shape.blocked
                                                    ? blocked_rate(n, bytes / kBloomLineBytes, shape.probes())
                                                    : plain_rate(n, bytes * 8, shape.probes())};
}

TEST(Bloom, FalsePositivesAreWithinFifteenPercentOfTheory) {
  Rng rng(11);
  size_t points = 0;
  for (const bool blocked : {false, true}) {
    for (const uint32_t bits : {4, 8, 10, 12, 16}) {
      for (const uint64_t records : {4'096, 170'000}) {
        const Measured measured = measure({blocked, bits}, records, rng);
        fmt::print("  {} {:2} bits, {:6} records: {:.5f}, theory {:.5f}\n", blocked ? "blocked" : "plain  ",
                   bits, records, measured.rate, measured.theory);
        // 400,000 questions: three standard deviations of a rate of 0.05 % are a fifth of it.
        const double noise = 3 * std::sqrt(measured.theory / 400'000);
        EXPECT_NEAR(measured.rate, measured.theory, 0.15 * measured.theory + noise);
        ++points;
      }
    }
  }
  fmt::print("{} points\n", points);
  const Measured wrong = measure({false, 10}, 4'096, rng);
  EXPECT_GT(std::abs(wrong.rate - plain_rate(4'096, 8 * 4'096, 6)), 0.15 * wrong.rate)
      << "canary: it can tell them apart";
}

TEST(Bloom, WithoutBitsEverythingPasses) {
  EXPECT_EQ((BloomShape{false, 0}.bytes(1000)), 0u);
  EXPECT_TRUE((BloomProbe({true, 0}, 5).may_be_in(nullptr, 0)));
}

// In a segment: an absent key is sent to each run's block with the filter's rate.
TEST(Bloom, AbsentKeysMeetAsManyFalseCandidatesAsTheoryPromises) {
  Rng rng(12);
  constexpr uint64_t kRecords = 20'000;
  for (const IndexKind kind : {IndexKind::kBloom, IndexKind::kBlockedBloom}) {
    PartitionInMemory partition;
    partition.layout = {Codec::kNone, kind, 10};
    for (int run = 0; run < 3; ++run) partition.add_run(test::random_records(rng, kRecords, 8, 40));
    partition.finish_epoch();
    const SegmentRecord& segment = partition.segments.back();
    EXPECT_GT(segment.slice_bits, 0);
    EXPECT_EQ(segment.filter_bits, 10);
    uint64_t passed = 0;
    constexpr uint64_t kAsked = 20'000;
    for (uint64_t i = 0; i < kAsked; ++i) {
      const test::Found found = partition.find(test::random_bytes(rng, 9), segment);
      ASSERT_TRUE(found.status.ok());
      EXPECT_TRUE(found.values.empty());
      passed += found.candidates;
    }
    // A line of the blocked filters of one slice's piece is rounded up, so they are a little better than 10
    // bits.
    const double in_piece = kRecords / static_cast<double>(1 << segment.slice_bits);
    const double lines = std::ceil(in_piece * 10 / 512);
    const double theory = 3 * (kind == IndexKind::kBloom ? plain_rate(in_piece, in_piece * 10, 7)
                                                         : blocked_rate(in_piece, lines, 7));
    const double rate = static_cast<double>(passed) / kAsked;
    fmt::print("  {}: {:.4f} a query and 3 runs, theory {:.4f}\n", index_name(kind), rate, theory);
    EXPECT_NEAR(rate, theory, 0.15 * theory);
  }
}

// Fences lead to the record's block and, nearly always, to no other.
TEST(Bloom, FencesNameTheBlock) {
  Rng rng(13);
  PartitionInMemory partition;
  partition.layout = {Codec::kNone, IndexKind::kPapers, 0};
  partition.add_run(test::random_records(rng, 20'000, 8, 40));
  partition.finish_epoch();
  const SegmentRecord& segment = partition.segments.back();
  EXPECT_EQ(segment.slice_bits, 0);
  uint64_t blocks = 0;
  for (int i = 0; i < 2'000; ++i) blocks += partition.find(test::random_bytes(rng, 9), segment).candidates;
  EXPECT_EQ(blocks, 2'000u) << "without filters, one block of each run";
}

}  // namespace
}  // namespace swale::run::bloom_test
