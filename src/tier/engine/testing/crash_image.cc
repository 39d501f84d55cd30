#include "tier/engine/testing/crash_image.h"

#include <algorithm>

namespace swale::tier {

void Image::apply(std::string* to, const Change& change) {
  if (change.resize) {
    to->resize(change.offset);
    return;
  }
  if (to->size() < change.offset + change.bytes.size()) to->resize(change.offset + change.bytes.size());
  to->replace(change.offset, change.bytes.size(), change.bytes);
}

void Image::write(uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return;
  changes_.push_back({offset, std::string(bytes), false});
  apply(&now_, changes_.back());
}

void Image::resize(uint64_t size) {
  changes_.push_back({size, {}, true});
  apply(&now_, changes_.back());
}

void Image::sync() {
  for (const Change& change : changes_) apply(&durable_, change);
  changes_.clear();
}

void Image::fail_sync() {
  std::erase_if(changes_, [](const Change& change) { return !change.resize; });
}

void Image::lose_power(Rng* rng) {
  for (Change& change : changes_) {
    if (rng->chance(1, 3)) continue;
    if (!change.resize && rng->chance(1, 3)) change.bytes.resize(rng->below(change.bytes.size() + 1));
    if (!change.resize && change.bytes.empty()) continue;
    apply(&durable_, change);
  }
  now_ = durable_;
  changes_.clear();
}

std::string Image::read(uint64_t offset, uint64_t length) const {
  std::string out(length, '\0');
  if (offset < now_.size()) {
    const uint64_t got = std::min<uint64_t>(length, now_.size() - offset);
    out.replace(0, got, now_, offset, got);
  }
  return out;
}

}  // namespace swale::tier
