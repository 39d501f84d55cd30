// The rivals of bench-meta behind the same loop: keys of 16 bytes of file id and the offset (big-endian),
// values of 20 bytes, one write batch and one sync for each batch of 64 k entries.
//   append          the entries as they are, a sync a batch: a bound for puts; answers nothing
//   memory-map      std::map in memory: a bound without storage
//   leveldb-4m, leveldb-64m   write buffer; a filter of 10 bits; its default compression
//   leveldb-iterator          64 MiB; the keys of a message are sorted and found by one iterator
//   leveldb-mdhim   a get before each put, as MDHIM does
//   rocksdb         64 MiB buffer, filter, its default compression
//   sqlite          one table by key, WAL, synchronous=FULL (a sync a transaction)
#include <fcntl.h>
#include <fmt/format.h>
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#ifdef SWALE_BENCH_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#endif
#ifdef SWALE_BENCH_SQLITE
#include <sqlite3.h>
#endif

#include "base/coding.h"
#include "bench/arguments.h"
#include "bench/meta/index_store.h"
#include "bench/pread_env.h"

namespace swale::bench {

void encode_index_key(uint64_t offset, char* out) {
  put_u64(out, kBenchFile.high);
  put_u64(out + 8, kBenchFile.low);
  put_u64(out + 16, __builtin_bswap64(offset));
}
void encode_index_value(const meta::Extent& extent, char* out) {
  put_u32(out, extent.place.log);
  put_u64(out + 4, extent.place.address);
  put_u64(out + 12, extent.length);
}
meta::Place decode_index_value(const char* value) { return {get_u32(value), get_u64(value + 4)}; }

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kWarmCache = size_t{4} << 30;
constexpr size_t kColdCache = 64 * kMiB;

IndexRecord record_of(const meta::Extent& extent) {
  IndexRecord record;
  encode_index_key(extent.offset, record.key);
  encode_index_value(extent, record.value);
  return record;
}

void pause_briefly() {
  const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
  ::nanosleep(&pause, nullptr);
}

class AppendIndex final : public IndexStore {
 public:
  void open(const std::string& path, bool) override {
    file_ = ::open((path + "/log").c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (file_ < 0) die("open " + path);
  }
  void put(std::span<const meta::Extent> message) override {
    for (const meta::Extent& extent : message) {
      const IndexRecord record = record_of(extent);
      bytes_.append(record.key, sizeof(record));
    }
  }
  void end_batch() override {
    if (::write(file_, bytes_.data(), bytes_.size()) != static_cast<ssize_t>(bytes_.size())) die("write");
    ::fdatasync(file_);
    bytes_.clear();
  }
  void drain() override {}
  void get(Messages, std::vector<meta::Place>*) override { die("append answers nothing"); }
  void close() override { ::close(file_); }

 private:
  int file_ = -1;
  std::string bytes_;
};

class MapIndex final : public IndexStore {
 public:
  void open(const std::string&, bool) override {}
  void put(std::span<const meta::Extent> message) override {
    for (const meta::Extent& extent : message) {
      map_.insert_or_assign({kBenchFile, extent.offset}, std::pair(extent.place, extent.length));
    }
  }
  void end_batch() override {}
  void drain() override {}
  void get(Messages messages, std::vector<meta::Place>* out) override {
    for (const auto& message : messages) get_message(message, out);
  }
  void get_message(std::span<const meta::Extent> message, std::vector<meta::Place>* out) {
    for (const meta::Extent& extent : message) {
      const auto at = map_.find({kBenchFile, extent.offset});
      out->push_back(at == map_.end() ? meta::Place{~0u, 0} : at->second.first);
    }
  }
  void close() override {}

 private:
  std::map<std::pair<meta::FileId, uint64_t>, std::pair<meta::Place, uint64_t>> map_;
};

// Tables of level 0 overlap each other; of each further level one may hold a key.
template <class Db>
uint64_t overlap_of_levels(Db& db, const char* family) {
  constexpr int kLevels = 7;  // of both
  uint64_t all = 0;
  for (int level = 0; level < kLevels; ++level) {
    std::string tables;
    if (!db.GetProperty(fmt::format("{}.num-files-at-level{}", family, level), &tables))
      die("no count of tables");
    const uint64_t here = std::stoull(tables);
    all += level == 0 ? here : std::min<uint64_t>(here, 1);
  }
  return all;
}

class LevelIndex final : public IndexStore {
 public:
  enum class Gets { kSingle, kIterator };
  LevelIndex(size_t buffer, bool get_first, Gets gets = Gets::kSingle)
      : buffer_(buffer), get_first_(get_first), gets_(gets) {}

