// SharedFiles: three nodes with real logs and one root, which they reach by calls: the rows of the table of
// visibility, random calls against arrays of bytes, and servers that are killed.
#include "fs/node/shared_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "base/rng.h"
#include "fs/node/testing/node_rig.h"

namespace swale::fs::shared_files_test {
namespace {

constexpr uint32_t kNodes = 3;
const char kOld[] = "0123456789ab";  // what the backing has

class SharedFilesTest : public testing::Test {
 protected:
  struct Node {
    Folder memory{memory_base()}, storage{testing::TempDir()};
    Mutex mutex;
    std::unique_ptr<SharedFiles> shared;
    std::unique_ptr<NodeFiles> files;
    LogWriter writer;
    bool attached = false;
  };
  class Peers final : public SharePeers {
   public:
    explicit Peers(SharedFilesTest& test) : test_(test) {}
    Result<ShareAnswer> ask(const ShareRequest& request) override {
      std::function<void()> crossing;
      const auto answer = handle(request, &crossing);
      if (crossing) crossing();
      if (test_.lose_answers) return Status(Code::kDeadlineExceeded, Scope::kOperation, "no answer");
      return answer;
    }
    Status fetch(NodeId node, const meta::FileId& file, std::span<const Wanted> wanted) override {
      ++test_.fetches;
      for (const Wanted& each : wanted)
        SWALE_RETURN_IF_ERROR(test_.nodes[node].shared->serve(file, std::span(&each.span, 1), each.to));
      return {};
    }
    Status take_back(const meta::FileId& file, const std::vector<ShareHold>& holds) override {
      for (const ShareHold& each : holds) test_.nodes[each.node].shared->let_go(file);
      return {};
    }
    Status commit_at(const meta::FileId& file, const std::vector<ShareHold>& holds) override {
      ++test_.commits_asked;
      for (const ShareHold& each : holds) SWALE_RETURN_IF_ERROR(test_.nodes[each.node].shared->commit(file));
      return {};
    }

   private:
    Result<ShareAnswer> handle(const ShareRequest& request, std::function<void()>* crossing) {
      const MutexLock lock(mutex_);
      std::swap(*crossing, test_.before_answer);
      if (test_.stale && request.op == ShareOp::kLook && test_.last_look) return *test_.last_look;
      SWALE_ASSIGN_OR_RETURN(const ShareRequest sent, decode_share_request(encode(request)));
      std::string record;
      SWALE_ASSIGN_OR_RETURN(const ShareAnswer answer, test_.root->handle(sent, &record));
      if (!record.empty()) test_.records.push_back(record);
      if (request.op == ShareOp::kLook) test_.last_look = answer;
      return decode_share_answer(encode(answer));
    }

    SharedFilesTest& test_;
    Mutex mutex_;
  };

  SharedFilesTest() {
    EXPECT_TRUE(disk_.make_directory("/b").ok());
    EXPECT_TRUE(disk_.sync_directory("/").ok());
    put_file(disk_, "/b/file", kOld);
    backing_.names[kFile] = "file";
    start_root();
    for (NodeId i = 0; i < kNodes; ++i) start(i);
  }
  void start_root() {
    root = std::make_unique<FileRoots>(rules);
    for (const std::string& record : records) ASSERT_TRUE(root->replay(record).ok());
  }
  // The server of a node, again: what it did not close is as a kill leaves it.
  void start(NodeId id) {
    Node& node = nodes[id];
    node.files.reset();
    node.shared = std::make_unique<SharedFiles>(id, peers_, node.mutex, rules);
    NodeLogsOptions options;
    options.memory_directory = node.memory.path() + "/node";
    options.spill_directory = node.storage.path() + "/spill";
    options.memory_bytes = 16 * options.shape.chunk_bytes;
    options.shape.node = "here";
    auto files = NodeFiles::open(device_, device_, options, backing_, node.shared.get());
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    node.files = std::move(*files);
    node.shared->start(node.files.get());
    ASSERT_TRUE(node.files->open_file(kFile).ok());
    if (std::exchange(node.attached, true)) return;
    const auto log = node.files->logs().add_log();
    ASSERT_TRUE(log.ok());
    ASSERT_EQ(node.writer.attach(options.memory_directory.c_str(), *log), 0);
  }
  void write(NodeId node, uint64_t offset, const std::string& bytes) {
    ASSERT_EQ(nodes[node].writer.write(kFile, offset, bytes.data(), bytes.size()),
              static_cast<int64_t>(bytes.size()));
  }
  void commit(NodeId node) {
    const Status done = nodes[node].shared->commit(kFile);
    ASSERT_TRUE(done.ok()) << done.to_string();
  }
  std::string read(NodeId node, uint64_t offset = 0, size_t bytes = 1000) {
    std::string out(bytes, '?');
    const auto got = nodes[node].shared->read(kFile, offset, out);
    return got.ok() ? out.substr(0, *got) : "(" + std::string(got.status().message()) + ")";
  }
  uint64_t size(NodeId node) {
    const auto size = nodes[node].shared->size(kFile);
    EXPECT_TRUE(size.ok()) << size.status().to_string();
    return size.ok() ? *size : 0;
  }

