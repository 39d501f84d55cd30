// Workload: the records that the simulated application appends, and the model of what must be read back.
//
// A value contains (epoch, writer, number), so a checker knows from the value alone its writer and its place
// in the writer's order. Keys are drawn from a small space, so that several writers hit the same key in one
// epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/numbers.h"
#include "base/rng.h"

namespace swale::sim {

struct WorkloadParams {
  uint64_t keys = 500;
  bool variable_sizes = false;  // else 8-byte keys and 40-byte values
  bool hot_key = false;         // every other record goes to one key
  bool large_values = false;    // every 30th value is too large for a record
};

struct Record {
  std::string key;
  std::string value;
};

// Record `number` of `writer` in `epoch`; the same arguments give the same record.
Record make_record(const WorkloadParams& params, uint64_t seed, EpochNumber epoch, int32_t writer,
                   uint64_t number);

// epoch → key → writer → values in append order.
using Model = std::map<uint32_t, std::map<std::string, std::map<int32_t, std::vector<std::string>>>>;

// The schema of make_record's values, as options imd.schema and imd.extrema. Short values lack some fields.
inline constexpr char kSchema[] = "epoch:u4;writer:u4;number:u8;x:u8;y:f8;z:f4;_:*";
inline constexpr char kIndexed[] = "number;x;y;z";

// The writer's number as stored in a value; -1 if the value is too short to have one.
int32_t writer_of(Bytes value);

}  // namespace swale::sim
