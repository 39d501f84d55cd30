// What a shard reads besides blocks: payloads of log records, snapshots, manifests, sorted files. The first
// byte chooses; the rest gets right checksums where there are some, so that the checks behind them are
// reached.
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/memory_device.h"
#include "meta/index/log.h"
#include "meta/index/snapshot.h"
#include "meta/index/sorted_file.h"

namespace swale::meta::meta_log_fuzz {
namespace {

using fuzz::require;

class Checked final : public LogVisitor, public SnapshotVisitor {
 public:
  Status request(const RequestKey&) override { return {}; }
  Status extents(const BlockView& block) override {
    for (size_t i = 0; i < block.rows(); ++i) require(block.row(i).end() <= kOffsetEnd);
    return {};
  }
  Status run(const FileId&, Sequence, const Run& run) override {
    require(valid(run));
    return {};
  }
  Status truncate(const FileId&, Sequence, uint64_t size, uint64_t, bool) override {
    require(size <= kOffsetEnd);
    return {};
  }
  Status relocate(Sequence, const Relocation& rule) override {
    require(rule.begin <= rule.end);
    return {};
  }
  Status records(Bytes) override { return {}; }
  Status records(uint64_t, Bytes) override { return {}; }
  Status end_group(uint64_t, Sequence) override { return {}; }
  Status file(const SnapshotFile& file) override {
    for (const StoredRun& run : file.runs) require(valid(run.run));
    return {};
  }
  Status relocation(const SequencedRelocation& relocation) override { return relocate(0, relocation.rule); }
  Status client(const SnapshotClient&) override { return {}; }
  Status removed(const RemovedRange& range) override {
    require(range.first <= range.last);
    return {};
  }
};

void check_payload(Bytes input) {
  std::string padded(input);
  padded.append(kColumnSlackBytes, '\0');
  Checked visitor;
  static_cast<void>(visit_payload(Bytes(padded).substr(0, input.size()), "fuzz", &visitor));
}

void check_snapshot(Bytes input) {
  std::string bytes = SnapshotBuilder(3, 9, 5).finish();
  bytes.resize(kSnapshotHeaderBytes);
  bytes.append(input);
  put_u32(bytes.data() + 4, crc32c(Bytes(bytes).substr(8)));
  Checked visitor;
  static_cast<void>(visit_snapshot(bytes, "fuzz", 3, 9, &visitor));
}

void check_manifest(Bytes input) {
  std::string text(input);
  text += seal_of(text);
  if (const auto manifest = ShardManifest::decode(text, "fuzz"); manifest.ok()) {
    const std::string again = manifest->encode();
    require(ShardManifest::decode(again, "fuzz").ok());
  }
  static_cast<void>(ShardManifest::decode(input, "fuzz"));
}

void check_sorted(Bytes input) {
  io::MemoryDevice device;
  const auto file = device.open("/f", io::OpenMode::kCreate);
  require(file.ok() && (*file)->pwrite(0, input).ok());
  BlockCache cache(1);
  ShardCounters counters;
  const auto sorted = SortedFile::open(device, "/f", owner_of(1, 2), &cache, &counters);
  if (!sorted.ok()) return;
  for (size_t i = 0; i < (*sorted)->blocks(); ++i) static_cast<void>((*sorted)->view(i));
}

void check_log(Bytes input) {
  io::MemoryDevice device;
  const auto file = device.open("/f", io::OpenMode::kCreate);
  std::string record(store::kRecordHeadBytes, '\0');
  record.append(input);
  store::seal_record(store::record_seed({kShardLogKind, 3, 9}), kGroupRecord, 1, &record);
  require(file.ok() &&
          (*file)->pwrite(0, store::log_header({kShardLogKind, 3, 9}) + record + std::string(input)).ok());
  Checked visitor;
  uint64_t group = 0;
  const auto scan =
      replay_log(device, "/f", 3, 9, ~uint64_t{0}, store::LogTail::kMayBeTorn, &group, &visitor);
  if (scan.ok()) require(scan->records >= 1 && scan->bytes >= store::kLogHeaderBytes + record.size());
}

void run(Bytes input) {
  if (input.empty()) return;
  const char kind = input[0];
  input.remove_prefix(1);
  switch (kind) {
    case 'p':
      return check_payload(input);
    case 's':
      return check_snapshot(input);
    case 'm':
      return check_manifest(input);
    case 'f':
      return check_sorted(input);
    default:
      return check_log(input);
  }
}

}  // namespace

SWALE_FUZZ_TARGET(meta_log_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::meta::meta_log_fuzz
