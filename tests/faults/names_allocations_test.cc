// The n-th allocation of the servers of a job's tree fails, wherever that is in a script of changes: in a
// request, a message, a record or its sync. A server that has broken, or whose log has, is opened anew from
// what is durable; the client repeats its request. In the end each change has been made once, and nothing is
// left over. SWALE_FAULT_ROUNDS > 1 visits every n; otherwise some.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "base/contain.h"
#include "io/memory_device.h"
#include "meta/names/names_core.h"
#include "tests/faults/failing_new.h"

namespace swale::meta::names_allocations_test {
namespace {

using faults::FailingNew;

constexpr uint32_t kServers = 2;

struct Server final : NameLog {
  io::MemoryDevice disk;
  std::unique_ptr<NameTable> table;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<NamesCore> core;
  uint64_t openings = 0;

  uint64_t add(Bytes record) override { return shard->add_record(record); }
  bool accepts() const override { return shard->accepts_records(); }
  Status health() const override { return shard->health(); }
};

class Rig {
 public:
  Rig() {
    for (uint32_t i = 0; i < kServers; ++i) {
      EXPECT_TRUE(servers_[i].disk.make_directory("/s").ok() && servers_[i].disk.sync_directory("/").ok());
      open(i);
    }
  }
  Server& server(uint32_t index) { return servers_[index]; }
  uint64_t openings() const { return servers_[0].openings + servers_[1].openings; }

  // The answer's errno, however often it takes.
  NameAnswer ask(const NameRequest& wanted) {
    uint32_t to = 0;
    NameRequest request;
    {
      const FailingNew::Pause pause;
      request = wanted;
      to = server_of(EntryKey(request.directory, request.name), kServers);
      request.from = {1 << 16, ++number_};
    }
    for (int attempts = 0; attempts < 20; ++attempts) {
      std::string payload;
      {
        const FailingNew::Pause pause;
        reopen();
        request.life = servers_[to].shard->job();
        payload = encode(request);
        answer_ = error(Code::kUnavailable, Scope::kPeer, "no answer");
      }
      servers_[to].core->on_request(payload, kClient);
      pump();
      const FailingNew::Pause pause;
      if (!answer_.ok()) continue;
      const auto answer = decode_name_answer(*answer_);
      if (answer.ok() && !other_life(*answer_)) return *answer;
    }
    return {.error = EIO};
  }
  void settle() {
    reopen();
    pump();
  }

 private:
  static constexpr uint64_t kClient = ~uint64_t{0};

  void open(uint32_t index) {
    Server& server = servers_[index];
    ++server.openings;
    server.table = std::make_unique<NameTable>(index);
    ShardOptions options;
    options.directory = "/s";
    options.shard = index;
    options.table = server.table.get();
    options.write_buffer_entries = 64;
    auto shard = Shard::open(server.disk, options);
    ASSERT_TRUE(shard.ok()) << shard.status().to_string();
    server.shard = *std::move(shard);
    server.core =
        std::make_unique<NamesCore>(index, kServers, server.shard->job(), server.table.get(), &server);
    server.core->on_durable(server.shard->durable_group());
    server.core->resume();
  }
  // As after a kill, those that have broken.
  void reopen() {
    for (uint32_t i = 0; i < kServers; ++i) {
      if (servers_[i].core->health().ok()) continue;
      servers_[i].core.reset();
      servers_[i].shard.reset();
      Rng rng(1);
      servers_[i].disk.crash(rng, io::CrashMode::kDropAll);
      std::vector<Origin> lost;
      for (const auto& [token, origin] : origins_) {
        if (origin.to == i) lost.push_back(origin);
      }
      std::erase_if(origins_, [i](const auto& each) { return each.second.to == i || each.second.from == i; });
      open(i);
      for (const Origin& each : lost) {
        if (each.from != i)
          servers_[each.from].core->on_completion(each.tag,
                                                  error(Code::kUnavailable, Scope::kPeer, "it was killed"));
      }
    }
  }

