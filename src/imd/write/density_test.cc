// Bytes of a directory of many small epochs, file by file: what is not the records' own must stay small.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/rng.h"
#include "imd/read/reader.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/memory_device.h"

namespace swale::imd::density_test {
namespace {

constexpr uint64_t kRecordsPerEpoch = 1'000;
constexpr size_t kValueBytes = 40;
constexpr uint64_t kRecordBytes = 8 + kValueBytes;

// SWALE_DENSITY_EPOCHS: how many epochs instead (make test-long).
uint32_t epochs_of_test() {
  const char* epochs = std::getenv("SWALE_DENSITY_EPOCHS");
  return epochs != nullptr ? static_cast<uint32_t>(std::strtoul(epochs, nullptr, 10)) : 200;
}

std::string key_of(uint32_t epoch, uint64_t number) {
  std::string key;
  append_u64(&key, Rng(uint64_t{epoch} << 32 | number).next());
  return key;
}

std::string value_of(uint32_t epoch, uint64_t number) {
  std::string value;
  Rng rng(~(uint64_t{epoch} << 32 | number));
  while (value.size() < kValueBytes) append_u64(&value, rng.next());
  return value;
}

void write_directory(io::Device& device, int32_t ranks, uint32_t epochs) {
  run_ranks(ranks, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 4 * kMiB;
    auto writer = Writer::open(job, device, "/dir", Writer::Create::kIfMissing, options);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      for (auto number = static_cast<uint64_t>(job.rank()); number < kRecordsPerEpoch;
           number += static_cast<uint64_t>(ranks)) {
        ASSERT_TRUE((*writer)->append(key_of(epoch, number), value_of(epoch, number)).ok());
      }
      const Status ended = (*writer)->epoch_end(epoch, epoch);
      ASSERT_TRUE(ended.ok()) << ended.to_string();
    }
    const Status closed = (*writer)->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
  });
}

// Bytes by what a file's name ends in, over all folders.
void add_sizes(io::Device& device, const std::string& folder, std::map<std::string, uint64_t>* sizes) {
  const auto names = device.list(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = folder + "/" + name;
    const auto file = device.open(path, io::OpenMode::kRead);
    if (!file.ok()) {
      add_sizes(device, path, sizes);
      continue;
    }
    const size_t dot = name.rfind('.');
    (*sizes)[dot == std::string::npos ? name : name.substr(dot)] += (*file)->size().value();
  }
}

void expect_all_read_back(io::Device& device, uint32_t epochs) {
  auto reader = Reader::open(device, "/dir", {});
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  uint64_t scanned = 0;
  for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
    std::map<std::string, std::string> expected;
    for (uint64_t number = 0; number < kRecordsPerEpoch; ++number)
      expected[key_of(epoch, number)] = value_of(epoch, number);
    const Status status = (*reader)->scan(epoch, [&](uint32_t, Bytes key, Bytes value) {
      const auto found = expected.find(std::string(key));
      EXPECT_TRUE(found != expected.end() && found->second == value) << "epoch " << epoch;
      if (found != expected.end()) expected.erase(found);
      ++scanned;
      return true;
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(expected.empty()) << "epoch " << epoch << " lacks " << expected.size();
  }
  uint64_t found = 0;  // through the index
  for (uint64_t ask = 0; ask < 2'000; ++ask) {
    const auto epoch = static_cast<uint32_t>(ask * 7 % epochs);
    const uint64_t number = ask * 31 % kRecordsPerEpoch;
    const auto values = (*reader)->get(key_of(epoch, number), epoch);
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    ASSERT_EQ(values->size(), 1u);
    ASSERT_EQ(values->front().bytes, value_of(epoch, number));
    ++found;
  }
  fmt::print("{} records scanned, {} found by key\n", scanned, found);
}

struct Density {
  int32_t ranks;
  double data_max;  // bytes of the logs over bytes of keys and values
  double parts_max;
};
class SmallEpochs : public testing::TestWithParam<Density> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SmallEpochs, testing::Values(Density{1, 1.03, 1.07}, Density{4, 1.17, 1.23}));

TEST_P(SmallEpochs, TakeFewBytesBesidesTheirRecords) {
  const uint32_t epochs = epochs_of_test();
  io::MemoryDevice device;
  ASSERT_NO_FATAL_FAILURE(write_directory(device, GetParam().ranks, epochs));
  std::map<std::string, uint64_t> sizes;
  add_sizes(device, "/dir", &sizes);
  const auto all = static_cast<double>(epochs * kRecordsPerEpoch * kRecordBytes);
  uint64_t total = 0;
  for (const auto& [name, bytes] : sizes) {
    fmt::print("{} ranks, {} epochs: {:>12} {:>12} bytes, {:.3f} a record\n", GetParam().ranks, epochs, name,
               bytes, static_cast<double>(bytes) / (epochs * kRecordsPerEpoch));
    total += bytes;
  }
  const double data = static_cast<double>(sizes[".data"]) / all;
  const double parts = static_cast<double>(sizes[".data"] + sizes[".index"] + sizes[".values"]) / all;
  fmt::print("over the data: data logs {:.4f}, with index logs {:.4f}, the whole directory {:.4f}\n", data,
             parts, static_cast<double>(total) / all);
  EXPECT_GT(data, 1.0) << "a canary: the records themselves are there";
  EXPECT_LE(data, GetParam().data_max);
  EXPECT_LE(parts, GetParam().parts_max);
  expect_all_read_back(device, epochs);
}

}  // namespace
}  // namespace swale::imd::density_test
