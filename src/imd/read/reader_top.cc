#include "imd/read/reader_top.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "imd/read/reader_scan.h"
#include "run/block.h"

namespace swale::imd {
namespace {

constexpr size_t kWaveMax = 256;
constexpr size_t kWaveWhenFull = 16;

}  // namespace

TopQuery::TopQuery(const ReaderFiles& files, const Manifest& manifest, const EpochEntry& epoch,
                   PartitionCache& partitions, const FreedEpochs& freed)
    : all_counters_(files.counters),
      files_{files.device, files.directory, files.options, counters_},
      manifest_(manifest),
      partitions_(partitions),
      freed_(freed),
      large_(files_),
      epoch_(epoch),
      partition_count_(manifest.job_of(epoch).ranks) {}

// std::priority_queue has the greatest on top: the best score, then the lowest level, owner and number.
bool TopQuery::Source::operator<(const Source& other) const {
  if (score != other.score) return score < other.score;
  return std::tie(level, owner, number) > std::tie(other.level, other.owner, other.number);
}

bool TopQuery::better(const Found& a, const Found& b) {
  if (a.score != b.score) return a.score > b.score;
  return std::tie(a.key, a.partition, a.sequence) < std::tie(b.key, b.partition, b.sequence);
}

void TopQuery::offer(PartitionNumber partition, uint64_t sequence, Bytes fields,
                     const run::RecordView& record, bool large) {
  const run::FieldValue number = run::read_field(field_, fields);
  if (number.kind != run::FieldValue::Kind::kNumber) return;
  const run::OrderKey score = run::score_of(which_, number.key);
  if (full() && score < found_.front().score) return;
  found_.push_back({score, partition, sequence, std::string(record.key), std::string(record.value), large});
  std::push_heap(found_.begin(), found_.end(), better);
  if (found_.size() <= k_) return;
  std::pop_heap(found_.begin(), found_.end(), better);
  found_.pop_back();
}

Result<TopResult> TopQuery::run(std::string_view field, size_t k, run::Extreme which) {
  if (k < 1 || k > Reader::kTopMax) {
    return invalid_argument("the {} best records: expected 1 to {}", k, Reader::kTopMax);
  }
  if (manifest_.schema.empty()) {
    return invalid_argument("{}: no field \"{}\": the directory was made without a schema", files_.directory,
                            field);
  }
  Result<run::FieldPlace> place = manifest_.schema.find(field);
  if (!place.ok()) return place.status().with_context(files_.directory);
  field_ = std::move(*place);
  const auto& indexed = manifest_.schema.indexed;
  const auto found = std::find(indexed.begin(), indexed.end(), field_);
  if (found != indexed.end()) indexed_ = static_cast<size_t>(found - indexed.begin());
  which_ = which;
  k_ = k;
  reads_.emplace(files_.device, files_.options.reads_in_flight_max);
  SWALE_RETURN_IF_ERROR(begin());
  SWALE_RETURN_IF_ERROR(search());
  SWALE_ASSIGN_OR_RETURN(TopResult result, take_result());
  const ReadStats own = counters_.snapshot();
  result.bytes_read = own.bytes_read;
  result.reads = own.reads;
  return result;
}

TopQuery::~TopQuery() {
  const ReadStats own = counters_.snapshot();
  all_counters_.reads.add(own.reads - footers_.reads);
  all_counters_.bytes_read.add(own.bytes_read - footers_.bytes_read);
}

// Footers that are read for it are this query's, too; the cache has counted them for all.
Result<std::shared_ptr<const PartitionLogs>> TopQuery::logs_of(PartitionNumber partition) {
  uint32_t depth = 0;
  SWALE_ASSIGN_OR_RETURN(auto logs, partitions_.get(epoch_, partition, &depth));
  if (depth > 0) {
    footers_.reads += logs->footer_reads;
    footers_.bytes_read += logs->footer_bytes;
    counters_.reads.add(logs->footer_reads);
    counters_.bytes_read.add(logs->footer_bytes);
  }
  return logs;
}

void TopQuery::read(io::File& file, uint64_t offset, MutableBytes out) {
  reads_->add(file, offset, out, 0);
  counters_.reads.add();
  counters_.bytes_read.add(out.size());
}

// Without a summary every partition is opened: each may have the best record.
Status TopQuery::begin() {
  if (epoch_.freed) return scan_partition(PartitionNumber(0));
  if (indexed_ && partition_count_ > 1) {
    if (Result<ExtremaSummary> summary = read_summary(); summary.ok()) summary_ = std::move(*summary);
  }
  if (!summary_) {
    for (PartitionNumber partition(0); partition < partition_count_; ++partition) {
      SWALE_RETURN_IF_ERROR(indexed_ ? open_partition(partition, ~run::OrderKey{0})
                                     : scan_partition(partition));
    }
    return {};
  }
  const ExtremaSummary::FieldSummary& of = summary_->fields[*indexed_];
  const std::vector<ExtremaSummary::Entry>& listed = of.best[static_cast<size_t>(which_)];
  for (const ExtremaSummary::Entry& entry : listed) {
    sources_.push({run::score_of(which_, entry.key), Level::kPartition, entry.partition, 0});
  }
  if (listed.size() < of.partitions) {
    sources_.push({run::score_of(which_, listed.back().key), Level::kUnlisted, 0, 0});
  }
  return {};
}

Result<ExtremaSummary> TopQuery::read_summary() {
  SWALE_ASSIGN_OR_RETURN(ExtremaSummary summary, imd::read_summary(files_.device, files_.directory, epoch_));
  counters_.reads.add();
  counters_.bytes_read.add(epoch_.summary.bytes);
  bool possible = summary.fields.size() == manifest_.schema.indexed.size();
  for (const ExtremaSummary::FieldSummary& field : summary.fields) {
    for (const auto& best : field.best) {
      for (const ExtremaSummary::Entry& entry : best)
        possible = possible && entry.partition < partition_count_;
    }
  }
  if (!possible)
    return corruption("{}: the summary of epoch {} has other fields or partitions than {}",
                      summary_log_path(files_.directory, epoch_.summary.job), epoch_.epoch, kManifestName);
  return summary;
}

Status TopQuery::search() {
  while (!sources_.empty() && !enough(sources_.top().score)) {
    const std::vector<Source> wave = next_wave();
    switch (wave.front().level) {
      case Level::kBlock:
        SWALE_RETURN_IF_ERROR(open_blocks(wave));
        break;
      case Level::kPiece:
        SWALE_RETURN_IF_ERROR(open_pieces(wave));
        break;
      case Level::kPartition:
        for (const Source& source : wave)
          SWALE_RETURN_IF_ERROR(open_partition(PartitionNumber(source.owner), source.score));
        break;
      case Level::kUnlisted: {
        std::vector<bool> listed(partition_count_);
        for (const auto& entry : summary_->fields[*indexed_].best[static_cast<size_t>(which_)]) {
          listed[entry.partition] = true;
        }
        for (PartitionNumber partition(0); partition < partition_count_; ++partition) {
          if (!listed[partition]) sources_.push({wave.front().score, Level::kPartition, partition, 0});
        }
        break;
      }
    }
  }
  return {};
}

// The best sources of one level, no more than there are records to be found.
std::vector<TopQuery::Source> TopQuery::next_wave() {
  const size_t wanted = full() ? kWaveWhenFull : std::min(k_ - found_.size(), kWaveMax);
  const Level level = sources_.top().level;
  std::vector<Source> wave;
  while (!sources_.empty() && wave.size() < wanted && sources_.top().level == level &&
         !enough(sources_.top().score)) {
    wave.push_back(sources_.top());
    sources_.pop();
  }
  return wave;
}

// Reads the heads of its groups; `score` is what is known of the partition before.
Status TopQuery::open_partition(PartitionNumber partition, run::OrderKey score) {
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(partition));
  const std::vector<run::SegmentRecord> segments = logs->extrema_of(epoch_.epoch);
  uint64_t missing = 0;
  for (const run::SegmentRecord& segment : logs->segments_of(epoch_.epoch)) missing += segment.records;
  for (const run::SegmentRecord& segment : segments) missing -= segment.records;
  if (missing != 0) return scan_partition(partition);
  const std::string& path = logs->index->path();
  std::vector<std::vector<char>> bytes;
  for (const run::SegmentRecord& segment : segments) {
    SWALE_RETURN_IF_ERROR(run::check_extrema_segment(segment, logs->index_end, path));
    read(*logs->index, segment.index_offset, bytes.emplace_back(segment.stride));
  }
  SWALE_RETURN_IF_ERROR(reads_->finish());
  for (size_t i = 0; i < segments.size(); ++i) {
    SWALE_ASSIGN_OR_RETURN(
        run::GroupHead head,
        run::decode_extrema_head(segments[i], partition, {bytes[i].data(), bytes[i].size()}, path));
    SWALE_RETURN_IF_ERROR(run::check_group_fields(head, manifest_.schema.indexed, path));
    const run::GroupField& field = head.fields[*indexed_];
    totals_.add(field.totals);
    if (field.listed == 0) continue;
    const run::OrderKey best = run::score_of(which_, field.totals.extrema.best(which_));
    if (best > score) {
      return corruption("{}: offset {}: the extrema of epoch {} exceed those in {}; run `swale verify`", path,
                        segments[i].index_offset, epoch_.epoch,
                        summary_log_path(files_.directory, epoch_.summary.job));
    }
    sources_.push({best, Level::kPiece, static_cast<uint32_t>(groups_.size()), 0});
    groups_.push_back({partition, std::move(head)});
  }
  return {};
}

