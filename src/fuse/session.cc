#include "fuse/session.h"

#include <fcntl.h>
#include <linux/posix_acl_xattr.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "fuse/request.h"
#include "fuse/session_bytes.h"
#include "fuse/session_locks.h"
#include "fuse/wire.h"

namespace swale::fuse {
namespace {

using fs::Change;
using fs::Entry;
using fs::FileSystem;
using fs::Node;
using fs::OpenDirectory;
using fs::OpenFile;

fuse_ino_t number_of(fuse_req_t request, Node* node) {
  return node == fs_of(request).root() ? FUSE_ROOT_ID : reinterpret_cast<fuse_ino_t>(node);
}
OpenDirectory& directory_of(const fuse_file_info* info) {
  assert(info != nullptr && info->fh != 0);  // set by opendir
  return *reinterpret_cast<OpenDirectory*>(info->fh);
}

fuse_entry_param entry_param(fuse_req_t request, const Entry& entry) {
  assert(entry.node != nullptr);
  fuse_entry_param param = {};
  param.ino = number_of(request, entry.node);
  param.attr = entry.attributes;
  param.attr_timeout = param.entry_timeout = fs_of(request).kernel_use().keep_seconds;
  served_of(request).ends.forget(param.ino);
  return param;
}

// An answer that does not reach the kernel leaves it without the lookup that it would forget.
int answer_entry(fuse_req_t request, const Entry& entry) {
  const fuse_entry_param param = entry_param(request, entry);
  FileSystem& fs = fs_of(request);
  if (fuse_reply_entry(request, &param) != 0) fs.forget(entry.node, 1);
  return kAnswered;
}

int answer_attributes(fuse_req_t request, fuse_ino_t number, const struct stat& attributes) {
  served_of(request).ends.forget(number);
  fuse_reply_attr(request, &attributes, fs_of(request).kernel_use().keep_seconds);
  return kAnswered;
}

// The kernel hands over the umask, because a directory's default ACL takes its place, and checks the ACLs
// that the mount tells it.
void init(void* data, fuse_conn_info* connection) {
  FileSystem& fs = static_cast<Served*>(data)->fs;
  const unsigned acls = fs.kernel_use().checks_acls ? FUSE_CAP_POSIX_ACL : 0;
  connection->want |= connection->capable & (FUSE_CAP_DONT_MASK | acls);
  fs.set_acls((connection->capable & acls) != 0);
  connection->want &= ~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_HANDLE_KILLPRIV);
  if (fs.locks() == nullptr) connection->want &= ~(FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
  connection->max_write = std::min(connection->max_write, kRequestBytesMax);
  connection->max_background = 64;
  connection->congestion_threshold = 48;
  connection->time_gran = 1;
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  guarded(request, parent, [&] {
    Entry entry;
    const int failed = fs_of(request).lookup(node_of(request, parent), name, &entry);
    if (failed != ENOENT) return failed != 0 ? failed : answer_entry(request, entry);
    fuse_entry_param absent = {};
    absent.entry_timeout = fs_of(request).kernel_use().keep_seconds;
    fuse_reply_entry(request, &absent);
    return kAnswered;
  });
}

void forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
  fs_of(request).forget(&node_of(request, number), count);
  fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) {
  for (size_t i = 0; i < count; ++i)
    fs_of(request).forget(&node_of(request, forgets[i].ino), forgets[i].nlookup);
  fuse_reply_none(request);
}

void getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  guarded(request, number, [&] {
    struct stat attributes;
    const int failed = fs_of(request).attributes(node_of(request, number), &attributes);
    if (failed != 0) return failed;
    return answer_attributes(request, number, attributes);
  });
}

