#include "tier/engine/testing/crash_world.h"

#include <algorithm>

#include "base/crc32c.h"
#include "tier/log/log_format.h"

namespace swale::tier {
namespace {

const char* kind_name(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::kAppend:
      return "append";
    case Action::Kind::kReadLog:
      return "read of the log";
    case Action::Kind::kWriteBacking:
      return "backing write";
    case Action::Kind::kSyncLog:
      return "sync of the log";
    case Action::Kind::kSyncBacking:
      return "sync of the backing device";
    case Action::Kind::kSyncFile:
      return "sync of a file";
    case Action::Kind::kErase:
      return "erasure";
    case Action::Kind::kTruncate:
      return "truncate";
    case Action::Kind::kUnlink:
      return "unlink";
    case Action::Kind::kAbandonLog:
      return "abandonment";
    case Action::Kind::kSaveLosses:
      return "list of losses";
    default:
      return "other";
  }
}

}  // namespace

CrashWorld::CrashWorld(const Options& options, uint64_t seed)
    : options_(options), rng_(seed), names_(kNames) {
  options_.log_id = seed | 1;
  make_log();
  for (int name = 0; name < kNames; ++name) names_[name].id = next_id_++;
  start();
}

std::string CrashWorld::payload(uint64_t length) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(1 + rng_.below(255));
  return bytes;
}

void CrashWorld::write(int name, uint64_t offset, uint64_t length) {
  const Ticket ticket = next_ticket_++;
  requests_[ticket] = {Request::Kind::kWrite, name, offset, payload(length)};
  engine_->write(ticket, names_[name].index, offset, static_cast<uint32_t>(length), clock());
}

void CrashWorld::truncate(int name, uint64_t size) {
  const Ticket ticket = next_ticket_++;
  requests_[ticket] = {Request::Kind::kTruncate, name, size, {}};
  names_[name].busy = true;  // so that the model needs no order of writes that wait for it
  engine_->truncate(ticket, names_[name].index, size, clock());
}

std::string CrashWorld::request() {
  const int name = static_cast<int>(rng_.below(kNames));
  NamedFile& file = names_[name];
  if (file.busy) return {};
  uint64_t dice = rng_.below(100);
  if (cut_power_ && dice >= 80 && dice < 89) dice = 90;  // sizes have no tickets
  if (dice < 80) {
    // Half of the writes go to few places, so that they overlap.
    const bool same = repeat_ranges_ && rng_.chance(7, 8);
    const uint64_t offset = same                ? rng_.below(2) * 150
                            : rng_.chance(1, 2) ? rng_.below(8) * 150
                                                : rng_.below(kFileBytes - 500);
    const bool long_one = options_.segment_bytes > 8192 && rng_.chance(1, 4);  // of several checked blocks
    const uint64_t length = same ? 150 : 1 + rng_.below(long_one ? kFileBytes - offset : 400);
    write(name, offset, length);
  } else if (dice < 86) {
    truncate(name, rng_.below(kFileBytes));
  } else if (dice < 89) {
    requests_[next_ticket_] = {Request::Kind::kUnlink, name, 0, {}};
    file.busy = true;
    engine_->unlink(next_ticket_++, file.index, clock());
  } else if (dice < 95) {
    requests_[next_ticket_] = {Request::Kind::kSync, name, 0, {}, false, file.written_by};
    engine_->sync(next_ticket_++, file.index, clock());
  } else if (dice < 96) {
    requests_[next_ticket_] = {Request::Kind::kDrain, name, 0, {}};
    engine_->drain(next_ticket_++, clock());
  } else {
    engine_->pause_flush(rng_.chance(1, 2), clock());
  }
  return {};
}

void CrashWorld::collect() {
  while (const Action* action = engine_->next_action()) actions_.push_back(*action);
}

// An unlink has failed: it may have happened.
void CrashWorld::make_uncertain(NamedFile* file, uint64_t from) {
  file->uncertain.resize(std::max<uint64_t>(file->uncertain.size(), kFileBytes));
  for (uint64_t i = from; i < file->uncertain.size(); ++i) file->uncertain[i] = true;
}

