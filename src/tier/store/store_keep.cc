#include "tier/store/store_keep.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/log.h"

namespace swale::tier {
namespace {

constexpr std::string_view kKeptPrefix = "kept.";
constexpr std::string_view kUnfinished = ".new";

std::string kept_path(const std::string& backing_directory, uint64_t id) {
  return fmt::format("{}/{}/{}{:016x}", backing_directory, kPrivateDirectory, kKeptPrefix, id);
}

// The newest bytes of each range of a file, and where they are.
class Overlay {
 public:
  struct Part {
    enum class From : uint8_t { kLog, kKept, kLost } from = From::kLog;
    uint64_t length = 0;
    uint64_t at = 0;  // address in the log or the queues, or place in the kept file
    LossReason reason = LossReason::kDamaged;
  };

  void cut(uint64_t from, uint64_t to) {
    auto at = parts_.lower_bound(from);
    if (at != parts_.begin()) --at;
    while (at != parts_.end() && at->first < to) {
      const auto [begin, part] = *at;
      const uint64_t end = begin + part.length;
      if (end <= from) {
        ++at;
        continue;
      }
      at = parts_.erase(at);
      if (begin < from) parts_[begin] = piece(part, 0, from - begin);
      if (end > to) parts_[to] = piece(part, to - begin, end - to);
    }
  }
  void put(uint64_t offset, const Part& part) {
    if (part.length == 0) return;
    cut(offset, offset + part.length);
    parts_[offset] = part;
  }
  const std::map<uint64_t, Part>& parts() const { return parts_; }

 private:
  static Part piece(Part part, uint64_t skip, uint64_t length) {
    part.at += skip;
    part.length = length;
    return part;
  }
  std::map<uint64_t, Part> parts_;
};

struct Item {
  uint64_t sequence = 0;
  int order = 0;  // of one sequence: a loss, the record, an accepted loss
  const RecordHeader* record = nullptr;
  const DamagedRecord* damaged = nullptr;
  const LostRange* range = nullptr;
};

std::vector<Item> items_of(uint64_t id, const OpenedStore& opened) {
  std::vector<Item> items;
  const auto add = [&](const RecordHeader& record, const DamagedRecord* damaged) {
    if (record.file == id && record.type != RecordType::kSettled)
      items.push_back({record.sequence, 1, &record, damaged, nullptr});
  };
  for (const SegmentScan& scan : opened.found.segments) {
    for (const RecordHeader& record : scan.records) add(record, nullptr);
    for (const DamagedRecord& damaged : scan.damaged) add(damaged.header, &damaged);
  }
  for (const RecordHeader& record : opened.found.queued) add(record, nullptr);
  for (const DamagedRecord& damaged : opened.found.queued_damaged) add(damaged.header, &damaged);
  const bool same_log = opened.found.losses.log_id == opened.options.engine.log_id;
  for (const LostRange& range : opened.found.losses.ranges)
    if (range.file == id && (same_log || !range.accepted))
      items.push_back({same_log ? range.sequence : 0, range.accepted ? 2 : 0, nullptr, nullptr, &range});
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.order < b.order;
  });
  return items;
}

void lay_write(const Item& item, Overlay* overlay) {
  const RecordHeader& record = *item.record;
  if (record.offset >= kFileBytesMax - record.length) return;
  overlay->put(record.offset, {Overlay::Part::From::kLog, record.length, record.payload_address()});
  if (item.damaged == nullptr) return;
  for (const PayloadRange& range : item.damaged->ranges)
    overlay->put(record.offset + range.begin,
                 {Overlay::Part::From::kLost, range.end - range.begin, 0, LossReason::kDamaged});
}

