// Store: a clean end is sealed. Whatever is damaged, missing or older afterwards is told; nothing that was
// erased comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "io/posix_device.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"
#include "tier/store/testing/store_folder.h"

namespace swale::tier::store_seal_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kSegmentBytes = 256 * kKiB;
constexpr uint64_t kBytes = 4000;  // of a write: one block

class StoreSealTest : public ::testing::Test, protected StoreFolder {
 protected:
  StoreSealTest() : StoreFolder("store-seal") {}

  StoreOptions options(bool accept = false) const {
    StoreOptions options = small_options(kSegmentBytes);
    options.accept_loss = accept;
    options.flush_paused = true;
    return options;
  }
  Status try_open(bool accept = false) {
    auto store = Store::open(device_, options(accept));
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    return {};
  }
  void open(bool accept = false) {
    const Status status = try_open(accept);
    if (!status.ok()) throw std::runtime_error(status.to_string());  // ends the test, without a store
  }
  void close() {
    const Status status = store_->close(Store::AtClose::kKeep);
    ASSERT_TRUE(status.ok()) << status.to_string();
    store_.reset();
  }
  // A drain at the end would end the claim of the log, which is then made anew.
  void drain_and_close() {
    ASSERT_TRUE(store_->drain().ok());
    const Nanos until = system_clock().now() + seconds(60);
    while (!records().empty() && system_clock().now() < until) std::this_thread::yield();
    ASSERT_TRUE(records().empty()) << "what was flushed is erased";
    close();
  }
  void write(uint64_t offset, char what) {
    const auto file = *store_->open_file("data", io::OpenMode::kOpenOrCreate);
    const Status status = store_->write(file, offset, std::string(kBytes, what));
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(store_->sync(file).ok());
    store_->close_file(file);
  }
  Result<char> read(uint64_t offset) {
    const auto file = *store_->open_file("data", io::OpenMode::kOpenOrCreate);
    std::string byte(1, '\0');
    const auto got = store_->read(file, offset, byte);
    store_->close_file(file);
    return got.ok() ? Result<char>(byte[0]) : got.status();
  }
  // Old bytes on the backing device, and newer ones that are in the log alone, when the store has ended
  // cleanly.
  void make_newer_bytes() {
    open();
    for (uint64_t i = 0; i < 4; ++i) write(i * kBytes, 'o');
    drain_and_close();
    open();
    for (uint64_t i = 0; i < 4; ++i) write(i * kBytes, 'n');
    close();
  }
  std::string log() const { return root_ + "/ssd/log"; }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    std::filesystem::permissions(path, std::filesystem::perms{0600});  // or nobody would believe it
  }
  static void flip(const std::string& path, uint64_t at) {
    std::string bytes = content(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    put(path, bytes);
  }
  std::vector<RecordHeader> records(bool with_marks = false) const {
    const std::string bytes = content(log());
    std::vector<RecordHeader> all;
    for (uint32_t i = 0; i < options().engine.segment_count; ++i) {
      const std::string segment = bytes.substr(i * kSegmentBytes, kSegmentBytes);
      const auto header = decode_segment_header(segment);
      if (!header.ok()) {  // it is being erased
        all.emplace_back();
        continue;
      }
      const auto scan = scan_segment(segment, *header);
      for (const RecordHeader& record : scan->records)
        if (with_marks || record.has_payload()) all.push_back(record);
    }
    std::sort(all.begin(), all.end(),
              [](const RecordHeader& x, const RecordHeader& y) { return x.sequence < y.sequence; });
    return all;
  }
  // Both copies of a record's header.
  void wipe(const RecordHeader& record) const {
    flip(log(), record.address);
    flip(log(), record.address + record.space(64) - kRecordHeaderBytes);
  }
  std::vector<std::string> problems() const {
    io::PosixDevice device;
    const auto report = Store::inspect(device, root_ + "/ssd", {});
    std::vector<std::string> all;
    for (const Status& each : report->problems) all.emplace_back(each.message());
    return all;
  }

  io::PosixDevice device_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreSealTest, TheMarkOfACleanEndMayBeDamagedAndNothingIsOlder) {
  make_newer_bytes();
  const RecordHeader mark = records(true).back();
  ASSERT_EQ(mark.type, RecordType::kSettled);
  // The page of the mark, and with it a block of the newest record.
  flip(log(), mark.address);
  flip(log(), mark.address + kRecordHeaderBytes);
  flip(log(), records().back().payload_address() + 10);
  EXPECT_EQ(problems().size(), 1u);
  open();
  EXPECT_EQ(store_->recovery().torn, 0u);
  ASSERT_EQ(store_->recovery().lost.size(), 1u);
  EXPECT_EQ(read(3 * kBytes).status().code(), Code::kCorruption) << "older bytes";
  EXPECT_EQ(*read(2 * kBytes), 'n');
}