void CrashWorld::take_write(NamedFile* named, Ticket ticket, const Request& request, bool ok) {
  NamedFile& file = *named;
  // A write that came before a failed truncate may be answered after it, and stands whether the cut does or
  // not.
  if (file.uncut && ticket < file.cut_by) take_write(file.uncut.get(), ticket, request, ok);
  uint64_t end = request.offset + request.payload.size();
  for (const auto& [cut, size] : file.cuts)
    if (cut > ticket) end = std::min(end, size);
  if (end <= request.offset) return;
  // Nothing brings back what was cut from under an acknowledged write that came later.
  if (ok && ticket > file.cut_by) file.uncut.reset();
  if (file.content.size() < end) file.content.resize(end);
  if (file.uncertain.size() < end) file.uncertain.resize(end);
  if (file.written_by.size() < end) file.written_by.resize(end);
  for (uint64_t i = request.offset; i < end; ++i) {
    if (file.written_by[i] > ticket) continue;
    file.written_by[i] = ticket;
    file.uncertain[i] = !ok;
    if (ok && i < file.lost.size()) file.lost[i] = false;
    if (ok && i < file.damaged.size()) file.damaged[i] = false;
    if (ok) file.content[i] = request.payload[i - request.offset];
  }
}

void CrashWorld::cut(NamedFile* file, Ticket ticket, uint64_t size) {
  file->content.resize(size);
  if (file->lost.size() > size) file->lost.resize(size);
  file->uncertain.resize(size);
  file->written_by.resize(size);
  file->cuts.emplace_back(ticket, size);
}

std::string CrashWorld::answer(const Action& action) {
  if (action.ticket == kRecoveryTicket) return {};
  const auto found = requests_.find(action.ticket);
  if (found == requests_.end()) return "an answer to nobody";
  Request& request = found->second;
  if (action.kind == Action::Kind::kRelease) {
    queue_.erase(action.ticket);
    if (!request.answered) return "released before it was answered";
    requests_.erase(found);
    return {};
  }
  if (action.released) {  // as two actions, one after the other
    Action part = action;
    part.released = false;
    if (std::string wrong = answer(part); !wrong.empty()) return wrong;
    part.kind = Action::Kind::kRelease;
    return answer(part);
  }
  if (request.answered) return "answered twice";
  request.answered = true;
  NamedFile& file = names_[request.name];
  if (action.queued) queue_[action.ticket] = {action.record, request.payload};
  const bool ok = action.code == Code::kOk;
  ok ? ++acknowledged_ : ++refused_;
  switch (request.kind) {
    case Request::Kind::kWrite:
      take_write(&file, action.ticket, request, ok);
      break;
    case Request::Kind::kTruncate:
      file.busy = false;
      // One that fails while it waits for the cut of another one says nothing of that cut.
      if (!ok) return take_failed_truncate(action.ticket, request);
      file.uncut.reset();
      cut(&file, action.ticket, request.offset);
      if (engine_->file_size(file.index) != request.offset) return "wrong size after a truncate";
      break;
    case Request::Kind::kUnlink:
      if (!ok) {
        file.busy = false;
        make_uncertain(&file, 0);
        file.cuts.emplace_back(action.ticket, 0);
        break;
      }
      file.id = next_id_++;
      file.uncut.reset();
      file.content.clear();
      file.lost.clear();
      file.uncertain.clear();
      file.written_by.clear();
      file.cuts.emplace_back(action.ticket, 0);
      open_name(request.name);
      break;
    case Request::Kind::kSync:
      if (ok) take_sync(&file, request.covered);
      if (!ok) file.told_by = file.written_by;
      break;
    default:
      break;
  }
  return {};
}

