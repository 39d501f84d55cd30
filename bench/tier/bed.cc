#include "bench/tier/bed.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace swale::tierbench {
namespace {

using tier::Action;

constexpr uint64_t kReadTag = 255;  // beside the kinds of actions

io::DiskModel in_order(io::DiskModel model) {  // the engine owns the elevator
  model.order = io::DiskModel::Order::kArrival;
  model.write_done = io::DiskModel::WriteDone::kServed;
  model.slots = 1024;
  model.merge_bytes_max = 0;
  return model;
}

}  // namespace

Bed::Bed(const io::Testbed& bed, const tier::Options& options, std::function<void(tier::Ticket)> acknowledge)
    : disk_(in_order(bed.disk)), ssd_(bed.flash), engine_(options), acknowledge_(std::move(acknowledge)) {}

void Bed::stuck(Nanos now) const {
  std::fprintf(stderr, "bench_tier: nothing will ever happen after %.3f s\n", to_seconds(now));
  std::abort();
}

Nanos Bed::next_event() { return std::min({disk_.next_event(), ssd_.next_event(), engine_.next_event()}); }

void Bed::step(Nanos now) {
  completions_.clear();
  disk_.advance(now, &completions_);
  ssd_.advance(now, &completions_);
  for (const auto& done : completions_) {
    if (done.tag >> 32 == kReadTag) {
      read_part_done(static_cast<uint32_t>(done.tag), now);
    } else {
      engine_.completed(static_cast<Action::Kind>(done.tag >> 32), static_cast<uint32_t>(done.tag), Code::kOk,
                        now);
    }
    carry_out(now);
  }
  if (engine_.next_event() <= now) {
    engine_.advance(now);
    carry_out(now);
  }
}

void Bed::carry_out(Nanos now) {
  for (;;) {
    while (const Action* action = engine_.next_action()) carry_out_one(*action, now);
    if (at_once_.empty()) return;
    const Action action = at_once_.back();
    at_once_.pop_back();
    engine_.completed(action.kind, action.id, Code::kOk, now);
  }
}

void Bed::carry_out_one(const Action& action, Nanos now) {
  const uint64_t tag = static_cast<uint64_t>(action.kind) << 32 | action.id;
  using Kind = io::DiskRequest::Kind;
  switch (action.kind) {
    case Action::Kind::kAcknowledge:
      return acknowledge_(action.ticket);
    case Action::Kind::kRelease:
      return;
    case Action::Kind::kAppend:
      return submit(&ssd_, Kind::kWrite, action.record.address,
                    tier::kRecordHeaderBytes + action.record.length, tag, now);
    case Action::Kind::kReadLog: {
      const auto& piece = engine_.flush_piece(action.id);
      return submit(&ssd_, Kind::kRead, piece.address, piece.length, tag, now);
    }
    case Action::Kind::kWriteBacking: {
      const auto& slot = engine_.slot(action.id);
      return submit(&disk_, Kind::kWrite, slot.position, slot.length, tag, now);
    }
    case Action::Kind::kSyncLog:
      return submit(&ssd_, Kind::kSync, 0, 0, tag, now);
    case Action::Kind::kSyncBacking:
    case Action::Kind::kSyncFile:
      return submit(&disk_, Kind::kSync, 0, 0, tag, now);
    case Action::Kind::kErase:
      return submit(&ssd_, Kind::kWrite, 0, 64, tag, now);
    case Action::Kind::kTruncate:
    case Action::Kind::kUnlink:
      at_once_.push_back(action);
      return;
    default:
      stuck(now);
  }
}

void Bed::submit(io::VirtualDisk* disk, io::DiskRequest::Kind kind, uint64_t offset, uint64_t bytes,
                 uint64_t tag, Nanos now) {
  if (!disk->submit({kind, offset, bytes, io::DiskPriority::kNormal, tag}, now)) stuck(now);
}

void Bed::read(tier::Ticket ticket, tier::FileIndex file, uint64_t offset, uint64_t length, Nanos now) {
  const auto free =
      std::find_if(reads_.begin(), reads_.end(), [](const Read& read) { return read.left == 0; });
  const auto index = static_cast<uint32_t>(free - reads_.begin());
  if (free == reads_.end()) reads_.emplace_back();
  Read& read = reads_[index];
  read.ticket = ticket;
  engine_.plan_read(file, offset, length, &read.plan);
  uint64_t log_bytes = 0, log_address = 0, backing_bytes = 0, backing_offset = 0;
  for (const tier::ReadPiece& piece : read.plan.pieces) {
    if (piece.from == tier::ReadPiece::From::kLog) {
      if (log_bytes == 0) log_address = piece.address;
      log_bytes += piece.length;
    } else if (piece.from == tier::ReadPiece::From::kBacking) {
      if (backing_bytes == 0) backing_offset = piece.offset;
      backing_bytes += piece.length;
    }
  }
  read.left = 1;  // this function
  const uint64_t tag = kReadTag << 32 | index;
  if (log_bytes > 0) {
    ++read.left;
    submit(&ssd_, io::DiskRequest::Kind::kRead, log_address, log_bytes, tag, now);
  }
  if (backing_bytes > 0) {
    ++read.left;
    submit(&disk_, io::DiskRequest::Kind::kRead, engine_.file_base(file) + backing_offset, backing_bytes, tag,
           now);
  }
  read_part_done(index, now);
  carry_out(now);
}

void Bed::read_part_done(uint32_t index, Nanos now) {
  Read& read = reads_[index];
  if (--read.left > 0) return;
  engine_.read_done(read.plan, now);
  acknowledge_(read.ticket);
}

}  // namespace swale::tierbench
