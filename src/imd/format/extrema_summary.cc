#include "imd/format/extrema_summary.h"

#include <algorithm>
#include <cassert>

#include "base/crc32c.h"
#include "run/extrema_format.h"

namespace swale::imd {
namespace {

constexpr uint32_t kSummaryVersion = 1;
constexpr run::Extreme kDirections[] = {run::Extreme::kLargest, run::Extreme::kSmallest};

size_t index_of(run::Extreme which) { return static_cast<size_t>(which); }

// Equal ones in the order of partitions, so that a merge does not depend on who came first.
bool better(run::Extreme which, const ExtremaSummary::Entry& a, const ExtremaSummary::Entry& b) {
  const run::OrderKey score_a = run::score_of(which, a.key);
  const run::OrderKey score_b = run::score_of(which, b.key);
  return score_a != score_b ? score_a > score_b : a.partition < b.partition;
}

void merge_best(run::Extreme which, const std::vector<ExtremaSummary::Entry>& from,
                std::vector<ExtremaSummary::Entry>* into) {
  const auto middle = static_cast<std::ptrdiff_t>(into->size());
  into->insert(into->end(), from.begin(), from.end());
  std::inplace_merge(into->begin(), into->begin() + middle, into->end(),
                     [which](const auto& a, const auto& b) { return better(which, a, b); });
  into->resize(std::min(into->size(), ExtremaSummary::kPartitionsMax));
}

bool read_best(run::Extreme which, uint32_t partitions, Decoder* in,
               std::vector<ExtremaSummary::Entry>* best) {
  const uint8_t count = in->u8();
  if (count != std::min<size_t>(partitions, ExtremaSummary::kPartitionsMax)) return false;
  for (uint8_t i = 0; i < count && in->ok(); ++i) {
    const ExtremaSummary::Entry entry{PartitionNumber(in->u32()), in->u64()};
    if (i > 0 && !better(which, best->back(), entry)) return false;
    best->push_back(entry);
  }
  return in->ok();
}

}  // namespace

ExtremaSummary ExtremaSummary::of(PartitionNumber partition, const std::vector<run::FieldTotals>& totals) {
  ExtremaSummary summary;
  for (const run::FieldTotals& field : totals) {
    FieldSummary& out = summary.fields.emplace_back();
    out.nans = field.nans;
    out.absent = field.absent;
    if (field.extrema.empty()) continue;
    out.partitions = 1;
    for (const run::Extreme which : kDirections) {
      out.best[index_of(which)].push_back({partition, field.extrema.best(which)});
    }
  }
  return summary;
}

void ExtremaSummary::merge(const ExtremaSummary& other) {
  if (fields.empty()) fields.resize(other.fields.size());
  for (size_t f = 0; f < std::min(fields.size(), other.fields.size()); ++f) {
    const FieldSummary& from = other.fields[f];
    fields[f].nans += from.nans;
    fields[f].absent += from.absent;
    fields[f].partitions += from.partitions;
    for (const run::Extreme which : kDirections) {
      merge_best(which, from.best[index_of(which)], &fields[f].best[index_of(which)]);
    }
  }
}

void ExtremaSummary::append_to(std::string* out) const {
  append_u8(out, static_cast<uint8_t>(fields.size()));
  for (const FieldSummary& field : fields) {
    append_u64(out, field.nans);
    append_u64(out, field.absent);
    append_u32(out, field.partitions);
    for (const run::Extreme which : kDirections) {
      append_u8(out, static_cast<uint8_t>(field.best[index_of(which)].size()));
      for (const Entry& entry : field.best[index_of(which)]) {
        append_u32(out, entry.partition);
        append_u64(out, entry.key);
      }
    }
  }
}

ExtremaSummary ExtremaSummary::read(Decoder* in) {
  ExtremaSummary summary;
  const uint8_t count = in->u8();
  bool possible = count <= run::kIndexedFieldsMax;
  for (uint8_t f = 0; f < count && possible; ++f) {
    FieldSummary& field = summary.fields.emplace_back();
    field.nans = in->u64();
    field.absent = in->u64();
    field.partitions = in->u32();
    for (const run::Extreme which : kDirections) {
      possible = possible && read_best(which, field.partitions, in, &field.best[index_of(which)]);
    }
  }
  if (!possible) in->bytes(UINT64_MAX);
  return summary;
}

std::string ExtremaSummary::encode_file(uint64_t epoch_id) const {
  std::string out;
  append_u64(&out, kSummaryMagic);
  append_u32(&out, kSummaryVersion);
  append_u64(&out, epoch_id);
  append_to(&out);
  append_u32(&out, crc32c(out));
  return out;
}

Result<ExtremaSummary> ExtremaSummary::decode_file(Bytes bytes, uint64_t epoch_id, const std::string& path) {
  constexpr size_t kChecksumBytes = 4;
  const Bytes covered = bytes.substr(0, bytes.size() - std::min(bytes.size(), kChecksumBytes));
  Decoder in(covered);
  const uint64_t magic = in.u64();
  const uint32_t version = in.u32();
  if (magic != kSummaryMagic) return corruption("{}: offset 0: no summary of extrema", path);
  if (crc32c(covered) != get_u32(bytes.data() + covered.size())) {
    return corruption("{}: offset {}: the checksum does not fit", path, covered.size());
  }
  if (version > kSummaryVersion) {
    return error(Code::kUnsupported, Scope::kFile, "{}: is of format version {}; read it with a newer swale",
                 path, version);
  }
  const uint64_t found_id = in.u64();
  ExtremaSummary summary = read(&in);
  SWALE_RETURN_IF_ERROR(in.finish(path));
  if (found_id != epoch_id) {
    return corruption("{}: is of epoch_id {:016x}, expected {:016x}", path, found_id, epoch_id);
  }
  return summary;
}

Result<ExtremaSummary> read_summary(io::Device& device, const std::string& directory,
                                    const EpochEntry& epoch) {
  const std::string path = summary_log_path(directory, epoch.summary.job);
  if (epoch.summary.bytes == 0 || epoch.summary.bytes > kSummaryBytesMax) {
    return corruption("{}: no summary of the extrema of epoch {}: {} bytes are recorded for it", path,
                      epoch.epoch, epoch.summary.bytes);
  }
  SWALE_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file, device.open(path, io::OpenMode::kRead));
  std::string bytes(epoch.summary.bytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file, epoch.summary.offset, bytes));
  return ExtremaSummary::decode_file(bytes, epoch.epoch_id, path);
}

}  // namespace swale::imd
