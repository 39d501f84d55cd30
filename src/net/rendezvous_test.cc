#include "net/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/rng.h"
#include "net/rendezvous_file.h"

namespace swale::net {
namespace {

using testing::HasSubstr;

class RendezvousTest : public testing::Test {
 protected:
  RendezvousTest() {
    char path[] = "/tmp/swale_rendezvous_XXXXXX";
    directory_ = ::mkdtemp(path);
  }
  ~RendezvousTest() override { std::filesystem::remove_all(directory_); }

  RendezvousOptions options(Rank rank, int32_t size) const {
    RendezvousOptions out;
    out.directory = directory_;
    out.job_id = "job/1";
    out.node_id = fmt::format("node{}", rank / 2);
    out.rank = rank;
    out.size = size;
    out.leave_wait = milliseconds(20);
    return out;
  }
  std::string job_directory() const {
    for (const auto& each : std::filesystem::directory_iterator(directory_)) return each.path();
    return "";
  }
  std::string node_file(int node) const { return fmt::format("{}/node-node{}", job_directory(), node); }
  // Makes the directory of a job that is gone, as ranks leave it that die at once.
  void make_job_directory() const {
    std::string path;
    {
      const auto bootstrap = rendezvous_bootstrap(options(0, 2));
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
      path = job_directory();
    }
    ASSERT_FALSE(path.empty());
    ASSERT_EQ(job_directory(), "") << "leaving in order removes it";
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  }
  void append(const std::string& path, Bytes bytes) const {
    FILE* file = fopen(path.c_str(), "ab");
    ASSERT_NE(file, nullptr);
    fwrite(bytes.data(), 1, bytes.size(), file);
    fclose(file);
  }
  // A whole job of threads: each rank gathers `rounds` times and leaves.
  void run_job(int32_t size, int rounds) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([=, this] {
        auto bootstrap = rendezvous_bootstrap(options(rank, size));
        ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
        for (int round = 0; round < rounds; ++round) {
          const auto all = (*bootstrap)->allgather(fmt::format("{}:{}", rank, round));
          ASSERT_TRUE(all.ok()) << all.status().to_string();
          for (size_t i = 0; i < all->size(); ++i) ASSERT_EQ((*all)[i], fmt::format("{}:{}", i, round));
        }
      });
    }
    for (auto& each : threads) each.join();
  }

  std::string directory_;
};

TEST_F(RendezvousTest, GathersAndLeavesNothingBehind) {
  run_job(5, 4);
  EXPECT_EQ(job_directory(), "");
  run_job(1, 3);
  EXPECT_EQ(job_directory(), "");
}

TEST_F(RendezvousTest, FilesOfACrashedJobWithTheSameIdAreNotTakenForOurs) {
  // The first job: ranks 0 and 1 get through a round, then all "crash": their files stay.
  std::string crashed;
  {
    auto zero = rendezvous_bootstrap(options(0, 2));
    auto one = rendezvous_bootstrap(options(1, 2));
    ASSERT_TRUE(zero.ok() && one.ok());
    std::thread other([&] { EXPECT_TRUE((*one)->allgather("stale 1").ok()); });
    EXPECT_TRUE((*zero)->allgather("stale 0").ok());
    other.join();
    FILE* file = fopen(node_file(0).c_str(), "rb");
    ASSERT_NE(file, nullptr);
    crashed.resize(100000);
    crashed.resize(fread(crashed.data(), 1, crashed.size(), file));
    fclose(file);
  }
  ASSERT_EQ(job_directory(), "") << "it ended in order; now as if it had not";
  size_t records = 0;
  decode_records(crashed, [&](const RendezvousRecord&) { ++records; });
  ASSERT_GE(records, 5u);
  ASSERT_NO_FATAL_FAILURE(make_job_directory());
  append(node_file(0), crashed);
  append(node_file(7), crashed);                       // its ranks were on other nodes too
  append(node_file(7), Bytes(crashed).substr(0, 20));  // one died while writing
  run_job(2, 3);
  EXPECT_EQ(job_directory(), "") << "and its files went with ours";
}

// The last rank to leave removes the files, and its goodbye with them: who waits for that sees that they are gone.
TEST_F(RendezvousTest, RankZeroDoesNotWaitForRanksThatHaveRemovedTheFiles) {
  RendezvousOptions patient = options(0, 2);
  patient.leave_wait = seconds(3600);
  std::unique_ptr<Bootstrap> one;
  std::thread other([&] {
    auto joined = rendezvous_bootstrap(options(1, 2));
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    EXPECT_TRUE((*joined)->allgather("1").ok());
    one = *std::move(joined);
  });
  auto zero = rendezvous_bootstrap(patient);
  ASSERT_TRUE(zero.ok()) << zero.status().to_string();
  EXPECT_TRUE((*zero)->allgather("0").ok());
  other.join();
  ASSERT_NE(one, nullptr);
  const auto before = std::filesystem::file_size(node_file(0));
  std::thread leaving([&] { zero->reset(); });
  while (std::filesystem::file_size(node_file(0)) == before) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until it looks rarely
  one.reset();
  EXPECT_EQ(job_directory(), "");
  leaving.join();
}

