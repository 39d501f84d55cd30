// From a PairStore to the auxiliary table of an epoch: a table of its own, or a delta to an earlier one.
//
// A delta has only the pairs that the base table's answers do not contain. The base's answers never change,
// so that a pair which is left out is found for ever. Where keys stay with their ranks, as particles mostly
// do, a delta takes a hundredth of a table.
//
// Threads: one thread. Errors: as PairStore and TableWriter; std::bad_alloc may be thrown. Whatever the sink
// has taken of a failed table is to be dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "source/pair_store.h"
#include "source/table_reader.h"
#include "source/table_writer.h"

namespace swale::source {

inline constexpr uint32_t kShardKeysMax = 16'384;  // on average; at least half as many in a table of several
inline constexpr uint32_t kDeltaFingerprintBits = 8;  // most keys are not in a delta: false candidates count

// The least number of bits with which shards have at most `shard_keys` of the pairs on average.
uint32_t shard_bits_for(uint64_t pairs, uint32_t shard_keys);

// params.base_id must be 0.
Result<TableSummary> build_table(PairStore* store, const TableParams& params, const ByteSink& sink,
                                 uint32_t shard_keys = kShardKeysMax);

// params.base_id must be the base's table_id; the base is a ribbon or maplet table, no delta itself, with the
// same sources. None, and nothing written: the delta would take more than half of a table of its own, as a
// sample of the keys shows; build a table.
Result<std::optional<TableSummary>> build_delta(PairStore* store, const TableParams& params,
                                                const TableReader& base, const ByteSink& sink);

// The candidates of an epoch whose table may be a delta. `base` is null if it is not.
Status epoch_candidates(const TableReader& table, const TableReader* base, uint64_t kept,
                        std::vector<uint32_t>* out, TableReader::Cost* cost = nullptr);

}  // namespace swale::source
