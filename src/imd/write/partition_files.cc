#include "imd/write/partition_files.h"

#include <algorithm>
#include <utility>

namespace swale::imd {

Result<PartitionFiles> PartitionFiles::create(io::Device& device, const std::string& directory, LogId log) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<io::File> data,
                         device.open(data_log_path(directory, log), io::OpenMode::kCreate));
  Result<std::unique_ptr<io::File>> index =
      device.open(index_log_path(directory, log), io::OpenMode::kCreate);
  Status made = index.status();
  if (made.ok()) made = device.sync_directory(log_folder(directory, log));
  if (!made.ok()) {
    for (const std::string& path : {data->path(), index_log_path(directory, log)})
      static_cast<void>(device.remove(path));
    return made;
  }
  data->prefer_direct();
  (*index)->prefer_direct();
  return PartitionFiles(log, std::move(data), std::move(*index),
                        std::make_unique<ValueLog>(device, directory, log),
                        std::make_unique<PageLog>(device, directory, log));
}

void PartitionFiles::discard(io::Device& device) {
  for (const io::File* file : {data_.get(), index_.get()}) static_cast<void>(device.remove(file->path()));
}

io::Operation PartitionFiles::operation(const IoRequest& request, uint64_t tag) {
  const bool data = request.file == LogFile::kData;
  const bool values = request.file == LogFile::kValues;
  io::Operation operation;
  operation.kind =
      request.kind == IoRequest::Kind::kSync ? io::Operation::Kind::kSync : io::Operation::Kind::kWrite;
  operation.file = data ? data_.get() : values ? values_file() : index_.get();
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
