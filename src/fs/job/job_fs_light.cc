// JobFs: files that programs open past the kernel (fs/log/light_format.h).
//
// An open that succeeds here would have succeeded in the kernel: each directory of the path lets its caller
// pass, and the last one lets it make a name, or the file lets itself be read and written. All else (links,
// "..", what would be refused, what only the kernel knows) is an errno, upon which the program asks the
// kernel. So this knows nothing of the kernel's errors.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "fs/job/insist.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"

namespace swale::fs {
namespace {

constexpr std::string_view kLentName = ".swale-open-";
constexpr int kInodeServerBits = 52;

// inode_of() backwards: of a directory that the kernel knows.
meta::FileId id_of(uint64_t inode) {
  return {inode >> kInodeServerBits, inode & ((uint64_t{1} << kInodeServerBits) - 1)};
}

// With its slash; "": there is none.
std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return path.substr(0, slash == std::string_view::npos ? 0 : slash + 1);
}

bool is_name(const std::string& name) {
  return io::is_one_name(name) && name.find('\0') == std::string::npos;
}

}  // namespace

// One lookup of a directory.
class JobFs::Held {
 public:
  Held(JobFs& fs, JobNode* node) : fs_(fs), node_(node) {}
  ~Held() {
    if (node_ != nullptr) fs_.forget(node_, 1);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void take(JobNode* node) {
    if (node_ != nullptr) fs_.forget(node_, 1);
    node_ = node;
  }
  JobNode* get() const { return node_; }
  JobNode* keep() { return std::exchange(node_, nullptr); }

 private:
  JobFs& fs_;
  JobNode* node_;
};

// With one lookup more. A directory that the node remembers costs no message.
int JobFs::step_into(JobNode& parent, const char* name, JobNode** found) {
  if (is_private(parent, name)) return ENOENT;
  const auto entry = names_.find(parent.id, name);
  if (entry.ok() && entry->type != meta::NodeType::kDirectory) return ENOTDIR;
  JobNode* const known = entry.ok() ? nodes_.find(entry->file) : nullptr;
  if (known != nullptr) {
    *found = known;
    return 0;
  }
  Entry looked_up;
  if (const int failed = lookup(parent, name, &looked_up); failed != 0) return failed;
  *found = &JobNode::of(*looked_up.node);
  return 0;
}

// The way from a directory that the kernel knows to a folder below it, which it holds: what the kernel would
// ask there is the same for all that go it now.
class JobFs::Walk {
 public:
  Walk(JobFs& fs, uint64_t directory, std::string_view folder)
      : fs_(fs), directory_(directory), folder_(folder), at_(fs, fs.nodes_.find(id_of(directory))) {
    failed_ = go();
  }
  bool leads(uint64_t directory, std::string_view folder) const {
    return directory == directory_ && folder == folder_;
  }
  // 0: it may do so in the folder: X_OK, and W_OK if it makes a name there.
  int failed_for(const Credentials& who, int there) const {
    for (size_t i = 0; i < passed_.size(); ++i)
      if (!fs_.may_pass(who, passed_[i], i + 1 < passed_.size() ? X_OK : there)) return EACCES;
    return failed_;
  }
  JobNode& end() const { return *at_.get(); }
  const struct stat& end_attributes() const { return passed_.back(); }

 private:
  int go() {
    std::string_view rest = folder_;
    for (;;) {
      if (at_.get() == nullptr) return ESTALE;
      if (at_.get()->type != meta::NodeType::kDirectory) return ENOTDIR;
      if (const int failed = fs_.describe_directory(*at_.get(), &passed_.emplace_back()); failed != 0)
        return failed;
      if (rest.empty()) return 0;
      const size_t end = rest.find('/');
      const std::string name(rest.substr(0, end));
      if (!is_name(name)) return EINVAL;
      rest.remove_prefix(std::min(rest.find_first_not_of('/', end), rest.size()));
      JobNode* next = nullptr;
      if (const int failed = fs_.step_into(*at_.get(), name.c_str(), &next); failed != 0) return failed;
      at_.take(next);
    }
  }

  JobFs& fs_;
  const uint64_t directory_;
  const std::string folder_;  // it ends with a slash, if there is one
  Held at_;
  std::vector<struct stat> passed_;  // of each directory, the folder's last
  int failed_ = 0;
};

// A create that has gone to the names.
struct JobFs::LightMaking {
  LightMaking(JobFs& fs, LightOpen& by, JobNode& parent, const std::string& name, const meta::NewNode& node)
      : wanted(by),
        making(fs, parent, name, fs.shared_ != nullptr),
        asked(fs.names_, parent.id, name, node,
              making.holds ? meta::NamesClient::Hold::kYes : meta::NamesClient::Hold::kNo) {}

  LightOpen& wanted;
  const Making making;
  meta::NamesClient::Creating asked;
};

// Opens that are served together: those that make files have begun before the first of them ends.
class JobFs::LightRound {
 public:
  explicit LightRound(JobFs& fs) : fs_(fs), pass_(fs.light_gate_) {}

