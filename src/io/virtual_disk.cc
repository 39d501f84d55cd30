#include "io/virtual_disk.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>

namespace swale::io {
namespace {

using Kind = DiskRequest::Kind;
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

}  // namespace

size_t VirtualDisk::waiting() const {
  size_t count = 0;
  for (const Slots& slots : waiting_) count += slots.size();
  return count;
}

bool VirtualDisk::idle() const {
  return waiting() == 0 && running_.empty() && syncs_.empty() && done_.empty();
}

bool VirtualDisk::fits(const Slot& slot, const DiskRequest& request) const {
  return slot.kind == request.kind && slot.bytes + request.bytes <= model_.merge_bytes_max;
}

// The waiting slot that the request continues, or end().
VirtualDisk::Slots::iterator VirtualDisk::slot_before(const DiskRequest& request) {
  Slots& slots = waiting_[static_cast<size_t>(request.priority)];
  const auto next = slots.upper_bound({request.offset, kMost});
  if (next == slots.begin()) return slots.end();
  const auto previous = std::prev(next);
  return previous->second.end() == request.offset && fits(previous->second, request) ? previous : slots.end();
}

// The waiting slot that continues the request, or end().
VirtualDisk::Slots::iterator VirtualDisk::slot_after(const DiskRequest& request) {
  Slots& slots = waiting_[static_cast<size_t>(request.priority)];
  const auto next = slots.upper_bound({request.offset, kMost});
  const bool joins = next != slots.end() && request.offset + request.bytes == next->second.offset &&
                     fits(next->second, request);
  return joins ? next : slots.end();
}

bool VirtualDisk::would_merge(const DiskRequest& request) const {
  if (model_.order != DiskModel::Order::kElevator || request.kind == Kind::kSync ||
      request.kind == Kind::kDiscard)
    return false;
  auto& self = const_cast<VirtualDisk&>(*this);  // the searches change nothing
  auto& slots = self.waiting_[static_cast<size_t>(request.priority)];
  return self.slot_before(request) != slots.end() || self.slot_after(request) != slots.end();
}

bool VirtualDisk::merge(const DiskRequest& request, const Member& member) {
  if (!would_merge(request)) return false;
  Slots& slots = waiting_[static_cast<size_t>(request.priority)];
  if (const auto before = slot_before(request); before != slots.end()) {
    before->second.members.push_back(member);
    before->second.bytes += request.bytes;
  } else {
    const auto after = slot_after(request);
    after->second.members.push_back(member);
    auto node = slots.extract(after);
    node.key().first = request.offset;
    node.mapped().offset = request.offset;
    node.mapped().bytes += request.bytes;
    slots.insert(std::move(node));
  }
  ++use_.merged;
  return true;
}

bool VirtualDisk::submit(const DiskRequest& request, Nanos now) {
  run_until(now);
  if (request.kind == Kind::kSync) return submit_sync(request);
  const bool told = request.kind == Kind::kWrite && model_.write_done == DiskModel::WriteDone::kAdmitted;
  const uint64_t sequence = sequence_ + 1;
  const Member member{request.tag, sequence, told};
  if (!merge(request, member)) {
    if (waiting() >= model_.slots) return false;
    const bool elevator = model_.order == DiskModel::Order::kElevator;
    const Key key = elevator ? Key{request.offset, sequence} : Key{sequence, 0};
    waiting_[static_cast<size_t>(request.priority)].emplace(
        key, Slot{request.kind, request.offset, request.bytes, now, {member}});
  }
  sequence_ = sequence;
  if (changes_data(request.kind)) unserved_.insert(sequence);
  if (told) done_.push_back({request.tag, now});
  return true;
}

bool VirtualDisk::submit_sync(const DiskRequest& request) {
  if (syncs_.size() >= model_.slots) return false;
  syncs_.push_back({request.tag, ++sequence_, kForever});
  start_syncs();
  return true;
}

Nanos VirtualDisk::next_event() {
  start_waiting();
  Nanos next = done_.empty() ? kForever : now_;
  if (!running_.empty()) next = std::min(next, running_.front().done);
  for (const Sync& sync : syncs_) next = std::min(next, sync.done);
  return next;
}

void VirtualDisk::advance(Nanos now, std::vector<DiskCompletion>* out) {
  run_until(now);
  out->insert(out->end(), done_.begin(), done_.end());
  done_.clear();
}

void VirtualDisk::run_until(Nanos now) {
  assert(now >= now_);
  for (;;) {
    // At `now` itself service does not begin yet: other requests may come at the same time.
    if (now > now_) start_waiting();
    Nanos next = running_.empty() ? kForever : running_.front().done;
    for (const Sync& sync : syncs_) next = std::min(next, sync.done);
    if (next > now) break;
    now_ = next;
    while (!running_.empty() && running_.front().done == now_) {
      const Running running = std::move(running_.front());
      running_.erase(running_.begin());
      finish(running);
    }
    start_syncs();
    std::erase_if(syncs_, [this](const Sync& sync) {
      if (sync.done == now_) done_.push_back({sync.tag, now_});
      return sync.done == now_;
    });
  }
  now_ = now;
}

void VirtualDisk::start_waiting() {
  while (running_.size() < model_.channels && waiting() > 0) start(take_next());
}

// The slot that has waited longest, if that is longer than the model allows.
VirtualDisk::Slots::iterator VirtualDisk::overdue(Slots** slots) {
  Slots::iterator oldest;
  *slots = nullptr;
  for (Slots& candidates : waiting_) {
    for (auto at = candidates.begin(); at != candidates.end(); ++at) {
      if (*slots != nullptr && at->second.since >= oldest->second.since) continue;
      *slots = &candidates;
      oldest = at;
    }
  }
  if (*slots != nullptr && now_ - oldest->second.since < model_.wait_max) *slots = nullptr;
  return oldest;
}

VirtualDisk::Slot VirtualDisk::take_next() {
  Slots* slots = nullptr;
  Slots::iterator next;
  if (model_.wait_max > 0) next = overdue(&slots);
  if (slots == nullptr) {
    slots = &*std::find_if(waiting_.begin(), waiting_.end(), [](const Slots& s) { return !s.empty(); });
    const bool elevator = model_.order == DiskModel::Order::kElevator;
    next = elevator ? slots->lower_bound({head_, 0}) : slots->begin();
    if (next == slots->end()) next = slots->begin();
  }
  return std::move(slots->extract(next).mapped());
}

void VirtualDisk::start(Slot slot) {
  const bool write = slot.kind == Kind::kWrite;
  Nanos ready = now_;
  Nanos transfer = 0;
  if (slot.kind == Kind::kDiscard) {
    ready += model_.discard_latency;
  } else {
    ready += (write ? model_.write_latency : model_.read_latency) + model_.positioning(head_, slot.offset);
    transfer = model_.transfer(slot.bytes, write);
    if (slot.offset != head_) ++use_.seeks;
    head_ = slot.end();
    (write ? use_.written_bytes : use_.read_bytes) += slot.bytes;
  }
  const Nanos done = std::max(ready, bus_free_) + transfer;
  const Nanos last = running_.empty() ? now_ : std::max(now_, running_.back().done);
  use_.busy += std::max<Nanos>(done - last, 0);
  if (slot.kind != Kind::kDiscard) bus_free_ = done;
  ++use_.served;
  const auto at = std::upper_bound(running_.begin(), running_.end(), done,
                                   [](Nanos when, const Running& running) { return when < running.done; });
  running_.insert(at, Running{std::move(slot), done});
}

void VirtualDisk::finish(const Running& running) {
  for (const Member& member : running.slot.members) {
    if (changes_data(running.slot.kind)) unserved_.erase(member.sequence);
    if (!member.told) done_.push_back({member.tag, now_});
  }
}

void VirtualDisk::start_syncs() {
  for (Sync& sync : syncs_) {
    const bool served = unserved_.empty() || *unserved_.begin() > sync.sequence;
    if (served && sync.done == kForever) sync.done = now_ + model_.sync_latency;
  }
}

}  // namespace swale::io
