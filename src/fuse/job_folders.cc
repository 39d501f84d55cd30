#include "fuse/job_folders.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/sealed_document.h"
#include "fs/job/job_fs.h"
#include "fs/node/drain_mark.h"
#include "fuse/mounted.h"

namespace swale::fuse {
namespace {

constexpr DocumentFormat kFormat{"swale-serve"};
constexpr size_t kDocumentBytesMax = 64 * kKiB;

bool is_dead_mount(const std::string& path) {
  struct stat found;
  return ::stat(path.c_str(), &found) != 0 && errno == ENOTCONN;
}

// An ordinary user's mount is unmounted by a program that may do so; it works for root, too. Several
// processes of a node may do so at a time.
Status unmount_dead(const std::string& path) {
  const char* const arguments[] = {"fusermount3", "-u", "-z", path.c_str(), nullptr};
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ);
  if (failed != 0) return errno_status(failed, "starting fusermount3");
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if ((WIFEXITED(state) && WEXITSTATUS(state) == 0) || !is_dead_mount(path)) return {};
  return error(Code::kIoError, Scope::kFile,
               "{}: its dead mount could not be unmounted: run fusermount3 -u {}", path, path);
}

// The directory behind a path, without the mount that a killed server has left over it.
Result<std::string> find_directory(const std::string& path) {
  const std::string whole = std::filesystem::absolute(path).lexically_normal().string();
  if (is_dead_mount(whole)) SWALE_RETURN_IF_ERROR(unmount_dead(whole));
  SWALE_RETURN_IF_ERROR(expect_mountpoint(whole));
  if (::getxattr(whole.c_str(), fs::kJobStatsAttribute, nullptr, 0) > 0)
    return error(Code::kBusy, Scope::kFile, "{}: a job has it now: wait until that has ended", whole);
  std::error_code failed;
  const auto real = std::filesystem::canonical(whole, failed);
  if (failed) return errno_status(failed.value(), whole);
  return real.string();
}

// The server would ask itself for what lies below its own mount.
Status expect_apart(const std::string& path, const char* option, const std::string& other) {
  std::error_code failed;
  const std::filesystem::path one = std::filesystem::weakly_canonical(path, failed);
  const auto is_within = [](const std::filesystem::path& inner, const std::filesystem::path& outer) {
    const auto relative = inner.lexically_relative(outer);
    return !relative.empty() && *relative.begin() != "..";
  };
  if (!is_within(one, other) && !is_within(other, one)) return {};
  return invalid_argument("{}: {} must neither be in {} nor have it inside", path, option, other);
}

// This user's alone.
Status make_private(const std::string& path, struct stat* found) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno_status(errno, path + ": making it");
  if (::lstat(path.c_str(), found) != 0) return errno_status(errno, path);
  if (S_ISDIR(found->st_mode) && found->st_uid == ::geteuid() && (found->st_mode & 0077) == 0) return {};
  return invalid_argument(
      "{}: it must be a directory of yours that is closed to others: chmod 700, or name "
      "another --buffer",
      path);
}

std::string memory_of(const struct stat& folder) {
  return fmt::format("{}{:x}-{:x}", memory_prefix(), folder.st_dev, folder.st_ino);
}

// When the inode was made.
uint64_t born_ns(const io::Descriptor& directory) {
  struct statx found = {};
  if (::statx(directory.get(), "", AT_EMPTY_PATH, STATX_BTIME, &found) != 0) return 0;
  if ((found.stx_mask & STATX_BTIME) == 0) return 0;
  return static_cast<uint64_t>(found.stx_btime.tv_sec) * 1'000'000'000 + found.stx_btime.tv_nsec;
}

