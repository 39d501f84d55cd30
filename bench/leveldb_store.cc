// LevelDB as a Store, with its default write buffer of 4 MiB or one of 64 MiB and its default compression;
// and with the default buffer and without compression as "leveldb-4m-uncompressed".
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>
#include <time.h>

#include <cstring>

#include "bench/arguments.h"
#include "bench/pread_env.h"
#include "bench/store.h"

namespace swale::bench {
namespace {

void check(const leveldb::Status& status) {
  if (!status.ok()) die(status.ToString());
}

class LevelStore final : public Store {
 public:
  LevelStore(size_t buffer_bytes, Compression compression)
      : buffer_bytes_(buffer_bytes),
        compression_(compression == Compression::kNone ? leveldb::kNoCompression
                                                       : leveldb::Options().compression) {}

  std::string compression() const override {
    return compression_ == leveldb::kNoCompression ? "none" : "snappy";
  }

  void open_for_writing(const std::string& path, uint64_t) override { open(path, nullptr); }

  void put(uint64_t key, uint32_t epoch, const Value& value) override {
    const StoreKey bytes = store_key(key, epoch);
    batch_.Put({bytes.data(), bytes.size()}, {reinterpret_cast<const char*>(value.data()), kValueBytes});
    if (++batched_ == kBatch) write(false);
  }

  void end_epoch() override { write(true); }

  void finish_writing() override {
    // Compaction tells nobody when it has come to rest: it has when its counts stay the same for a while.
    std::string before, now;
    for (int quiet = 0; quiet < kQuietPolls;) {
      const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
      ::nanosleep(&pause, nullptr);
      if (!db_->GetProperty("leveldb.stats", &now)) die("LevelDB has no statistics");
      quiet = now == before ? quiet + 1 : 0;
      before = now;
    }
    close();
  }

  void open_for_reading(const std::string& path, Reading reading) override {
    env_ = make_pread_env();
    cache_.reset(leveldb::NewLRUCache(reading == Reading::kCold ? 0 : size_t{4} << 30));
    open(path, env_.get());
  }

  bool get(uint64_t key, uint32_t epoch, Value* value) override {
    static thread_local std::string bytes;
    const StoreKey name = store_key(key, epoch);
    const leveldb::Status status = db_->Get(verified(), {name.data(), name.size()}, &bytes);
    if (status.IsNotFound()) return false;
    check(status);
    take(bytes, value);
    return true;
  }

  uint32_t get_range(uint64_t key, uint32_t epochs, Value* values) override {
    const StoreKey first = store_key(key, 0);
    const std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(verified()));
    uint32_t found = 0;
    for (at->Seek({first.data(), first.size()}); at->Valid() && found < epochs; at->Next()) {
      if (std::memcmp(at->key().data(), first.data(), kKeyBytes) != 0) break;
      take(at->value(), &values[found++]);
    }
    check(at->status());
    return found;
  }

  void close() override {
    db_.reset();
    cache_.reset();
    env_.reset();
  }

 private:
  static constexpr int kBatch = 1000;
  static constexpr int kQuietPolls = 10;

  static leveldb::ReadOptions verified() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  static void take(const leveldb::Slice& bytes, Value* value) {
    if (bytes.size() != kValueBytes) die("WRONG ANSWER: a value of another size");
    std::memcpy(value->data(), bytes.data(), kValueBytes);
  }

  void open(const std::string& path, leveldb::Env* env) {
    leveldb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = buffer_bytes_;
    options.compression = compression_;
    options.filter_policy = filter_.get();
    options.max_open_files = 10'000;
    options.block_cache = cache_.get();
    if (env != nullptr) options.env = env;
    leveldb::DB* db = nullptr;
    check(leveldb::DB::Open(options, path, &db));
    db_.reset(db);
  }

  void write(bool sync) {
    leveldb::WriteOptions options;
    options.sync = sync;
    check(db_->Write(options, &batch_));
    batch_.Clear();
    batched_ = 0;
  }

  const size_t buffer_bytes_;
  const leveldb::CompressionType compression_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_{leveldb::NewBloomFilterPolicy(10)};
  std::unique_ptr<leveldb::Env> env_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<leveldb::DB> db_;
  leveldb::WriteBatch batch_;
  int batched_ = 0;
};

}  // namespace

std::unique_ptr<Store> make_store(const std::string& name) {
  constexpr size_t kMiB = size_t{1} << 20;
  if (name == "leveldb-4m") return std::make_unique<LevelStore>(4 * kMiB, Compression::kDefault);
  if (name == "leveldb-4m-uncompressed") return std::make_unique<LevelStore>(4 * kMiB, Compression::kNone);
  if (name == "leveldb-64m") return std::make_unique<LevelStore>(64 * kMiB, Compression::kDefault);
  return nullptr;
}

}  // namespace swale::bench
