// bench_fixed_work: a fixed amount of work on an engine's common path, in one process, with no network but
// threads that hand frames over: for counting instructions (instructions.py), not for times.
//   --work imd-write     --count records of 48 bytes into --path, two epochs, by one rank
//          imd-shuffle   the same by four ranks: most records go to another rank, in frames of 32 KiB
//          imd-open      --count openings of the directory that imd-write has left in --path, whose --records
//                        were so many
//          imd-get       --count keys of it, each in both epochs
//          imd-scan      all its records, --count times
//          rpc           --count requests of 200 bytes to another rank, 32 in flight, and the same back
// Prints what was done; a wrong answer ends the program.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"
#include "net/rpc/rpc.h"

namespace swale::bench {
namespace {

constexpr const char* kWorks[] = {"imd-write", "imd-shuffle", "imd-open", "imd-get", "imd-scan", "rpc"};
constexpr int kEpochs = 2;
constexpr size_t kFixedValueBytes = 40;
constexpr size_t kRequestBytes = 200;
constexpr size_t kInFlight = 32;

// Runs body(job, rank) on a thread for each rank; frames go from memory to memory.
template <class Body>
void on_ranks(int ranks, const Body& body) {
  net::JobOptions options;
  options.transport = "loopback";
  options.poll = 0;  // waiting counts no instructions
  const auto group = std::make_shared<net::LocalGroup>(ranks);
  std::vector<std::thread> threads;
  for (net::Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto job = take(net::Job::open(net::local_bootstrap(group, rank), options));
      body(*job, rank);
      check(job->close());
    });
  }
  for (std::thread& each : threads) each.join();
}

std::string key_of(uint64_t record) {
  std::string key(8, '\0');
  put_u64(key.data(), record * 0x9e3779b97f4a7c15);
  return key;
}

void write(const std::string& path, int ranks, uint64_t count) {
  remove_all(path);
  io::PosixDevice device;
  on_ranks(ranks, [&](net::Job& job, net::Rank rank) {
    imd::WriterOptions options;
    options.memory_bytes = 16 * kMiB;
    const auto writer = take(imd::Writer::open(job, device, path, imd::Writer::Create::kExclusive, options));
    const std::string value(kFixedValueBytes, 'v');
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      for (auto record = static_cast<uint64_t>(rank); record < count; record += static_cast<uint64_t>(ranks))
        check(writer->append(key_of(record), value));
      check(writer->epoch_end(epoch, 0));
    }
    check(writer->close());
  });
}

void get(const std::string& path, uint64_t records, uint64_t count) {
  io::PosixDevice device;
  const auto reader = take(imd::Reader::open(device, path, {}));
  for (uint64_t i = 0; i < count; ++i) {
    if (take(reader->get(key_of(i * 131 % records), -1)).size() != kEpochs)
      die("WRONG ANSWER: not two values");
  }
}

void scan(const std::string& path, uint64_t records, uint64_t count) {
  io::PosixDevice device;
  const auto reader = take(imd::Reader::open(device, path, {}));
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t bytes = 0;
    check(reader->scan(-1, [&](auto, Bytes, Bytes value) {
      bytes += value.size();
      return true;
    }));
    if (bytes != kEpochs * records * kFixedValueBytes) die("WRONG ANSWER: a scan of other records");
  }
}

void open(const std::string& path, uint64_t count) {
  io::PosixDevice device;
  for (uint64_t i = 0; i < count; ++i) take(imd::Reader::open(device, path, {}));
}

class Echo final : public net::RpcService {
 public:
  void on_requests(std::span<net::RpcRequest> requests) override {
    for (net::RpcRequest& each : requests) rpc->reply(each.token, net::RpcPayload(std::move(each.payload)));
  }
  net::Rpc* rpc = nullptr;
};

void ask(net::Rpc* rpc, uint64_t count) {
  net::RpcClient client(rpc);
  const auto payload = std::make_shared<const std::string>(kRequestBytes, 'x');
  std::vector<net::RpcCompletion> done;
  for (uint64_t asked = 0; asked < count; asked += kInFlight) {
    for (size_t i = 0; i < kInFlight; ++i) {
      net::RpcCall call{.to = 1, .payload = payload};
      call.response_bytes_max = kRequestBytes;
      take(client.call(std::move(call), net::RpcClient::Leave::kWithNext));
    }
    for (size_t answered = 0; answered < kInFlight; answered += done.size()) {
      done.clear();
      client.wait(&done);
      for (const net::RpcCompletion& each : done) {
        check(each.response.status());
        if (*each.response != *payload) die("WRONG ANSWER: other bytes came back");
      }
    }
  }
}

void rpc(uint64_t count) {
  on_ranks(2, [&](net::Job& job, net::Rank rank) {
    Echo echo;
    net::RpcOptions options;
    options.methods = {"echo"};
    const auto channel = take(net::Rpc::open(job, options, &echo));
    echo.rpc = channel.get();
    check(job.allgather("").status());
    if (rank == 0) ask(channel.get(), count);
    check(channel->close());
  });
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  const size_t work = arguments.choice("work", kWorks);
  const uint64_t count = arguments.number("count", 1);
  const std::string path = arguments.text("path", "");
  const uint64_t records = arguments.number("records", count);
  arguments.expect_no_more();
  if (work == 0 || work == 1) write(path, work == 0 ? 1 : 4, count);
  if (work == 2) open(path, count);
  if (work == 3) get(path, records, count);
  if (work == 4) scan(path, records, count);
  if (work == 5) rpc(count);
  report({{"program", "fixed_work"}, {"work", kWorks[work]}, {"count", count}});
  return 0;
}
