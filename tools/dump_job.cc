#include <algorithm>
#include <functional>
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "imd/format/attributes.h"
#include "imd/format/epoch_log.h"
#include "imd/format/extrema_summary.h"
#include "imd/format/stats_log.h"
#include "tools/bytes_text.h"
#include "tools/dump.h"

namespace swale::tools {
namespace {

Json record_json(const imd::EpochSlot& slot, uint64_t offset) {
  const imd::EpochEntry& epoch = slot.epoch;
  Json json = {{"what", "epoch"},
               {"offset", offset},
               {"epoch", epoch.epoch.value()},
               {"job", slot.job},
               {"epoch_id", hex16(epoch.epoch_id)},
               {"step", epoch.step},
               {"time", epoch.time},
               {"records", epoch.records},
               {"data_bytes", epoch.data_bytes},
               {"digest", hex16(epoch.digest)}};
  if (epoch.large.values != 0) {
    json["large_values"] = epoch.large.values;
    json["large_bytes"] = epoch.large.bytes;
  }
  if (epoch.summary.bytes != 0) {
    json["summary"] = {
        {"job", epoch.summary.job}, {"offset", epoch.summary.offset}, {"bytes", epoch.summary.bytes}};
  }
  if (epoch.attributes.bytes != 0) {
    json["attributes"] = {{"job", epoch.attributes.job},
                          {"offset", epoch.attributes.offset},
                          {"bytes", epoch.attributes.bytes}};
  }
  if (epoch.described_by) json["described_by"] = epoch.described_by->value();
  if (epoch.origin != 0) json["origin"] = epoch.origin;
  if (epoch.freed) json["freed"] = true;
  if (epoch.recovered != imd::Recovered::kNo) json["recovered"] = imd::recovered_name(epoch.recovered);
  return json;
}

// Reads a file from front to end, a chunk at a time.
class Window {
 public:
  // `need`: the longest thing in the file.
  Window(io::File& file, size_t need) : file_(file), need_(need) {}

  // The bytes from `offset` on: at least `need`, or all up to the end. Offsets never decrease.
  Result<Bytes> from(uint64_t offset) {
    if (!at_end_ && offset + need_ > begin_ + bytes_.size()) {
      bytes_.resize(need_ + kMiB);
      SWALE_ASSIGN_OR_RETURN(const size_t got, file_.pread(offset, bytes_));
      at_end_ = got < bytes_.size();
      bytes_.resize(got);
      begin_ = offset;
    }
    return Bytes(bytes_).substr(std::min<uint64_t>(offset - begin_, bytes_.size()));
  }
  bool at_end() const { return at_end_; }

 private:
  io::File& file_;
  const size_t need_;
  std::string bytes_;
  uint64_t begin_ = 0;
  bool at_end_ = false;
};

class EpochLogDump {
 public:
  EpochLogDump(std::string path, DumpOutput* out) : path_(std::move(path)), out_(*out) {}

  void take(Bytes slot) {
    const uint64_t offset = index_ * imd::kEpochSlotBytes;
    const imd::EpochSlot found = imd::inspect_epoch_slot(slot, index_++);
    if (found.kind == imd::EpochSlot::Kind::kUnknown) {
      if (unknown_slots_ == 0) unknown_offset_ = offset;
      ++unknown_slots_;
      unknown_bytes_ += slot.size();
      return;
    }
    end_gap(/*at_end=*/false);
    if (found.kind == imd::EpochSlot::Kind::kHeader) {
      out_.line({{"what", "header"}, {"offset", offset}, {"version", found.version}, {"job", found.job}});
    } else {
      out_.line(record_json(found, offset));
    }
    for (size_t copy = 0; copy < found.whole.size(); ++copy) {
      if (found.whole[copy]) continue;
      const uint64_t at = offset + copy * imd::kEpochRecordBytes;
      out_.damage(at, corruption("{}: offset {}: copy {} of the record is damaged, the other one is whole",
                                 path_, at, copy + 1));
    }
  }

  void finish() { end_gap(/*at_end=*/true); }

 private:
  // Slots without a whole copy: at the log's end an incomplete write, elsewhere damage.
  void end_gap(bool at_end) {
    if (unknown_slots_ == 0) return;
    const bool torn = at_end && unknown_slots_ == 1 && unknown_offset_ != 0;
    if (torn) {
      out_.line({{"what", "torn"}, {"offset", unknown_offset_}, {"bytes", unknown_bytes_}});
    } else {
      out_.damage(unknown_offset_, corruption("{}: offset {}: {} slots hold no whole record", path_,
                                              unknown_offset_, unknown_slots_));
    }
    unknown_slots_ = unknown_bytes_ = 0;
  }