TEST_F(RendezvousTest, AFifoInPlaceOfAFileIsNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(make_job_directory());
  ASSERT_EQ(::mkfifo(node_file(7).c_str(), 0600), 0);
  run_job(2, 2);
}

TEST_F(RendezvousTest, NamesTheRanksThatDoNotCome) {
  RendezvousOptions zero = options(0, 3);
  zero.deadline = milliseconds(30);
  zero.deadline_per_rank = 0;
  RendezvousOptions two = zero;
  two.rank = 2;
  auto present = rendezvous_bootstrap(two);
  ASSERT_TRUE(present.ok());
  const Status lonely = (*present)->allgather("x").status();
  EXPECT_EQ(lonely.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(lonely.message()), HasSubstr("for rank 0 of 3 (never seen)"));
  auto bootstrap = rendezvous_bootstrap(zero);
  ASSERT_TRUE(bootstrap.ok());
  const Status status = (*bootstrap)->allgather("x").status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("2 of 3 ranks to give to allgather 0: 1 (never seen), 2;"));
}

TEST_F(RendezvousTest, TwoProcessesThatClaimOneRankAreReported) {
  auto zero = rendezvous_bootstrap(options(0, 3));
  auto one = rendezvous_bootstrap(options(1, 3));
  auto double_one = rendezvous_bootstrap(options(1, 3));
  ASSERT_TRUE(zero.ok() && one.ok() && double_one.ok());
  Status statuses[3];
  std::thread a([&] { statuses[1] = (*one)->allgather("x").status(); });
  std::thread b([&] { statuses[2] = (*double_one)->allgather("x").status(); });
  statuses[0] = (*zero)->allgather("x").status();
  a.join();
  b.join();
  for (const Status& each : statuses) {
    EXPECT_EQ(each.code(), Code::kBusy) << each.to_string();
    EXPECT_THAT(std::string(each.message()), HasSubstr("claim to be rank 1"));
  }
}

TEST_F(RendezvousTest, RefusesADirectoryThatOthersMayEnter) {
  const auto probe = rendezvous_bootstrap(options(1, 2));  // makes it, and leaves it: it never got in
  ASSERT_TRUE(probe.ok());
  const std::string path = job_directory();
  struct stat found;
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  ASSERT_EQ(::chmod(path.c_str(), 0750), 0);
  const Status status = rendezvous_bootstrap(options(0, 2)).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(path), HasSubstr("0750"), HasSubstr("chmod 700")));
  if (::geteuid() == 0) {  // only root can give a directory away
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    EXPECT_THAT(std::string(rendezvous_bootstrap(options(0, 2)).status().message()),
                HasSubstr("belongs to user 12345"));
  }
}

TEST_F(RendezvousTest, RefusesALinkAndMissingOptions) {
  { const auto probe = rendezvous_bootstrap(options(1, 2)); }
  const std::string path = job_directory();
  std::filesystem::remove_all(path);
  std::filesystem::create_directory_symlink("/tmp", path);
  EXPECT_FALSE(rendezvous_bootstrap(options(0, 2)).ok());
  RendezvousOptions nameless = options(0, 2);
  nameless.job_id = "";
  EXPECT_THAT(std::string(rendezvous_bootstrap(nameless).status().message()), HasSubstr("SWALE_JOB_ID"));
  EXPECT_FALSE(rendezvous_bootstrap(options(2, 2)).ok());
}

TEST(RendezvousRecord, RoundTripsAndSkipsDamage) {
  std::string bytes;
  std::vector<size_t> ends;
  for (uint32_t i = 0; i < 20; ++i) {
    bytes +=
        encode_record({RendezvousKind::kGather, static_cast<Rank>(i), 5, 6, i, std::string(i * 10, 'S')});
    ends.push_back(bytes.size());
  }
  const auto decode = [](Bytes from) {
    std::vector<uint32_t> rounds;
    const size_t done = decode_records(from, [&](const RendezvousRecord& record) {
      EXPECT_EQ(record.body, std::string(record.round * 10, 'S'));
      rounds.push_back(record.round);
    });
    EXPECT_LE(done, from.size());
    return std::pair(rounds, done);
  };
  EXPECT_EQ(decode(bytes).first.size(), 20u);
  EXPECT_EQ(decode(bytes).second, bytes.size());
  // Cut off anywhere: the whole records before the cut, and the rest once it is there.
  for (size_t cut = 0; cut < bytes.size(); cut += 7) {
    const auto [first, done] = decode(Bytes(bytes).substr(0, cut));
    EXPECT_EQ(first.size() + decode(Bytes(bytes).substr(done)).first.size(), 20u) << cut;
  }
  // One byte damaged: at most the record that held it is lost, and never is one invented.
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x21);
    const auto rounds = decode(damaged).first;
    EXPECT_GE(rounds.size(), 19u) << at;
    EXPECT_LT(rounds.size(), 20u) << at;
  }
}

}  // namespace
}  // namespace swale::net
