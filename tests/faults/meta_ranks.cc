// meta_ranks DIR SERVERS_PER_NODE ring|direct|plain BLOCKS ROUNDS HELD: one rank of a job that uses a
// metadata store, for meta_ranks_test.cc. The place in the job is in SWALE_JOB_*, the node in SWALE_JOB_NODE;
// HELD is ignored.
//
// Every rank puts segments of one shared file, half of them regular, and asks for those of its neighbour,
// before and after the file is sealed. All try to create one file exclusively. Then all ask for the
// attributes of the file at once, in ROUNDS storms. Prints "wrong: ..." or "failed: ...", and rank 0 prints
// the sums:
//   storm ROUNDS rounds, N requests, N at the root, N us of CPU, span N us, slowest N us
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/coding.h"
#include "io/posix_device.h"
#include "meta/store/store.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "tests/faults/rank_program.h"

namespace swale::meta {
namespace {

constexpr uint64_t kBytes = 1000;

using faults::expect;
using faults::stop;
using faults::take;

struct Work {
  std::string directory;
  StoreOptions store;
  uint64_t blocks = 0;
  uint64_t rounds = 0;
};

class RankOfJob {
 public:
  RankOfJob(net::Job* job, Store* store, const Work& work)
      : job_(*job), store_(*store), work_(work), client_(store->client()) {}

  void run() {
    create();
    put_all();
    File file = take(client_->open("shared", 0, 0, 0));
    get_all(file);
    storms();
    if (job_.rank() == 0) expect(client_->seal(&file));
    barrier();
    file = take(client_->open("shared", 0, 0, 0));
    get_all(file);
    if (file.attributes.size != ends()) stop("wrong", fmt::format("a size of {}", file.attributes.size));
    barrier();
  }

 private:
  void barrier() { expect(job_.allgather("").status()); }
  std::vector<uint64_t> gather(uint64_t mine) {
    std::string text;
    append_u64(&text, mine);
    std::vector<uint64_t> all;
    for (const std::string& each : take(job_.allgather(text))) all.push_back(get_u64(each.data()));
    return all;
  }
  uint64_t sum(uint64_t mine) {
    uint64_t total = 0;
    for (const uint64_t each : gather(mine)) total += each;
    return total;
  }

  uint64_t ends() const { return work_.blocks * static_cast<uint64_t>(job_.size()) * kBytes; }
  // Blocks of all ranks interleave. In the second half of the file the lengths are irregular, and no run is
  // found.
  Extent block(net::Rank rank, uint64_t i) const {
    const uint64_t cell = i * static_cast<uint64_t>(job_.size()) + static_cast<uint64_t>(rank);
    const bool last = i + 1 == work_.blocks;
    const uint64_t length = i < work_.blocks / 2 || last ? kBytes : 1 + cell * 7919 % kBytes;
    return {cell * kBytes, length, {static_cast<LogId>(rank), i * 4096}};
  }

  void create() {
    const auto made = client_->open("exclusive", Client::kCreate | Client::kExclusive, 0600, 0);
    if (!made.ok() && made.status().code() != Code::kAlreadyExists) expect(made.status());
    if (const uint64_t winners = sum(made.ok() ? 1 : 0); winners != 1)
      stop("wrong", fmt::format("{} ranks have created one file", winners));
  }

  void put_all() {
    File file = take(client_->open("shared", Client::kCreate, 0644, 0));
    std::vector<Extent> mine;
    for (uint64_t i = 0; i < work_.blocks; ++i) mine.push_back(block(job_.rank(), i));
    const size_t half = mine.size() / 2;
    expect(client_->put(&file, std::span(mine).first(half)));
    expect(client_->put(&file, std::span(mine).subspan(half)));
    expect(client_->close(&file, 0).status());
    barrier();
  }

