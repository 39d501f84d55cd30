// JobFs: attributes. Those of files and links are the tree's, and follow on the backing; directories, which
// are all on the backing, have them there.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/json_writer.h"
#include "base/log.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr std::string_view kUserPrefix = "user.";
constexpr blksize_t kTransferBytes = 128 << 10;  // what programs should read and write at a time

bool is_user(std::string_view name) { return name.starts_with(kUserPrefix); }
// 0, or what other file systems say of an attribute by that name.
int check_name(std::string_view name, bool has_user_attributes) {
  if (!is_user(name) || !has_user_attributes) return EOPNOTSUPP;
  return name == kUserPrefix ? EINVAL : 0;
}
bool is_own(std::string_view name) {
  return name == kJobStatsAttribute || name == kJobCommandAttribute || name == kAttachAttribute;
}

}  // namespace

// The usual file has none: one system call.
Status adopt_attributes(meta::NamesClient& names, const io::Descriptor& parent, const char* name,
                        const meta::FileId& id) {
  const io::Descriptor there(io::open_beneath(parent.get(), name, O_PATH));
  if (!there.valid()) return errno == ENOENT ? Status() : errno_status(errno, name);
  const std::string path = io::descriptor_path(there);
  std::string list(64 * kKiB, '\0');
  const ssize_t listed = ::listxattr(path.c_str(), list.data(), list.size());
  if (listed <= 0) return listed == 0 || errno == EOPNOTSUPP ? Status() : errno_status(errno, name);
  list.resize(static_cast<size_t>(listed));
  for (size_t at = 0; at < list.size(); at += std::char_traits<char>::length(&list[at]) + 1) {
    const char* const attribute = &list[at];
    if (!is_user(attribute) || is_own(attribute)) continue;
    std::string value(64 * kKiB, '\0');
    const ssize_t got = ::getxattr(path.c_str(), attribute, value.data(), value.size());
    if (got < 0 && errno == ENODATA) continue;  // removed since
    if (got < 0) return errno_status(errno, name);
    value.resize(static_cast<size_t>(got));
    SWALE_RETURN_IF_ERROR(names.set_user(id, attribute, value));
  }
  return {};
}

int JobFs::describe_directory(JobNode& node, struct stat* attributes) {
  struct stat found;
  if (::fstat(node.directory.get(), &found) != 0) return errno;
  hidden_.show(node.id, &found);
  found.st_dev = device_number_;
  found.st_ino = inode_of(node.id);
  const int64_t modified = std::max(node.modified_ns.load(), nanos_of(found.st_mtim));
  found.st_mtim = timespec_of(modified);
  found.st_ctim = timespec_of(std::max(modified, nanos_of(found.st_ctim)));
  *attributes = found;
  return 0;
}

int JobFs::describe(const meta::FileId& id, const meta::TreeNode& node, JobNode* known,
                    struct stat* attributes) {
  struct stat found = {};
  found.st_dev = device_number_;
  found.st_ino = inode_of(id);
  found.st_mode = mode_of(node.type) | (node.type == meta::NodeType::kLink ? 0777 : node.mode & 07777);
  found.st_nlink = node.unlinked ? 0 : 1;
  found.st_uid = node.uid;
  found.st_gid = node.gid;
  found.st_blksize = kTransferBytes;
  found.st_size = static_cast<off_t>(node.target.size());
  if (node.type == meta::NodeType::kFile) {
    uint64_t blocks = 0;
    const auto size = size_of(id, known, &blocks);
    // Another thread has just given the file its name, and opens it next.
    const bool is_new = size.status().posix_error() == ENOENT && (node.mode & kOnBacking) == 0;
    if (!size.ok() && !is_new) return answer(size.status());
    found.st_size = is_new ? 0 : static_cast<off_t>(*size);
    found.st_blocks = is_new ? 0 : static_cast<blkcnt_t>(blocks);
  }
  const int64_t newer = known != nullptr ? known->modified_ns.load() : 0;
  found.st_atim = timespec_of(node.accessed_ns);
  found.st_mtim = timespec_of(newer != 0 ? newer : node.modified_ns);
  found.st_ctim = timespec_of(std::max(newer, node.changed_ns));
  *attributes = found;
  return 0;
}

int JobFs::attributes(Node& known, struct stat* attributes) {
  JobNode& node = JobNode::of(known);
  if (node.type == meta::NodeType::kDirectory) return describe_directory(node, attributes);
  const auto found = names_.stat(node.id);
  if (!found.ok()) return answer(found.status());
  return describe(node.id, *found, &node, attributes);
}

// The names learn the time of the last write when somebody has reason to ask for it.
int JobFs::say_modified(JobNode& node) {
  const int64_t modified = node.modified_ns.exchange(0);
  if (modified == 0) return 0;
  meta::NodeChange change;
  change.set = meta::kModified;
  change.modified_ns = change.now_ns = modified;
  const Status said = names_.set_attributes(node.id, change).status();
  int64_t unsaid = 0;
  if (said.code() == Code::kResourceExhausted) node.modified_ns.compare_exchange_strong(unsaid, modified);
  return said.ok() ? written_time_follows(node) : answer(said);
}