  void open(const std::string& path, bool cold) override {
    leveldb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = buffer_;
    options.filter_policy = filter_.get();
    options.max_open_files = 10'000;
    cache_.reset(leveldb::NewLRUCache(cold ? kColdCache : kWarmCache));
    options.block_cache = cache_.get();
    env_ = make_pread_env();
    options.env = env_.get();
    leveldb::DB* db = nullptr;
    check(leveldb::DB::Open(options, path, &db));
    db_.reset(db);
  }
  void put(std::span<const meta::Extent> message) override {
    for (const meta::Extent& extent : message) {
      const IndexRecord record = record_of(extent);
      if (get_first_) static_cast<void>(db_->Get({}, {record.key, kIndexKeyBytes}, &value_));
      batch_.Put({record.key, kIndexKeyBytes}, {record.value, kIndexValueBytes});
    }
  }
  void end_batch() override {
    leveldb::WriteOptions options;
    options.sync = true;
    check(db_->Write(options, &batch_));
    batch_.Clear();
  }
  void drain() override {
    // It has come to rest when its counts stay the same for a while.
    std::string before, now;
    for (int quiet = 0; quiet < 10;) {
      pause_briefly();
      if (!db_->GetProperty("leveldb.stats", &now)) die("LevelDB has no statistics");
      quiet = now == before ? quiet + 1 : 0;
      before = now;
    }
  }
  uint64_t overlap() override { return overlap_of_levels(*db_, "leveldb"); }
  void get(Messages messages, std::vector<meta::Place>* out) override {
    if (gets_ == Gets::kIterator) return iterate(messages, out);
    for (const auto& message : messages) get_message(message, out);
  }
  // The keys of all messages, sorted.
  void iterate(Messages messages, std::vector<meta::Place>* out) {
    constexpr int kStepsMax = 24;  // a seek costs about as many
    constexpr int kSeeksMax = 32;  // where keys lie far apart, stepping is tried after so many seeks
    int seeks = 0;                 // since a step has led to a key
    wanted_.clear();
    for (const auto& message : messages) {
      for (const meta::Extent& each : message)
        wanted_.emplace_back(each.offset, static_cast<uint32_t>(wanted_.size()));
    }
    if (!std::is_sorted(wanted_.begin(), wanted_.end())) std::sort(wanted_.begin(), wanted_.end());
    const size_t first = out->size();
    out->resize(first + wanted_.size());
    const std::unique_ptr<leveldb::Iterator> at(db_->NewIterator({}));
    for (const auto& [offset, number] : wanted_) {
      char key[kIndexKeyBytes];
      encode_index_key(offset, key);
      const leveldb::Slice wanted(key, sizeof(key));
      const int steps = seeks % kSeeksMax == 0 ? kStepsMax : 0;
      for (int step = 0; step < steps && at->Valid() && at->key().compare(wanted) < 0; ++step) at->Next();
      if (at->Valid() && at->key() == wanted) {
        seeks = 0;
      } else {
        at->Seek(wanted);
        ++seeks;
      }
      if (!at->Valid() || at->key() != wanted) die("WRONG ANSWER: a key is missing");
      (*out)[first + number] = decode_index_value(at->value().data());
    }
  }
  void get_message(std::span<const meta::Extent> message, std::vector<meta::Place>* out) {
    for (const meta::Extent& extent : message) {
      char key[kIndexKeyBytes];
      encode_index_key(extent.offset, key);
      check(db_->Get({}, {key, sizeof(key)}, &value_));
      out->push_back(decode_index_value(value_.data()));
    }
  }
  void close() override {
    db_.reset();
    cache_.reset();
    env_.reset();
  }

 private:
  static void check(const leveldb::Status& status) {
    if (!status.ok()) die(status.ToString());
  }
  const size_t buffer_;
  const bool get_first_;
  const Gets gets_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_{leveldb::NewBloomFilterPolicy(10)};
  std::unique_ptr<leveldb::Env> env_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<leveldb::DB> db_;
  leveldb::WriteBatch batch_;
  std::string value_;
  std::vector<std::pair<uint64_t, uint32_t>> wanted_;  // offset, and its place in the answer
};

#ifdef SWALE_BENCH_ROCKSDB
class RocksIndex final : public IndexStore {
 public:
  void open(const std::string& path, bool cold) override {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = 64 * kMiB;
    rocksdb::BlockBasedTableOptions table;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.block_cache = rocksdb::NewLRUCache(cold ? kColdCache : kWarmCache);
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, path, &db));
    db_.reset(db);
  }
  void put(std::span<const meta::Extent> message) override {
    for (const meta::Extent& extent : message) {
      const IndexRecord record = record_of(extent);
      check(batch_.Put({record.key, kIndexKeyBytes}, {record.value, kIndexValueBytes}));
    }
  }
  void end_batch() override {
    rocksdb::WriteOptions options;
    options.sync = true;
    check(db_->Write(options, &batch_));
    batch_.Clear();
  }
  void drain() override {
    check(db_->Flush({}));
    uint64_t pending = 1, running = 1;
    while (pending != 0 || running != 0) {
      pause_briefly();
      db_->GetIntProperty("rocksdb.compaction-pending", &pending);
      db_->GetIntProperty("rocksdb.num-running-compactions", &running);
    }
  }
  uint64_t overlap() override { return overlap_of_levels(*db_, "rocksdb"); }
  void get(Messages messages, std::vector<meta::Place>* out) override {
    for (const auto& message : messages) get_message(message, out);
  }
  void get_message(std::span<const meta::Extent> message, std::vector<meta::Place>* out) {
    keys_.resize(message.size() * kIndexKeyBytes);
    slices_.clear();
    for (size_t i = 0; i < message.size(); ++i) {
      encode_index_key(message[i].offset, keys_.data() + i * kIndexKeyBytes);
      slices_.emplace_back(keys_.data() + i * kIndexKeyBytes, kIndexKeyBytes);
    }
    values_.resize(message.size());
    statuses_.resize(message.size());
    for (auto& value : values_) value.Reset();
    db_->MultiGet({}, db_->DefaultColumnFamily(), slices_.size(), slices_.data(), values_.data(),
                  statuses_.data());
    for (size_t i = 0; i < message.size(); ++i) {
      check(statuses_[i]);
      out->push_back(decode_index_value(values_[i].data()));
    }
  }
  void close() override {
    values_.clear();
    db_.reset();
  }