// Is the tree of a job that has left something here the directory that is there now?
bool is_same_tree(const JobFolders& folders, uint64_t inode, uint64_t born, const std::string& job) {
  if (inode != folders.inode) return false;
  if (born != 0 && folders.born_ns != 0) return born == folders.born_ns;
  if (::access((folders.buffer + "/names/tree.json").c_str(), F_OK) != 0) return true;  // it had not begun
  const std::string own = std::string(fs::kSwaleDirectory) + "/" + job;
  return ::faccessat(folders.root.get(), own.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

std::string document_of(const JobFolders& folders) { return folders.buffer + "/" + kServeDocument; }

}  // namespace

std::string memory_prefix() { return fmt::format("{}/swale-fs-{}-", kMemoryFolder, ::geteuid()); }

Result<JobFolders> find_job_folders(const JobMountOptions& options) {
  JobFolders folders;
  SWALE_ASSIGN_OR_RETURN(folders.backing, find_directory(options.backing));
  folders.mountpoint = folders.backing;
  if (!options.at.empty() && (options.mounts || options.looks)) {
    SWALE_ASSIGN_OR_RETURN(folders.mountpoint, find_directory(options.at));
    if (folders.mountpoint != folders.backing)
      SWALE_RETURN_IF_ERROR(expect_apart(folders.mountpoint, "--at", folders.backing));
  }
  for (const std::string& other : {folders.backing, folders.mountpoint})
    if (!options.buffer.empty()) SWALE_RETURN_IF_ERROR(expect_apart(options.buffer, "--buffer", other));
  folders.root = io::Descriptor(::open(folders.backing.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat found;
  if (!folders.root.valid() || ::fstat(folders.root.get(), &found) != 0)
    return errno_status(errno, folders.backing);
  folders.inode = found.st_ino;
  folders.born_ns = born_ns(folders.root);
  // The memory is of its buffer: several of these on a node are those of several nodes, in tests. What a
  // deleted tree has left has another name than that of a new one with its inode.
  folders.memory = memory_of(found);
  if (folders.born_ns != 0) folders.memory += fmt::format("-{:x}", folders.born_ns);
  folders.buffer = options.buffer.empty() ? std::filesystem::temp_directory_path() /
                                                std::filesystem::path(folders.memory).filename()
                                          : std::filesystem::path(options.buffer);
  folders.buffer = std::filesystem::absolute(folders.buffer).lexically_normal().string();
  if (!options.mounts && ::access(document_of(folders).c_str(), F_OK) != 0)
    return error(Code::kNotFound, Scope::kFile,
                 "{}: no job of {} has left anything there; if it had a --buffer, name that", folders.buffer,
                 folders.backing);
  SWALE_RETURN_IF_ERROR(make_private(folders.buffer, &found));
  if (!options.buffer.empty()) folders.memory = memory_of(found);
  SWALE_RETURN_IF_ERROR(make_private(folders.memory, &found));
  return folders;
}

Result<io::Descriptor> lock_buffer(const JobFolders& folders) {
  io::Descriptor buffer(::open(folders.buffer.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!buffer.valid()) return errno_status(errno, folders.buffer);
  if (::flock(buffer.get(), LOCK_EX | LOCK_NB) == 0) return buffer;
  if (errno != EWOULDBLOCK) return errno_status(errno, folders.buffer + ": locking it");
  return error(Code::kBusy, Scope::kFile,
               "{}: a job has it now: wait until its server has ended, which may also be stopped (fuser {}); "
               "or name another --buffer",
               folders.buffer, folders.buffer);
}

Result<std::string> read_served_job(io::Device& device, const JobFolders& folders) {
  const std::string path = document_of(folders);
  const auto text = io::read_file(device, path, kDocumentBytesMax);
  if (text.status().code() == Code::kNotFound) return std::string();
  SWALE_RETURN_IF_ERROR(text.status());
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(*text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  SWALE_ASSIGN_OR_RETURN(const uint64_t inode, document.root().hex("inode"));
  SWALE_ASSIGN_OR_RETURN(const std::string job, document.root().text("job"));
  uint64_t born = 0;
  if (document.root().find("born").exists()) {
    SWALE_ASSIGN_OR_RETURN(born, document.root().hex("born"));
  }
  if (is_same_tree(folders, inode, born, job)) return job;
  return invalid_argument(
      "{}: it has bytes of {}, whose tree was another directory than {}: recover that first (swale fs "
      "recover), name another --buffer, or remove this one if that tree is gone",
      folders.buffer, job, folders.backing);
}

Status write_served_job(io::Device& device, const JobFolders& folders, const std::string& job) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  // A job begins: what the memory has is of a buffer that was removed, and whose inode this one has now.
  std::error_code failed;
  std::filesystem::remove_all(folders.memory + "/node", failed);
  if (failed) return errno_status(failed.value(), folders.memory + ": removing what another job has left");
  json.member("inode", hex16(folders.inode)).member("born", hex16(folders.born_ns)).member("job", job);
  return io::replace_file(device, document_of(folders), take_sealed(&json));
}

void remove_job_folders(const JobFolders& folders, const JobMountOptions& options) {
  std::error_code failed;
  for (const char* const name : {"names", "state", "spill", kStandInsFolder, kServeDocument})
    std::filesystem::remove_all(folders.buffer + "/" + name, failed);
  std::filesystem::remove_all(folders.memory, failed);
  if (options.buffer.empty()) std::filesystem::remove(folders.buffer, failed);
}

bool is_in_memory(const std::string& folder) {
  struct statfs found;
  if (::statfs(folder.c_str(), &found) != 0) return true;  // promises less
  return found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
}

}  // namespace swale::fuse
