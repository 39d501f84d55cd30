#include "tools/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/sealed_document.h"
#include "imd/testing/test_directory.h"
#include "io/memory_device.h"
#include "tier/log/log_format.h"

namespace swale::tools::engine_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<InfoReport> made_up_info(const std::string& path) { return InfoReport{{{"path", path}}, "made up"}; }

// An engine that there is not.
constexpr Engine kMadeUp = {.format = "swale-made-up",
                            .directory = "made-up directory",
                            .info = made_up_info,
                            .verify = nullptr,
                            .stats = nullptr,
                            .dump = nullptr,
                            .repair = nullptr};

class Engines : public testing::Test {
 protected:
  Engines() : directory_(device_, "imd") {
    directory_.begin_job(1);
    directory_.write_epoch({{"key", "value"}}, {});
    write("other/swale.json", sealed(R"({"format":"swale-made-up","version":1,)"));
  }

  static std::string sealed(const std::string& text) { return text + "\n" + seal_of(text + "\n"); }

  void write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(io::make_directories(device_, path.substr(0, path.find_last_of('/'))).ok());
    ASSERT_TRUE(io::replace_file(device_, path, text).ok());
  }

  const std::array<Engine, 2> table_ = {kImdEngine, kMadeUp};
  io::MemoryDevice device_;
  imd::test::TestDirectory directory_;
};

TEST_F(Engines, AreFoundByTheFormatOfTheManifest) {
  const auto imd = engine_of(device_, "imd", table_);
  ASSERT_TRUE(imd.ok()) << imd.status().to_string();
  EXPECT_EQ(*imd, &table_[0]);
  for (const char* path : {"other", "other/", "other/swale.json", "other/jobs/0001/epochs"}) {
    const auto other = engine_of(device_, path, table_);
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_EQ(*other, &table_[1]) << path;
  }
  EXPECT_EQ((*engine_of(device_, "other", table_))->info("other")->text, "made up");
}

TEST_F(Engines, AFormatThatIsNotInTheTableIsNamed) {
  const Status status = engine_of(device_, "other").status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("other/swale.json"), HasSubstr("\"swale-made-up\""), HasSubstr("swale-imd")));
}

TEST_F(Engines, ACommandOfOneEngineRefusesAnothersDirectory) {
  EXPECT_TRUE(expect_engine(device_, "imd", kImdEngine, table_).ok());
  const Status status = expect_engine(device_, "other", kImdEngine, table_);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("is a made-up directory; this command is for a massive"));
}

TEST_F(Engines, ATieredWriteBufferIsKnownByWhatLiesInItsDirectories) {
  std::string log(8192, '\0');
  tier::encode_segment_header({.segment_size = 4096, .segment_count = 2}, log);
  write("ssd/log", log);
  write("slow/.swale-tier/log", "log 1\n");
  for (const char* path : {"ssd", "ssd/", "ssd/log", "slow"}) {
    const auto found = engine_of(device_, path);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ((*found)->format, "swale-tier") << path;
  }
  EXPECT_EQ((*engine_of(device_, "slow/.swale-tier/log"))->format, "swale-tier");
  // The canary: a log of something else, and a manifest beside a log.
  write("text/log", std::string(8192, 'x'));
  EXPECT_EQ((*engine_of(device_, "text"))->format, "swale-imd");
  write("imd/log", log);
  EXPECT_EQ((*engine_of(device_, "imd"))->format, "swale-imd");
}

// The first engine says what is wrong, or answers from its other copies.
TEST_F(Engines, AManifestThatIsMissingOrDamagedDecidesNothing) {
  for (const char* text : {"", "{", "[1]", R"({"format":"swale-made-up"})"}) {
    write("odd/swale.json", text);
    EXPECT_EQ(*engine_of(device_, "odd", table_), &table_[0]) << text;
  }
  for (const char* text : {"[1,", R"({"format":7,)", R"({"forms":"swale-made-up",)"}) {
    write("odd/swale.json", sealed(text));
    EXPECT_EQ(*engine_of(device_, "odd", table_), &table_[0]) << text;
  }
  EXPECT_EQ(*engine_of(device_, "nowhere", table_), &table_[0]);
}

}  // namespace
}  // namespace swale::tools::engine_test
