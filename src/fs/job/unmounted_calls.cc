#include "fs/job/unmounted_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "fs/job/insist.h"
#include "fs/job/light_stat.h"
#include "fs/job/unmounted_walk.h"

namespace swale::fs {
namespace {

constexpr int kMakeTries = 100;  // of a file that others make and remove

// With any other flag an open would promise what a stand-in does not keep.
constexpr uint32_t kOpenFlags = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY |
                                O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_DIRECTORY | O_SYNC | O_DSYNC |
                                O_LARGEFILE | 0100000;

uint8_t type_of(mode_t mode) { return S_ISDIR(mode) ? DT_DIR : S_ISLNK(mode) ? DT_LNK : DT_REG; }

}  // namespace

// Of a process that /proc does not show: one that lets nobody else in.
mode_t UnmountedCalls::Who::umask_of(pid_t process) {
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
      Status done = stand_ins_.take_all_everywhere();
      if (done.ok()) done = fs_.drain_everywhere();
      if (!done.ok()) log_error("{}", done.message());
      return done.ok() ? 0 : done.posix_error();
    }
    case UnmountedCall::kLock:
    case UnmountedCall::kFindLock:
      return lock(asked, answer);
    case UnmountedCall::kStats:
      return pass_text(fs_.stats().json(), &answer->passed);
    case UnmountedCall::kSeal:
      return seal(asked);
    case UnmountedCall::kGetAttribute:
      return get_attribute(asked, answer);
    case UnmountedCall::kListAttributes:
      return list_attributes(asked, answer);
    case UnmountedCall::kSetAttribute:
      return set_attribute(asked, answer);
    case UnmountedCall::kRemoveAttribute:
      return remove_attribute(asked, answer);
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

// EEXIST: something is there. Other names change while the file gets its stand-in, which takes longest.
int UnmountedCalls::make(const Asked& asked, Answer* answer) {
  const Caller caller = asked.who.with_umask(asked.request.umask);
  Place place(fs_);
  Known made(fs_);
  std::unique_ptr<OpenFile> file;
  if (const int failed = make_name(asked, caller, &place, &made, &file); failed != 0) return failed;
  const int failed = stand_ins_.open_made(*made.get(), std::move(file), static_cast<int>(asked.request.flags),
                                          caller, &answer->passed);
  answer->said.kind = S_IFREG;
  if (failed == 0) return 0;
  const MutexLock changes(names_);
  Known now(fs_);
  struct stat found;
  if (place.look_up(&now, &found) == 0 && now.get() == made.get())
    static_cast<void>(fs_.unlink(place.directory(), place.name().c_str(), caller));
  return failed;
}

int UnmountedCalls::make_name(const Asked& asked, const Caller& caller, Place* place, Known* made,
                              std::unique_ptr<OpenFile>* file) {
  const MutexLock changes(names_);
  if (const int failed = place->find(asked.path(), asked.who); failed != 0) return failed;
  const bool may = asked.who.may(place->attributes(), W_OK | X_OK);
  const bool is_directory = (asked.request.flags & O_DIRECTORY) != 0;
  // Else the tree says so when it makes the file.
  if (!may || is_directory || !place->has_name()) {
    const int there = place->expect_nothing();
    return there != 0 ? there : is_directory ? EINVAL : EACCES;
  }
  Entry entry;
  const int failed = fs_.create(place->directory(), place->name().c_str(), asked.request.mode & 07777,
                                O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, caller, &entry, file);
  if (failed == 0) made->take(entry.node);
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
                                        asked.who.with_umask(asked.request.umask), &entry);
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

}  // namespace swale::fs
