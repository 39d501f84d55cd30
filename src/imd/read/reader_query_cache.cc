// What a Query keeps in a ReadCache, and takes from it: whole slices, and the blocks of a candidate.
#include <utility>

#include "imd/read/reader_query.h"

namespace swale::imd {

ReadCache::Name Query::name_of(const SliceGroup& group) const {
  ReadCache::Name name = group.logs->cache_name(group.record());
  name.offset = group.location.offset;
  return name;
}

ReadCache::Name Query::name_of(const Pending& pending) const {
  ReadCache::Name name = name_of(groups_[pending.group]);
  name.offset = pending.candidate.block * run::kBlockBytes;
  name.blocks = pending.candidate.block_count;
  return name;
}

bool Query::take_cached(SliceGroup& group) {
  if (cache_ == nullptr) return false;
  group.cached = cache_->find(name_of(group));
  ++(group.cached ? cache_hits_ : cache_misses_);
  if (!group.cached) return false;
  group.bytes = group.cached.bytes().data();
  group.depth = 0;
  return true;
}

Status Query::examine_cached(size_t index) {
  const SliceGroup& group = groups_[index];
  SWALE_ASSIGN_OR_RETURN(const run::Slice slice,
                         run::Slice::open_verified(group.record(), group.location, group.cached.bytes(),
                                                   group.logs->index->path()));
  return take_candidates(index, slice);
}

// `previous`: the candidate before it, often in the same block; or nullptr.
bool Query::take_cached(Pending& pending, const Pending* previous) {
  if (!caches_blocks_) return false;
  if (previous != nullptr && previous->pin != kNoPin && name_of(*previous) == name_of(pending)) {
    ++cache_hits_;
    pending.bytes = previous->bytes;
    pending.pin = previous->pin;
    return true;
  }
  ReadCache::Pin pin = cache_->find(name_of(pending));
  ++(pin ? cache_hits_ : cache_misses_);
  if (!pin) return false;
  pending.bytes = pin.bytes().data();
  pending.pin = static_cast<uint32_t>(pins_.size());
  pins_.push_back(std::move(pin));
  return true;
}

Status Query::match_cached(const Pending& pending) {
  const Bytes unpacked = pins_[pending.pin].bytes().substr(pending.candidate.block_count * run::kBlockBytes);
  if (!unpacked.empty()) walk_.know(pending.bytes, unpacked);
  return match(pending, pending.bytes);
}

// A slice that is complete, if it was read.
void Query::keep(const SliceGroup& group, const run::Slice& slice) {
  if (cache_ != nullptr && group.asked) cache_->put(name_of(group), slice.bytes());
}

// Blocks that were read, and have just been matched.
void Query::keep(const Pending& pending, const char* bytes) {
  if (!caches_blocks_) return;
  const ReadCache::Name name = name_of(pending);
  if (name == last_kept_) return;  // a key with many values in one block
  const Bytes blocks(bytes, pending.candidate.block_count * run::kBlockBytes);
  cache_->put(name, blocks, walk_.piece_of(bytes));
  last_kept_ = name;
}

}  // namespace swale::imd
