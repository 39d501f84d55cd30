// Garbage and damage: in a log it harms that process's own writes, and is told with file and offset.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>

#include "base/rng.h"
#include "fs/log/testing/log_rig.h"

namespace swale::fs::log_damage_test {
namespace {

// A log's memory as its process has it.
class Memory {
 public:
  Memory(const std::string& path, uint64_t bytes) : bytes_(bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    memory_ = static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  ~Memory() { ::munmap(memory_, bytes_); }
  char* data() { return memory_; }
  char* chunk() { return memory_ + kPageBytes; }

 private:
  uint64_t bytes_;
  char* memory_;
};

class LogDamageTest : public LogRig {
 protected:
  void SetUp() override {
    small_chunks(kChunk, 4);
    options_.memory_bytes = 64 * kChunk;
    open();
  }
  void flip(const std::string& path, uint64_t offset, unsigned bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ (1 << bit));
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  static constexpr uint32_t kChunk = 32 * 4096;
  uint64_t log_bytes() const { return log_file_bytes(4, kChunk); }
};

TEST_F(LogDamageTest, EachFlippedBitOfAnEntryIsNoticed) {
  uint64_t refused = 0;
  for (unsigned bit = 0; bit < 56 * 8; ++bit) {
    const uint32_t log = add();
    LogWriter writer;
    attach(writer, log);
    writer.write(kFile, 0, "first", 5);
    writer.write(kFile, 5, "second", 6);
    writer.write(kFile, 11, "third", 5);
    Memory memory(log_path(log), log_bytes());
    auto* const entry = reinterpret_cast<unsigned char*>(entry_of(memory.chunk(), kChunk, 1));
    entry[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    take();
    ASSERT_EQ(files_.taken.size(), 2u) << "bit " << bit;
    ASSERT_EQ(files_.problems.size(), 1u) << "bit " << bit;
    const std::string text = files_.problems[0].to_string();
    EXPECT_NE(text.find(log_path(log)), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("at {}", kPageBytes + kChunk - 64 - 128)), std::string::npos) << text;
    EXPECT_EQ(files_.bytes(*logs_), std::string("first") + std::string(6, '\0') + "third");
    ++refused;
    ASSERT_TRUE(logs_->end_log(log, files_).ok());
    files_.drop_all(*logs_);
    serve();
    files_ = Files();
  }
  EXPECT_EQ(logs_->memory_bytes(), 0u) << "chunks with refused entries are over, too";
  EXPECT_TRUE(logs_->logs().empty());
  std::printf("%lu bits of an entry were flipped\n", refused);
}

TEST_F(LogDamageTest, AFlippedBitOfAChunkIsNoticedWhereItIsRead) {
  const uint32_t log = add();
  LogWriter writer;
  attach(writer, log);
  const std::string bytes = pattern(1, 110'000);
  ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), 110'000);
  take();
  EXPECT_TRUE(logs_->settle_next());
  EXPECT_FALSE(logs_->settle_next()) << "one block is whole";
  ShownBytes shown;
  ASSERT_TRUE(logs_->show(meta::Place(log, kSkipBytes + 10), 100, &shown));
  EXPECT_EQ(shown.parts.at(0), bytes.substr(10, 100));
  flip(log_path(log), kPageBytes + 50'000, 3);
  shown = {};
  EXPECT_FALSE(logs_->show(meta::Place(log, kSkipBytes + 10), 100, &shown));
  EXPECT_FALSE(logs_->show(meta::Place(log, kSkipBytes), 100'000, &shown));
  EXPECT_TRUE(logs_->show(meta::Place(log, kSkipBytes + 70'000), 100, &shown));
  std::string found(100, '\0');
  const Status status = logs_->read(meta::Place(log, kSkipBytes + 10), found);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_NE(status.to_string().find(log_path(log) + ": 65536 bytes at 4096"), std::string::npos)
      << status.to_string();
  EXPECT_TRUE(logs_->read(meta::Place(log, kSkipBytes + 70'000), found).ok()) << "the next block is whole";
  EXPECT_EQ(found, bytes.substr(70'000, 100));
}

TEST_F(LogDamageTest, AFlippedBitOfASpilledChunkIsNoticed) {
  options_.memory_bytes = 2 * kChunk;
  open();
  const uint32_t log = add();
  LogWriter writer;
  attach(writer, log);
  for (uint64_t i = 0; i < 10; ++i) {
    const std::string bytes = pattern(i, 30'000);
    ASSERT_EQ(writer.write(kFile, i * 30'000, bytes.data(), bytes.size()), 30'000);
    take();
    serve();
  }
  const std::string path = options_.spill_directory + "/" + spill_name(log, 0);
  const uint64_t size = std::filesystem::file_size(path), payload = files_.taken.at(3).place.address + 30'000;
  flip(path, 70'000, 5);
  std::string found(100, '\0');
  const Status status = logs_->read(meta::Place(log, 66'000), found);
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_NE(status.to_string().find(path + ": "), std::string::npos) << status.to_string();
  EXPECT_NE(status.to_string().find("at 65536"), std::string::npos) << status.to_string();
  flip(path, 70'000, 5);
  logs_.reset();
  std::filesystem::remove_all(options_.memory_directory);
  uint64_t noticed = 0;
  for (uint64_t at = payload; at < size; at += at < size - 64 ? 7 : 1, ++noticed) {
    flip(path, at, at % 8);
    open();
    files_ = Files();
    ASSERT_TRUE(logs_->recover(files_).ok());
    bool told = false;
    for (const Status& problem : files_.problems) told |= problem.to_string().find(path) != std::string::npos;
    ASSERT_TRUE(told) << "offset " << at;
    flip(path, at, at % 8);
  }
  std::printf("%lu bits behind the payload of a spilled chunk were flipped\n", noticed);
  for (const uint64_t length : {uint64_t{0}, uint64_t{63}, size - 1}) {
    std::filesystem::resize_file(path, length);
    open();
    files_ = Files();
    ASSERT_TRUE(logs_->recover(files_).ok());
    EXPECT_EQ(files_.problems.size(), 1u) << length;
  }
}

// Fills one process's memory with garbage again and again, half of it with right checksums, while another
// process writes. Returns how many segments were handed out whose bytes are not in the log.
uint64_t garbage(NodeLogs& logs, Files& files, const NodeLogsOptions& options, uint64_t seed) {
  Rng rng(seed);
  const uint32_t chunk_bytes = options.shape.chunk_bytes;
  uint64_t outside = 0, handed_out = 0;
  LogWriter honest;
  const auto of_honest = logs.add_log();
  honest.attach(options.memory_directory.c_str(), *of_honest);
  std::string expected;
  for (int round = 0; round < 60; ++round) {
    const auto log = logs.add_log();
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    Memory memory(options.memory_directory + "/" + kLogPrefix + std::to_string(*log),
                  log_file_bytes(options.shape.slots, chunk_bytes));
    char* const words = round % 4 == 0 ? memory.data() + 128 : memory.chunk();
    const uint64_t length = round % 4 == 0 ? 3000 : chunk_bytes;
    for (uint64_t at = 0; at + 8 <= length; at += 8) {
      const uint64_t word = rng.below(3) == 0 ? rng.below(1000) : rng.next();
      std::memcpy(words + at, &word, 8);
    }
    for (uint32_t i = 0; i < 200; ++i) {
      LogEntry& entry = *entry_of(memory.chunk(), chunk_bytes, i);
      EntryCopy copy{kPublished | rng.below(1 << 30),
                     {1, rng.below(3)},
                     rng.next() >> rng.below(64),
                     static_cast<uint32_t>(rng.below(rng.below(2) == 0 ? 2'000'000 : 300)),
                     static_cast<uint32_t>(rng.below(2 * chunk_bytes)),
                     rng.below(2),
                     0};
      copy.check = check_of(copy, *log);
      entry.file_high = copy.file.high, entry.file_low = copy.file.low, entry.offset = copy.offset;
      entry.length = copy.length, entry.place = copy.place, entry.number = copy.number,
      entry.check = copy.check;
      entry.published.store(copy.published);
    }
    Reservation reservation{static_cast<uint32_t>(rng.below(chunk_bytes)),
                            static_cast<uint32_t>(rng.below(250)), 0, rng.below(2) == 0};
    if (round % 8 != 7) head_of(memory.chunk(), chunk_bytes)->reserve.store(reservation.packed());
    const std::string bytes = pattern(static_cast<uint64_t>(round), 1000);
    EXPECT_EQ(honest.write({9, 9}, expected.size(), bytes.data(), bytes.size()), 1000);
    expected += bytes;
    EXPECT_TRUE(logs.take(files).ok());
    EXPECT_TRUE(logs.serve().ok());
    EXPECT_TRUE(logs.end_log(*log, files).ok());
    for (const Segment& segment : files.taken) {
      if (segment.place.log == *of_honest) continue;
      ++handed_out;
      std::string content(segment.length, '\0');
      outside += segment.length > kPieceBytesMax ||
                 segment.place.address % chunk_bytes + segment.length > reservation.used ||
                 !logs.read(segment.place, content).ok();
    }
    std::erase_if(files.taken, [&](const Segment& segment) {
      return segment.place.log != *of_honest && logs.drop(segment.place, segment.length).ok();
    });
    EXPECT_TRUE(logs.serve().ok());
  }
  EXPECT_EQ(files.bytes(logs, {9, 9}), expected) << "another process's writes";
  std::printf("garbage: %lu segments were handed out, %lu of them outside, %lu problems\n", handed_out,
              outside, files.problems.size());
  EXPECT_GT(files.problems.size(), 100u);
  return outside;
}

TEST_F(LogDamageTest, GarbageHarmsItsOwnWritesOnly) {
  for (const uint64_t seed : {1, 2, 3}) {
    files_ = Files();
    EXPECT_EQ(garbage(*logs_, files_, options_, seed), 0u);
  }
}

TEST_F(LogDamageTest, MessagesOfOneLogAreBounded) {
  const uint32_t log = add();
  LogWriter writer;
  attach(writer, log);
  Memory memory(log_path(log), log_bytes());
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(writer.write(kFile, i, "x", 1), 1);
    entry_of(memory.chunk(), kChunk, i)->check ^= 1;
  }
  take();
  EXPECT_EQ(files_.taken.size(), 0u);
  ASSERT_EQ(files_.problems.size(), kProblemsMax);
  EXPECT_NE(files_.problems.back().to_string().find("the last message"), std::string::npos);
}

// The canary: a server that believes a length.
TEST_F(LogDamageTest, AServerThatTrustsALengthWouldBeNoticed) {
  options_.rules.wrong_with = [](const EntryCopy& entry, const KnownChunk& chunk,
                                 uint64_t now) -> const char* {
    KnownChunk lax = chunk;
    lax.used = UINT32_MAX;
    return check_entry(entry, lax, now);
  };
  open();
  EXPECT_GT(garbage(*logs_, files_, options_, 1), 0u);
}

// Where a chunk had payload the next one in its slot has entries: none is published before a writer has done
// so, even if the server looks between reservation and publishing.
TEST_F(LogDamageTest, WhatAReusedSlotHadIsNoEntry) {
  const uint32_t log = add();
  LogWriter writer;
  attach(writer, log);
  const std::string bytes(20'000, 'x');
  const auto write = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), 20'000);
    take();
  };
  write(5);
  serve();
  write(4);  // the last three in the second chunk
  files_.drop_all(*logs_);
  serve();
  write(1);
  serve();  // grants the third chunk, where the first one was
  Memory memory(log_path(log), log_bytes());
  std::atomic<uint64_t>& word = head_of(memory.chunk(), kChunk)->reserve;
  Reservation stopped = Reservation::of(word.load());
  ASSERT_EQ(stopped.number, 2u);
  ASSERT_EQ(stopped.entries, 0u);
  stopped.entries = 700, stopped.used = 70'000;
  word.store(stopped.packed());
  files_.taken.clear();
  take();
  EXPECT_TRUE(files_.taken.empty());
  ASSERT_TRUE(files_.problems.empty()) << files_.problems.front().to_string();
}

// A process that takes its memory away, which its server has mapped.
TEST_F(LogDamageTest, APayloadThatWasPunchedIsDamage) {
  const uint32_t log = add();
  LogWriter writer;
  attach(writer, log);
  const std::string bytes = pattern(1, 70'000);
  ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), 70'000);
  take();
  ASSERT_TRUE(logs_->settle().ok());
  const int fd = ::open(log_path(log).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPageBytes, 65536), 0);
  ::close(fd);
  std::string found(100, '\0');
  EXPECT_EQ(logs_->read(meta::Place(log, 10), found).code(), Code::kCorruption);
}

}  // namespace
}  // namespace swale::fs::log_damage_test
