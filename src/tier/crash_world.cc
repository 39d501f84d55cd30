#include "tier/crash_world.h"

#include <algorithm>

#include "base/crc32c.h"
#include "tier/log_format.h"

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
    case Action::Kind::kErase:
      return "erasure";
    case Action::Kind::kTruncate:
      return "truncate";
    case Action::Kind::kUnlink:
      return "unlink";
    case Action::Kind::kAbandonLog:
      return "abandonment";
    default:
      return "other";
  }
}

}  // namespace

void Image::apply(std::string* to, const Change& change) {
  if (change.resize) {
    to->resize(change.offset);
    return;
  }
  if (to->size() < change.offset + change.bytes.size()) to->resize(change.offset + change.bytes.size());
  to->replace(change.offset, change.bytes.size(), change.bytes);
}

void Image::write(uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return;
  changes_.push_back({offset, std::string(bytes), false});
  apply(&now_, changes_.back());
}

void Image::resize(uint64_t size) {
  changes_.push_back({size, {}, true});
  apply(&now_, changes_.back());
}

void Image::sync() {
  durable_ = now_;
  changes_.clear();
}

void Image::lose_power(Rng* rng) {
  for (Change& change : changes_) {
    if (rng->chance(1, 3)) continue;
    if (!change.resize && rng->chance(1, 3)) change.bytes.resize(rng->below(change.bytes.size() + 1));
    if (!change.resize && change.bytes.empty()) continue;
    apply(&durable_, change);
  }
  now_ = durable_;
  changes_.clear();
}

std::string Image::read(uint64_t offset, uint64_t length) const {
  std::string out(length, '\0');
  if (offset < now_.size()) {
    const uint64_t got = std::min<uint64_t>(length, now_.size() - offset);
    out.replace(0, got, now_, offset, got);
  }
  return out;
}

CrashWorld::CrashWorld(const Options& options, uint64_t seed)
    : options_(options), rng_(seed), names_(kNames) {
  options_.log_id = seed | 1;
  for (uint32_t i = 0; i < options_.segment_count; ++i) {
    std::string header(kSegmentHeaderBytes, '\0');
    encode_segment_header(
        {i, 1, options_.log_id, options_.segment_bytes, options_.segment_count, options_.log_alignment, 0},
        header);
    log_.write(i * options_.segment_bytes, header);
  }
  log_.resize(options_.segment_count * options_.segment_bytes);
  log_.sync();
  for (int name = 0; name < kNames; ++name) names_[name].id = next_id_++;
  start();
}

void CrashWorld::open_name(int name) {
  NamedFile& file = names_[name];
  file.index = engine_->open_file(file.id, file.id * 100'000, backing_[file.id].size());
  file.busy = false;
}

// A process begins: everything that it knows it has from the devices.
void CrashWorld::start() {
  engine_ = std::make_unique<Engine>(options_);
  actions_.clear();
  requests_.clear();
  buffers_.assign(engine_->flush_buffers(), {});
  for (int name = 0; name < kNames; ++name) open_name(name);
  for (auto& [ticket, queued] : queue_) old_queue_.push_back(queued);
  queue_.clear();
  old_queue_at_.clear();
  uint64_t address = options_.segment_count * options_.segment_bytes;
  std::vector<RecordHeader> queued;
  for (size_t i = 0; i < old_queue_.size(); ++i) {
    old_queue_[i].record.address = address;
    old_queue_at_[address] = i;
    queued.push_back(old_queue_[i].record);
    address += kRecordHeaderBytes + old_queue_[i].payload.size();
  }
  std::vector<SegmentScan> scans;
  for (uint32_t i = 0; i < options_.segment_count && !abandoned_; ++i) {
    const SegmentHeader expected{
        i, 0, options_.log_id, options_.segment_bytes, options_.segment_count, options_.log_alignment, 0};
    auto scan = scan_segment(Bytes(log_.bytes()).substr(i * options_.segment_bytes, options_.segment_bytes),
                             expected);
    if (scan.ok()) scans.push_back(std::move(*scan));
  }
  if (!abandoned_) engine_->recover(scans, queued, now_);
  collect();
}

std::string CrashWorld::payload(uint64_t length) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(1 + rng_.below(255));
  return bytes;
}

std::string CrashWorld::request() {
  const Ticket ticket = next_ticket_++;
  const int name = static_cast<int>(rng_.below(kNames));
  NamedFile& file = names_[name];
  if (file.busy) return {};
  const uint64_t dice = rng_.below(100);
  if (dice < 80) {
    // Half of the writes go to few places, so that they overlap.
    const uint64_t offset = rng_.chance(1, 2) ? rng_.below(8) * 150 : rng_.below(kFileBytes - 500);
    Request& request =
        requests_[ticket] = {Request::Kind::kWrite, name, offset, payload(1 + rng_.below(400))};
    engine_->write(ticket, file.index, offset, static_cast<uint32_t>(request.payload.size()), now_);
  } else if (dice < 86) {
    const uint64_t size = rng_.below(kFileBytes);
    requests_[ticket] = {Request::Kind::kTruncate, name, size, {}};
    file.busy = true;  // so that the model needs no order of writes that wait for it
    engine_->truncate(ticket, file.index, size, now_);
  } else if (dice < 89) {
    requests_[ticket] = {Request::Kind::kUnlink, name, 0, {}};
    file.busy = true;
    engine_->unlink(ticket, file.index, now_);
  } else if (dice < 95) {
    requests_[ticket] = {Request::Kind::kSync, name, 0, {}};
    engine_->sync(ticket, file.index, now_);
  } else if (dice < 96) {
    requests_[ticket] = {Request::Kind::kDrain, name, 0, {}};
    engine_->drain(ticket, now_);
  } else {
    engine_->pause_flush(rng_.chance(1, 2), now_);
  }
  return {};
}