  int begin_create(LightOpen& wanted) {
    Place place;
    if (const int failed = find(wanted, W_OK | X_OK, &place); failed != 0) return failed;
    JobNode& parent = place.walk->end();
    if (fs_.is_private(parent, place.name)) return EPERM;
    const bool asks = fs_.may_be_there(parent, place.name.c_str());
    if (const int failed = asks ? fs_.keep_name(parent, place.name.c_str()) : 0; failed != 0) return failed;
    const meta::NewNode node = new_file(place.walk->end_attributes(), wanted.mode & 0777, caller_of(wanted));
    makings_.push_back(std::make_unique<LightMaking>(fs_, wanted, parent, place.name, node));
    return 0;
  }

  void end_creates() {
    for (const auto& each : makings_) {
      LightOpen& wanted = each->wanted;
      wanted.failed = errno_of([&] { return end(*each); });
    }
    makings_.clear();
  }

  // What is there. Names do not change meanwhile: so the names need not hold it yet.
  int open(LightOpen& wanted) {
    Place place;
    if (const int failed = find(wanted, X_OK, &place); failed != 0) return failed;
    Entry entry;
    if (const int failed = fs_.lookup(place.walk->end(), place.name.c_str(), &entry); failed != 0)
      return failed;
    Held held(fs_, &JobNode::of(*entry.node));
    int failed = fs_.refuse_open(wanted, place.walk->end_attributes(), entry.attributes);
    if (failed == 0) failed = fs_.open_light(*held.get(), wanted, caller_of(wanted), &wanted.made.file);
    if (failed != 0) return failed;
    wanted.made.node = held.keep();
    ++fs_.light_opens_, ++fs_.light_open_;
    return 0;
  }

 private:
  struct Place {
    const Walk* walk = nullptr;  // to its folder
    std::string name;
  };

  // Where its path leads to, if the caller may do `access` in that folder. 0, or an errno.
  int find(const LightOpen& wanted, int access, Place* place) {
    if (!pass_.open()) return EAGAIN;
    const std::string_view folder = folder_of(wanted.path);
    place->name = wanted.path.substr(folder.size());
    if (!is_name(place->name)) return EINVAL;
    place->walk = &walk_to(wanted.directory, folder);
    return place->walk->failed_for(*wanted.who, access);
  }
  static Caller caller_of(const LightOpen& wanted) {
    return {wanted.who->user, wanted.who->group, wanted.who->thread, wanted.umask, {}};
  }
  const Walk& walk_to(uint64_t directory, std::string_view folder) {
    for (const auto& each : walks_)
      if (each->leads(directory, folder)) return *each;
    return *walks_.emplace_back(std::make_unique<Walk>(fs_, directory, folder));
  }

  int end(LightMaking& each) {
    const auto made = each.asked.end();
    if (!made.ok()) return answer(made.status());
    // Nobody maps it by a placeholder: so it keeps no other program from its log.
    const int flags = (each.wanted.flags & (O_ACCMODE | O_APPEND)) | O_CREAT | O_EXCL | O_DIRECT;
    JobNode* node = nullptr;
    const int failed = fs_.open_made(each.making, *made, flags, caller_of(each.wanted), &node, nullptr,
                                     &each.wanted.made.file);
    if (failed != 0) return failed;
    each.wanted.made.node = node;
    ++fs_.light_creates_, ++fs_.light_open_;
    return 0;
  }

