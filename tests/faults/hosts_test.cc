// Jobs on several hosts: each a set of namespaces of its own (network.h), with shared memory inside and TCP
// across. What the devices of the hosts have counted says that both were used. SWALE_HOSTS in the environment
// has the shapes: "4x4 4x8" (make test-long).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/faults/job_files.h"
#include "tests/faults/launcher.h"
#include "tests/faults/network.h"

namespace swale::faults::hosts_test {
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
  const char* transport = "auto";
};

// Runs one job and reads back what it wrote. The traffic of the first host.
Network::Traffic run_job(Network& network, const Shape& shape, const Way& way) {
  const std::string name = fmt::format("{} x {}, {}, {}", shape.hosts, shape.ranks, way.route, way.format);
  const Network::Traffic before = network.traffic(0);
  const JobFiles files;
  LaunchParams params = files.job(shape.hosts * shape.ranks, kEpochs, kRecords);
  params.environment.push_back("UCX_NET_DEVICES=eth0");
  params.environment.push_back(fmt::format("SWALE_JOB_TRANSPORT={}", way.transport));
  params.environment.push_back("SWALE_JOB_TRUST=network");  // what auto asks for
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
    // TLS carries all of it, also between ranks of one host.
    const Network::Traffic tls = run_job(*network, shape, {"direct", "base", "", "tls"});
    EXPECT_GT(tls.across, bytes_from_others(shape) / hosts / 4 * 3);
    EXPECT_GT(tls.inside, bytes_of_its_own(shape) / hosts / 2);
    // Canary: the loopback device counts what shared memory does not take.
    const Network::Traffic tcp = run_job(*network, shape, {"direct", "base", "tcp,self"});
    EXPECT_GT(tcp.inside, bytes_of_its_own(shape) / hosts / 2);
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// examples/mpi/particles.c writes a directory and reads it back. Not with MPICH: on these hosts the
// MPI_Finalize of MPICH 4.0.2 over UCX 1.13 waits for ever in most runs, after the program has closed its
// job; it starts jobs in slurm_test.py.
void run_mpi_program(Network& network, const Shape& shape) {
  const JobFiles files;
  const std::string& scratch = files.scratch();
  ASSERT_TRUE(network.write_agent(scratch + "/agent"));
  std::string hosts;
  for (int host = 0; host < shape.hosts; ++host)
    hosts += fmt::format("{}{}:{}", host == 0 ? "" : ",", Network::address(host), shape.ranks);
  const int ranks = shape.hosts * shape.ranks;
  const Network::Traffic before = network.traffic(0);
  const std::string line = fmt::format(
      "UCX_NET_DEVICES=eth0 {} timeout -k 5 {} mpirun.openmpi --allow-run-as-root --mca mpi_yield_when_idle "
      "1 --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca plm_rsh_agent "
      "{}/agent --bind-to none --host {} -n {} {} {}/particles >{}/out 2>&1 </dev/null",
      fmt::join(network.enter_switch(), " "), static_cast<int>(kPatience.count()), scratch, hosts, ranks,
      OPENMPI_PROGRAM, scratch, scratch);
  EXPECT_EQ(std::system(line.c_str()), 0) << line << "\n" << text_of(scratch + "/out");
  EXPECT_NE(
      text_of(scratch + "/out").find(fmt::format("{} ranks: 10000 of 10000 trajectories are right", ranks)),
      std::string::npos)
      << text_of(scratch + "/out");
  const uint64_t across = network.traffic(0).across - before.across;
  EXPECT_GT(across, 100'000u) << "nothing crossed: all ranks were on one host";
  fmt::print("Open MPI, {} x {}: the first host got {:.2f} MB from others\n", shape.hosts, shape.ranks,
             static_cast<double>(across) * 1e-6);
}

TEST(Hosts, OpenMpiStartsJobsOnThem) {
  if (*OPENMPI_PROGRAM == 0) GTEST_SKIP() << "Open MPI was not there when this was built";
  for (const Shape& shape : shapes()) {
    std::string why;
    const std::unique_ptr<Network> network = Network::make(shape.hosts, &why, Network::Places::kHosts);
    if (network == nullptr) GTEST_SKIP() << why;
    run_mpi_program(*network, shape);
  }
}

}  // namespace
}  // namespace swale::faults::hosts_test
