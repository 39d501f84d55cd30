// What the tests of auxiliary tables share: pairs of several kinds, a model of them, and tables in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/memory_device.h"
#include "source/pair_store.h"
#include "source/table_builder.h"

namespace swale::source::test {

// How sources are given to keys.
enum class Ranks {
  kUniform,
  kSkewed,      // half of the keys have one source, a quarter another one, and so on
  kCorrelated,  // the source follows from the key, as of particles that stay in their cells
};

struct Workload {
  uint64_t keys = 1000;
  uint32_t sources = 64;
  Ranks ranks = Ranks::kUniform;
  uint32_t duplicates_percent = 0;  // of the keys have further sources
  uint32_t hashes = 0;              // not 0: so many different kept hashes, the others collide
  uint64_t seed = 1;
};

inline uint32_t draw_source(Rng& rng, const Workload& work, uint64_t key) {
  switch (work.ranks) {
    case Ranks::kUniform:
      break;
    case Ranks::kSkewed:
      return std::min<uint32_t>(static_cast<uint32_t>(std::countr_one(rng.next())), work.sources - 1);
    case Ranks::kCorrelated:
      return static_cast<uint32_t>(key * work.sources / work.keys);
  }
  return static_cast<uint32_t>(rng.below(work.sources));
}

inline std::vector<Pair> make_pairs(const Workload& work) {
  Rng rng(work.seed);
  std::vector<Pair> pairs;
  for (uint64_t key = 0; key < work.keys; ++key) {
    const uint64_t name = work.hashes == 0 ? key : key % work.hashes;
    char bytes[8];
    put_u64(bytes, name * 0x9e3779b97f4a7c15 + work.seed);
    const uint64_t kept = kept_hash(hash_eight_bytes(bytes));
    pairs.push_back(make_pair(kept, draw_source(rng, work, key)));
    while (rng.below(100) < work.duplicates_percent) {
      pairs.push_back(make_pair(kept, static_cast<uint32_t>(rng.below(work.sources))));
    }
  }
  return pairs;
}

inline std::vector<Pair> sorted(std::vector<Pair> pairs) {
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

// Batches of at most `keys` keys of one source each, in random order, as a home gets them.
inline std::vector<std::string> make_batches(std::vector<Pair> pairs, EpochNumber epoch, uint32_t keys,
                                             uint64_t seed) {
  std::sort(pairs.begin(), pairs.end(), [](Pair a, Pair b) { return pair_source(a) < pair_source(b); });
  std::vector<std::string> batches;
  std::vector<Pair> scratch(keys);
  size_t at = 0;
  while (at < pairs.size()) {
    const uint32_t source = pair_source(pairs[at]);
    std::vector<Pair> own;
    for (; at < pairs.size() && pair_source(pairs[at]) == source && own.size() < keys; ++at) {
      own.push_back(make_pair(pair_hash(pairs[at]), 0));
    }
    encode_batch(epoch, source, own, scratch, &batches.emplace_back());
  }
  Rng rng(seed);
  std::shuffle(batches.begin(), batches.end(), rng);
  return batches;
}

// Files in memory that outlive their readers.
struct Files {
  io::MemoryDevice device;
  std::vector<std::unique_ptr<io::File>> files;

  io::File* create() {
    auto file = device.open("/file" + std::to_string(files.size()), io::OpenMode::kCreate);
    EXPECT_TRUE(file.ok());
    files.push_back(std::move(*file));
    return files.back().get();
  }
  io::File* with(Bytes bytes) {
    io::File* const file = create();
    EXPECT_TRUE(file->pwrite(0, bytes).ok());
    return file;
  }
};

inline void fill(PairStore* store, const std::vector<std::string>& batches) {
  for (const std::string& batch : batches) {
    const Status status = store->add(batch);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
}

inline PairStore make_store(uint32_t sources, const std::vector<std::string>& batches,
                            uint64_t memory_limit = 512 * kMiB, io::File* spill = nullptr,
                            EpochNumber epoch = {}) {
  auto store = PairStore::create({epoch, sources, memory_limit, spill});
  EXPECT_TRUE(store.ok());
  fill(&*store, batches);
  return std::move(*store);
}

struct Built {
  std::string bytes;
  TableSummary summary;
};

inline Built build(PairStore* store, const TableParams& params, uint32_t shard_keys = kShardKeysMax) {
  Built built;
  auto summary = build_table(
      store, params,
      [&](Bytes bytes) {
        built.bytes += bytes;
        return ok_status();
      },
      shard_keys);
  EXPECT_TRUE(summary.ok()) << summary.status().to_string();
  if (summary.ok()) built.summary = *summary;
  EXPECT_EQ(built.summary.bytes, built.bytes.size());
  return built;
}

inline Built build(const std::vector<Pair>& pairs, const TableParams& params,
                   uint32_t shard_keys = kShardKeysMax) {
  PairStore store = make_store(params.sources, make_batches(pairs, params.epoch, 4096, 1), 512 * kMiB,
                               nullptr, params.epoch);
  return build(&store, params, shard_keys);
}

// What every query of a table answers about its own pairs, all shards in memory.
struct Answers {
  uint64_t missed = 0;      // pairs that are not named
  uint64_t candidates = 0;  // of all different keys together
  uint64_t keys = 0;
};

class OpenTable {
 public:
  OpenTable(Files* files, Bytes bytes) {
    auto reader = TableReader::open(*files->with(bytes), 0, bytes.size());
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    reader_.emplace(std::move(*reader));
    shards_.resize(reader_->trailer().shard_count);
    for (uint32_t i = 0; i < shards_.size(); ++i) {
      EXPECT_TRUE(reader_->read_shard(i, &shards_[i]).ok());
      auto shard = reader_->open_shard(shards_[i], i);
      EXPECT_TRUE(shard.ok()) << shard.status().to_string();
      views_.push_back(std::move(*shard));
    }
  }

  const TableReader& reader() const { return *reader_; }

  void candidates(uint64_t kept, std::vector<uint32_t>* out) const {
    out->clear();
    if (reader_->trailer().params.scheme == Scheme::kCuckoo) {
      for (const Shard& shard : views_) shard.candidates(kept, out);
    } else {
      views_[reader_->index().place_of(kept).number].candidates(kept, out);
    }
    sort_candidates(out, 0);
  }

  Answers ask_all(const std::vector<Pair>& sorted_pairs) const {
    Answers answers;
    std::vector<uint32_t> found;
    uint64_t last = kHashEnd;
    for (const Pair pair : sorted_pairs) {
      if (pair_hash(pair) != last) {
        last = pair_hash(pair);
        candidates(last, &found);
        ++answers.keys;
        answers.candidates += found.size();
      }
      answers.missed += std::binary_search(found.begin(), found.end(), pair_source(pair)) ? 0 : 1;
    }
    return answers;
  }

  double candidates_of_absent_keys(uint64_t queries) const {
    Rng rng(999);
    std::vector<uint32_t> found;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < queries; ++i) {
      candidates(kept_hash(rng.next()), &found);
      sum += found.size();
    }
    return static_cast<double>(sum) / static_cast<double>(queries);
  }

 private:
  std::optional<TableReader> reader_;
  std::vector<std::string> shards_;
  std::vector<Shard> views_;
};

}  // namespace swale::source::test
