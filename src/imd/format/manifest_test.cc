#include "imd/format/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/sealed_document.h"

namespace swale::imd::manifest_test {
namespace {

using testing::HasSubstr;

const std::string kPath = "/dir/swale.json";

Manifest sample() {
  Manifest manifest;
  manifest.generation = 7;
  manifest.continues = 4;
  manifest.closed = true;
  manifest.epochs_promised = 10;
  manifest.jobs = {{4, "0123456789abcdef", 4, 2, "hash"}, {7, "fedcba9876543210", 131'072, 1, "hash"}};
  manifest.lost = {{77, PartitionNumber(3), "2 of 5 runs of part-000003.j0004.data"}};
  return manifest;
}

void expect_equal(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.continues, b.continues);
  EXPECT_EQ(a.closed, b.closed);
  EXPECT_EQ(a.epochs_promised, b.epochs_promised);
  ASSERT_EQ(a.jobs.size(), b.jobs.size());
  for (size_t i = 0; i < a.jobs.size(); ++i) {
    EXPECT_EQ(a.jobs[i].number, b.jobs[i].number);
    EXPECT_EQ(a.jobs[i].id, b.jobs[i].id);
    EXPECT_EQ(a.jobs[i].ranks, b.jobs[i].ranks);
    EXPECT_EQ(a.jobs[i].ways, b.jobs[i].ways);
    EXPECT_EQ(a.jobs[i].partitioner, b.jobs[i].partitioner);
  }
  EXPECT_EQ(a.lost, b.lost);
}

// The sample with a piece of text replaced and a right checksum again: what a newer or a mistaken writer
// makes.
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

// Golden: the format of version 1 to the byte.
TEST(Manifest, IsReadableAndStaysAsItIs) {
  Manifest manifest;
  manifest.generation = 1;
  manifest.epochs_promised = 3;
  manifest.jobs = {{1, "0123456789abcdef", 2, 1, "hash"}};
  EXPECT_EQ(manifest.encode(),
            "{\"format\":\"swale-imd\",\"version\":1,\"incompatible_features\":[],\"hash\":\"xxh3-64\","
            "\"digest\":\"mum-row-sum\",\n"
            "\"generation\":1,\"continues\":0,\"closed\":false,\"epochs\":3,\n"
            "\"jobs\":[\n"
            "{\"number\":1,\"id\":\"0123456789abcdef\",\"ranks\":2,\"ways\":1,\"partitioner\":\"hash\"}\n"
            "],\n"
            "\"crc32c\":\"e469bc9a\"}\n");
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
  EXPECT_NE(json.find("],\"extrema\":[\"e\",\"v[1]\"],\"lengths\":\"exact\"},\n\"jobs\""), std::string::npos);
  const auto decoded = Manifest::decode(json, kPath);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->schema, manifest.schema);
  manifest.schema.any_length = true;
  const std::string any = manifest.encode();
  EXPECT_EQ(any.find("lengths"), std::string::npos) << "as earlier builds wrote it";
  EXPECT_EQ(Manifest::decode(any, kPath)->schema, manifest.schema);
  std::string newer = json.substr(0, json.size() - kSealBytes);
  newer.replace(newer.find("\"exact\""), 7, "\"at_least\"");
  EXPECT_EQ(Manifest::decode(newer + seal_of(newer), kPath).status().code(), Code::kUnsupported);
  EXPECT_TRUE(sample().schema.empty());
  EXPECT_FALSE(decoded->schema.key.has_value());
  for (const run::KeyType key :
       {run::KeyType::kBytes, run::KeyType::kText, run::KeyType::kU64, run::KeyType::kI64}) {
    manifest.schema.key = key;
    const auto told = Manifest::decode(manifest.encode(), kPath);
    ASSERT_TRUE(told.ok()) << told.status().to_string();
    EXPECT_EQ(told->schema, manifest.schema);
  }
  for (const auto& [key, code] :
       {std::pair{"\"u128\"", Code::kUnsupported}, std::pair{"7", Code::kCorruption}}) {
    const auto odd = Manifest::decode(edited("\"jobs\"", fmt::format("\"key\":{},\"jobs\"", key)), kPath);
    EXPECT_EQ(odd.status().code(), code) << key;
  }
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
  EXPECT_TRUE(Manifest::decode(edited("\"ranks\":4", "\"wall\":\"noon\",\"ranks\":4"), kPath).ok());
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
  const Status another =
      Manifest::decode(edited("\"format\":\"swale-imd\"", "\"format\":\"swale-tier\""), kPath).status();
  EXPECT_EQ(another.code(), Code::kInvalidArgument) << "of another engine, and whole";
  EXPECT_THAT(std::string(another.message()),
              HasSubstr(std::string(kPath) + ": is a document of the format \"swale-tier\""));
  const std::pair<const char*, const char*> edits[] = {
      {"\"format\":\"swale-imd\",", ""},
      {"\"version\":1", "\"version\":0"},
      {"\"version\":1", "\"version\":1.5"},
      {"\"incompatible_features\":[]", "\"incompatible_features\":0"},
      {"\"ranks\":4", "\"ranks\":0"},
      {"\"ranks\":4", "\"ranks\":16777217"},
      {"\"ranks\":4", "\"ranks\":-4"},
      {"\"ways\":2", "\"ways\":65536"},
      {"\"partitioner\":\"hash\"", "\"partitioner\":\"../../x\""},
      {"\"partitioner\":\"hash\"", "\"partitioner\":\"\""},
      {"\"partitioner\":\"hash\"", "\"partitioner\":\"two words\""},
      {"\"partitioner\":\"hash\"", "\"partitioner\":\"a\\u0000b\""},
      {"\"partitioner\":\"hash\"",
       "\"partitioner\":\"a2345678901234567890123456789012345678901234567890123456789012345\""},
      {"\"ways\":2", "\"ways\":\"2\""},
      {"0123456789abcdef", "0123456789abcde"},
      {"0123456789abcdef", "0123456789ABCDEF"},
      {"0123456789abcdef", "0x23456789abcdef"},
      {"\"generation\":7", "\"generation\":65536"},
      {"\"continues\":4", "\"continues\":8"},
      {"\"closed\":true", "\"closed\":1"},
      {"\"epochs\":10", "\"epochs\":-1"},
      {"\"number\":7", "\"number\":4"},
      {"\"number\":7", "\"number\":3"},
      {"\"epoch_id\":\"000000000000004d\"", "\"epoch_id\":77"},
      {"\"partition\":3", "\"partition\":0.5"},
      {"\"jobs\":[", "\"jobs\":[7,"},
      {"\"lost\":[", "\"lost\":[[],"},
      {"\"lost\":[",
       "\"lost\":["  // canary, see below
       "{"},
  };
  for (const auto& [from, to] : edits) {
    const Status status = Manifest::decode(edited(from, to), kPath).status();
    EXPECT_EQ(status.code(), Code::kCorruption) << from << " -> " << to << ": " << status.to_string();
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath)) << to;
    EXPECT_THAT(std::string(status.message()), testing::ContainsRegex("line [0-9]+, offset [0-9]+")) << to;
  }
  const std::string json = edited("\"ranks\":4", "\"ranks\":0.5");
  const size_t at = json.find("\"ranks\":0.5");
  const auto line = 1 + std::count(json.begin(), json.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  EXPECT_THAT(std::string(Manifest::decode(json, kPath).status().message()),
              HasSubstr(fmt::format("(line {}, offset {})", line, at)));
  EXPECT_TRUE(Manifest::decode(edited("\"ranks\":4", "\"ranks\":5"), kPath).ok())
      << "edited() itself is at fault";
}

// A parser that recurses ends the process here, and so does one that copies or prints what it has found.
TEST(Manifest, RefusesWhatIsNestedDeeply) {
  const size_t depths[] = {40, 1'000, 200'000};
  for (const size_t depth : depths) {
    const std::string nested = std::string(depth, '[') + std::string(depth, ']');
    const std::string objects = [&] {
      std::string text;
      for (size_t i = 0; i < depth; ++i) text += "{\"a\":";
      return text + "0" + std::string(depth, '}');
    }();
    for (const std::string& value : {nested, objects, std::string(depth, '[')}) {
      for (const auto& [from, to] :
           {std::pair{"\"jobs\"", "\"palette\":" + value + ",\"jobs\""},
            std::pair{"\"ranks\":4", "\"ranks\":" + value},
            std::pair{"\"incompatible_features\":[]", "\"incompatible_features\":[" + value + "]"}}) {
        const Status status = Manifest::decode(edited(from, to), kPath).status();
        EXPECT_EQ(status.code(), Code::kCorruption) << depth;
        EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr(kPath), HasSubstr("32 deep")));
        EXPECT_LT(status.message().size(), 1'000u);
      }
    }
  }
}