// All that the names were told before survives the machine, too.
Status JobFs::sync_names(const meta::FileId& file, int64_t modified_ns) {
  return names_.set_attributes(file, modified_at(modified_ns), meta::AnswerWait::kSynced).status();
}

// Takes bits from the mode in the names and gives others.
Status JobFs::set_mode(const meta::FileId& id, uint32_t taken, uint32_t given) {
  SWALE_ASSIGN_OR_RETURN(const meta::TreeNode node, names_.stat(id));
  meta::NodeChange change;
  change.set = meta::kMode;
  change.mode = (node.mode & ~taken) | given;
  // A mark of ours is no change of the file.
  change.now_ns = ((taken | given) & 07777) != 0 ? now_nanos() : node.changed_ns;
  return names_.set_attributes(id, change).status();
}

// What a program changes on the backing, of what it has in hand. `change`: by its path there; 0, or -1 and
// errno. `is_there`: gets whether it is; `modified`: the time of a directory that is set.
int JobFs::change_there(JobNode& node, const std::function<int(const char* path)>& change, bool* is_there,
                        const timespec* modified) {
  const bool directory = node.type == meta::NodeType::kDirectory;
  const auto other = directory ? io::Descriptor() : settled_there(node);
  if (!other.ok()) return answer(other.status());
  const io::Descriptor& there = directory ? node.directory : *other;
  if (is_there != nullptr) *is_there = there.valid();
  if (!there.valid()) return 0;
  std::optional<RequestLock> stops_others;
  if (!options_.changes_apart) stops_others.emplace(mutex_, requests_);
  const HiddenTimes::Told told(hidden_, node.id, modified);
  return change(io::descriptor_path(there).c_str()) == 0 ? 0 : errno;
}

int JobFs::change_mode(JobNode& node, mode_t mode) {
  if (node.type == meta::NodeType::kLink) return EOPNOTSUPP;
  bool unsealed = false;
  const int failed = change_mode_in_turn(node, mode, &unsealed);
  return failed == 0 && unsealed ? drop_pages_everywhere(node) : failed;
}

int JobFs::change_mode_in_turn(JobNode& node, mode_t mode, bool* unsealed) {
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  if (shared_ && node.type == meta::NodeType::kFile) return change_shared_mode(node, mode, unsealed);
  const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
  const auto set = [&](const char* path) { return ::chmod(path, mode & 07777); };
  if (const int failed = change_there(node, set); failed != 0) return failed;
  const RequestLock lock(mutex_, requests_);
  if ((mode & (S_ISUID | S_ISGID)) != 0) node.may_be_set_id.store(true);
  const uint32_t seal = seal_of(node, mode);
  *unsealed = seal == 0 && node.sealed_at.load() != 0;
  if (*unsealed) note_unsealed(node);
  const Status said = set_mode(node.id, 07777 | kSealed, (mode & 07777) | seal);
  ++seals_;  // a look-up that has begun before does not take its answer for a seal
  return answer(said);
}

int JobFs::check_owner(JobNode& node, const Change& change) {
  struct stat now;
  if (const int failed = attributes(node, &now); failed != 0) return failed;
  const bool same =
      change.user.value_or(now.st_uid) == now.st_uid && change.group.value_or(now.st_gid) == now.st_gid;
  if (!same) log_info("file {:x}:{:x}: its owner cannot be changed here", node.id.high, node.id.low);
  return same ? 0 : EPERM;
}

// A file that is open to write counts as written already.
int JobFs::cut(JobNode& node, const Change& change, const Caller& caller) {
  if (!change.size_by_handle)
    if (const int refused = count_writer(node, caller); refused != 0) return refused;
  int failed = content_changes(node, caller);
  if (failed == 0) failed = truncate(node, *change.size);
  if (!change.size_by_handle) end_writer(node, caller.thread);
  return failed;
}

int JobFs::change(Node& known, const Change& change, const Caller& caller, struct stat* now) {
  JobNode& node = JobNode::of(known);
  if (change.user || change.group)
    if (const int failed = check_owner(node, change); failed != 0) return failed;
  // A restart takes what the names have heard since for later than the time that the journal has.
  if ((change.mode || change.accessed) && node.kept_modified_ns.load() != 0)
    if (const int failed = say_modified(node); failed != 0) return failed;
  if (change.mode)
    if (const int failed = change_mode(node, *change.mode); failed != 0) return failed;
  if (change.size) {
    if (node.type != meta::NodeType::kFile) return node.type == meta::NodeType::kDirectory ? EISDIR : EINVAL;
    if (const int failed = cut(node, change, caller); failed != 0) return failed;
    // The node may be forgotten before anybody opens it.
    if (const int failed = say_modified(node); failed != 0) return failed;
  }
  if (change.accessed || change.modified)
    if (const int failed = change_times(node, change); failed != 0) return failed;
  return attributes(node, now);
}

