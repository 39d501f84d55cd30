// The shard's files as they are on disk: fixed requests give the bytes of tests/golden/meta-v3, and those
// files are read for ever. SWALE_REGENERATE_GOLDEN=1 writes them anew, which only a change of the format may
// ask for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/rng.h"
#include "io/memory_device.h"
#include "meta/index/shard.h"
#include "meta/index/shard_check.h"

namespace swale::meta::golden_test {
namespace {

const std::filesystem::path kGoldenFolder = SWALE_SOURCE_DIR "/tests/golden/meta-v3";
constexpr FileId kFirst{0x11, 0x22}, kSecond{0x11, 0x33}, kThird{0x12, 1};

ShardOptions golden_options(LoggedTable* table) {
  ShardOptions options;
  options.directory = "/store";
  options.shard = 4;
  options.table = table;
  options.codec = BlockCodec::kFrame;  // bytes of compressors belong to their libraries
  options.relocations_retire = 0;      // a snapshot with a rule
  return options;
}

// Stands for the file attributes.
class Words final : public LoggedTable {
 public:
  Status replay(Bytes record) override {
    words += record;
    return {};
  }
  void for_each_record(const std::function<void(Bytes)>& visit) const override { visit(words); }
  size_t changes() const override { return 0; }
  void keep(size_t) noexcept override {}
  void undo() noexcept override {}

  void say(std::string_view word, Shard* shard) {
    words += word;
    shard->add_record(word);
  }

  std::string words;
};

void put(Shard* shard, uint64_t number, const FileId& file, std::vector<Extent> extents,
         std::vector<meta::Run> runs = {}) {
  const Put put{file, extents, runs, {}};
  ASSERT_TRUE(shard->put({8, number}, std::span(&put, 1)).ok());
  ASSERT_TRUE(shard->commit().ok());
}

// A table, a snapshot with runs, a removed file, a relocation and a client; an attributes file and records
// after it; then a log with each operation.
void make_golden(io::Device* device) {
  ASSERT_TRUE(device->make_directory("/store").ok());
  Words words;
  auto opened = Shard::open(*device, golden_options(&words));
  ASSERT_TRUE(opened.ok());
  Shard* const shard = opened->get();
  Rng rng(17);
  std::vector<Extent> extents;
  for (uint64_t i = 0; i < 300; ++i)
    extents.push_back(
        {rng.below(1000) * 4096, 1 + rng.below(8000), {static_cast<LogId>(rng.below(5)), i * 8192}});
  meta::Run run;
  run.offset = 1 << 24, run.length = 40, run.place = {7, 4096}, run.levels = 2;
  run.level[0] = {10, 100, 40};
  run.level[1] = {20, 4000, 400};
  put(shard, 1, kFirst, extents, {run});
  put(shard, 2, kSecond, {{5, 10, {1, 1}}});
  ASSERT_TRUE(shard->remove({8, 3}, kSecond, 1).ok());
  ASSERT_TRUE(shard->relocate({8, 4}, {3, 0, 1 << 20, {30, 5}}).ok());
  words.say("a long first record of the table, ", shard);
  ASSERT_TRUE(shard->drain().ok());
  words.say("a short one, ", shard);
  ASSERT_TRUE(shard->drain().ok());
  words.say("and one in the log", shard);
  run.offset = 1 << 26;
  put(shard, 5, kFirst, {{77, 3, {2, 500}}}, {run});
  ASSERT_TRUE(shard->truncate({8, 6}, kFirst, 3 << 20, 2).ok());
  ASSERT_TRUE(shard->relocate({8, 7}, {2, 0, 600, {20, 0}}).ok());
  put(shard, 8, kThird, {{5, 10, {1, 1}}});
  ASSERT_TRUE(shard->remove({8, 9}, kThird, 3).ok());
  ASSERT_TRUE(shard->commit().ok());
}

std::vector<Extent> content_of(io::Device& device) {
  std::vector<Extent> extents;
  Words words;
  auto shard = Shard::open(device, golden_options(&words));
  EXPECT_TRUE(shard.ok()) << shard.status().to_string();
  if (!shard.ok()) return extents;
  EXPECT_EQ(words.words, "a long first record of the table, a short one, and one in the log");
  uint64_t next = 0;
  EXPECT_TRUE((*shard)->scan(kFirst, 0, 100'000, nullptr, &extents, &next).ok());
  EXPECT_EQ((*shard)->size(kFirst).size, 3u << 20);
  EXPECT_EQ((*shard)->size(kFirst).generation, 2u);
  for (const FileId& removed : {kSecond, kThird}) {
    Found found;
    const Range range{removed, 0, 100};
    EXPECT_EQ((*shard)->lookup(std::span(&range, 1), 10, &found).code(), Code::kNotFound);
  }
  return extents;
}

TEST(MetaGoldenFiles, AreWhatThisBuildWrites) {
  io::MemoryDevice device;
  make_golden(&device);
  const auto names = device.list("/store");
  size_t files = 0;
  for (const std::string& name : *names) {
    if (name == "shard-000004.claims") continue;  // a folder
    const std::string bytes = *io::read_file(device, "/store/" + name, kGiB);
    if (std::getenv("SWALE_REGENERATE_GOLDEN") != nullptr) {
      std::filesystem::create_directories(kGoldenFolder);
      std::ofstream(kGoldenFolder / name, std::ios::binary) << bytes;
    }
    std::ifstream in(kGoldenFolder / name, std::ios::binary);
    EXPECT_TRUE(std::string(std::istreambuf_iterator<char>(in), {}) == bytes) << name << " differs";
    ++files;
  }
  EXPECT_EQ(*device.list("/store/shard-000004.claims"), std::vector<std::string>{"j0001"});
  EXPECT_EQ(files, 5u);  // manifest, sorted file, snapshot, attributes, log
}

TEST(MetaGoldenFiles, AreRead) {
  io::MemoryDevice expected, golden;
  make_golden(&expected);
  ASSERT_TRUE(golden.make_directory("/store").ok());
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenFolder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    ASSERT_TRUE(io::replace_file(golden, "/store/" + entry.path().filename().string(), bytes).ok());
  }
  const auto found = verify_shard(golden, "/store", 4);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->problems.empty()) << found->problems.front().to_string();
  EXPECT_EQ(found->clients, 1u);
  EXPECT_EQ(found->files, 1u);
  const std::vector<Extent> extents = content_of(golden);
  EXPECT_GT(extents.size(), 100u);
  EXPECT_EQ(extents, content_of(expected));
}

}  // namespace
}  // namespace swale::meta::golden_test
