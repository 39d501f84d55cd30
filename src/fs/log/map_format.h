// The maps that the server of a node publishes: where its logs have bytes of files, for processes that read
// there by themselves.
//
//   FOLDER/maps := MapsHead map-slot*     map-slot: MapSlot, at map_slot_begin()
//
// A process asks for a map of a file from an offset on (kAskMap), and is told a slot and a ticket. As long as
// the slot has that ticket it has maps of that file from that offset on; another process that asks renews it
// for all.
//
// A map counts while its sequence, the node's epoch and all marks are what they are in it, and nothing that
// the reader has taken from it fails its check. A mark is of a log that may be written: each write to it
// changes the mark before it returns. Who has looked at marks and epoch when a read began, and at the epoch
// when the bytes were copied, has what the server would have given.
//
// `sequence` is odd while the server writes: one that is killed then leaves a map that counts no more. Each
// entry has a check of its own, of the ticket and the sequence, too: what two maps are mixed of, and garbage,
// fails it.
//
// Memory order: the server stores an odd sequence, the words (relaxed, between fences), and an even sequence;
// readers take words between two looks at the sequence.
//
// Needs: nothing but the compiler. Native byte order: it never leaves a node. Limits: kMapSlotsMax files, or
// parts of files, at a time; the one that was asked for longest ago goes first.
#pragma once

#include <sys/ioctl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/log/log_format.h"

namespace swale::fs {

inline constexpr uint64_t kMapsMagic = 0x7370616d6c617773;  // "swalmaps"
inline constexpr uint32_t kMapsVersion = 1;
inline constexpr char kMapsName[] = "maps";
inline constexpr uint32_t kMapSlotsMax = 1024;
inline constexpr uint64_t kMapSlotBytes = 16 << 10;  // reserved when it is used first
inline constexpr uint64_t kSizeUnknown = UINT64_MAX;
inline constexpr uint64_t kTicketMax = (uint64_t{1} << 48) - 1;
inline constexpr uint32_t kToldMarksMax = 64;  // with more logs nothing is told
inline constexpr uint32_t kToldPlacesMax = 200;
inline constexpr uint32_t kToldChecksMax = 960;

// The first page.
struct MapsHead {
  uint64_t magic;
  uint32_t version;
  uint32_t slots;
  uint64_t server;  // a number that no other server has
  uint64_t check;
};
inline uint64_t check_of(const MapsHead& head) {
  return mixed(mixed(kMapsMagic, uint64_t{head.version} << 32 | head.slots), head.server);
}

// A log that may be written: LogMark (told_places.h).
struct MapMark {
  uint32_t log;
  uint32_t check;
  uint64_t current;
  uint64_t reserve_at;
  uint64_t reserve;
};
// Bytes of the file: ToldPlace.
struct MapPlace {
  uint64_t offset;
  uint64_t chunk_at;
  uint32_t bytes;
  uint32_t place;
  uint32_t used;
  uint32_t log;
  uint16_t first_check;  // in MapSlot::checks
  uint16_t checks;
  uint32_t check;
};
struct MapState {
  uint64_t ticket;  // 0: it has no map
  uint64_t size;    // of the file, all writes on this node included; or kSizeUnknown
  uint64_t offset;  // the map begins here
  uint64_t end;     // beyond it there may be more
  uint64_t epoch;   // NodePage::epoch
  uint32_t mark_count;
  uint32_t place_count;
  uint64_t check;
};
struct MapSlot {
  std::atomic<uint64_t> sequence;  // odd: it is being written
  MapState state;
  MapMark marks[kToldMarksMax];
  MapPlace places[kToldPlacesMax];  // ascending in offset
  uint32_t checks[kToldChecksMax];  // crc32c of blocks, one place after the other
};
static_assert(sizeof(MapMark) == 32 && sizeof(MapPlace) == 40 && sizeof(MapState) == 56);
static_assert(sizeof(MapSlot) <= kMapSlotBytes && std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t map_slot_begin(uint32_t slot) { return kPageBytes + slot * kMapSlotBytes; }
constexpr uint64_t map_file_bytes(uint32_t slots) { return map_slot_begin(slots); }

constexpr uint64_t check_of(const MapState& state, uint64_t sequence) {
  uint64_t check = mixed(mixed(kMapsMagic, sequence), state.ticket);
  check = mixed(mixed(check, state.size), state.offset);
  check = mixed(mixed(check, state.end), state.epoch);
  return mixed(check, uint64_t{state.mark_count} << 32 | state.place_count);
}
// Of what was published under that check of the state.
constexpr uint32_t check_of(const MapMark& mark, uint64_t of_state) {
  const uint64_t check =
      mixed(mixed(mixed(mixed(of_state, mark.log), mark.current), mark.reserve_at), mark.reserve);
  return static_cast<uint32_t>(check >> 32 ^ check);
}
constexpr uint32_t check_of(const MapPlace& place, uint64_t of_state) {
  uint64_t check = mixed(mixed(of_state, place.offset), place.chunk_at);
  check = mixed(check, uint64_t{place.bytes} << 32 | place.place);
  check = mixed(check, uint64_t{place.used} << 32 | place.log);
  check = mixed(check, uint64_t{place.first_check} << 16 | place.checks);
  return static_cast<uint32_t>(check >> 32 ^ check);
}

// Words that a server and processes share: each is read or written whole.
template <class Value>
void take_words(const Value& from, Value* to) {
  static_assert(sizeof(Value) % sizeof(uint64_t) == 0 && alignof(Value) == alignof(uint64_t));
  uint64_t words[sizeof(Value) / sizeof(uint64_t)];
  const auto* const in = reinterpret_cast<const uint64_t*>(&from);
  for (size_t i = 0; i < sizeof(Value) / sizeof(uint64_t); ++i)
    words[i] = __atomic_load_n(in + i, __ATOMIC_RELAXED);
  __builtin_memcpy(to, words, sizeof(Value));
}
template <class Value>
void give_words(const Value& from, Value* to) {
  static_assert(sizeof(Value) % sizeof(uint64_t) == 0 && alignof(Value) == alignof(uint64_t));
  uint64_t words[sizeof(Value) / sizeof(uint64_t)];
  __builtin_memcpy(words, &from, sizeof(Value));
  auto* const out = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 0; i < sizeof(Value) / sizeof(uint64_t); ++i)
    __atomic_store_n(out + i, words[i], __ATOMIC_RELAXED);
}

// What kAskMap asks, and its answer.
struct MapRequest {
  uint64_t offset = 0;  // asked for
  uint64_t server = 0;  // MapsHead::server
  uint64_t ticket = 0;  // at most kTicketMax
  uint32_t slot = 0;
  uint32_t unused = 0;
  char folder[264] = "";  // of the logs and maps; ends with 0
};
// EAGAIN: somebody is in the middle of a write. EBUSY: somebody may have changed pages of the file that the
// kernel keeps. ENOSPC: no memory for a map.
inline constexpr unsigned long kAskMap = _IOWR(0xd5, 0x56, MapRequest);
// The process maps the file: it takes back the promise of kAskShortCut.
inline constexpr unsigned long kAskPages = _IO(0xd5, 0x57);

}  // namespace swale::fs
