#include "imd/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/crc32c.h"

namespace swale::imd {
namespace {

using testing::HasSubstr;

const std::string kPath = "/dir/swale.json";

Manifest sample() {
  Manifest manifest;
  manifest.jobs = {{"0123456789abcdef", 4, 2, "hash"}, {"fedcba9876543210", 131'072, 1, "hash"}};
  manifest.epochs = {
      {.epoch = 0, .job = 0, .epoch_id = 1, .step = 0, .time = 0, .records = 0, .data_bytes = 0, .digest = 0},
      {.epoch = 1,
       .job = 0,
       .epoch_id = 0xffff'ffff'ffff'ffff,
       .step = -5,
       .time = 0.1,
       .records = 10'000'000'000,
       .data_bytes = uint64_t{1} << 60,
       .digest = 0x8000'0000'0000'0001},
      {.epoch = 2,
       .job = 1,
       .epoch_id = 77,
       .step = std::numeric_limits<int64_t>::max(),
       .time = -1.5e300,
       .records = 1,
       .data_bytes = 9,
       .digest = 3}};
  return manifest;
}

void expect_equal(const Manifest& a, const Manifest& b) {
  ASSERT_EQ(a.jobs.size(), b.jobs.size());
  for (size_t i = 0; i < a.jobs.size(); ++i) {
    EXPECT_EQ(a.jobs[i].id, b.jobs[i].id);
    EXPECT_EQ(a.jobs[i].ranks, b.jobs[i].ranks);
    EXPECT_EQ(a.jobs[i].ways, b.jobs[i].ways);
    EXPECT_EQ(a.jobs[i].partitioner, b.jobs[i].partitioner);
  }
  ASSERT_EQ(a.epochs.size(), b.epochs.size());
  for (size_t i = 0; i < a.epochs.size(); ++i) {
    EXPECT_EQ(a.epochs[i].epoch, b.epochs[i].epoch);
    EXPECT_EQ(a.epochs[i].job, b.epochs[i].job);
    EXPECT_EQ(a.epochs[i].epoch_id, b.epochs[i].epoch_id);
    EXPECT_EQ(a.epochs[i].step, b.epochs[i].step);
    EXPECT_EQ(a.epochs[i].time, b.epochs[i].time);
    EXPECT_EQ(a.epochs[i].records, b.epochs[i].records);
    EXPECT_EQ(a.epochs[i].data_bytes, b.epochs[i].data_bytes);
    EXPECT_EQ(a.epochs[i].digest, b.epochs[i].digest);
  }
}

// The sample with a piece of text replaced and a right checksum again: what a newer or a mistaken writer makes.
std::string edited(const std::string& from, const std::string& to) {
  std::string json = sample().encode();
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  json.replace(at, from.size(), to);
  json.resize(json.rfind("\"crc32c\""));
  return json + fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(json));
}

TEST(Manifest, DecodesWhatItEncodes) {
  const auto decoded = Manifest::decode(sample().encode(), kPath);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  expect_equal(*decoded, sample());
  const auto empty = Manifest::decode(Manifest{}.encode(), kPath);
  ASSERT_TRUE(empty.ok()) << empty.status().to_string();
  EXPECT_TRUE(empty->jobs.empty() && empty->epochs.empty());
}

TEST(Manifest, KeepsTimesThatJsonHasNoNumberFor) {
  Manifest manifest = sample();
  for (const double time : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::denorm_min()}) {
    manifest.epochs[1].time = time;
    EXPECT_EQ(Manifest::decode(manifest.encode(), kPath)->epochs[1].time, time);
  }
  manifest.epochs[1].time = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Manifest::decode(manifest.encode(), kPath)->epochs[1].time));
}

// Golden: the format of version 1 to the byte.
TEST(Manifest, IsReadableAndStaysAsItIs) {
  Manifest manifest;
  manifest.jobs = {{"0123456789abcdef", 2, 1, "hash"}};
  manifest.epochs = {{.epoch = 0,
                      .job = 0,
                      .epoch_id = 0xabc,
                      .step = 100,
                      .time = 0.5,
                      .records = 7,
                      .data_bytes = 336,
                      .digest = 0x1f}};
  EXPECT_EQ(
      manifest.encode(),
      "{\"format\":\"swale-imd\",\"version\":1,\"incompatible_features\":[],\"hash\":\"xxh3-64\","
      "\"digest\":\"mum-row-sum\",\n"
      "\"jobs\":[\n"
      "{\"id\":\"0123456789abcdef\",\"ranks\":2,\"ways\":1,\"partitioner\":\"hash\"}\n"
      "],\n"
      "\"epochs\":[\n"
      "{\"epoch\":0,\"job\":0,\"epoch_id\":\"0000000000000abc\",\"step\":100,\"time\":0.5,\"records\":7,"
      "\"data_bytes\":336,\"digest\":\"000000000000001f\"}\n"
      "],\n"
      "\"crc32c\":\"46d61837\"}\n");
}

TEST(Manifest, EveryFlippedBitIsAnErrorThatNamesTheFile) {
  const std::string json = sample().encode();
  for (size_t at = 0; at < json.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = json;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const auto decoded = Manifest::decode(damaged, kPath);
      ASSERT_FALSE(decoded.ok()) << "byte " << at << " bit " << bit;
      ASSERT_EQ(decoded.status().code(), Code::kCorruption);
      ASSERT_THAT(std::string(decoded.status().message()), HasSubstr(kPath));
    }
  }
}

