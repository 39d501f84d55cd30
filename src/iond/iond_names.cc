// The requests that change names: of files, directories and links on server 0, and of parts by their ids on
// the others; and listings.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>

#include "io/descriptor_path.h"
#include "iond/iond_files.h"
#include "iond/shown_mode.h"
#include "iond/stripes.h"

namespace swale::iond {
namespace {

// With this space an answer has at least one entry, so that one without tells the end.
constexpr uint64_t kListBytesLeast = 4 * kKiB;
constexpr size_t kVarintBytesMax = 10;
IondEntryKind kind_of(int directory, const dirent& entry) {
  if (entry.d_type == DT_REG) return IondEntryKind::kFile;
  if (entry.d_type == DT_DIR) return IondEntryKind::kDirectory;
  if (entry.d_type == DT_LNK) return IondEntryKind::kSymlink;
  struct stat found;
  if (entry.d_type != DT_UNKNOWN || ::fstatat(directory, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
    return IondEntryKind::kOther;
  return S_ISREG(found.st_mode)   ? IondEntryKind::kFile
         : S_ISDIR(found.st_mode) ? IondEntryKind::kDirectory
         : S_ISLNK(found.st_mode) ? IondEntryKind::kSymlink
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
  struct Found {
    IondEntryKind kind;
    uint64_t inode;
  };
  std::map<std::string, Found> first;
  // kind, inode, and a length of two bytes
  const auto bytes_of = [](const std::string& name) { return name.size() + 3 + kVarintBytesMax; };
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
    const auto [at, fresh] = first.emplace(name, Found{kind_of(::dirfd(open.get()), *entry), entry->d_ino});
    if (fresh) bytes += bytes_of(at->first);
    while (bytes > bytes_max) {
      bytes -= bytes_of(first.rbegin()->first);
      first.erase(std::prev(first.end()));
    }
  }
  std::string out;
  for (const auto& [name, found] : first) append_iond_entry(&out, {name, found.kind, found.inode});
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

// Of a file that has lost a name: none, if it has others.
Result<uint64_t> IondFiles::id_if_gone(const io::Descriptor& file, const std::string& path) const {
  struct stat state;
  if (::fstat(file.get(), &state) != 0) return errno_status(errno, path);
  if (!S_ISREG(state.st_mode) || state.st_nlink > 0) return uint64_t{0};
  SWALE_ASSIGN_OR_RETURN(const auto stripes, read_stripes(file, path));
  return stripes ? stripes->id : 0;
}

Result<std::string> IondFiles::remove(const IondRequest& request) {
  const MutexLock lock(names_);
  IondAnswer answer;
  std::string name(request.name);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place,
                         has_names() ? place_of(name) : part_place(request.file, &name));
  const auto file = has_names() ? root_.look_at_name(place) : root_.look(place);
  // A part that was never written may have none.
  if (!has_names() && file.status().code() == Code::kNotFound) return encode_iond_answer(answer);
  if (!file.ok()) return file.status();
  if (::unlinkat(place.directory.get(), place.last.c_str(), 0) != 0)
    return errno_status(errno, place.full + ": removing");
  if (has_names()) {
    SWALE_ASSIGN_OR_RETURN(answer.id, id_if_gone(*file, place.full));
  }
  name_gone(*file);
  SWALE_RETURN_IF_ERROR(sync_name(place));
  return encode_iond_answer(answer);
}

Result<std::string> IondFiles::rename(const IondRequest& request) {
  const MutexLock lock(names_);
  const std::string from(request.name), to(request.other);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place source, place_of(from));
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place target, place_of(to));
  const bool exchanges = (request.flags & kIondExchange) != 0;
  const bool keeps = (request.flags & kIondNoReplace) != 0;
  IondAnswer answer;
  SWALE_RETURN_IF_ERROR(root_.look_at_name(source).status());
  if (from == to && !keeps) return encode_iond_answer(answer);
  const auto replaced = root_.look_at_name(target);
  if (!replaced.ok() && replaced.status().code() != Code::kNotFound) return replaced.status();
  NewNames names = new_names(from, to, exchanges);
  const unsigned how = (exchanges ? RENAME_EXCHANGE : 0u) | (keeps ? RENAME_NOREPLACE : 0u);
  if (::renameat2(source.directory.get(), source.last.c_str(), target.directory.get(), target.last.c_str(),
                  how) != 0)
    return errno_status(errno, fmt::format("{}: renaming to {}", source.full, target.full));
  give_names(&names);
  if (replaced.ok()) {
    SWALE_ASSIGN_OR_RETURN(answer.id, id_if_gone(*replaced, target.full));
    name_gone(*replaced);
  }
  SWALE_RETURN_IF_ERROR(sync_name(source));
  SWALE_RETURN_IF_ERROR(sync_name(target));
  return encode_iond_answer(answer);
}

// The descriptor that was looked at gets the name: no link is followed, whatever has the old name by now.
Result<std::string> IondFiles::link(const IondRequest& request) {
  const MutexLock lock(names_);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place source, place_of(std::string(request.name)));
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place target, place_of(std::string(request.other)));
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor file, root_.look_at_name(source));
  struct stat found;
  if (::fstat(file.get(), &found) != 0) return errno_status(errno, source.full);
  if (request.inode != 0 && found.st_ino != request.inode)
    return errno_status(ESTALE, source.full + ": is another file now");
  if (::linkat(AT_FDCWD, io::descriptor_path(file).c_str(), target.directory.get(), target.last.c_str(),
               AT_SYMLINK_FOLLOW) != 0)
    return errno_status(errno, fmt::format("{}: its second name {}", source.full, target.full));
  SWALE_RETURN_IF_ERROR(sync_name(target));
  return encode_iond_answer({});
}

