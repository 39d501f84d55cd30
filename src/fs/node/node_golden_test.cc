// What a node's server leaves for the next one, as this build writes it, is that of tests/golden: the log of
// its files' rows (job-logs-v1), and the log of what roots know (job-logs-v2); and that is read, as is a log
// of roots from before they kept which bytes are loose (job-logs-v1).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fs/node/files_log.h"
#include "fs/node/kept_roots.h"
#include "io/memory_device.h"

namespace swale::fs::node_golden_test {
namespace {

const std::filesystem::path kGolden = SWALE_SOURCE_DIR "/tests/golden";
const std::string kRows = "job-logs-v1/", kOldRoots = "job-logs-v1/", kRoots = "job-logs-v2/";
const meta::FileId kOne{1, 5}, kTwo{2, 0x0000030000000007};
constexpr char kFolder[] = "/state";

std::string golden(const std::string& name) {
  std::ifstream in(kGolden / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void expect_golden(const std::string& name, const std::string& bytes) {
  if (std::getenv("SWALE_REGENERATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories((kGolden / name).parent_path());
    std::ofstream(kGolden / name, std::ios::binary) << bytes;
  }
  const std::string expected = golden(name);
  EXPECT_FALSE(expected.empty()) << name;
  EXPECT_TRUE(expected == bytes) << name << ": the format has changed";
}
// The only log of the folder.
std::string only_log(io::Device& device, std::string* name) {
  const auto names = device.list(kFolder);
  EXPECT_TRUE(names.ok() && names->size() == 1);
  *name = names->front();
  return *io::read_file(device, fmt::format("{}/{}", kFolder, *name), kMiB);
}
void put_golden(io::Device& device, const std::string& of, const std::string& name) {
  ASSERT_TRUE(io::make_directories(device, kFolder).ok());
  ASSERT_TRUE(io::replace_file(device, fmt::format("{}/{}", kFolder, name), golden(of + name)).ok());
}

FileRow row(uint64_t floor) {
  FileRow row;
  row.backing = {2049, 131, 4096, 1'700'000'000'000'000'001};
  row.ours = {2049, 132, 100'000, -7};
  row.floor = floor;
  row.cut(floor + 3, 70'000, true);
  row.cut(floor + 9, 90'000, true);
  return row;
}

TEST(GoldenNode, TheLogOfRowsIsWhatThisBuildWritesAndReads) {
  std::string name;
  {
    io::MemoryDevice device;
    ASSERT_TRUE(io::make_directories(device, kFolder).ok());
    const auto log = FilesLog::open(device, kFolder);
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    ASSERT_TRUE((*log)->put(kOne, row(11), 40).ok());
    ASSERT_TRUE((*log)->put({{kOne, row(12)}, {kTwo, FileRow()}}, 41).ok());
    expect_golden(kRows + "files-1", only_log(device, &name));
  }
  EXPECT_EQ(name, "files-1");
  io::MemoryDevice old;
  put_golden(old, kRows, name);
  const auto read = FilesLog::open(old, kFolder);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->order_max(), 41u);
  EXPECT_EQ((*read)->rows(), (FilesLog::Rows{{kOne, row(12)}, {kTwo, FileRow()}}));
}

ShareRequest commit(NodeId node, uint64_t order, std::vector<Span> spans) {
  ShareRequest request;
  request.op = ShareOp::kCommit;
  request.node = node, request.file = kOne, request.order = order, request.spans = std::move(spans);
  request.backing = {131, 4096, 1'700'000'000'000'000'001};
  return request;
}

void expect_roots(const std::string& of) {
  io::MemoryDevice old;
  put_golden(old, of, "roots-1");
  const auto read = KeptRoots::open(old, kFolder);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const auto known = (*read)->known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].file, kOne);
  EXPECT_EQ(known[0].size, 100'000u);
  EXPECT_EQ(known[0].ours, (SeenBacking{132, 100'000, -7}));
  EXPECT_EQ(known[0].changed, (std::map<NodeId, uint64_t>{{0, 17}, {2, 300}}));
  std::vector<std::pair<Span, NodeId>> parts;
  known[0].parts.visit({0, meta::kOffsetEnd},
                       [&](const Span& span, NodeId node) { parts.emplace_back(span, node); });
  EXPECT_EQ(parts, (std::vector<std::pair<Span, NodeId>>{
                       {{0, 40'000}, 0}, {{40'000, 50'000}, 2}, {{94'016, 100'000}, 2}}));
  if (of == kOldRoots) return;
  EXPECT_EQ(known[0].kept_size, 47'008u);
  std::vector<std::pair<Span, NodeId>> loose;
  known[0].loose.visit({0, meta::kOffsetEnd},
                       [&](const Span& span, NodeId before) { loose.emplace_back(span, before); });
  EXPECT_EQ(loose, (std::vector<std::pair<Span, NodeId>>{
                       {{40'000, 47'008}, 0}, {{47'008, 50'000}, kNobody}, {{94'016, 100'000}, kNobody}}));
}

TEST(GoldenNode, TheLogOfRootsIsWhatThisBuildWritesAndReads) {
  std::string name;
  {
    io::MemoryDevice device;
    const auto roots = KeptRoots::open(device, kFolder);
    ASSERT_TRUE(roots.ok()) << roots.status().to_string();
    ASSERT_TRUE((*roots)->handle(commit(0, 17, {{0, 47'008}})).ok());
    ShareRequest sync = commit(0, 18, {});
    sync.op = ShareOp::kSync;
    ASSERT_TRUE((*roots)->begin_sync(sync).ok());
    ASSERT_TRUE((*roots)->end_sync(kOne, true).ok());
    ASSERT_TRUE((*roots)->handle(commit(2, 300, {{40'000, 50'000}, {94'016, 100'000}})).ok());
    ASSERT_TRUE((*roots)->begin_drain(kOne, {131, 4096, 1'700'000'000'000'000'001}).ok());
    ASSERT_TRUE((*roots)->announce(kOne, {132, 100'000, -7}).ok());
    (*roots)->end_drain(kOne);
    expect_golden(kRoots + "roots-1", only_log(device, &name));
  }
  EXPECT_EQ(name, "roots-1");
  for (const std::string& of : {kOldRoots, kRoots}) expect_roots(of);
}

// A log that is cut anywhere has what was there before the cut, or is refused; never something else.
TEST(GoldenNode, ALogThatIsCutHasLessAndNothingElse) {
  const std::string whole = golden(kRows + "files-1");
  size_t refused = 0, fewer = 0;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    io::MemoryDevice device;
    ASSERT_TRUE(io::make_directories(device, kFolder).ok());
    ASSERT_TRUE(io::replace_file(device, fmt::format("{}/files-1", kFolder), whole.substr(0, bytes)).ok());
    const auto read = FilesLog::open(device, kFolder);
    if (!read.ok()) {
      ++refused;
      continue;
    }
    ++fewer;
    const FilesLog::Rows& rows = (*read)->rows();
    EXPECT_TRUE(rows.empty() || rows == (FilesLog::Rows{{kOne, row(11)}})) << bytes;
  }
  std::printf("cut at %zu places: %zu refused, %zu with less\n", whole.size(), refused, fewer);
  EXPECT_GT(fewer, 0u);
}

}  // namespace
}  // namespace swale::fs::node_golden_test