// Epochs of these steps; none: recovered, kPartial or kWhole.
Manifest with_steps(const std::vector<std::optional<int64_t>>& steps, Recovered recovered) {
  Manifest manifest;
  for (const std::optional<int64_t> step : steps) {
    EpochEntry& epoch = manifest.epochs.emplace_back();
    epoch.step = step.value_or(kStepUnknown);
    epoch.recovered = step ? Recovered::kNo : recovered;
  }
  return manifest;
}

// The step of an unfinished epoch is unknown, but those of the epochs behind it are not.
TEST(Manifest, DropsNoSmallerStepBehindAPartialEpoch) {
  for (const auto& [steps, step, left] : {
           std::tuple<std::vector<std::optional<int64_t>>, int64_t, size_t>{{0, 10, {}, 20, 30}, 20, 4},
           {{0, 10, {}, 20, 30}, 100, 5},
           {{0, 10, {}, 20, 30}, 10, 2},
           {{0, 10, {}, 20, 30}, 0, 1},
           {{0, 10, {}, {}, 20, {}, 30}, 29, 5},
           {{0, 10, {}, {}}, 10, 2},
           {{{}, 10}, 5, 0},
           {{}, 5, 0},
       }) {
    Manifest manifest = with_steps(steps, Recovered::kPartial);
    const auto dropped = manifest.drop_after(step);
    ASSERT_TRUE(dropped.ok()) << dropped.status().to_string();
    EXPECT_EQ(manifest.epochs.size(), left) << step;
    EXPECT_EQ(*dropped, steps.size() - left) << step;
  }
}

