// CrashWorld: what reads give, what they must give, and damage.
#include <algorithm>

#include "tier/engine/testing/crash_world.h"
#include "tier/log/log_read.h"

namespace swale::tier {

void CrashWorld::read_piece(const ReadPiece& piece, const NamedFile& file, ReadBytes* out) {
  std::string bytes(piece.length, '\0');
  std::vector<bool> refused(piece.length, piece.from == ReadPiece::From::kLost);
  switch (piece.from) {
    case ReadPiece::From::kBacking:
      bytes = backing_[file.id].read(piece.offset, piece.length);
      break;
    case ReadPiece::From::kQueue:
      bytes = requests_.at(piece.ticket).payload.substr(piece.skip, piece.length);
      break;
    case ReadPiece::From::kLog: {
      if (piece.address >= options_.segment_count * options_.segment_bytes) {
        bytes = read_queue(piece.address, piece.length);
        break;
      }
      const auto damage = verified(piece.record, piece.address, bytes);
      if (!damage->ranges.empty() && piece.on_backing) {
        bytes = backing_[file.id].read(piece.offset, piece.length);
        break;
      }
      for (const PayloadRange& range : damage->ranges)
        std::fill(refused.begin() + range.begin, refused.begin() + range.end, true);
      break;
    }
    case ReadPiece::From::kZeros:
    case ReadPiece::From::kLost:
      break;
  }
  out->bytes += bytes;
  out->refused.insert(out->refused.end(), refused.begin(), refused.end());
}

CrashWorld::ReadBytes CrashWorld::read_file(const NamedFile& file, uint64_t offset, uint64_t length) {
  ReadPlan plan;
  engine_->plan_read(file.index, offset, length, &plan);
  ReadBytes out;
  for (const ReadPiece& piece : plan.pieces) {
    if (piece.offset != offset + out.bytes.size()) out.wrong = "a hole in a plan of a read";
    read_piece(piece, file, &out);
  }
  if (out.bytes.size() != length) out.wrong = fmt::format("read {} of {} bytes", out.bytes.size(), length);
  engine_->read_done(plan, now_);
  collect();
  if (!broken_.empty()) out.wrong = broken_;
  return out;
}

std::string CrashWorld::check_bytes(int name, uint64_t offset, const ReadBytes& found) {
  if (!found.wrong.empty()) return found.wrong;
  const NamedFile& file = names_[name];
  const auto is = [](const std::vector<bool>& flags, uint64_t at) { return at < flags.size() && flags[at]; };
  for (size_t i = 0; i < found.bytes.size(); ++i) {
    const uint64_t at = offset + i;
    refused_bytes_ += found.refused[i];
    if (is(file.uncertain, at)) continue;
    const char promised = at < file.content.size() ? file.content[at] : '\0';
    bool right = found.refused[i] ? is(file.lost, at) || is(file.damaged, at) || may_refuse_
                                  : !is(file.lost, at) && found.bytes[i] == promised;
    for (const auto& [ticket, request] : requests_) {
      if (right || found.refused[i] || request.answered || request.name != name) continue;
      if (request.kind == Request::Kind::kWrite)
        right = at >= request.offset && at < request.offset + request.payload.size() &&
                found.bytes[i] == request.payload[at - request.offset];
      else if (request.kind == Request::Kind::kTruncate)
        right = at >= request.offset && found.bytes[i] == '\0';
      else if (request.kind == Request::Kind::kUnlink)
        right = found.bytes[i] == '\0';
    }
    if (!right)
      return fmt::format("file {} byte {}: {} {:02x}, promised {}{:02x}, after {}", name, at,
                         found.refused[i] ? "refused" : "found", static_cast<unsigned char>(found.bytes[i]),
                         is(file.lost, at) ? "to refuse " : "", static_cast<unsigned char>(promised), last_);
  }
  return {};
}

std::string CrashWorld::check_range(int name, uint64_t offset, uint64_t length) {
  return check_bytes(name, offset, read_file(names_[name], offset, length));
}

// Whether a truncate has cut all of the file that is behind `size`, or nothing. Bytes that a write under way
// may have changed say nothing.
std::string CrashWorld::check_cut(int name, uint64_t size, const ReadBytes& found) const {
  const NamedFile& file = names_[name];
  std::optional<uint64_t> old_at;
  std::optional<uint64_t> cut_at;
  for (uint64_t at = size; at < found.bytes.size() && at < file.content.size(); ++at) {
    const bool unknown = (at < file.uncertain.size() && file.uncertain[at]) ||
                         (at < file.lost.size() && file.lost[at]) ||
                         (at < file.damaged.size() && file.damaged[at]) || found.refused[at];
    const bool written = std::any_of(requests_.begin(), requests_.end(), [&](const auto& each) {
      const Request& request = each.second;
      return request.name == name && request.kind == Request::Kind::kWrite && !request.answered &&
             at >= request.offset && at < request.offset + request.payload.size();
    });
    if (unknown || written || file.content[at] == '\0') continue;
    (found.bytes[at] == '\0' ? cut_at : old_at) = at;
  }
  if (!old_at || !cut_at) return {};
  return fmt::format("file {}: a truncate to {} has cut byte {}, but not byte {}, after {}", name, size,
                     *cut_at, *old_at, last_);
}

// The file is as it was, or, if only the sync of its cut has failed, cut, and stays so. But a cut that was
// not synced may be undone when the power fails.
std::string CrashWorld::take_failed_truncate(Ticket ticket, const Request& request) {
  NamedFile& file = names_[request.name];
  const ReadBytes found = read_file(file, 0, kFileBytes);
  if (std::string wrong = check_cut(request.name, request.offset, found); !wrong.empty()) return wrong;
  const std::string uncut = check_bytes(request.name, 0, found);
  if (uncut.empty()) {
    ++visited_["truncate failed, and the file is as it was"];
    return {};
  }
  if (failing_.contains(Action::Kind::kTruncate) && !failing_.contains(Action::Kind::kSyncBacking) &&
      !failing_.contains(Action::Kind::kSyncFile))
    return uncut + "; a truncate that was refused has changed the file";
  ++visited_["truncate failed, and the file is cut"];
  file.uncut.reset();
  file.uncut = std::make_shared<NamedFile>(file);
  file.cut_by = ticket;
  cut(&file, ticket, request.offset);
  return check_bytes(request.name, 0, found);
}

// A process has found `found`. A truncate that was under way has happened, or has not.
std::string CrashWorld::check_crash(int name, const ReadBytes& found) {
  for (const auto& [ticket, request] : requests_) {
    if (request.name != name || request.answered || request.kind != Request::Kind::kTruncate) continue;
    if (std::string wrong = check_cut(name, request.offset, found); !wrong.empty()) return wrong;
  }
  const std::string wrong = check_bytes(name, 0, found);
  NamedFile& file = names_[name];
  if (wrong.empty() || !cuts_power() || !file.uncut) return wrong;
  file.content = file.uncut->content;
  file.uncertain = file.uncut->uncertain;
  ++visited_["failed truncate undone by a power cut"];
  return check_bytes(name, 0, found);
}

// After a drain the backing device has everything that reads give.
std::string CrashWorld::check_backing(int name) {
  ReadBytes found = read_file(names_[name], 0, kFileBytes);
  const std::string there = backing_[names_[name].id].read(0, kFileBytes);
  for (size_t i = 0; i < there.size(); ++i)
    if (!found.refused[i]) found.bytes[i] = there[i];
  return check_bytes(name, 0, found);
}

// What was found after a crash is the truth from now on: what was refused stays so until it is overwritten.
void CrashWorld::take_found(NamedFile* file, const ReadBytes& found) {
  file->content = found.bytes;
  file->lost = found.refused;
  file->uncertain.assign(found.bytes.size(), false);
  file->written_by.assign(found.bytes.size(), 0);
  file->synced_by.clear();
  file->told_by.clear();
  file->cuts.clear();
  file->uncut.reset();
}

void CrashWorld::take_sync(NamedFile* file, const std::vector<Ticket>& covered) {
  file->synced_by.resize(std::max(file->synced_by.size(), covered.size()));
  for (size_t i = 0; i < covered.size(); ++i) file->synced_by[i] = std::max(file->synced_by[i], covered[i]);
}

// Without power, the page cache promises only what a sync has covered.
void CrashWorld::forget_unsynced() {
  for (NamedFile& file : names_) {
    file.synced_by.resize(file.written_by.size());
    file.told_by.resize(file.written_by.size());
    for (size_t i = 0; i < file.written_by.size(); ++i)
      if (file.written_by[i] != file.synced_by[i] ||
          (file.told_by[i] != 0 && file.written_by[i] == file.told_by[i]))
        file.uncertain[i] = true;
  }
}

void CrashWorld::damage(uint32_t records) {
  if (records == 0) return;
  // What says that a record was settled must itself outlive the crash.
  const bool kill = options_.durability == Durability::kPageCache;
  std::vector<SegmentScan> scans = scan(kill ? log_.bytes() : log_.durable_bytes());
  take_torn(&scans);
  uint64_t settled = 0;
  std::vector<RecordHeader> candidates;
  for (const SegmentScan& scan : scans) {
    settled = std::max(settled, scan.header.settled);
    for (const RecordHeader& record : scan.records) settled = std::max(settled, record.settled());
  }
  for (const SegmentScan& scan : scans)
    for (const RecordHeader& record : scan.records)
      if (record.sequence <= settled) candidates.push_back(record);
  for (uint32_t i = 0; i < records && !candidates.empty(); ++i) {
    const RecordHeader& record = candidates[rng_.below(candidates.size())];
    if (damaged_records_.insert({record.address, record.sequence}).second) damage_record(record);
  }
}

void CrashWorld::damage_record(const RecordHeader& record) {
  const auto part = static_cast<Part>(rng_.below(record.has_payload() ? 5 : 2));
  const uint64_t payload = record.payload_address();
  const auto flip = [this](uint64_t begin, uint64_t bytes) {
    const uint64_t at = begin + rng_.below(bytes);
    std::string byte = log_.read(at, 1);
    byte[0] = static_cast<char>(byte[0] ^ (1 << rng_.below(8)));
    log_.write(at, byte);
  };
  ++damaged_;
  switch (part) {
    case Part::kHeader:
      ++visited_["damaged header"];
      return flip(record.address, kRecordHeaderBytes);  // the end tells all of it
    case Part::kEnd:
      ++visited_["damaged end"];
      return flip(record.address + record.space(options_.log_alignment) - kRecordHeaderBytes,
                  kRecordHeaderBytes);
    case Part::kChecks:
      if (record.checks_bytes() == 0) return;
      ++visited_["damaged checks"];
      flip(record.address + kRecordHeaderBytes, record.checks_bytes());
      break;
    case Part::kPayload:
      ++visited_["damaged payload"];
      flip(payload, record.length);
      break;
    case Part::kSector: {
      ++visited_["damaged sector"];
      const uint64_t from = rng_.below(record.length);
      log_.write(payload + from, std::string(std::min<uint64_t>(512, record.length - from), '\0'));
      break;
    }
  }
  for (NamedFile& file : names_) {
    if (file.id != record.file) continue;
    file.damaged.resize(std::max<uint64_t>(file.damaged.size(), record.offset + record.length));
    std::fill_n(file.damaged.begin() + static_cast<ptrdiff_t>(record.offset), record.length, true);
  }
}

}  // namespace swale::tier