  io::PosixDevice device_;
  io::MemoryDevice disk_;
  NamedBacking backing_{disk_, "/b"};
  Peers peers_{*this};

 public:
  Node nodes[kNodes];
  std::unique_ptr<FileRoots> root;
  std::vector<std::string> records;
  std::optional<ShareAnswer> last_look;
  bool stale = false;                   // looks get the last answer
  bool lose_answers = false;            // the root obeys, and nobody hears of it
  std::function<void()> before_answer;  // once
  std::atomic<uint64_t> fetches{0}, commits_asked{0};
  ShareRules rules;  // of those that start from now on

  void append(NodeId node, const std::string& bytes) {
    const auto place = nodes[node].shared->reserve(kFile, bytes.size());
    ASSERT_TRUE(place.ok()) << place.status().to_string();
    write(node, *place, bytes);
  }
  // Node 0 has appended, and not committed; node 1 cuts the file, and node 2 appends more. What all see once
  // all have committed.
  std::string appended_beside_a_truncate(const ShareRules& with) {
    rules = with;
    start_root();
    for (NodeId i = 0; i < kNodes; ++i) start(i);
    append(0, "AAAAAA");
    EXPECT_TRUE(nodes[1].shared->truncate(kFile, 3).ok());
    append(2, std::string(12, 'C'));
    commit(2);
    commit(0);
    EXPECT_EQ(read(0), read(1));
    return read(1);
  }
};

TEST_F(SharedFilesTest, AWriteIsSeenOnItsNodeAtOnceAndOnOthersAfterACommit) {
  write(0, 2, "AAA");
  EXPECT_EQ(read(0), "01AAA56789ab");
  EXPECT_EQ(read(1), kOld);
  commit(0);
  EXPECT_EQ(read(1), "01AAA56789ab");
  EXPECT_EQ(read(2, 4, 3), "A56");
  EXPECT_EQ(read(1, 12, 5), "");
}

TEST_F(SharedFilesTest, OfTwoCommitsTheLaterOneWinsOnAllNodes) {
  write(0, 0, "AAAA");
  write(1, 2, "BBBB");
  commit(1);
  EXPECT_EQ(read(0), "AAAABB6789ab") << "its own, not committed";
  commit(0);
  for (NodeId node = 0; node < kNodes; ++node) EXPECT_EQ(read(node), "AAAABB6789ab") << node;
  write(1, 1, "C");
  commit(1);
  for (NodeId node = 0; node < kNodes; ++node) EXPECT_EQ(read(node), "ACAABB6789ab") << node;
}

TEST_F(SharedFilesTest, LateStepsOfADrainThatWasGivenUpDoNothing) {
  SharedFiles& node = *nodes[0].shared;
  write(0, 2, "AAAA");
  const auto first = root->begin_drain(kFile, {});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(node.fix(kFile, first->number).ok());
  root->end_drain(kFile);
  const auto second = root->begin_drain(kFile, {});
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(node.fix(kFile, second->number).ok());
  const Span all{2, 6};
  const auto out = disk_.open("/b/out", io::OpenMode::kCreate);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(node.write_out(kFile, first->number, {&all, 1}, **out).code(), Code::kBusy);
  EXPECT_TRUE(node.write_out(kFile, second->number, {&all, 1}, **out).ok()) << "canary";
  EXPECT_TRUE(node.published(kFile, first->number, {}).ok());
  EXPECT_TRUE(nodes[0].files->is_undrained(kFile)) << "its bytes are in its logs alone";
  EXPECT_TRUE(node.published(kFile, second->number, {}).ok());
  EXPECT_FALSE(nodes[0].files->is_undrained(kFile));
}

TEST_F(SharedFilesTest, ANodeIsAskedOnceForAllItsStrides) {
  for (uint64_t i = 0; i < 60; ++i) write(i % 2, i * 10, std::string(10, i % 2 == 0 ? 'a' : 'b'));
  commit(0);
  commit(1);
  std::string expected;
  for (uint64_t i = 0; i < 60; ++i) expected += std::string(10, i % 2 == 0 ? 'a' : 'b');
  EXPECT_EQ(read(2), expected);
  EXPECT_EQ(fetches, 2u);
  fetches = 0;
  EXPECT_EQ(read(0), expected);
  EXPECT_EQ(fetches, 1u);
}

TEST_F(SharedFilesTest, SizeIsTheLargestCommittedEndAndThisNodesWrites) {
  write(0, 100, "x");
  EXPECT_EQ(size(0), 101u);
  EXPECT_EQ(size(1), 12u);
  commit(0);
  EXPECT_EQ(size(1), 101u);
  EXPECT_EQ(read(1, 10), "ab" + std::string(88, '\0') + "x");
  ASSERT_TRUE(nodes[1].shared->truncate(kFile, 3).ok());
  ASSERT_TRUE(nodes[2].shared->truncate(kFile, 6).ok());
  for (NodeId node = 0; node < kNodes; ++node) EXPECT_EQ(read(node), std::string("012\0\0\0", 6)) << node;
}

TEST_F(SharedFilesTest, AppendsOfTwoNodesGetTheirOwnPlaces) {
  const auto first = nodes[0].shared->reserve(kFile, 5), second = nodes[1].shared->reserve(kFile, 5);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, 12u);
  EXPECT_EQ(*second, 17u);
}

TEST_F(SharedFilesTest, WhatAnotherNodeHasAppendedBeforeATruncateIsCut) {
  EXPECT_EQ(appended_beside_a_truncate({}), "012CCCCCCCCCCCC");
  EXPECT_EQ(commits_asked, 1u);
  ASSERT_TRUE(nodes[1].shared->truncate(kFile, 2).ok());
  EXPECT_EQ(commits_asked, 1u) << "nobody has appended since";
}

// Of a node that does not answer.
TEST_F(SharedFilesTest, OrItKeepsItsPlaceAndNoOtherAppendIsLost) {
  const std::string found = appended_beside_a_truncate({.asks_appenders = false});
  EXPECT_EQ(found, "012" + std::string(9, '\0') + "AAAAAACCCCCCCCCCCC");
}

TEST_F(SharedFilesTest, CanaryARootThatGivesPlacesTwiceLosesAnAppend) {
  const std::string found = appended_beside_a_truncate({.keeps_places = false, .asks_appenders = false});
  EXPECT_EQ(found, "012CCCCCCCCCAAAAAA");
}

// The root still has the old bytes when it is asked; then the commit ends, and the answer is late.
TEST_F(SharedFilesTest, AReadThatACommitCrossesShowsWhatItsNodeHadWritten) {
  write(1, 0, "BBBB");
  commit(1);
  write(0, 0, "AA");
  before_answer = [this] { commit(0); };
  EXPECT_EQ(read(0), "AABB456789ab");
}

TEST_F(SharedFilesTest, AWriteDuringATruncateIsNotCut) {
  write(0, 0, "AAAAAAAAAAAAAAAAAAAA");
  // The root is asked first who has appended, and then to cut.
  before_answer = [this] { before_answer = [this] { write(0, 8, "WW"); }; };
  ASSERT_TRUE(nodes[0].shared->truncate(kFile, 4).ok());
  EXPECT_EQ(read(0), std::string("AAAA\0\0\0\0WW", 10));
  commit(0);
  EXPECT_EQ(read(1), std::string("AAAA\0\0\0\0WW", 10));
}

TEST_F(SharedFilesTest, AServerThatIsNewKnowsWhatWasCommitted) {
  write(0, 0, "AAAA");
  commit(0);
  write(1, 0, "BB");
  commit(1);
  write(0, 3, "ZZ");
  start(0);
  EXPECT_EQ(read(0), "BBAZZ56789ab") << "the committed A are older than B, and Z is on top";
  EXPECT_EQ(read(2).substr(0, 3), "BBA");
  start_root();
  commit(0);
  EXPECT_EQ(read(2), "BBAZZ56789ab");
}

// A commit whose answer is lost: the next one tells all again.
TEST_F(SharedFilesTest, AfterALostAnswerTheNextCommitSaysAll) {
  write(0, 0, "AAAA");
  lose_answers = true;
  EXPECT_EQ(nodes[0].shared->commit(kFile).code(), Code::kDeadlineExceeded);
  lose_answers = false;
  EXPECT_EQ(read(0).substr(0, 4), "AAAA");
  commit(0);
  EXPECT_EQ(read(1).substr(0, 4), "AAAA");
}

// Calls one after the other: what each read must be is known byte by byte.
class RandomCalls : public SharedFilesTest {
 protected:
  // Bytes that other nodes have not committed may show.
  static bool fits(NodeId node, uint64_t offset, const std::string& found, const std::string& must,
                   const std::string (&own)[kNodes]) {
    bool good = found.size() == must.size();
    for (size_t i = 0; good && i < found.size(); ++i) {
      good = found[i] == must[i];
      for (NodeId other = 0; other < kNodes; ++other)
        if (other != node && offset + i < own[other].size() && found[i] != '\0')
          good = good || own[other][offset + i] == found[i];
    }
    return good;
  }
  // How many reads were wrong.
  uint64_t run(uint64_t seed, int calls) {
    Rng rng(seed);
    std::string committed = kOld;
    std::string own[kNodes];  // 0: not written since the last commit
    uint64_t wrong = 0;
    for (int i = 0; i < calls; ++i) {
      const auto node = static_cast<NodeId>(rng.below(kNodes));
      const uint64_t offset = rng.below(80);
      const auto over = [&](const std::string& below) {
        std::string out = below;
        out.resize(std::max(out.size(), own[node].size()), '\0');
        for (size_t at = 0; at < own[node].size(); ++at)
          if (own[node][at] != '\0') out[at] = own[node][at];
        return out;
      };
      const auto flush = [&] { committed = over(committed), own[node].clear(); };
      switch (rng.below(12)) {
        case 0: {
          EXPECT_TRUE(nodes[node].shared->truncate(kFile, offset).ok());
          flush();
          committed.resize(offset, '\0');
          break;
        }
        case 1:
          start(node);
          break;
        case 2:
          start_root();
          break;
        case 3:
        case 4:
          commit(node);
          flush();
          break;
        case 5:
        case 6:
        case 7: {
          const std::string bytes(1 + rng.below(12), static_cast<char>('A' + rng.below(50)));
          write(node, offset, bytes);
          own[node].resize(std::max<size_t>(own[node].size(), offset + bytes.size()), '\0');
          own[node].replace(offset, bytes.size(), bytes);
          break;
        }
        default: {
          const size_t bytes = 1 + rng.below(60);
          const std::string expected = over(committed);
          const std::string must = offset < expected.size() ? expected.substr(offset, bytes) : "";
          wrong += !fits(node, offset, read(node, offset, bytes), must, own);
        }
      }
    }
    return wrong;
  }
};

TEST_F(RandomCalls, OfThreeNodesShowWhatTheyMustWhileServersAreKilled) { EXPECT_EQ(run(1, 1500), 0u); }

TEST_F(RandomCalls, CanaryAReadThatDoesNotAskTheRoot) {
  stale = true;
  EXPECT_GT(run(2, 300), 0u);
}

// Commits of one file from several threads of a node wait for each other, and all end.
TEST_F(SharedFilesTest, ThreadsOfANodeCommitAndReadAtOnce) {
  write(0, 0, "AAAA");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this] {
      for (int round = 0; round < 50; ++round) {
        commit(0);
        EXPECT_EQ(read(0).substr(0, 4), "AAAA");
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read(1).substr(0, 4), "AAAA");
}

// What another node asks for is answered where the question comes, from memory, or by a thread that may wait.
TEST_F(SharedFilesTest, ServesAtOnceWhatStandsInMemoryWhileNobodyElseIsHere) {
  write(1, 0, "abc");
  write(1, 3, "de");
  commit(1);
  SharedFiles& shared = *nodes[1].shared;
  std::string got;
  const auto give = [&](std::span<const Bytes> parts) {
    for (const Bytes& part : parts) got += part;
  };
  EXPECT_TRUE(shared.serve_at_once(kFile, {1, 5}, give));
  EXPECT_EQ(got, "bcde");
  EXPECT_FALSE(shared.serve_at_once(kFile, {1, 6}, give)) << "it has no such byte";
  EXPECT_FALSE(shared.serve_at_once({7, 7}, {0, 1}, give)) << "it has no such file";
  const MutexLock lock(nodes[1].mutex);
  std::thread([&] { EXPECT_FALSE(shared.serve_at_once(kFile, {1, 5}, give)); }).join();
  EXPECT_EQ(got, "bcde");
}

}  // namespace
}  // namespace swale::fs::shared_files_test
