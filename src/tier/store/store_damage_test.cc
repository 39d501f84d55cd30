// Store: damaged records of its log, and a log that is gone. A read gives the newest bytes or names what is
// lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "io/posix_device.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"
#include "tier/store/testing/store_folder.h"

namespace swale::tier::store_damage_test {
namespace {

constexpr uint64_t kSegmentBytes = 256 * kKiB;

class StoreDamageTest : public ::testing::Test, protected StoreFolder {
 protected:
  StoreDamageTest() : StoreFolder("store-damage") {}

  StoreOptions options() const {
    StoreOptions options = small_options(kSegmentBytes);
    options.flush_paused = true;
    return options;
  }
  void open(bool accept = false) {
    StoreOptions with = options();
    with.accept_loss = accept;
    auto store = Store::open(device_, with);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(*store);
  }
  void close(Store::AtClose how = Store::AtClose::kKeep) {
    ASSERT_TRUE(store_->close(how).ok());
    store_.reset();
  }
  Store::Handle file() { return *store_->open_file("data", io::OpenMode::kOpenOrCreate); }
  void write(uint64_t offset, const std::string& bytes) {
    const Status status = store_->write(file(), offset, bytes);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Result<std::string> read(uint64_t offset, uint64_t length) {
    std::string bytes(length, '\0');
    const auto got = store_->read(file(), offset, bytes);
    if (!got.ok()) return got.status();
    bytes.resize(*got);
    return bytes;
  }
  std::string on_backing() const {
    std::ifstream in(root_ + "/backing/data", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The records of the log that have bytes, the newest last.
  std::vector<RecordHeader> records() const {
    std::ifstream in(root_ + "/ssd/log", std::ios::binary);
    std::vector<RecordHeader> all;
    for (uint32_t i = 0; i < options().engine.segment_count; ++i) {
      std::string bytes(kSegmentBytes, '\0');
      in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      const auto header = decode_segment_header(bytes);
      const auto scan = scan_segment(bytes, *header);
      for (const RecordHeader& record : scan->records)
        if (record.has_payload()) all.push_back(record);
    }
    std::sort(all.begin(), all.end(),
              [](const RecordHeader& x, const RecordHeader& y) { return x.sequence < y.sequence; });
    return all;
  }
  // As a process leaves its log that was killed, instead of one that has ended.
  void leave_open() const {
    for (const char* name : {"/ssd/seal", "/ssd/seal.copy"}) {
      std::ifstream in(root_ + name, std::ios::binary);
      auto seal = decode_log_seal(std::string(std::istreambuf_iterator<char>(in), {}), name);
      ASSERT_TRUE(seal.ok());
      seal->closed = false;
      for (SegmentSeal& segment : seal->segments) segment.records.clear();
      std::ofstream(root_ + name, std::ios::binary) << encode_log_seal(*seal);
    }
  }
  void flip(uint64_t at) const {
    std::fstream log(root_ + "/ssd/log", std::ios::in | std::ios::out | std::ios::binary);
    log.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(log.get());
    log.seekp(static_cast<std::streamoff>(at));
    log.put(static_cast<char>(byte ^ 4));
  }

  io::PosixDevice device_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreDamageTest, ABlockThatFlippedIsRefusedUntilItIsOverwrittenAndTheRestIsThere) {
  open();
  write(0, std::string(16'000, 'o'));
  ASSERT_TRUE(store_->drain().ok());  // the older bytes, which nobody may see any more
  write(0, std::string(16'000, 'n'));
  close();
  flip(records().back().payload_address() + 5000);
  open();
  ASSERT_EQ(store_->recovery().damaged.size(), 1u);
  ASSERT_EQ(store_->recovery().lost.size(), 1u);
  EXPECT_EQ(store_->recovery().lost[0].path, "data");
  EXPECT_EQ(store_->recovery().lost[0].offset, 4096u);
  EXPECT_EQ(store_->recovery().lost[0].length, 4096u);
  EXPECT_EQ(*read(0, 4096), std::string(4096, 'n'));
  EXPECT_EQ(*read(8192, 16'000 - 8192), std::string(16'000 - 8192, 'n'));
  const auto refused = read(5000, 1);
  ASSERT_EQ(refused.status().code(), Code::kCorruption);
  for (const char* part : {"/data", "bytes 5000 to 5001", "record at offset", "accept-loss"})
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().message();
  // Still lost after a drain, and in the next life.
  store_->pause_flush(false);
  ASSERT_TRUE(store_->drain().ok());
  EXPECT_FALSE(read(4096, 4096).ok());
  close(Store::AtClose::kDrain);
  open();
  EXPECT_FALSE(read(4096, 4096).ok());
  EXPECT_EQ(store_->losses().size(), 1u);
  write(4096, std::string(4096, 'w'));
  EXPECT_EQ(*read(4096, 4096), std::string(4096, 'w'));
  EXPECT_TRUE(store_->losses().empty());
  close(Store::AtClose::kDrain);
  EXPECT_EQ(on_backing(), std::string(4096, 'n') + std::string(4096, 'w') + std::string(16'000 - 8192, 'n'));
}

TEST_F(StoreDamageTest, AnAcceptedLossReadsAsTheBackingDirectoryHasItForEver) {
  open();
  write(0, std::string(5000, 'o'));
  ASSERT_TRUE(store_->drain().ok());
  write(0, std::string(5000, 'n'));
  close();
  flip(records().back().payload_address() + 10);
  open();
  EXPECT_FALSE(read(0, 10).ok());
  close();
  open(true);
  EXPECT_EQ(*read(0, 10), std::string(10, 'o'));
  close();
  open();
  EXPECT_EQ(*read(0, 10), std::string(10, 'o')) << "the damaged record still stands in the log";
  EXPECT_TRUE(store_->losses().empty());
}

TEST_F(StoreDamageTest, AFlippedHeaderCostsNothing) {
  open();
  write(100, "header");
  close();
  flip(records()[0].address + 30);
  const auto report = Store::inspect(device_, root_ + "/ssd", {});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->problems.size(), 1u);
  open();
  EXPECT_EQ(store_->recovery().mended, 1u);
  EXPECT_EQ(*read(100, 6), "header");
}

TEST_F(StoreDamageTest, DamageUnderARunningStoreIsNeverReadNorFlushed) {
  open();
  write(0, std::string(9000, 'n'));
  flip(records()[0].payload_address() + 100);
  EXPECT_EQ(read(0, 10).status().code(), Code::kCorruption);
  EXPECT_EQ(*read(5000, 10), std::string(10, 'n'));
  store_->pause_flush(false);
  EXPECT_FALSE(store_->drain().ok()) << "not everything is on the backing device";
  ASSERT_EQ(store_->losses().size(), 1u);
  EXPECT_EQ(store_->losses()[0].length, 4096u);
  EXPECT_FALSE(store_->sync(file()).ok()) << "told once";
  EXPECT_TRUE(store_->drain().ok()) << "the first one need not have waited for the rest";
  EXPECT_EQ(on_backing().substr(0, 10), std::string(10, '\0'));
  EXPECT_EQ(on_backing().substr(4096), std::string(9000 - 4096, 'n'));
}

TEST_F(StoreDamageTest, BytesThatTheBackingDirectoryHasAreReadThereIfTheLogIsDamaged) {
  open();
  write(0, std::string(9000, 'n'));
  const uint64_t payload = records()[0].payload_address();
  store_->pause_flush(false);
  const Status drained = store_->drain();
  ASSERT_TRUE(drained.ok()) << drained.to_string();
  flip(payload + 100);
  EXPECT_EQ(*read(0, 10), std::string(10, 'n'));
}

// A record that was torn when the process stopped was never acknowledged: the older bytes are right.
TEST_F(StoreDamageTest, ATornRecordIsNoLoss) {
  open();
  write(0, std::string(5000, 'a'));
  close();
  leave_open();
  const auto before = records();
  // As an append that was under way: header and a part of the payload.
  RecordHeader torn = before[0];
  torn.sequence = before[0].sequence + 2;  // the mark of the clean end is between
  torn.address = before[0].address + before[0].space(64) + record_space(0, 64);
  std::string header(kRecordHeaderBytes, '\0');
  std::fstream log(root_ + "/ssd/log", std::ios::in | std::ios::out | std::ios::binary);
  std::string first(kSegmentHeaderBytes, '\0');
  log.read(first.data(), kSegmentHeaderBytes);
  encode_record_header(torn, decode_segment_header(first)->log_id, header);
  log.seekp(static_cast<std::streamoff>(torn.address));
  log.write(header.data(), kRecordHeaderBytes);
  log.close();
  for (int life = 0; life < 3; ++life) {
    open();
    EXPECT_EQ(store_->recovery().torn, life == 0 ? 1u : 0u);
    EXPECT_TRUE(store_->losses().empty());
    EXPECT_EQ(*read(0, 10), std::string(10, 'a'));
    write(20'000, "later records say that all before them is settled");
    close();
  }
}

TEST_F(StoreDamageTest, WithoutItsLogAStoreOpensOnlyIfTheLossIsAcceptedAndNamesTheFiles) {
  open();
  write(0, "abc");
  close();
  std::filesystem::remove_all(root_ + "/ssd");
  const auto refused = Store::open(device_, options());
  EXPECT_EQ(refused.status().code(), Code::kNotFound);
  EXPECT_NE(refused.status().message().find("--accept-loss"), std::string::npos);
  open(true);
  ASSERT_EQ(store_->recovery().lost.size(), 1u);
  EXPECT_EQ(store_->recovery().lost[0].path, "data");
  write(0, "new");
  close(Store::AtClose::kDrain);
  EXPECT_EQ(on_backing(), "new");
}

}  // namespace
}  // namespace swale::tier::store_damage_test
