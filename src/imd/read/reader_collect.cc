#include "imd/read/reader_collect.h"

#include <algorithm>
#include <tuple>

namespace swale::imd {

bool CollectSink::hit(const Query::Hit& hit) {
  const SeriesKind kind = hit.large ? SeriesKind::kPoints : hit.kind;
  hits_.push_back({hit.key_index, hit.epoch, hit.sequence, bytes_.size(), hit.value.size(), kind});
  bytes_.append(hit.value);
  return true;
}

void CollectSink::clear() {
  hits_.clear();
  bytes_.clear();
}

template <class Fn>
Status CollectSink::each(Fn&& fn) const {
  std::string front;
  for (size_t i = 0; i < hits_.size(); ++i) {
    const Kept& kept = hits_[i];
    Bytes value(bytes_.data() + kept.at, kept.size);
    if (kept.kind == SeriesKind::kContinues) {
      front.append(value);
      const bool joined = i + 1 < hits_.size() && hits_[i + 1].key_index == kept.key_index &&
                          hits_[i + 1].epoch == kept.epoch;
      if (joined) continue;
      return corruption("a value of epoch {} ends in the middle of its series", kept.epoch);
    }
    if (!front.empty()) {
      front.append(value);
      value = front;
    }
    Bytes stored;
    if (kept.kind == SeriesKind::kResolved && !split_resolved(value, &stored, &value))
      return corruption("a value of epoch {} is not what its series says", kept.epoch);
    if (!fn(kept, value)) return {};
    front.clear();
  }
  return {};
}

Status CollectSink::settle() {
  const auto place = [](const Kept& kept) { return std::tuple(kept.key_index, kept.epoch, kept.sequence); };
  const auto before = [&](const Kept& a, const Kept& b) { return place(a) < place(b); };
  if (!std::is_sorted(hits_.begin(), hits_.end(), before))
    std::stable_sort(hits_.begin(), hits_.end(), before);
  return each([](const Kept&, Bytes) { return true; });
}

Status CollectSink::give(Query::Sink& to) {
  uint64_t number = 0;
  return each([&](const Kept& kept, Bytes value) {
    return to.hit({.key_index = kept.key_index,
                   .epoch = kept.epoch,
                   .sequence = number++,
                   .value = value,
                   .large = kept.kind == SeriesKind::kPoints});
  });
}

}  // namespace swale::imd