TEST(Manifest, DropsNothingIfNobodyKnowsWhatWouldStay) {
  Manifest manifest = with_steps({0, {}, 20, 30}, Recovered::kWhole);
  for (const int64_t step : {0, 20, 30})
    EXPECT_EQ(manifest.drop_after(step).status().code(), Code::kInvalidArgument) << step;
  EXPECT_EQ(manifest.epochs.size(), 4u);
  EXPECT_EQ(manifest.drop_after(-1).value(), 4u);
}

TEST(Manifest, KnowsItsLastStepBehindWhichNoStepIsKnown) {
  EXPECT_EQ(with_steps({}, Recovered::kNo).last_step(), std::nullopt);
  EXPECT_EQ(with_steps({{}, {}}, Recovered::kPartial).last_step(), std::nullopt);
  EXPECT_EQ(with_steps({0, 10, {}, {}}, Recovered::kPartial).last_step(), 10);
  EXPECT_EQ(with_steps({0, {}, 20}, Recovered::kWhole).last_step(), 20);
}

TEST(LogNames, ArePartitionAndJobInFoldersOfAThousand) {
  EXPECT_EQ(data_log_path("/d", {1, PartitionNumber(0)}), "/d/p000/part-000000.j0001.data");
  EXPECT_EQ(index_log_path("/d", {12, PartitionNumber(1023)}), "/d/p000/part-001023.j0012.index");
  EXPECT_EQ(index_log_path("/d", {1, PartitionNumber(1024)}), "/d/p001/part-001024.j0001.index");
  EXPECT_EQ(value_log_path("/d", {65'535, PartitionNumber(131'071)}), "/d/p127/part-131071.j65535.values");
}

}  // namespace
}  // namespace swale::imd::manifest_test
