// NodeLogs: what is written is handed out in one order, stays readable, and is found again.
#include "fs/log/node_logs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/log/testing/log_rig.h"
#include "io/fault_device.h"

namespace swale::fs::node_logs_test {
namespace {

using NodeLogsTest = LogRig;

TEST_F(NodeLogsTest, WritesAreHandedOutWholeAndOnce) {
  open();
  LogWriter writer;
  attach(writer, add());
  const std::string first = pattern(1, 5000), second = pattern(2, 3);
  EXPECT_EQ(writer.write(kFile, 10, first.data(), first.size()), 5000);
  EXPECT_EQ(writer.write(kFile, 4, second.data(), second.size()), 3);
  EXPECT_EQ(writer.write(kFile, 4, second.data(), 0), 0);
  take();
  take();
  ASSERT_EQ(files_.taken.size(), 2u);
  EXPECT_EQ(files_.taken[1].offset, 4u);
  EXPECT_EQ(files_.taken[1].place.address, kSkipBytes + 5000u)
      << "pieces of one process follow each other in its log";
  EXPECT_EQ(files_.bytes(*logs_), std::string(4, '\0') + second + std::string(3, '\0') + first);
  EXPECT_TRUE(files_.problems.empty());
}

TEST_F(NodeLogsTest, AFailureOfTheConsumerHandsTheSameOutAgain) {
  open();
  LogWriter writer;
  attach(writer, add());
  writer.write(kFile, 0, "abc", 3);
  files_.fail_with(error(Code::kIoError, Scope::kOperation, "not now"));
  EXPECT_EQ(logs_->take(files_).code(), Code::kIoError);
  files_.fail_with({});
  take();
  ASSERT_EQ(files_.taken.size(), 1u);
  EXPECT_EQ(files_.bytes(*logs_), "abc");
}

TEST_F(NodeLogsTest, AWriteLongerThanAPieceIsSeveral) {
  open();
  LogWriter writer;
  attach(writer, add());
  const std::string bytes = pattern(3, 3 * kPieceBytesMax + 17);
  EXPECT_EQ(writer.write(kFile, 1, bytes.data(), bytes.size()), static_cast<int64_t>(bytes.size()));
  take();
  EXPECT_EQ(files_.taken.size(), 4u);
  EXPECT_EQ(files_.bytes(*logs_).substr(1), bytes);
  LogTrouble trouble;
  EXPECT_EQ(writer.write(kFile, (uint64_t{1} << 63) - 1, "ab", 2, &trouble), -EFBIG);
  EXPECT_NE(std::string(trouble.text).find("node here"), std::string::npos) << trouble.text;
}

TEST_F(NodeLogsTest, TheLastNumberOfALogIsRefusedAndDoesNotBeginAgain) {
  options_.first_log = UINT32_MAX - 1;
  open();
  EXPECT_EQ(add(), UINT32_MAX - 1);
  const auto more = logs_->add_log();
  EXPECT_EQ(more.status().code(), Code::kResourceExhausted) << more.status().to_string();
  logs_.reset();
  open();
  EXPECT_EQ(logs_->add_log().status().code(), Code::kResourceExhausted);
}

// The rule of invariant (1): while the server looks at the logs, one process writes to a log that was
// looked at, then another one, later, to a log that comes next.
struct LateWrites {
  static inline LogWriter* first = nullptr;
  static inline LogWriter* second = nullptr;
  static void before_log(uint32_t log) {
    if (log != 2) return;
    first->write(kFile, 0, "old", 3);
    second->write(kFile, 0, "new", 3);
  }
};
std::string order_of_late_writes(NodeLogsOptions options, io::Device& device, bool limit) {
  options.rules.limit_stamps = limit;
  options.rules.before_log = LateWrites::before_log;
  auto logs = NodeLogs::open(device, device, options);
  Files files;
  LogWriter first, second;
  first.attach(options.memory_directory.c_str(), *(*logs)->add_log());
  second.attach(options.memory_directory.c_str(), *(*logs)->add_log());
  LateWrites::first = &first, LateWrites::second = &second;
  EXPECT_TRUE((*logs)->take(files).ok());
  const size_t at_once = files.taken.size();
  EXPECT_TRUE((*logs)->take(files).ok());
  return fmt::format("{} at once, then {}", at_once, files.taken.size() > 1 && files.taken[0].place.log == 1);
}
TEST_F(NodeLogsTest, ALaterWriteIsNotHandedOutBeforeAnEarlierOne) {
  EXPECT_EQ(order_of_late_writes(options_, device_, true), "0 at once, then true");
  // Canary: without the limit the second log's write comes first.
  Folder other(memory_base());
  options_.memory_directory = other.path() + "/canary";
  options_.spill_directory = other.path() + "/spill";
  EXPECT_EQ(order_of_late_writes(options_, device_, false), "1 at once, then false");
}

TEST_F(NodeLogsTest, ChunksThatAreDroppedAreUsedAgain) {
  small_chunks(64 * 1024, 4);
  options_.spill_directory.clear();
  open();
  LogWriter writer;
  attach(writer, add());
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string bytes = pattern(i, 9000);
    ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), 9000);
    take();
    ASSERT_EQ(files_.bytes(*logs_), bytes);
    files_.drop_all(*logs_);
    serve();
    EXPECT_LE(logs_->memory_bytes(), options_.memory_bytes);
  }
  EXPECT_EQ(logs_->live_bytes(), 0u);
  EXPECT_FALSE(logs_->drop(meta::Place(1, 0), 1).ok()) << "nothing is dropped twice";
}