// As the engine replays them: Engine::replay.
void lay(const std::vector<Item>& items, Overlay* overlay, std::optional<uint64_t>* truncate) {
  std::unordered_set<uint64_t> ended;
  for (const Item& item : items)
    if (item.record && item.record->type == RecordType::kTruncateCancelled) ended.insert(item.record->offset);
  uint64_t open = 0;  // the sequence of the truncate that has no end
  for (const Item& item : items) {
    if (item.range) {
      overlay->cut(item.range->offset, item.range->offset + item.range->length);
      if (!item.range->accepted)
        overlay->put(item.range->offset,
                     {Overlay::Part::From::kLost, item.range->length, 0, item.range->reason});
      continue;
    }
    const RecordHeader& record = *item.record;
    switch (record.type) {
      case RecordType::kWrite:
      case RecordType::kQueued:
        lay_write(item, overlay);
        break;
      case RecordType::kPunch:
        overlay->cut(record.offset, record.offset + record.length);
        break;
      case RecordType::kTruncate:
        if (ended.contains(record.sequence) || record.offset >= kFileBytesMax) break;
        overlay->cut(record.offset, kFileBytesMax);
        *truncate = record.offset;
        open = record.sequence;
        break;
      case RecordType::kTruncateDone:
        if (record.offset == open) truncate->reset();
        break;
      case RecordType::kUnlink:
        overlay->cut(0, kFileBytesMax);
        break;
      case RecordType::kTruncateCancelled:
      case RecordType::kSettled:
        break;
    }
  }
}

Status read_part(const OpenedStore& opened, io::File* before, const Overlay::Part& part, MutableBytes out) {
  if (part.from == Overlay::Part::From::kKept) return io::read_exactly(*before, part.at, out);
  const Options& engine = opened.options.engine;
  if (part.at < engine.segment_count * engine.segment_bytes)
    return io::read_exactly(*opened.log, part.at, out);
  for (size_t i = opened.old_queues.size(); i-- > 0;)
    if (part.at >= opened.old_queues[i].base)
      return io::read_exactly(*opened.old_queues[i].file, part.at - opened.old_queues[i].base, out);
  return corruption("the log has no address {}", part.at);
}

// Writes the parts behind the head of `file`, and says in *kept where they are.
Status write_parts(const OpenedStore& opened, io::File* before, const Overlay& overlay, io::File& file,
                   KeptFile* kept) {
  uint64_t at = kKeptHeadBytes;
  std::string bytes;
  for (const auto& [offset, part] : overlay.parts()) {
    for (uint64_t done = 0; done < part.length;) {
      const uint64_t length = std::min<uint64_t>(part.length - done, kWriteBytesMax);
      if (part.from == Overlay::Part::From::kLost) {
        kept->lost.push_back({offset + done, length, part.reason});
      } else {
        Overlay::Part piece = part;
        piece.at += done;
        bytes.resize(length);
        SWALE_RETURN_IF_ERROR(read_part(opened, before, piece, bytes));
        SWALE_RETURN_IF_ERROR(file.pwrite(at, bytes));
        kept->ranges.push_back({offset + done, length, at, crc32c(bytes)});
        at += length;
      }
      done += length;
    }
  }
  const std::string document = encode_kept_document(*kept);
  SWALE_RETURN_IF_ERROR(file.pwrite(at, document));
  SWALE_RETURN_IF_ERROR(file.pwrite(0, encode_kept_head(*kept, document, at)));
  return file.sync();
}

KeptBytes words_for(const KeptFile& kept, const std::string& backing_directory, std::string why) {
  const bool here = is_of_root(kept.identity, backing_root(backing_directory));
  return {kept.identity.path,
          kept.file,
          here ? kept.identity.inode : 0,
          here ? kept.identity.born_ns : 0,
          kept.bytes(),
          kept_path(backing_directory, kept.file),
          std::move(why)};
}

