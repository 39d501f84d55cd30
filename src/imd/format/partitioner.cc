#include "imd/format/partitioner.h"

#include <algorithm>

namespace swale::imd {

bool is_partitioner_name(std::string_view name) {
  constexpr size_t kNameBytesMax = 64;
  constexpr std::string_view kOthers = "_.-:";
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [&](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || kOthers.find(c) != std::string_view::npos;
  });
}

Status Partitioner::check() const {
  if (!is_partitioner_name(name))
    return invalid_argument("the partitioner's name \"{}\": expected {}", name, kPartitionerNameRule);
  if (name == kHashPartitioner) {
    return by_hash() ? Status()
                     : invalid_argument(
                           "\"{}\" is the name of Swale's own partitioner: give yours another "
                           "(option imd.partitioner)",
                           kHashPartitioner);
  }
  if (!by_hash()) return {};
  return invalid_argument("the partitioner \"{}\" was named, but no function was given with it", name);
}

Status Partitioners::set(const Partitioner& partitioner) {
  SWALE_RETURN_IF_ERROR(partitioner.check());
  const MutexLock lock(mutex_);
  if (!partitioner.by_hash()) known_.insert_or_assign(partitioner.name, partitioner);
  return {};
}

Partitioner Partitioners::find(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = known_.find(name);
  return found == known_.end() ? Partitioner() : found->second;
}

}  // namespace swale::imd