  const std::string path_;
  DumpOutput& out_;
  uint64_t index_ = 0;
  uint64_t unknown_offset_ = 0;
  uint64_t unknown_slots_ = 0;
  uint64_t unknown_bytes_ = 0;
};

void show_summary(const imd::ExtremaSummary& summary, uint64_t offset, uint64_t epoch_id, DumpOutput* out) {
  for (size_t f = 0; f < summary.fields.size(); ++f) {
    const auto& field = summary.fields[f];
    out->line({{"what", "summary"},
               {"offset", offset},
               {"epoch_id", hex16(epoch_id)},
               {"field", f},
               {"nans", field.nans},
               {"absent", field.absent},
               {"partitions", field.partitions}});
    for (const auto& [name, which] : {std::pair{"maximum", 0}, std::pair{"minimum", 1}}) {
      for (const auto& entry : field.best[which]) {
        out->line({{"what", name},
                   {"field", f},
                   {"partition", entry.partition.value()},
                   {"key", hex16(entry.key)}});
      }
    }
  }
}

// The length of the summary that begins here, from its own head; 0: none begins here.
size_t summary_length(Bytes bytes, uint64_t* epoch_id) {
  Decoder in(bytes);
  if (in.u64() != imd::kSummaryMagic) return 0;
  in.u32();
  *epoch_id = in.u64();
  imd::ExtremaSummary::read(&in);
  in.u32();
  return in.ok() ? in.offset() : 0;
}

// The next place after the first byte where a summary may begin.
size_t next_summary(Bytes bytes) {
  std::string magic;
  append_u64(&magic, imd::kSummaryMagic);
  const size_t found = bytes.find(magic, 1);
  if (found != Bytes::npos) return found;
  // Its first bytes may be the last ones of this chunk.
  return bytes.size() <= magic.size() ? bytes.size() : bytes.size() - magic.size() + 1;
}

// Shows the lines of a file unchanged. The last one may be torn. `check`: of a line at an offset.
Status dump_lines(io::Device& device, const std::string& path, std::string_view what, size_t line_bytes_max,
                  const std::function<Status(Bytes line, uint64_t offset)>& check, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  Window window(*file, line_bytes_max);
  for (uint64_t at = 0;;) {
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, window.from(at));
    if (bytes.empty()) return {};
    const size_t feed = bytes.find('\n');
    const Bytes line = bytes.substr(0, feed == Bytes::npos ? bytes.size() : feed + 1);
    if (feed == Bytes::npos && window.at_end()) {
      out->line({{"what", "torn"}, {"offset", at}, {"bytes", line.size()}});
    } else if (const Status checked = check(line, at); checked.ok()) {
      out->line({{"what", what},
                 {"offset", at},
                 {"content", Json::parse(line, nullptr, /*allow_exceptions=*/false)}});
    } else {
      out->damage(at, checked);
    }
    at += line.size();
  }
}

}  // namespace

Status dump_epoch_log(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t file_bytes, file->size());
  const uint64_t size = std::min(file_bytes, (imd::kEpochsMax + 1) * imd::kEpochSlotBytes);
  std::string chunk;
  EpochLogDump dump(path, out);
  for (uint64_t at = 0; at < size;) {
    chunk.resize(std::min<uint64_t>(kMiB, size - at));
    SWALE_RETURN_IF_ERROR(io::read_exactly(*file, at, chunk));
    out->progress(at, size);
    for (size_t slot = 0; slot < chunk.size(); slot += imd::kEpochSlotBytes)
      dump.take(Bytes(chunk).substr(slot, imd::kEpochSlotBytes));
    at += chunk.size();
  }
  dump.finish();
  if (size < file_bytes) out->line({{"what", "rest"}, {"offset", size}, {"bytes", file_bytes - size}});
  return {};
}

// Shows the summaries in order. After a damaged one it finds the next by its first bytes.
Status dump_summaries(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  Window window(*file, imd::kSummaryBytesMax);
  bool damaged = false;  // reported already
  for (uint64_t at = 0;;) {
    SWALE_ASSIGN_OR_RETURN(const Bytes bytes, window.from(at));
    if (bytes.empty()) return {};
    uint64_t epoch_id = 0;
    const size_t length = summary_length(bytes, &epoch_id);
    const Result<imd::ExtremaSummary> summary =
        length == 0 ? corruption("{}: offset {}: no summary of extrema, or one that is cut off", path, at)
                    : imd::ExtremaSummary::decode_file(bytes.substr(0, length), epoch_id, path);
    if (summary.ok()) show_summary(*summary, at, epoch_id, out);
    if (!summary.ok() && !damaged) out->damage(at, summary.status());
    damaged = !summary.ok();
    at += summary.ok() ? length : next_summary(bytes);
  }
}

Status dump_attributes(io::Device& device, const std::string& path, DumpOutput* out) {
  const auto check = [&](Bytes line, uint64_t at) {
    return imd::decode_attributes_line(line, path, at).status();
  };
  return dump_lines(device, path, "attributes", imd::kAttributesLineBytesMax, check, out);
}

Status dump_stats(io::Device& device, const std::string& path, DumpOutput* out) {
  const auto check = [&](Bytes line, uint64_t at) { return imd::decode_stats_line(line, path, at).status(); };
  return dump_lines(device, path, "stats", imd::kStatsLineBytesMax, check, out);
}

}  // namespace swale::tools
