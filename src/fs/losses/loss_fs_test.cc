// A look at a job's tree without a node: what is left is read, and what is lost is EIO, whatever the backing
// has there.
#include "fs/losses/loss_fs.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "fs/job/job_marks.h"
#include "fs/job/testing/content.h"
#include "fs/job/testing/nodes_world.h"
#include "fs/losses/left_node.h"

namespace swale::fs::loss_fs_test {
namespace {

constexpr NodeId kNodes = 3;
constexpr size_t kBlock = 1'000, kOldBlocks = 9;
constexpr int kFiles = 6;  // of each kind: some have their names on each node

struct Block {
  char byte = 'o';
  std::optional<NodeId> node = {};  // who has written it; none: the backing has it
};
struct Known {
  std::vector<Block> blocks;
  NodeId root = 0;
};

std::string text_of(const std::vector<Block>& blocks, size_t from, size_t count) {
  std::string text;
  for (size_t i = from; i < from + count; ++i) text.append(kBlock, blocks[i].byte);
  return text;
}

class LossFsTest : public testing::Test {
 protected:
  LossFsTest() : world_(kNodes) {}

  void SetUp() override {
    for (const char* const kind : {"old", "there"})
      for (int i = 0; i < kFiles; ++i)
        std::ofstream(there(fmt::format("{}-{}", kind, i))) << std::string(kOldBlocks * kBlock, 'o');
    std::filesystem::create_symlink("old-0", there("link"));
    world_.start();
    for (NodeId node = 0; node < kNodes; ++node)  // of each a directory whose name is there
      for (int i = 0; directories_.size() == node; ++i)
        if (server_of_name(fmt::format("d{}", i)) == node) directories_.push_back(fmt::format("d{}", i));
    for (const std::string& each : directories_) ASSERT_EQ(world_.calls(0).make_directory(each, 0755), 0);
    for (int i = 0; i < kFiles; ++i) {
      for (NodeId node = 0; node < kNodes; ++node) {
        write(node, fmt::format("own-{}-{}", node, i), {0, 1, 2});
        write(node, fmt::format("shared-{}", i), {node, node + 5});
        write((node + i) % kNodes, directories_[node] + fmt::format("/f{}", i), {0, 1});
      }
      write(static_cast<NodeId>(i) % kNodes, fmt::format("old-{}", i), {1, 4});
      write(0, fmt::format("shared-{}", i), {7});  // over node 2's
    }
    ASSERT_EQ(world_.calls(1).set_attribute("shared-1", "user.kept", "value"), 0);
  }

  std::string there(const std::string& path) const { return world_.backing() + "/" + path; }
  static NodeId server_of_name(const std::string& name) {
    return meta::server_of(meta::EntryKey(meta::kRootDirectory, name), kNodes);
  }
  static NodeId server_above(const std::string& path) {
    return server_of_name(path.substr(0, path.find('/')));
  }

  void write(NodeId node, const std::string& path, const std::vector<size_t>& blocks) {
    FileCalls& on = world_.calls(node);
    int handle = -1;
    ASSERT_EQ(on.open(path, O_RDWR | O_CREAT, 0640, &handle), 0) << path;
    auto& known = model_[path];
    if (path.starts_with("old")) known.blocks.resize(kOldBlocks);
    for (const size_t block : blocks) {
      const char byte = static_cast<char>('1' + node);
      ASSERT_EQ(on.write(handle, block * kBlock, std::string(kBlock, byte)), 0);
      while (known.blocks.size() <= block) known.blocks.push_back({'\0'});
      known.blocks[block] = {byte, node};
    }
    struct stat found;
    ASSERT_EQ(on.state(handle, &found), 0);
    known.root = static_cast<NodeId>(found.st_ino >> 52);
    ASSERT_EQ(on.close(handle), 0);
  }

