#include "base/config.h"

#include <gmock/gmock.h>

#include <map>

#include "base/bytes.h"
#include "base/nearest.h"

namespace swale::config_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr OptionRow kRows[] = {
    {"imd.ways", OptionType::kInt, "1", 1, 16, {}, "indexers per rank"},
    {"imd.memory", OptionType::kBytes, "64MiB", 1.0 * kMiB, 1024.0 * kGiB, {}, "memory of the pipeline"},
    {"net.silence_s", OptionType::kSeconds, "30", 0.001, 3600, {}, "how long a peer may be silent"},
    {"net.shared", OptionType::kBool, "yes", 0, 0, {}, "use shared memory"},
    {"job.rendezvous", OptionType::kString, "", 0, 0, {}, "rendezvous directory"},
    {"net.route", OptionType::kEnum, "direct", 0, 0, "direct|three_hop", "route of frames"},
};

Config::GetEnvironment environment(std::map<std::string, std::string> variables = {}) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Result<Config> make(std::string_view text) { return Config::make(kRows, text, environment()); }

std::string failure(std::string_view text) {
  const Result<Config> config = make(text);
  EXPECT_FALSE(config.ok()) << text;
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument) << text;
  return std::string(config.status().message());
}

TEST(Config, HasItsDefaults) {
  const Config config = make("").value();
  EXPECT_EQ(config.get_int("imd.ways"), 1);
  EXPECT_EQ(config.get_bytes("imd.memory"), 64 * kMiB);
  EXPECT_EQ(config.get_nanos("net.silence_s"), seconds(30));
  EXPECT_TRUE(config.get_bool("net.shared"));
  EXPECT_EQ(config.get_string("job.rendezvous"), "");
  EXPECT_EQ(config.get_string("net.route"), "direct");
}

TEST(Config, StringIsSplitAtCommasAndWhiteSpace) {
  const Config config =
      make(" imd.ways=4,imd.memory=2G\tnet.route=three_hop,,\n job.rendezvous=/tmp/a=b ").value();
  EXPECT_EQ(config.get_int("imd.ways"), 4);
  EXPECT_EQ(config.get_bytes("imd.memory"), 2 * kGiB);
  EXPECT_EQ(config.get_string("net.route"), "three_hop");
  EXPECT_EQ(config.get_string("job.rendezvous"), "/tmp/a=b");
}

TEST(Config, StringWinsOverEnvironmentOverDefault) {
  const auto variables = environment({{"SWALE_IMD_WAYS", "2"}, {"SWALE_NET_SILENCE_S", "5"}});
  const Config config = Config::make(kRows, "imd.ways=3", variables).value();
  EXPECT_EQ(config.get_int("imd.ways"), 3);
  EXPECT_EQ(config.get_nanos("net.silence_s"), seconds(5));
}

TEST(Config, TellsWhereAValueComesFrom) {
  const auto config = Config::make(kRows, "imd.ways=2", [](const char* name) -> const char* {
    return std::string_view(name) == "SWALE_IMD_MEMORY" ? "8M" : nullptr;
  });
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->origin("imd.ways"), Config::Origin::kText);
  EXPECT_EQ(config->text("imd.ways"), "2");
  EXPECT_EQ(config->origin("imd.memory"), Config::Origin::kEnvironment);
  EXPECT_EQ(config->text("imd.memory"), "8M");
}

TEST(Config, ReadsUnits) {
  const std::map<std::string, uint64_t> sizes = {{"1048576", kMiB},     {"1024K", kMiB},
                                                 {"2048KiB", 2 * kMiB}, {"1.5M", 3 * kMiB / 2},
                                                 {"3MB", 3 * kMiB},     {"1T", 1024 * kGiB}};
  for (const auto& [text, bytes] : sizes)
    EXPECT_EQ(make("imd.memory=" + text).value().get_bytes("imd.memory"), bytes) << text;
  const std::map<std::string, Nanos> times = {{"0.25", 250'000'000},
                                              {"7ms", 7'000'000},
                                              {"1500us", 1'500'000},
                                              {"2s", seconds(2)},
                                              {"1min", seconds(60)}};
  for (const auto& [text, nanos] : times)
    EXPECT_EQ(make("net.silence_s=" + text).value().get_nanos("net.silence_s"), nanos) << text;
  for (const std::string text : {"no", "false", "off", "0"})
    EXPECT_FALSE(make("net.shared=" + text).value().get_bool("net.shared"));
}

TEST(Config, RefusesBadValuesWithNameValueAndLimits) {
  EXPECT_THAT(failure("imd.ways=17"), AllOf(HasSubstr("imd.ways=17"), HasSubstr("an integer from 1 to 16")));
  EXPECT_THAT(failure("imd.memory=1K"), HasSubstr("from 1MiB to 1024GiB"));
  EXPECT_THAT(failure("net.route=fast"), HasSubstr("one of direct|three_hop"));
  EXPECT_THAT(failure("net.shared=maybe"), HasSubstr("yes or no"));
  for (const char* text :
       {"imd.ways=", "imd.ways=x", "imd.ways=1.5", "imd.ways=2K", "imd.ways=nan", "imd.ways=-1",
        "imd.memory=inf", "imd.memory=64Q", "imd.memory=1e300", "net.silence_s=0", "net.silence_s=5days",
        "net.route=", "net.route=direct|three_hop"})
    failure(text);
}

TEST(Config, UnknownNameGetsTheNearestOne) {
  EXPECT_THAT(failure("imd.way=2"), AllOf(HasSubstr("'imd.way'"), HasSubstr("nearest is imd.ways")));
  EXPECT_THAT(failure("rute=direct"), HasSubstr("nearest is net.route"));
  EXPECT_THAT(failure("imd.ways"), HasSubstr("expected name=value"));
  failure("=3");
}

TEST(Nearest, IsTheWordWithTheFewestChanges) {
  constexpr std::string_view kWords[] = {"get", "scan", "stats"};
  EXPECT_EQ(nearest("gett", kWords), "get");
  EXPECT_EQ(nearest("stat", kWords), "stats");
  EXPECT_EQ(nearest("", kWords), "get");
  EXPECT_EQ(nearest(std::string(1'000'000, 's'), kWords), "stats");
  EXPECT_EQ(nearest("get", {}), "");
}

TEST(Config, RefusesBadEnvironmentAndNamesTheVariable) {
  const Result<Config> config = Config::make(kRows, "imd.ways=2", environment({{"SWALE_IMD_WAYS", "many"}}));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("SWALE_IMD_WAYS"));
}

TEST(Config, RefusesEndlessText) { failure(std::string(Config::kTextBytesMax + 1, ' ')); }

}  // namespace
}  // namespace swale::config_test
