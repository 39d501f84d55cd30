// Traces of a mount's requests: their bytes, their torn ends, and the writer that records them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "base/rng.h"
#include "io/fault_device.h"
#include "io/memory_device.h"
#include "tier/trace/trace_format.h"
#include "tier/trace/trace_writer.h"

namespace swale::tier::trace_test {
namespace {

using Kind = TraceRecord::Kind;

std::vector<TraceRecord> golden_records() {
  return {{Kind::kWrite, 1'000, 17, 0, 4096},
          {Kind::kWrite, 1'500, 17, 1 << 20, 131072},
          {Kind::kRead, 90'000, 4'000'000'000, (uint64_t{1} << 47) + 3, 1},
          {Kind::kTruncate, 90'000, 17, 5, 0},
          {Kind::kSync, 2'000'000, 17, 0, 0},
          {Kind::kRename, 3'000'000, 17, 0, 0},
          {Kind::kUnlink, 4'000'000'000, 17, 1, 0}};
}

std::string trace_of(const std::vector<TraceRecord>& records) {
  std::string bytes = encode_trace_header(1'700'000'000'000'000'000);
  TraceBlockBuilder block;
  for (const TraceRecord& record : records)
    if (!block.add(record)) {
      bytes += block.take(0);
      EXPECT_TRUE(block.add(record));
    }
  bytes += block.take(3);
  return bytes + TraceBlockBuilder().take(0);
}

struct Read {
  Result<TraceSummary> summary = TraceSummary();
  std::vector<TraceRecord> records;
};
Read read_file(io::Device& device, const std::string& path) {
  Read read;
  const auto file = device.open(path, io::OpenMode::kRead);
  EXPECT_TRUE(file.ok());
  read.summary = read_trace(**file, [&](const TraceRecord& record) { read.records.push_back(record); });
  return read;
}
Read read_bytes(const std::string& bytes) {
  io::MemoryDevice device;
  EXPECT_TRUE(io::replace_file(device, "t", bytes).ok());
  return read_file(device, "t");
}

TEST(TierTrace, HasTheBytesOfTheGoldenOneWhichIsRead) {
  const std::filesystem::path path = SWALE_SOURCE_DIR "/tests/golden/tier-trace-v1/trace";
  const std::string now = trace_of(golden_records());
  if (std::getenv("SWALE_REGENERATE_GOLDEN")) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << now;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(golden == now, true);
  const Read read = read_bytes(golden);
  ASSERT_TRUE(read.summary.ok()) << read.summary.status().to_string();
  EXPECT_EQ(read.records, golden_records());
  EXPECT_TRUE(read.summary->complete);
  EXPECT_EQ(read.summary->dropped, 3u);
  EXPECT_EQ(read.summary->torn_bytes, 0u);
  EXPECT_EQ(read.summary->begun_ns, 1'700'000'000'000'000'000);
}

TEST(TierTrace, ManyRecordsTakeSeveralBlocksAndFewBytes) {
  Rng rng(1);
  std::vector<TraceRecord> records;
  for (uint64_t i = 0; i < 20'000; ++i)
    records.push_back(
        {Kind::kWrite, static_cast<Nanos>(i * 50'000), 1'000 + rng.below(8), rng.below(kGiB), 4096});
  const std::string bytes = trace_of(records);
  EXPECT_EQ(read_bytes(bytes).records, records);
  EXPECT_LT(bytes.size(), 14 * records.size());
}

TEST(TierTrace, AnyCutLeavesTheWholeBlocksBefore) {
  const std::string whole = trace_of(golden_records());
  for (size_t size = 0; size < whole.size(); ++size) {
    const Read read = read_bytes(whole.substr(0, size));
    if (size < kTraceHeaderBytes) {
      EXPECT_EQ(read.summary.status().code(), Code::kCorruption);
      continue;
    }
    ASSERT_TRUE(read.summary.ok());
    EXPECT_FALSE(read.summary->complete);
    EXPECT_TRUE(read.records.empty() || read.records == golden_records()) << size;
  }
}

TEST(TierTrace, AnyFlippedBitIsNoticed) {
  const std::string whole = trace_of(golden_records());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    const Read read = read_bytes(damaged);
    if (!read.summary.ok()) continue;
    EXPECT_FALSE(read.summary->complete && read.summary->dropped == 3) << "bit " << bit;
    EXPECT_TRUE(read.records.empty() || read.records == golden_records());
  }
}

TEST(TierTrace, TheWriterKeepsTheOrderAndTheTimes) {
  io::MemoryDevice device;
  ManualClock clock(5);
  {
    const auto writer = TraceWriter::open(device, "t", clock);
    ASSERT_TRUE(writer.ok());
    for (uint64_t i = 0; i < 30'000; ++i) {
      clock.advance(10);
      (*writer)->add(Kind::kWrite, 7, i * 4096, 4096);
    }
    EXPECT_EQ(TraceWriter::open(device, "t", clock).status().code(), Code::kAlreadyExists);
  }
  const Read read = read_file(device, "t");
  ASSERT_TRUE(read.summary.ok());
  EXPECT_TRUE(read.summary->complete);
  EXPECT_EQ(read.records.size() + read.summary->dropped, 30'000u);
  Nanos time = 0;
  for (const TraceRecord& record : read.records) {
    EXPECT_EQ(record.offset / 4096 * 10 + 10, static_cast<uint64_t>(record.time));
    EXPECT_GT(record.time, time);
    time = record.time;
  }
}

// A disk that takes nothing until told: what does not fit into memory is dropped and counted.
TEST(TierTrace, ASlowFileCostsRecordsAndNoMemory) {
  io::MemoryDevice memory;
  io::FaultDevice slow(memory);
  Mutex gate;
  uint64_t added = 0;
  {
    const auto writer = TraceWriter::open(slow, "t");
    ASSERT_TRUE(writer.ok());
    MutexLock closed(gate);
    slow.set_hook([&gate](const io::Call& call) -> Status {
      if (call.kind != io::CallKind::kWrite) return {};
      const MutexLock opened(gate);
      return {};
    });
    for (; added < 400'000; ++added) (*writer)->add(Kind::kWrite, 7, added << 20, 4096);
    closed.unlock();
  }
  const Read read = read_file(memory, "t");
  ASSERT_TRUE(read.summary.ok());
  EXPECT_TRUE(read.summary->complete);
  EXPECT_GT(read.summary->dropped, 0u);
  EXPECT_EQ(read.records.size() + read.summary->dropped, added);
}

TEST(TierTrace, AFullDiskEndsTheTraceWithOneWarning) {
  io::MemoryDevice memory;
  io::FaultDevice full(memory);
  full.inject({.kind = io::CallKind::kWrite,
               .nth = 3,
               .from_then_on = true,
               .status = error(Code::kNoSpace, Scope::kFile, "no space left on device")});
  std::vector<std::string> said;
  Mutex mutex;
  set_log_sink([&](LogLevel, std::string_view message) {
    const MutexLock lock(mutex);
    said.emplace_back(message);
  });
  {
    const auto writer = TraceWriter::open(full, "t");
    ASSERT_TRUE(writer.ok());
    for (uint64_t i = 0; i < 60'000; ++i) (*writer)->add(Kind::kWrite, 7, i << 20, 4096);
  }
  set_log_sink({});
  const Read read = read_file(memory, "t");
  ASSERT_TRUE(read.summary.ok());
  EXPECT_FALSE(read.summary->complete);
  EXPECT_GT(read.records.size(), 0u);
  EXPECT_THAT(said, testing::ElementsAre(testing::HasSubstr("the mount goes on without it")));
}

}  // namespace
}  // namespace swale::tier::trace_test
