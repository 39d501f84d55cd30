#include "io/disk_model.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace swale::io {
namespace {

constexpr double kMB = 1e6;
constexpr Nanos micros(int64_t count) { return count * 1'000; }

// A disk driven by a user-space elevator, which acknowledges a write as soon as it has a slot for it.
constexpr DiskModel rotating(std::string_view name, std::string_view source, double mb_per_s, Nanos rotation,
                             Nanos fixed, uint64_t merge_bytes, uint32_t slots) {
  return {.name = name,
          .source = source,
          .read_bytes_per_s = mb_per_s * kMB,
          .write_bytes_per_s = mb_per_s * kMB,
          .fixed = fixed,
          .settle = micros(400),
          .stroke = micros(7'600),
          .rotation = rotation,
          .capacity_bytes = 300'000'000'000,
          .order = DiskModel::Order::kElevator,
          .write_done = DiskModel::WriteDone::kAdmitted,
          .slots = slots,
          .merge_bytes_max = merge_bytes};
}

constexpr DiskModel flash(std::string_view name, std::string_view source, double write_mb_per_s,
                          double read_mb_per_s) {
  return {.name = name,
          .source = source,
          .read_bytes_per_s = read_mb_per_s * kMB,
          .write_bytes_per_s = write_mb_per_s * kMB,
          .slots = 1024};
}

constexpr DiskModel kFlash = flash("paper-ssd", "SSDUP+ paper, SATA SSD of its testbed", 300, 400);

constexpr std::array kTestbeds = {
    Testbed{rotating("paper-physical",
                     "preset A: seek curve of a 300 GB disk of 7,200 rpm, SSDUP+ paper's testbed", 120,
                     micros(1'100), 0, 512 * kKiB, 128),
            kFlash, 112 * kMB},
    Testbed{rotating("paper-fitted", "preset B: fitted to figures 2 and 6 of the SSDUP+ paper, rms 10 %", 123,
                     micros(160), micros(980), 256 * kKiB, 64),
            kFlash, 107 * kMB},
    Testbed{rotating("modern", "preset C: a disk of today behind a fast network", 200, micros(2'000),
                     micros(200), 512 * kKiB, 128),
            kFlash, 250 * kMB}};

// 70-110 us for 4 KiB alone, 85,000 a second with 16 in flight, 2.2 GB/s of direct writes.
constexpr DiskModel kCloudSsd = {.name = "cloud-ssd",
                                 .source = "virtio disk measured in docs/design/storage-io.md",
                                 .read_bytes_per_s = 2'200 * kMB,
                                 .write_bytes_per_s = 2'200 * kMB,
                                 .read_latency = micros(90),
                                 .write_latency = micros(90),
                                 .sync_latency = micros(500),
                                 .discard_latency = micros(90),
                                 .channels = 8,
                                 .slots = 256};

constexpr std::array<const DiskModel*, 5> kModels = {&kTestbeds[0].disk, &kTestbeds[1].disk,
                                                     &kTestbeds[2].disk, &kFlash, &kCloudSsd};

Nanos rounded(double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); }

}  // namespace

Nanos DiskModel::positioning(uint64_t from, uint64_t to) const {
  if (from == to || capacity_bytes == 0) return 0;
  const auto gap = static_cast<double>(to > from ? to - from : from - to);
  const Nanos seek =
      settle + rotation + rounded(to_seconds(stroke) * std::sqrt(gap / static_cast<double>(capacity_bytes)));
  return fixed + (to > from ? std::min(rounded(gap / write_bytes_per_s), seek) : seek);
}

Nanos DiskModel::transfer(uint64_t bytes, bool write) const {
  return rounded(static_cast<double>(bytes) / (write ? write_bytes_per_s : read_bytes_per_s));
}

std::span<const Testbed> testbeds() { return kTestbeds; }
std::span<const DiskModel* const> disk_models() { return kModels; }

const DiskModel* disk_model(std::string_view name) {
  const auto found =
      std::find_if(kModels.begin(), kModels.end(), [&](const DiskModel* m) { return m->name == name; });
  return found == kModels.end() ? nullptr : *found;
}

}  // namespace swale::io