// What all nodes have still to bring there has its space already.
int JobFs::statistics(struct statvfs* statistics) {
  struct statvfs found;
  if (options_.look_for_space(root_directory_.get(), &found) != 0) return errno;
  const uint64_t undrained = undrained_bytes() + (elsewhere_ ? elsewhere_->bytes() : 0);
  const uint64_t block = std::max<unsigned long>(found.f_frsize, 1);
  const fsblkcnt_t taken = undrained / block + (undrained % block != 0);
  found.f_bfree -= std::min(found.f_bfree, taken);
  found.f_bavail -= std::min(found.f_bavail, taken);
  *statistics = found;
  return 0;
}

uint64_t JobFs::undrained_bytes() {
  const RequestLock lock(mutex_, requests_);
  static_cast<void>(files_->take());
  return files_->logs().live_bytes();
}

int JobFs::get_attribute(Node& known, const char* name, const Caller&, std::string* value) {
  JobNode& node = JobNode::of(known);
  if (&node == root_node_ && std::string_view(name) == kJobStatsAttribute) {
    *value = stats().json();
    return 0;
  }
  if (std::string_view(name) == kAttachAttribute) return say_meeting(value);
  if (const int refused = check_name(name, has_user_attributes_); refused != 0) return refused;
  if (is_own(name)) return ENODATA;
  auto found = names_.read_user(node.id, name);
  if (!found.ok()) return answer(found.status());
  *value = std::move(*found);
  return 0;
}

int JobFs::list_attributes(Node& known, const Caller&, std::string* names) {
  if (!has_user_attributes_) return EOPNOTSUPP;
  const auto found = names_.list_users(JobNode::of(known).id);
  if (!found.ok()) return answer(found.status());
  names->clear();
  for (const std::string& each : *found) names->append(each).push_back('\0');
  return 0;
}

// On the backing first, also in what follows: it may have less space for them.
int JobFs::set_attribute(Node& known, const char* name, Bytes value, int flags, const Caller&) {
  JobNode& node = JobNode::of(known);
  if (&node == root_node_ && std::string_view(name) == kJobCommandAttribute) {
    if (value != "sync") return EINVAL;
    return answer(drain_everywhere());
  }
  if (is_own(name)) return EPERM;
  if (const int refused = check_name(name, has_user_attributes_); refused != 0) return refused;
  if (node.type == meta::NodeType::kLink) return EPERM;
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
  const auto set = [&](const char* path) {
    return ::setxattr(path, name, value.data(), value.size(), flags);
  };
  bool is_there = false;
  if (const int failed = change_there(node, set, &is_there); failed != 0) return failed;
  const uint8_t only = is_there                       ? 0
                       : (flags & XATTR_CREATE) != 0  ? meta::kCreateOnly
                       : (flags & XATTR_REPLACE) != 0 ? meta::kReplaceOnly
                                                      : 0;
  return answer(names_.set_user(node.id, name, value, only));
}

int JobFs::remove_attribute(Node& known, const char* name, const Caller&) {
  JobNode& node = JobNode::of(known);
  if (const int refused = check_name(name, has_user_attributes_); refused != 0) return refused;
  if (is_own(name)) return EPERM;
  const auto turn = take_turn();
  if (!turn.ok()) return answer(turn.status());
  const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
  if (const int missing = answer(names_.read_user(node.id, name).status()); missing != 0) return missing;
  const auto remove = [&](const char* path) {
    return ::removexattr(path, name) == 0 || errno == ENODATA ? 0 : -1;
  };
  if (const int failed = change_there(node, remove); failed != 0) return failed;
  return answer(names_.remove_user(node.id, name));
}

// Others may have made space since, or the program may have changed it.
Result<bool> JobFs::is_lost(const LostAttributes::Lost& lost) {
  const auto value = names_.read_user(lost.file, lost.name);
  if (value.status().posix_error() == ENODATA || value.status().posix_error() == ENOENT) return false;
  SWALE_RETURN_IF_ERROR(value.status());
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor there, on_backing(lost.file));
  if (!there.valid()) return false;  // a drain of it is still to come
  std::string kept(value->size() + 1, '\0');
  const ssize_t got =
      ::getxattr(io::descriptor_path(there).c_str(), lost.name.c_str(), kept.data(), kept.size());
  kept.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got < 0 || kept != *value;
}

Status JobFs::find_lost() {
  Status first;
  for (const LostAttributes::Lost& each : lost_.all()) {
    SWALE_ASSIGN_OR_RETURN(const bool is, is_lost(each));
    if (!is) lost_.remove(each);
    if (is && first.ok()) first = error(Code::kIoError, Scope::kFile, "{}", each.why);
  }
  return first;
}

}  // namespace swale::fs