Status TopQuery::scan_partition(PartitionNumber partition) {
  ++result_.partitions_scanned;
  uint64_t sequence = 0;
  bool stopped = false;
  Status status;
  std::string front;
  const auto take = [&](const run::ScannedRecord& record) {
    Bytes fields = record.fields();
    if (record.large && fields.size() < field_.end()) {
      status = read_front(record, &front);
      if (!status.ok()) return false;
      fields = front;
    }
    totals_.add(run::read_field(field_, fields));
    offer(partition, sequence++, fields, {record.key, record.value, {}}, record.large);
    return true;
  };
  if (epoch_.freed) {
    SWALE_RETURN_IF_ERROR(freed_.scan_all(files_, epoch_, take, &stopped));
    return status;
  }
  SWALE_ASSIGN_OR_RETURN(const auto logs, logs_of(partition));
  SWALE_RETURN_IF_ERROR(scan_epoch(files_, *logs, epoch_, take, &stopped));
  return status;
}

// The bytes of a value in pages that have the field: records there have only the fields with extrema.
Status TopQuery::read_front(const run::ScannedRecord& record, std::string* front) {
  SWALE_ASSIGN_OR_RETURN(
      const ValueReader::Place place,
      ValueReader::place_of(manifest_, epoch_, record.key, record.value, files_.directory));
  front->resize(std::min(place.pointer.value_bytes, field_.end()));
  return large_.read(place, 0, *front);
}

