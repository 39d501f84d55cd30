// JobFs: files that programs make past the kernel (fs/log/light_format.h).
//
// A create that succeeds here would have succeeded in the kernel: each directory of the path lets its caller
// pass, and the last one lets it make a name. All else (links, "..", names that are there, what would be
// refused) is an errno, upon which the program asks the kernel. So this knows nothing of the kernel's errors.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/entropy.h"
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

int JobFs::create_light(const LightCreate& wanted, const Credentials& who, Entry* entry,
                        std::unique_ptr<OpenFile>* file) {
  const LightGate::Pass pass(light_gate_);
  if (!pass.open()) return EAGAIN;
  Held at(*this, nodes_.find(id_of(wanted.directory)));
  std::string_view rest = wanted.path;
  for (;;) {
    if (at.get() == nullptr) return ESTALE;
    if (at.get()->type != meta::NodeType::kDirectory) return ENOTDIR;
    const size_t end = rest.find('/');
    const std::string name(rest.substr(0, end));
    if (!io::is_one_name(name) || name.find('\0') != std::string::npos) return EINVAL;
    const bool is_last = end == std::string_view::npos;
    struct stat found;
    if (const int failed = describe_directory(*at.get(), &found); failed != 0) return failed;
    if (!may_pass(who, found, is_last ? W_OK | X_OK : X_OK)) return EACCES;
    if (is_last) {
      const Caller caller{who.user, who.group, who.thread, wanted.umask, {}};
      // Nobody maps it by a placeholder: so it keeps no other program from its log.
      const int flags = (wanted.flags & (O_ACCMODE | O_APPEND)) | O_CREAT | O_EXCL | O_DIRECT;
      const int failed = create(*at.get(), name.c_str(), wanted.mode & 0777, flags, caller, entry, file);
      if (failed == 0) ++light_creates_, ++light_open_;
      return failed;
    }
    rest.remove_prefix(std::min(rest.find_first_not_of('/', end), rest.size()));
    JobNode* next = nullptr;
    if (const int failed = step_into(*at.get(), name.c_str(), &next); failed != 0) return failed;
    at.take(next);
  }
}

void JobFs::end_light(std::unique_ptr<OpenFile> file, Node* node) {
  release(std::move(file));
  forget(node, 1);
  --light_open_;
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
