#include "run/format.h"

#include "base/coding.h"
#include "base/crc32c.h"

namespace swale::run {

uint32_t partition_seed(PartitionNumber partition) {
  char bytes[4];
  put_u32(bytes, partition);
  return crc32c({bytes, sizeof(bytes)});
}

uint32_t epoch_seed(PartitionNumber partition, uint64_t epoch_id) {
  char bytes[8];
  put_u64(bytes, epoch_id);
  return crc32c_extend(partition_seed(partition), {bytes, sizeof(bytes)});
}

uint32_t segment_seed(PartitionNumber partition, const SegmentRecord& segment) {
  char bytes[12];
  put_u32(bytes, segment.way);
  put_u64(bytes + 4, segment.records);
  return crc32c_extend(epoch_seed(partition, segment.epoch_id), {bytes, sizeof(bytes)});
}

}  // namespace swale::run
