// EndsAhead: which files the kernel should take for longer than they are, so that writers behind an end come
// at the same time.
//
// A write past the end that the kernel knows has the inode alone (Linux 6.7 to 6.18, also with
// FOPEN_PARALLEL_DIRECT_WRITES): those of N processes would come one after the other. Where handles take
// turns, the kernel is told of an end ahead of them (KernelPages::show_end). Programs do not see it, as
// the kernel asks for attributes before it tells any, and believes these from then on. Two cases are left
// alone: files that somebody may append to, whose place the kernel takes from the end it knows; and file
// systems of which the kernel keeps attributes. The last page of a mapping is written whole, and must be cut
// to the file (has_told). What remains: a page behind the end that a program has mapped is zeros in place of
// SIGBUS; and where a descriptor gets O_APPEND by F_SETFL after several handles have taken turns, what it
// appends is at the file's end, but its position is then behind the end that was told, and what it writes
// without O_APPEND goes there. The kernel tells nobody of F_SETFL. So handles count, not threads: a
// descriptor that several processes share may well get it (make does so).
//
// A slot serves all files of which the numbers fall on it: what one does may cost the others speed, no more.
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace swale::fuse {

class EndsAhead {
 public:
  // Before the write to `end` by the open file `writer` is answered: once it is, its writer may close and
  // seal the file, of which the kernel then keeps pages. The end to tell, if any.
  std::optional<uint64_t> next(uint64_t node, const void* writer, uint64_t end) noexcept {
    Slot& slot = slot_of(node);
    note_turn(slot, writer);
    if (end + kAhead / 2 <= slot.told.load(std::memory_order_relaxed)) return {};
    if (slot.appenders.load() > 0) return {};
    if (!slot.have_taken_turns.exchange(false, std::memory_order_relaxed)) return {};
    const uint64_t told = (end + kAhead) / kPage * kPage + kPage / 2;
    slot.told.store(told, std::memory_order_relaxed);
    slot.has_told.store(true);
    return told;
  }
  // Whether the kernel may have, or have had, a later end of the file than it has.
  bool has_told(uint64_t node) noexcept { return slot_of(node).has_told.load(); }
  // The kernel gets attributes, with the end that is.
  void forget(uint64_t node) noexcept { slot_of(node).told.store(0, std::memory_order_relaxed); }
  // Opens to append, before they are answered, and their releases.
  void add_appender(uint64_t node) noexcept { slot_of(node).appenders.fetch_add(1); }
  void remove_appender(uint64_t node) noexcept { slot_of(node).appenders.fetch_sub(1); }

 private:
  static constexpr uint64_t kAhead = 16 << 20;
  // An end amid a page: the kernel takes a page that begins with our byte for read.
  static constexpr uint64_t kPage = 4096;
  static constexpr size_t kSlots = 256;
  static constexpr int kNodeAlignment = 6;  // numbers of nodes are addresses

  struct Slot {
    std::atomic<const void*> last_writer = nullptr;
    std::atomic<bool> have_taken_turns = false;  // since the last end was told
    std::atomic<uint64_t> told = 0;
    std::atomic<bool> has_told = false;
    std::atomic<uint32_t> appenders = 0;
  };
  // Of every write, however far it is from the end: a writer that runs ahead of the others is the only one
  // there, and while it has the inode alone they wait.
  static void note_turn(Slot& slot, const void* writer) noexcept {
    if (slot.last_writer.load(std::memory_order_relaxed) == writer) return;
    const void* const last = slot.last_writer.exchange(writer, std::memory_order_relaxed);
    if (last != nullptr && last != writer) slot.have_taken_turns.store(true, std::memory_order_relaxed);
  }
  Slot& slot_of(uint64_t node) noexcept { return slots_[(node >> kNodeAlignment) % kSlots]; }

  std::array<Slot, kSlots> slots_;
};

}  // namespace swale::fuse