// `file`: by which the size is set; null: by a path.
void set_attributes(fuse_req_t request, fuse_ino_t number, const struct stat* wanted, int to_set,
                    OpenFile* file) {
  const auto body = [&] {
    Change change;
    if ((to_set & FUSE_SET_ATTR_MODE) != 0) change.mode = wanted->st_mode;
    if ((to_set & FUSE_SET_ATTR_UID) != 0) change.user = wanted->st_uid;
    if ((to_set & FUSE_SET_ATTR_GID) != 0) change.group = wanted->st_gid;
    if ((to_set & FUSE_SET_ATTR_SIZE) != 0) change.size = static_cast<uint64_t>(wanted->st_size);
    if ((to_set & FUSE_SET_ATTR_ATIME) != 0) change.accessed = wanted->st_atim;
    if ((to_set & FUSE_SET_ATTR_ATIME_NOW) != 0) change.accessed = Change::kNow;
    if ((to_set & FUSE_SET_ATTR_MTIME) != 0) change.modified = wanted->st_mtim;
    if ((to_set & FUSE_SET_ATTR_MTIME_NOW) != 0) change.modified = Change::kNow;
    change.size_by_handle = file != nullptr;
    struct stat attributes;
    int failed = fs_of(request).change(node_of(request, number), change, caller_of(request), &attributes);
    if (failed == 0 && change.size && file != nullptr) failed = sync_changed(request, *file);
    if (failed != 0) return failed;
    return answer_attributes(request, number, attributes);
  };
  const bool of_owner = (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0;
  guarded(request, number, body, of_owner ? "chown" : "setattr");
}

void setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int to_set, fuse_file_info* info) {
  std::optional<mode_t> mode;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) mode = wanted->st_mode;
  OpenFile* const file = info != nullptr ? &file_of(info) : nullptr;
  run_or_aside(request, number, mode,
               [=, wanted = *wanted] { set_attributes(request, number, &wanted, to_set, file); });
}

void readlink(fuse_req_t request, fuse_ino_t number) {
  guarded(request, number, [&] {
    std::string target;
    const int failed = fs_of(request).read_symlink(node_of(request, number), &target);
    if (failed != 0) return failed;
    fuse_reply_readlink(request, target.c_str());
    return kAnswered;
  });
}

template <class Make>
void make(fuse_req_t request, fuse_ino_t parent, Make&& make_it, const char* call = __builtin_FUNCTION()) {
  const auto body = [&] {
    Entry entry;
    const int failed = make_it(&entry);
    return failed != 0 ? failed : answer_entry(request, entry);
  };
  guarded(request, parent, body, call);
}

void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  make(request, parent, [&](Entry* entry) {
    return fs_of(request).make_node(node_of(request, parent), name, mode, device, caller_of(request), entry);
  });
}

void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  make(request, parent, [&](Entry* entry) {
    return fs_of(request).make_directory(node_of(request, parent), name, mode, caller_of(request), entry);
  });
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  make(request, parent, [&](Entry* entry) {
    return fs_of(request).make_symlink(node_of(request, parent), name, target, caller_of(request), entry);
  });
}

void link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char* name) {
  make(request, number, [&](Entry* entry) {
    return fs_of(request).link(node_of(request, number), node_of(request, parent), name, caller_of(request),
                               entry);
  });
}

void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  done_or_failed(request, parent,
                 [&] { return fs_of(request).unlink(node_of(request, parent), name, caller_of(request)); });
}

void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) {
  done_or_failed(request, parent, [&] {
    return fs_of(request).remove_directory(node_of(request, parent), name, caller_of(request));
  });
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  run_or_aside(request, 0, [=, from = std::string(name), to = std::string(new_name)] {
    const auto move = [&] {
      return fs_of(request).rename(node_of(request, parent), from.c_str(), node_of(request, new_parent),
                                   to.c_str(), flags, caller_of(request));
    };
    done_or_failed(request, parent, move, "rename");
  });
}

int describe(fuse_req_t request, fuse_ino_t number, std::unique_ptr<OpenFile> file, fuse_file_info* info) {
  FileSystem& fs = fs_of(request);
  const bool maps = served_of(request).maps_direct_files.load(std::memory_order_relaxed);
  const FileSystem::Pages pages = fs.pages(*file, maps);
  file->direct = pages == FileSystem::Pages::kNone;
  info->direct_io = file->direct ? 1 : 0;
  info->keep_cache = pages == FileSystem::Pages::kKept ? 1 : 0;
  // Nothing can have been lost, and no lock of fcntl ends.
  info->noflush = (info->flags & O_ACCMODE) == O_RDONLY && fs.locks() == nullptr;
  const bool writes = (info->flags & O_ACCMODE) != O_RDONLY;
  file->appends = writes && (info->flags & O_APPEND) != 0;
  file->synchronous = writes && (info->flags & O_DSYNC) != 0;  // O_SYNC has the bit of O_DSYNC
  if (!served_of(request).keep(&file, &info->fh)) {
    fs.release(std::move(file));
    return ENOMEM;
  }
  if (file_of(info).appends) served_of(request).ends.add_appender(number);
  return 0;
}

void close_file(fuse_req_t request, fuse_ino_t number, const fuse_file_info& info) {
  if (file_of(&info).appends) served_of(request).ends.remove_appender(number);
  served_of(request).release_file(info.fh);
}

