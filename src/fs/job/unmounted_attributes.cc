// UnmountedCalls: what a file is beside its name: its size, its mode and times, whether it is durable or
// sealed, its locks, and its extended attributes.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fs/job/insist.h"
#include "fs/job/stand_in_locks.h"
#include "fs/job/unmounted_walk.h"
#include "fs/log/attach_format.h"

namespace swale::fs {

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
  const UnmountedRequest& request = asked.request;
  if (!S_ISREG(found.st_mode)) return 0;
  if (request.size == 0) return stand_ins_.sync(*known.get());
  const bool appended = (request.flags & O_APPEND) != 0;
  return stand_ins_.sync_part(*known.get(), appended ? StandInFiles::kAppended : request.offset,
                              request.size);
}

// Who has it open to write is asked before, and after: somebody may have opened it meanwhile.
int UnmountedCalls::seal(const Asked& asked) {
  Known known(fs_);
  bool by_descriptor = false;
  if (const int failed = find_file(asked, &known, &by_descriptor); failed != 0) return failed;
  struct stat found;
  if (const int failed = fs_.attributes(*known.get(), &found); failed != 0) return failed;
  if (!S_ISREG(found.st_mode)) return S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
  if (!asked.who.owns(found)) return EPERM;
  const Caller& caller = asked.who.caller();
  SealState state;
  if (const int failed = seal_of(*known.get(), caller, &state); failed != 0) return failed;
  if (state.sealed != 0) return 0;
  if (const int open = stand_ins_.end(*known.get()); open != 0) return open;
  const mode_t mode = found.st_mode & 07777;
  if (const int failed = fs_.change(*known.get(), {.mode = mode & 07555}, caller, &found); failed != 0)
    return failed;
  if (const int failed = seal_of(*known.get(), caller, &state); failed != 0) return failed;
  if (state.sealed != 0) return 0;
  const int failed = fs_.change(*known.get(), {.mode = mode}, caller, &found);
  return failed != 0 ? failed : EBUSY;
}

int UnmountedCalls::seal_of(Node& node, const Caller& caller, SealState* state) {
  std::unique_ptr<OpenFile> file;
  if (const int failed = fs_.open_file(node, O_RDONLY | O_DIRECT, caller, &file); failed != 0) return failed;
  std::string said;
  const int failed = errno_of([&] { return fs_.command(*file, kAskSeal, {}, &said); });
  fs_.release(std::move(file));
  if (failed == 0 && said.size() == sizeof(*state)) std::memcpy(state, said.data(), sizeof(*state));
  return failed;
}

int UnmountedCalls::lock(const Asked& asked, Answer* answer) {
  const UnmountedRequest& request = asked.request;
  Known known(fs_);
  bool by_descriptor = false;
  if (const int failed = find_file(asked, &known, &by_descriptor); failed != 0) return failed;
  if (!by_descriptor) return ENOLCK;  // of the backing's file, which does not follow the tree
  const auto wanted = lock_of(request, asked.who.caller().thread);
  if (!wanted || !JobFs::is_file(*known.get())) return EINVAL;
  if (request.call == UnmountedCall::kLock)
    return stand_ins_.lock(*known.get(), static_cast<ino_t>(request.accessed_ns), *wanted);
  FileLock found;
  const int failed = stand_ins_.find_lock(*known.get(), *wanted, &found);
  if (failed == 0) tell_lock(found, &answer->said);
  return failed;
}

// ---- extended attributes

// The kernel asks for the right to the file's bytes, however it was opened. The answer says what is no file:
// the backing has its attributes.
int UnmountedCalls::find_attributes(const Asked& asked, int wanted, Known* known, Answer* answer) {
  bool by_descriptor = false;
  const int failed = find_file(asked, known, &by_descriptor);
  if (failed == EISDIR) answer->said.kind = S_IFDIR;
  if (failed != 0) return failed == EISDIR ? 0 : failed;
  struct stat found;
  if (const int unknown = fs_.attributes(*known->get(), &found); unknown != 0) return unknown;
  answer->said.kind = found.st_mode & S_IFMT;
  return !S_ISREG(found.st_mode) || asked.who.may(found, wanted) ? 0 : EACCES;
}

int UnmountedCalls::get_attribute(const Asked& asked, Answer* answer) {
  Known known(fs_);
  int failed = find_attributes(asked, R_OK, &known, answer);
  if (failed != 0 || answer->said.kind != S_IFREG) return failed;
  std::string value;
  const std::string name(asked.other());
  failed = fs_.get_attribute(*known.get(), name.c_str(), asked.who.caller(), &value);
  return failed != 0 ? failed : pass_text(value, &answer->passed);
}

int UnmountedCalls::list_attributes(const Asked& asked, Answer* answer) {
  Known known(fs_);
  int failed = find_attributes(asked, 0, &known, answer);
  if (failed != 0 || answer->said.kind != S_IFREG) return failed;
  std::string names;
  failed = fs_.list_attributes(*known.get(), asked.who.caller(), &names);
  return failed != 0 ? failed : pass_text(names, &answer->passed);
}

int UnmountedCalls::set_attribute(const Asked& asked, Answer* answer) {
  Known known(fs_);
  const int failed = find_attributes(asked, W_OK, &known, answer);
  if (failed != 0 || answer->said.kind != S_IFREG) return failed;
  const size_t end = asked.other().find('\0');
  if (end == std::string_view::npos) return EINVAL;
  const std::string name(asked.other().substr(0, end));
  return fs_.set_attribute(*known.get(), name.c_str(), asked.other().substr(end + 1),
                           static_cast<int>(asked.request.flags), asked.who.caller());
}

int UnmountedCalls::remove_attribute(const Asked& asked, Answer* answer) {
  Known known(fs_);
  const int failed = find_attributes(asked, W_OK, &known, answer);
  if (failed != 0 || answer->said.kind != S_IFREG) return failed;
  const std::string name(asked.other());
  return fs_.remove_attribute(*known.get(), name.c_str(), asked.who.caller());
}

}  // namespace swale::fs