TEST_F(StoreSealTest, ARecordThatIsGoneWithBothItsHeadersIsMissed) {
  make_newer_bytes();
  const auto all = records();
  for (const size_t victim : {all.size() - 1, size_t{0}}) {
    wipe(all[victim]);
    EXPECT_THAT(problems(),
                testing::Contains(AllOf(HasSubstr(log()), HasSubstr("acknowledged bytes are lost"))));
    const Status refused = try_open();
    EXPECT_EQ(refused.code(), Code::kCorruption);
    EXPECT_THAT(refused.to_string(),
                AllOf(HasSubstr(fmt::format("{}: offset {}: 1 of the ", log(), all[victim].address)),
                      HasSubstr("--accept-loss")));
    wipe(all[victim]);  // as it was: a refused opening leaves the end sealed, and the log whole
    EXPECT_THAT(problems(), testing::IsEmpty());
  }
  wipe(all.back());
  open(true);
  EXPECT_FALSE(store_->recovery().damaged.empty());
  EXPECT_EQ(*read(2 * kBytes), 'n');
  EXPECT_EQ(*read(3 * kBytes), 'o') << "given up";
  close();
  open();
}

TEST_F(StoreSealTest, ASegmentThatWasErasedDoesNotComeBack) {
  open();
  for (uint64_t i = 0; i < 4; ++i) write(i * kBytes, 'o');
  const RecordHeader old = records().front();
  drain_and_close();  // erases the segment
  put(root_ + "/backing/data", std::string(4 * kBytes, 'n'));
  const auto damage_headers = [&] {
    flip(log(), old.segment * kSegmentBytes + 8);
    flip(log(), (old.segment + 1) * kSegmentBytes - 64 + 8);
  };
  damage_headers();
  open();
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(*read(i * kBytes), 'n') << i;
  EXPECT_TRUE(store_->drain().ok());
  EXPECT_EQ(content(root_ + "/backing/data"), std::string(4 * kBytes, 'n'));
}

TEST_F(StoreSealTest, AnOlderCopyOfEitherDirectoryIsRefused) {
  make_newer_bytes();
  const auto keep = [&](const char* which) {
    std::filesystem::remove_all(root_ + "/kept-" + which);
    std::filesystem::copy(root_ + "/" + which, root_ + "/kept-" + which,
                          std::filesystem::copy_options::recursive);
  };
  const auto put_back = [&](const char* which) {
    std::filesystem::remove_all(root_ + "/now-" + which);
    std::filesystem::rename(root_ + "/" + which, root_ + "/now-" + which);
    std::filesystem::copy(root_ + "/kept-" + which, root_ + "/" + which,
                          std::filesystem::copy_options::recursive);
  };
  const auto undo = [&](const char* which) {
    std::filesystem::remove_all(root_ + "/" + which);
    std::filesystem::rename(root_ + "/now-" + which, root_ + "/" + which);
  };
  keep("ssd");
  keep("backing");
  open();
  for (uint64_t i = 0; i < 4; ++i) write(i * kBytes, 'N');
  drain_and_close();
  put_back("ssd");
  EXPECT_THAT(try_open().to_string(),
              AllOf(HasSubstr("is an older copy: it was opened 2 times"), HasSubstr("3 times")));
  EXPECT_EQ(try_open(true).code(), Code::kCorruption) << "also then: remove it first";
  EXPECT_EQ(content(root_ + "/backing/data"), std::string(4 * kBytes, 'N'));
  undo("ssd");
  open();
  close();
  put_back("backing");
  EXPECT_THAT(try_open().to_string(),
              AllOf(HasSubstr("/backing is an older copy"), HasSubstr("bring the newest")));
  undo("backing");
  open();
  EXPECT_EQ(*read(0), 'N');
}

