// tree_ranks DIR write|check NOTES HELD: one node of a job with a tree over DIR/backing, for
// tree_ranks_test.cc. The place in the job is in SWALE_JOB_*; HELD is ignored.
//
// write: in rounds, writes its block of a file of all nodes and closes it, and syncs it in every fifth round,
// until it is killed. It notes in NOTES.rank what it is about to commit ("? 0 ROUND") and what was committed
// ("= 0 ROUND"). Prints "made N" after every tenth round, and "gone: ..." when a node does not answer.
// check: brings all to the backing; then rank 0 compares the file there with the notes of all ranks. Prints
// "wrong: ...", or "done".
#include <cerrno>
#include <filesystem>
#include <string>

#include "fs/job/job_fs.h"
#include "fs/testing/file_system_calls.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/fabric/tls_fabric.h"
#include "tests/faults/rank_rounds.h"

namespace swale::fs {
namespace {

constexpr uint64_t kBlock = 100;  // bytes of each node; each has the number of its round
constexpr uint64_t kRounds = 250;
constexpr Nanos kPatience = seconds(20);

class TreeRank {
 public:
  TreeRank(net::Job& job, const std::string& directory, const std::string& notes)
      : job_(job), rank_(job.rank()), backing_(directory + "/backing"), notes_path_(notes) {
    const std::string own = fmt::format("{}/{}", directory, rank_);
    std::filesystem::create_directories(own);
    std::filesystem::create_directories(backing_);
    meta::JobNamesOptions of_names;
    of_names.deadline = kPatience;
    names_ = take(meta::JobNames::open(job, device_, own + "/names", of_names));
    NodePeersOptions of_peers;
    of_peers.patience = kPatience;
    names_->with_server([&](meta::NamesServer& server) { of_peers.own = server.server(); });
    peers_ = take(NodePeers::open(job, of_peers));
    io::PosixOptions beneath;
    beneath.links = io::PosixOptions::Links::kNone;
    anchored_ = take(io::PosixDevice(beneath).anchored(backing_));
    JobFsOptions options;
    options.backing = backing_;
    options.job = "test";
    options.state_folder = own + "/state";
    options.logs.memory_directory = own + "/memory";
    options.logs.spill_directory = own + "/spill";
    options.logs.memory_bytes = 16 * options.logs.shape.chunk_bytes;
    options.logs.shape.node = "here";
    fs_ = take(JobFs::open(names_->client(), device_, device_, *anchored_, options, peers_.get()));
    calls_ = std::make_unique<FileSystemCalls>(*fs_);
  }

  void write_until_killed() {
    const RoundNotes notes(fmt::format("{}.{}", notes_path_, rank_));
    const auto failed = [&](int error, const char* what) {
      if (error == EIO) say(fmt::format("gone: {}", what));
      if (error != 0 && error != EIO) stop("failed", fmt::format("{}: errno {}", what, error));
      return error != 0;
    };
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (round % 10 == 0) say(fmt::format("made {}", round));
      int handle = -1;
      if (failed(calls_->open("shared", O_RDWR | O_CREAT, 0644, &handle), "open")) continue;
      notes.add('?', 0, round);
      const std::string block(kBlock, static_cast<char>(round));
      failed(calls_->write(handle, static_cast<uint64_t>(rank_) * kBlock, block), "write");
      if (round % 5 == 0 && failed(calls_->sync(handle), "sync"))
        say(fmt::format("lost: {}", fs_->stats().last_failure));
      if (!failed(calls_->close(handle), "close")) notes.add('=', 0, round);
    }
    for (;;) ::pause();
  }

  void check() {
    expect(fs_->drain_all());
    take(job_.allgather(""));
    if (rank_ != 0) return;
    const std::string bytes = take(io::read_file(device_, backing_ + "/shared", kMiB));
    uint64_t committed = 0;
    for (net::Rank node = 0; node < job_.size(); ++node) {
      const Noted noted = read_notes(fmt::format("{}.{}", notes_path_, node))[0];
      committed += noted.committed;
      for (const char each : bytes.substr(static_cast<uint64_t>(node) * kBlock, kBlock)) {
        const uint64_t round = static_cast<unsigned char>(each);
        if (round < noted.committed || round > noted.begun)
          stop("wrong", fmt::format("node {} has committed {} and begun {}, and {} is there", node,
                                    noted.committed, noted.begun, round));
      }
    }
    if (committed == 0 || bytes.size() != static_cast<uint64_t>(job_.size()) * kBlock)
      stop("wrong", fmt::format("{} bytes are there, {} rounds were committed", bytes.size(), committed));
    say(fmt::format("checked {} rounds", committed));
  }

  void close() {
    calls_.reset();
    fs_->rest();
    expect(peers_->close());
    fs_.reset();
    expect(names_->close());
  }

 private:
  net::Job& job_;
  const net::Rank rank_;
  const std::string backing_;
  const std::string notes_path_;
  io::PosixDevice device_;
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<NodePeers> peers_;
  std::unique_ptr<JobFs> fs_;
  std::unique_ptr<FileSystemCalls> calls_;
};

int run(char** argv) {
  net::register_fabric(net::tls_fabric());
  const auto job = faults::open_job();
  {
    TreeRank rank(*job, argv[1], argv[3]);
    if (std::string(argv[2]) == "write") rank.write_until_killed();
    rank.check();
    rank.close();
  }
  expect(job->close());
  say("done");
  return 0;
}

}  // namespace
}  // namespace swale::fs

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  return swale::fs::run(argv);
}
