// Single requests and messages at servers of the tree whose log is durable when the test says so. All orders
// and faults: sim/names_cluster_test.cc.
#include "meta/names/names_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace swale::meta::names_core_test {
namespace {

class Tree {
 public:
  static constexpr uint32_t kLife = 3;

  explicit Tree(uint32_t servers) {
    for (uint32_t i = 0; i < servers; ++i) {
      nodes_.push_back(std::make_unique<Server>(i));
      nodes_[i]->core = std::make_unique<NamesCore>(i, servers, kLife, &nodes_[i]->table, &nodes_[i]->log);
    }
  }
  uint32_t servers() const { return static_cast<uint32_t>(nodes_.size()); }
  NameTable& table(uint32_t server) { return nodes_[server]->table; }
  NamesCore& core(uint32_t server) { return *nodes_[server]->core; }
  std::vector<std::pair<uint32_t, std::string>> sent;  // between servers, in order
  uint64_t requests = 0;                               // of clients

  // The answer, when everything that it needs has happened.
  NameAnswer ask(NameRequest request) {
    request.from = {uint64_t{7} << 16, ++number_};
    return ask_as(request);
  }
  NameAnswer ask_as(NameRequest request) {
    request.life = kLife;
    const bool by_file = request.op >= NameOp::kSetNode || request.op == NameOp::kStat ||
                         request.op == NameOp::kReadUser || request.op == NameOp::kListUsers;
    const uint32_t to =
        by_file ? server_of(request.file) : server_of(EntryKey(request.directory, request.name), servers());
    Result<std::string> response = send(to, encode(request));
    EXPECT_TRUE(response.ok()) << response.status().to_string();
    const auto answer = decode_name_answer(response.ok() ? *response : "");
    return answer.ok() ? *answer : NameAnswer{.error = EIO};
  }
  Result<std::string> send(uint32_t to, const std::string& payload) {
    ++requests;
    core(to).on_request(payload, kToken);
    settle();
    return std::exchange(answer_, error(Code::kUnavailable, Scope::kPeer, "no answer"));
  }
  void settle() {
    for (bool more = true; more;) {
      more = false;
      for (uint32_t i = 0; i < servers(); ++i) more = step(i) || more;
    }
  }

  NameRequest at(NameOp op, const FileId& directory, const std::string& name) {
    NameRequest request;
    request.op = op;
    request.directory = directory;
    request.name = name;
    return request;
  }
  FileId make(NameOp op, const FileId& directory, const std::string& name) {
    const NameAnswer answer = ask(at(op, directory, name));
    EXPECT_EQ(answer.error, 0) << name;
    return answer.entry.file;
  }
  // A name of the directory that is at the server.
  std::string name_at(uint32_t server, const FileId& directory, const std::string& start = "n") {
    for (int i = 0;; ++i) {
      const std::string name = start + std::to_string(i);
      if (server_of(EntryKey(directory, name), servers()) == server) return name;
    }
  }
  int rename(const FileId& directory, const std::string& from, const std::string& to) {
    NameRequest request = at(NameOp::kRename, directory, from);
    request.target = directory;
    request.target_name = to;
    return ask(request).error;
  }

 private:
  static constexpr uint64_t kToken = ~uint64_t{0};
  struct Log final : NameLog {
    uint64_t groups = 0;
    bool sync = false;
    void sync_next() override { sync = true; }
    uint64_t add(Bytes) override { return ++groups; }
    bool accepts() const override { return true; }
    Status health() const override { return {}; }
  };
  struct Server {
    explicit Server(uint32_t index) : table(index) {}
    NameTable table;
    Log log;
    std::unique_ptr<NamesCore> core;
  };
  struct Origin {
    uint32_t server;
    uint64_t tag;
  };

  bool step(uint32_t index) {
    core(index).on_durable(nodes_[index]->log.groups);
    std::vector<NameReply> replies;
    std::vector<NameCall> calls;
    core(index).take_replies(&replies);
    core(index).take_calls(&calls);
    for (NameReply& each : replies) {
      if (each.token == kToken) {
        answer_ = std::move(each.response);
      } else if (const auto origin = origins_.find(each.token); origin != origins_.end()) {
        const Origin to = origin->second;
        origins_.erase(origin);
        core(to.server).on_completion(to.tag, std::move(each.response));
      }
    }
    for (NameCall& each : calls) {
      origins_[next_token_] = {index, each.tag};
      // Those that only ask for a life are not counted.
      if (decode_peer_request(each.payload)->life == kLife) sent.emplace_back(each.to, each.payload);
      core(each.to).on_request(each.payload, next_token_++);
    }
    return !replies.empty() || !calls.empty();
  }

