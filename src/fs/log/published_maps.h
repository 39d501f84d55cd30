// PublishedMaps: the file with the maps that processes of this node read by (map_format.h).
//
// Threads: one at a time; processes read meanwhile.
// Invariants: (1) A ticket stands for one file and one beginning. (2) A slot whose sequence is even has a map
// that was published whole, or none.
// Errors: kNoSpace: the memory file system has no space for a slot; nothing else is harmed.
// Memory: kMapSlotBytes for each slot that was ever used, and some 100 bytes.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "fs/log/told_places.h"
#include "io/device.h"

namespace swale::fs {

class PublishedMaps {
 public:
  // In a folder of logs, in place of what a server before has left there: its readers keep that.
  static Result<std::unique_ptr<PublishedMaps>> open(io::Device& memory, const std::string& folder,
                                                     uint32_t slots = kMapSlotsMax);
  ~PublishedMaps();
  PublishedMaps(const PublishedMaps&) = delete;
  PublishedMaps& operator=(const PublishedMaps&) = delete;

  // Where a map begins that the file has, and that has had this offset; none: there is no such map.
  std::optional<uint64_t> beginning(const meta::FileId& file, uint64_t offset) const;
  // What is told, for all who read the file from told.offset on. `size`: the file's, or kSizeUnknown.
  Status publish(const meta::FileId& file, const ToldPlaces& told, uint64_t size, MapRequest* answer);
  // No map of the file counts any more.
  void withdraw(const meta::FileId& file) noexcept;

 private:
  struct Slot {
    meta::FileId file;
    uint64_t ticket = 0;  // 0: it was never used
    uint64_t offset = 0, end = 0;
    std::list<uint32_t>::iterator place;  // in asked_
  };
  PublishedMaps() = default;
  MapSlot& memory_of(uint32_t slot) const;
  Result<uint32_t> slot_for(const meta::FileId& file, uint64_t offset);
  Status reserve(uint32_t slot);

  std::unique_ptr<io::File> file_;
  char* memory_ = nullptr;
  uint64_t server_ = 0;
  uint64_t next_ticket_ = 1;
  uint32_t slots_max_ = 0;
  std::vector<Slot> slots_;    // that were used
  std::list<uint32_t> asked_;  // the one that was asked for longest ago first
  std::unordered_multimap<meta::FileId, uint32_t, meta::FileIdHash> of_files_;
};

}  // namespace swale::fs
