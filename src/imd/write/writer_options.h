// WriterOptions: how a massive directory is opened for writing. The options of users are rows of
// writer_settings.cc.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/codec.h"
#include "imd/format/log_names.h"
#include "imd/format/partitioner.h"
#include "io/lock_file.h"
#include "run/layout.h"
#include "run/schema.h"

namespace swale::imd {

enum class Create { kNever, kIfMissing, kExclusive };

// Switches of `make bench-imd-ablation`, for comparison only. They are no options of the library.
struct Ablation {
  // kWait: the job's progress thread waits for space in the memtables, as in DeltaFS before its delivery
  // queue (deltafs-scaling-2018, section IV-D). Records that a peer sends ahead of its epoch are queued in
  // both cases.
  enum class Delivery { kQueue, kWait };
  Delivery delivery = Delivery::kQueue;
  // 0: the memory plan's number. 1 with one way: sorting and writing take turns, as in DeltaFS before
  // multi-way indexing.
  uint32_t output_buffers_max = 0;
};

struct WriterOptions {
  size_t memory_bytes = 0;  // 0: 3 % of RAM / ranks on the fullest node, at most 64 MiB
  uint32_t ways = 1;
  size_t frame_bytes = 32 * kKiB;
  uint16_t window = 4;
  // kIncreasing: the end of an epoch whose step is not greater than the last epoch's is kInvalidArgument, and
  // the epoch stays open. All ranks give the same.
  enum class Steps : uint8_t { kAny, kIncreasing };
  Steps steps = Steps::kAny;
  // The writer drops all epochs after the last one of at most this step. All ranks give the same.
  std::optional<int64_t> resume_after = {};
  // For a new directory; an existing one must have the same. None: records move, no compression, sketches, 10
  // bits.
  std::optional<run::ShuffleFormat> format = {};
  std::optional<Codec> compression = {};
  std::optional<run::IndexKind> index = {};
  std::optional<uint32_t> bloom_bits = {};
  LogPlace log_place = LogPlace::kInFolders;  // of a new directory
  Partitioner partitioner = {};               // of this job; all ranks give the same name
  io::LeaseOptions lease = {};                // of swale.lock
  // How long the end of an epoch or the close waits for living ranks that have not called it. kForever:
  // without limit.
  Nanos collective_deadline = kForever;
  run::Schema schema = {};  // for a new directory; with an existing one the same, or empty
  bool gives_runs = false;  // all records come by Writer::append_run: no memory for memtables
  Ablation ablation = {};
};

}  // namespace swale::imd