struct SlotSeen {
  uint32_t entries_max = 0;
  uint32_t zeros_end = 1;  // the entries from the second one to this one are zeros
};
SlotSeen look_at_slot(const std::string& path, uint32_t slot, uint32_t chunk_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string chunk(chunk_bytes, '\0');
  EXPECT_EQ(::pread(fd, chunk.data(), chunk_bytes, static_cast<off_t>(slot_begin(slot, chunk_bytes))),
            static_cast<ssize_t>(chunk_bytes));
  ::close(fd);
  SlotSeen seen;
  seen.entries_max = head_of(chunk.data(), chunk_bytes)->entries_max;
  const std::string none(sizeof(LogEntry), '\0');
  while (seen.zeros_end < entries_that_fit(chunk_bytes) &&
         std::memcmp(entry_of(chunk.data(), chunk_bytes, seen.zeros_end), none.data(), none.size()) == 0)
    ++seen.zeros_end;
  return seen;
}

// Payload of the chunk before lies where entries go: bytes that look as if they were published.
TEST_F(NodeLogsTest, ASlotThatIsUsedAgainHasZerosForItsEntriesOnly) {
  constexpr uint32_t kChunk = 256 << 10;
  small_chunks(kChunk, 1);
  options_.spill_directory.clear();
  open();
  LogWriter writer;
  const uint32_t log = add();
  attach(writer, log);
  EXPECT_EQ(look_at_slot(log_path(log), 0, kChunk).entries_max, entries_that_fit(kChunk)) << "a fresh slot";
  const std::string bytes(kChunk - 2 * sizeof(LogEntry), '\xff');
  ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), static_cast<int64_t>(bytes.size()));
  const auto next_chunk = [&] {
    std::thread other([&] { EXPECT_EQ(writer.write(kFile, 0, "a", 1), 1); });  // it waits for a chunk
    while (files_.taken.empty() || files_.taken.back().length != 1) {
      take();
      if (!files_.taken.empty() && files_.taken.back().length != 1) files_.drop_all(*logs_);
      serve();
    }
    other.join();
  };
  next_chunk();
  const SlotSeen seen = look_at_slot(log_path(log), 0, kChunk);
  EXPECT_EQ(seen.entries_max, 1024u);
  EXPECT_EQ(seen.zeros_end, 1024u) << "what comes next is payload, and looks published";
  files_.drop_all(*logs_);
  // As many writes as there are entries, and one more, which is in the next chunk.
  for (uint32_t i = 1; i < seen.entries_max; ++i) ASSERT_EQ(writer.write(kFile, i, "b", 1), 1);
  take();
  EXPECT_EQ(files_.taken.size(), seen.entries_max - 1u);
  EXPECT_EQ(files_.taken.back().place.address / kChunk, 1u);
  files_.drop_all(*logs_);
  next_chunk();
  EXPECT_EQ(files_.taken.back().place.address / kChunk, 2u);
  EXPECT_EQ(look_at_slot(log_path(log), 0, kChunk).entries_max, 2048u) << "twice as many as were used";
  EXPECT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
}

