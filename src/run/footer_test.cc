#include "run/footer.h"

#include <gtest/gtest.h>

#include "base/coding.h"
#include "base/crc32c.h"
#include "run/run_test_support.h"

namespace swale::run {
namespace {

using test::PartitionInMemory;

constexpr uint32_t kPartition = 7;

SegmentRecord segment_of(uint32_t epoch) {
  return {.data_block = epoch * uint64_t{10}, .epoch_id = 1000 + epoch, .epoch = epoch, .data_blocks = 10};
}

// An index log of epochs without records.
struct Log {
  FooterBuilder builder{kPartition};
  std::string bytes;

  void add_epoch(uint32_t epoch) {
    SegmentRecord segment = segment_of(epoch);
    segment.index_offset = bytes.size();
    ASSERT_TRUE(builder.add(segment).ok());
    bytes += builder.encode(bytes.size());
  }
};

Result<Footer> read(Bytes log, uint32_t partition = kPartition) {
  PartitionInMemory files;
  const auto file = files.index_file(log);
  return read_footer(*file, partition);
}

void expect_epochs(const Footer& footer, uint32_t count) {
  ASSERT_EQ(footer.segments.size(), count);
  for (uint32_t epoch = 0; epoch < count; ++epoch) {
    ASSERT_EQ(footer.segments[epoch].epoch, epoch);
    ASSERT_EQ(footer.segments[epoch].epoch_id, 1000 + epoch);
  }
}

TEST(Footer, ListsAllEpochsOfALongChain) {
  Log log;
  uint32_t epoch = 0;
  for (const uint32_t count :
       {1, 55, 56, 57, 112, 113, 500, 56 * 28, 56 * 29, 56 * 29 + 1, 56 * 30 + 1, 2000}) {
    for (; epoch < count; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
    const auto footer = read(log.bytes);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    expect_epochs(*footer, count);
    EXPECT_EQ(footer->end_offset, log.bytes.size());
    EXPECT_EQ(footer->skipped_bytes, 0u);
    EXPECT_EQ(footer->depth, count > 56 ? 2u : 1u);
    EXPECT_LE(footer->reads, 1 + kFooterExtentsMax);
  }
  // One tail page per epoch, a sealed one per 56, and the one time that all were written again.
  EXPECT_LE(log.bytes.size(), (2000 + 2 * 2000 / 56 + 2) * kFooterPageBytes);
}

TEST(Footer, ManySegmentsOfOneEpochComeAtOnce) {
  Log log;
  for (uint32_t i = 0; i < 300; ++i) ASSERT_TRUE(log.builder.add(segment_of(i)).ok());
  log.bytes = log.builder.encode(0);
  EXPECT_EQ(log.bytes.size(), 6 * kFooterPageBytes);
  const auto footer = read(log.bytes);
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  expect_epochs(*footer, 300);
}

TEST(Footer, SkipsATornTailAndSaysSo) {
  Log log;
  for (uint32_t epoch = 0; epoch < 60; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const size_t good = log.bytes.size();
  Rng rng(40);
  for (const size_t torn : {1, 100, 4095, 4096, 5000, 40'960, 700'000}) {
    const auto footer = read(log.bytes + test::random_bytes(rng, torn));
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    expect_epochs(*footer, 60);
    EXPECT_EQ(footer->end_offset, good);
    EXPECT_EQ(footer->skipped_bytes, torn);
    EXPECT_EQ(footer->skipped_reason.ok(), torn < 4096);
  }
}

TEST(Footer, FallsBackToTheEpochBeforeADamagedOne) {
  Log log;
  for (uint32_t epoch = 0; epoch < 59; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  std::string damaged = log.bytes;
  damaged[damaged.size() - 2000] ^= 1;
  const auto footer = read(damaged);
  ASSERT_TRUE(footer.ok());
  expect_epochs(*footer, 58);
  EXPECT_EQ(footer->skipped_bytes, kFooterPageBytes);
  EXPECT_NE(footer->skipped_reason.message().find("checksum"), std::string_view::npos);
}

TEST(Footer, DamagedExtentIsAnError) {
  Log log;
  for (uint32_t epoch = 0; epoch < 100; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const auto footer = read(log.bytes);
  ASSERT_TRUE(footer.ok());
  ASSERT_EQ(footer->extents.size(), 1u);
  std::string damaged = log.bytes;
  damaged[footer->extents[0].offset + 77] ^= 4;
  EXPECT_EQ(read(damaged).status().code(), Code::kCorruption);
}

TEST(Footer, NoFooterIsAnError) {
  EXPECT_EQ(read("").status().code(), Code::kCorruption);
  EXPECT_EQ(read("short").status().code(), Code::kCorruption);
  EXPECT_EQ(read(std::string(20'000, '\0')).status().code(), Code::kCorruption);
}

TEST(Footer, PagesOfAnotherPartitionOrPlaceDoNotCount) {
  Log log;
  ASSERT_NO_FATAL_FAILURE(log.add_epoch(0));
  EXPECT_EQ(read(log.bytes, kPartition + 1).status().code(), Code::kCorruption);
  EXPECT_EQ(read(std::string(kFooterPageBytes, '\0') + log.bytes).status().code(), Code::kCorruption);
}

// Changes a page and gives it the checksum that fits.
template <class Change>
std::string changed_page(Change&& change) {
  Log log;
  log.add_epoch(0);
  FooterPage page;
  std::memcpy(static_cast<void*>(&page), log.bytes.data(), sizeof(page));
  change(page);
  std::string bytes(sizeof(page), '\0');
  std::memcpy(bytes.data(), static_cast<const void*>(&page), sizeof(page));
  put_u32(bytes.data() + bytes.size() - 4,
          crc32c_extend(partition_seed(kPartition), Bytes(bytes).substr(0, bytes.size() - 4)));
  return bytes;
}

TEST(Footer, RefusesANewerFormatWithAClearMessage) {
  const auto newer = read(changed_page([](FooterPage& page) { page.version = 2; }));
  EXPECT_EQ(newer.status().code(), Code::kUnsupported);
  EXPECT_NE(newer.status().message().find("version 2"), std::string_view::npos);
  EXPECT_EQ(read(changed_page([](FooterPage& page) { page.incompatible_features = 4; })).status().code(),
            Code::kUnsupported);
  EXPECT_EQ(read(changed_page([](FooterPage& page) { page.records[0].flags = 2; })).status().code(),
            Code::kUnsupported);
}

TEST(Footer, PassesOverCompatibleAdditions) {
  const auto footer = read(changed_page([](FooterPage& page) {
    page.compatible_features = 1;
    page.records[0].flags = kAuxiliarySegment | 2;
    page.records[0].runs = 1;
  }));
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  EXPECT_FALSE(locate_slice(footer->segments[0], 1).has_value());
}

TEST(Footer, RefusesImpossibleNumbersDespiteTheRightChecksum) {
  const std::vector<void (*)(FooterPage&)> changes = {
      [](FooterPage& page) { page.version = 0; },
      [](FooterPage& page) { page.record_count = 57; },
      [](FooterPage& page) { page.extent_count = 29; },
      [](FooterPage& page) { page.extent_count = 1; },
      [](FooterPage& page) { page.first_record = 1; },
      [](FooterPage& page) { page.kind = FooterPageKind{2}; },
      [](FooterPage& page) { page.records[0].ways = 0; },
      [](FooterPage& page) { page.records[0].index_offset = 4096; },
      [](FooterPage& page) { page.records[0].slice_bits = 18; },
      [](FooterPage& page) { page.records[0].stride = 64; },
      [](FooterPage& page) { page.records[0].runs = 1, page.records[0].stride = 64; },
      [](FooterPage& page) { page.records[0].flags = kUniformSegment; },
      [](FooterPage& page) { page.records[0].data_block = uint64_t{1} << 52; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(read(changed_page(changes[i])).status().code(), Code::kCorruption) << i;
  }
  EXPECT_TRUE(read(changed_page([](FooterPage&) {})).ok());
}

TEST(FooterBuilder, GoesOnBehindAnEarlierJob) {
  Log log;
  for (uint32_t epoch = 0; epoch < 130; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  for (const uint32_t keep : {0, 1, 55, 56, 57, 112, 113, 130}) {
    const auto footer = read(log.bytes);
    ASSERT_TRUE(footer.ok());
    Log later{FooterBuilder::resume(kPartition, *footer, keep), log.bytes};
    for (uint32_t epoch = keep; epoch < 140; ++epoch) ASSERT_NO_FATAL_FAILURE(later.add_epoch(epoch));
    const auto reread = read(later.bytes);
    ASSERT_TRUE(reread.ok()) << reread.status().to_string();
    expect_epochs(*reread, 140);
  }
}

TEST(FooterBuilder, SaysWhenThePartitionHasAllTheSegmentsThatFit) {
  FooterBuilder builder(kPartition);
  for (uint32_t i = 0; i < kSegmentsMax; ++i) ASSERT_TRUE(builder.add({}).ok());
  const Status full = builder.add({});
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("1048576"), std::string_view::npos);
}

}  // namespace
}  // namespace swale::run
