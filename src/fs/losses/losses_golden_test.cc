// What recovery without all nodes reads: the log of paths and a node's survey, as this build writes them, are
// those of tests/golden/job-losses-v1, and those are read.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fs/losses/node_survey.h"
#include "fs/node/known_paths.h"
#include "io/memory_device.h"

namespace swale::fs::losses_golden_test {
namespace {

const std::filesystem::path kGolden = SWALE_SOURCE_DIR "/tests/golden/job-losses-v1";
const meta::FileId kShared{1, 5}, kOwn{2, 77}, kDirectory{0, 9};

std::string golden(const std::string& name) {
  std::ifstream in(kGolden / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void expect_golden(const std::string& name, const std::string& bytes) {
  if (std::getenv("SWALE_REGENERATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(kGolden);
    std::ofstream(kGolden / name, std::ios::binary) << bytes;
  }
  const std::string expected = golden(name);
  EXPECT_FALSE(expected.empty()) << name;
  EXPECT_TRUE(expected == bytes) << name << ": the format has changed";
}

NodeSurvey survey() {
  NodeSurvey made;
  made.node = 2, made.nodes = 3, made.tree = 0x1122334455667788, made.job = "job-1";
  made.names.push_back({meta::kRootDirectory, "directory", {kDirectory, meta::NodeType::kDirectory}});
  made.names.push_back({kDirectory, "shared", {kShared, meta::NodeType::kFile}});
  made.files[kShared] = {true, {0, 2}};
  made.files[kOwn];
  FileRoots::Known root;
  root.file = kShared;
  root.size = 100'000, root.backing_end = 4096;
  root.backing = {12, 4096, -1}, root.ours = {13, 100'000, 1'700'000'000'000'000'000};
  root.parts.put({0, 47'008}, 0);
  root.parts.put({47'008, 100'000}, 2);
  root.loose.put({50'000, 100'000}, kNobody);
  root.kept_size = 50'000;
  root.changed[0] = 17, root.changed[2] = 300;
  made.roots.push_back(std::move(root));
  made.logs[kShared].seen = {12, 4096, -1};
  made.logs[kShared].orders.put({47'008, 100'000}, 300);
  made.paths[kShared] = "directory/shared";
  made.has_lost_power = true;
  return made;
}

TEST(GoldenLosses, TheLogOfPathsIsWhatThisBuildWritesAndReads) {
  io::MemoryDevice device;
  {
    const auto paths = KnownPaths::open(device, "/paths");
    ASSERT_TRUE(paths.ok()) << paths.status().to_string();
    ASSERT_TRUE((*paths)->put(kShared, "shared").ok());
    ASSERT_TRUE((*paths)->put(kOwn, "a name of two lines\nand a \"quote\"").ok());
    ASSERT_TRUE((*paths)->put(kShared, "directory/shared").ok());
  }
  const auto names = device.list("/paths");
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 1u);
  expect_golden(names->front(), *io::read_file(device, "/paths/" + names->front(), kMiB));

  io::MemoryDevice old;
  ASSERT_TRUE(io::make_directories(old, "/paths").ok());
  ASSERT_TRUE(io::replace_file(old, "/paths/" + names->front(), golden(names->front())).ok());
  const auto read = KnownPaths::open(old, "/paths");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->paths(), (KnownPaths::Paths{{kShared, "directory/shared"},
                                                 {kOwn, "a name of two lines\nand a \"quote\""}}));
}

TEST(GoldenLosses, ASurveyIsWhatThisBuildWritesAndReads) {
  expect_golden("survey", encode(survey()));
  const auto read = decode_survey(golden("survey"));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->job, "job-1");
  EXPECT_EQ(read->names.at(1).name, "shared");
  EXPECT_EQ(read->files.at(kShared).holders, (std::vector<NodeId>{0, 2}));
  EXPECT_EQ(read->roots.at(0).backing, (SeenBacking{12, 4096, -1}));
  EXPECT_EQ(read->roots.at(0).changed.at(2), 300u);
  EXPECT_EQ(read->roots.at(0).kept_size, 50'000u);
  EXPECT_TRUE(read->has_lost_power);
  EXPECT_EQ(read->logs.at(kShared).seen.inode, 12u);
  EXPECT_EQ(read->paths.at(kShared), "directory/shared");
  EXPECT_EQ(encode(*read), golden("survey"));
}

// Each byte of a survey that is missing is noticed, and so is one too many.
TEST(GoldenLosses, ASurveyThatIsCutIsRefused) {
  const std::string whole = encode(survey());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_EQ(decode_survey(Bytes(whole).substr(0, bytes)).status().code(), Code::kCorruption) << bytes;
  EXPECT_EQ(decode_survey(whole + '\0').status().code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::fs::losses_golden_test