Status TopQuery::open_pieces(const std::vector<Source>& wave) {
  std::vector<std::shared_ptr<const PartitionLogs>> held;
  std::vector<std::vector<char>> bytes;
  for (const Source& source : wave) {
    const Group& group = groups_[source.owner];
    SWALE_ASSIGN_OR_RETURN(held.emplace_back(), logs_of(group.partition));
    const run::PiecePlace place = run::piece_place(group.head, *indexed_, which_, source.number);
    read(*held.back()->index, place.offset, bytes.emplace_back(place.bytes));
  }
  SWALE_RETURN_IF_ERROR(reads_->finish());
  for (size_t i = 0; i < wave.size(); ++i) {
    const Group& group = groups_[wave[i].owner];
    SWALE_ASSIGN_OR_RETURN(
        const std::vector<run::PieceEntry> entries,
        run::decode_extrema_piece(group.head, group.partition, *indexed_, which_, wave[i].number,
                                  {bytes[i].data(), bytes[i].size()}, held[i]->index->path()));
    for (const run::PieceEntry& entry : entries) {
      sources_.push({run::score_of(which_, entry.bound), Level::kBlock, wave[i].owner, entry.block});
    }
    if (wave[i].number + 1 < run::piece_count(group.head.fields[*indexed_].listed)) {
      sources_.push(
          {run::score_of(which_, entries.back().bound), Level::kPiece, wave[i].owner, wave[i].number + 1});
    }
  }
  return {};
}

