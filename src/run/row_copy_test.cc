#include "run/row_copy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "run/memtable.h"
#include "run/sketch.h"
#include "run/testing/run_test_support.h"

namespace swale::run::row_copy_test {
namespace {

// Rows of every size, in whatever order the entries name them; nothing behind them is touched.
TEST(RowCopy, CopiesAndSumsRowsOfEverySize) {
  Rng rng(9);
  constexpr uint32_t kCount = 50;
  for (uint32_t row_bytes = 1; row_bytes <= 200; ++row_bytes) {
    const uint32_t key_bytes = 1 + row_bytes / 3;
    auto memtable = Memtable::create(kMiB, 1000).value();
    std::vector<std::string> rows;
    for (uint32_t i = 0; i < kCount; ++i) {
      rows.push_back(test::random_bytes(rng, row_bytes));
      const Bytes row = rows.back();
      ASSERT_NE(memtable.append(rng.next(), row.substr(0, key_bytes), row.substr(key_bytes)), nullptr);
    }
    std::vector<uint64_t> entries(kCount);
    size_t count = 0;
    for (uint32_t bin = 0; bin < Memtable::kBins; ++bin) count += memtable.collect(bin, &entries[count]);
    ASSERT_EQ(count, kCount);
    std::string expected;
    uint64_t expected_digest = 0;
    for (const uint64_t entry : entries) {
      const Bytes row = memtable.row(entry).view.row();
      expected += row;
      expected_digest += swale::record_digest(row, key_bytes);
    }
    auto arena = SketchArena::create(kMiB).value();
    RunSketch sketch;
    sketch.blocks = 1;
    sketch.records = kCount;
    SketchBuilder builder(&sketch, arena);
    Memtable::RowFetcher fetcher(memtable);
    fetcher.skip_to(1);
    std::string out(expected.size() + 32, '#');
    const RowCopy copy{.rows = memtable.rows(),
                       .entries = entries.data(),
                       .count = kCount,
                       .row_bytes = row_bytes,
                       .key_bytes = key_bytes,
                       .out = out.data()};
    EXPECT_EQ(copy_rows(copy, &builder, &fetcher), expected_digest) << row_bytes;
    EXPECT_EQ(out, expected + std::string(32, '#')) << row_bytes;
    for (const std::string& row : rows) EXPECT_NE(expected.find(row), std::string::npos);
  }
}

}  // namespace
}  // namespace swale::run::row_copy_test
