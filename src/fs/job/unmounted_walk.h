// What UnmountedCalls knows while it serves one request: who asks, and where its path leads.
// Threads: one.
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "fs/as_caller.h"
#include "fs/job/job_marks.h"
#include "fs/job/unmounted_calls.h"
#include "io/beneath.h"

namespace swale::fs {

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
  // As it says. Who does not know it waits for the answer: so it has the same one until then.
  Caller with_umask(uint32_t said) const {
    Caller made = caller_;
    made.umask = said == kUnknownUmask ? umask_of(caller_.thread) : said & 0777;
    return made;
  }

 private:
  static mode_t umask_of(pid_t process);
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

}  // namespace swale::fs
