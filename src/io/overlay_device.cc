#include "io/overlay_device.h"

#include <algorithm>

namespace swale::io {
namespace {

constexpr size_t kLiftedBytesMax = kGiB;

}  // namespace

Result<bool> OverlayDevice::below_has(const std::string& path) {
  if (hidden_.contains(path)) return false;
  return below_.exists(path);
}

Status OverlayDevice::lift_directory(const std::string& path) {
  if (path.empty() || path == "." || path == "/") return {};
  return io::make_directories(memory_, path);
}

Status OverlayDevice::lift(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::string content, io::read_file(below_, path, kLiftedBytesMax));
  SWALE_RETURN_IF_ERROR(lift_directory(io::parent_directory(path)));
  SWALE_ASSIGN_OR_RETURN(const auto file, memory_.open(path, io::OpenMode::kCreate));
  hidden_.insert(path);
  return content.empty() ? Status() : file->pwrite(0, content);
}

Result<std::unique_ptr<io::Device>> OverlayDevice::anchored(const std::string& directory) {
  return error(Code::kUnsupported, Scope::kOperation, "{}: a view of a store is not anchored", directory);
}

Result<std::unique_ptr<io::File>> OverlayDevice::open(const std::string& path, io::OpenMode mode) {
  SWALE_ASSIGN_OR_RETURN(const bool mine, memory_.exists(path));
  if (mine) return memory_.open(path, mode);
  SWALE_ASSIGN_OR_RETURN(const bool there, below_has(path));
  if (there && mode == io::OpenMode::kRead) return below_.open(path, mode);
  if (there && mode != io::OpenMode::kCreate) {
    SWALE_RETURN_IF_ERROR(lift(path));
    return memory_.open(path, mode);
  }
  if (there) return error(Code::kAlreadyExists, Scope::kFile, "{}: exists", path);
  SWALE_RETURN_IF_ERROR(lift_directory(io::parent_directory(path)));
  return memory_.open(path, mode);
}

Status OverlayDevice::make_directory(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const bool there, exists(path));
  if (there) return error(Code::kAlreadyExists, Scope::kFile, "{}: exists", path);
  return lift_directory(path);
}

Status OverlayDevice::rename(const std::string& from, const std::string& to) {
  SWALE_ASSIGN_OR_RETURN(const bool mine, memory_.exists(from));
  if (!mine) {
    SWALE_ASSIGN_OR_RETURN(const bool there, below_has(from));
    if (!there) return error(Code::kNotFound, Scope::kFile, "{}: no such file", from);
    SWALE_RETURN_IF_ERROR(lift(from));
  }
  SWALE_RETURN_IF_ERROR(lift_directory(io::parent_directory(to)));
  hidden_.insert(to);
  return memory_.rename(from, to);
}

Status OverlayDevice::rename_new(const std::string& from, const std::string& to) {
  SWALE_ASSIGN_OR_RETURN(const bool taken, exists(to));
  if (taken) return error(Code::kAlreadyExists, Scope::kFile, "{}: exists", to);
  return rename(from, to);
}

Status OverlayDevice::remove(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const bool mine, memory_.exists(path));
  SWALE_ASSIGN_OR_RETURN(const bool there, below_has(path));
  if (!mine && !there) return error(Code::kNotFound, Scope::kFile, "{}: no such file", path);
  hidden_.insert(path);
  return mine ? memory_.remove(path) : Status();
}

Status OverlayDevice::sync_directory(const std::string&) { return {}; }

Result<std::vector<std::string>> OverlayDevice::list(const std::string& path) {
  std::vector<std::string> names;
  const auto below = below_.list(path);
  if (below.ok()) {
    for (const std::string& name : *below) {
      if (!hidden_.contains(path + "/" + name)) names.push_back(name);
    }
  }
  const auto mine = memory_.list(path);
  if (mine.ok()) names.insert(names.end(), mine->begin(), mine->end());
  if (!below.ok() && !mine.ok()) return below.status();
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<bool> OverlayDevice::exists(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const bool mine, memory_.exists(path));
  if (mine) return true;
  return below_has(path);
}

}  // namespace swale::io