TEST_F(StoreSealTest, OneCopyOfTheSealIsEnoughAndNoneIsRefused) {
  make_newer_bytes();
  const std::string seal = root_ + "/ssd/seal", copy = root_ + "/ssd/seal.copy";
  ASSERT_EQ(content(seal), content(copy));
  const std::string whole = content(seal);
  const auto decoded = decode_log_seal(whole, "seal");
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded->closed);
  for (const std::string& one : {seal, copy}) {
    flip(one, whole.size() / 2);
    const RecordHeader newest = records().back();
    wipe(newest);
    EXPECT_EQ(try_open().code(), Code::kCorruption) << "the other copy knows";
    wipe(newest);
    put(one, whole);
  }
  wipe(records(true).back());
  for (const bool removed : {false, true}) {
    for (const std::string& one : {seal, copy}) {
      removed ? static_cast<void>(std::filesystem::remove(one)) : flip(one, whole.size() / 2);
    }
    const Status refused = try_open();
    EXPECT_EQ(refused.code(), Code::kCorruption);
    EXPECT_THAT(refused.to_string(), AllOf(HasSubstr("seal"), HasSubstr("restore one of them")));
    put(seal, whole);
    put(copy, whole);
  }
  open();
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(*read(i * kBytes), 'n') << i;
}

TEST_F(StoreSealTest, ASealOfFewerSegmentsThanTheLogHasIsNotItsSeal) {
  make_newer_bytes();
  auto seal = *decode_log_seal(content(root_ + "/ssd/seal"), "seal");
  seal.segments.pop_back();
  for (const char* name : {"/ssd/seal", "/ssd/seal.copy"}) put(root_ + name, encode_log_seal(seal));
  EXPECT_THAT(problems(), testing::ElementsAre(HasSubstr("with 3 segments, the log is ")));
  EXPECT_THAT(try_open().to_string(), AllOf(HasSubstr("do not belong together"), HasSubstr("--accept-loss")));
}

TEST_F(StoreSealTest, AProcessThatStopsBetweenSealAndMarkLosesNothing) {
  make_newer_bytes();
  const std::string marker = root_ + "/backing/.swale-tier/log";
  const std::string before = content(marker);
  open();  // raises both
  const std::string raised = content(root_ + "/ssd/seal");
  close();
  put(marker, before);
  for (const char* name : {"/ssd/seal", "/ssd/seal.copy"}) put(root_ + name, raised);
  open();
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(*read(i * kBytes), 'n') << i;
}

TEST(LogSeal, AnyChangedByteIsDamage) {
  const LogSeal seal{7, 3, true, {{2, {1, 66, 70'000}}, {5, {}}}, {{"queue.4", 2}}};
  const std::string bytes = encode_log_seal(seal);
  ASSERT_EQ(*decode_log_seal(bytes, "DIR/seal"), seal);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 16);
    const auto decoded = decode_log_seal(damaged, "DIR/seal");
    EXPECT_EQ(decoded.status().code(), Code::kCorruption) << at;
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("DIR/seal: offset "));
    EXPECT_FALSE(decode_log_seal(Bytes(bytes).substr(0, at), "DIR/seal").ok()) << at;
  }
}

}  // namespace
}  // namespace swale::tier::store_seal_test