// Of an old queue.
std::string CrashWorld::read_queue(uint64_t address, uint64_t length) {
  const auto behind = old_queue_at_.upper_bound(address);
  if (behind == old_queue_at_.begin()) {
    broken_ = fmt::format("the old queue is read at {}, but it is erased", address);
    return std::string(length, '\0');
  }
  const Queued& queued = old_queue_[std::prev(behind)->second];
  return queued.payload.substr(address - queued.record.payload_address(), length);
}

void CrashWorld::write_record(const Action& action, double part) {
  RecordHeader record = action.record;
  std::string bytes(record.space(options_.log_alignment), '\0');
  if (record.has_payload()) {
    const std::string& data = requests_.at(action.ticket).payload;
    const std::span all(bytes);
    record.check = make_checks(data, all.subspan(kRecordHeaderBytes, record.checks_bytes()));
    bytes.replace(record.head_bytes(), data.size(), data);
  }
  encode_record_header(record, options_.log_id, bytes);
  encode_record_end(record, options_.log_id, std::span(bytes).subspan(bytes.size() - kRecordHeaderBytes));
  bytes.resize(static_cast<size_t>(static_cast<double>(bytes.size()) * part));
  log_.write(record.address, bytes);
}

Result<LogDamage> CrashWorld::verified(const RecordPlace& place, uint64_t address, MutableBytes out) const {
  return read_payload(
      [this](uint64_t at, MutableBytes bytes) {
        log_.read(at, bytes.size()).copy(bytes.data(), bytes.size());
        return Status();
      },
      options_.log_id, place, address, out);
}

// What a flush reads. Damage is kept for the completion.
void CrashWorld::read_log(uint32_t id) {
  const FlushPiece& piece = engine_->flush_piece(id);
  std::string& buffer = buffers_[id];
  if (piece.address >= options_.segment_count * options_.segment_bytes) {
    buffer = read_queue(piece.address, piece.length);
    return;
  }
  buffer.resize(piece.length);
  const auto damage = verified(piece.record, piece.address, buffer);
  for (const PayloadRange& range : damage->ranges)
    damaged_reads_[id].push_back({piece.offset + range.begin, piece.offset + range.end});
}

// Carries out `part` of an action (1: all of it).
void CrashWorld::apply(const Action& action, double part) {
  const auto cut = [part](std::string bytes) {
    bytes.resize(static_cast<size_t>(static_cast<double>(bytes.size()) * part));
    return bytes;
  };
  switch (action.kind) {
    case Action::Kind::kAppend:
      write_record(action, part);
      break;
    case Action::Kind::kReadLog:
      read_log(action.id);
      break;
    case Action::Kind::kSaveLosses:  // one file is replaced by another
      if (part == 1) saved_losses_ = *decode_loss_list(encode_loss_list(engine_->losses_to_save()), "losses");
      break;
    case Action::Kind::kWriteBacking: {
      const Slot& slot = engine_->slot(action.id);
      std::string bytes;
      for (const Piece& piece : slot.pieces)
        bytes +=
            piece.source == Piece::Source::kRequest ? requests_.at(piece.ticket).payload : buffers_[piece.op];
      backing_[engine_->file_id(slot.file)].write(slot.offset, cut(bytes));
      break;
    }
    case Action::Kind::kSyncLog:
      if (part == 1) log_.sync();
      break;
    case Action::Kind::kSyncBacking:
      if (part == 1)
        for (auto& [id, image] : backing_) image.sync();
      break;
    case Action::Kind::kSyncFile:
      if (part == 1) backing_[engine_->file_id(action.file)].sync();
      break;
    case Action::Kind::kErase: {
      if (action.id == options_.segment_count) {
        if (part == 1) old_queue_.clear(), old_queue_at_.clear();
        break;
      }
      SegmentHeader header = segment_header(action.id);
      header.generation = action.generation;
      header.sequence = action.size;
      header.settled = action.settled;
      write_segment_headers(header, part);
      break;
    }
    case Action::Kind::kTruncate:
      if (part == 1) backing_[engine_->file_id(action.file)].resize(action.size);
      break;
    case Action::Kind::kUnlink:
      if (part == 1) backing_.erase(engine_->file_id(action.file));
      break;
    case Action::Kind::kAbandonLog:
      if (part < 1) break;
      for (auto& [id, image] : backing_) image.sync();
      old_queue_.clear(), old_queue_at_.clear();  // flushed; the mark makes them void
      abandoned_ = true;
      break;
    default:
      break;
  }
}

