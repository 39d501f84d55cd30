// Jobs on several hosts: each a set of namespaces of its own (network.h), with shared memory inside and TCP across. What the
// devices of the hosts have counted says that both were used.
// SWALE_HOSTS in the environment has the shapes: "4x4 4x8" (make test-long).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"
#include "tests/faults/network.h"

namespace swale::faults {
namespace {

constexpr Seconds kPatience(180);
constexpr int kEpochs = 2;
constexpr uint64_t kRecords = 5'000;  // of a rank in an epoch
constexpr uint64_t kRecordBytes = 48;

struct Shape {
  int hosts;
  int ranks;  // of each
};

std::vector<Shape> shapes() {
  const char* const wanted = std::getenv("SWALE_HOSTS");
  std::istringstream words(wanted != nullptr ? wanted : "2x4");
  std::vector<Shape> all;
  for (std::string word; words >> word;) {
    Shape shape{};
    if (std::sscanf(word.c_str(), "%dx%d", &shape.hosts, &shape.ranks) == 2) all.push_back(shape);
  }
  return all;
}

struct Way {
  const char* route;
  const char* format;
  const char* fabrics = "";  // UCX_TLS; "": all
};

// Runs one job and reads back what it wrote. The traffic of the first host.
Network::Traffic run_job(Network& network, const Shape& shape, const Way& way) {
  const std::string name = fmt::format("{} x {}, {}, {}", shape.hosts, shape.ranks, way.route, way.format);
  const Network::Traffic before = network.traffic(0);
  const JobFiles files;
  LaunchParams params = files.job(shape.hosts * shape.ranks, kEpochs, kRecords);
  params.environment.push_back("UCX_NET_DEVICES=eth0");
  if (*way.fabrics != 0) params.environment.push_back(fmt::format("UCX_TLS={}", way.fabrics));
  params.environment.push_back(fmt::format("SWALE_NET_ROUTE={}", way.route));
  params.environment.push_back(fmt::format("SWALE_IMD_FORMAT={}", way.format));
  for (int rank = 0; rank < shape.hosts * shape.ranks; ++rank) {
    std::vector<std::string> words = network.enter(rank / shape.ranks);
    for (const std::string& word :
         {std::string("/usr/bin/env"), fmt::format("SWALE_JOB_NODE=host-{}", rank / shape.ranks)})
      words.push_back(word);
    params.before.push_back(words);
  }
  Launcher job(params);
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << name << ": somebody hangs\n" << job.describe();
  for (int rank = 0; rank < job.size(); ++rank)
    EXPECT_EQ(job.end(rank).status, 0) << name << "\n" << job.describe();
  EXPECT_EQ(promised_epochs(job), kEpochs) << name;
  for (const std::string& problem : check_job_files(files.path(), kEpochs))
    ADD_FAILURE() << name << ": " << problem;
  const Network::Traffic after = network.traffic(0);
  const Network::Traffic of_job = {after.across - before.across, after.inside - before.inside};
  fmt::print("{}{}: the first host got {:.2f} MB from others, {:.3f} MB by its own loopback\n", name,
             *way.fabrics != 0 ? ", TCP alone" : "", static_cast<double>(of_job.across) * 1e-6,
             static_cast<double>(of_job.inside) * 1e-6);
  return of_job;
}

// What the first host's ranks index of the others' records, and of their own.
uint64_t bytes_from_others(const Shape& shape) {
  return kEpochs * kRecords * kRecordBytes * static_cast<uint64_t>(shape.ranks * (shape.hosts - 1));
}
uint64_t bytes_of_its_own(const Shape& shape) {
  return kEpochs * kRecords * kRecordBytes * static_cast<uint64_t>(shape.ranks);
}

TEST(Hosts, RecordsCrossByTcpAndStayInSharedMemory) {
  for (const Shape& shape : shapes()) {
    std::string why;
    const std::unique_ptr<Network> network = Network::make(shape.hosts, &why, Network::Places::kHosts);
    if (network == nullptr) GTEST_SKIP() << why;
    // A host indexes 1 / hosts of what each of the others has appended.
    const uint64_t hosts = static_cast<uint64_t>(shape.hosts);
    for (const char* const route : {"direct", "three-hop"}) {
      const Network::Traffic base = run_job(*network, shape, {route, "base"});
      EXPECT_GT(base.across, bytes_from_others(shape) / hosts / 4 * 3) << route;
      EXPECT_LT(base.inside, bytes_of_its_own(shape) / hosts / 4) << route << ": not in shared memory";
      const Network::Traffic lossy = run_job(*network, shape, {route, "lossy"});
      EXPECT_GT(lossy.across, 0u);
      EXPECT_LT(lossy.across, base.across / 2) << route << ": records crossed";
    }
    // Canary: the loopback device counts what shared memory does not take.
    const Network::Traffic tcp = run_job(*network, shape, {"direct", "base", "tcp,self"});
    EXPECT_GT(tcp.inside, bytes_of_its_own(shape) / hosts / 2);
  }
}

}  // namespace
}  // namespace swale::faults
