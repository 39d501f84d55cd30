// The requests about names: files and directories on server 0, and parts by their ids on the others.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>

#include "io/descriptor_path.h"
#include "iond/iond_files.h"
#include "iond/stripes.h"

namespace swale::iond {
namespace {

// With this space an answer has at least one entry, so that one without tells the end.
constexpr uint64_t kListBytesLeast = 4 * kKiB;
constexpr int64_t kNanosASecond = 1'000'000'000;

timespec timespec_of(int64_t nanos) {
  const int64_t second = nanos / kNanosASecond - (nanos % kNanosASecond < 0 ? 1 : 0);
  return {static_cast<time_t>(second), static_cast<long>(nanos - second * kNanosASecond)};
}

IondEntryKind kind_of(int directory, const dirent& entry) {
  if (entry.d_type == DT_REG) return IondEntryKind::kFile;
  if (entry.d_type == DT_DIR) return IondEntryKind::kDirectory;
  struct stat found;
  if (entry.d_type != DT_UNKNOWN || ::fstatat(directory, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
    return IondEntryKind::kOther;
  return S_ISREG(found.st_mode)   ? IondEntryKind::kFile
         : S_ISDIR(found.st_mode) ? IondEntryKind::kDirectory
                                  : IondEntryKind::kOther;
}

// The first names after `after`, in as many bytes as `bytes_max` at most. Each call reads the directory as a
// whole: 0.3 us an entry, once for each MiB of names.
Result<std::string> entries_after(io::Descriptor directory, const std::string& path, std::string_view after,
                                  size_t bytes_max) {
  struct CloseIt {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const std::unique_ptr<DIR, CloseIt> open(::fdopendir(directory.get()));
  if (!open) return errno_status(errno, path + ": listing it");
  static_cast<void>(directory.release());
  std::map<std::string, IondEntryKind> first;
  const auto bytes_of = [](const std::string& name) { return name.size() + 3; };  // kind, length of two bytes
  size_t bytes = 0;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) return errno_status(errno, path + ": listing it");
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || is_private_name(name) || name <= after) continue;
    // Behind what does not fit nothing fits.
    if (bytes + bytes_of(std::string(name)) > bytes_max && !first.empty() && name > first.rbegin()->first)
      continue;
    const auto [at, fresh] = first.emplace(name, kind_of(::dirfd(open.get()), *entry));
    if (fresh) bytes += bytes_of(at->first);
    while (bytes > bytes_max) {
      bytes -= bytes_of(first.rbegin()->first);
      first.erase(std::prev(first.end()));
    }
  }
  std::string out;
  for (const auto& [name, kind] : first) append_iond_entry(&out, {name, kind});
  return out;
}

}  // namespace

// A file has lost a name: if that was its last one, the store need not keep its bytes.
void IondFiles::name_gone(const io::Descriptor& file) const {
  struct stat state;
  if (::fstat(file.get(), &state) == 0 && S_ISREG(state.st_mode) && state.st_nlink == 0)
    params_.store->removed(file.get());
}

Status IondFiles::sync_name(const Beneath::Place& place) const {
  return params_.store->durability() == tier::Durability::kPageCache ? Status()
                                                                     : Beneath::sync_directory(place);
}

Result<std::string> IondFiles::remove(const IondRequest& request) {
  const MutexLock lock(names_);
  IondAnswer answer;
  std::string name(request.name);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place,
                         has_names() ? place_of(name) : part_place(request.file, &name));
  const auto file = root_.look(place);
  // A part that was never written may have none.
  if (!has_names() && file.status().code() == Code::kNotFound) return encode_iond_answer(answer);
  if (!file.ok()) return file.status();
  if (has_names()) {
    SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(*file, place.full));
    if (stripes) answer.id = stripes->id;
  }
  if (::unlinkat(place.directory.get(), place.last.c_str(), 0) != 0)
    return errno_status(errno, place.full + ": removing");
  name_gone(*file);
  SWALE_RETURN_IF_ERROR(sync_name(place));
  return encode_iond_answer(answer);
}

