// bench_fs_remote: a node of a job reads what another one has written and committed, 1 MiB at a time, beside
// an RPC of the same job that answers with 1 MiB, in turns. Two nodes: processes of this machine; fabrics by
// UCX_TLS. The file systems are asked as their servers ask them: the mount's share is in tree_bench.cc.
//   --path DIR    a folder on a disk
//   --memory DIR  on a memory file system
//   --mib N       of each of two files: the root of one is the node that reads, of the other the one that
//                 wrote
//   --rounds N
// Reported: the medians of the rounds' ratios, RPC over read.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "bench/ranks.h"
#include "bench/writer_job.h"
#include "fs/job/job_fs.h"
#include "fs/peers/remote_peers.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/rpc/rpc.h"

namespace swale::bench {
namespace {

constexpr uint64_t kBlock = 1 << 20;
constexpr int kWriter = 0, kReader = 1;
constexpr uint64_t kNamesTried = 64;

struct Settings {
  std::string path, memory;
  uint64_t mib = 0, rounds = 0;
};

// Of both: the one that answers, and the one that asks.
class Answers final : public net::RpcService {
 public:
  void on_requests(std::span<net::RpcRequest> requests) override {
    for (net::RpcRequest& each : requests) rpc->reply(each.token, net::RpcPayload(block_));
  }
  net::Rpc* rpc = nullptr;

 private:
  const std::shared_ptr<const std::string> block_ = std::make_shared<const std::string>(kBlock, 'r');
};

class Node {
 public:
  Node(net::Job& job, const Settings& settings) {
    const std::string own = fmt::format("{}/{}", settings.path, job.rank());
    names_ = take(meta::JobNames::open(job, device_, own + "/names", {}));
    fs::NodePeersOptions of_peers;
    names_->with_server([&](meta::NamesServer& server) { of_peers.own = server.server(); });
    peers_ = take(fs::NodePeers::open(job, of_peers));
    io::PosixOptions beneath;
    beneath.links = io::PosixOptions::Links::kNone;
    anchored_ = take(io::PosixDevice(beneath).anchored(settings.path + "/backing"));
    fs::JobFsOptions options;
    options.backing = settings.path + "/backing";
    options.job = "bench";
    options.state_folder = own + "/state";
    options.logs.memory_directory = fmt::format("{}/{}", settings.memory, job.rank());
    options.logs.spill_directory = own + "/spill";
    options.logs.memory_bytes = 2 * (2 * settings.mib << 20) + (64 << 20);
    options.logs.shape.node = "here";
    options.logs.shape.wait_ns = 60'000'000'000;
    options.drains_alone = false;
    fs_ = take(fs::JobFs::open(names_->client(), device_, device_, *anchored_, options, peers_.get()));
  }
  void close() {
    fs_->rest();
    check(peers_->close());
    fs_.reset();
    check(names_->close());
  }

  fs::NodeId number() const { return peers_->own(); }
  fs::NodeId root_of(const std::string& name) {
    return fs::root_of(take(names_->client().find(meta::kRootDirectory, name)).file);
  }
  void write(const std::string& name, uint64_t mib) {
    fs::Entry entry;
    std::unique_ptr<fs::OpenFile> file;
    expect(fs_->create(*fs_->root(), name.c_str(), 0644, O_RDWR, caller_, &entry, &file));
    const std::string block(kBlock, 'w');
    for (uint64_t i = 0; i < mib; ++i)
      fs_->write_bytes(*file, i * kBlock, Bytes(block.data(), block.size()), caller_,
                       [](int failed) { expect(failed); });
    expect(fs_->flush(*file));
    fs_->release(std::move(file));
    fs_->forget(entry.node, 1);
  }
  double read(const std::string& name, uint64_t mib) {
    fs::Entry entry;
    std::unique_ptr<fs::OpenFile> file;
    expect(fs_->lookup(*fs_->root(), name.c_str(), &entry));
    expect(fs_->open_file(*entry.node, O_RDONLY, caller_, &file));
    std::string out(kBlock, ' ');
    const Stopwatch watch;
    for (uint64_t i = 0; i < mib; ++i) {
      size_t got = 0;
      expect(fs_->read(*file, i * kBlock, MutableBytes(out.data(), out.size()), &got));
      if (got != kBlock || out.front() != 'w' || out.back() != 'w') die(name + ": a read gave other bytes");
    }
    const double took = watch.wall_s();
    fs_->release(std::move(file));
    fs_->forget(entry.node, 1);
    return took;
  }

