#include "net/meeting/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "net/meeting/rendezvous_file.h"
#include "net/meeting/testing/bootstrap_test_util.h"

namespace swale::net::rendezvous_test {
namespace {

using testing::HasSubstr;

// With the parameter, each rank reads what all give; or rank 0 does so for all, as in a large job.
class RendezvousTest : public testing::TestWithParam<bool> {
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
    if (GetParam()) out.collect_above = 0;
    return out;
  }
  std::string job_directory() const {
    for (const auto& each : std::filesystem::directory_iterator(directory_)) return each.path();
    return "";
  }
  std::string node_file(int node) const { return fmt::format("{}/node-node{}", job_directory(), node); }
  std::string answers_file() const { return job_directory() + "/answers"; }
  static std::string bytes_of(const std::string& path) {
    std::string bytes;
    if (FILE* file = fopen(path.c_str(), "rb")) {
      bytes.resize(100000);
      bytes.resize(fread(bytes.data(), 1, bytes.size(), file));
      fclose(file);
    }
    return bytes;
  }
  static std::string address_of(Rank rank) {
    return fmt::format("address {}", std::string(static_cast<size_t>(rank), '@'));
  }
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
        RendezvousOptions mine = options(rank, size);
        if (GetParam()) mine.leave_wait = seconds(60);  // rank 0 removes the files, when all have left
        auto bootstrap = rendezvous_bootstrap(mine);
        ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
        for (int round = 0; round < rounds; ++round) {
          const auto all = allgather(**bootstrap, fmt::format("{}:{}", rank, round));
          ASSERT_TRUE(all.ok()) << all.status().to_string();
          ASSERT_EQ(all->size(), static_cast<size_t>(size));
          for (size_t i = 0; i < all->size(); ++i) ASSERT_EQ((*all)[i], fmt::format("{}:{}", i, round));
        }
        const NodeMap nodes = NodeMap::in_blocks(std::vector<int32_t>{size}).value();
        const auto book = (*bootstrap)->publish(encode_address(rank, "host", address_of(rank)), nodes);
        ASSERT_TRUE(book.ok()) << book.status().to_string();
        for (Rank each = 0; each < size; ++each) {
          const auto found = (*book)->find(each);
          ASSERT_TRUE(found.ok()) << found.status().to_string();
          EXPECT_EQ(found->address, address_of(each));
        }
        EXPECT_EQ((*book)->private_bytes() == 0, GetParam());
      });
    }
    for (auto& each : threads) each.join();
  }

  std::string directory_;
};

TEST_P(RendezvousTest, GathersAndLeavesNothingBehind) {
  run_job(5, 4);
  EXPECT_EQ(job_directory(), "");
  run_job(1, 3);
  EXPECT_EQ(job_directory(), "");
}

TEST_P(RendezvousTest, FilesOfACrashedJobWithTheSameIdAreNotTakenForOurs) {
  // The first job: ranks 0 and 1 get through a round, then all "crash": their files stay.
  std::string crashed, answers;
  {
    auto zero = rendezvous_bootstrap(options(0, 2));
    auto one = rendezvous_bootstrap(options(1, 2));
    ASSERT_TRUE(zero.ok() && one.ok());
    std::thread other([&] { EXPECT_TRUE(allgather(**one, "stale 1").ok()); });
    EXPECT_TRUE(allgather(**zero, "stale 0").ok());
    other.join();
    crashed = bytes_of(node_file(0));
    answers = bytes_of(answers_file());
  }
  ASSERT_EQ(job_directory(), "") << "it ended in order; now as if it had not";
  size_t records = 0;
  decode_records(crashed + answers, [&](const RendezvousRecord&) { ++records; });
  ASSERT_GE(records, 5u);
  ASSERT_NO_FATAL_FAILURE(make_job_directory());
  append(node_file(0), crashed);
  append(answers_file(), answers);
  append(node_file(7), crashed);                       // its ranks were on other nodes too
  append(node_file(7), Bytes(crashed).substr(0, 20));  // one died while writing
  run_job(2, 3);
  EXPECT_EQ(job_directory(), "") << "and its files went with ours";
}