// What is kept and fails its checksums.
Status verify_kept(io::File& file, const KeptFile& kept, std::vector<KeptRange>* damaged) {
  std::string bytes;
  for (const KeptRange& range : kept.ranges) {
    bytes.resize(range.length);
    const Status read = io::read_exactly(file, range.at, bytes);
    if (!read.ok() && read.code() != Code::kCorruption) return read;
    if (!read.ok() || crc32c(bytes) != range.crc) damaged->push_back(range);
  }
  return {};
}

Result<KeptFile> read_one(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  std::string head(kKeptHeadBytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file, 0, head));
  SWALE_ASSIGN_OR_RETURN(const KeptHead where, decode_kept_head(head, path));
  std::string document(where.document_bytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file, where.document_at, document));
  return decode_kept(head, document, path);
}

}  // namespace

Result<std::map<uint64_t, FoundKept>> read_kept(io::Device& device, const std::string& backing_directory) {
  std::map<uint64_t, FoundKept> all;
  const std::string own = fmt::format("{}/{}", backing_directory, kPrivateDirectory);
  SWALE_ASSIGN_OR_RETURN(const auto names, device.list(own));
  for (const std::string& name : names) {
    if (!name.starts_with(kKeptPrefix) || name.ends_with(kUnfinished)) continue;
    const uint64_t id = std::strtoull(name.c_str() + kKeptPrefix.size(), nullptr, 16);
    auto kept = read_one(device, own + "/" + name);
    if (!kept.ok() && kept.status().code() != Code::kCorruption) return kept.status();
    FoundKept& found = all[id];
    if (kept.ok() && kept->file == id)
      found.kept = *std::move(kept);
    else
      found.damaged =
          kept.ok() ? corruption("{}/{}: is of file {:016x}", own, name, kept->file) : kept.status();
    found.kept.file = id;
  }
  return all;
}

bool has_news(uint64_t id, OpenedStore* opened) {
  Overlay overlay;
  std::optional<uint64_t> truncate;
  const auto items = items_of(id, *opened);
  lay(items, &overlay, &truncate);
  if (overlay.parts().empty() && !truncate) return false;
  for (const Item& item : items) opened->kept_records += item.record != nullptr;
  return true;
}

Status keep_bytes(uint64_t id, const FileIdentity& identity, const FoundKept* before, std::string why,
                  OpenedStore* opened) {
  const std::string& backing = opened->options.backing_directory;
  const std::string path = kept_path(backing, id);
  io::Device& device = *opened->device;
  KeptFile kept;
  kept.file = id;
  kept.identity = before ? before->kept.identity : identity;
  if (before) kept.truncate = before->kept.truncate;
  Overlay overlay;
  std::unique_ptr<io::File> old;
  if (before) {
    SWALE_ASSIGN_OR_RETURN(old, device.open(path, io::OpenMode::kRead));
    std::vector<KeptRange> damaged;
    SWALE_RETURN_IF_ERROR(verify_kept(*old, before->kept, &damaged));
    for (const KeptRange& range : before->kept.ranges)
      overlay.put(range.offset, {Overlay::Part::From::kKept, range.length, range.at});
    for (const KeptRange& range : damaged)
      overlay.put(range.offset, {Overlay::Part::From::kLost, range.length, 0, LossReason::kDamaged});
    for (const KeptHole& hole : before->kept.lost)
      overlay.put(hole.offset, {Overlay::Part::From::kLost, hole.length, 0, hole.reason});
  }
  lay(items_of(id, *opened), &overlay, &kept.truncate);
  if (overlay.parts().empty() && !kept.truncate) return {};  // nothing of it is newer than the file was
  const std::string fresh = path + std::string(kUnfinished);
  if (const Status removed = device.remove(fresh); !removed.ok() && removed.code() != Code::kNotFound)
    return removed;
  {
    SWALE_ASSIGN_OR_RETURN(const auto file, device.open(fresh, io::OpenMode::kCreate));
    SWALE_RETURN_IF_ERROR(write_parts(*opened, old.get(), overlay, *file, &kept));
  }
  SWALE_RETURN_IF_ERROR(device.rename(fresh, path));
  SWALE_RETURN_IF_ERROR(device.sync_directory(io::parent_directory(path)));
  static_cast<void>(has_news(id, opened));
  name_kept(kept, std::move(why), opened);
  return {};
}

