// impact-scan: the same trajectories as impact-query, from the plain dumps: all cores read all dumps in large
// blocks and keep the records of the wanted atoms. What one does without an index, done well.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <bitset>
#include <thread>

#include "answer.h"
#include "fail.h"
#include "measure.h"

namespace {

using impact::Answer;
using impact::Cost;
using impact::DumpRecord;
using impact::fail;

constexpr size_t kBlockRecords = size_t{4} * 1024 * 1024 / sizeof(DumpRecord);

struct Block {
  int fd;
  off_t offset;
  size_t bytes;
};

// The dumps of a run, open.
class Dumps {
 public:
  Dumps(const std::string& out, int ranks) {
    constexpr size_t kBlockBytes = kBlockRecords * sizeof(DumpRecord);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string path = fmt::format("{}/dump.{:04}.bin", out, rank);
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      struct stat status {};
      if (fd < 0 || ::fstat(fd, &status) != 0) fail("cannot open " + path);
      const auto size = static_cast<size_t>(status.st_size);
      if (size % sizeof(DumpRecord) != 0) fail(path + " is torn: not a whole number of records");
      fds_.push_back(fd);
      for (size_t at = 0; at < size; at += kBlockBytes) {
        blocks_.push_back({fd, static_cast<off_t>(at), std::min(kBlockBytes, size - at)});
      }
      bytes_ += size;
    }
  }
  Dumps(const Dumps&) = delete;
  Dumps& operator=(const Dumps&) = delete;
  ~Dumps() {
    for (const int fd : fds_) ::close(fd);
  }

  const std::vector<Block>& blocks() const { return blocks_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<int> fds_;
  std::vector<Block> blocks_;
  uint64_t bytes_ = 0;
};

// Most ids fail the first test, one look into 512 bytes.
class Wanted {
 public:
  explicit Wanted(std::vector<int64_t> ids) : ids_(std::move(ids)) {
    std::sort(ids_.begin(), ids_.end());
    for (const int64_t id : ids_) maybe_.set(low_bits(id));
  }
  bool contains(int64_t id) const {
    return maybe_.test(low_bits(id)) && std::binary_search(ids_.begin(), ids_.end(), id);
  }

 private:
  static size_t low_bits(int64_t id) { return static_cast<size_t>(id) & 4095; }
  std::vector<int64_t> ids_;
  std::bitset<4096> maybe_;
};

void scan_block(const Block& block, const Wanted& wanted, std::vector<DumpRecord>& buffer, Answer& answer) {
  size_t done_bytes = 0;
  while (done_bytes < block.bytes) {
    const ssize_t got = ::pread(block.fd, reinterpret_cast<char*>(buffer.data()) + done_bytes,
                                block.bytes - done_bytes, block.offset + static_cast<off_t>(done_bytes));
    if (got <= 0) fail("a dump could not be read");
    done_bytes += static_cast<size_t>(got);
  }
  const size_t count = block.bytes / sizeof(DumpRecord);
  std::copy_if(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(count), std::back_inserter(answer),
               [&](const DumpRecord& record) { return wanted.contains(record.id); });
}

Answer scan(const Dumps& dumps, const std::vector<int64_t>& ids) {
  const Wanted wanted(ids);
  std::atomic<size_t> next = 0;
  std::vector<Answer> found(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (Answer& mine : found) {
    threads.emplace_back([&] {
      std::vector<DumpRecord> buffer(kBlockRecords);
      for (size_t i = next++; i < dumps.blocks().size(); i = next++) {
        scan_block(dumps.blocks()[i], wanted, buffer, mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Answer answer;
  for (const Answer& part : found) answer.insert(answer.end(), part.begin(), part.end());
  impact::sort_answer(answer);
  return answer;
}

Cost measure(const std::string& out, int ranks, const std::vector<int64_t>& ids) {
  Cost cost;
  for (int rank = 0; rank < ranks; ++rank) impact::evict(fmt::format("{}/dump.{:04}.bin", out, rank));
  const uint64_t storage_before = impact::storage_bytes_read();
  const impact::Stopwatch stopwatch;
  const Dumps dumps(out, ranks);
  scan(dumps, ids);
  cost.cold_s = stopwatch.seconds();
  cost.bytes = dumps.bytes();
  cost.reads = dumps.blocks().size();
  cost.storage_bytes = impact::storage_bytes_read() - storage_before;
  cost.warm_s = impact::warm_seconds([&] { scan(dumps, ids); });
  return cost;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out;
  CLI::App app(
      "Finds the trajectories of OUT/fastest.json by scanning the plain dumps with all cores.\n"
      "Writes OUT/answer-scan.csv and OUT/cost-scan.json.");
  app.add_option("OUT", out, "the directory that impact wrote")->required()->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);

  const int ranks = impact::read_json(out + "/run.json").at("ranks").get<int>();
  const auto ids = impact::read_json(out + "/fastest.json").at("ids").get<std::vector<int64_t>>();
  impact::write_answer(out + "/answer-scan.csv", scan(Dumps(out, ranks), ids));
  const nlohmann::json costs = {{"one", measure(out, ranks, {ids.front()})},
                                {"ten", measure(out, ranks, ids)}};
  impact::write_json(out + "/cost-scan.json",
                     {{"threads", std::thread::hardware_concurrency()}, {"costs", costs}});
  fmt::print("  {:.1f} MB in {} reads by {} threads\n", costs["ten"]["bytes"].get<double>() / 1e6,
             costs["ten"]["reads"].get<uint64_t>(), std::thread::hardware_concurrency());
  return 0;
}