// A canary: a server that uses a chunk again whose bytes are live.
TEST_F(NodeLogsTest, AReusedChunkWouldBeNoticed) {
  small_chunks(64 * 1024, 4);
  options_.spill_directory.clear();
  options_.rules.is_over = [](const Chunk& chunk) { return chunk.complete(); };
  open();
  LogWriter writer;
  attach(writer, add());
  std::vector<std::pair<meta::Place, std::string>> written;
  bool noticed = false;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::string bytes = pattern(i, 9000);
    ASSERT_EQ(writer.write(kFile, i * 9000, bytes.data(), bytes.size()), 9000);
    take();
    written.emplace_back(files_.taken.back().place, bytes);
    serve();
  }
  for (const auto& [place, bytes] : written) {
    std::string found(bytes.size(), '\0');
    noticed |= !logs_->read(place, found).ok() || found != bytes;
  }
  EXPECT_TRUE(noticed);
}

TEST_F(NodeLogsTest, MemoryThatIsShortIsSpilledAndReadBack) {
  small_chunks(128 * 1024, 8);
  options_.memory_bytes = 4 * 128 * 1024;
  open();
  LogWriter writer, idle;
  attach(idle, add());
  attach(writer, add());
  idle.write({7, 2}, 0, "idle", 4);
  std::string expected;
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string bytes = pattern(i, 20'000);
    ASSERT_EQ(writer.write(kFile, expected.size(), bytes.data(), bytes.size()), 20'000);
    expected += bytes;
    take();
    serve();
    ASSERT_LE(logs_->memory_bytes(), options_.memory_bytes);
  }
  EXPECT_GT(logs_->spilled_bytes(), 3'000'000u);
  EXPECT_EQ(files_.bytes(*logs_), expected);
  EXPECT_EQ(files_.bytes(*logs_, {7, 2}), "idle");
  EXPECT_EQ(logs_->live_bytes(), expected.size() + 4);
  files_.drop_all(*logs_);
  serve();
  EXPECT_EQ(logs_->spilled_bytes(), 0u);
  EXPECT_TRUE(std::filesystem::is_empty(options_.spill_directory));
}

// A writer that has used up what it was given does not starve: a drain is begun for those that do.
TEST_F(NodeLogsTest, AWriterStarvesIfTheServerHasNothingForIt) {
  small_chunks(64 * 1024, 4);
  options_.spill_directory.clear();
  options_.shape.wait_ns = 1'000'000;
  open();
  LogWriter writer;
  attach(writer, add());
  const std::string bytes = pattern(1, 9000);
  uint64_t written = 0;
  const auto use_up = [&] {
    while (writer.write(kFile, written * 9000, bytes.data(), bytes.size()) == 9000) ++written;
    take();
  };
  use_up();
  EXPECT_FALSE(logs_->starves());
  serve();
  EXPECT_FALSE(logs_->starves());
  for (int turn = 0; turn < 4; ++turn) {
    use_up();
    serve();
  }
  EXPECT_EQ(written, 28u);
  EXPECT_TRUE(logs_->starves());
  files_.drop_all(*logs_);
  serve();
  EXPECT_FALSE(logs_->starves());
}

TEST_F(NodeLogsTest, AHalfFullChunkRings) {
  small_chunks(64 * 1024, 4);
  open();
  LogWriter writer;
  attach(writer, add());
  const std::string bytes = pattern(1, 9000);
  const auto write = [&] { ASSERT_EQ(writer.write(kFile, 0, bytes.data(), bytes.size()), 9000); };
  for (int i = 0; i < 3; ++i) write();
  EXPECT_FALSE(logs_->wait(0));
  write();
  EXPECT_TRUE(logs_->wait(0));
  write();
  EXPECT_FALSE(logs_->wait(0));
}

// A process that has filled chunks gets some before it needs them. They go back before another one's bytes go
// to storage, and before another process gets none.
TEST_F(NodeLogsTest, ChunksAheadGoBackWhenMemoryIsShort) {
  small_chunks(64 * 1024, 64);
  options_.memory_bytes = 16 * 64 * 1024;
  options_.shape.wait_ns = 1'000'000;  // this thread is the server's, too
  open();
  LogWriter busy;
  attach(busy, add());
  uint64_t written = 0;
  const auto write = [&] {  // three a chunk
    const std::string bytes = pattern(written, 20'000);
    int64_t done = -1;
    for (int tries = 0; done < 0 && tries < 4; ++tries) {
      done = busy.write(kFile, written * 20'000, bytes.data(), bytes.size());
      take();
      serve();
      logs_->grant_at_once();
    }
    ASSERT_EQ(done, 20'000);
    ++written;
  };
  for (int i = 0; i < 13; ++i) write();
  files_.drop_all(*logs_);
  serve();
  logs_->grant_at_once();
  EXPECT_EQ(logs_->memory_bytes(), 8u * 64 * 1024) << "half of it, seven chunks ahead";
  constexpr uint64_t kOthers = 14;
  std::vector<LogWriter> others(kOthers);
  for (uint64_t i = 0; i < kOthers; ++i) {
    attach(others[i], add());
    ASSERT_EQ(others[i].write({8, i}, 0, "other", 5), 5);
    take();
    ASSERT_LE(logs_->memory_bytes(), options_.memory_bytes);
  }
  EXPECT_EQ(logs_->spilled_bytes(), 0u);
  const uint64_t first = written;
  for (int i = 0; i < 30; ++i) write();
  const std::string all = files_.bytes(*logs_);
  for (uint64_t i = first; i < written; ++i)
    ASSERT_EQ(all.substr(i * 20'000, 20'000), pattern(i, 20'000)) << i;
  for (uint64_t i = 0; i < kOthers; ++i) EXPECT_EQ(files_.bytes(*logs_, {8, i}), "other");
}

// Complete chunks are durable before anybody asks, and still read from memory.
TEST_F(NodeLogsTest, WhatOutlivesPowerIsSpilledAhead) {
  small_chunks(128 * 1024, 16);
  options_.outlives_power = true;
  options_.rules.direct_bytes_min = kPageBytes;
  open();
  LogWriter writer;
  attach(writer, add());
  std::string expected;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::string bytes = pattern(i, 20'000);
    ASSERT_EQ(writer.write(kFile, expected.size(), bytes.data(), bytes.size()), 20'000);
    expected += bytes;
    take();
    serve();
  }
  ASSERT_TRUE(logs_->rest().ok());
  EXPECT_EQ(logs_->spilled_bytes(), 6 * (120'000u + kSkipBytes))
      << "6 writes a chunk, and 4 in the one that is open";
  EXPECT_GE(logs_->memory_bytes(), expected.size());
  std::vector<NodeLogs::ChunkPart> left;
  for (const Segment& segment : files_.taken)
    if (const auto part = logs_->in_memory(segment.place, segment.length)) left.push_back(*part);
  EXPECT_EQ(left.size(), 4u);
  EXPECT_EQ(files_.bytes(*logs_), expected);
  const auto kept = logs_->keep(left, {});
  ASSERT_TRUE(kept.ok() && *kept == NodeLogs::Kept::kJournal) << kept.status().to_string();
  writer.detach();
  logs_.reset();
  std::filesystem::remove_all(options_.memory_directory);
  open();
  files_ = Files();
  ASSERT_TRUE(logs_->recover(files_).ok());
  EXPECT_EQ(files_.bytes(*logs_), expected);
  EXPECT_TRUE(files_.problems.empty());
}

// Storage without space for a chunk keeps it in memory; it goes when it must, or is asked for.
TEST_F(NodeLogsTest, ASpillAheadThatFailsIsToldAndWaitsUntilOneGoes) {
  small_chunks(128 * 1024, 16);
  options_.outlives_power = true;
  options_.rules.journal_bytes_max = 0;
  io::FaultDevice storage(device_);
  auto logs = NodeLogs::open(device_, storage, options_);
  ASSERT_TRUE(logs.ok()) << logs.status().to_string();
  logs_ = std::move(*logs);
  LogWriter writer;
  attach(writer, add());
  const auto write = [&](uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      const std::string bytes = pattern(i, 20'000);
      ASSERT_EQ(writer.write(kFile, i * 20'000, bytes.data(), bytes.size()), 20'000);
    }
    take();
  };
  write(0, 5);
  serve();  // grants the next chunk
  write(5, 8);
  io::Fault fault;
  fault.kind = io::CallKind::kWrite;
  fault.path_part = kSpillPrefix;
  fault.status = errno_status(ENOSPC, "the disk");
  storage.inject(fault);
  Status failed = logs_->serve();
  if (failed.ok()) failed = logs_->rest();
  EXPECT_EQ(failed.code(), Code::kNoSpace) << failed.to_string();
  EXPECT_NE(failed.to_string().find("stays in memory"), std::string::npos) << failed.to_string();
  EXPECT_EQ(logs_->spilled_bytes(), 0u);
  serve();
  EXPECT_EQ(logs_->spilled_bytes(), 0u) << "tried again and again";
  const auto chunk = logs_->in_memory(files_.taken.front().place, files_.taken.front().length);
  ASSERT_TRUE(chunk);
  const auto kept = logs_->keep({&*chunk, 1}, {});
  ASSERT_TRUE(kept.ok() && *kept == NodeLogs::Kept::kFiles) << kept.status().to_string();
  EXPECT_EQ(logs_->spilled_bytes(), 120'000u + kSkipBytes);
  write(8, 11);
  serve();
  write(11, 14);
  serve();
  ASSERT_TRUE(logs_->rest().ok());
  EXPECT_EQ(logs_->spilled_bytes(), 2 * (120'000u + kSkipBytes));
  EXPECT_EQ(files_.bytes(*logs_).size(), 280'000u);
}

TEST_F(NodeLogsTest, AServerFindsTheLogsOfTheOneBefore) {
  small_chunks(128 * 1024, 16);
  options_.memory_bytes = 5 * 128 * 1024;
  open();
  LogWriter writer;
  attach(writer, add());
  std::string expected;
  const auto write = [&](uint64_t i) {
    const std::string bytes = pattern(i, 30'000);
    ASSERT_EQ(writer.write(kFile, expected.size(), bytes.data(), bytes.size()), 30'000);
    expected += bytes;
  };
  for (uint64_t i = 0; i < 40; ++i) {
    write(i);
    if (i % 3 == 0) take();
    take();
    serve();
  }
  EXPECT_GT(logs_->spilled_bytes(), 0u);
  write(40);  // published, and not handed out
  logs_.reset();
  write(41);  // while there is no server
  files_ = Files();
  open();
  ASSERT_TRUE(logs_->recover(files_).ok());
  EXPECT_GE(files_.taken.size(), 40u);
  take();
  EXPECT_EQ(files_.taken.size(), 42u);
  EXPECT_EQ(files_.bytes(*logs_), expected);
  write(42);
  take();
  serve();
  EXPECT_EQ(files_.bytes(*logs_), expected);
  EXPECT_TRUE(files_.problems.empty());
  EXPECT_GT(add(), 1u) << "a log's number is not used again";
}

// The node has lost its memory; what was spilled is there.
TEST_F(NodeLogsTest, SpilledChunksAreFoundWithoutMemory) {
  small_chunks(64 * 1024, 8);
  options_.memory_bytes = 3 * 64 * 1024;
  open();
  LogWriter writer;
  attach(writer, add());
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string bytes = pattern(i, 20'000);
    ASSERT_EQ(writer.write(kFile, i * 20'000, bytes.data(), bytes.size()), 20'000);
    take();
    serve();
  }
  const uint64_t spilled = logs_->spilled_bytes();
  ASSERT_GT(spilled, 100'000u);
  logs_.reset();
  std::filesystem::remove_all(options_.memory_directory);
  files_ = Files();
  open();
  ASSERT_TRUE(logs_->recover(files_).ok());
  EXPECT_EQ(files_.taken.size() / 3 * (60'000 + kSkipBytes), spilled) << "3 writes a chunk";
  for (const Segment& segment : files_.taken) {
    std::string bytes(segment.length, '\0');
    ASSERT_TRUE(logs_->read(segment.place, bytes).ok());
    EXPECT_EQ(bytes, pattern(segment.offset / 20'000, 20'000));
  }
}

// A large page that reached beyond its slot would.
TEST_F(NodeLogsTest, SlotsTakeTheMemoryThatIsCounted) {
  constexpr uint64_t kChunks = 5, kHeads = 16 * kPageBytes;  // of logs, and last pages of slots that went
  options_.memory_bytes = kChunks * kChunkBytes;
  options_.spill_directory.clear();
  open();
  const uint32_t ids[] = {add(), add()};
  const auto taken = [&] {
    uint64_t bytes = 0;
    for (const uint32_t id : ids) {
      struct stat found;
      EXPECT_EQ(::stat(log_path(id).c_str(), &found), 0);
      bytes += static_cast<uint64_t>(found.st_blocks) * 512;
    }
    return bytes;
  };
  for (const uint32_t id : ids) {
    LogWriter writer;
    attach(writer, id);
    std::string all;
    for (uint64_t i = 0; i + 2 < kChunks; ++i) {
      const std::string bytes = pattern(id + i, 4 << 20);
      ASSERT_EQ(writer.write(kFile, all.size(), bytes.data(), bytes.size()), 4 << 20);
      all += bytes;
      take();
      serve();
      EXPECT_LE(taken(), logs_->memory_bytes() + kHeads);
    }
    EXPECT_TRUE(files_.bytes(*logs_) == all);
    files_.drop_all(*logs_);
    serve();
  }
  EXPECT_EQ(logs_->memory_bytes(), kChunks * kChunkBytes) << "slots of the first log were not given back";
  EXPECT_GE(taken(), logs_->memory_bytes());
}

TEST_F(NodeLogsTest, OneServerAtATime) {
  open();
  const auto second = NodeLogs::open(device_, device_, options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kBusy);
}

TEST_F(NodeLogsTest, TheFolderIsClosedToOthers) {
  open();
  const uint32_t log = add();
  using std::filesystem::perms;
  for (const std::string& path : {log_path(log), options_.memory_directory + "/" + kNodeName})
    EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write) << path;
  EXPECT_EQ(std::filesystem::status(options_.memory_directory).permissions(), perms::owner_all);
  logs_.reset();
  std::filesystem::permissions(options_.memory_directory, perms::owner_all | perms::group_read);
  EXPECT_FALSE(NodeLogs::open(device_, device_, options_).ok());
}

}  // namespace
}  // namespace swale::fs::node_logs_test
