// What the halves of RpcCore are built of: tables whose entries have handles that are never used again, and
// lists that run through the entries and so need no memory of their own. Threads: none; the owner serialises
// calls.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

namespace swale::net {

// Entries of type T, found by handle. An entry never moves. T has a member `uint64_t handle`, which is the
// table's.
// Errors: take throws std::bad_alloc, and has done nothing then.
template <class T>
class SlotTable {
 public:
  // A new entry, as T{} makes it.
  T& take() {
    if (free_.empty()) {
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 8);  // release needs no memory
      slots_.emplace_back();
      free_.push_back(static_cast<uint32_t>(slots_.size() - 1));
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.entry.handle = slot.generation << 32 | index;
    slot.used = true;
    ++used_;
    return slot.entry;
  }

  void release(T* entry) {
    const auto index = static_cast<uint32_t>(entry->handle);
    Slot& slot = slots_[index];
    assert(&slot.entry == entry && slot.used);
    static_assert(std::is_nothrow_default_constructible_v<T>);
    std::destroy_at(entry);
    std::construct_at(entry);
    slot.used = false;
    ++slot.generation;
    --used_;
    free_.push_back(index);
  }

  // nullptr: there is none, or no longer.
  T* find(uint64_t handle) {
    const auto index = static_cast<uint32_t>(handle);
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && slot.entry.handle == handle ? &slot.entry : nullptr;
  }

  // Calls visit(T&) for each entry; it may release that entry.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (Slot& slot : slots_) {
      if (slot.used) visit(slot.entry);
    }
  }

  size_t size() const { return used_; }

 private:
  struct Slot {
    T entry;
    uint64_t generation = 1;
    bool used = false;
  };
  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;
  size_t used_ = 0;
};

// A member of T for each list that T may stand in.
template <class T>
struct ListLink {
  T* previous = nullptr;
  T* next = nullptr;
  bool listed = false;
};

template <class T, ListLink<T> T::*kLink>
class LinkedList {
 public:
  bool empty() const { return first_ == nullptr; }
  T* front() const { return first_; }
  static T* next(const T& entry) { return (entry.*kLink).next; }
  static bool listed(const T& entry) { return (entry.*kLink).listed; }

  void push_back(T* entry) {
    assert(!listed(*entry));
    entry->*kLink = {last_, nullptr, true};
    (last_ == nullptr ? first_ : (last_->*kLink).next) = entry;
    last_ = entry;
  }

  void remove(T* entry) {
    const ListLink<T> link = entry->*kLink;
    assert(link.listed);
    (link.previous == nullptr ? first_ : (link.previous->*kLink).next) = link.next;
    (link.next == nullptr ? last_ : (link.next->*kLink).previous) = link.previous;
    entry->*kLink = {};
  }

  T* pop_front() {
    T* entry = first_;
    remove(entry);
    return entry;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace swale::net