Status TopQuery::open_blocks(const std::vector<Source>& wave) {
  std::vector<OpenBlock> blocks;
  for (const Source& source : wave) {
    const Group& group = groups_[source.owner];
    OpenBlock& block = blocks.emplace_back();
    block.source = source;
    SWALE_ASSIGN_OR_RETURN(block.logs, logs_of(group.partition));
    block.run = &group.head.run_of(source.number);
    block.block = block.run->first_block + (source.number - block.run->group_block);
  }
  result_.blocks_read += blocks.size();
  std::sort(blocks.begin(), blocks.end(), [](const OpenBlock& a, const OpenBlock& b) {
    return std::pair(a.logs->id.partition, a.block) < std::pair(b.logs->id.partition, b.block);
  });
  while (!blocks.empty()) SWALE_RETURN_IF_ERROR(look_into(blocks));
  return {};
}

// Reads one more block of each, and keeps those whose last record goes on in the next.
Status TopQuery::look_into(std::vector<OpenBlock>& blocks) {
  for (OpenBlock& block : blocks) {
    const size_t had = block.bytes.size();
    block.bytes.resize(had + run::kBlockBytes);
    read(*block.logs->data, block.block * run::kBlockBytes + had,
         {block.bytes.data() + had, run::kBlockBytes});
  }
  SWALE_RETURN_IF_ERROR(reads_->finish());
  std::vector<OpenBlock> unfinished;
  for (OpenBlock& block : blocks) {
    const PartitionNumber partition = block.logs->id.partition;
    const std::string& path = block.logs->data->path();
    const uint32_t seed = run::epoch_seed(partition, epoch_.epoch_id);
    const BlockNumber last = block.block + block.bytes.size() / run::kBlockBytes - 1;
    const Bytes bytes{block.bytes.data(), block.bytes.size()};
    const auto check = [&](Bytes one) { return run::verify_block(one, seed, last, path); };
    const MutableBytes added(block.bytes.data() + bytes.size() - run::kBlockBytes, run::kBlockBytes);
    if (const Status status = check(view(added)); !status.ok()) {
      const std::vector<char> first(added.begin(), added.end());
      SWALE_RETURN_IF_ERROR(read_again(*block.logs->data, last * run::kBlockBytes,
                                       {first.data(), first.size()}, added, status, check));
    }
    const run::ValueRule rule = manifest_.layout.values();
    const auto take = [&](uint32_t number, const run::RecordView& record) {
      offer(partition, block.block << 16 | number, run::stored_fields(rule, record), record,
            run::points(rule, record));
    };
    SWALE_ASSIGN_OR_RETURN(const uint32_t more,
                           run::records_of_block(*block.run, block.block, bytes, take, path));
    if (more != 0) unfinished.push_back(std::move(block));
  }
  blocks = std::move(unfinished);
  return {};
}

Result<TopResult> TopQuery::take_result() {
  std::sort_heap(found_.begin(), found_.end(), better);
  for (Found& found : found_) {
    const run::OrderKey key = run::score_of(which_, found.score);
    if (found.large) {
      SWALE_ASSIGN_OR_RETURN(
          const ValueReader::Place place,
          ValueReader::place_of(manifest_, epoch_, found.key, found.value, files_.directory));
      SWALE_ASSIGN_OR_RETURN(found.value, large_.read(place));
    }
    result_.records.push_back({std::move(found.key), std::move(found.value), key});
  }
  result_.field = field_;
  result_.nans = summary_ ? summary_->fields[*indexed_].nans : totals_.nans;
  result_.absent = summary_ ? summary_->fields[*indexed_].absent : totals_.absent;
  return std::move(result_);
}

}  // namespace swale::imd
