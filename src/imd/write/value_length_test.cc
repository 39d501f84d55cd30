// Values have the length that their schema describes, on every way that an append can take; verify finds
// those that have not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/coding.h"
#include "imd/check/verify.h"
#include "imd/format/generation.h"
#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_job.h"
#include "imd/write/value_lengths.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd::value_length_test {
namespace {

using testing::HasSubstr;

constexpr char kDir[] = "/dir";

struct Case {
  const char* schema;
  size_t right_bytes;
  int32_t ranks;
  run::ShuffleFormat format;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return fmt::format("{}Ranks{}Bytes{}", info.param.ranks, info.param.right_bytes,
                     run::format_name(info.param.format));
}

WriterOptions options_of(const Case& made) {
  WriterOptions options;
  options.memory_bytes = 20 * kMiB;
  options.format = made.format;
  options.schema = *run::Schema::parse(made.schema, "");
  return options;
}

class ValueLengthsAreKept : public testing::TestWithParam<Case> {};

TEST_P(ValueLengthsAreKept, AppendRefusesOthersAndGoesOn) {
  const Case& made = GetParam();
  io::MemoryDevice device;
  run_ranks(made.ranks, [&](net::Job& job) {
    auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing, options_of(made));
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint64_t i = 0; i < 50; ++i) {
      std::string key;
      append_u64(&key, i * 1000 + static_cast<uint64_t>(job.rank()));  // of the quick size
      for (const size_t bytes :
           {size_t{0}, made.right_bytes - 1, made.right_bytes, made.right_bytes + 4, size_t{40'000}}) {
        const std::string value(bytes, 'v');
        const bool quickly = (*writer)->append_quickly(key, value);
        EXPECT_TRUE(!quickly || bytes == made.right_bytes) << bytes;
        const Status status = quickly ? Status() : (*writer)->append(key, value);
        EXPECT_EQ(status.ok(), bytes == made.right_bytes) << bytes << ": " << status.to_string();
        if (status.ok()) continue;
        EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
        EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("{} bytes", bytes)));
        EXPECT_THAT(std::string(status.message()), HasSubstr(fmt::format("{}", made.right_bytes)));
      }
    }
    ASSERT_TRUE((*writer)->epoch_end(0, 0).ok());
    ASSERT_TRUE((*writer)->close().ok());
  });
  auto reader = Reader::open(device, kDir, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(*(*reader)->count(0), 50u * static_cast<uint64_t>(made.ranks));
  for (const Status& problem : verify_directory(**reader, 5).problems) ADD_FAILURE() << problem.to_string();
}

INSTANTIATE_TEST_SUITE_P(All, ValueLengthsAreKept,
                         testing::Values(Case{"type:i4;energy:f8", 12, 1, run::ShuffleFormat::kBase},
                                         Case{"type:i4;energy:f8", 12, 3, run::ShuffleFormat::kBase},
                                         Case{"type:i4;_:123", 127, 1, run::ShuffleFormat::kBase},
                                         Case{"type:i4;_:124", 128, 1, run::ShuffleFormat::kBase},
                                         Case{"type:i4;_:4;energy:f8", 16, 2, run::ShuffleFormat::kIndirect},
                                         Case{"type:i4;_:5", 9, 2, run::ShuffleFormat::kIndirect},
                                         Case{"type:i4;energy:f8", 12, 1, run::ShuffleFormat::kIndirect},
                                         Case{"type:i4;energy:f8", 12, 2, run::ShuffleFormat::kLossy},
                                         Case{"type:i4;energy:f8", 12, 1, run::ShuffleFormat::kLossy},
                                         Case{"type:i4;_:16380", 16'384, 2, run::ShuffleFormat::kBase}),
                         name_of);

TEST(ValueLengths, FitIsOneComparison) {
  const ValueLengths any({}, 127);
  const ValueLengths exact(12, 127);
  const ValueLengths none(128, 127);
  for (const size_t bytes :
       {size_t{0}, size_t{11}, size_t{12}, size_t{13}, size_t{127}, size_t{128}, SIZE_MAX - 1}) {
    EXPECT_EQ(any.fit(bytes), bytes <= 127) << bytes;
    EXPECT_EQ(exact.fit(bytes), bytes == 12) << bytes;
    EXPECT_FALSE(none.fit(bytes)) << bytes;
  }
}

// Directories of earlier builds took any length. They stay readable and writable, with the options that they
// were made with.
TEST(ValueLength, ADirectoryWithoutTheRuleTakesAnyLength) {
  io::MemoryDevice device;
  const auto write = [&](const char* schema, size_t bytes, int64_t step) {
    Status status;
    run_ranks(1, [&](net::Job& job) {
      auto writer = Writer::open(job, device, kDir, Writer::Create::kIfMissing,
                                 options_of({schema, 0, 1, run::ShuffleFormat::kBase}));
      status = writer.status();
      if (!writer.ok()) return;
      ASSERT_TRUE((*writer)->append("k", std::string(bytes, 'v')).ok()) << bytes;
      ASSERT_TRUE((*writer)->epoch_end(step, 0).ok());
      ASSERT_TRUE((*writer)->close().ok());
    });
    return status;
  };
  ASSERT_TRUE(write("type:i4;energy:f8;_:*", 3, 0).ok());
  ASSERT_TRUE(write("type:i4;energy:f8", 16, 1).ok()) << "the text that an earlier build was given";
  auto reader = Reader::open(device, kDir, {});
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->manifest().schema.fields_text(), "type:i4;energy:f8;_:*");
  for (const Status& problem : verify_directory(**reader, 5).problems) ADD_FAILURE() << problem.to_string();
}

TEST(ValueLength, AnExactDirectoryStaysExact) {
  io::MemoryDevice device;
  test::TestDirectory written(device, kDir);
  written.manifest.schema = *run::Schema::parse("type:i4;energy:f8", "");
  written.begin_job(1);
  written.write_epoch({{"a", std::string(12, 'v')}});
  run_ranks(1, [&](net::Job& job) {
    const auto writer = Writer::open(job, device, kDir, Writer::Create::kNever,
                                     options_of({"type:i4;energy:f8;_:*", 0, 1, run::ShuffleFormat::kBase}));
    EXPECT_EQ(writer.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(writer.status().message()), HasSubstr("cannot be changed"));
  });
}

TEST(ValueLength, VerifyNamesFileOffsetAndBothLengths) {
  io::MemoryDevice device;
  test::TestDirectory written(device, kDir);
  written.manifest.schema = *run::Schema::parse("type:i4;energy:f8", "");
  written.begin_job(1);
  test::Records records;
  for (int i = 0; i < 1'000; ++i)
    records.emplace_back(test::text_key(i), std::string(i % 10 == 0 ? 16 : 12, 'v'));
  written.write_epoch(records);
  auto reader = Reader::open(device, kDir, {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const VerifyReport report = verify_directory(**reader, 100);
  ASSERT_EQ(report.problems.size(), 1u) << "one cause, one problem";
  const std::string text(report.problems[0].message());
  for (const char* part :
       {"part-000000.j0001.data: offset ", "16 bytes", "describes 12", "_:N", "100 values"})
    EXPECT_THAT(text, HasSubstr(part));
}

}  // namespace
}  // namespace swale::imd::value_length_test