  std::vector<std::unique_ptr<Server>> nodes_;
  std::map<uint64_t, Origin> origins_;
  uint64_t next_token_ = 1;
  uint64_t number_ = 0;
  Result<std::string> answer_{error(Code::kUnavailable, Scope::kPeer, "no answer")};
};

TEST(NamesCore, NamesThatCannotBeAreRefused) {
  Tree tree(1);
  const std::string longest(kEntryNameBytesMax, 'x');
  EXPECT_EQ(tree.ask(tree.at(NameOp::kCreate, kRootDirectory, longest)).error, 0);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kCreate, kRootDirectory, longest + "x")).error, ENAMETOOLONG);
  for (const char* const name : {"", ".", "..", "a/b"})
    EXPECT_EQ(tree.ask(tree.at(NameOp::kMakeDirectory, kRootDirectory, name)).error, EINVAL) << name;
  EXPECT_EQ(tree.ask(tree.at(NameOp::kCreate, {0, 99}, "a")).error, ENOENT);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kCreate, tree.make(NameOp::kCreate, kRootDirectory, "f"), "a")).error,
            ENOTDIR);
  EXPECT_EQ(tree.rename(kRootDirectory, "f", std::string(256, 'y')), ENAMETOOLONG);
}

TEST(NamesCore, AFileThatIsUnlinkedLivesUntilTheLastNodeLetsItGo) {
  Tree tree(2);
  NameRequest request = tree.at(NameOp::kCreate, kRootDirectory, "f");
  request.flags = kAndHold;
  const NameAnswer made = tree.ask(request);
  EXPECT_TRUE(made.held && made.made);
  NameRequest other;
  other.op = NameOp::kHold;
  other.file = made.entry.file;
  other.from = {uint64_t{8} << 16, 1};
  EXPECT_EQ(tree.ask_as(other).error, 0);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kUnlink, kRootDirectory, "f")).error, 0);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kLookUp, kRootDirectory, "f")).error, ENOENT);
  NameRequest stat;
  stat.op = NameOp::kStat;
  stat.file = made.entry.file;
  EXPECT_TRUE(tree.ask(stat).node->unlinked);
  NameRequest late = other;  // nobody opens it anew
  late.from = {uint64_t{9} << 16, 1};
  EXPECT_EQ(tree.ask_as(late).error, ENOENT);
  NameRequest release = stat;
  release.op = NameOp::kRelease;
  EXPECT_EQ(tree.ask(release).error, 0);
  EXPECT_EQ(tree.ask(stat).error, 0);
  NameRequest gone;  // the other node has died
  gone.op = NameOp::kForget;
  gone.from = {uint64_t{8} << 16, 2};
  gone.life = Tree::kLife;
  ASSERT_TRUE(tree.send(server_of(made.entry.file), encode(gone)).ok());
  EXPECT_EQ(tree.ask(stat).error, ENOENT);
}

TEST(NamesCore, UserAttributesHaveTheirLimits) {
  Tree tree(1);
  NameRequest request;
  request.op = NameOp::kSetUser;
  request.file = tree.make(NameOp::kCreate, kRootDirectory, "f");
  request.name = "user.a";
  request.flags = kReplaceOnly;
  EXPECT_EQ(tree.ask(request).error, ENODATA);
  request.flags = kCreateOnly;
  request.value = std::string(kUserBytesMax - 6, 'v');
  EXPECT_EQ(tree.ask(request).error, 0);
  EXPECT_EQ(tree.ask(request).error, EEXIST);
  request.flags = 0;
  EXPECT_EQ(tree.ask(request).error, 0);  // in the place of the old one
  NameRequest second = request;
  second.name = "user.b";
  second.value = "";
  EXPECT_EQ(tree.ask(second).error, ENOSPC);
  request.op = NameOp::kReadUser;
  EXPECT_EQ(tree.ask(request).value, request.value);
  request.op = NameOp::kRemoveUser;
  EXPECT_EQ(tree.ask(request).error, 0);
  EXPECT_EQ(tree.ask(request).error, ENODATA);
  second.file = tree.ask(tree.at(NameOp::kSymlink, kRootDirectory, "l")).entry.file;
  EXPECT_TRUE(second.file.none());  // a link without a target
}

