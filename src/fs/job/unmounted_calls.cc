#include "fs/job/unmounted_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "fs/as_caller.h"
#include "fs/job/insist.h"
#include "fs/job/job_marks.h"
#include "fs/job/light_stat.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr int kMakeTries = 100;  // of a file that others make and remove

// With any other flag an open would promise what a stand-in does not keep.
constexpr uint32_t kOpenFlags = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY |
                                O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_DIRECTORY | O_LARGEFILE | 0100000;

// Of a process that /proc does not show: one that lets nobody else in.
mode_t umask_of(pid_t process) {
  const io::Descriptor file(::open(fmt::format("/proc/{}/status", process).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t got = file.valid() ? ::read(file.get(), text.data(), text.size()) : -1;
  constexpr std::string_view kUmask = "\nUmask:\t";
  const size_t at = got < 0 ? std::string::npos : text.find(kUmask);
  mode_t umask = 077;
  if (at != std::string::npos)
    std::from_chars(text.data() + at + kUmask.size(), text.data() + text.size(), umask, 8);
  return umask & 0777;
}

uint8_t type_of(mode_t mode) { return S_ISDIR(mode) ? DT_DIR : S_ISLNK(mode) ? DT_LNK : DT_REG; }

}  // namespace

// Who asks. Its groups and capabilities are read when its own user's bits do not decide.
class UnmountedCalls::Who {
 public:
  explicit Who(const ucred& who) : caller_{who.uid, who.gid, who.pid, 0, {}} {}

  bool may(const struct stat& found, int wanted) const {
    if (found.st_uid == caller_.user && (static_cast<int>(found.st_mode >> 6) & wanted) == wanted)
      return true;
    const Credentials* const all = credentials();
    return all != nullptr && all->may(found, wanted);
  }
  bool overrides() const {
    const Credentials* const all = caller_.user == 0 ? credentials() : nullptr;
    return all != nullptr && all->overrides;
  }
  bool owns(const struct stat& found) const { return found.st_uid == caller_.user || overrides(); }
  const Caller& caller() const { return caller_; }
  // It waits for the answer: so it has the same umask until then.
  Caller with_umask() const {
    Caller made = caller_;
    made.umask = umask_of(caller_.thread);
    return made;
  }

 private:
  const Credentials* credentials() const {
    if (!credentials_) {
      auto read = credentials_of(caller_);
      if (!read.ok()) log_warn("{}", read.status().message());
      credentials_ = read.ok() ? *std::move(read) : Credentials{~uid_t{0}, ~gid_t{0}, 0, {}, false};
    }
    return credentials_->user == caller_.user ? &*credentials_ : nullptr;
  }

  const Caller caller_;
  mutable std::optional<Credentials> credentials_;
};

// One lookup of a node.
class UnmountedCalls::Known {
 public:
  explicit Known(JobFs& fs) : fs_(fs) {}
  ~Known() { take(nullptr); }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;
  void take(Node* node) {
    if (node_ != nullptr) fs_.forget(node_, 1);
    node_ = node;
  }
  Node* get() const { return node_; }

 private:
  JobFs& fs_;
  Node* node_ = nullptr;
};

struct UnmountedCalls::Asked {
  const UnmountedRequest& request;
  const Who who;

  std::string_view path() const { return {request.paths, request.path_bytes}; }
  std::string_view other() const { return {request.paths + request.path_bytes, request.other_bytes}; }
};

// A name in a directory. The directory: the top, or one that is known while this lives.
class UnmountedCalls::Place {
 public:
  explicit Place(JobFs& fs) : fs_(fs), above_(fs) {}

  // 0, or an errno. "": the top itself, which has no name.
  int find(std::string_view path, const Who& who) {
    if (const int failed = fs_.attributes(*fs_.root(), &attributes_); failed != 0) return failed;
    for (;;) {
      if (!S_ISDIR(attributes_.st_mode)) return S_ISLNK(attributes_.st_mode) ? ELOOP : ENOTDIR;
      if (!who.may(attributes_, X_OK)) return EACCES;
      const size_t end = path.find('/');
      name_ = path.substr(0, end);
      if (name_.empty() && end == std::string_view::npos && is_top()) return 0;
      if (name_.size() > NAME_MAX) return ENAMETOOLONG;
      if (!io::is_one_name(name_) || name_.find('\0') != std::string::npos) return EINVAL;
      if (is_top() && name_ == kSwaleDirectory) return ENOENT;
      if (end == std::string_view::npos) return 0;
      path.remove_prefix(end + 1);
      Entry entry;
      if (const int failed = fs_.lookup(directory(), name_.c_str(), &entry); failed != 0) return failed;
      above_.take(entry.node);
      attributes_ = entry.attributes;
    }
  }
  bool is_top() const { return above_.get() == nullptr; }
  bool has_name() const { return !name_.empty(); }
  Node& directory() const { return is_top() ? *fs_.root() : *above_.get(); }
  const struct stat& attributes() const { return attributes_; }  // of the directory
  const std::string& name() const { return name_; }

  int look_up(Known* known, struct stat* found) const {
    if (!has_name()) return EISDIR;
    Entry entry;
    if (const int failed = fs_.lookup(directory(), name_.c_str(), &entry); failed != 0) return failed;
    known->take(entry.node);
    *found = entry.attributes;
    return 0;
  }
  // 0: nothing has the name yet.
  int expect_nothing() const {
    Known known(fs_);
    struct stat found;
    const int missing = look_up(&known, &found);
    return missing == 0 || missing == EISDIR ? EEXIST : missing == ENOENT ? 0 : missing;
  }
  // May a name in it be removed, of what is `found`?
  int refuse_removal(const struct stat& found, const Who& who) const {
    if (!who.may(attributes_, W_OK | X_OK)) return EACCES;
    const bool sticks = (attributes_.st_mode & S_ISVTX) != 0;
    return sticks && !who.owns(found) && !who.owns(attributes_) ? EPERM : 0;
  }

 private:
  JobFs& fs_;
  Known above_;
  struct stat attributes_ = {};
  std::string name_;
};

bool UnmountedCalls::is_whole(const UnmountedRequest& request, size_t bytes) {
  if (bytes < kUnmountedHeadBytes || request.magic != kUnmountedMagic) return false;
  if (request.version != kUnmountedVersion) return false;
  if (request.path_bytes > kUnmountedPathMax || request.other_bytes > kUnmountedPathMax) return false;
  return bytes == kUnmountedHeadBytes + request.path_bytes + request.other_bytes;
}

UnmountedCalls::Answer UnmountedCalls::serve(const UnmountedRequest& request, const ucred& who) {
  Answer answer;
  const Asked asked{request, Who(who)};
  answer.said.error = errno_of([&] { return call(asked, &answer); });
  if (answer.said.error != 0) answer.passed = {};
  return answer;
}

int UnmountedCalls::call(const Asked& asked, Answer* answer) {
  switch (asked.request.call) {
    case UnmountedCall::kOpen:
      return open(asked, answer);
    case UnmountedCall::kLook:
      return look(asked, answer);
    case UnmountedCall::kList:
      return list(asked, answer);
    case UnmountedCall::kSync:
      return sync(asked);
    case UnmountedCall::kUnlink:
      return unlink(asked);
    case UnmountedCall::kRemoveDirectory:
      return remove_directory(asked);
    case UnmountedCall::kMakeDirectory:
      return make_directory(asked);
    case UnmountedCall::kMakeLink:
      return make_link(asked);
    case UnmountedCall::kRename:
      return rename(asked);
    case UnmountedCall::kTruncate:
      return truncate(asked);
    case UnmountedCall::kChange:
      return change(asked);
    case UnmountedCall::kSyncAll: {
      Status done = stand_ins_.take_all();
      if (done.ok()) done = fs_.drain_everywhere();
      if (!done.ok()) log_error("{}", done.message());
      return done.ok() ? 0 : done.posix_error();
    }
    case UnmountedCall::kStats:
      return pass_text(fs_.stats().json(), &answer->passed);
  }
  log_warn("process {} has sent a request of kind {}, which this server does not know",
           asked.who.caller().thread, static_cast<uint32_t>(asked.request.call));
  return EPROTO;
}

// ---- opens

int UnmountedCalls::open(const Asked& asked, Answer* answer) {
  const uint32_t flags = asked.request.flags;
  if ((flags & ~kOpenFlags) != 0) return EOPNOTSUPP;
  if ((flags & O_ACCMODE) == O_ACCMODE) return EINVAL;
  if ((flags & O_CREAT) == 0) return open_there(asked, answer);
  for (int tries = 0; tries < kMakeTries; ++tries) {
    const int failed = make(asked, answer);
    if (failed != EEXIST || (flags & O_EXCL) != 0) return failed;
    const int missing = open_there(asked, answer);
    if (missing != ENOENT) return missing;  // it was removed since
  }
  return ESTALE;
}

int UnmountedCalls::open_there(const Asked& asked, Answer* answer) {
  const uint32_t flags = asked.request.flags;
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  Known known(fs_);
  struct stat found;
  const int missing = place.look_up(&known, &found);
  if (missing == EISDIR) answer->said.kind = S_IFDIR;
  if (missing != 0) return missing == EISDIR ? 0 : missing;
  answer->said.kind = found.st_mode & S_IFMT;
  if (!S_ISREG(found.st_mode)) return 0;
  if ((flags & O_DIRECTORY) != 0) return ENOTDIR;
  const uint32_t access = flags & O_ACCMODE;
  const bool writes = access != O_RDONLY || (flags & O_TRUNC) != 0;
  if (!asked.who.may(found, (access != O_WRONLY ? R_OK : 0) | (writes ? W_OK : 0))) return EACCES;
  if ((flags & O_NOATIME) != 0 && !asked.who.owns(found)) return EPERM;
  return stand_ins_.open_file(*known.get(), static_cast<int>(flags), asked.who.caller(), &answer->passed);
}

// EEXIST: something is there.
int UnmountedCalls::make(const Asked& asked, Answer* answer) {
  const MutexLock changes(names_);
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  if (const int there = place.expect_nothing(); there != 0) return there;
  if ((asked.request.flags & O_DIRECTORY) != 0) return EINVAL;
  if (!asked.who.may(place.attributes(), W_OK | X_OK)) return EACCES;
  const Caller caller = asked.who.with_umask();
  Entry entry;
  std::unique_ptr<OpenFile> file;
  int failed = fs_.create(place.directory(), place.name().c_str(), asked.request.mode & 07777,
                          O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, caller, &entry, &file);
  if (failed != 0) return failed;
  Known known(fs_);
  known.take(entry.node);
  // Nothing is in the tree that a stand-in would have to have.
  const int flags = static_cast<int>(asked.request.flags) | O_TRUNC;
  failed = stand_ins_.open_file(*entry.node, flags, caller, &answer->passed);
  fs_.release(std::move(file));
  answer->said.kind = S_IFREG;
  if (failed != 0) static_cast<void>(fs_.unlink(place.directory(), place.name().c_str(), caller));
  return failed;
}

// ---- what is there

// By its stand-in, or by its path.
int UnmountedCalls::find_file(const Asked& asked, Known* known, bool* by_descriptor) {
  *by_descriptor = asked.request.stand_in != 0;
  if (*by_descriptor) {
    known->take(stand_ins_.find(asked.request.stand_in));
    return known->get() == nullptr ? ESTALE : 0;
  }
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  struct stat found;
  return place.look_up(known, &found);
}

int UnmountedCalls::look(const Asked& asked, Answer* answer) {
  Known known(fs_);
  bool by_descriptor = false;
  const int failed = find_file(asked, &known, &by_descriptor);
  if (failed == EISDIR) {
    answer->said.kind = S_IFDIR;
    return 0;
  }
  if (failed != 0) return failed;
  struct stat found;
  if (const int unknown = stand_ins_.describe(*known.get(), &found); unknown != 0) return unknown;
  answer->said.kind = found.st_mode & S_IFMT;
  if (!S_ISREG(found.st_mode)) return 0;
  answer->said.stat = described(found);
  const int wanted = static_cast<int>(asked.request.mode) & (R_OK | W_OK | X_OK);
  if (wanted == 0) return 0;
  // Whom no mode binds, may execute only what somebody may.
  const bool may_run = (found.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
  if ((wanted & X_OK) != 0 && !may_run) return EACCES;
  if (!asked.who.may(found, wanted)) return EACCES;
  if ((wanted & X_OK) != 0) answer->said.there = stand_ins_.is_there(*known.get()) ? 1 : 0;
  return 0;
}

int UnmountedCalls::pass_text(std::string_view text, io::Descriptor* out) {
  io::Descriptor made(::memfd_create("swale", MFD_CLOEXEC));
  if (!made.valid()) return errno;
  for (size_t done = 0; done < text.size();) {
    const ssize_t put =
        io::continued([&] { return ::write(made.get(), text.data() + done, text.size() - done); });
    if (put < 0) return errno;
    done += static_cast<size_t>(put);
  }
  *out = std::move(made);
  return 0;
}

int UnmountedCalls::list(const Asked& asked, Answer* answer) {
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  Known known(fs_);
  struct stat found = place.attributes();
  Node* node = fs_.root();
  if (place.has_name()) {
    if (const int failed = place.look_up(&known, &found); failed != 0) return failed;
    node = known.get();
  }
  if (!S_ISDIR(found.st_mode)) return ENOTDIR;
  if (!asked.who.may(found, R_OK)) return EACCES;
  std::unique_ptr<OpenDirectory> directory;
  if (const int failed = fs_.open_directory(*node, asked.who.caller(), &directory); failed != 0)
    return failed;
  std::string text;
  const auto add = [&](const DirectoryEntry& entry) {
    ListedName head;
    head.inode = entry.inode;
    head.name_bytes = static_cast<uint16_t>(entry.name.size());
    head.type = type_of(entry.type);
    text.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(entry.name);
    return true;
  };
  if (const int failed = fs_.read_directory(*directory, 0, add); failed != 0) return failed;
  return pass_text(text, &answer->passed);
}

// ---- names

int UnmountedCalls::unlink(const Asked& asked) {
  const MutexLock changes(names_);
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  Known known(fs_);
  struct stat found;
  if (const int failed = place.look_up(&known, &found); failed != 0) return failed;
  if (S_ISDIR(found.st_mode)) return EISDIR;
  if (const int refused = place.refuse_removal(found, asked.who); refused != 0) return refused;
  return fs_.unlink(place.directory(), place.name().c_str(), asked.who.caller());
}

int UnmountedCalls::remove_directory(const Asked& asked) {
  const MutexLock changes(names_);
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  if (!place.has_name()) return EBUSY;
  Known known(fs_);
  struct stat found;
  if (const int failed = place.look_up(&known, &found); failed != 0) return failed;
  if (!S_ISDIR(found.st_mode)) return ENOTDIR;
  if (const int refused = place.refuse_removal(found, asked.who); refused != 0) return refused;
  return fs_.remove_directory(place.directory(), place.name().c_str(), asked.who.caller());
}

int UnmountedCalls::make_directory(const Asked& asked) {
  const MutexLock changes(names_);
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  if (const int there = place.expect_nothing(); there != 0) return there;
  if (!asked.who.may(place.attributes(), W_OK | X_OK)) return EACCES;
  Entry entry;
  const int failed = fs_.make_directory(place.directory(), place.name().c_str(), asked.request.mode & 01777,
                                        asked.who.with_umask(), &entry);
  if (failed == 0) Known(fs_).take(entry.node);
  return failed;
}

int UnmountedCalls::make_link(const Asked& asked) {
  const MutexLock changes(names_);
  Place place(fs_);
  if (const int failed = place.find(asked.path(), asked.who); failed != 0) return failed;
  const std::string target(asked.other());
  if (target.empty() || target.find('\0') != std::string::npos) return ENOENT;
  if (const int there = place.expect_nothing(); there != 0) return there;
  if (!asked.who.may(place.attributes(), W_OK | X_OK)) return EACCES;
  Entry entry;
  const int failed =
      fs_.make_symlink(place.directory(), place.name().c_str(), target.c_str(), asked.who.caller(), &entry);
  if (failed == 0) Known(fs_).take(entry.node);
  return failed;
}

// What replaces another file is in the tree before, so that a kill leaves the old one or the new one.
int UnmountedCalls::rename(const Asked& asked) {
  const MutexLock changes(names_);
  const unsigned flags = asked.request.flags;
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) return EINVAL;
  Place from(fs_), to(fs_);
  if (const int failed = from.find(asked.path(), asked.who); failed != 0) return failed;
  if (const int failed = to.find(asked.other(), asked.who); failed != 0) return failed;
  if (!from.has_name() || !to.has_name()) return EBUSY;
  Known moved(fs_), replaced(fs_);
  struct stat found, there;
  if (const int failed = from.look_up(&moved, &found); failed != 0) return failed;
  if (const int refused = from.refuse_removal(found, asked.who); refused != 0) return refused;
  const int missing = to.look_up(&replaced, &there);
  if (missing != 0 && missing != ENOENT) return missing;
  if (missing == 0) {
    if (const int refused = to.refuse_removal(there, asked.who); refused != 0) return refused;
    for (const Known* each : {&moved, &replaced})
      if (S_ISREG(each == &moved ? found.st_mode : there.st_mode))
        if (const int failed = stand_ins_.take_in(*each->get()); failed != 0) return failed;
  } else if (!asked.who.may(to.attributes(), W_OK | X_OK)) {
    return EACCES;
  }
  return fs_.rename(from.directory(), from.name().c_str(), to.directory(), to.name().c_str(), flags,
                    asked.who.caller());
}

// ---- attributes

int UnmountedCalls::truncate(const Asked& asked) {
  Known known(fs_);
  bool by_descriptor = false;
  if (const int failed = find_file(asked, &known, &by_descriptor); failed != 0) return failed;
  struct stat found;
  if (const int failed = fs_.attributes(*known.get(), &found); failed != 0) return failed;
  if (S_ISDIR(found.st_mode)) return EISDIR;
  if (!S_ISREG(found.st_mode)) return EINVAL;
  if (!by_descriptor && !asked.who.may(found, W_OK)) return EACCES;
  return stand_ins_.truncate(*known.get(), asked.request.size, asked.who.caller());
}

int UnmountedCalls::change(const Asked& asked) {
  const UnmountedRequest& request = asked.request;
  Known known(fs_);
  bool by_descriptor = false;
  if (const int failed = find_file(asked, &known, &by_descriptor); failed != 0) return failed;
  struct stat found;
  if (const int failed = fs_.attributes(*known.get(), &found); failed != 0) return failed;
  const uint32_t what = request.what;
  const bool sets_now = (what & (kChangesAccessed | kChangesModified)) == 0;
  if ((what & (kChangesMode | kChangesUser | kChangesGroup)) != 0 || !sets_now) {
    if (!asked.who.owns(found)) return EPERM;
  } else if (!asked.who.owns(found) && !asked.who.may(found, W_OK)) {
    return EACCES;
  }
  // Its bytes as they are: what is set now is newer.
  if (const int failed = S_ISREG(found.st_mode) ? stand_ins_.take_in(*known.get()) : 0; failed != 0)
    return failed;
  Change wanted;
  if ((what & kChangesMode) != 0) wanted.mode = request.mode & 07777;
  if ((what & kChangesUser) != 0) wanted.user = request.user;
  if ((what & kChangesGroup) != 0) wanted.group = request.group;
  const timespec omitted = {0, UTIME_OMIT};
  timespec times[2] = {omitted, omitted};
  if ((what & kAccessedNow) != 0) times[0] = Change::kNow;
  if ((what & kChangesAccessed) != 0) times[0] = timespec_of(request.accessed_ns);
  if ((what & kModifiedNow) != 0) times[1] = Change::kNow;
  if ((what & kChangesModified) != 0) times[1] = timespec_of(request.modified_ns);
  if (times[0].tv_nsec != UTIME_OMIT) wanted.accessed = times[0];
  if (times[1].tv_nsec != UTIME_OMIT) wanted.modified = times[1];
  if (const int failed = fs_.change(*known.get(), wanted, asked.who.caller(), &found); failed != 0)
    return failed;
  return wanted.accessed || wanted.modified ? stand_ins_.set_times(*known.get(), times) : 0;
}

int UnmountedCalls::sync(const Asked& asked) {
  Known known(fs_);
  bool by_descriptor = false;
  if (const int failed = find_file(asked, &known, &by_descriptor); failed != 0) return failed;
  struct stat found;
  if (const int failed = fs_.attributes(*known.get(), &found); failed != 0) return failed;
  return S_ISREG(found.st_mode) ? stand_ins_.sync(*known.get()) : 0;
}

}  // namespace swale::fs