void open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  auto open_it = [=, info = *info]() mutable {
    const auto body = [&] {
      std::unique_ptr<OpenFile> file;
      int failed = fs_of(request).open_file(node_of(request, number), info.flags, caller_of(request), &file);
      if (failed == 0) failed = describe(request, number, std::move(file), &info);
      if (failed != 0) return failed;
      const ParallelWrites allowed(info.direct_io != 0);
      if (fuse_reply_open(request, &info) != 0) close_file(request, number, info);
      return kAnswered;
    };
    guarded(request, number, body, "open");
  };
  (info->flags & O_TRUNC) != 0 ? run_or_aside(request, number, open_it) : open_it();
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
  guarded(request, parent, [&] {
    std::unique_ptr<OpenFile> file;
    Entry entry;
    int failed = fs_of(request).create(node_of(request, parent), name, mode, info->flags, caller_of(request),
                                       &entry, &file);
    if (failed != 0) return failed;
    Served& served = served_of(request);
    failed = describe(request, number_of(request, entry.node), std::move(file), info);
    if (failed != 0) {
      served.fs.forget(entry.node, 1);
      return failed;
    }
    const fuse_entry_param param = entry_param(request, entry);
    const ParallelWrites allowed(info->direct_io != 0);
    if (fuse_reply_create(request, &param, info) != 0) {
      close_file(request, param.ino, *info);
      served.fs.forget(entry.node, 1);
    }
    return kAnswered;
  });
}

void release(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  run_or_aside(request, number, [=, info = *info] {
    const auto body = [&] {
      close_file(request, number, info);
      return 0;
    };
    done_or_failed(request, number, body, "release");
  });
}

void opendir(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  guarded(request, number, [&] {
    std::unique_ptr<OpenDirectory> directory;
    const int failed =
        fs_of(request).open_directory(node_of(request, number), caller_of(request), &directory);
    if (failed != 0) return failed;
    Served& served = served_of(request);
    if (!served.keep(&directory, &info->fh)) return ENOMEM;
    if (fuse_reply_open(request, info) != 0) served.release_directory(info->fh);
    return kAnswered;
  });
}

void releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  served_of(request).release_directory(info->fh);
  fuse_reply_err(request, 0);
}

void readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, fuse_file_info* info) {
  guarded(request, number, [&] {
    std::string out(size, '\0');
    size_t used = 0;
    const int failed = fs_of(request).read_directory(directory_of(info), offset, [&](const auto& found) {
      struct stat attributes = {};
      attributes.st_ino = found.inode;
      attributes.st_mode = found.type;
      const size_t bytes = fuse_add_direntry(request, out.data() + used, size - used, found.name.c_str(),
                                             &attributes, found.next);
      if (bytes > size - used) return false;
      used += bytes;
      return true;
    });
    if (failed != 0 && used == 0) return failed;
    fuse_reply_buf(request, out.data(), used);
    return kAnswered;
  });
}

// "." and ".." count as no lookups.
bool has_lookup(const std::string& name) { return name != "." && name != ".."; }

void readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, fuse_file_info* info) {
  guarded(request, number, [&] {
    FileSystem& fs = fs_of(request);
    std::string out(size, '\0');
    size_t used = 0;
    std::vector<Node*> entered;
    const int failed = fs.read_directory(directory_of(info), offset, [&](const auto& found) {
      Entry entry;
      fuse_entry_param param = {};
      param.attr.st_ino = found.inode;
      param.attr.st_mode = found.type;
      if (has_lookup(found.name)) {
        const int missing = fs.lookup(node_of(request, number), found.name.c_str(), &entry);
        if (missing == ENOENT) return true;  // removed since
        if (missing == 0) param = entry_param(request, entry);
      }
      const size_t bytes = fuse_add_direntry_plus(request, out.data() + used, size - used, found.name.c_str(),
                                                  &param, found.next);
      if (bytes > size - used) {
        if (entry.node != nullptr) fs.forget(entry.node, 1);
        return false;
      }
      if (entry.node != nullptr) entered.push_back(entry.node);
      used += bytes;
      return true;
    });
    if (failed != 0 && used == 0) return failed;
    if (fuse_reply_buf(request, out.data(), used) != 0)
      for (Node* const node : entered) fs.forget(node, 1);
    return kAnswered;
  });
}

void fsyncdir(fuse_req_t request, fuse_ino_t number, int, fuse_file_info* info) {
  done_or_failed(request, number, [&] { return fs_of(request).sync_directory(directory_of(info)); });
}