TEST(Manifest, EveryShorterFileIsAnError) {
  const std::string json = sample().encode();
  for (size_t bytes = 0; bytes < json.size(); ++bytes) {
    EXPECT_EQ(Manifest::decode(json.substr(0, bytes), kPath).status().code(), Code::kCorruption) << bytes;
  }
  EXPECT_EQ(Manifest::decode(json + "\n", kPath).status().code(), Code::kCorruption);
}

TEST(Manifest, KeepsTheSchema) {
  Manifest manifest = sample();
  manifest.schema = *run::Schema::parse("id:u8;v:f4x3:m/s;_:u1x3;e:f8:J", "e;v[1]");
  const std::string json = manifest.encode();
  EXPECT_NE(
      json.find("\n\"schema\":{\"fields\":[{\"name\":\"id\",\"type\":\"u8\",\"count\":1,\"unit\":\"\"},"),
      std::string::npos);
  EXPECT_NE(json.find("],\"extrema\":[\"e\",\"v[1]\"]},\n\"jobs\""), std::string::npos);
  const auto decoded = Manifest::decode(json, kPath);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->schema, manifest.schema);
  EXPECT_TRUE(sample().schema.empty());
}

TEST(Manifest, RefusesASchemaThatCannotBe) {
  const auto code_of = [](const std::string& schema) {
    return Manifest::decode(edited("\"jobs\"", "\"schema\":" + schema + ",\"jobs\""), kPath).status().code();
  };
  const std::string x = R"({"name":"x","type":"f8","count":1,"unit":""})";
  EXPECT_EQ(code_of(fmt::format(R"({{"fields":[{}],"extrema":["x"],"later":1}})", x)), Code::kOk);
  EXPECT_EQ(code_of(R"({"fields":[{"name":"x","type":"f16","count":1,"unit":""}],"extrema":[]})"),
            Code::kUnsupported);
  EXPECT_EQ(code_of(R"({"fields":[{"name":"x","type":"f8","count":0,"unit":""}],"extrema":[]})"),
            Code::kCorruption);
  EXPECT_EQ(code_of(R"({"fields":[{"type":"f8","count":1,"unit":""}],"extrema":[]})"), Code::kCorruption);
  EXPECT_EQ(code_of(fmt::format(R"({{"fields":[{},{}],"extrema":[]}})", x, x)), Code::kCorruption);
  EXPECT_EQ(code_of(fmt::format(R"({{"fields":[{}],"extrema":["y"]}})", x)), Code::kCorruption);
  EXPECT_EQ(code_of(fmt::format(R"({{"fields":[{}],"extrema":[1]}})", x)), Code::kCorruption);
  EXPECT_EQ(code_of("7"), Code::kCorruption);
}

TEST(Manifest, ToleratesMembersThatItDoesNotKnow) {
  const auto decoded = Manifest::decode(edited("\"jobs\"", "\"palette\":{\"a\":[1,null]},\"jobs\""), kPath);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  expect_equal(*decoded, sample());
  EXPECT_TRUE(Manifest::decode(edited("\"step\":-5", "\"wall\":\"noon\",\"step\":-5"), kPath).ok());
}