  // Until nothing happens any more.
  void pump() {
    for (bool more = true; more;) {
      more = false;
      for (uint32_t i = 0; i < kServers; ++i) more = step(i) || more;
    }
  }

  bool step(uint32_t index) {
    Server& server = servers_[index];
    if (!server.core->health().ok()) return false;
    std::vector<NameReply> replies;
    std::vector<NameCall> calls;
    {
      const FailingNew::Pause pause;
      server.core->take_replies(&replies);
      server.core->take_calls(&calls);
      for (NameReply& each : replies) {
        if (each.token == kClient) answer_ = std::move(each.response);
      }
    }
    for (NameReply& each : replies) {
      const auto found = origins_.find(each.token);
      if (found == origins_.end()) continue;
      const Origin origin = found->second;
      origins_.erase(found);
      servers_[origin.from].core->on_completion(origin.tag, std::move(each.response));
    }
    for (const NameCall& each : calls) {
      const uint64_t token = next_token_++;
      {
        const FailingNew::Pause pause;
        origins_[token] = {index, each.to, each.tag};
      }
      servers_[each.to].core->on_request(each.payload, token);
    }
    const bool wrote = write(server);
    return wrote || !replies.empty() || !calls.empty();
  }

  bool write(Server& server) {
    std::unique_ptr<Work> work;
    Status done = contain([&] { work = server.shard->next_commit(); });
    if (work == nullptr) return !done.ok();  // tried again
    work->run();
    done = contain([&] { return server.shard->finish(std::move(work)); });
    if (done.ok()) {
      server.core->on_durable(server.shard->durable_group());
    } else if (server.shard->health().ok()) {
      server.core->on_void(done);
    }
    return true;
  }