std::string CrashWorld::perform(size_t position) {
  const Action action = actions_[position];
  actions_.erase(actions_.begin() + static_cast<ptrdiff_t>(position));
  if (action.kind <= Action::Kind::kRelease) return answer(action);
  last_ = kind_name(action.kind);
  const bool fails = failing_.contains(action.kind);
  // A failed append may stand in the log all the same.
  const double part =
      !fails ? 1 : static_cast<double>(rng_.below(action.kind == Action::Kind::kAppend ? 3 : 2)) / 2;
  if (fails) ++visited_["failed " + last_];
  apply(action, part);
  const auto syncs = [&](uint64_t id) {
    return action.kind == Action::Kind::kSyncBacking || action.kind == Action::Kind::kAbandonLog ||
           (action.kind == Action::Kind::kSyncFile && id == engine_->file_id(action.file));
  };
  for (auto& [id, image] : backing_)
    if (fails && syncs(id)) image.fail_sync();
  for (NamedFile& file : names_)
    if (!fails && syncs(file.id)) file.uncut.reset();  // no power cut undoes what was cut
  if (fails && action.kind == Action::Kind::kSyncLog) log_.fail_sync();
  const auto damage =
      damaged_reads_.extract(action.kind == Action::Kind::kReadLog ? action.id : ~uint32_t{0});
  if (!fails && !damage.empty())
    engine_->read_damaged(action.id, damage.mapped(), clock());
  else
    engine_->completed(action.kind, action.id, fails ? Code::kIoError : Code::kOk, clock());
  collect();
  return broken_;
}

// The actions that no hanging device holds up.
std::vector<size_t> CrashWorld::performable() const {
  std::vector<size_t> ready;
  for (size_t i = 0; i < actions_.size(); ++i)
    if (!hanging_.contains(actions_[i].kind)) ready.push_back(i);
  return ready;
}