TEST(Manifest, RefusesWhatANewerBuildWrote) {
  for (const auto& [from, to] :
       {std::pair{"\"version\":1", "\"version\":2"},
        std::pair{"\"incompatible_features\":[]", "\"incompatible_features\":[\"braids\"]"},
        std::pair{"xxh3-64", "xxh4-64"}, std::pair{"mum-row-sum", "sum"}}) {
    const Status status = Manifest::decode(edited(from, to), kPath).status();
    EXPECT_EQ(status.code(), Code::kUnsupported) << to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath));
    EXPECT_THAT(std::string(status.message()), HasSubstr("newer"));
  }
}

TEST(Manifest, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> edits[] = {
      {"\"format\":\"swale-imd\"", "\"format\":\"swale-tier\""},
      {"\"format\":\"swale-imd\",", ""},
      {"\"version\":1", "\"version\":0"},
      {"\"version\":1", "\"version\":1.5"},
      {"\"incompatible_features\":[]", "\"incompatible_features\":0"},
      {"\"ranks\":4", "\"ranks\":0"},
      {"\"ranks\":4", "\"ranks\":16777217"},
      {"\"ranks\":4", "\"ranks\":-4"},
      {"\"ways\":2", "\"ways\":65536"},
      {"\"ways\":2", "\"ways\":\"2\""},
      {"0123456789abcdef", "0123456789abcde"},
      {"0123456789abcdef", "0123456789ABCDEF"},
      {"0123456789abcdef", "0x23456789abcdef"},
      {"\"epoch\":1", "\"epoch\":3"},
      {"\"epoch\":1", "\"epoch\":0"},
      {"\"job\":1", "\"job\":2"},
      {"\"job\":1", "\"job\":-1"},
      {"\"epoch_id\":\"000000000000004d\"", "\"epoch_id\":77"},
      {"\"epoch_id\":\"000000000000004d\"", "\"epoch_id\":\"ffffffffffffffff\""},
      {"\"step\":-5", "\"step\":9223372036854775808"},
      {"\"step\":-5", "\"step\":0.5"},
      {"\"time\":0.1", "\"time\":\"soon\""},
      {"\"time\":0.1", "\"time\":null"},
      {"\"records\":1,", "\"records\":-1,"},
      {"\"records\":1,", "\"records\":18446744073709551616,"},
      {"\"data_bytes\":9,", ""},
      {"\"jobs\":[", "\"jobs\":[7,"},
      {"\"epochs\":[", "\"epochs\":[[],"},
      {"\"epochs\":[",
       "\"epochs\":["  // canary, see below
       "{"},
  };
  for (const auto& [from, to] : edits) {
    const Status status = Manifest::decode(edited(from, to), kPath).status();
    EXPECT_EQ(status.code(), Code::kCorruption) << from << " -> " << to << ": " << status.to_string();
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath)) << to;
    EXPECT_THAT(std::string(status.message()), testing::ContainsRegex("line [0-9]+, offset [0-9]+")) << to;
  }
  const std::string json = edited("\"step\":-5", "\"step\":0.5");
  const size_t at = json.find("\"step\":0.5");
  const auto line = 1 + std::count(json.begin(), json.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  EXPECT_THAT(std::string(Manifest::decode(json, kPath).status().message()),
              HasSubstr(fmt::format("(line {}, offset {})", line, at)));
  EXPECT_TRUE(Manifest::decode(edited("\"ranks\":4", "\"ranks\":5"), kPath).ok())
      << "edited() itself is at fault";
}

TEST(Manifest, NamesPartitionsInFoldersOfAThousand) {
  EXPECT_EQ(data_log_path("/d", 0), "/d/p000/part-000000.data");
  EXPECT_EQ(index_log_path("/d", 1023), "/d/p000/part-001023.index");
  EXPECT_EQ(index_log_path("/d", 1024), "/d/p001/part-001024.index");
  EXPECT_EQ(data_log_path("/d", 131'071), "/d/p127/part-131071.data");
}

}  // namespace
}  // namespace swale::imd