  void get_all(const File& file) {
    const net::Rank writer = (job_.rank() + 1) % job_.size();
    std::vector<ByteRange> ranges;
    for (uint64_t i = 0; i < work_.blocks; ++i) ranges.push_back({block(writer, i).offset, kBytes});
    Found found;
    expect(client_->get(file, ranges, &found));
    if (found.ends.size() != ranges.size() || found.extents.size() != ranges.size())
      stop("wrong", fmt::format("{} segments for {} ranges", found.extents.size(), ranges.size()));
    for (uint64_t i = 0; i < work_.blocks; ++i) {
      if (!(found.extents[i] == block(writer, i)))
        stop("wrong", fmt::format("block {} of rank {}", i, writer));
    }
    barrier();
  }

  // Requests for attributes that this rank's servers have had, and of those the ones at the file's root.
  std::pair<uint64_t, uint64_t> requests() {
    std::pair<uint64_t, uint64_t> counts{0, 0};
    const Server root = store_.partition().root_of("shared");
    store_.with_servers([&](ServerCore& core) {
      counts.first += core.counters().attribute_requests;
      if (core.server() == root) counts.second += core.counters().attribute_requests;
    });
    return counts;
  }
  static uint64_t cpu_us() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
      return static_cast<uint64_t>(time.tv_sec) * 1'000'000 + static_cast<uint64_t>(time.tv_usec);
    };
    return us(usage.ru_utime) + us(usage.ru_stime);
  }

  void storms() {
    const auto before = requests();
    std::vector<Nanos> begins, ends;
    barrier();
    const uint64_t cpu = cpu_us();
    for (uint64_t round = 0; round < work_.rounds; ++round) {
      begins.push_back(system_clock().now());
      expect(client_->stat("shared").status());
      ends.push_back(system_clock().now());
      barrier();
    }
    const uint64_t cpu_all = sum(cpu_us() - cpu);
    const auto after = requests();
    const uint64_t all = sum(after.first - before.first), at_root = sum(after.second - before.second);
    uint64_t span = 0, slowest = 0;  // sums over the rounds
    for (uint64_t round = 0; round < work_.rounds; ++round) {
      const auto began = gather(static_cast<uint64_t>(begins[round]));
      const auto ended = gather(static_cast<uint64_t>(ends[round]));
      const uint64_t first = *std::min_element(began.begin(), began.end());
      span += *std::max_element(began.begin(), began.end()) - first;
      slowest += *std::max_element(ended.begin(), ended.end()) - first;
    }
    if (job_.rank() != 0) return;
    fmt::print("storm {} rounds, {} requests, {} at the root, {} us of CPU, span {} us, slowest {} us\n",
               work_.rounds, all, at_root, cpu_all, span / work_.rounds / 1000,
               slowest / work_.rounds / 1000);
  }

  net::Job& job_;
  Store& store_;
  const Work& work_;
  std::unique_ptr<Client> client_;
};

int run(char** argv) {
  Work work;
  work.directory = argv[1];
  work.store.servers_per_node = static_cast<uint32_t>(std::atoi(argv[2]));
  const std::string ring = argv[3];
  work.store.ring = ring == "ring"     ? RingMode::kRing
                    : ring == "direct" ? RingMode::kDirect
                                       : RingMode::kPlain;
  work.store.range_bytes = 64 * 1024;
  work.blocks = static_cast<uint64_t>(std::atoi(argv[4]));
  work.rounds = static_cast<uint64_t>(std::atoi(argv[5]));
  net::register_fabric(net::tls_fabric());
  net::register_fabric(net::ucx_fabric());
  const auto job = faults::open_job();
  io::PosixDevice device;
  const auto store = take(Store::open(*job, device, work.directory, work.store));
  { RankOfJob(job.get(), store.get(), work).run(); }
  expect(store->close());
  expect(job->close());
  fmt::print("done\n");
  return 0;
}

}  // namespace
}  // namespace swale::meta

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  return swale::meta::run(argv);
}