// The last rank to leave removes the files, and its goodbye with them: who waits for that sees that they are
// gone.
TEST_P(RendezvousTest, RankZeroDoesNotWaitForRanksThatHaveRemovedTheFiles) {
  if (GetParam()) return;  // nobody but rank 0 removes them
  RendezvousOptions patient = options(0, 2);
  patient.leave_wait = seconds(3600);
  std::unique_ptr<Bootstrap> one;
  std::thread other([&] {
    auto joined = rendezvous_bootstrap(options(1, 2));
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    EXPECT_TRUE(allgather(**joined, "1").ok());
    one = *std::move(joined);
  });
  auto zero = rendezvous_bootstrap(patient);
  ASSERT_TRUE(zero.ok()) << zero.status().to_string();
  EXPECT_TRUE(allgather(**zero, "0").ok());
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

// The earlier job removes its files when a rank of this one has said hello already, and another rank of that
// node comes before it removes the directory: then the node's file is there, but without that hello.
TEST_P(RendezvousTest, AHelloThatAnEarlierJobRemovedIsSaidAgainThoughTheFileIsThere) {
  const auto options_of = [&](Rank rank) {
    RendezvousOptions mine = options(rank, 4);
    mine.deadline = seconds(60);
    mine.deadline_per_rank = 0;
    return mine;
  };
  std::vector<std::unique_ptr<Bootstrap>> ranks(4);
  ranks[2] = rendezvous_bootstrap(options_of(2)).value();
  ASSERT_TRUE(std::filesystem::remove(node_file(1)));
  for (const Rank rank : {3, 0, 1})
    ranks[static_cast<size_t>(rank)] = rendezvous_bootstrap(options_of(rank)).value();
  std::vector<std::thread> threads;
  for (auto& each : ranks) {
    threads.emplace_back([&] {
      const auto all = allgather(*each, fmt::format("{}", each->rank()));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      EXPECT_THAT(*all, testing::ElementsAre("0", "1", "2", "3"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(RendezvousTest, AFifoInPlaceOfAFileIsNotWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(make_job_directory());
  ASSERT_EQ(::mkfifo(node_file(7).c_str(), 0600), 0);
  run_job(2, 2);
}

TEST_P(RendezvousTest, NamesTheRanksThatDoNotCome) {
  RendezvousOptions zero = options(0, 3);
  zero.deadline = milliseconds(30);
  zero.deadline_per_rank = 0;
  RendezvousOptions two = zero;
  two.rank = 2;
  auto present = rendezvous_bootstrap(two);
  ASSERT_TRUE(present.ok());
  const Status lonely = allgather(**present, "x").status();
  EXPECT_EQ(lonely.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(lonely.message()), HasSubstr("for rank 0 of 3 (never seen)"));
  auto bootstrap = rendezvous_bootstrap(zero);
  ASSERT_TRUE(bootstrap.ok());
  const Status status = allgather(**bootstrap, "x").status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("2 of 3 ranks to give to allgather 0: 1 (never seen), 2;"));
}

TEST_P(RendezvousTest, TwoProcessesThatClaimOneRankAreReported) {
  auto zero = rendezvous_bootstrap(options(0, 3));
  auto one = rendezvous_bootstrap(options(1, 3));
  auto double_one = rendezvous_bootstrap(options(1, 3));
  ASSERT_TRUE(zero.ok() && one.ok() && double_one.ok());
  Status statuses[3];
  std::thread a([&] { statuses[1] = allgather(**one, "x").status(); });
  std::thread b([&] { statuses[2] = allgather(**double_one, "x").status(); });
  statuses[0] = allgather(**zero, "x").status();
  a.join();
  b.join();
  for (const Status& each : statuses) {
    EXPECT_EQ(each.code(), Code::kBusy) << each.to_string();
    EXPECT_THAT(std::string(each.message()), HasSubstr("claim to be rank 1"));
  }
}

TEST_P(RendezvousTest, RefusesADirectoryThatOthersMayEnter) {
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

// All ranks of a job publish, in two ways: rank 2 has no address; or somebody cuts the file of the addresses,
// so that only who looks up the ranks at its end finds it damaged.
TEST_P(RendezvousTest, AnAddressThatIsNotThereIsNamed) {
  for (const bool none : {true, false}) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < 3; ++rank) {
      threads.emplace_back([=, this] {
        RendezvousOptions mine = options(rank, 3);
        mine.leave_wait = seconds(60);
        auto bootstrap = rendezvous_bootstrap(mine);
        ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().to_string();
        const NodeMap nodes = NodeMap::in_blocks(std::vector<int32_t>{3}).value();
        const Result<std::string> address =
            none && rank == 2 ? Result<std::string>(invalid_argument("no network")) : address_of(rank);
        const auto book = (*bootstrap)->publish(encode_address(rank, "host", address), nodes);
        ASSERT_EQ(book.ok(), !none) << book.status().to_string();
        if (none) {
          EXPECT_THAT(std::string(book.status().message()), HasSubstr("rank 2 (host host) could not start"));
        } else if (GetParam()) {
          ASSERT_TRUE(allgather(**bootstrap, "all have it open").ok());
          for (const auto& each : std::filesystem::directory_iterator(job_directory())) {
            if (each.path().filename().string().starts_with("addresses-"))
              std::filesystem::resize_file(each.path(), 40);
          }
          ASSERT_TRUE(allgather(**bootstrap, "it is cut").ok());
          const Status cut = (*book)->find(2).status();
          EXPECT_EQ(cut.code(), Code::kCorruption);
          EXPECT_THAT(std::string(cut.message()),
                      testing::AllOf(HasSubstr("addresses-"), HasSubstr("rank 2 of 3")));
        }
      });
    }
    for (auto& each : threads) each.join();
  }
}

TEST_P(RendezvousTest, RefusesALinkAndMissingOptions) {
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

INSTANTIATE_TEST_SUITE_P(Jobs, RendezvousTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Large" : "Small"; });

// A record that is longer than the window in which files are read, and one behind it.
TEST(RendezvousDirectory, ReadsLongRecords) {
  char path[] = "/tmp/swale_rendezvous_XXXXXX";
  const std::string folder = std::string(::mkdtemp(path)) + "/job";
  RendezvousDirectory directory(folder, "a");
  ASSERT_TRUE(directory.open().ok());
  std::vector<size_t> written, read;
  for (const size_t bytes : {size_t{10}, 3 * RendezvousDirectory::kWindowBytes, size_t{0},
                             RendezvousDirectory::kWindowBytes, size_t{100}}) {
    ASSERT_TRUE(directory.append({RendezvousKind::kGather, 1, 2, 3, 4, std::string(bytes, 'S')}).ok());
    written.push_back(bytes);
  }
  const auto visit = [&](const RendezvousRecord& record) { read.push_back(record.body.size()); };
  ASSERT_TRUE(directory.scan(visit).ok());
  EXPECT_EQ(read, written);
  ASSERT_TRUE(directory.scan(visit).ok());
  EXPECT_EQ(read, written) << "nothing is handed over twice";
  ASSERT_TRUE(directory.scan_again(visit).ok());
  EXPECT_EQ(read.size(), 2 * written.size());
  directory.remove_all();
  std::filesystem::remove_all(std::filesystem::path(folder).parent_path());
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
}  // namespace swale::net::rendezvous_test
