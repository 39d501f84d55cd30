// SourceHome: a rank as the home of keys in a directory of the lossy format (deltafs-streaming-2020, section
// 4.2, LossyKV): takes batches that say which rank has records of which key, and makes an auxiliary table of
// each epoch's.
//
//   add(batch) ─► PairStore of the open epoch ─ close_epoch ─► of the closing one ─ build ─► table in
//   part-….source, synced
//
// By three hops keys come in small messages of many ranks (add_message): they are gathered and given to the
// store in mixed batches. What came is summed up, so that the ranks can compare it with what was sent: these
// messages have no checksum.
//
// Two epochs at most are alive, as in Partition. Over its share of the memory a store goes on in a temporary
// file part-….spill0 or .spill1, which is removed when the table is made; what a job that was killed leaves
// of them means nothing.
// Threads: add and close_epoch by one thread at a time, build by any, also during add. Invariants: (1) build
// runs once after each close_epoch, and has returned before the next; (2) table() is durable once built() is
// OK.
// Errors: kCorruption (scope peer) of a batch; those of the device. After one the home is of no use.
// Memory: `memory_bytes` for both stores, builder included.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/log_names.h"
#include "io/device.h"
#include "run/value_format.h"
#include "source/pair_store.h"

namespace swale::imd {

inline constexpr size_t kGatheredPairsMax = 8'192;
inline constexpr size_t kGatherBytes = 2 * kGatheredPairsMax * sizeof(source::Pair) + 64 * kKiB;
inline constexpr size_t kSourceHomeBytesMin = 2 * source::PairStore::kMemoryMin + kGatherBytes;

class SourceHome {
 public:
  struct Params {
    io::Device* device = nullptr;  // outlives the home
    std::string directory;
    LogId log;
    uint32_t ranks = 1;
    size_t memory_bytes = 0;  // at least kSourceHomeBytesMin
    EpochNumber first_epoch = {};
  };
  static Result<std::unique_ptr<SourceHome>> create(const Params& params);
  ~SourceHome();
  SourceHome(const SourceHome&) = delete;
  SourceHome& operator=(const SourceHome&) = delete;

  // One whole batch of the open epoch, sent by `rank`. Returns how many pairs it has.
  Result<uint32_t> add(uint32_t rank, Bytes batch);
  // One message (source/key_message.h) of the open epoch, sent by `rank`.
  Status add_message(uint32_t rank, Bytes message);
  EpochNumber open_epoch() const { return open_->epoch; }
  // Sum of key_digest over the pairs of messages that came since the last call.
  uint64_t take_digest() { return std::exchange(digest_, 0); }
  // No more batches of the open epoch; the next one is open from now on.
  Status close_epoch(uint64_t epoch_id, EpochNumber next_epoch);
  // Makes the closing epoch's table.
  void build();
  // Whether the last build went well.
  const Status& built() const { return built_; }
  // Where it lies.
  const run::ValueRange& table() const { return table_; }

 private:
  struct Store {
    std::optional<source::PairStore> pairs;
    std::unique_ptr<io::File> spill;
    std::string spill_path;
    EpochNumber epoch = {};
  };

  explicit SourceHome(Params params) : params_(std::move(params)) {}
  Status open_store(Store* store, EpochNumber epoch);
  Status spill(Store* store);
  Status add_gathered();
  void drop(Store* store);
  Status make_file();
  Status write_table();

  const Params params_;
  Store stores_[2];  // by parity of the epoch's number
  Store* open_ = nullptr;
  Store* closing_ = nullptr;
  uint64_t closing_id_ = 0;
  std::vector<source::Pair> gathered_;  // of messages, not in the open store yet
  std::vector<source::Pair> scratch_;
  std::string message_;  // followed by slack
  uint64_t digest_ = 0;
  std::unique_ptr<io::File> file_;  // made by the first table
  uint64_t end_ = 0;
  Status built_;
  run::ValueRange table_;
};

}  // namespace swale::imd