std::string CrashWorld::step() {
  // Answers come in their order, and before anything that was emitted after them.
  for (size_t i = 0; i < actions_.size();) {
    if (actions_[i].kind > Action::Kind::kRelease) {
      ++i;
      continue;
    }
    if (std::string wrong = perform(i); !wrong.empty()) return wrong;
    i = 0;
  }
  const uint64_t dice = rng_.below(100);
  if (const auto ready = performable(); dice < 55 && !ready.empty()) {
    if (std::string wrong = perform(ready[rng_.below(ready.size())]); !wrong.empty()) return wrong;
  } else if (dice < 85 && requests_.size() < 24) {
    if (std::string wrong = request(); !wrong.empty()) return wrong;
  } else if (dice < 90) {
    now_ += static_cast<Nanos>(rng_.below(2'000'000'000));
    engine_->advance(clock() - static_cast<Nanos>(rng_.below(1'000'000'000)));  // clocks may go back
  } else {
    const int name = static_cast<int>(rng_.below(kNames));
    if (std::string wrong = check_range(name, rng_.below(kFileBytes), 1 + rng_.below(500)); !wrong.empty())
      return wrong;
  }
  collect();
  return {};
}

std::string CrashWorld::crash(uint32_t damages) {
  // What was answered is answered; the order of answers and seals is the engine's. A driver that is killed
  // between two answers has begun nothing that was emitted after them (StoreCore::collect).
  size_t begun = 0;
  while (begun < actions_.size()) {
    if (actions_[begun].kind > Action::Kind::kRelease) {
      ++begun;
      continue;
    }
    if (rng_.chance(1, 2)) break;
    if (std::string wrong = perform(begun); !wrong.empty()) return wrong;
    begun = 0;
  }
  ++visited_["after " + last_];
  for (size_t i = 0; i < begun; ++i) {
    const Action& action = actions_[i];
    if (action.kind == Action::Kind::kReadLog) continue;
    const double part = rng_.chance(1, 3)   ? 0
                        : rng_.chance(1, 2) ? 1
                                            : static_cast<double>(rng_.below(100)) / 100;
    ++visited_[std::string(part == 0 ? "without " : part == 1 ? "with " : "torn ") + kind_name(action.kind)];
    apply(action, part);
  }
  if (cut_power_ && options_.durability == Durability::kPageCache) forget_unsynced();
  if (cuts_power()) {
    log_.lose_power(&rng_);
    for (auto& [id, image] : backing_) image.lose_power(&rng_);
    queue_.clear();
  }
  damage(damages);
  log_.sync();
  if (rng_.chance(1, 4) && !abandoned_ && !options_.canaries.poison_torn) recover_in_part();
  const auto before = requests_;
  start();
  requests_ = before;  // for what may have happened
  last_ = "recovery";
  for (int name = 0; name < kNames; ++name) {
    const ReadBytes found = read_file(names_[name], 0, kFileBytes);
    if (std::string wrong = check_crash(name, found); !wrong.empty()) return wrong;
    take_found(&names_[name], found);
  }
  requests_.clear();
  return {};
}

std::string CrashWorld::accept() {
  const Ticket ticket = next_ticket_++;
  requests_[ticket] = {Request::Kind::kDrain, 0, 0, {}};
  engine_->accept_losses(ticket, clock());
  if (std::string wrong = settle(Drain::kNobodyLooks); !wrong.empty()) return wrong;
  if (requests_.contains(ticket)) return "the acceptance was never answered";
  for (int name = 0; name < kNames; ++name) {
    const ReadBytes found = read_file(names_[name], 0, kFileBytes);
    for (const bool refused : found.refused)
      if (refused) return "a read is refused after its loss was accepted";
    NamedFile& file = names_[name];
    file.lost.clear();  // the backing device's bytes are the truth from now on
    take_found(&file, found);
  }
  return {};
}

std::string CrashWorld::settle(Drain drain) {
  const Ticket ticket = next_ticket_++;
  requests_[ticket] = {Request::Kind::kDrain, 0, 0, {}};
  engine_->drain(ticket, clock());
  const Nanos began = now_;
  collect();
  for (int i = 0; requests_.size() > 0 || !actions_.empty(); ++i) {
    if (i > 20'000)
      return fmt::format("{} requests are never answered: {}", requests_.size(), engine_->describe());
    if (!actions_.empty()) {
      size_t position = 0;
      for (size_t at = 0; at < actions_.size(); ++at)
        if (actions_[at].kind <= Action::Kind::kRelease) {
          position = at;
          break;
        }
      if (std::string wrong = perform(position); !wrong.empty()) return wrong;
      continue;
    }
    const Nanos next = engine_->next_event();
    if (next == kForever)
      return fmt::format("{} requests wait for nothing: {}", requests_.size(), engine_->describe());
    now_ = std::max(now_ + 1, next - clock_offset_);
    if (now_ - began > kWaitMax) return fmt::format("requests wait for {} s", to_seconds(now_ - began));
    engine_->advance(clock());
    collect();
  }
  if (drain == Drain::kNobodyLooks) return {};
  if (engine_->stats().dirty_bytes > 0) {
    // The device failed while this drain went on.
    if (drain == Drain::kMayFail || drain_again_++ < 3) return settle(drain);
    return "dirty after a drain";
  }
  drain_again_ = 0;
  last_ = "drain";
  for (int name = 0; name < kNames; ++name) {
    if (std::string wrong = check_range(name, 0, kFileBytes); !wrong.empty()) return wrong;
    if (std::string wrong = check_backing(name); !wrong.empty()) return "backing device: " + wrong;
  }
  return {};
}

}  // namespace swale::tier
