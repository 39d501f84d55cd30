// NodeLogs: memory that is ready for processes to come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fs/log/testing/log_rig.h"
#include "tier/store/testing/described_fault_device.h"

namespace swale::fs::ready_logs_test {
namespace {

// Writes as many chunks as it had before, without a server that works meanwhile.
constexpr uint32_t kReadyChunk = 64 << 10;
constexpr uint64_t kHalfChunk = kReadyChunk / 2 - 512;
int64_t write_chunks(LogWriter& writer, uint64_t count) {
  const std::string bytes = pattern(5, kHalfChunk);
  int64_t written = 0;
  for (uint64_t i = 0; i < 2 * count && written >= 0; ++i)
    written = writer.write(kFile, i * bytes.size(), bytes.data(), bytes.size());
  return written;
}

class ReadyLogsTest : public LogRig {
 protected:
  enum class After { kGone, kMapped };
  enum class Over { kAll, kNotYet };

  ReadyLogsTest() {
    small_chunks(kReadyChunk, 8);
    options_.memory_bytes = 32 * kReadyChunk;
    options_.spill_directory.clear();
    options_.shape.wait_ns = 10'000'000;
  }
  // Two processes with three chunks each, which are over. Their mappings have gone, or not.
  void use(After after = After::kGone, Over over = Over::kAll) {
    uint32_t ids[2];
    for (int i = 0; i < 2; ++i) attach(writers_[i], ids[i] = add());
    for (int chunk = 0; chunk < 3; ++chunk) {
      for (LogWriter& writer : writers_) ASSERT_GT(write_chunks(writer, 1), 0);
      take();
      serve();
    }
    for (LogWriter& writer : writers_)
      if (after == After::kGone) writer.detach();
    for (const uint32_t id : ids) ASSERT_TRUE(logs_->end_log(id, files_).ok());
    files_.drop_all(*logs_);
    serve();
    if (over == Over::kAll) {
      ASSERT_TRUE(logs_->logs().empty());
    }
  }
  void prepare_all() {
    while (logs_->prepare_next()) {
    }
  }
  // Of a log that begins anew as in a process that is over, a page of the file, where it may be written to.
  char* map_again(uint32_t log, uint64_t bytes) {
    const int file = ::open(log_path(log).c_str(), O_RDWR | O_CLOEXEC);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return static_cast<char*>(memory);
  }
  uint64_t blocks_of(uint32_t log) const {
    struct stat found = {};
    return ::stat(log_path(log).c_str(), &found) == 0 ? static_cast<uint64_t>(found.st_blocks) * 512 : 0;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& each : std::filesystem::directory_iterator(options_.memory_directory))
      if (each.path().filename().string().starts_with(kLogPrefix))
        found.push_back(each.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  LogWriter writers_[2];
};

TEST_F(ReadyLogsTest, TheNextProcessesGetTheMemoryOfThoseBefore) {
  open();
  use();
  EXPECT_EQ(logs_->prepared_logs(), 2u);
  EXPECT_EQ(names(), (std::vector<std::string>{"log-3", "log-4"})) << "a number was used again";
  EXPECT_GE(logs_->memory_bytes(), 6 * kReadyChunk);
  LogWriter later[2];
  for (int i = 0; i < 2; ++i) {
    const uint32_t id = add();
    const uint64_t blocks = blocks_of(id);
    EXPECT_GE(blocks, 3 * kReadyChunk);
    attach(later[i], id);
    EXPECT_GT(write_chunks(later[i], 3), 0) << "three chunks were its own from the beginning";
    EXPECT_EQ(blocks_of(id), blocks);
  }
  EXPECT_EQ(logs_->prepared_logs(), 0u);
  take();
  EXPECT_EQ(files_.taken.size(), 12u);
  EXPECT_EQ(files_.bytes(*logs_).size(), 6 * kHalfChunk);
  EXPECT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
}

// While a drain runs nobody writes, and the server makes logs: they have no memory yet.
TEST_F(ReadyLogsTest, MemoryOfAProcessTakesThePlaceOfALogWithoutAny) {
  open();
  for (LogWriter& writer : writers_) attach(writer, add());
  for (int chunk = 0; chunk < 3; ++chunk) {
    for (LogWriter& writer : writers_) ASSERT_GT(write_chunks(writer, 1), 0);
    take();
    serve();
  }
  for (LogWriter& writer : writers_) writer.detach();
  for (const uint32_t id : logs_->logs()) ASSERT_TRUE(logs_->end_log(id, files_).ok());
  const uint64_t before = logs_->memory_bytes();
  while (logs_->prepared_logs() < 2) ASSERT_TRUE(logs_->prepare_next());
  files_.drop_all(*logs_);
  serve();
  EXPECT_TRUE(logs_->logs().empty());
  EXPECT_EQ(logs_->prepared_logs(), 2u);
  EXPECT_EQ(names().size(), 2u);
  EXPECT_GE(logs_->memory_bytes(), 6 * kReadyChunk);
  EXPECT_LE(logs_->memory_bytes(), before);
  LogWriter writer;
  attach(writer, add());
  EXPECT_GT(write_chunks(writer, 3), 0) << "three chunks were its own from the beginning";
}

// A few spills have no names until more come: what waits for them would wait for the next burst.
TEST_F(ReadyLogsTest, WhatIsOnItsWayToStorageArrivesWhileNobodyWrites) {
  options_.spill_directory = storage_.path() + "/spill";
  options_.outlives_power = true;
  open();
  use(After::kGone, Over::kNotYet);
  EXPECT_FALSE(logs_->logs().empty()) << "the canary: chunks are on their way, and keep their logs";
  int steps = 0;
  while (logs_->arrive_next()) ASSERT_LT(++steps, 100);
  std::printf("%d steps\n", steps);
  EXPECT_GT(steps, 0);
  EXPECT_TRUE(logs_->logs().empty());
  EXPECT_EQ(logs_->spilled_chunks(), 0u);
  EXPECT_EQ(logs_->prepared_logs(), 2u) << "their memory is ready";
  const auto folder = std::filesystem::directory_iterator(options_.spill_directory);
  for (const auto& entry : folder) EXPECT_FALSE(entry.path().filename().string().starts_with(kSpillPrefix));
  EXPECT_GT(logs_->nameless_files(), 0u);
  while (logs_->take_nameless()) {
  }
  EXPECT_EQ(logs_->nameless_files(), 0u);
}

// Its chunk has bytes that were dropped, and space: it would keep all that others have spilled.
TEST_F(ReadyLogsTest, AnIdleProcessKeepsNothingOfOthers) {
  options_.spill_directory = storage_.path() + "/spill";
  options_.outlives_power = true;
  open();
  LogWriter idle;
  attach(idle, add());
  ASSERT_EQ(idle.write(kFile, 0, "first", 5), 5);
  take();
  files_.drop_all(*logs_);
  use(After::kGone, Over::kNotYet);
  while (logs_->arrive_next()) {
  }
  EXPECT_EQ(logs_->logs().size(), 1u) << "the idle process's";
  EXPECT_EQ(logs_->spilled_chunks(), 0u);
  ASSERT_EQ(idle.write(kFile, 0, "again", 5), 5);
  take();
  EXPECT_EQ(files_.bytes(*logs_), "again");
}

TEST_F(ReadyLogsTest, HalfOfTheMemoryStaysReady) {
  options_.memory_bytes = 8 * kReadyChunk;
  open();
  use();
  EXPECT_EQ(logs_->prepared_logs(), 2u);
  EXPECT_EQ(logs_->memory_bytes(), 4 * kReadyChunk);
  EXPECT_LE(blocks_of(3) + blocks_of(4), 4 * kReadyChunk + 2 * 8 * kPageBytes) << "and a page of each slot";
}

TEST_F(ReadyLogsTest, AProcessThatStillMapsItsLogKeepsItToItself) {
  open();
  use(After::kMapped);
  EXPECT_EQ(logs_->prepared_logs(), 0u);
  EXPECT_EQ(logs_->memory_bytes(), 0u);
  EXPECT_TRUE(names().empty());
}

TEST_F(ReadyLogsTest, ADescriptorOfALogKeepsItAsWell) {
  open();
  const uint32_t id = add();
  auto passed = logs_->descriptors(id);
  ASSERT_TRUE(passed.ok());
  ASSERT_TRUE(logs_->end_log(id, files_).ok());
  serve();
  EXPECT_EQ(logs_->prepared_logs(), 0u);
  passed->log = io::Descriptor();
  const uint32_t next = add();
  ASSERT_TRUE(logs_->descriptors(next).ok());
  ASSERT_TRUE(logs_->end_log(next, files_).ok());
  serve();
  EXPECT_EQ(logs_->prepared_logs(), 1u);
}

TEST_F(ReadyLogsTest, ALogThatCannotBeRenamedGoesWithItsMemory) {
  tier::DescribedFaultDevice memory;
  auto logs = NodeLogs::open(memory, device_, options_);
  ASSERT_TRUE(logs.ok()) << logs.status().to_string();
  logs_ = std::move(*logs);
  int failed = 0;
  memory.faults.set_hook([&](const io::Call& call) {
    failed += call.kind == io::CallKind::kRename ? 1 : 0;
    return call.kind == io::CallKind::kRename ? errno_status(EIO, call.path) : Status();
  });
  use();
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(logs_->prepared_logs(), 0u);
  EXPECT_EQ(logs_->memory_bytes(), 0u);
  EXPECT_TRUE(names().empty());
  logs_.reset();
}

// A canary: without that proof the first process, which is over, writes into the second one's file.
TEST_F(ReadyLogsTest, AServerThatDoesNotAskTheKernelWouldBeNoticed) {
  options_.rules.proves_alone = false;
  open();
  attach(writers_[0], add());
  char* const memory = map_again(1, 4 * kReadyChunk);
  ASSERT_GT(write_chunks(writers_[0], 1), 0);
  take();
  ASSERT_TRUE(logs_->end_log(1, files_).ok());
  files_.drop_all(*logs_);
  serve();
  ASSERT_EQ(logs_->prepared_logs(), 1u);
  attach(writers_[1], add());
  ASSERT_GT(write_chunks(writers_[1], 1), 0);
  take();
  const std::string before = files_.bytes(*logs_);
  std::memset(memory + kPageBytes, 'x', kReadyChunk / 2);
  EXPECT_NE(files_.bytes(*logs_), before);
  ::munmap(memory, 4 * kReadyChunk);
}

// The entries of the next process are zeros before it reserves them, whatever the process before has written.
TEST_F(ReadyLogsTest, WhatAProcessHasLeftIsNoEntryOfTheNextOne) {
  open();
  attach(writers_[0], add());
  ASSERT_GT(write_chunks(writers_[0], 1), 0);
  take();
  char* const memory = map_again(1, 2 * kReadyChunk);
  char* const behind = memory + kPageBytes + 2 * kHalfChunk;  // the payload; its own entries are two
  std::memset(
      behind, 0xee,
      static_cast<size_t>(reinterpret_cast<char*>(entry_of(memory + kPageBytes, kReadyChunk, 1)) - behind));
  ::munmap(memory, 2 * kReadyChunk);
  writers_[0].detach();
  ASSERT_TRUE(logs_->end_log(1, files_).ok());
  files_.drop_all(*logs_);
  serve();
  ASSERT_EQ(logs_->prepared_logs(), 1u);
  const uint32_t next = add();
  attach(writers_[1], next);
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(writers_[1].write(kFile, i * 5, "bytes", 5), 5);
  // A reservation that is looked at before its write is there.
  char* const again = map_again(next, 2 * kReadyChunk);
  auto& word = head_of(again + kPageBytes, kReadyChunk)->reserve;
  Reservation now = Reservation::of(word.load());
  ASSERT_EQ(now.entries, 2u);
  now.used += 3, now.entries += 1;
  word.store(now.packed());
  ::munmap(again, 2 * kReadyChunk);
  take();
  EXPECT_EQ(files_.taken.size(), 2u);
  EXPECT_TRUE(files_.problems.empty()) << files_.problems[0].to_string();
}

TEST_F(ReadyLogsTest, MemoryIsReadyForAsManyProcessesAsThereWere) {
  open();
  EXPECT_FALSE(logs_->prepare_next()) << "nobody has written yet";
  use(After::kMapped);
  EXPECT_EQ(logs_->memory_bytes(), 0u);
  prepare_all();
  EXPECT_EQ(logs_->prepared_logs(), 2u);
  EXPECT_GE(logs_->memory_bytes(), 6 * kReadyChunk);
  EXPECT_LE(logs_->memory_bytes(), options_.memory_bytes / 2);
  EXPECT_TRUE(logs_->logs().empty());
  LogWriter writer;
  attach(writer, add());
  EXPECT_EQ(logs_->prepared_logs(), 1u);
  EXPECT_GT(write_chunks(writer, 3), 0) << "three chunks were its own from the beginning";
  take();
  EXPECT_EQ(files_.bytes(*logs_).size(), 6u * (kReadyChunk / 2 - 512));
  EXPECT_TRUE(files_.problems.empty());
}

// A canary: without memory that is ready the process waits for a server that does not work.
TEST_F(ReadyLogsTest, AProcessWithoutReadyMemoryWaits) {
  open();
  LogWriter writer;
  attach(writer, add());
  EXPECT_EQ(write_chunks(writer, 3), -EIO);
}

TEST_F(ReadyLogsTest, ReadyMemoryGoesToAProcessThatNeedsIt) {
  open();
  use();
  prepare_all();
  LogWriter writers[4];
  for (LogWriter& writer : writers) attach(writer, add());
  for (int chunk = 0; chunk < 7; ++chunk) {
    for (LogWriter& writer : writers) ASSERT_GT(write_chunks(writer, 1), 0) << chunk;
    take();
    serve();
  }
  EXPECT_EQ(logs_->prepared_logs(), 0u);
  EXPECT_LE(logs_->memory_bytes(), 32u * kReadyChunk);
}

TEST_F(ReadyLogsTest, AServerThatIsKilledLeavesNoLogsOfNobody) {
  const pid_t child = ::fork();
  if (child == 0) {
    open();
    use();
    prepare_all();
    ::_exit(logs_->prepared_logs() == 2 ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  const auto logs_there = [&] {
    const auto folder = std::filesystem::directory_iterator(options_.memory_directory);
    return std::count_if(begin(folder), end(folder), [](const auto& each) {
      return each.path().filename().string().starts_with(kLogPrefix);
    });
  };
  EXPECT_EQ(logs_there(), 2);
  open();
  EXPECT_EQ(logs_there(), 0);
  EXPECT_TRUE(logs_->logs().empty());
}

}  // namespace
}  // namespace swale::fs::ready_logs_test
