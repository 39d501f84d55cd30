#include "imd/optimize/epoch_copier.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "imd/check/repair_index.h"
#include "imd/read/reader_scan.h"
#include "run/block.h"
#include "run/footer.h"
#include "run/packed_run_builder.h"
#include "run/record.h"
#include "run/run_builder.h"

namespace swale::imd {
namespace {

constexpr size_t kMemtableBytes = 8 * kMiB;
constexpr size_t kRecordsMax = 256 * kKiB;
constexpr size_t kSketchBytes = 16 * kMiB;
constexpr size_t kOutputBytes = kMiB;

run::HomeRule home_of(const run::Layout& layout) {
  return layout.format == run::ShuffleFormat::kLossy ? run::HomeRule::kWriter : run::HomeRule::kHash;
}

}  // namespace

Result<std::unique_ptr<EpochCopier>> EpochCopier::create(const ReaderFiles& files, const Manifest& manifest,
                                                         const JobEntry& job) {
  SWALE_ASSIGN_OR_RETURN(run::Memtable memtable, run::Memtable::create(kMemtableBytes, kRecordsMax));
  SWALE_ASSIGN_OR_RETURN(run::RunScratch scratch, run::RunScratch::create(kRecordsMax));
  SWALE_ASSIGN_OR_RETURN(run::SketchArena arena, run::SketchArena::create(kSketchBytes));
  std::unique_ptr<EpochCopier> copier(
      new EpochCopier(files, manifest, job, std::move(memtable), std::move(scratch), std::move(arena)));
  if (manifest.layout.compression != Codec::kNone) {
    SWALE_ASSIGN_OR_RETURN(copier->packer_, RunPacker::create(manifest.layout.compression, kMemtableBytes));
  }
  const std::string& directory = files.directory;
  SWALE_RETURN_IF_ERROR(io::make_directories(files.device, log_folder(directory, copier->log())));
  SWALE_ASSIGN_OR_RETURN(copier->data_,
                         files.device.open(data_log_path(directory, copier->log()), io::OpenMode::kCreate));
  SWALE_ASSIGN_OR_RETURN(copier->index_,
                         files.device.open(index_log_path(directory, copier->log()), io::OpenMode::kCreate));
  return copier;
}

Status EpochCopier::copy(const EpochEntry& epoch, PartitionCache& partitions) {
  copied_.push_back({&epoch, end_block_});
  tally_ = {};
  Status status;
  const ScanFn take = [&](const run::ScannedRecord& record) {
    status = add(record);
    return status.ok();
  };
  for (PartitionNumber partition(0); partition < manifest_.job_of(epoch).ranks; ++partition) {
    uint32_t depth = 0;
    bool stopped = false;
    SWALE_ASSIGN_OR_RETURN(const auto logs, partitions.get(epoch, partition, &depth));
    SWALE_RETURN_IF_ERROR(scan_epoch(files_, *logs, epoch, take, &stopped));
    SWALE_RETURN_IF_ERROR(status);
  }
  if (!memtable_.empty()) SWALE_RETURN_IF_ERROR(write_run());
  if (tally_.records == epoch.records && tally_.data_bytes == epoch.data_bytes &&
      tally_.digest == epoch.digest)
    return {};
  return corruption(
      "{}: epoch {} has {} records with the digest {:016x}, the epoch log says {} with {:016x}; nothing was "
      "changed; run `swale verify`",
      files_.directory, epoch.epoch, tally_.records, tally_.digest, epoch.records, epoch.digest);
}

bool EpochCopier::append(const run::ScannedRecord& record) {
  const Hash rest = choose(choose(hash_bytes(record.key), job_.ranks).rest, job_.ways).rest;
  if (!record.large || manifest_.layout.values() == run::ValueRule::kPaged)
    return memtable_.append(rest, record.key, record.value) != nullptr;
  const std::string encoded = run::encode_large_record(record.key, record.value);
  run::RecordView view;
  run::parse_record(encoded, &view);
  return memtable_.append(rest, view) != nullptr;
}

Status EpochCopier::add(const run::ScannedRecord& record) {
  if (append(record)) return {};
  SWALE_RETURN_IF_ERROR(write_run());
  if (append(record)) return {};
  return error(Code::kInternal, Scope::kOperation, "a record fits into no memtable; please report it");
}

Status EpochCopier::write_run() {
  Copied& epoch = copied_.back();
  arena_.clear();
  run::RunPlacement placement;
  placement.first_block = end_block_;
  placement.epoch = epoch.epoch->epoch;
  placement.epoch_id = epoch.epoch->epoch_id;
  placement.run = static_cast<uint32_t>(epoch.runs.size());
  placement.home = home_of(manifest_.layout);
  placement.values = manifest_.layout.values();
  std::unique_ptr<run::RunOutput> run;
  if (packer_) {
    packer_->begin(memtable_, scratch_, arena_, /*with_tails=*/false);
    packer_->work();
    run = packer_->take(placement);
  }
  if (!run) run = std::make_unique<run::RunBuilder>(memtable_, scratch_, arena_, placement);
  FoundRun found;
  found.first_block = end_block_;
  std::vector<char> buffer(kOutputBytes);
  uint64_t offset = end_block_ * run::kBlockBytes;
  while (const size_t produced = run->fill(buffer)) {
    const Bytes blocks(buffer.data(), produced);
    if (offset == end_block_ * run::kBlockBytes) {
      SWALE_ASSIGN_OR_RETURN(found.header,
                             run::decode_run_header(blocks.substr(0, run::kBlockBytes), PartitionNumber(0),
                                                    end_block_, data_->path()));
    }
    SWALE_RETURN_IF_ERROR(data_->pwrite(offset, blocks));
    offset += produced;
  }
  tally_.records += run->record_count();
  tally_.data_bytes += run->data_bytes();
  tally_.digest += run->digest();
  end_block_ += run->block_count();
  epoch.runs.push_back(found);
  memtable_.clear();
  return {};
}

Status EpochCopier::finish() {
  SWALE_RETURN_IF_ERROR(data_->sync());
  SWALE_ASSIGN_OR_RETURN(
      IndexWriter writer,
      IndexWriter::create(*data_, *index_, 0, run::FooterBuilder(PartitionNumber(0)), manifest_.layout));
  for (const Copied& copied : copied_) {
    std::vector<run::FieldTotals> totals;
    SWALE_RETURN_IF_ERROR(writer.add_epoch(PartitionNumber(0), job_, *copied.epoch, copied.runs,
                                           copied.first_block, manifest_.schema.indexed, &totals));
  }
  SWALE_RETURN_IF_ERROR(writer.finish());
  return files_.device.sync_directory(log_folder(files_.directory, log()));
}

}  // namespace swale::imd