void CrashWorld::collect() {
  Action action;
  while (engine_->take_action(&action)) actions_.push_back(action);
}

// A truncate or unlink has failed: it may have happened.
void CrashWorld::make_uncertain(NamedFile* file, uint64_t from) {
  file->uncertain.resize(std::max<uint64_t>(file->uncertain.size(), kFileBytes));
  for (uint64_t i = from; i < file->uncertain.size(); ++i) file->uncertain[i] = true;
}

void CrashWorld::take_write(Ticket ticket, const Request& request, bool ok) {
  NamedFile& file = names_[request.name];
  uint64_t end = request.offset + request.payload.size();
  for (const auto& [cut, size] : file.cuts)
    if (cut > ticket) end = std::min(end, size);
  if (end <= request.offset) return;
  if (file.content.size() < end) file.content.resize(end);
  if (file.uncertain.size() < end) file.uncertain.resize(end);
  if (file.written_by.size() < end) file.written_by.resize(end);
  for (uint64_t i = request.offset; i < end; ++i) {
    if (file.written_by[i] > ticket) continue;
    file.written_by[i] = ticket;
    file.uncertain[i] = !ok;
    if (ok) file.content[i] = request.payload[i - request.offset];
  }
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
  if (request.answered) return "answered twice";
  request.answered = true;
  NamedFile& file = names_[request.name];
  if (action.queued) queue_[action.ticket] = {action.record, request.payload};
  const bool ok = action.code == Code::kOk;
  ok ? ++acknowledged_ : ++refused_;
  switch (request.kind) {
    case Request::Kind::kWrite:
      take_write(action.ticket, request, ok);
      break;
    case Request::Kind::kTruncate:
      file.busy = false;
      if (!ok) {
        make_uncertain(&file, request.offset);
        file.cuts.emplace_back(action.ticket, request.offset);
        break;
      }
      file.content.resize(request.offset);
      file.uncertain.resize(request.offset);
      file.written_by.resize(request.offset);
      file.cuts.emplace_back(action.ticket, request.offset);
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
      file.content.clear();
      file.uncertain.clear();
      file.written_by.clear();
      file.cuts.emplace_back(action.ticket, 0);
      open_name(request.name);
      break;
    default:
      break;
  }
  return {};
}

std::string CrashWorld::read_address(uint64_t address, uint64_t length) const {
  if (address < options_.segment_count * options_.segment_bytes) return log_.read(address, length);
  const auto [start, index] = *std::prev(old_queue_at_.upper_bound(address));
  return old_queue_[index].payload.substr(address - start - kRecordHeaderBytes, length);
}

