#include "bench/level_tables.h"

#include <fmt/format.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>
#include <time.h>

#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <future>
#include <vector>

#include "bench/arguments.h"

namespace swale::bench {
namespace {

using Key = std::array<char, 12>;

Key key_of(uint32_t epoch, uint64_t key) {
  Key bytes;
  const uint32_t big_epoch = __builtin_bswap32(epoch);
  const uint64_t big = __builtin_bswap64(key);
  std::memcpy(bytes.data(), &big_epoch, 4);
  std::memcpy(bytes.data() + 4, &big, 8);
  return bytes;
}

void check(const leveldb::Status& status) {
  if (!status.ok()) die(status.ToString());
}

class Database {
 public:
  Database(const LevelOptions& options, const std::string& path, size_t buffer_bytes)
      : filter_(options.filter_bits == 0 ? nullptr : leveldb::NewBloomFilterPolicy(options.filter_bits)) {
    leveldb::Options level;
    level.create_if_missing = true;
    level.write_buffer_size = buffer_bytes;
    level.compression = leveldb::kNoCompression;  // the values do not compress
    level.filter_policy = filter_.get();
    level.max_open_files = 10'000;
    level.env = options.env;
    leveldb::DB* db = nullptr;
    check(leveldb::DB::Open(level, path, &db));
    db_.reset(db);
  }

  leveldb::DB& operator*() const { return *db_; }
  leveldb::DB* operator->() const { return db_.get(); }

  uint64_t memory_bytes() const {
    std::string text;
    if (!db_->GetProperty("leveldb.approximate-memory-usage", &text)) die("LevelDB does not say its memory");
    uint64_t bytes = 0;
    std::from_chars(text.data(), text.data() + text.size(), bytes);
    return bytes;
  }

  // LevelDB flushes its memtable first when it is asked to compact a range, here one without keys.
  void flush() const {
    const Key last = key_of(~uint32_t{0}, ~uint64_t{0});
    const leveldb::Slice nowhere(last.data(), last.size());
    db_->CompactRange(&nowhere, &nowhere);
  }

  // Compaction tells nobody when it has come to rest: it has when its counts stay the same for a while.
  void wait_for_rest() const {
    constexpr int kQuietPolls = 6;
    std::string before, now;
    for (int quiet = 0; quiet < kQuietPolls;) {
      const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
      ::nanosleep(&pause, nullptr);
      if (!db_->GetProperty("leveldb.stats", &now)) die("LevelDB has no statistics");
      quiet = now == before ? quiet + 1 : 0;
      before = now;
    }
  }

  bool get(const Key& key, Value* value) const {
    leveldb::ReadOptions verified;
    verified.verify_checksums = true;
    std::string bytes;
    const leveldb::Status status = db_->Get(verified, {key.data(), key.size()}, &bytes);
    if (status.IsNotFound()) return false;
    check(status);
    if (bytes.size() != kValueBytes) die("WRONG ANSWER: a value of another size");
    std::memcpy(value->data(), bytes.data(), kValueBytes);
    return true;
  }

 private:
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::DB> db_;
};

class CompactingWriter final : public LevelWriter {
 public:
  explicit CompactingWriter(const LevelOptions& options)
      : db_(std::make_unique<Database>(options, options.path + "/db", options.buffer_bytes)) {}

  void put(uint32_t epoch, uint64_t key, const char* value) override {
    const Key bytes = key_of(epoch, key);
    batch_.Put({bytes.data(), bytes.size()}, {value, kValueBytes});
  }
  void write() override {
    check((*db_)->Write({}, &batch_));
    batch_.Clear();
  }
  void end_epoch() override { db_->flush(); }
  void finish() override {
    db_->wait_for_rest();
    db_.reset();
  }

 private:
  std::unique_ptr<Database> db_;
  leveldb::WriteBatch batch_;
};

class FlatWriter final : public LevelWriter {
 public:
  explicit FlatWriter(const LevelOptions& options) : options_(options) {}

  void put(uint32_t epoch, uint64_t key, const char* value) override {
    if (!filling_) open(epoch);
    const Key bytes = key_of(epoch, key);
    batch_.Put({bytes.data(), bytes.size()}, {value, kValueBytes});
  }
  void write() override {
    if (!filling_) return;
    check((*filling_)->Write({}, &batch_));
    batch_.Clear();
    if (filling_->memory_bytes() >= options_.buffer_bytes) flush_in_background();
  }
  void end_epoch() override {
    if (filling_) flush_in_background();
    wait_for_flush();
    table_ = 0;
  }
  void finish() override {}

 private:
  static constexpr size_t kNeverFull = size_t{1} << 30;  // this class decides when a memtable is full

  void open(uint32_t epoch) {
    const std::string folder = fmt::format("{}/epoch-{}", options_.path, epoch);
    std::filesystem::create_directories(folder);
    filling_ = std::make_unique<Database>(options_, fmt::format("{}/{:06}", folder, table_++), kNeverFull);
  }

  void flush_in_background() {
    wait_for_flush();
    flushing_ = std::async(std::launch::async, [db = std::move(filling_)]() mutable {
      db->flush();
      db.reset();
    });
  }

  void wait_for_flush() {
    if (flushing_.valid()) flushing_.get();
  }

  const LevelOptions options_;
  std::unique_ptr<Database> filling_;
  std::future<void> flushing_;
  leveldb::WriteBatch batch_;
  int table_ = 0;
};

class CompactingReader final : public LevelReader {
 public:
  explicit CompactingReader(const LevelOptions& options)
      : db_(options, options.path + "/db", options.buffer_bytes) {}
  bool get(uint32_t epoch, uint64_t key, Value* value) override { return db_.get(key_of(epoch, key), value); }

 private:
  Database db_;
};

class FlatReader final : public LevelReader {
 public:
  FlatReader(const LevelOptions& options, uint32_t epochs) : epochs_(epochs) {
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      const std::string folder = fmt::format("{}/epoch-{}", options.path, epoch);
      for (int table = 0;; ++table) {
        const std::string path = fmt::format("{}/{:06}", folder, table);
        if (!std::filesystem::exists(path)) break;
        epochs_[epoch].push_back(std::make_unique<Database>(options, path, options.buffer_bytes));
      }
    }
  }
  bool get(uint32_t epoch, uint64_t key, Value* value) override {
    const std::vector<std::unique_ptr<Database>>& tables = epochs_.at(epoch);
    for (auto table = tables.rbegin(); table != tables.rend();
         ++table) {  // the newest first, as LevelDB does
      if ((*table)->get(key_of(epoch, key), value)) return true;
    }
    return false;
  }

 private:
  std::vector<std::vector<std::unique_ptr<Database>>> epochs_;
};

}  // namespace

std::unique_ptr<LevelWriter> LevelWriter::make(const LevelOptions& options) {
  std::filesystem::create_directories(options.path);
  if (options.compaction == Compaction::kOn) return std::make_unique<CompactingWriter>(options);
  return std::make_unique<FlatWriter>(options);
}

std::unique_ptr<LevelReader> LevelReader::open(const LevelOptions& options, uint32_t epochs) {
  if (options.compaction == Compaction::kOn) return std::make_unique<CompactingReader>(options);
  return std::make_unique<FlatReader>(options, epochs);
}

}  // namespace swale::bench
