#include "fs/client/client_names.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "fs/client/attachment.h"
#include "fs/client/client_seal.h"
#include "io/descriptor.h"

namespace swale::fs {
namespace {

// `call` returns 0, or sets errno.
template <class Call>
Status on_tree(const std::string& path, const char* what, Call&& call) {
  SWALE_ASSIGN_OR_RETURN(const TreePlace tree, find_tree(directory_of(path), path));
  return call() == 0 ? Status() : tree_failure(tree, path, errno, what);
}

// Of one that can be read: else nobody can ask.
bool sealed_as_said(const std::string& path) {
  const io::Descriptor file(io::continued(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECT); }));
  if (!file.valid()) return false;
  const auto sealed = is_sealed(file.get(), path);
  return sealed.ok() && *sealed;
}

NameKind kind_of(int directory, const dirent& entry) {
  if (entry.d_type == DT_REG) return NameKind::kFile;
  if (entry.d_type == DT_DIR) return NameKind::kDirectory;
  if (entry.d_type != DT_UNKNOWN) return NameKind::kOther;
  struct stat found;
  if (::fstatat(directory, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) return NameKind::kOther;
  if (S_ISREG(found.st_mode)) return NameKind::kFile;
  return S_ISDIR(found.st_mode) ? NameKind::kDirectory : NameKind::kOther;
}

struct CloseListing {
  void operator()(DIR* listing) const noexcept { ::closedir(listing); }
};

}  // namespace

Result<NameAttributes> name_attributes(const std::string& path) {
  NameAttributes of;
  SWALE_RETURN_IF_ERROR(on_tree(path, "its attributes", [&] { return ::stat(path.c_str(), &of.found); }));
  constexpr mode_t kMayWrite = 0222;
  of.sealed = S_ISREG(of.found.st_mode) && (of.found.st_mode & kMayWrite) == 0 && sealed_as_said(path);
  return of;
}

Status make_directory(const std::string& path, mode_t mode) {
  return on_tree(path, "making the directory", [&] { return ::mkdir(path.c_str(), mode); });
}

Status remove_directory(const std::string& path) {
  return on_tree(path, "removing the directory", [&] { return ::rmdir(path.c_str()); });
}

Status remove_name(const std::string& path) {
  return on_tree(path, "removing it", [&] { return ::unlink(path.c_str()); });
}

Status rename_path(const std::string& from, const std::string& to) {
  SWALE_RETURN_IF_ERROR(find_tree(directory_of(to), to).status());
  const std::string what = "renaming it to " + to;
  return on_tree(from, what.c_str(), [&] { return ::rename(from.c_str(), to.c_str()); });
}

Status list_directory(const std::string& path, const std::function<bool(const char*, NameKind)>& visit) {
  SWALE_ASSIGN_OR_RETURN(const TreePlace tree, find_tree(path, path));
  const std::unique_ptr<DIR, CloseListing> listing(::opendir(path.c_str()));
  if (listing == nullptr) return tree_failure(tree, path, errno, "listing it");
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(listing.get());
    if (entry == nullptr) return errno == 0 ? Status() : tree_failure(tree, path, errno, "listing it");
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    if (!visit(entry->d_name, kind_of(::dirfd(listing.get()), *entry))) return {};
  }
}

}  // namespace swale::fs
