#include "run/run_output.h"

#include <cassert>
#include <cstring>

#include "base/crc32c.h"

namespace swale::run {

RunOutput::RunOutput(const RunShape& shape, RunKind kind, uint32_t blocks, const RunPlacement& placement,
                     Codec codec)
    : header_{} {
  assert(shape.records != 0);
  const bool uniform = kind == RunKind::kUniform;
  header_.magic = kRunMagic;
  header_.kind = kind;
  header_.key_bytes = uniform ? static_cast<uint8_t>(shape.key_bytes) : uint8_t{0};
  header_.value_bytes = uniform ? shape.value_bytes : 0;
  header_.records = static_cast<uint32_t>(shape.records);
  header_.data_bytes = shape.data_bytes;
  header_.codec = static_cast<uint32_t>(codec);
  sketch_.records = header_.records;
  sketch_.kind = kind;
  sketch_.key_bytes = header_.key_bytes;
  sketch_.value_bytes = header_.value_bytes;
  place(blocks, placement);
}

void RunOutput::place(uint32_t blocks, const RunPlacement& placement) {
  assert(blocks <= kRunBlocksMax);
  assert(placement.partition < placement.ranks && placement.way < placement.ways);
  first_block_ = placement.first_block;
  seed_ = epoch_seed(placement.partition, placement.epoch_id);
  header_.way = placement.way;
  header_.epoch = placement.epoch;
  header_.epoch_id = placement.epoch_id;
  header_.run = placement.run;
  header_.blocks = blocks;
  header_.partition = placement.partition;
  header_.ranks = placement.ranks;
  header_.ways = placement.ways;
  header_.home = placement.home;
  header_.values = placement.values;
  char bytes[sizeof(header_)];
  std::memcpy(bytes, &header_, sizeof(header_));
  header_.crc32c = crc32c_extend(partition_seed(placement.partition), {bytes, offsetof(RunHeader, crc32c)});
  sketch_.first_block = placement.first_block;
  sketch_.blocks = blocks;
}

}  // namespace swale::run
