// JobFs: a change of names that has begun: its intent, what is taken from the backing until the names have
// followed, and what comes back if they refuse.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/log.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr int kRemoveTries = 3;

// The names before the last one, and that.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

int expect_empty_on_backing(const io::Descriptor& directory) {
  const int own = ::fcntl(directory.get(), F_DUPFD_CLOEXEC, 0);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(own < 0 ? nullptr : ::fdopendir(own), ::closedir);
  if (!stream) return errno;
  errno = 0;
  while (const dirent* const found = ::readdir(stream.get())) {
    const std::string_view name = found->d_name;
    if (name != "." && name != "..") return ENOTEMPTY;
  }
  return errno;
}

}  // namespace

std::string JobFs::path_in(const JobNode& parent, const char* name) const {
  const std::string above = nodes_.path_of(parent.id).value_or("");
  return above.empty() ? name : above + "/" + name;
}

// The names have done nothing, and never will.
bool JobFs::is_refusal(const Status& status) {
  const int number = status.posix_error();
  return number == EEXIST || number == ENOENT || number == ENOTDIR || number == EISDIR ||
         number == ENOTEMPTY || number == EINVAL;
}

// The names follow the backing, if that has changed; else nothing has happened.
Status JobFs::finish_intent() {
  if (!intent_->left()) return {};
  const NameChange left = *intent_->left();
  const auto inode_at = [&](const std::string& path) -> uint64_t {
    const io::Descriptor there(
        io::open_path_beneath(root_directory_.get(), path.c_str(), O_PATH | O_NOFOLLOW));
    struct stat found;
    return there.valid() && ::fstat(there.get(), &found) == 0 ? found.st_ino : 0;
  };
  const bool moves = left.op == NameChange::Op::kRename || left.op == NameChange::Op::kExchange;
  const bool changed = moves ? inode_at(left.to) == left.inode : inode_at(left.from) != left.inode;
  const auto entry = names_.walk(left.from);
  const int missing = entry.status().posix_error();
  if (!entry.ok() && missing != ENOENT && missing != ENOTDIR) return entry.status();
  std::string taken = taken_path(left.file);
  if (const auto replaced = moves ? names_.walk(left.to) : entry; replaced.ok())
    taken = taken_path(replaced->file);
  if (changed && entry.ok() && entry->file == left.file) {
    const auto [above, name] = split_path(left.from);
    SWALE_ASSIGN_OR_RETURN(const meta::DirEntry parent, names_.walk(above));
    const int64_t now = now_nanos();
    Status followed;
    if (left.op == NameChange::Op::kUnlink) {
      followed = names_.unlink(parent.file, name, now).status();
    } else if (left.op == NameChange::Op::kRemoveDirectory) {
      followed = names_.remove_directory(parent.file, name, now);
    } else {
      const auto [above_to, to] = split_path(left.to);
      SWALE_ASSIGN_OR_RETURN(const meta::DirEntry target, names_.walk(above_to));
      const uint8_t flags = left.op == NameChange::Op::kExchange ? meta::kExchange : 0;
      followed = names_.rename(parent.file, name, target.file, to, flags, now);
    }
    if (!followed.ok() && !is_refusal(followed)) return followed;
    if (!followed.ok()) SWALE_RETURN_IF_ERROR(undo_on_backing(left));
  }
  ::unlinkat(root_directory_.get(), taken.c_str(), AT_REMOVEDIR);
  intent_->clear();
  return {};
}

// What the names refuse: another node had put a new file into the directory, or under the new name. A
// directory that cannot come back is made when it is looked up.
Status JobFs::undo_on_backing(const NameChange& left) {
  if (left.op == NameChange::Op::kUnlink) return {};
  const bool moves = left.op != NameChange::Op::kRemoveDirectory;
  const auto [above, name] = split_path(left.from);
  const auto [above_taken, taken] = split_path(moves ? left.to : taken_path(left.file));
  const auto folder = [this](const std::string& path) {
    return io::Descriptor(io::open_path_beneath(root_directory_.get(), path.empty() ? "." : path.c_str(),
                                                O_PATH | O_DIRECTORY | O_NOFOLLOW));
  };
  const io::Descriptor to = folder(above), from = folder(above_taken);
  const unsigned flags = left.op == NameChange::Op::kExchange ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  const bool there = to.valid() && from.valid() &&
                     ::renameat2(from.get(), taken.c_str(), to.get(), name.c_str(), flags) == 0;
  if (there || errno == EEXIST || (errno == ENOENT && !moves)) return {};
  return errno_status(errno, left.from + ": putting it back, as its name cannot follow");
}

// Another node may put a new file into a directory until the names have removed it: it then comes back as it
// was, for all nodes have it by descriptor.
int JobFs::take_from_backing(JobNode& parent, const char* name, const meta::DirEntry& entry) {
  const auto removed = [&](int flags) {
    return ::unlinkat(parent.directory.get(), name, flags) == 0 ? 0 : errno;
  };
  if (entry.type != meta::NodeType::kDirectory) return removed(0);
  if (!shared_) return removed(AT_REMOVEDIR);
  const io::Descriptor own(io::open_beneath(parent.directory.get(), name, O_RDONLY | O_DIRECTORY));
  if (!own.valid()) return errno;
  if (const int failed = expect_empty_on_backing(own); failed != 0) return failed;
  if (::renameat2(parent.directory.get(), name, root_directory_.get(), taken_path(entry.file).c_str(),
                  RENAME_NOREPLACE) == 0)
    return 0;
  return errno == EXDEV ? removed(AT_REMOVEDIR) : errno;
}

std::string JobFs::taken_path(const meta::FileId& directory) const {
  return fmt::format("{}/{}/removed-{}", kSwaleDirectory, options_.job, text_of(directory));
}

bool JobFs::give_back(JobNode& parent, const char* name, const meta::DirEntry& entry) {
  const bool back = ::renameat2(root_directory_.get(), taken_path(entry.file).c_str(), parent.directory.get(),
                                name, RENAME_NOREPLACE) == 0;
  if (!back)
    log_error("{}: the directory cannot be put back: {}", path_in(parent, name),
              errno_status(errno, taken_path(entry.file)).message());
  return back;
}

// The names have removed it: one that others have filled comes back, no other one.
void JobFs::remove_taken(JobNode& parent, const char* name, const meta::DirEntry& entry) {
  const std::string taken = taken_path(entry.file);
  int failed = 0;
  for (int tries = 0; tries < kRemoveTries; ++tries) {
    failed = ::unlinkat(root_directory_.get(), taken.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
    if (failed == 0 || failed == ENOENT) return;
    if (failed == ENOTEMPTY || failed == EEXIST) break;
  }
  if (failed != ENOTEMPTY && failed != EEXIST)
    return log_warn("{}: the directory is removed, and stays empty as {}: {}", path_in(parent, name), taken,
                    errno_status(failed, "removing it").message());
  log_warn("{}: others have put something into the directory while it was removed; it stays",
           path_in(parent, name));
  give_back(parent, name, entry);
}

}  // namespace swale::fs
