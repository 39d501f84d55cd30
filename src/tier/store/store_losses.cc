// StoreCore: reads that verify, and what they and recovery found to be lost.
#include <cstring>
#include <filesystem>

#include "tier/store/store_core.h"

namespace swale::tier {

Status StoreCore::read_log_bytes(uint64_t address, MutableBytes out) {
  const auto [file, offset] = log_place(address);
  return io::read_exactly(*file, offset, out);
}

Status StoreCore::read_backing(const ReadPiece& piece, io::File* backing, MutableBytes out) {
  SWALE_ASSIGN_OR_RETURN(const size_t got, backing->pread(piece.offset, out));
  std::memset(out.data() + got, 0, out.size() - got);
  return {};
}

// Bytes that the backing device has as well are read there if the log's copy is damaged.
Status StoreCore::read_log_piece(const ReadPiece& piece, io::File* backing, MutableBytes out) {
  if (is_old_queue(piece.address)) return read_log_bytes(piece.address, out);  // checked when it was opened
  const auto damage =
      read_payload([this](uint64_t at, MutableBytes into) { return read_log_bytes(at, into); },
                   opened_.options.engine.log_id, piece.record, piece.address, out);
  if (damage.ok() && damage->ranges.empty()) return {};
  if (piece.on_backing) return read_backing(piece, backing, out);
  if (!damage.ok()) return damage.status();
  const PayloadRange& first = damage->ranges.front();
  return corruption(
      "{}: bytes {} to {} are lost: the record at offset {} of {}, which has their newest version, {}; "
      "overwrite them, or accept the loss with: swale tier recover --accept-loss",
      backing->path(), piece.offset + first.begin, piece.offset + first.end, piece.record.address,
      opened_.log->path(), damage->why);
}

Status StoreCore::lost(const std::string& path, const ReadPiece& piece) const {
  return corruption(
      "{}: bytes {} to {} are lost: {}; overwrite them, or accept the loss with: swale tier recover "
      "--accept-loss",
      path, piece.offset, piece.offset + piece.length, loss_words(piece.reason, piece.address));
}

std::string StoreCore::loss_words(LossReason reason, uint64_t address) const {
  const std::string record = address == LostRange::kNoAddress
                                 ? std::string("a record of an earlier log")
                                 : fmt::format("the record at offset {} of {}", address, opened_.log->path());
  switch (reason) {
    case LossReason::kDamaged:
      return record + ", which had their newest version, is damaged";
    case LossReason::kUnreadable:
      return record + ", which had their newest version, cannot be read";
    case LossReason::kNotWritten:
      return "the backing device refused a write that had been acknowledged";
    case LossReason::kTwoFiles:
      return fmt::format(
          "another file had the same id, so nobody knows whose their newest version in {}/{} is",
          opened_.options.backing_directory, kPrivateDirectory);
  }
  return record;
}

std::vector<Engine::FileRange> StoreCore::damage_of(const FlushPiece& piece, Bytes record) {
  std::vector<Engine::FileRange> ranges;
  const uint64_t end = piece.offset + piece.length;
  if (is_old_queue(piece.address)) {
    if (record.size() < piece.length) ranges.push_back({piece.offset, end});
    return ranges;
  }
  const auto damage =
      verify_payload([this](uint64_t at, MutableBytes into) { return read_log_bytes(at, into); },
                     opened_.options.engine.log_id, piece.record, record, piece.address, piece.length);
  if (!damage.ok()) {
    ranges.push_back({piece.offset, end});
    return ranges;
  }
  for (const PayloadRange& range : damage->ranges)
    ranges.push_back({piece.offset + range.begin, piece.offset + range.end});
  return ranges;
}

Status StoreCore::save_loss_list(const LossList& list) {
  return io::replace_file(device_, losses_path(opened_.options.backing_directory), encode_loss_list(list));
}

std::vector<LostBytes> StoreCore::lost_bytes() {
  std::error_code failed;
  const auto root = std::filesystem::canonical(opened_.options.backing_directory, failed);
  std::map<uint64_t, std::string> names;
  for (const auto& [id, index] : files_.by_id()) {
    const std::filesystem::path path = name_of(index);
    names[id] = failed ? path.string() : path.lexically_relative(root).string();
  }
  std::vector<LostBytes> all;
  for (const LostRange& range : engine_->losses().ranges)
    if (!range.accepted)
      all.push_back({names[range.file], range.offset, range.length, loss_words(range.reason, range.address)});
  return all;
}

std::vector<LostBytes> StoreCore::losses() {
  const MutexLock lock(mutex_);
  return poisoned_.ok() ? lost_bytes() : std::vector<LostBytes>();
}

Status StoreCore::accept_losses() {
  MutexLock lock(mutex_);
  if (!poisoned_.ok()) return poisoned_;
  return ask(~FileIndex{0}, "accepting what is lost", &lock,
             [&](Ticket ticket) REQUIRES(mutex_) { engine_->accept_losses(ticket, now()); });
}

void StoreCore::settle_log(MutexLock* lock) {
  if (!poisoned_.ok()) return;
  // A failure costs nothing that was acknowledged: at most a later damage is taken for a torn write.
  static_cast<void>(ask(~FileIndex{0}, "the mark of a clean end", lock,
                        [&](Ticket ticket) REQUIRES(mutex_) { engine_->settle(ticket, now()); }));
}

}  // namespace swale::tier
