// DiskModel: how long a disk takes for a request, as numbers. VirtualDisk (virtual_disk.h) is the machine
// that uses them.
//
// A request that begins `gap` bytes after the end of the one before it takes
//
//   latency + positioning(gap) + bytes / rate
//   positioning(gap) = 0  if the gap is 0
//                    = fixed + min(gap / rate, settle + stroke * sqrt(gap / capacity) + rotation)  ahead
//                    = fixed + settle + stroke * sqrt(|gap| / capacity) + rotation                 backwards
//
// This is the seek curve of a rotating disk, except that a short gap ahead costs no more than waiting until
// it has passed under the head. On a device with n channels (flash) the latencies of n requests overlap;
// their transfers do not.
//
// docs/design/virtual-device.md has the arithmetic and says what the model leaves out.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"

namespace swale::io {

struct DiskModel {
  enum class Order : uint8_t {
    kArrival,
    kElevator
  };  // kElevator: C-SCAN, upwards from the head, then again from the lowest offset
  enum class WriteDone : uint8_t {
    kServed,
    kAdmitted
  };  // kAdmitted: acknowledged by a cache or a queue in memory

  std::string_view name = {};
  std::string_view source = {};  // of the numbers

  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  Nanos read_latency = 0;
  Nanos write_latency = 0;
  Nanos sync_latency = 0;  // of a sync, after all writes before it are served
  Nanos discard_latency = 0;
  uint32_t channels = 1;

  Nanos fixed = 0;
  Nanos settle = 0;
  Nanos stroke = 0;  // over the whole capacity
  Nanos rotation = 0;
  uint64_t capacity_bytes = 0;  // 0: no head moves

  Order order = Order::kArrival;
  WriteDone write_done = WriteDone::kServed;
  uint32_t slots = 128;          // waiting requests at most, after merging
  uint64_t merge_bytes_max = 0;  // adjacent requests are merged up to this size; 0: they are not merged
  Nanos wait_max = 0;  // a request that has waited this long is next, whatever its priority; 0: no such rule

  // The time to move the head from the end of one request to the start of the next.
  Nanos positioning(uint64_t from, uint64_t to) const;
  Nanos transfer(uint64_t bytes, bool write) const;
};

// One I/O server of a testbed: a disk, the flash in front of it, and the network to it.
struct Testbed {
  DiskModel disk;
  DiskModel flash;
  double network_bytes_per_s = 0;
};

// "paper-physical", "paper-fitted", "modern": presets A, B and C in docs/design/virtual-device.md.
std::span<const Testbed> testbeds();
// Any model by name, those of testbeds and others ("cloud-ssd"). Null for an unknown name.
const DiskModel* disk_model(std::string_view name);
std::span<const DiskModel* const> disk_models();

}  // namespace swale::io
