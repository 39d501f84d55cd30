// RocksDB as a Store: "rocksdb" by the bulk load that its makers advise (vector memtable, no log, no
// compaction until asked for), "sst" by SstFileWriter, for which the caller sorts each epoch in memory; both
// with RocksDB's default compression, and without it as "rocksdb-uncompressed" and "sst-uncompressed";
// "sst-lz4" and "sst-zstd" with those.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/arguments.h"
#include "bench/store.h"

namespace swale::bench {
namespace {

constexpr size_t kBlockBytes = 4096;  // the default of a table's blocks

void check(const rocksdb::Status& status) {
  if (!status.ok()) die(status.ToString());
}

rocksdb::Slice slice_of(const StoreKey& key) { return {key.data(), key.size()}; }
rocksdb::Slice slice_of(const Value& value) {
  return {reinterpret_cast<const char*>(value.data()), kValueBytes};
}

rocksdb::Options common_options(Compression compression, std::shared_ptr<rocksdb::Cache> cache) {
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.block_cache = cache;
  table.no_block_cache = cache == nullptr;
  rocksdb::Options options;
  options.create_if_missing = true;
  if (compression == Compression::kNone) options.compression = rocksdb::kNoCompression;
  if (compression == Compression::kLz4) options.compression = rocksdb::kLZ4Compression;
  if (compression == Compression::kZstd) options.compression = rocksdb::kZSTD;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// Reading, which both ways of writing share.
class RocksStore : public Store {
 public:
  explicit RocksStore(Compression compression) : compression_(compression) {}

  std::string compression() const override {
    switch (common_options(compression_, nullptr).compression) {
      case rocksdb::kNoCompression:
        return "none";
      case rocksdb::kSnappyCompression:
        return "snappy";
      case rocksdb::kLZ4Compression:
        return "lz4";
      case rocksdb::kZSTD:
        return "zstd";
      default:
        return "another";
    }
  }

  void open_for_reading(const std::string& path, Reading reading) override {
    const bool cold = reading == Reading::kCold;
    rocksdb::Options options =
        common_options(compression_, cold ? nullptr : rocksdb::NewLRUCache(size_t{4} << 30));
    options.use_direct_reads = cold;
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::OpenForReadOnly(options, path, &db));
    db_.reset(db);
  }

  bool get(uint64_t key, uint32_t epoch, Value* value) override {
    rocksdb::PinnableSlice bytes;
    const rocksdb::Status status =
        db_->Get({}, db_->DefaultColumnFamily(), slice_of(store_key(key, epoch)), &bytes);
    if (status.IsNotFound()) return false;
    check(status);
    take(bytes, value);
    return true;
  }

  uint32_t get_range(uint64_t key, uint32_t epochs, Value* values) override {
    const StoreKey first = store_key(key, 0);
    const StoreKey end = store_key(key + 1, 0);
    const rocksdb::Slice bound = slice_of(end);
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &bound;
    // A long range in one read, not in steps that begin with a block.
    const size_t range_bytes = epochs * size_t{kRecordBytes + kStoreKeyBytes};
    if (range_bytes > kBlockBytes) options.readahead_size = range_bytes + kBlockBytes;
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
    uint32_t found = 0;
    for (at->Seek(slice_of(first)); at->Valid() && found < epochs; at->Next())
      take(at->value(), &values[found++]);
    check(at->status());
    return found;
  }

  void close() override { db_.reset(); }

 protected:
  void open_for_bulk(const std::string& path) {
    rocksdb::Options options = common_options(compression_, nullptr);
    options.PrepareForBulkLoad();
    options.memtable_factory = std::make_shared<rocksdb::VectorRepFactory>();
    options.allow_concurrent_memtable_write = false;
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, path, &db));
    db_.reset(db);
  }

  const Compression compression_;
  std::unique_ptr<rocksdb::DB> db_;

 private:
  static void take(const rocksdb::Slice& bytes, Value* value) {
    if (bytes.size() != kValueBytes) die("WRONG ANSWER: a value of another size");
    std::memcpy(value->data(), bytes.data(), kValueBytes);
  }
};

class BulkStore final : public RocksStore {
 public:
  using RocksStore::RocksStore;

  void open_for_writing(const std::string& path, uint64_t) override { open_for_bulk(path); }

  void put(uint64_t key, uint32_t epoch, const Value& value) override {
    check(batch_.Put(slice_of(store_key(key, epoch)), slice_of(value)));
    if (++batched_ == kBatch) write();
  }

  void end_epoch() override {
    write();
    check(db_->Flush({}));
  }

  void finish_writing() override { close(); }
  bool can_compact() const override { return true; }

  void compact() override {
    rocksdb::CompactRangeOptions options;
    options.max_subcompactions = 2;
    check(db_->CompactRange(options, nullptr, nullptr));
  }

 private:
  static constexpr int kBatch = 1000;

  void write() {
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    check(db_->Write(options, &batch_));
    batch_.Clear();
    batched_ = 0;
  }

  rocksdb::WriteBatch batch_;
  int batched_ = 0;
};

class SstStore final : public RocksStore {
 public:
  using RocksStore::RocksStore;

  void open_for_writing(const std::string& path, uint64_t records) override {
    path_ = path;
    open_for_bulk(path);
    pending_.reserve(records);
  }

  void put(uint64_t key, uint32_t epoch, const Value& value) override {
    epoch_ = epoch;
    pending_.push_back({key, value});
  }

  void end_epoch() override {
    std::sort(pending_.begin(), pending_.end(),
              [](const Record& a, const Record& b) { return a.key < b.key; });
    rocksdb::Options options = common_options(compression_, nullptr);
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
    const std::string file = path_ + "/epoch-" + std::to_string(epoch_) + ".loaded";
    check(writer.Open(file));
    for (const Record& record : pending_) {
      check(writer.Put(slice_of(store_key(record.key, epoch_)), slice_of(record.value)));
    }
    check(writer.Finish());
    pending_.clear();
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = true;
    check(db_->IngestExternalFile({file}, ingest));
  }

  void finish_writing() override { close(); }

 private:
  std::string path_;
  uint32_t epoch_ = 0;
  std::vector<Record> pending_;
};

}  // namespace

std::unique_ptr<Store> make_store(const std::string& name) {
  if (name == "rocksdb") return std::make_unique<BulkStore>(Compression::kDefault);
  if (name == "rocksdb-uncompressed") return std::make_unique<BulkStore>(Compression::kNone);
  if (name == "sst") return std::make_unique<SstStore>(Compression::kDefault);
  if (name == "sst-uncompressed") return std::make_unique<SstStore>(Compression::kNone);
  if (name == "sst-lz4") return std::make_unique<SstStore>(Compression::kLz4);
  if (name == "sst-zstd") return std::make_unique<SstStore>(Compression::kZstd);
  return nullptr;
}

}  // namespace swale::bench
