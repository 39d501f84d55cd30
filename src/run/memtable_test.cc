#include "run/memtable.h"

#include <gtest/gtest.h>

#include "run/run_test_support.h"

namespace swale::run {
namespace {

using test::append;

TEST(Memtable, RefusesWhatDoesNotFitAndStaysAsItWas) {
  auto memtable = Memtable::create(kEncodedRecordBytesMax, 100);
  ASSERT_TRUE(memtable.ok());
  ASSERT_TRUE(append(*memtable, "key", std::string(1000, 'x')));
  const size_t bytes = memtable->bytes();
  EXPECT_FALSE(append(*memtable, "other", std::string(kValueBytesMax, 'y')));
  EXPECT_EQ(memtable->count(), 1u);
  EXPECT_EQ(memtable->bytes(), bytes);
  EXPECT_EQ(memtable->data_bytes(), 1003u);
  EXPECT_TRUE(memtable->uniform());
  EXPECT_TRUE(append(*memtable, "other", "y"));
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

TEST(Memtable, FillsItsArenaToTheLastByte) {
  auto memtable = Memtable::create(Memtable::kArenaBytesMax, Memtable::kRecordsMax);
  ASSERT_TRUE(memtable.ok());
  memtable->touch();
  // 16 MiB = 1,024 records of 16,384 bytes: header 1 + 2, key 8, value 16,373.
  const std::string value(16'373, 'x');
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(append(*memtable, "12345678", value)) << i;
  EXPECT_EQ(memtable->bytes(), Memtable::kArenaBytesMax);
  EXPECT_EQ(memtable->entries().back() & kEntryOffsetMask, Memtable::kArenaBytesMax - 16 * kKiB);
  EXPECT_FALSE(append(*memtable, "x", ""));
}

TEST(Memtable, RefusesImpossibleSizes) {
  EXPECT_EQ(Memtable::create(Memtable::kArenaBytesMax + 1, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(100, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(kMiB, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Memtable::create(kMiB, Memtable::kRecordsMax + 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace swale::run