TEST(NamesCore, ARepeatedChangeIsAnsweredAsAtFirstAndAnOlderOneIsRefused) {
  Tree tree(1);
  NameRequest request = tree.at(NameOp::kCreate, kRootDirectory, "f");
  request.flags = kExclusive;
  request.from = {5 << 16, 4};
  const NameAnswer first = tree.ask_as(request);
  const NameAnswer again = tree.ask_as(request);
  EXPECT_EQ(again.error, 0);
  EXPECT_EQ(again.entry.file, first.entry.file);
  request.from.number = 5;
  EXPECT_EQ(tree.ask_as(request).error, EEXIST);
  request.from.number = 4;
  request.life = Tree::kLife;
  EXPECT_EQ(tree.send(0, encode(request)).status().code(), Code::kAborted);
}

// A change that finds no space has not happened, and its repetition is tried anew.
TEST(NamesCore, AWrittenAnswerDoesNotWaitForTheSyncAndASyncedOneBringsIt) {
  Tree tree(1);
  NameRequest request = tree.at(NameOp::kCreate, kRootDirectory, "f");
  request.life = Tree::kLife;
  std::vector<NameReply> replies;
  for (uint64_t client = 1; client <= 2; ++client) {
    request.from = {client << 16, 1};
    request.wait = client == 1 ? AnswerWait::kWritten : AnswerWait::kSynced;
    request.name += "x";
    tree.core(0).on_request(encode(request), client);
  }
  tree.core(0).on_durable(2, 0);
  tree.core(0).take_replies(&replies);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].token, 1u);
  // All is written, and somebody waits for a sync: there is a third group, which is synced.
  tree.core(0).on_durable(3, 3);
  tree.core(0).take_replies(&replies);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].token, 2u);
  EXPECT_EQ(tree.table(0).changes(), 3u);
}

TEST(NamesCore, AVoidGroupIsAFailureOfItsRequests) {
  Tree tree(1);
  NameRequest request = tree.at(NameOp::kCreate, kRootDirectory, "f");
  request.from = {5 << 16, 1};
  request.life = Tree::kLife;
  std::vector<NameReply> replies;
  tree.core(0).on_request(encode(request), 1);
  tree.core(0).take_replies(&replies);
  EXPECT_TRUE(replies.empty());  // it is not durable
  tree.table(0).undo();
  tree.core(0).on_void(error(Code::kNoSpace, Scope::kFile, "the disk is full"));
  tree.core(0).take_replies(&replies);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].response.status().code(), Code::kNoSpace);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kLookUp, kRootDirectory, "f")).error, ENOENT);
  EXPECT_EQ(tree.ask_as(request).error, 0);
}

// The request for the lock comes once more when the rename is over and its answer to "decide" was lost: what
// has happened to the name since must stay.
TEST(NamesCore, ALateCopyOfALockDoesNotLetARepeatedDecisionUndoWhatCameAfterIt) {
  Tree tree(2);
  const std::string from = tree.name_at(0, kRootDirectory), to = tree.name_at(1, kRootDirectory);
  tree.make(NameOp::kCreate, kRootDirectory, from);
  tree.sent.clear();
  ASSERT_EQ(tree.rename(kRootDirectory, from, to), 0);
  const auto of = [&](PeerOp op) {
    return *std::find_if(tree.sent.begin(), tree.sent.end(),
                         [&](const auto& each) { return static_cast<PeerOp>(each.second[0]) == op; });
  };
  const auto lock = of(PeerOp::kLock), decide = of(PeerOp::kDecide);
  ASSERT_EQ(tree.ask(tree.at(NameOp::kUnlink, kRootDirectory, to)).error, 0);
  tree.core(lock.first).on_request(lock.second, 1000);
  std::vector<NameCall> held_back;  // the inquiry, so that the lock is still there
  tree.core(lock.first).on_durable(1000);
  tree.core(lock.first).take_calls(&held_back);
  EXPECT_EQ(held_back.size(), 1u);
  tree.core(decide.first).on_request(decide.second, 1001);
  tree.core(decide.first).on_durable(1000);
  EXPECT_EQ(tree.table(lock.first).find(EntryKey(kRootDirectory, to)), nullptr);
  tree.core(lock.first).on_completion(held_back[0].tag, encode(PeerAnswer()));
  EXPECT_EQ(tree.table(lock.first).lock(EntryKey(kRootDirectory, to)), nullptr);
}