Result<std::string> IondFiles::rename(const IondRequest& request) {
  const MutexLock lock(names_);
  const std::string from(request.name), to(request.other);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place source, place_of(from));
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place target, place_of(to));
  IondAnswer answer;
  SWALE_RETURN_IF_ERROR(root_.look_at_any(source).status());
  if (from == to) return encode_iond_answer(answer);
  const auto replaced = root_.look_at_any(target);
  if (!replaced.ok() && replaced.status().code() != Code::kNotFound) return replaced.status();
  if (root_.look(target).ok()) {
    SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(*replaced, target.full));
    if (stripes) answer.id = stripes->id;
  }
  NewNames names = new_names(from, to);
  if (::renameat(source.directory.get(), source.last.c_str(), target.directory.get(), target.last.c_str()) !=
      0)
    return errno_status(errno, fmt::format("{}: renaming to {}", source.full, target.full));
  give_names(&names);
  if (replaced.ok()) name_gone(*replaced);
  SWALE_RETURN_IF_ERROR(sync_name(source));
  SWALE_RETURN_IF_ERROR(sync_name(target));
  return encode_iond_answer(answer);
}

// What open files are called after a rename of a file, or of a directory above them.
IondFiles::NewNames IondFiles::new_names(const std::string& from, const std::string& to) const {
  NewNames names;
  const MutexLock lock(mutex_);
  for (const auto& [number, open] : open_) {
    const std::string& name = open->name;
    if (name.starts_with(from) && (name.size() == from.size() || name[from.size()] == '/'))
      names.emplace_back(open, to + name.substr(from.size()));
  }
  return names;
}

// Throws nothing.
void IondFiles::give_names(NewNames* names) {
  const MutexLock lock(mutex_);
  for (auto& [open, name] : *names) open->name.swap(name);
}

Status IondFiles::sync(Open* open) const {
  SWALE_RETURN_IF_ERROR(params_.store->sync(open->handle));
  if (!open->name_unsynced.exchange(false)) return {};
  const auto name_of = [&] {
    const MutexLock lock(mutex_);
    return open->name;
  };
  for (std::string name = name_of();;) {
    const Status synced = sync_names(name);
    if (synced.ok()) return {};
    std::string now = name_of();
    if (now == name) {
      // The file and its directory are gone: no name is left.
      if (synced.code() == Code::kNotFound) return {};
      open->name_unsynced = true;
      return synced;
    }
    name = std::move(now);  // renamed meanwhile
  }
}

// Of a name and of the directories that lead to it.
Status IondFiles::sync_names(const std::string& name) const {
  for (size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('/', end - 1)) {
    SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, root_.place_of(name.substr(0, end)));
    SWALE_RETURN_IF_ERROR(Beneath::sync_directory(place));
  }
  return {};
}

Result<std::string> IondFiles::names(IondMethod method, const IondRequest& request) {
  if (!has_names() && method != IondMethod::kSetAttributes)
    return invalid_argument("names are on I/O server {}", kNamesServer);
  switch (method) {
    case IondMethod::kMakeDirectory:
      return make_directory(request);
    case IondMethod::kRemoveDirectory:
      return remove_directory(request);
    case IondMethod::kRename:
      return rename(request);
    case IondMethod::kList:
      return list(request);
    case IondMethod::kLook:
      return look(request);
    default:
      return set_attributes(request);
  }
}

Result<std::string> IondFiles::make_directory(const IondRequest& request) {
  const MutexLock lock(names_);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(std::string(request.name)));
  SWALE_RETURN_IF_ERROR(check_mode(place.full, request.mode, FileKind::kDirectory));
  if (::mkdirat(place.directory.get(), place.last.c_str(), request.mode) != 0)
    return errno_status(errno, place.full + ": making the directory");
  SWALE_RETURN_IF_ERROR(sync_name(place));
  return encode_iond_answer({});
}