  // What those who are left have of it, in this process.
  struct Left {
    std::vector<std::unique_ptr<LeftNode>> nodes;
    std::vector<NodeSurvey> surveys;
    LossPlan plan;
    std::unique_ptr<io::Device> backing;
    io::Descriptor root;
    std::unique_ptr<LossFs> fs;
    std::unique_ptr<FileSystemCalls> calls;
  };
  void open(NodeId lost, const LossFsRules& rules, Left* left) {
    io::PosixOptions beneath;
    beneath.links = io::PosixOptions::Links::kNone;
    auto anchored = io::PosixDevice(beneath).anchored(world_.backing());
    ASSERT_TRUE(anchored.ok()) << anchored.status().to_string();
    left->backing = *std::move(anchored);
    for (NodeId node = 0; node < kNodes; ++node) {
      if (node == lost) continue;
      LeftNodeOptions options;
      options.job = "test";
      options.names_folder = world_.folder(node) + "/names";
      options.state_folder = world_.state(node);
      options.logs.memory_directory = world_.memory(node);
      options.logs.spill_directory = world_.folder(node) + "/spill";
      options.logs.memory_bytes = world_.memory_bytes;
      options.logs.shape.node = "here";
      auto opened = LeftNode::open(device_, *left->backing, world_.backing(), options);
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      left->surveys.push_back((*opened)->survey());
      left->nodes.push_back(*std::move(opened));
    }
    auto plan = plan_losses(left->surveys, {lost});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    left->plan = *std::move(plan);
    std::vector<LeftDetails> details;
    for (const auto& each : left->nodes) details.push_back(each->details(left->plan));
    left->root = io::Descriptor(::open(world_.backing().c_str(), O_PATH | O_DIRECTORY));
    const auto fetch = [left](NodeId node, const meta::FileId& file, std::span<const LossFs::Wanted> wanted) {
      for (const auto& each : left->nodes)
        if (each->node() == node)
          for (const LossFs::Wanted& part : wanted)
            SWALE_RETURN_IF_ERROR(each->read(file, part.span, part.to));
      return ok_status();
    };
    left->fs = std::make_unique<LossFs>(
        left->plan, left->surveys, std::move(details), *left->backing, fetch,
        LossFsOptions{left->root.get(), world_.backing(), there(".swale/test"), rules});
    left->calls = std::make_unique<FileSystemCalls>(*left->fs);
  }

  static std::string read(FileCalls& on, const std::string& path, size_t from, size_t bytes) {
    int handle = -1;
    std::string out;
    int failed = on.open(path, O_RDONLY, 0, &handle);
    if (failed == 0) failed = on.read(handle, from, bytes, &out);
    EXPECT_TRUE(handle < 0 || on.close(handle) == 0);
    return failed == 0 ? out : std::string("(") + std::strerror(failed) + ")";
  }

  // The first thing that is not as it should be; "": none.
  std::string judge(NodeId lost, FileCalls& on) const {
    const std::string kEio = std::string("(") + std::strerror(EIO) + ")";
    for (const auto& [path, known] : model_) {
      struct stat found;
      const int looked = on.look(path, &found);
      if (known.root == lost || server_above(path) == lost) {
        if (looked != EIO) return fmt::format("{}: its name is lost, and a look gives {}", path, looked);
        continue;
      }
      const size_t blocks = known.blocks.size();
      if (looked != 0) return fmt::format("{}: a look gives {}", path, looked);
      if (static_cast<size_t>(found.st_size) != blocks * kBlock) return path + ": its size";
      if (!path.starts_with("old") && (found.st_mode & 0777) != 0640) return path + ": its mode";
      bool any = false;
      for (size_t i = 0; i < blocks; ++i) {
        const bool is_lost = known.blocks[i].node == lost;
        any = any || is_lost;
        if (read(on, path, i * kBlock, kBlock) != (is_lost ? kEio : text_of(known.blocks, i, 1)))
          return fmt::format("{}: block {}", path, i);
      }
      if (read(on, path, 0, blocks * kBlock) != (any ? kEio : text_of(known.blocks, 0, blocks)))
        return path + ": the whole file";
    }
    for (int i = 0; i < kFiles; ++i) {  // which no program has looked at
      const std::string path = fmt::format("there-{}", i);
      const bool is_lost = server_of_name(path) == lost;
      if (read(on, path, 0, kBlock) != (is_lost ? kEio : std::string(kBlock, 'o'))) return path;
      const std::string absent = fmt::format("absent-{}", i);
      struct stat found;
      if (on.look(absent, &found) != (server_of_name(absent) == lost ? EIO : ENOENT)) return absent;
    }
    return "";
  }

