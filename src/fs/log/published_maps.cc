#include "fs/log/published_maps.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/entropy.h"

namespace swale::fs {
namespace {

// The map of a slot changes: nobody takes it for whole while this lives.
class Writing {
 public:
  explicit Writing(MapSlot& slot)
      : slot_(slot), even_((slot.sequence.load(std::memory_order_relaxed) | 1) + 1) {
    slot_.sequence.store(even_ - 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Writing() { slot_.sequence.store(even_, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  uint64_t even() const { return even_; }

 private:
  MapSlot& slot_;
  const uint64_t even_;
};

void write_map(const ToldPlaces& told, uint64_t size, uint64_t ticket, MapSlot& out) {
  const Writing writing(out);
  MapState state = {ticket, size, told.offset, told.end, told.epoch, told.mark_count, told.place_count, 0};
  state.check = check_of(state, writing.even());
  for (uint32_t i = 0; i < told.mark_count; ++i) {
    const LogMark& from = told.marks[i];
    MapMark mark = {from.log, 0, from.current, from.reserve_at, from.reserve};
    mark.check = check_of(mark, state.check);
    give_words(mark, &out.marks[i]);
  }
  uint32_t first_check = 0;
  for (uint32_t i = 0; i < told.place_count; ++i) {
    const ToldPlace& from = told.places[i];
    MapPlace place = {from.offset,
                      from.chunk_at,
                      from.bytes,
                      from.place,
                      from.used,
                      from.log,
                      static_cast<uint16_t>(first_check),
                      static_cast<uint16_t>(from.checks),
                      0};
    place.check = check_of(place, state.check);
    give_words(place, &out.places[i]);
    first_check += from.checks;
  }
  for (uint32_t i = 0; i < told.check_count; ++i)
    __atomic_store_n(&out.checks[i], told.checks[i], __ATOMIC_RELAXED);
  give_words(state, &out.state);
}

}  // namespace

Result<std::unique_ptr<PublishedMaps>> PublishedMaps::open(io::Device& memory, const std::string& folder,
                                                           uint32_t slots) {
  std::unique_ptr<PublishedMaps> made(new PublishedMaps());
  const std::string path = folder + "/" + kMapsName;
  const Status removed = memory.remove(path);
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  SWALE_ASSIGN_OR_RETURN(made->file_, memory.open(path, io::OpenMode::kCreate));
  const int fd = made->file_->descriptor();
  const uint64_t bytes = map_file_bytes(slots);
  if (::fallocate(fd, 0, 0, kPageBytes) != 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return errno_status(errno, path + ": space for maps");
  void* const there = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (there == MAP_FAILED) return errno_status(errno, path + ": mapping it");
  made->memory_ = static_cast<char*>(there);
  made->slots_max_ = slots;
  made->server_ = random_number();
  MapsHead head = {kMapsMagic, kMapsVersion, slots, made->server_, 0};
  head.check = check_of(head);
  *static_cast<MapsHead*>(there) = head;
  return made;
}

PublishedMaps::~PublishedMaps() {
  if (memory_ != nullptr) ::munmap(memory_, map_file_bytes(slots_max_));
}

MapSlot& PublishedMaps::memory_of(uint32_t slot) const {
  return *reinterpret_cast<MapSlot*>(memory_ + map_slot_begin(slot));
}

std::optional<uint64_t> PublishedMaps::beginning(const meta::FileId& file, uint64_t offset) const {
  const auto [begin, end] = of_files_.equal_range(file);
  for (auto at = begin; at != end; ++at) {
    const Slot& slot = slots_[at->second];
    if (offset >= slot.offset && offset < slot.end) return slot.offset;
  }
  return {};
}

// Without the memory an access would be SIGBUS.
Status PublishedMaps::reserve(uint32_t slot) {
  const auto at = static_cast<off_t>(map_slot_begin(slot));
  if (::fallocate(file_->descriptor(), 0, at, kMapSlotBytes) != 0)
    return errno_status(errno, file_->path() + ": space for a map");
  return {};
}

Result<uint32_t> PublishedMaps::slot_for(const meta::FileId& file, uint64_t offset) {
  const auto [begin, end] = of_files_.equal_range(file);
  for (auto at = begin; at != end; ++at)
    if (slots_[at->second].offset == offset) return at->second;
  uint32_t slot = static_cast<uint32_t>(slots_.size());
  if (slot < slots_max_ && reserve(slot).ok()) {
    slots_.reserve(slot + size_t{1});
    of_files_.emplace(file, slot);
    slots_.push_back({file, 0, offset, offset, asked_.insert(asked_.end(), slot)});
  } else if (!slots_.empty()) {
    slot = asked_.front();
    const auto [first, last] = of_files_.equal_range(slots_[slot].file);
    const auto old = std::find_if(first, last, [slot](const auto& each) { return each.second == slot; });
    of_files_.emplace(file, slot);
    if (old != last) of_files_.erase(old);
    slots_[slot].file = file;
    slots_[slot].offset = slots_[slot].end = offset;
  } else {
    return errno_status(ENOSPC, file_->path() + ": space for a map");
  }
  slots_[slot].ticket = next_ticket_++;
  return slot;
}

Status PublishedMaps::publish(const meta::FileId& file, const ToldPlaces& told, uint64_t size,
                              MapRequest* answer) {
  if (next_ticket_ > kTicketMax) return errno_status(ENOSPC, file_->path() + ": all tickets are used");
  SWALE_ASSIGN_OR_RETURN(const uint32_t number, slot_for(file, told.offset));
  Slot& slot = slots_[number];
  asked_.splice(asked_.end(), asked_, slot.place);
  slot.end = told.end;
  write_map(told, size, slot.ticket, memory_of(number));
  answer->server = server_;
  answer->ticket = slot.ticket;
  answer->slot = number;
  return {};
}

void PublishedMaps::withdraw(const meta::FileId& file) noexcept {
  const auto [begin, end] = of_files_.equal_range(file);
  for (auto at = begin; at != end; ++at) {
    MapSlot& slot = memory_of(at->second);
    const Writing writing(slot);
    give_words(MapState{}, &slot.state);
  }
}

}  // namespace swale::fs