Result<std::string> IondFiles::remove_directory(const IondRequest& request) {
  const MutexLock lock(names_);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(std::string(request.name)));
  if (::unlinkat(place.directory.get(), place.last.c_str(), AT_REMOVEDIR) != 0)
    return errno_status(errno, place.full + ": removing the directory");
  SWALE_RETURN_IF_ERROR(sync_name(place));
  return encode_iond_answer({});
}

Result<std::string> IondFiles::list(const IondRequest& request) const {
  const std::string name(request.name);
  if (!name.empty()) SWALE_RETURN_IF_ERROR(check_iond_name(name));
  if (request.length < kListBytesLeast || request.length > kIondDataBytesMax)
    return invalid_argument("a listing of {} bytes: expected {} to {}", request.length, kListBytesLeast,
                            kIondDataBytesMax);
  SWALE_ASSIGN_OR_RETURN(io::Descriptor directory, root_.open_to_list(name));
  SWALE_ASSIGN_OR_RETURN(const std::string entries,
                         entries_after(std::move(directory), name, request.other, request.length));
  return encode_iond_answer({.data = entries});
}

Result<std::string> IondFiles::look(const IondRequest& request) const {
  const std::string name(request.name);
  io::Descriptor found;
  if (name.empty()) {
    SWALE_ASSIGN_OR_RETURN(found, root_.open_to_list(name));
  } else {
    SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(name));
    SWALE_ASSIGN_OR_RETURN(found, root_.look_at_any(place));
  }
  SWALE_ASSIGN_OR_RETURN(const FileAttributes attributes, attributes_of(*params_.store, found.get()));
  IondAnswer answer;
  answer.mode = attributes.mode;
  answer.created_ns = attributes.created_ns;
  answer.modified_ns = attributes.modified_ns;
  if (attributes.kind == FileKind::kDirectory) {
    answer.mode |= kIondDirectoryBit;
    return encode_iond_answer(answer);
  }
  SWALE_RETURN_IF_ERROR(params_.store->expect_whole(found.get()));
  SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(found, name));
  answer.size = attributes.size;
  answer.id = stripes ? stripes->id : 0;
  answer.first = stripes ? stripes->striping.first : 0;
  return encode_iond_answer(answer);
}

Result<std::string> IondFiles::set_attributes(const IondRequest& request) {
  const MutexLock lock(names_);
  std::string name(request.name);
  IondAnswer answer;
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place,
                         has_names() ? place_of(name) : part_place(request.file, &name));
  const auto found = root_.look_at_any(place);
  // A part that was never written may have none.
  if (!has_names() && found.status().code() == Code::kNotFound) return encode_iond_answer(answer);
  if (!found.ok()) return found.status();
  SWALE_RETURN_IF_ERROR(set_attributes(*found, place.full, request));
  if (has_names() && root_.look(place).ok()) {
    SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(*found, place.full));
    if (stripes) answer.id = stripes->id;
  }
  return encode_iond_answer(answer);
}

// By the descriptor, which leads to no link: never by a name again.
Status IondFiles::set_attributes(const io::Descriptor& of, const std::string& path,
                                 const IondRequest& request) {
  SWALE_ASSIGN_OR_RETURN(const FileAttributes before, attributes_of(*params_.store, of.get()));
  const std::string way = io::descriptor_path(of);
  if ((request.flags & kIondSetMode) != 0) {
    SWALE_RETURN_IF_ERROR(check_mode(path, request.mode, before.kind));
    if (::chmod(way.c_str(), request.mode) != 0) return errno_status(errno, path + ": setting its mode");
    const MutexLock lock(mutex_);
    for (const auto& [number, open] : open_)
      if (open->at_open.key == before.key) open->at_open.mode = request.mode;
  }
  if ((request.flags & kIondSetModified) != 0) {
    const timespec times[2] = {{0, UTIME_OMIT}, timespec_of(request.modified_ns)};
    if (::utimensat(AT_FDCWD, way.c_str(), times, 0) != 0)
      return errno_status(errno, path + ": setting its times");
    if (before.kind == FileKind::kFile) params_.store->set_modified(before.key, request.modified_ns);
  }
  return {};
}

}  // namespace swale::iond
