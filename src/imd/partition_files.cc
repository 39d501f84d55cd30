#include "imd/partition_files.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace swale::imd {
namespace {

bool committed(const Manifest& manifest, const run::SegmentRecord& segment) {
  return segment.epoch < manifest.epochs.size() &&
         manifest.epochs[segment.epoch].epoch_id == segment.epoch_id;
}

// Every epoch whose job had this partition must have left a segment here.
Status check_complete(const Manifest& manifest, std::span<const run::SegmentRecord> segments,
                      uint32_t partition, const std::string& path) {
  for (const EpochEntry& epoch : manifest.epochs) {
    if (static_cast<int32_t>(partition) >= manifest.jobs[epoch.job].ranks) continue;
    const bool found = std::any_of(segments.begin(), segments.end(), [&](const run::SegmentRecord& segment) {
      return segment.epoch_id == epoch.epoch_id;
    });
    if (!found) {
      return corruption(
          "{}: has no segment of epoch {}, which {} names as committed; the file was cut or replaced. "
          "Restore it, or write to a new directory",
          path, epoch.epoch, kManifestName);
    }
  }
  return {};
}

}  // namespace

Result<PartitionFiles> PartitionFiles::open(io::Device& device, const std::string& directory,
                                            uint32_t partition, const Manifest& manifest) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> data,
                         device.open(data_log_path(directory, partition), io::OpenMode::kOpenOrCreate));
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> index,
                         device.open(index_log_path(directory, partition), io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(device.sync_directory(part_folder(directory, partition)));
  PartitionFiles files(std::move(data), std::move(index), run::FooterBuilder(partition));
  SWALE_RETURN_IF_ERROR(files.resume(partition, manifest));
  SWALE_ASSIGN_OR_RETURN(ValueLog values, ValueLog::open(device, directory, partition, files.values_end_));
  files.values_ = std::make_unique<ValueLog>(std::move(values));
  files.data_->prefer_direct();
  files.index_->prefer_direct();
  return files;
}

Status PartitionFiles::resume(uint32_t partition, const Manifest& manifest) {
  const Result<run::Footer> footer = run::read_footer(*index_, partition);
  if (!footer.ok()) {
    // Damage is fatal only to what was promised: an index log that holds no committed epoch starts anew.
    if (footer.status().code() != Code::kCorruption) return footer.status();
    return check_complete(manifest, {}, partition, index_->path());
  }
  const auto& segments = footer->segments;
  SWALE_RETURN_IF_ERROR(check_complete(manifest, segments, partition, index_->path()));
  const auto tail = std::find_if(segments.begin(), segments.end(), [&](const run::SegmentRecord& segment) {
    return !committed(manifest, segment);
  });
  const auto keep = static_cast<size_t>(tail - segments.begin());
  for (size_t i = 0; i < keep; ++i) {
    data_end_block_ = std::max(data_end_block_, segments[i].data_block + segments[i].data_blocks);
    if (run::is_values_segment(segments[i]))
      values_end_ = std::max(values_end_, run::range_of(segments[i]).end_offset());
  }
  if (std::any_of(tail, segments.end(), [&](const auto& segment) { return committed(manifest, segment); })) {
    return corruption("{}: a segment of an uncommitted epoch stands before one of a committed epoch",
                      index_->path());
  }
  // Behind the last footer even if it lists an uncommitted epoch: the next footer leaves that epoch out.
  index_end_ = footer->end_offset;
  footer_ = run::FooterBuilder::resume(partition, *footer, keep);
  return {};
}

Status PartitionFiles::cut_tails() {
  for (const auto& [file, end] :
       {std::pair{data_.get(), data_end_block_ * run::kBlockBytes}, std::pair{index_.get(), index_end_}}) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
    if (size <= end) continue;
    log_warn("{}: cutting off {} bytes behind the last committed epoch, left by a job that did not end it",
             file->path(), size - end);
    SWALE_RETURN_IF_ERROR(file->truncate(end));
  }
  return values_->cut_tail();
}

io::Operation PartitionFiles::operation(const IoRequest& request, uint64_t tag) {
  const bool data = request.file == LogFile::kData;
  const bool values = request.file == LogFile::kValues;
  io::Operation operation;
  operation.kind =
      request.kind == IoRequest::Kind::kSync ? io::Operation::Kind::kSync : io::Operation::Kind::kWrite;
  operation.file = data ? data_.get() : values ? values_->file() : index_.get();
  operation.offset = request.offset;
  operation.from = request.data;
  operation.tag = tag;
  // Not for the index log: its end is where readers look for the footer.
  if (data && operation.kind == io::Operation::Kind::kWrite) {
    written_end_ = std::max(written_end_, request.offset + request.data.size());
    data_->reserve(written_end_);
  }
  return operation;
}

Status PartitionFiles::trim() {
  if (written_end_ == 0) return {};
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, data_->size());
  return size > written_end_ ? data_->truncate(written_end_) : Status();
}

}  // namespace swale::imd
