#include "io/device.h"

#include "base/log.h"
#include "io/anchor.h"
#include "io/fresh_file.h"

namespace swale::io {
namespace {

Status write_and_sync(Device& device, const std::string& path, Bytes content) {
  SWALE_ASSIGN_OR_RETURN(const auto file, create_fresh(device, path));
  SWALE_RETURN_IF_ERROR(file->pwrite(0, content));
  return file->sync();
}

}  // namespace

Result<std::unique_ptr<Device>> Device::anchored_private(const std::string& directory) {
  return anchored(directory);
}

void File::read_many(std::span<ReadRequest> requests) {
  for (ReadRequest& request : requests) {
    const Result<size_t> got = pread(request.offset, request.out);
    request.got = got.ok() ? *got : 0;
    request.status = got.status();
  }
}

Status read_exactly(File& file, uint64_t offset, MutableBytes out) {
  SWALE_ASSIGN_OR_RETURN(const size_t got, file.pread(offset, out));
  if (got == out.size()) return {};
  return corruption("{}: expected {} bytes at offset {}, found {}: the file has been cut short", file.path(),
                    out.size(), offset, got);
}

uint64_t data_end(File& file, uint64_t end) {
  uint64_t least = 0;
  for (uint64_t most = end; least < most;) {
    // The upper half first: if the file has no hole before `end`, one call shows it.
    const uint64_t middle = most == end ? end - 1 : least + (most - least) / 2;
    if (file.next_data(middle) >= end) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return least;
}

Result<std::unique_ptr<File>> create_fresh(Device& device, const std::string& path) {
  constexpr int kTries = 3;  // somebody makes it again meanwhile
  for (int i = 1;; ++i) {
    Result<std::unique_ptr<File>> made = device.open(path, OpenMode::kCreate);
    if (made.status().code() != Code::kAlreadyExists || i == kTries) return made;
    const Status removed = device.remove(path);
    if (!removed.ok() && removed.code() != Code::kNotFound)
      return removed.with_context("making room for a temporary file");
  }
}

Result<std::string> read_file(Device& device, const std::string& path, size_t bytes_limit) {
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  if (size > bytes_limit) {
    return error(Code::kResourceExhausted, Scope::kFile, "{}: {} bytes, where at most {} are expected", path,
                 size, bytes_limit);
  }
  std::string content(size, '\0');
  SWALE_ASSIGN_OR_RETURN(const size_t got, file->pread(0, content));
  content.resize(got);
  return content;
}

Status replace_file(Device& device, const std::string& path, Bytes content) {
  const std::string temporary = path + ".tmp";
  Status status = write_and_sync(device, temporary, content);
  if (status.ok()) status = device.rename(temporary, path);
  if (!status.ok()) {
    // Only tidying: the next call would overwrite the file. Report the first failure, not this one.
    static_cast<void>(device.remove(temporary));
    return status.with_context("replacing " + path);
  }
  return device.sync_directory(parent_directory(path)).with_context("replacing " + path);
}

Status make_directories(Device& device, const std::string& path) {
  const std::string parent = parent_directory(path);
  SWALE_ASSIGN_OR_RETURN(bool exists, device.exists(path));
  if (!exists) {
    if (parent != path) SWALE_RETURN_IF_ERROR(make_directories(device, parent));
    const Status made = device.make_directory(path);
    exists = made.code() == Code::kAlreadyExists;  // another process made it
    if (!exists) SWALE_RETURN_IF_ERROR(made);
  }
  const Status synced = device.sync_directory(parent);
  if (!exists || synced.ok()) return synced;
  // A directory that somebody else has given to this user may lie where the user may not read.
  log_warn("{}: a power cut may lose its name: {}", path, synced.message());
  return {};
}

std::string parent_directory(const std::string& path) {
  std::string parent = without_trailing_slashes(path);
  const size_t slash = parent.rfind('/');
  if (slash == std::string::npos) return ".";
  return without_trailing_slashes(parent.substr(0, slash + 1));
}

}  // namespace swale::io