// Carries out `part` of an action (1: all of it).
void CrashWorld::apply(const Action& action, double part) {
  const auto cut = [part](std::string bytes) {
    bytes.resize(static_cast<size_t>(static_cast<double>(bytes.size()) * part));
    return bytes;
  };
  switch (action.kind) {
    case Action::Kind::kAppend: {
      RecordHeader record = action.record;
      std::string bytes(kRecordHeaderBytes, '\0');
      if (record.has_payload()) {
        const std::string& data = requests_.at(action.ticket).payload;
        record.payload_crc = crc32c(data);
        bytes += data;
      }
      encode_record_header(record, options_.log_id, bytes);
      log_.write(record.address, cut(bytes));
      break;
    }
    case Action::Kind::kReadLog: {
      const FlushPiece& piece = engine_->flush_piece(action.id);
      buffers_[action.id] = read_address(piece.address, piece.length);
      break;
    }
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
    case Action::Kind::kErase: {
      if (action.id == options_.segment_count) {
        if (part == 1) old_queue_.clear(), old_queue_at_.clear();
        break;
      }
      std::string header(kSegmentHeaderBytes, '\0');
      encode_segment_header({action.id, action.generation, options_.log_id, options_.segment_bytes,
                             options_.segment_count, options_.log_alignment, action.size},
                            header);
      if (part == 1) log_.write(action.id * options_.segment_bytes, header);
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
  apply(action, fails ? (rng_.chance(1, 2) ? 0.5 : 0) : 1);
  engine_->completed(action.kind, action.id, fails ? Code::kIoError : Code::kOk, now_);
  collect();
  return {};
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
  if (dice < 55 && !actions_.empty()) {
    if (std::string wrong = perform(rng_.below(actions_.size())); !wrong.empty()) return wrong;
  } else if (dice < 85 && requests_.size() < 24) {
    if (std::string wrong = request(); !wrong.empty()) return wrong;
  } else if (dice < 90) {
    now_ += static_cast<Nanos>(rng_.below(2'000'000'000));
    engine_->advance(now_ - static_cast<Nanos>(rng_.below(1'000'000'000)));  // clocks may go back
  } else {
    const int name = static_cast<int>(rng_.below(kNames));
    if (std::string wrong = check_range(name, rng_.below(kFileBytes), 1 + rng_.below(500)); !wrong.empty())
      return wrong;
  }
  collect();
  return {};
}

std::string CrashWorld::read_file(const NamedFile& file, uint64_t offset, uint64_t length) {
  ReadPlan plan;
  engine_->plan_read(file.index, offset, length, &plan);
  std::string out;
  for (const ReadPiece& piece : plan.pieces) {
    if (piece.offset != offset + out.size()) return "hole";
    if (piece.from == ReadPiece::From::kBacking)
      out += backing_[file.id].read(piece.offset, piece.length);
    else if (piece.from == ReadPiece::From::kLog)
      out += read_address(piece.address, piece.length);
    else if (piece.from == ReadPiece::From::kZeros)
      out.append(piece.length, '\0');
    else
      out += requests_.at(piece.ticket).payload.substr(piece.skip, piece.length);
  }
  engine_->read_done(plan, now_);
  collect();
  return out;
}

std::string CrashWorld::check_bytes(int name, uint64_t offset, Bytes found) const {
  const NamedFile& file = names_[name];
  if (engine_->stats().lost_bytes > 0)
    return {};  // told, by the next sync of the file; the model does not know which
  for (size_t i = 0; i < found.size(); ++i) {
    const uint64_t at = offset + i;
    if (at < file.uncertain.size() && file.uncertain[at]) continue;
    const char promised = at < file.content.size() ? file.content[at] : '\0';
    bool right = found[i] == promised;
    for (const auto& [ticket, request] : requests_) {
      if (right || request.answered || request.name != name) continue;
      if (request.kind == Request::Kind::kWrite)
        right = at >= request.offset && at < request.offset + request.payload.size() &&
                found[i] == request.payload[at - request.offset];
      else if (request.kind == Request::Kind::kTruncate)
        right = at >= request.offset && found[i] == '\0';
      else if (request.kind == Request::Kind::kUnlink)
        right = found[i] == '\0';
    }
    if (!right)
      return fmt::format("file {} byte {}: found {:02x}, promised {:02x}, after {}", name, at,
                         static_cast<unsigned char>(found[i]), static_cast<unsigned char>(promised), last_);
  }
  return {};
}

std::string CrashWorld::check_range(int name, uint64_t offset, uint64_t length) {
  const std::string found = read_file(names_[name], offset, length);
  if (found.size() != length) return fmt::format("read {} of {} bytes", found.size(), length);
  return check_bytes(name, offset, found);
}

std::string CrashWorld::crash() {
  // What was answered is answered; the order of answers and seals is the engine's.
  for (size_t i = 0; i < actions_.size();) {
    if (actions_[i].kind > Action::Kind::kRelease) {
      ++i;
      continue;
    }
    if (rng_.chance(1, 2)) break;
    if (std::string wrong = perform(i); !wrong.empty()) return wrong;
    i = 0;
  }
  ++visited_["after " + last_];
  for (const Action& action : actions_) {
    if (action.kind <= Action::Kind::kRelease || action.kind == Action::Kind::kReadLog) continue;
    const double part = rng_.chance(1, 3)   ? 0
                        : rng_.chance(1, 2) ? 1
                                            : static_cast<double>(rng_.below(100)) / 100;
    ++visited_[std::string(part == 0 ? "without " : part == 1 ? "with " : "torn ") + kind_name(action.kind)];
    apply(action, part);
  }
  if (options_.durability != Durability::kPageCache) {
    log_.lose_power(&rng_);
    for (auto& [id, image] : backing_) image.lose_power(&rng_);
    queue_.clear();
  }
  const auto before = requests_;
  start();
  requests_ = before;  // for what may have happened
  last_ = "recovery";
  for (int name = 0; name < kNames; ++name) {
    NamedFile& file = names_[name];
    const std::string found = read_file(file, 0, kFileBytes);
    if (std::string wrong = check_bytes(name, 0, found); !wrong.empty()) return wrong;
    // What was found is the truth from now on.
    file.content = found;
    file.uncertain.assign(found.size(), false);
    file.written_by.assign(found.size(), 0);
    file.cuts.clear();
  }
  requests_.clear();
  return {};
}

std::string CrashWorld::settle(Drain drain) {
  const Ticket ticket = next_ticket_++;
  requests_[ticket] = {Request::Kind::kDrain, 0, 0, {}};
  engine_->drain(ticket, now_);
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
    now_ = std::max(now_ + 1, next);
    engine_->advance(now_);
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
    const std::string found = backing_[names_[name].id].read(0, kFileBytes);
    if (std::string wrong = check_bytes(name, 0, found); !wrong.empty()) return "backing device: " + wrong;
  }
  return {};
}

}  // namespace swale::tier