  NodesWorld world_;
  io::PosixDevice device_;
  std::map<std::string, Known> model_;
  std::vector<std::string> directories_;
};

TEST_F(LossFsTest, LostBytesAndNamesAreEioAndAllElseIsReadWhicheverNodeIsLost) {
  world_.stop();
  for (NodeId lost = 0; lost < kNodes; ++lost) {
    Left left;
    ASSERT_NO_FATAL_FAILURE(open(lost, {}, &left));
    EXPECT_EQ(judge(lost, *left.calls), "") << "without node " << lost;
    std::vector<std::string> names;
    EXPECT_EQ(left.calls->list("", &names), 0);
    const std::set<std::string> listed(names.begin(), names.end());
    EXPECT_FALSE(listed.contains(".swale"));
    EXPECT_TRUE(listed.contains("there-0") && listed.contains("link"));
    for (const auto& [path, known] : model_)
      EXPECT_TRUE(known.root == lost || path.find('/') != std::string::npos || listed.contains(path)) << path;
  }
  // Nobody has changed anything: all nodes have all of it.
  world_.start();
  for (const auto& [path, known] : model_)
    EXPECT_EQ(read(world_.calls(1), path, 0, 1 << 20), text_of(known.blocks, 0, known.blocks.size())) << path;
  EXPECT_TRUE(world_.fs(0).drain_everywhere().ok());
}

TEST_F(LossFsTest, OldBytesZerosAndNamesThatNobodyKnowsWouldBeNoticed) {
  world_.stop();
  for (const LossFsRules& rules : {LossFsRules{.fails_lost = false}, LossFsRules{.asks_partition = false}}) {
    Left left;
    ASSERT_NO_FATAL_FAILURE(open(2, rules, &left));
    EXPECT_NE(judge(2, *left.calls), "");
  }
}

// A kill between the change of a name on the backing and in the tree.
TEST_F(LossFsTest, AFileOfTheBackingThatTheJobKnowsByAnotherNameShowsNoOldBytes) {
  world_.stop();
  constexpr NodeId kLost = 2;
  std::string old;  // of which nodes that are left have newer bytes
  for (const auto& [path, known] : model_)
    if (path.starts_with("old") && known.root != kLost) old = path;
  ASSERT_NE(old, "");
  std::string other = "moved-0";
  for (int i = 1; server_of_name(other) == kLost; ++i) other = fmt::format("moved-{}", i);
  std::filesystem::rename(there(old), there(other));
  for (const bool guards : {true, false}) {
    Left left;
    ASSERT_NO_FATAL_FAILURE(open(kLost, {.guards_inodes = guards}, &left));
    struct stat found;
    EXPECT_EQ(left.calls->look(other, &found), guards ? EIO : 0);
    EXPECT_EQ(left.calls->look(old, &found), 0);
    // What was the backing's is nowhere that the job knows.
    EXPECT_EQ(read(*left.calls, old, 0, kBlock), std::string("(") + std::strerror(EIO) + ")");
  }
}

TEST_F(LossFsTest, ABackingFileThatOthersHaveChangedIsNotMixedWithTheJobsBytes) {
  world_.stop();
  constexpr NodeId kLost = 2;
  std::string old;
  for (const auto& [path, known] : model_)
    if (path.starts_with("old") && known.root != kLost && known.blocks[1].node != kLost) old = path;
  ASSERT_NE(old, "");
  std::ofstream(there(old), std::ios::app) << "theirs";
  Left left;
  ASSERT_NO_FATAL_FAILURE(open(kLost, {}, &left));
  EXPECT_EQ(read(*left.calls, old, 0, kBlock), std::string("(") + std::strerror(EIO) + ")");
  EXPECT_EQ(read(*left.calls, old, kBlock, kBlock), text_of(model_[old].blocks, 1, 1));
}

TEST_F(LossFsTest, NothingCanBeChangedAndAttributesAndLinksAreThere) {
  world_.stop();
  const NodeId lost = model_["shared-1"].root == 0 ? 1 : 0;
  Left left;
  ASSERT_NO_FATAL_FAILURE(open(lost, {}, &left));
  FileCalls& on = *left.calls;
  std::string value;
  EXPECT_EQ(on.get_attribute("shared-1", "user.kept", &value), 0);
  EXPECT_EQ(value, "value");
  std::vector<std::string> names;
  EXPECT_EQ(on.list_attributes("shared-1", &names), 0);
  EXPECT_EQ(names, std::vector<std::string>{"user.kept"});
  std::string target;
  EXPECT_EQ(on.read_symlink("link", &target), server_of_name("link") == lost ? EIO : 0);
  int handle = -1;
  EXPECT_EQ(on.open("shared-1", O_RDWR, 0, &handle), EROFS);
  EXPECT_EQ(on.unlink("shared-1"), EROFS);
  EXPECT_EQ(on.set_attribute("shared-1", "user.kept", "other"), EROFS);
  EXPECT_EQ(on.truncate("shared-1", 0), EROFS);
}

}  // namespace
}  // namespace swale::fs::loss_fs_test