void statfs(fuse_req_t request, fuse_ino_t number) {
  guarded(request, number, [&] {
    struct statvfs statistics;
    const int failed = fs_of(request).statistics(&statistics);
    if (failed != 0) return failed;
    fuse_reply_statfs(request, &statistics);
    return kAnswered;
  });
}

// size 0 asks how long the answer is.
int answer_text(fuse_req_t request, const std::string& text, size_t size) {
  if (size == 0) {
    fuse_reply_xattr(request, text.size());
    return kAnswered;
  }
  if (text.size() > size) return ERANGE;
  fuse_reply_buf(request, text.data(), text.size());
  return kAnswered;
}

void setxattr(fuse_req_t request, fuse_ino_t number, const char* name, const char* value, size_t size,
              int flags) {
  const auto body = [&] {
    return fs_of(request).set_attribute(node_of(request, number), name, Bytes(value, size), flags,
                                        caller_of(request));
  };
  // cp -a sets one that says no more than the mode, which it then sets.
  constexpr size_t kOfModeBytes = sizeof(posix_acl_xattr_header) + 3 * sizeof(posix_acl_xattr_entry);
  const bool is_acl = std::string_view(name).starts_with("system.posix_acl_") && size > kOfModeBytes;
  done_or_failed(request, number, body, is_acl ? "setxattr of an ACL" : "setxattr");
}

void getxattr(fuse_req_t request, fuse_ino_t number, const char* name, size_t size) {
  guarded(request, number, [&] {
    std::string value;
    const int failed =
        fs_of(request).get_attribute(node_of(request, number), name, caller_of(request), &value);
    return failed != 0 ? failed : answer_text(request, value, size);
  });
}

void listxattr(fuse_req_t request, fuse_ino_t number, size_t size) {
  guarded(request, number, [&] {
    std::string names;
    const int failed = fs_of(request).list_attributes(node_of(request, number), caller_of(request), &names);
    return failed != 0 ? failed : answer_text(request, names, size);
  });
}

void removexattr(fuse_req_t request, fuse_ino_t number, const char* name) {
  done_or_failed(request, number, [&] {
    return fs_of(request).remove_attribute(node_of(request, number), name, caller_of(request));
  });
}

// Which of kWarnedCalls is refused for what it asks; none: another call, or for another reason.
std::optional<uint32_t> warned_call(std::string_view call, int error) noexcept {
  if (error != EPERM && error != EOPNOTSUPP) return {};
  const auto found = std::find(kWarnedCalls.begin(), kWarnedCalls.end(), call);
  if (found == kWarnedCalls.end()) return {};
  return static_cast<uint32_t>(found - kWarnedCalls.begin());
}

}  // namespace

void trace_refusal(fuse_req_t request, fuse_ino_t number, const char* call, int error) noexcept {
  const auto kind = warned_call(call, error);
  const uint32_t bit = kind ? 1u << *kind : 0;
  const bool warns = kind && (served_of(request).warned_of.fetch_or(bit) & bit) == 0;
  if (!kind && fs::is_usual_refusal(error)) return;
  const LogLevel level = warns ? LogLevel::kWarn : LogLevel::kDebug;
  if (!log_enabled(level)) return;
  static_cast<void>(contain([&] {
    log_at(level, "{} of {}: refused: {}{}", call, fs_of(request).name_of(node_of(request, number)),
           std::generic_category().message(error),
           warns ? "; programs may go on without; SWALE_LOG=debug shows the next ones, too" : "");
  }));
}

const fuse_lowlevel_ops& session_operations() {
  static const fuse_lowlevel_ops operations = [] {
    fuse_lowlevel_ops table = {};
    table.init = init;
    table.lookup = lookup;
    table.forget = forget;
    table.forget_multi = forget_multi;
    table.getattr = getattr;
    table.setattr = setattr;
    table.readlink = readlink;
    table.mknod = mknod;
    table.mkdir = mkdir;
    table.symlink = symlink;
    table.link = link;
    table.unlink = unlink;
    table.rmdir = rmdir;
    table.rename = rename;
    table.open = open;
    table.create = create;
    table.release = release;
    table.opendir = opendir;
    table.releasedir = releasedir;
    table.readdir = readdir;
    table.readdirplus = readdirplus;
    table.fsyncdir = fsyncdir;
    table.statfs = statfs;
    table.setxattr = setxattr;
    table.getxattr = getxattr;
    table.listxattr = listxattr;
    table.removexattr = removexattr;
    add_byte_operations(&table);
    add_lock_operations(&table);
    return table;
  }();
  return operations;
}

}  // namespace swale::fuse