 private:
  static void check(const rocksdb::Status& status) {
    if (!status.ok()) die(status.ToString());
  }
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::WriteBatch batch_;
  std::vector<char> keys_;
  std::vector<rocksdb::Slice> slices_;
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> statuses_;
};
#endif

#ifdef SWALE_BENCH_SQLITE
class SqliteIndex final : public IndexStore {
 public:
  void open(const std::string& path, bool cold) override {
    check(sqlite3_open((path + "/index.db").c_str(), &db_));
    run("PRAGMA journal_mode=WAL");
    run("PRAGMA synchronous=FULL");
    run(cold ? "PRAGMA cache_size=-65536" : "PRAGMA cache_size=-2000000");
    run("CREATE TABLE IF NOT EXISTS segments (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID");
    prepare("INSERT OR REPLACE INTO segments VALUES (?1, ?2)", &insert_);
    prepare("SELECT value FROM segments WHERE key = ?1", &select_);
    run("BEGIN");
  }
  void put(std::span<const meta::Extent> message) override {
    for (const meta::Extent& extent : message) {
      const IndexRecord record = record_of(extent);
      sqlite3_bind_blob(insert_, 1, record.key, kIndexKeyBytes, SQLITE_STATIC);
      sqlite3_bind_blob(insert_, 2, record.value, kIndexValueBytes, SQLITE_STATIC);
      if (sqlite3_step(insert_) != SQLITE_DONE) die(sqlite3_errmsg(db_));
      sqlite3_reset(insert_);
    }
  }
  void end_batch() override { run("COMMIT"), run("BEGIN"); }
  void drain() override { run("COMMIT"), run("PRAGMA wal_checkpoint(TRUNCATE)"), run("BEGIN"); }
  void get(Messages messages, std::vector<meta::Place>* out) override {
    for (const auto& message : messages) get_message(message, out);
  }
  void get_message(std::span<const meta::Extent> message, std::vector<meta::Place>* out) {
    for (const meta::Extent& extent : message) {
      char key[kIndexKeyBytes];
      encode_index_key(extent.offset, key);
      sqlite3_bind_blob(select_, 1, key, sizeof(key), SQLITE_STATIC);
      if (sqlite3_step(select_) != SQLITE_ROW) die("WRONG ANSWER: a key is missing");
      out->push_back(decode_index_value(static_cast<const char*>(sqlite3_column_blob(select_, 0))));
      sqlite3_reset(select_);
    }
  }
  void close() override {
    run("COMMIT");
    sqlite3_finalize(insert_);
    sqlite3_finalize(select_);
    check(sqlite3_close(db_));
  }

 private:
  void check(int code) {
    if (code != SQLITE_OK) die(sqlite3_errmsg(db_));
  }
  void run(const char* text) { check(sqlite3_exec(db_, text, nullptr, nullptr, nullptr)); }
  void prepare(const char* text, sqlite3_stmt** out) {
    check(sqlite3_prepare_v2(db_, text, -1, out, nullptr));
  }

  sqlite3* db_ = nullptr;
  sqlite3_stmt* insert_ = nullptr;
  sqlite3_stmt* select_ = nullptr;
};
#endif

}  // namespace

std::unique_ptr<IndexStore> make_rival_index(const std::string& name) {
  if (name == "append") return std::make_unique<AppendIndex>();
  if (name == "memory-map") return std::make_unique<MapIndex>();
  if (name == "leveldb-4m") return std::make_unique<LevelIndex>(4 * kMiB, false);
  if (name == "leveldb-64m") return std::make_unique<LevelIndex>(64 * kMiB, false);
  if (name == "leveldb-iterator")
    return std::make_unique<LevelIndex>(64 * kMiB, false, LevelIndex::Gets::kIterator);
  if (name == "leveldb-mdhim") return std::make_unique<LevelIndex>(4 * kMiB, true);
#ifdef SWALE_BENCH_ROCKSDB
  if (name == "rocksdb") return std::make_unique<RocksIndex>();
#endif
#ifdef SWALE_BENCH_SQLITE
  if (name == "sqlite") return std::make_unique<SqliteIndex>();
#endif
  return nullptr;
}

}  // namespace swale::bench
