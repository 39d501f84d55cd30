// share_ranks DIR write|hasty|check NOTES HELD: one node of a job whose nodes share files, for
// share_ranks_test.cc. The place in the job is in SWALE_JOB_*; HELD is ignored.
//
// write: in rounds, writes its block of each file, commits, and reads all blocks, until it is killed. It
// notes in NOTES.rank what it is about to commit ("? FILE ROUND") and what was committed ("= FILE ROUND"). No
// block may be older than the notes say. Prints "made N" after every tenth round, and "gone: ..." when a node
// does not answer. hasty, for a canary: notes before the commit that it is done.
// check: rank 0 compares all blocks with the notes of all ranks. Prints "wrong: ...", or "done".
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "fs/log/log_writer.h"
#include "fs/peers/remote_peers.h"
#include "io/posix_device.h"
#include "net/fabric/tls_fabric.h"
#include "tests/faults/rank_rounds.h"

namespace swale::fs {
namespace {

constexpr uint64_t kBlock = 100;  // bytes of each node in each file; each has the number of its round
constexpr uint64_t kRounds = 250;
constexpr Nanos kPatience = seconds(20);

meta::FileId file_of(net::Rank root) { return {static_cast<uint64_t>(root), 5}; }

class FilesByRoot final : public Backing {
 public:
  using Backing::Backing;
  Result<std::string> path_of(const meta::FileId& file) override {
    return fmt::format("{}/{}", root(), file.high);
  }
};

class ShareRank {
 public:
  ShareRank(net::Job& job, const std::string& directory, const std::string& notes)
      : rank_(job.rank()), ranks_(job.size()), notes_path_(notes) {
    const std::string own = fmt::format("{}/{}", directory, rank_);
    std::filesystem::create_directories(own);
    std::filesystem::create_directories(directory + "/backing");
    backing_ = std::make_unique<FilesByRoot>(device_, directory + "/backing");
    NodePeersOptions of_peers;
    of_peers.patience = kPatience;
    of_peers.own = static_cast<NodeId>(rank_);
    peers_ = take(NodePeers::open(job, of_peers));
    roots_ = take(KeptRoots::open(device_, own + "/roots"));
    remote_ = std::make_unique<RemotePeers>(*peers_, *roots_);
    shared_ = std::make_unique<SharedFiles>(peers_->own(), *remote_, mutex_);
    NodeLogsOptions options;
    options.memory_directory = own + "/memory";
    options.spill_directory = own + "/spill";
    options.memory_bytes = 16 * options.shape.chunk_bytes;
    options.shape.node = "here";
    files_ = take(NodeFiles::open(device_, device_, options, *backing_, shared_.get()));
    for (net::Rank root = 0; root < ranks_; ++root) expect(files_->open_file(file_of(root)));
    const uint32_t log = take(files_->logs().add_log());
    if (writer_.attach(options.memory_directory.c_str(), log) != 0) stop("failed", "no log");
    shared_->start(files_.get());
    expect(remote_->start(shared_.get()));
  }

  void write_until_killed(bool hasty) {
    const RoundNotes notes(fmt::format("{}.{}", notes_path_, rank_));
    for (uint64_t round = 1; round <= kRounds; ++round) {
      for (net::Rank root = 0; root < ranks_; ++root) {
        const std::string block(kBlock, static_cast<char>(round));
        notes.add('?', root, round);
        if (hasty) notes.add('=', root, round);
        if (writer_.write(file_of(root), place_of(rank_), block.data(), block.size()) < 0)
          stop("failed", "a write");
        const Status committed = hasty ? Status() : shared_->commit(file_of(root));
        if (committed.posix_error() == EIO) say("gone: " + committed.to_string());
        if (committed.ok() && !hasty) notes.add('=', root, round);
        for (net::Rank node = 0; node < ranks_; ++node) look(root, node);
      }
      if (round % 10 == 0) say(fmt::format("made {}", round));
    }
    for (;;) {
      for (net::Rank node = 0; node < ranks_; ++node) look(node, node);
      ::usleep(10'000);
    }
  }

  // Each block of each file.
  void check() {
    for (net::Rank root = 0; root < ranks_; ++root)
      for (net::Rank node = 0; node < ranks_; ++node) look(root, node);
    if (committed_ == 0) stop("wrong", "nothing was committed");
    say(fmt::format("checked {} blocks", committed_));
  }

  void close() { expect(peers_->close()); }

 private:
  static uint64_t place_of(net::Rank node) { return static_cast<uint64_t>(node) * kBlock; }

  void look(net::Rank root, net::Rank node) {
    const Noted before = read_notes(fmt::format("{}.{}", notes_path_, node))[root];
    std::string block(kBlock, '\0');
    const auto got = shared_->read(file_of(root), place_of(node), block);
    if (got.status().posix_error() == EIO) return say("gone: " + got.status().to_string());
    expect(got.status());
    const Noted after = read_notes(fmt::format("{}.{}", notes_path_, node))[root];
    block.resize(*got, '\0');
    block.resize(kBlock, '\0');
    committed_ += before.committed > 0;
    for (const char each : block) {
      const uint64_t round = static_cast<unsigned char>(each);
      if (round < before.committed || round > after.begun)
        stop("wrong", fmt::format("file {}: node {} has committed {} and begun {}, and {} is read", root,
                                  node, before.committed, after.begun, round));
    }
  }

  const net::Rank rank_, ranks_;
  const std::string notes_path_;
  uint64_t committed_ = 0;
  io::PosixDevice device_;
  Mutex mutex_;
  std::unique_ptr<Backing> backing_;
  std::unique_ptr<NodePeers> peers_;
  std::unique_ptr<KeptRoots> roots_;
  std::unique_ptr<RemotePeers> remote_;
  std::unique_ptr<SharedFiles> shared_;
  std::unique_ptr<NodeFiles> files_;
  LogWriter writer_;
};

int run(char** argv) {
  net::register_fabric(net::tls_fabric());
  const auto job = faults::open_job();
  {
    ShareRank rank(*job, argv[1], argv[3]);
    const std::string mode = argv[2];
    if (mode != "check") rank.write_until_killed(mode == "hasty");
    take(job->allgather(""));
    if (job->rank() == 0) rank.check();
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
