#include "imd/check/verify.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/hash.h"
#include "imd/check/named_records.h"
#include "imd/check/verify_clusters.h"
#include "imd/check/verify_extrema.h"
#include "imd/check/verify_tables.h"
#include "imd/check/verify_values.h"
#include "imd/format/attributes.h"
#include "imd/format/generation.h"
#include "imd/read/reader_io.h"
#include "imd/read/reader_partition.h"
#include "imd/read/reader_values.h"
#include "run/block.h"
#include "run/run_cursor.h"
#include "run/segment_reader.h"

namespace swale::imd {
namespace {

const char* home_name(run::HomeRule rule) {
  switch (rule) {
    case run::HomeRule::kHash:
      return "hash";
    case run::HomeRule::kPartitioner:
      return "a partitioner";
    case run::HomeRule::kWriter:
      return "writer";
  }
  return "another rule";
}

class Verifier {
 public:
  Verifier(ReaderFiles files, const Manifest& manifest)
      : files_(unmapped(std::move(files))),
        manifest_(manifest),
        extrema_(manifest, files_),
        values_(files_),
        large_(manifest, values_),
        tables_(files_, manifest),
        sums_(manifest.epochs.size()) {}

  VerifyReport run(size_t problems_max, const VerifyProgressFn& progress);

 private:
  struct Sums {
    uint64_t records = 0;
    uint64_t data_bytes = 0;
    uint64_t digest = 0;
    uint64_t problems = 0;
  };
  struct OpenSegment {
    const run::SegmentRecord* record;
    std::vector<char> bytes;
    std::vector<run::Slice> slices;
  };

  uint32_t partition_count() const;
  bool full() const { return report_.problems.size() >= problems_max_; }
  void problem(const Status& status, EpochNumber epoch);
  void advance(uint64_t bytes);
  // The bytes that verification will read.
  uint64_t measure();

  void check_logs(LogId id);
  void check_epoch(const PartitionLogs& logs, const EpochEntry& epoch);
  Status open_segment(const PartitionLogs& logs, OpenSegment* segment);
  void walk_blocks(const PartitionLogs& logs, const EpochEntry& epoch);
  void walk_chunk(const PartitionLogs& logs, const EpochEntry& epoch, BlockNumber first_block, Bytes blocks);
  Status check_record(const PartitionLogs& logs, const EpochEntry& epoch, const run::ScannedRecord& record);
  Status ask_index(const run::RunHeader& run, Hash hash, const HashChoice& way);
  void note_length(const PartitionLogs& logs, const run::ScannedRecord& record);
  void tell_lengths();
  void compare_sums();
  void tell_losses();
  void check_attributes();
  void check_values();
  void check_tables();

  static ReaderFiles unmapped(ReaderFiles files) {
    files.options.map = ReaderOptions::Map::kNever;
    return files;
  }

