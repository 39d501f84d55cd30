// What an auxiliary table of a directory of the lossy format is made with. The same for the same keys and
// ranks, whoever makes it, a writer or repair: so the same records give the same table, byte for byte.
//
// DO NOT CHANGE: it is on disk. docs/formats/lossy.md is the specification.
// Threads: a free function.
#pragma once

#include <cstdint>

#include "source/table_format.h"

namespace swale::imd {

// Parameters of the home's table of an epoch. The id differs from that of other partitions and of epochs that
// were never committed.
inline source::TableParams table_params(uint32_t ranks, PartitionNumber partition, EpochNumber epoch,
                                        uint64_t epoch_id) {
  source::TableParams params;
  params.sources = ranks;
  params.fingerprint_bits = 4;
  params.epoch = epoch;
  params.table_id = epoch_id + uint64_t{partition} * 0x9e3779b97f4a7c15;
  return params;
}

}  // namespace swale::imd
