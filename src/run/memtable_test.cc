#include "run/memtable.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "run/testing/run_test_support.h"

namespace swale::run::memtable_test {
namespace {

using test::append;
using test::Records;

TEST(Memtable, RefusesWhatDoesNotFitAndStaysAsItWas) {
  auto memtable = Memtable::create(Memtable::kArenaBytesMin, 100);
  ASSERT_TRUE(memtable.ok());
  ASSERT_TRUE(append(*memtable, "key", std::string(1000, 'x')));
  EXPECT_FALSE(append(*memtable, "other", std::string(kValueBytesMax, 'y')));
  EXPECT_EQ(memtable->count(), 1u);
  EXPECT_EQ(memtable->encoded_bytes(), 1006u);
  EXPECT_EQ(memtable->data_bytes(), 1003u);
  EXPECT_TRUE(memtable->uniform());
  EXPECT_TRUE(append(*memtable, "other", "y"));
  memtable->clear();
  EXPECT_TRUE(append(*memtable, std::string(kKeyBytesMax, 'k'), std::string(kValueBytesMax, 'y')));
}

TEST(Memtable, RefusesMoreRecordsThanItHasEntriesFor) {
  auto memtable = Memtable::create(Memtable::kArenaBytesMax, 3);
  ASSERT_TRUE(memtable.ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(append(*memtable, "key", "value"));
  EXPECT_FALSE(append(*memtable, "key", "value"));
  memtable->clear();
  EXPECT_TRUE(memtable->empty());
  EXPECT_TRUE(append(*memtable, "key", "value"));
}

TEST(Memtable, KnowsWhetherAllRecordsHaveOneSize) {
  auto memtable = Memtable::create(Memtable::kArenaBytesMax, 100);
  ASSERT_TRUE(memtable.ok());
  EXPECT_TRUE(append(*memtable, "abcdefgh", "0123"));
  EXPECT_TRUE(append(*memtable, "ijklmnop", "4567"));
  EXPECT_TRUE(memtable->uniform());
  EXPECT_EQ(memtable->key_bytes(), 8u);
  EXPECT_EQ(memtable->value_bytes(), 4u);
  EXPECT_TRUE(append(*memtable, "abcdefg", "01234"));  // the same sum
  EXPECT_FALSE(memtable->uniform());
  EXPECT_TRUE(append(*memtable, "abcdefgh", "0123"));
  EXPECT_FALSE(memtable->uniform());
  memtable->clear();
  EXPECT_TRUE(append(*memtable, "x", ""));
  EXPECT_TRUE(memtable->uniform());
  EXPECT_EQ(memtable->value_bytes(), 0u);
}

// The quick way makes the same rows and the same counts; it leaves to the other what needs a new chunk.
TEST(Memtable, AppendQuicklyDoesWhatAppendDoes) {
  Rng rng(6);
  for (const bool uniform : {true, false}) {
    auto quick = Memtable::create(kMiB, 50'000);
    auto slow = Memtable::create(kMiB, 50'000);
    ASSERT_TRUE(quick.ok() && slow.ok());
    uint64_t digest = 0;
    uint64_t expected = 0;
    size_t taken_quickly = 0;
    for (int i = 0; i < 10'000; ++i) {
      const std::string key = test::random_bytes(rng, kQuickKeyBytes);
      const std::string value = test::random_bytes(rng, uniform ? 40 : rng.below(kQuickValueBytesMax + 1));
      ASSERT_TRUE(append(*slow, key, value));
      const uint64_t row = swale::record_digest(key + value, key.size());
      expected += row;
      if (quick->append_quickly(test::rest_of(key), key.data(), value, &digest)) {
        ++taken_quickly;
      } else {
        ASSERT_TRUE(append(*quick, key, value));
        digest += row;
      }
      ASSERT_EQ(digest, expected);
    }
    EXPECT_GT(taken_quickly, 8'000u);
    EXPECT_EQ(quick->count(), slow->count());
    EXPECT_EQ(quick->data_bytes(), slow->data_bytes());
    EXPECT_EQ(quick->encoded_bytes(), slow->encoded_bytes());
    EXPECT_EQ(quick->uniform(), uniform);
    std::vector<uint64_t> entries(slow->count());
    std::vector<uint64_t> expected_entries(slow->count());
    for (uint32_t bin = 0; bin < Memtable::kBins; ++bin) {
      const size_t count = slow->collect(bin, expected_entries.data());
      ASSERT_EQ(quick->collect(bin, entries.data()), count);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(quick->row(entries[i]).view.row(), slow->row(expected_entries[i]).view.row());
    }
  }
}

// Every bin's records, in the order of arrival, and no others.
TEST(Memtable, CollectsWhatWasAppended) {
  Rng rng(5);
  for (const size_t arena_bytes : {Memtable::kArenaBytesMin, kMiB, Memtable::kArenaBytesMax}) {
    for (const bool uniform : {true, false}) {
      auto memtable = Memtable::create(arena_bytes, 50'000);
      ASSERT_TRUE(memtable.ok());
      std::map<uint32_t, Records> expected;
      for (size_t refused = 0; refused < 3;) {  // goes on in other bins when one is full
        const std::string key = test::random_bytes(rng, uniform ? 8 : 1 + rng.below(20));
        const std::string value = test::random_bytes(rng, uniform             ? 40
                                                          : rng.below(4) == 0 ? rng.below(3000)
                                                                              : rng.below(99));
        if (append(*memtable, key, value)) {
          expected[static_cast<uint32_t>(test::rest_of(key) >> (64 - Memtable::kBinBits))].emplace_back(
              key, value);
        } else {
          ++refused;
        }
      }
      std::vector<uint64_t> entries(memtable->count());
      size_t collected = 0;
      uint64_t encoded_bytes = 0;
      for (uint32_t bin = 0; bin < Memtable::kBins; ++bin) {
        const size_t count = memtable->collect(bin, entries.data());
        ASSERT_EQ(count, expected[bin].size());
        for (size_t i = 0; i < count; ++i) {
          const RecordView record = memtable->row(entries[i]).view;
          EXPECT_EQ(record.key, expected[bin][i].first);
          EXPECT_EQ(record.value, expected[bin][i].second);
          EXPECT_EQ(entries[i] >> kEntryOffsetBits, test::rest_of(record.key) >> kEntryOffsetBits);
          if (i > 0) {
            EXPECT_LT(entries[i - 1] & kEntryOffsetMask, entries[i] & kEntryOffsetMask);
          }
          encoded_bytes += encoded_record_bytes(record.key.size(), record.value.size());
        }
        collected += count;
      }
      EXPECT_EQ(collected, memtable->count());
      EXPECT_EQ(encoded_bytes, memtable->encoded_bytes());
      EXPECT_EQ(memtable->uniform(), uniform);
    }
  }
}

// Told of as many bytes as there are rows, it has been to every bin that has some; and then it stays where it
// is.
TEST(Memtable, RowFetcherGoesThroughTheBinsOnce) {
  Rng rng(8);
  for (const size_t value_bytes : {0, 40, 1000, 9000}) {
    auto memtable = Memtable::create(kMiB, 50'000).value();
    const std::string value(value_bytes, 'x');
    std::set<uint32_t> bins;
    for (std::string key = test::random_bytes(rng, 8); append(memtable, key, value);
         key = test::random_bytes(rng, 8)) {
      bins.insert(static_cast<uint32_t>(test::rest_of(key) >> (64 - Memtable::kBinBits)));
    }
    Memtable::RowFetcher fetcher(memtable);
    fetcher.fetch(48);  // before the first bin: nothing
    EXPECT_EQ(fetcher.bin(), 0u);
    fetcher.skip_to(1);
    bins.erase(0);
    std::set<uint32_t> visited;
    for (size_t fetched = 0; fetcher.bin() != Memtable::kBins; fetched += 56) {
      ASSERT_LE(fetched, 2 * kMiB);
      visited.insert(fetcher.bin());
      fetcher.fetch(56);
    }
    EXPECT_EQ(visited, bins);
    for (int i = 0; i < 100; ++i) fetcher.fetch(1000);
    EXPECT_EQ(fetcher.bin(), Memtable::kBins);
    fetcher.skip_to(Memtable::kBins);
    Memtable::RowFetcher late(memtable);
    late.skip_to(200);
    EXPECT_GE(late.bin(), 200u);
    late.skip_to(100);  // has been there
    EXPECT_GE(late.bin(), 200u);
  }
}

TEST(Memtable, TakesLessWhileItIsLimitedButAnyOneRecord) {
  Rng rng(9);
  auto memtable = Memtable::create(kMiB, 50'000).value();
  const std::string value(40, 'x');
  const auto fill = [&] {
    size_t count = 0;
    while (append(memtable, test::random_bytes(rng, 8), value)) ++count;
    memtable.clear();
    return count;
  };
  const size_t whole = fill();
  memtable.limit(kMiB / 2);
  EXPECT_GT(fill(), whole * 4 / 10);
  EXPECT_GT(fill(), whole * 9 / 10) << "cleared, it takes all again";
  memtable.limit(kMiB / 2);
  EXPECT_LT(fill(), whole * 6 / 10);
  memtable.limit(1);
  EXPECT_TRUE(append(memtable, std::string(kKeyBytesMax, 'k'), std::string(kValueBytesMax, 'v')));
  EXPECT_FALSE(append(memtable, "k", std::string(kValueBytesMax, 'v')));
}

TEST(Memtable, WastesLittleOfItsArena) {
  Rng rng(6);
  auto memtable = Memtable::create(8 * kMiB, Memtable::kRecordsMax);
  ASSERT_TRUE(memtable.ok());
  memtable->touch();
  const std::string value(40, 'x');
  while (append(*memtable, test::random_bytes(rng, 8), value)) {
  }
  EXPECT_GT(memtable->count() * (48 + Memtable::kRowHeadBytes), 8 * kMiB * 92 / 100);
}

TEST(Memtable, RefusesImpossibleSizes) {
  EXPECT_EQ(Memtable::create(Memtable::kArenaBytesMax + 1, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(100, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(kMiB, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(kMiB, Memtable::kRecordsMax + 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace swale::run::memtable_test