  struct Origin {
    uint32_t from = 0;
    uint32_t to = 0;
    uint64_t tag = 0;
  };
  Server servers_[kServers];
  std::map<uint64_t, Origin> origins_;
  uint64_t next_token_ = 1;
  uint64_t number_ = 0;
  Result<std::string> answer_{error(Code::kUnavailable, Scope::kPeer, "no answer")};
};

NameRequest at(NameOp op, const FileId& directory, const std::string& name) {
  NameRequest request;
  request.op = op;
  request.directory = directory;
  request.name = name;
  return request;
}

// A name that is at the server, and too long to stand in a string without an allocation.
std::string name_at(uint32_t server, const FileId& directory, const std::string& start) {
  for (int i = 0;; ++i) {
    const std::string name = start + ", a name that needs memory, " + std::to_string(i);
    if (server_of(EntryKey(directory, name), kServers) == server) return name;
  }
}

// Makes, moves and removes; the errnos that it met.
std::vector<int> script(Rig* rig) {
  std::vector<int> errors;
  const auto ask = [&](const NameRequest& request) {
    const NameAnswer answer = rig->ask(request);
    const FailingNew::Pause pause;
    errors.push_back(answer.error);
    return answer.entry.file;
  };
  const auto rename = [&](const FileId& from, const std::string& name, const FileId& to,
                          const std::string& as) {
    NameRequest request;
    {
      const FailingNew::Pause pause;
      request = at(NameOp::kRename, from, name);
      request.target = to;
      request.target_name = as;
    }
    ask(request);
  };
  const auto plain = [&](NameOp op, const FileId& directory, const std::string& name, uint8_t flags = 0) {
    NameRequest request;
    {
      const FailingNew::Pause pause;
      request = at(op, directory, name);
      request.flags = flags;
    }
    return ask(request);
  };
  std::string file, one, two, other;
  {
    const FailingNew::Pause pause;
    file = name_at(0, kRootDirectory, "file"), other = name_at(1, kRootDirectory, "other");
    one = name_at(0, kRootDirectory, "one"), two = name_at(1, kRootDirectory, "two");
  }
  plain(NameOp::kCreate, kRootDirectory, file, kExclusive);
  plain(NameOp::kCreate, kRootDirectory, file, kExclusive);  // EEXIST
  const FileId first = plain(NameOp::kMakeDirectory, kRootDirectory, one);
  const FileId second = plain(NameOp::kMakeDirectory, kRootDirectory, two);
  rename(kRootDirectory, file, kRootDirectory, other);  // between servers
  rename(kRootDirectory, other, first, file);
  rename(kRootDirectory, two, first, two);               // a directory to another one
  rename(kRootDirectory, one, second, one);              // EINVAL: below itself
  plain(NameOp::kRemoveDirectory, kRootDirectory, one);  // ENOTEMPTY
  plain(NameOp::kUnlink, first, file);
  plain(NameOp::kRemoveDirectory, first, two);
  plain(NameOp::kRemoveDirectory, kRootDirectory, one);
  return errors;
}

TEST(NamesAllocations, WhereverMemoryEndsEachChangeIsMadeOnce) {
  const std::vector<int> right = {0, EEXIST, 0, 0, 0, 0, 0, EINVAL, ENOTEMPTY, 0, 0, 0};
  {
    Rig rig;
    ASSERT_EQ(script(&rig), right);
  }
  const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
  const uint64_t stride = rounds != nullptr && std::atoi(rounds) > 1 ? 1 : 13;
  uint64_t failed = 0, reopened = 0;
  for (uint64_t nth = 1;; nth += stride) {
    Rig rig;
    std::vector<int> errors;
    {
      const FailingNew plan(FailingNew::Which::kOnce, nth);
      errors = script(&rig);
    }
    rig.settle();
    // What was put off for want of memory is done beside the next change.
    for (uint32_t i = 0; i < kServers; ++i) {
      const std::string name = name_at(i, kRootDirectory, "next");
      ASSERT_EQ(rig.ask(at(NameOp::kCreate, kRootDirectory, name)).error, 0);
      ASSERT_EQ(rig.ask(at(NameOp::kUnlink, kRootDirectory, name)).error, 0);
    }
    const bool hit = FailingNew::failed() > 0;
    ASSERT_EQ(errors, right) << "allocation " << nth;
    for (uint32_t i = 0; i < kServers; ++i) {
      const NameTable& table = *rig.server(i).table;
      ASSERT_EQ(rig.server(i).core->under_way(), 0u) << "allocation " << nth;
      ASSERT_TRUE(table.entries().empty() && table.intents().empty() && table.locks().empty()) << nth;
      ASSERT_EQ(table.nodes().size(), i == 0 ? 1u : 0u) << nth;  // the root
    }
    reopened += rig.openings() - kServers;
    if (!hit) break;
    ++failed;
  }
  std::printf("%lu allocations failed; %lu servers were opened anew\n", static_cast<unsigned long>(failed),
              static_cast<unsigned long>(reopened));
  EXPECT_GT(failed, 50u);
  EXPECT_GT(reopened, 10u);
}

// Before, it said nothing, and whoever asked waited for its deadline.
TEST(NamesAllocations, AServerThatBreaksRefusesThatRequestAndAllOthersAtOnce) {
  uint64_t broken = 0;
  for (uint64_t nth = 1;; ++nth) {
    Rig rig;
    NamesCore& core = *rig.server(0).core;
    NameRequest request = at(NameOp::kCreate, kRootDirectory, name_at(0, kRootDirectory, "file"));
    request.from = {1 << 16, 1};
    request.life = rig.server(0).shard->job();
    const std::string payload = encode(request);
    {
      const FailingNew plan(FailingNew::Which::kOnce, nth);
      core.on_request(payload, 7);
    }
    if (FailingNew::failed() == 0) break;
    if (core.health().ok()) continue;
    ++broken;
    for (const uint64_t token : {7, 8}) {
      if (token == 8) core.on_request(payload, token);
      std::vector<NameReply> replies;
      core.take_replies(&replies);
      ASSERT_EQ(replies.size(), 1u) << nth;
      EXPECT_EQ(replies[0].token, token) << nth;
      EXPECT_EQ(replies[0].response.status().code(), Code::kResourceExhausted) << nth;
    }
  }
  EXPECT_GT(broken, 5u);
}

}  // namespace
}  // namespace swale::meta::names_allocations_test