// What an earlier life of the server was asked for may have been answered otherwise since.
TEST(NamesCore, ARequestForAnotherLifeDoesNothing) {
  Tree tree(1);
  NameRequest request = tree.at(NameOp::kCreate, kRootDirectory, "f");
  request.from = {5 << 16, 1};
  request.life = Tree::kLife - 1;
  const auto response = tree.send(0, encode(request));
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(other_life(*response), Tree::kLife);
  PeerRequest remove;
  remove.op = PeerOp::kDrop;
  remove.life = Tree::kLife + 1;
  EXPECT_EQ(other_life(*tree.send(0, encode(remove))), Tree::kLife);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kLookUp, kRootDirectory, "f")).error, ENOENT);
  EXPECT_EQ(other_life(encode(NameAnswer())), std::nullopt);
  EXPECT_EQ(other_life(encode(PeerAnswer())), std::nullopt);
}

// The directory was not empty when it was asked for, and is empty when the request comes once more.
TEST(NamesCore, ALateCopyOfARemovalRemovesNothing) {
  Tree tree(2);
  const FileId directory = tree.make(NameOp::kMakeDirectory, kRootDirectory, "d");
  tree.make(NameOp::kCreate, directory, "f");
  tree.sent.clear();
  ASSERT_EQ(tree.ask(tree.at(NameOp::kRemoveDirectory, kRootDirectory, "d")).error, ENOTEMPTY);
  const auto sent = *std::find_if(tree.sent.begin(), tree.sent.end(), [](const auto& each) {
    return static_cast<PeerOp>(each.second[0]) == PeerOp::kRemove;
  });
  ASSERT_EQ(tree.ask(tree.at(NameOp::kUnlink, directory, "f")).error, 0);
  tree.core(sent.first).on_request(sent.second, 1000);
  tree.settle();
  EXPECT_NE(tree.table(server_of(directory)).node(directory), nullptr);
  EXPECT_EQ(tree.ask(tree.at(NameOp::kRemoveDirectory, kRootDirectory, "d")).error, 0);
}

// What a change costs in messages: a file is made where its entry is; only the first one of a directory at a
// server asks for more.
TEST(NamesCore, ACreationTouchesOneServer) {
  Tree tree(8);
  const FileId directory = tree.make(NameOp::kMakeDirectory, kRootDirectory, "d");
  for (int i = 0; i < 100; ++i) tree.make(NameOp::kCreate, directory, "first" + std::to_string(i));
  EXPECT_EQ(tree.sent.size(), 8u);  // enrolments
  tree.sent.clear();
  for (int i = 0; i < 100; ++i) tree.make(NameOp::kCreate, directory, "then" + std::to_string(i));
  EXPECT_EQ(tree.sent.size(), 0u);
  // An empty directory that had entries at one server asks that one alone.
  const FileId small = tree.make(NameOp::kMakeDirectory, kRootDirectory, "small");
  tree.make(NameOp::kCreate, small, "f");
  tree.ask(tree.at(NameOp::kUnlink, small, "f"));
  tree.sent.clear();
  EXPECT_EQ(tree.ask(tree.at(NameOp::kRemoveDirectory, kRootDirectory, "small")).error, 0);
  EXPECT_EQ(tree.sent.size(), 8u + 2u);  // all nodes forget it; remove, leave
  const std::string from = tree.name_at(3, kRootDirectory), to = tree.name_at(4, kRootDirectory);
  tree.make(NameOp::kCreate, kRootDirectory, from);
  tree.sent.clear();
  EXPECT_EQ(tree.rename(kRootDirectory, from, to), 0);
  EXPECT_EQ(tree.sent.size(), 3u);  // lock, inquire, decide
}

}  // namespace
}  // namespace swale::meta::names_core_test
