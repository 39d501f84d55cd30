#include "dumps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <iterator>
#include <thread>

#include "fail.h"

namespace impact {
namespace {

constexpr size_t kBlockRecords = size_t{4} * 1024 * 1024 / sizeof(DumpRecord);

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

void scan_block(const Dumps::Block& block, const Wanted& wanted, std::vector<DumpRecord>& buffer,
                Answer& answer) {
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

}  // namespace

std::string dump_path(const std::string& out, int rank) {
  return fmt::format("{}/dump.{:04}.bin", out, rank);
}

Dumps::Dumps(const std::string& out, int ranks) {
  constexpr size_t kBlockBytes = kBlockRecords * sizeof(DumpRecord);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = dump_path(out, rank);
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

Dumps::~Dumps() {
  for (const int fd : fds_) ::close(fd);
}

Answer Dumps::scan(const std::vector<int64_t>& ids) const {
  const Wanted wanted(ids);
  std::atomic<size_t> next = 0;
  std::vector<Answer> found(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (Answer& mine : found) {
    threads.emplace_back([&] {
      std::vector<DumpRecord> buffer(kBlockRecords);
      for (size_t i = next++; i < blocks_.size(); i = next++) {
        scan_block(blocks_[i], wanted, buffer, mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Answer answer;
  for (const Answer& part : found) answer.insert(answer.end(), part.begin(), part.end());
  sort_answer(answer);
  return answer;
}

}  // namespace impact