  JobFs& fs_;
  const LightGate::Pass pass_;
  std::vector<std::unique_ptr<Walk>> walks_;
  std::vector<std::unique_ptr<LightMaking>> makings_;
};

void JobFs::serve_light(std::span<LightFile> ended, std::span<LightOpen> wanted) {
  std::optional<LightRound> round;
  {
    // With several nodes a release may ask them.
    const auto together = shared_ ? meta::Service::OwnCommits(nullptr) : names_.together();
    for (LightFile& each : ended) {
      const Status done = contain([&] {
        release(std::move(each.file));
        forget(each.node, 1);
      });
      if (!done.ok()) log_warn("closing a file that was opened past the kernel: {}", done.message());
      --light_open_;
    }
    if (wanted.empty()) return;
    round.emplace(*this);
    for (LightOpen& each : wanted)
      each.failed =
          (each.flags & O_CREAT) == 0 ? EEXIST : errno_of([&] { return round->begin_create(each); });
    round->end_creates();
  }
  for (LightOpen& each : wanted)
    if (each.failed == EEXIST && (each.flags & O_EXCL) == 0)
      each.failed = errno_of([&] { return round->open(each); });
}

// As the kernel, or where the kernel alone knows.
int JobFs::refuse_open(const LightOpen& wanted, const struct stat& above, const struct stat& found) const {
  if (!S_ISREG(found.st_mode)) return ELOOP;
  const int access = wanted.flags & O_ACCMODE;
  const bool writes = access != O_RDONLY || (wanted.flags & O_TRUNC) != 0;
  const int asked = (access != O_WRONLY ? R_OK : 0) | (writes ? W_OK : 0);
  if (!may_pass(*wanted.who, found, asked)) return EACCES;
  // Somebody may be running it.
  if (writes && (found.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0) return ETXTBSY;
  // fs.protected_regular may forbid it.
  const bool is_others = (above.st_mode & S_ISVTX) != 0 && found.st_uid != wanted.who->user;
  return is_others && (wanted.flags & O_CREAT) != 0 ? EACCES : 0;
}

// The kernel keeps none of its pages for this open. With several nodes another one may take its name.
int JobFs::open_light(JobNode& node, const LightOpen& wanted, const Caller& caller,
                      std::unique_ptr<OpenFile>* file) {
  const bool cuts = (wanted.flags & O_TRUNC) != 0;
  const int access = wanted.flags & O_ACCMODE;
  if (cuts && (shared_ || access == O_RDONLY)) return EAGAIN;
  const int flags = access | (wanted.flags & O_APPEND) | O_DIRECT;
  std::unique_ptr<OpenFile> made;
  int failed = open_node(node, flags, caller, shared_ ? Hold::kYes : Hold::kNo, &made);
  if (failed != 0) return failed;
  JobFile::of(*made).reads = access != O_WRONLY;
  if (cuts) failed = errno_of([&] { return content_changes(node, caller); });
  if (cuts && failed == 0) failed = errno_of([&] { return cut_light(node); });
  if (failed != 0)
    release(std::move(made));
  else
    *file = std::move(made);
  return failed;
}

// Where the kernel may have pages of it, the kernel cuts it.
int JobFs::cut_light(JobNode& node) {
  {
    const RequestLock lock(mutex_, requests_);
    if (kernel_has_pages(node)) return EBUSY;
    ++node.cuts_past_kernel;
    node.was_cut_past_kernel = true;
  }
  const int failed = errno_of([&] { return truncate(node, 0); });
  const RequestLock lock(mutex_, requests_);
  --node.cuts_past_kernel;
  return failed;
}

int JobFs::look_light(uint64_t directory, std::string_view path, int access, const Credentials& who,
                      struct stat* found) {
  const LightGate::Pass pass(light_gate_);
  if (!pass.open()) return EAGAIN;
  const std::string_view folder = folder_of(path);
  const std::string name(path.substr(folder.size()));
  if (!is_name(name)) return EINVAL;
  const Walk walk(*this, directory, folder);
  if (const int failed = walk.failed_for(who, X_OK); failed != 0) return failed;
  Entry entry;
  if (const int failed = lookup(walk.end(), name.c_str(), &entry); failed != 0) return failed;
  const Held held(*this, &JobNode::of(*entry.node));
  *found = entry.attributes;
  if (!S_ISREG(found->st_mode) && !S_ISDIR(found->st_mode)) return ELOOP;
  // Whom no mode binds, may execute only what somebody may.
  if ((access & X_OK) != 0 && who.overrides && S_ISREG(found->st_mode)) return EACCES;
  if (access != 0 && !may_pass(who, *found, access)) return EACCES;
  ++light_looks_;
  return 0;
}

bool JobFs::may_pass(const Credentials& who, const struct stat& directory, int wanted) const {
  return !options_.light_looks_at_modes || who.may(directory, wanted);
}

std::string JobFs::lend(OpenFile& opened) {
  JobFile& file = JobFile::of(opened);
  std::string name = fmt::format("{}{:016x}{:016x}", kLentName, random_number(), random_number());
  const int access = file.writes ? (file.reads ? O_RDWR : O_WRONLY) : O_RDONLY;
  const MutexLock lock(lent_mutex_);
  lent_.emplace(name, Lent{file.node.id, access});
  lent_count_.store(lent_.size());
  return name;
}

void JobFs::take_back(const std::string& name) {
  const MutexLock lock(lent_mutex_);
  lent_.erase(name);
  lent_count_.store(lent_.size());
}

// Once: the name leads nowhere afterwards.
std::optional<JobFs::Lent> JobFs::take_lent(std::string_view name) {
  if (lent_count_.load() == 0 || !name.starts_with(kLentName)) return std::nullopt;
  const MutexLock lock(lent_mutex_);
  const auto at = lent_.find(name);
  if (at == lent_.end()) return std::nullopt;
  const Lent lent = at->second;
  lent_.erase(at);
  lent_count_.store(lent_.size());
  return lent;
}

// The kernel makes the name that was lent, and gets the file that is open already: so it does not look at the
// file's mode, which has not bound the program that made it.
int JobFs::open_lent(const Lent& lent, int flags, const Caller& caller, Entry* entry,
                     std::unique_ptr<OpenFile>* file) {
  if ((flags & O_ACCMODE) != lent.access) return EACCES;
  JobNode* const node = nodes_.find(lent.file);
  if (node == nullptr) return ESTALE;
  int failed = open_file(*node, flags & (O_ACCMODE | O_APPEND), caller, file);
  struct stat found;
  if (failed == 0) {
    failed = attributes(*node, &found);
    if (failed != 0) release(std::move(*file));
  }
  if (failed != 0) {
    forget(node, 1);
    return failed;
  }
  *entry = {node, found};
  return 0;
}

}  // namespace swale::fs
