#include "run/footer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/coding.h"
#include "base/crc32c.h"
#include "io/posix_device.h"
#include "run/testing/run_test_support.h"

namespace swale::run::footer_test {
namespace {

using test::PartitionInMemory;

constexpr PartitionNumber kPartition(7);

constexpr uint32_t kEpochBlocks = 3;

SegmentRecord segment_of(uint32_t epoch, uint32_t blocks = kEpochBlocks) {
  return {.data_block = BlockNumber(epoch * uint64_t{blocks}),
          .epoch_id = 1000 + epoch * 0x9e3779b97f4a7c15,
          .epoch = EpochNumber(epoch),
          .data_blocks = blocks};
}

// An index log of epochs without slices, each with `blocks` blocks of data.
struct Log {
  FooterBuilder builder{kPartition};
  std::string bytes;
  uint32_t blocks = kEpochBlocks;

  void add_epoch(uint32_t epoch) {
    SegmentRecord segment = segment_of(epoch, blocks);
    segment.index_offset = bytes.size();
    ASSERT_TRUE(builder.add(segment).ok());
    bytes += builder.encode(bytes.size());
  }
};

Result<Footer> read(Bytes log, PartitionNumber partition = kPartition) {
  PartitionInMemory files;
  const auto file = files.index_file(log);
  return read_footer(*file, partition);
}

void expect_epochs(const Footer& footer, uint32_t count) {
  ASSERT_EQ(footer.segments.size(), count);
  for (uint32_t epoch = 0; epoch < count; ++epoch) {
    ASSERT_EQ(footer.segments[epoch].epoch, epoch);
    ASSERT_EQ(footer.segments[epoch].epoch_id, segment_of(epoch).epoch_id);
  }
}

TEST(Footer, ListsAllEpochsOfALongChain) {
  Log log;
  size_t longer = 0;
  uint32_t depth_max = 0;
  uint64_t reads_max = 0;
  for (uint32_t epoch = 0; epoch < 4000; ++epoch) {
    const size_t before = log.bytes.size();
    ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
    const bool merged = log.bytes.size() - before > kIndexPageBytes;
    longer += merged ? 1 : 0;
    if (epoch > 200 && epoch % 97 != 0 && !merged) continue;
    const auto footer = read(log.bytes);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    ASSERT_NO_FATAL_FAILURE(expect_epochs(*footer, epoch + 1));
    ASSERT_EQ(footer->end_offset, log.bytes.size());
    ASSERT_EQ(footer->skipped_bytes, 0u);
    ASSERT_LE(footer->depth, merged ? 3u : 2u) << epoch;
    depth_max = std::max(depth_max, footer->depth);
    reads_max = std::max(reads_max, footer->reads);
  }
  fmt::print("{:.1f} bytes an epoch, {} footers longer than a page, depth <= {}, reads <= {}\n",
             static_cast<double>(log.bytes.size()) / 4000, longer, depth_max, reads_max);
  EXPECT_LE(log.bytes.size(), 4000u * 420);
  EXPECT_LE(reads_max, 24u);
  EXPECT_GT(longer, 0u);
}

TEST(Footer, OfTenThousandEpochsIsFewReads) {
  Log log;
  for (uint32_t epoch = 0; epoch < 10'000; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const auto footer = read(log.bytes);
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  expect_epochs(*footer, 10'000);
  fmt::print("{} reads, {} after one another, {} bytes; the log has {}\n", footer->reads, footer->depth,
             footer->bytes_read, log.bytes.size());
  EXPECT_LE(footer->reads, 20u);
  EXPECT_LE(footer->depth, 2u);
  EXPECT_LE(footer->bytes_read, 10'000u * 26);
}

// A footer's cost follows from its epoch's bytes: with large epochs one read tells all.
TEST(Footer, OfLargeEpochsIsOneRead) {
  Log log;
  log.blocks = 1000;
  for (uint32_t epoch = 0; epoch < 100; ++epoch) {
    ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
    const auto footer = read(log.bytes);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    ASSERT_NO_FATAL_FAILURE(expect_epochs(*footer, epoch + 1));
    ASSERT_EQ(footer->depth, 1u) << epoch;
  }
}

TEST(Footer, ManyExtentsOfMixedLengthsStayWithinTheirLimit) {
  Log log;
  Rng rng(90);
  size_t extents_max = 0;
  for (uint32_t epoch = 0; epoch < 6000; ++epoch) {
    log.blocks = 1u << rng.below(12);
    ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
    if (epoch % 101 != 0 && epoch + 1 < 6000) continue;
    const auto footer = read(log.bytes);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    ASSERT_EQ(footer->segments.size(), epoch + 1);
    extents_max = std::max(extents_max, footer->extents.size());
  }
  fmt::print("at most {} extents\n", extents_max);
  EXPECT_LE(extents_max, kFooterExtentsMax / 2);
  EXPECT_GE(extents_max, 2u);
}

TEST(Footer, ManySegmentsOfOneEpochComeAtOnce) {
  Log log;
  for (uint32_t i = 0; i < 300; ++i) ASSERT_TRUE(log.builder.add(segment_of(i)).ok());
  log.bytes = log.builder.encode(0);
  EXPECT_GT(log.bytes.size(), kIndexPageBytes);
  const auto footer = read(log.bytes);
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  expect_epochs(*footer, 300);
  EXPECT_EQ(footer->depth, 2u);
}

TEST(Footer, LiesWithinAPageIfItFits) {
  Log log;
  for (uint32_t epoch = 0; epoch < 500; ++epoch) {
    ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
    const uint64_t offset = test::last_footer_offset(log.bytes);
    if (log.bytes.size() - offset > kIndexPageBytes) continue;
    ASSERT_EQ(offset / kIndexPageBytes, (log.bytes.size() - 1) / kIndexPageBytes) << epoch;
  }
}

TEST(Footer, SkipsATornTailAndSaysSo) {
  Log log;
  for (uint32_t epoch = 0; epoch < 60; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const size_t good = log.bytes.size();
  Rng rng(40);
  for (const size_t torn : {1, 7, 8, 100, 4095, 4096, 5000, 40'960, 262'144, 262'200, 700'000}) {
    const auto footer = read(log.bytes + test::random_bytes(rng, torn));
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    expect_epochs(*footer, 60);
    EXPECT_EQ(footer->end_offset, good);
    EXPECT_EQ(footer->skipped_bytes, torn);
    EXPECT_EQ(footer->skipped_reason.ok(), torn < kIndexUnit);
  }
}

// The last append of an epoch: its slice and its footer, cut off at every byte; then the file may also be
// longer than what was written, with zeros or with old bytes in place of some sectors.
TEST(Footer, TornAppendsAreSkippedAtEveryByte) {
  Rng rng(91);
  PartitionInMemory partition(kPartition);
  std::string before;
  for (int epoch = 0; epoch < 12; ++epoch) {
    before = partition.index;
    partition.add_run(test::random_records(rng, 250, 8, 40));
    partition.finish_epoch();
  }
  size_t torn = 0;
  size_t damaged = 0;
  const auto expect_skipped = [&](const std::string& index) {
    const auto footer = read(index);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    ASSERT_EQ(footer->segments.size(), 11u);
    ASSERT_EQ(footer->end_offset, before.size());
    ASSERT_EQ(footer->skipped_bytes, index.size() - before.size());
    ASSERT_EQ(footer->skipped_reason.ok(), index.size() - before.size() < kIndexUnit);
  };
  for (size_t size = before.size(); size < partition.index.size(); ++size, ++torn)
    ASSERT_NO_FATAL_FAILURE(expect_skipped(partition.index.substr(0, size))) << size;
  const uint64_t footer_offset = test::last_footer_offset(partition.index);
  for (size_t at = footer_offset; at < partition.index.size(); ++at) {
    if (partition.index[at] == 0) continue;
    std::string index = partition.index;
    index.replace(at, std::min<size_t>(512, index.size() - at), std::min<size_t>(512, index.size() - at),
                  '\0');
    ASSERT_NO_FATAL_FAILURE(expect_skipped(index)) << at;
    ++damaged;
  }
  fmt::print("{} lengths of a torn append, {} with zeros in it\n", torn, damaged);
  const auto whole = read(partition.index);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->segments.size(), 12u) << "the canary: what is not torn is not skipped";
}

TEST(Footer, EveryChangedByteIsAnErrorOrAnOlderFooter) {
  Log log;
  for (uint32_t epoch = 0; epoch < 80; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const auto good = read(log.bytes);
  ASSERT_TRUE(good.ok());
  ASSERT_GE(good->extents.size(), 2u);
  size_t errors = 0;
  size_t older = 0;
  size_t no_effect = 0;
  std::string damaged = log.bytes;
  for (size_t at = 0; at < damaged.size(); ++at) {
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    const auto footer = read(damaged);
    damaged[at] = log.bytes[at];
    if (!footer.ok()) {
      ASSERT_EQ(footer.status().code(), Code::kCorruption);
      ++errors;
      continue;
    }
    const size_t count = footer->segments.size();
    ASSERT_LE(count, 80u);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(footer->segments[i], good->segments[i]) << at;
    ASSERT_TRUE(count == 80 || !footer->skipped_reason.ok()) << at;
    ++(count == 80 ? no_effect : older);
  }
  fmt::print("{} bytes changed: {} errors, {} older footers, {} without effect\n", damaged.size(), errors,
             older, no_effect);
  EXPECT_GT(errors, 0u);
  EXPECT_EQ(older, log.bytes.size() - test::last_footer_offset(log.bytes));
  EXPECT_GT(no_effect, 0u);
}

TEST(Footer, FallsBackToTheEpochBeforeADamagedOne) {
  Log log;
  for (uint32_t epoch = 0; epoch < 59; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const size_t before = log.bytes.size();
  ASSERT_NO_FATAL_FAILURE(log.add_epoch(59));
  std::string damaged = log.bytes;
  damaged[test::last_footer_offset(damaged) + 20] ^= 1;
  const auto footer = read(damaged);
  ASSERT_TRUE(footer.ok());
  expect_epochs(*footer, 59);
  EXPECT_EQ(footer->skipped_bytes, damaged.size() - before);
  EXPECT_NE(footer->skipped_reason.message().find("checksum"), std::string_view::npos);
}

TEST(Footer, DamagedExtentIsAnError) {
  Log log;
  for (uint32_t epoch = 0; epoch < 100; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const auto footer = read(log.bytes);
  ASSERT_TRUE(footer.ok());
  ASSERT_GE(footer->extents.size(), 1u);
  std::string damaged = log.bytes;
  damaged[footer->extents[0].offset + 7] ^= 4;
  EXPECT_EQ(read(damaged).status().code(), Code::kCorruption);
}

TEST(Footer, AllAreFoundByThoseWhoLookAtTheWholeLog) {
  Log log;
  Rng rng(92);
  for (uint32_t epoch = 0; epoch < 70; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const size_t second = log.bytes.size();
  // the next trailer lies across a chunk's end
  log.bytes += test::random_bytes(rng, 262'144 - second % 262'144 - 24);
  for (uint32_t epoch = 70; epoch < 73; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  std::string damaged = log.bytes;
  damaged[test::last_footer_offset(Bytes(damaged).substr(0, second))] ^= 1;
  PartitionInMemory files;
  const auto file = files.index_file(damaged);
  size_t whole = 0;
  size_t broken = 0;
  const Status status = each_footer(
      *file, kPartition, [&](uint64_t, const Result<FooterPart>& part) { ++(part.ok() ? whole : broken); });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(whole, 72u);
  EXPECT_EQ(broken, 1u);
}

TEST(Footer, NoFooterIsAnError) {
  EXPECT_EQ(read("").status().code(), Code::kCorruption);
  EXPECT_EQ(read("short").status().code(), Code::kCorruption);
  EXPECT_EQ(read(std::string(20'000, '\0')).status().code(), Code::kCorruption);
}

TEST(Footer, OfAnotherPartitionOrPlaceDoesNotCount) {
  Log log;
  ASSERT_NO_FATAL_FAILURE(log.add_epoch(0));
  EXPECT_EQ(read(log.bytes, kPartition + 1).status().code(), Code::kCorruption);
  EXPECT_EQ(read(std::string(kIndexUnit, '\0') + log.bytes).status().code(), Code::kCorruption);
}

// Changes a footer and gives it the checksums that fit.
template <class Change>
std::string changed_footer(Change&& change) {
  Log log;
  log.add_epoch(0);
  FooterPart part = decode_footer(log.bytes, kPartition, 0, "index").value();
  change(part);
  return encode_footer(part);
}

// Changes the finished bytes of its trailer.
template <class Change>
std::string changed_trailer(Change&& change) {
  std::string bytes = changed_footer([](FooterPart&) {});
  char* const at = bytes.data() + bytes.size() - sizeof(FooterTrailer);
  auto trailer = get_fixed<FooterTrailer>(at);
  change(trailer);
  put_fixed(at, trailer);
  put_u32(at + 60, crc32c_extend(partition_seed(kPartition), {at, 60}));
  return bytes;
}

TEST(Footer, RefusesANewerFormatWithAClearMessage) {
  const auto newer = read(changed_footer([](FooterPart& part) { part.trailer.version = 2; }));
  EXPECT_EQ(newer.status().code(), Code::kUnsupported);
  EXPECT_NE(newer.status().message().find("version 2"), std::string_view::npos);
  EXPECT_EQ(
      read(changed_footer([](FooterPart& part) { part.trailer.incompatible_features = 4; })).status().code(),
      Code::kUnsupported);
  EXPECT_EQ(read(changed_footer([](FooterPart& part) { part.records[0].flags = 2; })).status().code(),
            Code::kUnsupported);
}

TEST(Footer, PassesOverCompatibleAdditions) {
  const auto footer = read(changed_footer([](FooterPart& part) {
    part.trailer.compatible_features = 1;
    part.records[0].flags = kAuxiliarySegment | 2;
    part.records[0].runs = 1;
  }));
  ASSERT_TRUE(footer.ok()) << footer.status().to_string();
  EXPECT_FALSE(locate_slice(footer->segments[0], 1).has_value());
}

TEST(Footer, RefusesImpossibleNumbersDespiteTheRightChecksum) {
  const std::vector<void (*)(FooterPart&)> changes = {
      [](FooterPart& part) { part.trailer.version = 0; },
      [](FooterPart& part) { part.trailer.record_count = 2; },
      [](FooterPart& part) { part.trailer.record_count = 0; },
      [](FooterPart& part) { part.trailer.record_count = ~0u; },
      [](FooterPart& part) { part.trailer.extent_count = kFooterExtentsMax + 1; },
      [](FooterPart& part) { part.trailer.extent_count = 1; },
      [](FooterPart& part) { part.trailer.first_record = 1; },
      [](FooterPart& part) { part.trailer.offset = 8; },
      [](FooterPart& part) { part.extents = {{}}, part.trailer.extent_count = 1; },
      [](FooterPart& part) {
        part.extents = {{.offset = 0, .bytes = 64, .first_record = 0}};
        part.trailer.extent_count = part.trailer.first_record = 1;
      },
      [](FooterPart& part) { part.records[0].ways = 0; },
      [](FooterPart& part) { part.records[0].index_offset = 4096; },
      [](FooterPart& part) { part.records[0].index_offset = 4; },
      [](FooterPart& part) { part.records[0].slice_bits = 18; },
      [](FooterPart& part) { part.records[0].stride = 64; },
      [](FooterPart& part) { part.records[0].runs = 1, part.records[0].stride = 64; },
      [](FooterPart& part) { part.records[0].flags = kUniformSegment; },
      [](FooterPart& part) { part.records[0].data_block = BlockNumber(uint64_t{1} << 52); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(read(changed_footer(changes[i])).status().code(), Code::kCorruption) << i;
  }
  const std::vector<void (*)(FooterTrailer&)> trailers = {
      [](FooterTrailer& trailer) { trailer.bytes += 8; },
      [](FooterTrailer& trailer) { trailer.bytes = 8; },
      [](FooterTrailer& trailer) { trailer.record_bytes = ~0u; },
      [](FooterTrailer& trailer) { trailer.record_bytes -= 1; },
      [](FooterTrailer& trailer) { trailer.record_bytes += 1; },
      [](FooterTrailer& trailer) { trailer.body_crc32c ^= 1; },
  };
  for (size_t i = 0; i < trailers.size(); ++i) {
    EXPECT_EQ(read(changed_trailer(trailers[i])).status().code(), Code::kCorruption) << i;
  }
  EXPECT_TRUE(read(changed_footer([](FooterPart&) {})).ok());
  EXPECT_TRUE(read(changed_trailer([](FooterTrailer&) {})).ok());
}

// Extents whose numbers are possible, but which are not what they are said to be.
TEST(Footer, RefusesExtentsThatHoldOtherRecords) {
  Log log;
  for (uint32_t epoch = 0; epoch < 30; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  const uint64_t offset = test::last_footer_offset(log.bytes);
  const FooterPart good = decode_footer(Bytes(log.bytes).substr(offset), kPartition, offset, "index").value();
  ASSERT_GE(good.extents.size(), 2u);
  const auto read_with = [&](void (*change)(FooterPart&)) {
    FooterPart part = good;
    change(part);
    return read(log.bytes.substr(0, offset) + encode_footer(part)).status().code();
  };
  EXPECT_EQ(read_with([](FooterPart&) {}), Code::kOk);
  EXPECT_EQ(read_with([](FooterPart& part) { --part.extents[1].first_record; }), Code::kCorruption);
  EXPECT_EQ(read_with([](FooterPart& part) { ++part.trailer.first_record; }), Code::kCorruption);
  EXPECT_EQ(read_with([](FooterPart& part) { part.extents[0].offset += 8; }), Code::kCorruption);
  EXPECT_EQ(read_with([](FooterPart& part) { part.extents[0].bytes += 8; }), Code::kCorruption);
}

TEST(FooterBuilder, SaysWhenThePartitionHasAllTheSegmentsThatFit) {
  FooterBuilder builder(kPartition);
  for (uint32_t i = 0; i < kSegmentsMax; ++i) ASSERT_TRUE(builder.add({}).ok());
  const Status full = builder.add({});
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("1048576"), std::string_view::npos);
}

TEST(Footer, IsFoundBeforeALongHole) {
  Log log;
  for (uint32_t epoch = 0; epoch < 3; ++epoch) ASSERT_NO_FATAL_FAILURE(log.add_epoch(epoch));
  io::PosixDevice device;
  const std::string path = testing::TempDir() + fmt::format("swale-footer-hole-{}.index", ::getpid());
  static_cast<void>(device.remove(path));
  const auto file = device.open(path, io::OpenMode::kCreate).value();
  ASSERT_TRUE(device.remove(path).ok());
  ASSERT_TRUE(file->pwrite(0, log.bytes).ok());
  ASSERT_TRUE(file->truncate(200 * kGiB + 77).ok());
  if (file->next_data(kGiB) == kGiB) GTEST_SKIP() << "this file system knows of no holes";
  for (const bool odd_end : {false, true}) {
    if (odd_end) {
      ASSERT_TRUE(file->pwrite(200 * kGiB - 4, "odd").ok());
    }
    const auto footer = read_footer(*file, kPartition);
    ASSERT_TRUE(footer.ok()) << footer.status().to_string();
    expect_epochs(*footer, 3);
    EXPECT_EQ(footer->end_offset, log.bytes.size());
    EXPECT_EQ(footer->skipped_bytes, 200 * kGiB + 77 - log.bytes.size());
    EXPECT_LT(footer->bytes_read, 4 * kMiB);
  }
  ASSERT_TRUE(file->truncate(0).ok());
  ASSERT_TRUE(file->truncate(200 * kGiB).ok());
  EXPECT_EQ(read_footer(*file, kPartition).status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::run::footer_test
