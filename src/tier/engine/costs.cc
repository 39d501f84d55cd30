#include "tier/engine/costs.h"

namespace swale::tier {
namespace {

constexpr double kWeight = 1.0 / 64;  // of a sample

}  // namespace

// The quickest of recent windows.
void Costs::arrived(uint32_t length) {
  constexpr uint32_t kWindow = 64;
  constexpr double kForget = 1.02;  // a window
  window_bytes_ += length;
  if (++window_writes_ < kWindow) return;
  const double cost = static_cast<double>(shared_.now - window_start_) / static_cast<double>(window_bytes_);
  arrival_ = arrival_ == 0 ? cost : std::min(arrival_ * kForget, cost);
  window_start_ = shared_.now;
  window_bytes_ = window_writes_ = 0;
}

void Costs::slot_written(const Slot& slot, Nanos took) {
  assert(slot.length > 0 && slot.direct_count <= slot.pieces.size());
  smooth(&slot_ns_, static_cast<double>(took), kWeight);
  if (slot.passing) return;
  FileState& file = shared_.files[slot.file];
  const auto length = static_cast<double>(slot.length);
  const double cost = static_cast<double>(took) / length;
  const double modelled =
      backing_.slot_written(file.slot_end, slot.position, slot.length, static_cast<double>(took));
  file.slot_end = slot.position + slot.length;
  if (slot.direct_count > 0) smooth(&file.modelled_cost, modelled / length, kWeight);
  if (slot.direct_count == slot.pieces.size()) {
    smooth(&direct_, cost, kWeight);
    smooth(&file.direct_cost, cost, kWeight);
  } else if (slot.direct_count == 0) {
    smooth(&flush_, cost, kWeight);
  }
}

}  // namespace swale::tier