  const ReaderFiles files_;
  const Manifest& manifest_;
  ExtremaVerifier extrema_;
  ValueReader values_;
  ValuesVerifier large_;
  TablesVerifier tables_;
  std::vector<Sums> sums_;  // by epoch
  size_t problems_max_ = 0;
  VerifyProgressFn progress_;
  VerifyReport report_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  // State of the epoch and partition being checked.
  std::vector<OpenSegment> segments_;
  bool segments_whole_ = false;
  NamedRecords named_;
  std::optional<run::RunCursor> cursor_;  // none: looking for the next run after damage
  Status first_wrong_length_;
  uint64_t wrong_lengths_ = 0;
};

uint32_t Verifier::partition_count() const {
  uint32_t count = 0;
  for (const EpochEntry& epoch : manifest_.epochs) count = std::max(count, manifest_.jobs[epoch.job].ranks);
  return count;
}

void Verifier::problem(const Status& status, EpochNumber epoch) {
  ++sums_[epoch].problems;
  if (!full()) report_.problems.push_back(status);
}

void Verifier::advance(uint64_t bytes) {
  done_bytes_ += bytes;
  if (progress_) progress_(std::min(done_bytes_, total_bytes_), total_bytes_);
}

uint64_t Verifier::measure() {
  uint64_t bytes = 0;
  for (const LogId id : manifest_.logs()) {
    // Failures are reported when the logs are checked.
    const auto logs = open_partition(files_, id, manifest_);
    if (!logs.ok()) continue;
    for (const run::SegmentRecord& segment : (*logs)->segments) bytes += run::segment_bytes(segment);
    for (const EpochEntry& epoch : manifest_.epochs)
      bytes += (*logs)->blocks_of(epoch.epoch).count * run::kBlockBytes;
    for (const run::SegmentRecord& segment : (*logs)->values) bytes += run::range_of(segment).bytes;
    for (const run::SegmentRecord& segment : (*logs)->tables) bytes += run::range_of(segment).bytes;
  }
  return bytes;
}

VerifyReport Verifier::run(size_t problems_max, const VerifyProgressFn& progress) {
  problems_max_ = std::max<size_t>(problems_max, 1);
  progress_ = progress;
  report_.epochs = manifest_.epochs.size();
  if (progress_) total_bytes_ = measure();
  report_.partitions = partition_count();
  for (const Status& status : check_documents(files_.device, files_.directory, manifest_)) {
    if (!full()) report_.problems.push_back(status);
  }
  tell_losses();
  for (const LogId id : manifest_.logs()) {
    if (!full()) check_logs(id);
  }
  compare_sums();
  check_attributes();
  if (!full()) check_values();
  if (!full()) check_tables();
  if (!full()) {
    extrema_.check_summaries([this](const Status& status) {
      if (!full()) report_.problems.push_back(status);
    });
  }
  return std::move(report_);
}

// What repair has given up.
void Verifier::tell_losses() {
  for (const EpochEntry& epoch : manifest_.epochs) {
    if (!manifest_.has_lost(epoch)) continue;
    for (PartitionNumber partition(0); partition < manifest_.job_of(epoch).ranks; ++partition) {
      if (const LostPart* part = manifest_.lost_part(epoch, partition); part != nullptr) {
        problem(corruption("{}: records of epoch {} in partition {} are lost: {}", files_.directory,
                           epoch.epoch, partition, part->what),
                epoch.epoch);
      }
    }
  }
}

// Of a line that several epochs name, one problem.
void Verifier::check_attributes() {
  for (const EpochEntry& epoch : manifest_.epochs) {
    const Result<Attributes> found = read_attributes(files_.device, files_.directory, epoch);
    if (!found.ok()) problem(found.status(), epoch.epoch);
    report_.bytes_checked += epoch.attributes.bytes;
    if (!epoch.described_by ||
        (epoch.epoch > 0 && manifest_.epochs[epoch.epoch - 1].described_by == epoch.described_by))
      continue;
    const Result<std::string> directory =
        read_directory_attributes(files_.device, files_.directory, manifest_, epoch.epoch);
    const bool told = !found.ok() && *epoch.described_by == epoch.epoch;
    if (!directory.ok() && !told) problem(directory.status(), epoch.epoch);
  }
}

void Verifier::check_logs(LogId id) {
  const auto logs = open_partition(files_, id, manifest_);
  if (!logs.ok()) {
    for (const EpochEntry& epoch : manifest_.epochs) {
      if (manifest_.job_of(epoch).number == id.job && !epoch.freed) ++sums_[epoch.epoch].problems;
    }
    report_.problems.push_back(logs.status());
    return;
  }
  large_.add_ranges(**logs);
  for (const EpochEntry& epoch : manifest_.epochs) {
    if (!full() && !(*logs)->segments_of(epoch.epoch).empty()) check_epoch(**logs, epoch);
  }
}

void Verifier::check_epoch(const PartitionLogs& logs, const EpochEntry& epoch) {
  segments_.clear();
  segments_whole_ = true;
  named_ = NamedRecords();
  for (const run::SegmentRecord& record : logs.segments_of(epoch.epoch)) {
    OpenSegment& segment = segments_.emplace_back(OpenSegment{&record, {}, {}});
    const Status status = open_segment(logs, &segment);
    advance(run::segment_bytes(record));
    if (status.ok()) continue;
    segments_whole_ = false;  // then records are walked, but not looked up
    problem(status, epoch.epoch);
  }
  const auto tell = [&](const Status& status) { problem(status, epoch.epoch); };
  report_.bytes_checked += extrema_.begin(logs, epoch, tell);
  const uint64_t problems = sums_[epoch.epoch].problems;
  walk_blocks(logs, epoch);
  tell_lengths();
  tables_.end_partition(epoch, logs.id.partition,
                        [this](const Status& status, EpochNumber of) { problem(status, of); });
  extrema_.finish(logs, epoch, !full() && sums_[epoch.epoch].problems == problems, tell);
  segments_.clear();
}

Status Verifier::open_segment(const PartitionLogs& logs, OpenSegment* segment) {
  const run::SegmentRecord& record = *segment->record;
  if (record.runs == 0) return {};
  const uint64_t bytes = run::segment_bytes(record);
  segment->bytes.resize(bytes);
  ReadQueue reads(files_.options.reads_in_flight_max);
  for (uint64_t at = 0; at < bytes; at += files_.options.scan_chunk_bytes) {
    const uint64_t count = std::min<uint64_t>(files_.options.scan_chunk_bytes, bytes - at);
    reads.add(*logs.index, record.index_offset + at, {segment->bytes.data() + at, count}, 0);
    files_.counters.reads.add();
  }
  SWALE_RETURN_IF_ERROR(reads.finish());
  files_.counters.bytes_read.add(bytes);
  report_.bytes_checked += bytes;
  SWALE_ASSIGN_OR_RETURN(
      segment->slices,
      run::open_slices(record, logs.id.partition, Bytes(segment->bytes.data(), segment->bytes.size()),
                       logs.index->path()));
  return {};
}

void Verifier::walk_blocks(const PartitionLogs& logs, const EpochEntry& epoch) {
  const PartitionLogs::BlockRange range = logs.blocks_of(epoch.epoch);
  const uint64_t chunk_blocks = std::max<uint64_t>(files_.options.scan_chunk_bytes / run::kBlockBytes, 1);
  std::vector<char> chunk(std::min(chunk_blocks, range.count) * run::kBlockBytes);
  cursor_.emplace(logs.id.partition, range.first, logs.data->path(), epoch.epoch_id);
  ReadQueue reads(files_.options.reads_in_flight_max);
  for (uint64_t done = 0; done < range.count && !full();) {
    const uint64_t count = std::min(chunk_blocks, range.count - done);
    const MutableBytes out(chunk.data(), count * run::kBlockBytes);
    reads.add(*logs.data, (range.first + done) * run::kBlockBytes, out, 0);
    if (const Status status = reads.finish(); !status.ok()) {
      problem(status, epoch.epoch);
      return;
    }
    files_.counters.reads.add();
    files_.counters.bytes_read.add(count * run::kBlockBytes);
    walk_chunk(logs, epoch, range.first + done, view(out));
    report_.bytes_checked += out.size();
    advance(out.size());
    done += count;
  }
  if (cursor_ && !full()) {
    if (const Status status = cursor_->finish(); !status.ok()) problem(status, epoch.epoch);
  }
}

// After a damaged block, the remaining blocks are checked one by one until the next run begins.
void Verifier::walk_chunk(const PartitionLogs& logs, const EpochEntry& epoch, BlockNumber first_block,
                          Bytes blocks) {
  const std::string& path = logs.data->path();
  const uint32_t seed = run::epoch_seed(logs.id.partition, epoch.epoch_id);
  Sums& sums = sums_[epoch.epoch];
  const auto take = [&](const run::ScannedRecord& record) {
    ++report_.records;
    extrema_.record(record);
    ++sums.records;
    sums.data_bytes += record.key.size() + record.value.size();
    sums.digest += record.digest();
    if (const Status status = check_record(logs, epoch, record); !status.ok()) problem(status, epoch.epoch);
    note_length(logs, record);
    if (record.large) {
      if (const Status status = large_.record(epoch, record, path); !status.ok())
        problem(status, epoch.epoch);
    }
    return !full();
  };
  for (BlockNumber number = first_block; !blocks.empty() && !full();
       ++number, blocks.remove_prefix(run::kBlockBytes)) {
    const Bytes block = blocks.substr(0, run::kBlockBytes);
    if (!cursor_ && run::decode_run_header(block, logs.id.partition, number, path).ok()) {
      cursor_.emplace(logs.id.partition, number, path, epoch.epoch_id);
    }
    const Status status = cursor_ ? cursor_->feed(block, take) : run::verify_block(block, seed, number, path);
    if (status.ok()) continue;
    problem(status, epoch.epoch);
    cursor_.reset();
  }
}

Status Verifier::check_record(const PartitionLogs& logs, const EpochEntry& epoch,
                              const run::ScannedRecord& record) {
  const JobEntry& job = manifest_.jobs[epoch.job];
  const auto misplaced = [&](std::string_view what) {
    return corruption("{}: offset {}: record {} of run {}, epoch {}: {}", logs.data->path(),
                      record.block * run::kBlockBytes, record.ordinal, record.run->run, record.run->epoch,
                      what);
  };
  const run::RunHeader& run = *record.run;
  const bool by_hash = job.partitioner == kHashPartitioner;
  const bool lossy = manifest_.layout.format == run::ShuffleFormat::kLossy;
  const run::HomeRule home_rule = lossy     ? run::HomeRule::kWriter
                                  : by_hash ? run::HomeRule::kHash
                                            : run::HomeRule::kPartitioner;
  if (run.ranks != job.ranks || run.ways != job.ways || run.home != home_rule) {
    return misplaced(
        fmt::format("its run is of a job of {} ranks and {} ways; {} says {} and {}; their partitions are "
                    "chosen by {} and {}",
                    run.ranks, run.ways, kManifestName, job.ranks, job.ways, home_name(run.home),
                    lossy ? "writer" : job.partitioner));
  }
  if (run.values != manifest_.layout.values()) {
    return misplaced(fmt::format("its run has values by rule {}, expected {}: {} says the format is {}",
                                 static_cast<int>(run.values), static_cast<int>(manifest_.layout.values()),
                                 kManifestName, run::format_name(manifest_.layout.format)));
  }
  const Hash hash = hash_bytes(record.key);
  tables_.record(epoch, logs.id.partition, hash,
                 [this](const Status& status, EpochNumber of) { problem(status, of); });
  const HashChoice home = choose(hash, job.ranks);
  const HashChoice way = choose(home.rest, job.ways);
  const bool elsewhere = home_rule == run::HomeRule::kHash && home.index != logs.id.partition;
  if (elsewhere || way.index != record.run->way) {
    return misplaced(fmt::format("its key belongs to partition {}, way {}", home.index, way.index));
  }
  if (!segments_whole_) return {};
  if (!named_.are_of(hash, cursor_->run_block())) SWALE_RETURN_IF_ERROR(ask_index(run, hash, way));
  const uint32_t named = named_.count(record);
  if (named == 1) return {};
  return misplaced(fmt::format("{} names it {} times, expected once", logs.index->path(), named));
}

Status Verifier::ask_index(const run::RunHeader& run, Hash hash, const HashChoice& way) {
  named_.begin(cursor_->run_block(), run.blocks);
  for (const OpenSegment& segment : segments_) {
    if (segment.record->way != way.index || segment.slices.empty()) continue;
    const uint32_t slice = run::locate_slice(*segment.record, way.rest)->slice;
    SWALE_RETURN_IF_ERROR(segment.slices[slice].candidates(
        way.rest, [&](const run::Candidate& candidate) { named_.add(candidate); }));
  }
  named_.end(hash);
  return {};
}

// If one value has a wrong length, mostly all have: they are one problem.
void Verifier::note_length(const PartitionLogs& logs, const run::ScannedRecord& record) {
  if (!manifest_.schema.exact_bytes()) return;
  uint64_t bytes = record.value.size();
  if (record.large) {
    const auto stored = run::decode_stored_value(record.run->values, record.value, logs.data->path());
    if (!stored.ok()) return;  // ValuesVerifier tells it
    bytes = stored->pointer.value_bytes;
  }
  const Status status = manifest_.schema.check_length(bytes);
  if (status.ok() || ++wrong_lengths_ > 1) return;
  first_wrong_length_ = corruption("{}: offset {}: record {} of run {}, epoch {}: {}", logs.data->path(),
                                   record.block * run::kBlockBytes, record.ordinal, record.run->run,
                                   record.run->epoch, status.message());
}

// No damage: the sums of the epoch are compared nevertheless.
void Verifier::tell_lengths() {
  if (wrong_lengths_ > 0 && !full()) {
    report_.problems.push_back(corruption(
        "{} ({} values of the file have a wrong length in this epoch: fields of the schema may have "
        "been read from wrong places)",
        first_wrong_length_.message(), wrong_lengths_));
  }
  wrong_lengths_ = 0;
}

void Verifier::check_values() {
  std::vector<bool> whole;
  for (const Sums& sums : sums_) whole.push_back(sums.problems == 0);
  large_.finish([&](EpochNumber epoch) { return whole[epoch]; },
                [&](const Status& status, EpochNumber epoch) { problem(status, epoch); },
                [this](uint64_t bytes) {
                  report_.bytes_checked += bytes;
                  advance(bytes);
                });
}

void Verifier::check_tables() {
  tables_.finish([this](const Status& status, EpochNumber epoch) { problem(status, epoch); },
                 [this](uint64_t bytes) {
                   report_.bytes_checked += bytes;
                   advance(bytes);
                 });
}

void Verifier::compare_sums() {
  const std::string path = manifest_path(files_.directory);
  for (const EpochEntry& epoch : manifest_.epochs) {
    const Sums& sums = sums_[epoch.epoch];
    // Known damage explains the difference; a walk that was cut short has not seen all.
    if (epoch.freed || sums.problems > 0 || full())
      continue;  // verify_clusters compares those that are freed
    if (sums.records != epoch.records || sums.data_bytes != epoch.data_bytes || sums.digest != epoch.digest) {
      report_.problems.push_back(
          corruption("{}: epoch {}: the logs hold {} records of {} bytes with digest {:016x}, expected {} of "
                     "{} with {:016x}",
                     path, epoch.epoch, sums.records, sums.data_bytes, sums.digest, epoch.records,
                     epoch.data_bytes, epoch.digest));
    }
  }
}

}  // namespace

VerifyReport verify_directory(const Reader& reader, size_t problems_max, const VerifyProgressFn& progress) {
  // a directory that goes back more often meanwhile is reported as it was found
  constexpr int kRestartsMax = 3;
  const std::shared_ptr<const Manifest> opened = reader.manifest_now();
  VerifyReport report = Verifier(reader.files(), *opened).run(problems_max, progress);
  Manifest known;
  for (int restarts = 0; restarts < kRestartsMax && !report.problems.empty(); ++restarts) {
    Result<Manifest> now = load_manifest(reader.files().device, reader.directory());
    if (!now.ok()) break;
    const Manifest& before = restarts == 0 ? *opened : known;
    if (before.first_dropped(*now) == nullptr && before.first_moved(*now) == nullptr) break;
    known = std::move(*now);
    report = Verifier(reader.files(), known).run(problems_max, progress);
  }
  verify_clusters(reader.files(), known.epochs.empty() ? *opened : known, problems_max, &report);
  return report;
}

}  // namespace swale::imd
