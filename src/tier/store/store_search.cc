#include "tier/store/store_search.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/coding.h"
#include "io/beneath.h"
#include "tier/store/file_identity.h"

namespace swale::tier {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr size_t kToldPathBytes = 300;

// The folder `name` of `parent`, if it is that one.
io::Descriptor open_same(int parent, const std::string& name, const FileKey& key) {
  io::Descriptor fd(::openat(parent, name.c_str(), kFolderFlags));
  struct stat attributes;
  if (!fd.valid() || ::fstat(fd.get(), &attributes) != 0) return {};
  errno = ESTALE;
  return FileKey{attributes.st_dev, attributes.st_ino} == key ? std::move(fd) : io::Descriptor();
}

}  // namespace

Search::Search(const OpenedStore& opened, const std::map<uint64_t, FileIdentity>& wanted)
    : attribute_(opened.id_attribute), wanted_(wanted) {
  for (const auto& [id, identity] : wanted)
    if (identity.inode != 0) inodes_.emplace(identity.inode, id);
}

void Search::pass_over(std::string_view name) {
  const int number = errno;
  if (++unsearched_count_ > 3) return;
  std::string path = path_ + std::string(name);
  if (path.size() > kToldPathBytes) path = "..." + path.substr(path.size() - kToldPathBytes);
  unsearched_ += fmt::format("; {} cannot be searched: {}", path.empty() ? "." : path, std::strerror(number));
}

void Search::run(int root) {
  enter(root, "", true);
  while (!stack_.empty()) {
    Folder& last = stack_.back();
    path_.resize(last.path_bytes);
    if (!last.folders.empty()) {
      const std::string name = std::move(last.folders.back());
      last.folders.pop_back();
      enter(last.fd.get(), name, false);
      continue;
    }
    const io::Descriptor from = std::move(last.fd);
    stack_.pop_back();
    if (!stack_.empty() && !stack_.back().fd.valid()) come_back(from.get());
  }
}

// Opens the last folder again; `from`: the one in it that was left. If somebody has moved that one meanwhile,
// down from the top.
void Search::come_back(int from) {
  path_.resize(stack_.back().path_bytes);
  stack_.back().fd = open_same(from, "..", stack_.back().key);
  if (stack_.back().fd.valid()) return;
  io::Descriptor at;
  size_t reached = 0;
  while (reached + 1 < stack_.size()) {
    const size_t begin = stack_[reached].path_bytes;
    const Folder& next = stack_[reached + 1];
    auto fd = open_same(reached == 0 ? stack_[0].fd.get() : at.get(),
                        path_.substr(begin, next.path_bytes - begin - 1), next.key);
    if (!fd.valid()) break;
    at = std::move(fd);
    ++reached;
  }
  for (; stack_.size() > reached + 1; stack_.pop_back()) {
    path_.resize(stack_.back().path_bytes);
    if (!stack_.back().folders.empty()) pass_over("");
  }
  if (reached > 0) stack_.back().fd = std::move(at);
}

// Reads a folder, and puts it on the stack. The backing directory, the first one, stays open.
void Search::enter(int parent, const std::string& name, bool top) {
  Folder folder;
  folder.fd = io::Descriptor(::openat(parent, top ? "." : name.c_str(), kFolderFlags));
  struct stat attributes;
  // The stream has a descriptor of its own, and is closed when all is read.
  const int fd = folder.fd.valid() && ::fstat(folder.fd.get(), &attributes) == 0
                     ? ::fcntl(folder.fd.get(), F_DUPFD_CLOEXEC, 0)
                     : -1;
  DIR* const stream = fd < 0 ? nullptr : ::fdopendir(fd);
  if (stream == nullptr) {
    pass_over(name);
    if (fd >= 0) ::close(fd);
    return;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closes(stream, ::closedir);
  if (!top) path_ += name + "/";
  folder.key = {attributes.st_dev, attributes.st_ino};
  folder.path_bytes = path_.size();
  read(stream, top, &folder);
  stack_.push_back(std::move(folder));
  if (stack_.size() > kOpenFoldersMax + 1) stack_[stack_.size() - 1 - kOpenFoldersMax].fd = {};
}

void Search::read(DIR* stream, bool top, Folder* folder) {
  const int fd = folder->fd.get();
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(stream);
    if (entry == nullptr) break;
    const std::string_view each = entry->d_name;
    if (each == "." || each == ".." || (top && each == kPrivateDirectory)) continue;
    unsigned char type = entry->d_type;
    struct stat attributes;
    if (type == DT_UNKNOWN && ::fstatat(fd, entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW) == 0)
      type = static_cast<unsigned char>(IFTODT(attributes.st_mode));
    if (type == DT_DIR) folder->folders.emplace_back(each);
    if (type == DT_REG) look_at(fd, entry->d_name, entry->d_ino);
  }
  if (errno != 0) pass_over("");
}

void Search::look_at(int folder, const char* name, uint64_t inode) {
  char bytes[8];
  const std::string link = fmt::format("/proc/self/fd/{}/{}", folder, name);
  uint64_t id = 0;
  if (::lgetxattr(link.c_str(), attribute_, bytes, sizeof(bytes)) == sizeof(bytes)) id = get_u64(bytes);
  const bool has_id = id != 0 && wanted_.contains(id);
  const auto [meant, meant_end] = inodes_.equal_range(inode);
  if (!has_id && meant == meant_end) return;
  io::Descriptor fd(io::open_beneath(folder, name, O_PATH));
  struct stat attributes;
  if (!fd.valid() || ::fstat(fd.get(), &attributes) != 0 || !S_ISREG(attributes.st_mode)) return;
  bool is_meant = false;
  for (auto each = meant; each != meant_end && !is_meant; ++each) {
    is_meant = (!has_id || each->second == id) &&
               is_file(fd.get(), wanted_.at(each->second), each->second, attribute_, false);
    if (is_meant) id = each->second;
  }
  if (!has_id && !is_meant) return;
  const FileKey key{attributes.st_dev, attributes.st_ino};
  std::vector<Holder>& same = found_[id];
  if (std::any_of(same.begin(), same.end(), [&](const Holder& each) { return each.key == key; }))
    return;  // another name
  same.push_back({path_ + name, std::move(fd), key, is_meant});
}

}  // namespace swale::tier
