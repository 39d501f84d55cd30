// The n-th allocation of every `swale` subcommand fails: it exits with a code that says so and a plain
// message, or its output is right; it never crashes. SWALE_FAULT_ROUNDS > 1 visits every n.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/rng.h"
#include "io/posix_device.h"
#include "meta/store/store.h"
#include "net/meeting/bootstrap.h"
#include "tests/faults/failing_new.h"
#include "tests/faults/reader_calls.h"

#define main swale_main
#include "tools/main.cc"  // NOLINT(bugprone-suspicious-include)
#undef main

namespace swale::faults::command_allocations_test {
namespace {

constexpr uint64_t kSampled = 14;

struct Outcome {
  int status = 0;  // as waitpid has it
  std::string out;
  std::string err;
  uint64_t allocations = 0;
  bool failed = false;  // an allocation

  bool exited() const { return WIFEXITED(status); }
  int code() const { return WEXITSTATUS(status); }
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A metadata store with runs, extents, a truncated and a sealed file; in logs and in sorted files.
void make_store(const std::string& path) {
  const auto job = net::Job::open(net::solo_bootstrap(), net::JobOptions());
  ASSERT_TRUE(job.ok());
  io::PosixDevice device;
  meta::StoreOptions options;
  options.range_bytes = 4096;
  options.shard.write_buffer_entries = 50;
  options.shard.compression_buffer_bytes = 200;
  const auto store = meta::Store::open(**job, device, path, options);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  auto client = (*store)->client();
  Rng rng(5);
  for (const char* const name : {"scattered", "regular"}) {
    auto file = client->open(name, meta::Client::kCreate, 0644, 1);
    ASSERT_TRUE(file.ok());
    for (int batch = 0; batch < 4; ++batch) {
      std::vector<meta::Extent> segments;
      for (uint64_t i = 0; i < 60; ++i) {
        const uint64_t offset = name[0] == 's' ? rng.below(1 << 20) : (batch * 60 + i) * 1024;
        segments.push_back({offset, 512, {3, i * 512}});
      }
      ASSERT_TRUE(client->put(&*file, segments).ok());
    }
    ASSERT_TRUE(client->close(&*file, 2).ok());
    ASSERT_TRUE((name[0] == 's' ? client->truncate(&*file, 1 << 19, 3) : client->seal(&*file)).ok());
  }
  client.reset();
  ASSERT_TRUE((*store)->close().ok());
  ASSERT_TRUE((*job)->close().ok());
}

class CommandAllocations : public testing::Test {
 protected:
  CommandAllocations() : sample_(60), scratch_(sample_.path() + "-scratch") {
    std::filesystem::create_directory(scratch_);
    make_store(scratch_ + "/meta");
    shared_ = static_cast<uint64_t*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~CommandAllocations() override {
    std::filesystem::remove_all(scratch_);
    ::munmap(shared_, 4096);
  }

  // In a child; n = 0: nothing fails.
  Outcome run(const std::vector<std::string>& words, uint64_t n,
              FailingNew::Which which = FailingNew::Which::kOnce) const {
    const std::string out = scratch_ + "/out";
    const std::string err = scratch_ + "/err";
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    shared_[0] = shared_[1] = 0;
    const pid_t child = ::fork();
    if (child == 0) {
      if (std::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(99);
      if (std::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(99);
      FailingNew::report_to(shared_);
      int code = 0;
      {
        const FailingNew plan(which, n, FailingNew::Threads::kAll);
        code = swale_main(static_cast<int>(words.size()), arguments.data());
      }
      std::fflush(stdout);
      std::fflush(stderr);
      ::_exit(code);
    }
    Outcome outcome;
    ::waitpid(child, &outcome.status, 0);
    outcome.out = content_of(out);
    outcome.err = content_of(err);
    outcome.allocations = shared_[0];
    outcome.failed = shared_[1] > 0;
    return outcome;
  }

  // "" if the outcome is a plain failure, or what it should be.
  static std::string wrong_with(const Outcome& outcome, const Outcome& right) {
    if (!outcome.exited())
      return fmt::format("ended by signal {}: {}", WTERMSIG(outcome.status), outcome.err);
    if (outcome.code() == right.code() && outcome.out == right.out) return "";
    // "Damaged", "lost" or "not there" is an answer, and memory that ran out says nothing of the kind.
    if (outcome.code() == tools::kExitNotFound) return fmt::format("the answer is {}", outcome.out);
    if (outcome.code() == 0 || outcome.code() == 99) {
      return fmt::format("exit code {}, output of {} bytes instead of {}", outcome.code(), outcome.out.size(),
                         right.out.size());
    }
    if (outcome.err.find("memory") == std::string::npos) {
      return fmt::format("exit code {}, but the message is: {}", outcome.code(), outcome.err);
    }
    return "";
  }

  std::vector<std::vector<std::string>> commands() const {
    const std::string& path = sample_.path();
    std::vector<std::vector<std::string>> all = {
        {"swale", "info", path},
        {"swale", "info", path, "--json"},
        {"swale", "ls", path},
        {"swale", "get", path, sample_.key(7)},
        {"swale", "get", path, sample_.key(1), "--json"},
        {"swale", "scan", path, "--jobs", "1"},
        {"swale", "scan", path, "--jobs", "3", "--json"},
        {"swale", "keys", path, "--epoch", "1"},
        {"swale", "top", path, "x", "--json"},
        {"swale", "stats", path},
        {"swale", "verify", path},
        {"swale", "config"},
        {"swale", "dump", path + "/swale.json"},
    };
    for (const char* const what : {"info", "stats", "verify", "dump"})
      all.push_back({"swale", what, scratch_ + "/meta"});
    const size_t enough = all.size() + 3;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      const std::string name = entry.path().string();
      if (name.ends_with(".data") || name.ends_with(".index")) all.push_back({"swale", "dump", name});
      if (all.size() >= enough) break;
    }
    return all;
  }

  static std::set<uint64_t> points_of(uint64_t allocations, Rng& rng) {
    const char* rounds = std::getenv("SWALE_FAULT_ROUNDS");
    std::set<uint64_t> points;
    if (rounds != nullptr && std::atoi(rounds) > 1) {
      for (uint64_t n = 1; n <= allocations; ++n) points.insert(n);
      return points;
    }
    for (uint64_t i = 0; i < kSampled; ++i) points.insert(1 + rng.below(allocations));
    return points;
  }

  const ReaderSample sample_;
  const std::string scratch_;
  uint64_t* shared_ = nullptr;
};

TEST_F(CommandAllocations, AreToldPlainlyOrDoNoHarm) {
  Rng rng(21);
  uint64_t points = 0;
  uint64_t told = 0;
  for (const std::vector<std::string>& command : commands()) {
    const Outcome right = run(command, 0);
    ASSERT_TRUE(right.exited() && right.code() == 0)
        << command[1] << ": " << right.code() << " " << right.err;
    for (const uint64_t n : points_of(right.allocations, rng)) {
      for (const auto which : {FailingNew::Which::kOnce, FailingNew::Which::kFromThere}) {
        const Outcome outcome = run(command, n, which);
        ++points;
        told += outcome.exited() && outcome.code() != 0 ? 1 : 0;
        EXPECT_EQ(wrong_with(outcome, right), "")
            << command[1] << " " << command.back()
            << (which == FailingNew::Which::kOnce ? ", allocation " : ", from allocation ") << n;
      }
    }
  }
  fmt::print("{} failed allocations of {} commands: {} were told\n", points, commands().size(), told);
  EXPECT_GT(told, points / 2);
}

// What a repair that ran out of memory has left, the next repair mends.
TEST_F(CommandAllocations, OfARepairLeaveTheNextOneItsWork) {
  const std::string copy = scratch_ + "/copy";
  const auto damage = [&] {
    std::filesystem::remove_all(copy);
    std::filesystem::copy(sample_.path(), copy, std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(copy)) {
      if (entry.path().string().ends_with("part-000001.index")) {
        std::filesystem::remove(entry.path());
        break;
      }
    }
  };
  const std::vector<std::string> scan = {"swale", "scan", copy, "--jobs", "1"};
  const std::vector<std::string> repair = {"swale", "repair", copy};
  damage();
  const Outcome right = run(repair, 0);
  const Outcome read = run(scan, 0);
  ASSERT_EQ(read.code(), 0) << read.err;
  Rng rng(22);
  uint64_t points = 0;
  for (const uint64_t n : points_of(right.allocations, rng)) {
    damage();
    const Outcome outcome = run(repair, n);
    ++points;
    EXPECT_TRUE(outcome.exited()) << n << outcome.err;
    if (outcome.code() != right.code()) {
      EXPECT_NE(outcome.code(), 0) << n;
      EXPECT_EQ(run(repair, 0).code(), right.code()) << n;
    }
    const Outcome after = run(scan, 0);
    EXPECT_EQ(after.code(), 0) << n << after.err;
    EXPECT_TRUE(after.out == read.out) << n;
  }
  fmt::print("{} failed allocations of repair\n", points);
}

// The canary.
TEST_F(CommandAllocations, CheckerNoticesWrongOutputAndCrashes) {
  const std::vector<std::string> info = {"swale", "info", sample_.path()};
  Outcome right = run(info, 0);
  EXPECT_EQ(wrong_with(right, right), "");
  Outcome other = right;
  other.out += "x";
  EXPECT_NE(wrong_with(other, right), "");
  other = right;
  other.status = SIGABRT;
  EXPECT_NE(wrong_with(other, right), "");
  other.status = 3 << 8;
  other.out = "";
  EXPECT_NE(wrong_with(other, right), "") << "a failure without a message";
  other.status = tools::kExitNotFound << 8;
  other.err = "swale: no memory";
  EXPECT_NE(wrong_with(other, right), "") << "it calls whole data damaged";
}

}  // namespace
}  // namespace swale::faults::command_allocations_test