void name_kept(const KeptFile& kept, std::string why, OpenedStore* opened) {
  opened->report.kept.push_back(words_for(kept, opened->options.backing_directory, std::move(why)));
}

Status bring_bytes(const FoundKept& found, io::File& file, OpenedStore* opened) {
  SWALE_RETURN_IF_ERROR(found.damaged);
  const KeptFile& kept = found.kept;
  const std::string& backing = opened->options.backing_directory;
  const std::string path = kept_path(backing, kept.file);
  SWALE_ASSIGN_OR_RETURN(const auto from, opened->device->open(path, io::OpenMode::kRead));
  std::vector<KeptHole> lost = kept.lost;
  std::string bytes;
  for (const KeptRange& range : kept.ranges) {
    bytes.resize(range.length);
    const Status read = io::read_exactly(*from, range.at, bytes);
    if (!read.ok() && read.code() != Code::kCorruption) return read;
    if (!read.ok() || crc32c(bytes) != range.crc) {
      lost.push_back({range.offset, range.length, LossReason::kDamaged});
      continue;
    }
    SWALE_RETURN_IF_ERROR(file.pwrite(range.offset, bytes));
    opened->report.brought_bytes += range.length;
  }
  if (kept.truncate) SWALE_RETURN_IF_ERROR(file.truncate(*kept.truncate));
  SWALE_RETURN_IF_ERROR(file.sync());
  LossList& losses = opened->found.losses;
  if (!lost.empty()) {
    if (losses.ranges.empty()) losses.log_id = opened->options.engine.log_id;
    for (const KeptHole& hole : lost)  // older than what the log has of the file
      losses.ranges.push_back({.file = kept.file,
                               .offset = hole.offset,
                               .length = hole.length,
                               .address = LostRange::kNoAddress,
                               .reason = hole.reason});
    SWALE_RETURN_IF_ERROR(io::replace_file(*opened->device, losses_path(backing), encode_loss_list(losses)));
  }
  SWALE_RETURN_IF_ERROR(opened->device->remove(path));
  return opened->device->sync_directory(io::parent_directory(path));
}

Status give_up_kept(const FoundKept& found, OpenedStore* opened) {
  const std::string& backing = opened->options.backing_directory;
  const std::string path = kept_path(backing, found.kept.file);
  SWALE_RETURN_IF_ERROR(opened->device->remove(path));
  opened->report.lost.push_back(
      {found.kept.identity.path, 0, found.kept.bytes(),
       fmt::format("{} is removed: what it kept of file {:016x} is given up", path, found.kept.file)});
  return opened->device->sync_directory(io::parent_directory(path));
}

Status KeptBytes::text() const {
  return corruption(
      "{}: {} acknowledged bytes of this file (id {:016x}) are kept in {}, because {}; let it be found and "
      "opened by its owner (chmod u+rwx its folders, chmod u+rw the file; of a copy without attributes: "
      "setfattr), and start again, which brings them to it, or give them up: swale tier recover "
      "--accept-loss",
      path.empty() ? "a file that nobody can name" : path, bytes, file, kept_in, why);
}

Result<std::vector<KeptBytes>> Store::kept(io::Device& device, const std::string& backing_directory) {
  std::vector<KeptBytes> all;
  const auto found = read_kept(device, backing_directory);
  if (!found.ok() && found.status().code() == Code::kNotFound) return all;
  if (!found.ok()) return found.status();
  for (const auto& [id, each] : *found)
    all.push_back(
        words_for(each.kept, backing_directory,
                  each.damaged.ok() ? "an opening did not find it" : std::string(each.damaged.message())));
  return all;
}

}  // namespace swale::tier