// A target is text: the server follows no link.
Result<std::string> IondFiles::make_symlink(const IondRequest& request) {
  const MutexLock lock(names_);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(std::string(request.name)));
  const std::string target(request.other);
  if (target.empty() || target.size() >= kIondNameBytesMax || target.find('\0') != std::string::npos)
    return invalid_argument("{}: a target of {} bytes: expected 1 to {}, without NUL", place.full,
                            target.size(), kIondNameBytesMax - 1)
        .with_error_number(target.empty() ? ENOENT : ENAMETOOLONG);
  if (::symlinkat(target.c_str(), place.directory.get(), place.last.c_str()) != 0)
    return errno_status(errno, place.full + ": making the link");
  SWALE_RETURN_IF_ERROR(sync_name(place));
  return encode_iond_answer({});
}

// What open files are called after a rename of a file, or of a directory above them.
IondFiles::NewNames IondFiles::new_names(const std::string& from, const std::string& to,
                                         bool exchanged) const {
  NewNames names;
  const MutexLock lock(mutex_);
  const auto moved = [](const std::string& name, const std::string& one) {
    return name.starts_with(one) && (name.size() == one.size() || name[one.size()] == '/');
  };
  for (const auto& [number, open] : open_) {
    const std::string& name = open->name;
    if (moved(name, from))
      names.emplace_back(open, to + name.substr(from.size()));
    else if (exchanged && moved(name, to))
      names.emplace_back(open, from + name.substr(to.size()));
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
  if (!has_names()) return invalid_argument("names are on I/O server {}", kNamesServer);
  switch (method) {
    case IondMethod::kMakeDirectory:
      return make_directory(request);
    case IondMethod::kRemoveDirectory:
      return remove_directory(request);
    case IondMethod::kRename:
      return rename(request);
    case IondMethod::kList:
      return list(request);
    case IondMethod::kLink:
      return link(request);
    case IondMethod::kSyncDirectory:
      return sync_directory(request);
    default:
      return make_symlink(request);
  }
}

Result<std::string> IondFiles::make_directory(const IondRequest& request) {
  const MutexLock lock(names_);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place, place_of(std::string(request.name)));
  SWALE_RETURN_IF_ERROR(check_iond_mode(place.full, request.mode));
  if (::mkdirat(place.directory.get(), place.last.c_str(),
                request.mode | owners_bits(FileKind::kDirectory)) != 0)
    return errno_status(errno, place.full + ": making the directory");
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor made, root_.look_at_any(place));
  SWALE_RETURN_IF_ERROR(give_mode(made, place.full, request));
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

// The names below it, whatever the durability of the store is.
Result<std::string> IondFiles::sync_directory(const IondRequest& request) const {
  const std::string name(request.name);
  if (!name.empty()) SWALE_RETURN_IF_ERROR(check_iond_name(name));
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor directory, root_.open_to_list(name));
  // EINVAL: this file system cannot sync directories.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) return errno_status(errno, name + ": sync of it");
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

}  // namespace swale::iond
