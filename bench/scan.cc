// bench_scan: a trajectory out of plain appends (bench_ingest --store append): every core reads its share of
// all files and compares every key.
//   --path DIR --keys N --epochs N --samples N
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "bench/arguments.h"
#include "bench/dataset.h"
#include "bench/measure.h"

namespace swale::bench {
namespace {

struct Work {
  std::string path;
  Dataset data;
};

// The records of `key` in the part `part` of `parts` of an epoch's file.
void scan_part(const std::string& file, uint64_t key, size_t part, size_t parts,
               const std::function<void(const Record&)>& fn) {
  constexpr size_t kChunkRecords = 32'768;
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) die("open " + file);
  const uint64_t records = std::filesystem::file_size(file) / kRecordBytes;
  std::vector<Record> chunk(kChunkRecords);
  for (uint64_t at = records * part / parts, end = records * (part + 1) / parts; at < end;) {
    const uint64_t count = std::min<uint64_t>(kChunkRecords, end - at);
    const auto bytes = static_cast<ssize_t>(count * kRecordBytes);
    if (::pread(fd, chunk.data(), count * kRecordBytes, static_cast<off_t>(at * kRecordBytes)) != bytes)
      die("read " + file);
    for (uint64_t i = 0; i < count; ++i) {
      if (chunk[i].key == key) fn(chunk[i]);
    }
    at += count;
  }
  ::close(fd);
}

double query_ms(const Work& work, uint64_t key) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::vector<Value>> found(work.data.epochs);
  std::mutex mutex;
  const double begin = now_s();
  std::vector<std::thread> threads;
  for (size_t part = 0; part < cores; ++part) {
    threads.emplace_back([&, part] {
      for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
        scan_part(fmt::format("{}/epoch-{}.rank-0", work.path, epoch), key, part, cores,
                  [&](const Record& record) {
                    const std::lock_guard lock(mutex);
                    found[epoch].push_back(record.value);
                  });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = now_s() - begin;
  for (uint32_t epoch = 0; epoch < work.data.epochs; ++epoch) {
    if (found[epoch].size() != 1)
      die(fmt::format("WRONG ANSWER: key {} epoch {}: {} records", key, epoch, found[epoch].size()));
    work.data.expect(key, epoch, found[epoch][0].data(), kValueBytes);
  }
  return took * 1e3;
}

}  // namespace
}  // namespace swale::bench

int main(int argc, char** argv) {
  using namespace swale::bench;
  Arguments arguments(argc, argv);
  Work work;
  work.path = arguments.text("path");
  work.data = dataset_of(arguments, Canary::kRefused);
  const uint64_t samples = arguments.number("samples", 3);
  arguments.expect_no_more();
  std::vector<double> cold, warm;
  for (uint64_t i = 0; i < samples; ++i) {
    evict(work.path);
    cold.push_back(query_ms(work, work.data.query_key(i)));
  }
  for (uint64_t i = 0; i < samples; ++i) warm.push_back(query_ms(work, work.data.query_key(samples + i)));
  report({{"program", "scan"}, {"cold_ms", summary(cold)}, {"warm_ms", summary(warm)}});
  return 0;
}