 private:
  static void expect(int failed) {
    if (failed != 0) die(std::string("the tree: ") + ::strerror(failed));
  }

  const fs::Caller caller_ = fs::Caller::this_thread();
  io::PosixDevice device_;
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<fs::NodePeers> peers_;
  std::unique_ptr<fs::JobFs> fs_;
};

double ask(net::Rpc* rpc, uint64_t mib) {
  net::RpcClient client(rpc);
  const auto question = std::make_shared<const std::string>(64, 'q');
  std::string out(kBlock, ' ');
  std::vector<net::RpcCompletion> done;
  const Stopwatch watch;
  for (uint64_t i = 0; i < mib; ++i) {
    net::RpcCall call{.to = kWriter, .payload = question};
    call.response_bytes_max = kBlock;
    take(client.call(std::move(call)));
    done.clear();
    client.wait(&done);
    check(done.front().response.status());
    if (done.front().response->size() != kBlock) die("an answer has other bytes");
    std::memcpy(out.data(), done.front().response->data(),
                kBlock);  // to where the caller wants it, as a read
  }
  return watch.wall_s();
}

// Two files: the node that reads is the root of one, the node that writes of the other. Both find the same.
struct Names {
  std::string of_reader, of_writer;
};
Names names_of(Node& node, bool writes, const std::function<void(const std::string&)>& make) {
  Names found;
  for (uint64_t i = 0; i < kNamesTried && (found.of_reader.empty() || found.of_writer.empty()); ++i) {
    const std::string name = fmt::format("f{}", i);
    make(name);
    const bool own = node.root_of(name) == node.number();
    (own == writes ? found.of_writer : found.of_reader) = name;
  }
  if (found.of_reader.empty() || found.of_writer.empty()) die("all names have one root");
  return found;
}

void measure(Node& node, net::Rpc* rpc, const Settings& settings, const Names& names) {
  std::vector<double> here, there, both;
  nlohmann::json seconds = nlohmann::json::array();
  for (uint64_t round = 0; round <= settings.rounds; ++round) {
    const double before = ask(rpc, settings.mib);
    const double read_here = node.read(names.of_reader, settings.mib);
    const double read_there = node.read(names.of_writer, settings.mib);
    const double asked = std::min(before, ask(rpc, settings.mib));  // the rival at its best
    if (round == 0) continue;                                       // both have met
    here.push_back(asked / read_here);
    there.push_back(asked / read_there);
    both.push_back(2 * asked / (read_here + read_there));
    seconds.push_back({{"rpc_s", asked}, {"root_here_s", read_here}, {"root_there_s", read_there}});
  }
  report_as("bench_fs_remote", "remote",
            {{"read_remote_over_rpc", percentile(both, 0.5)},
             {"root_here", percentile(here, 0.5)},
             {"root_there", percentile(there, 0.5)},
             {"rounds", seconds}});
}

void run(int rank, const Settings& settings, RankBarrier& barrier) {
  net::JobOptions of_job;
  of_job.transport = "ucx";
  of_job.listens_on_one_node = true;  // both nodes are of this machine
  const auto job = open_job(2, of_job);
  {
    Node node(*job, settings);
    Answers answers;
    net::RpcOptions options;
    options.methods = {"block"};
    const auto rpc = take(net::Rpc::open(*job, options, &answers));
    answers.rpc = rpc.get();
    if (rank == kWriter)
      names_of(node, true, [&](const std::string& name) { node.write(name, settings.mib); });
    barrier.wait();
    if (rank == kReader) measure(node, rpc.get(), settings, names_of(node, false, [](const std::string&) {}));
    barrier.wait();
    check(rpc->close());
    node.close();
  }
  check(job->close());
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Settings settings;
  settings.path = arguments.text("path");
  settings.memory = arguments.text("memory", "/dev/shm");
  settings.mib = arguments.number("mib", 64);
  settings.rounds = arguments.number("rounds", 3);
  arguments.expect_no_more();
  const std::string own = "/swale-bench-remote-" + std::to_string(::getpid());
  settings.path += own;
  settings.memory += own;
  std::filesystem::create_directories(settings.path + "/backing");
  std::filesystem::create_directories(settings.memory);
  register_network();
  run_ranks(2, [&](int rank, RankReport&, RankBarrier& barrier) { run(rank, settings, barrier); });
  std::filesystem::remove_all(settings.path);
  std::filesystem::remove_all(settings.memory);
  return 0;
}
