// JobFs: beginning and end, and what NodeFiles and Drain ask of it.
#include "fs/job/job_fs.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/job_marks.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr int kSettleTries = 100;  // of a file whose name changes meanwhile

}  // namespace

Result<std::unique_ptr<JobFs>> JobFs::open(meta::NamesClient& names, io::Device& memory, io::Device& storage,
                                           io::Device& backing, const JobFsOptions& options,
                                           NodePeers* peers) noexcept {
  std::unique_ptr<JobFs> fs;
  const Status status = contain([&]() -> Status {
    fs.reset(new JobFs(names, backing, options, peers));
    return fs->begin(memory, storage);
  });
  if (!status.ok()) return status.with_context(options.backing);
  return fs;
}

JobFs::~JobFs() {
  rest();
  writer_.detach();
}

void JobFs::rest() noexcept {
  stopping_.store(true);
  if (keeper_.joinable()) keeper_.join();
  if (locks_) locks_->stop();
}

Status JobFs::begin(io::Device& memory, io::Device& storage) {
  root_directory_ = io::Descriptor(::open(options_.backing.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat found;
  if (!root_directory_.valid() || ::fstat(root_directory_.get(), &found) != 0)
    return errno_status(errno, options_.backing + ": opening the backing directory");
  device_number_ = found.st_dev;
  const std::string top = io::descriptor_path(root_directory_);
  has_user_attributes_ = ::getxattr(top.c_str(), kJobStatsAttribute, nullptr, 0) >= 0 || errno == ENODATA;
  io::Descriptor own(::fcntl(root_directory_.get(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return errno_status(errno, options_.backing);
  root_node_ = nodes_.enter(meta::kRootDirectory, meta::NodeType::kDirectory, &own);
  root_ = root_node_;
  {
    const MutexLock changing(change_mutex_);
    SWALE_RETURN_IF_ERROR(io::make_directories(storage, options_.state_folder));
    SWALE_ASSIGN_OR_RETURN(intent_, NameIntent::open(storage, options_.state_folder));
    SWALE_RETURN_IF_ERROR(finish_intent());
  }
  {
    const MutexLock lock(mutex_);
    SWALE_RETURN_IF_ERROR(find_places());
    if (peers_ != nullptr) {
      SWALE_RETURN_IF_ERROR(join_nodes(storage));
      SWALE_ASSIGN_OR_RETURN(
          life_, NodeLife::find(memory, options_.logs.memory_directory, storage, options_.state_folder));
    }
    SWALE_ASSIGN_OR_RETURN(files_, NodeFiles::open(memory, storage, options_.logs, backing_, shared_.get()));
  }
  if (shared_) shared_->start(files_.get());
  {
    const MutexLock draining(drain_mutex_);
    const MutexLock lock(mutex_);
    // What programs had still to say to the server before this one counts; their mount is gone.
    for (const uint32_t log : files_->logs().logs()) {
      const std::vector<uint32_t> left = files_->logs().logs();  // the end of one frees others that are over
      if (std::find(left.begin(), left.end(), log) != left.end()) SWALE_RETURN_IF_ERROR(files_->end_log(log));
    }
    if (shared_)
      lead_ = std::make_unique<SharedDrain>(*peers_, *roots_, *shared_, *files_, backing_,
                                            options_.drain_rules, *remote_);
    SWALE_ASSIGN_OR_RETURN(
        drain_,
        Drain::open(*files_, backing_, {.job = options_.job, .rules = options_.drain_rules}, lead_.get()));
  }
  SWALE_RETURN_IF_ERROR(find_new_files());
  SWALE_RETURN_IF_ERROR(find_retimed());
  SWALE_RETURN_IF_ERROR(find_times());
  SWALE_RETURN_IF_ERROR(start_log());
  if (remote_) SWALE_RETURN_IF_ERROR(begin_together());
  return start_thread(&keeper_, "the thread that drains", [this] { keep(); });
}

Status JobFs::start_log() {
  const MutexLock lock(mutex_);
  SWALE_ASSIGN_OR_RETURN(const uint32_t log, files_->logs().add_log());
  SWALE_ASSIGN_OR_RETURN(piece_checks_, files_->logs().check_as_written(log));
  LogTrouble trouble;
  const int attached = writer_.attach(options_.logs.memory_directory.c_str(), log, &trouble);
  if (attached != 0) return errno_status(-attached, trouble.text);
  writer_.copy_by(piece_checks_->copier());
  grants_.trust(log);
  files_->set_guard(&grants_);
  return {};
}

// All entries of the tree, so that a file's path is known by its id.
Status JobFs::find_places() {
  std::vector<meta::FileId> waiting = {meta::kRootDirectory};
  while (!waiting.empty()) {
    const meta::FileId directory = waiting.back();
    waiting.pop_back();
    meta::ListCursor cursor;
    while (!cursor.end()) {
      SWALE_ASSIGN_OR_RETURN(const auto entries, names_.list(directory, &cursor, kEntriesAsked));
      for (const meta::ListedEntry& each : entries) {
        nodes_.put(each.entry.file, {directory, each.name, each.entry.type});
        if (each.entry.type == meta::NodeType::kDirectory) waiting.push_back(each.entry.file);
      }
    }
  }
  return {};
}

// Files that were made and never written: the logs do not know them, and the backing has to get them.
Status JobFs::find_new_files() {
  const MutexLock lock(mutex_);
  for (const auto& [id, place] : nodes_.all_places()) {
    if (place.type != meta::NodeType::kFile || files_->size(id).ok()) continue;
    SWALE_ASSIGN_OR_RETURN(const io::Descriptor there, on_backing(id));
    if (there.valid()) continue;
    if (shared_ && root_of(id) != peers_->own()) continue;
    const auto node = names_.stat(id);
    if (node.status().posix_error() == ENOENT) continue;
    SWALE_RETURN_IF_ERROR(node.status());
    if ((node->mode & kOnBacking) != 0) continue;
    SWALE_RETURN_IF_ERROR(files_->open_file(id));
    files_->close_file(id);
  }
  return {};
}

// Of files that were synced, and of whose last writes the names have not heard: what they have heard since is
// a later change.
Status JobFs::find_times() {
  std::map<meta::FileId, int64_t> times;
  {
    const MutexLock lock(mutex_);
    times = files_->logs().found_times();
  }
  for (const auto& [id, modified_ns] : times) {
    const auto node = names_.stat(id);
    if (node.status().posix_error() == ENOENT) continue;
    SWALE_RETURN_IF_ERROR(node.status());
    if (node->changed_ns >= modified_ns) continue;
    const Status set = names_.set_attributes(id, modified_at(modified_ns)).status();
    if (!set.ok() && set.posix_error() != ENOENT) return set;
  }
  return {};
}

Result<std::string> JobFs::path_of(const meta::FileId& file) {
  const auto path = nodes_.path_of(file);
  if (path) return options_.backing + "/" + *path;
  if (nodes_.is_nameless(file))
    return error(Code::kBusy, Scope::kFile, "file {:x}:{:x} is open, and no name leads to it", file.high,
                 file.low);
  return error(Code::kNotFound, Scope::kFile, "no name leads to file {:x}:{:x}", file.high, file.low);
}

Status JobFs::TreeBacking::dress(const meta::FileId& file, io::File& out, io::File*) {
  dresses_.erase(file);
  fs_.lost_.forget(file);
  return dress_anew(file, out).status();
}

Result<bool> JobFs::TreeBacking::dress_again(const meta::FileId& file, io::File& out) {
  return dress_anew(file, out);
}

// False: it is as it was.
Result<bool> JobFs::TreeBacking::dress_anew(const meta::FileId& file, io::File& out) {
  auto now = fs_.dress_of(file);
  if (now.status().posix_error() == ENOENT)
    return error(Code::kBusy, Scope::kFile, "{}: another node removes it; drain it again", out.path());
  SWALE_RETURN_IF_ERROR(now.status());
  const auto before = dresses_.find(file);
  if (before != dresses_.end() && before->second == *now) return false;
  SWALE_RETURN_IF_ERROR(fs_.put_on(file, *now, before == dresses_.end() ? Dress() : before->second, out));
  dresses_.insert_or_assign(file, *std::move(now));
  return true;
}

Result<JobFs::Dress> JobFs::dress_of(const meta::FileId& file) {
  SWALE_ASSIGN_OR_RETURN(const meta::TreeNode node, names_.stat(file));
  Dress dress{node.mode & 07777, node.uid, node.gid, node.accessed_ns, node.modified_ns};
  if (JobNode* const known = nodes_.find(file)) {
    if (const int64_t newer = known->modified_ns.load()) dress.modified_ns = newer;
    nodes_.forget(known, 1);
  }
  SWALE_ASSIGN_OR_RETURN(const auto attributes, names_.list_users(file));
  for (const std::string& name : attributes) {
    auto value = names_.read_user(file, name);
    if (value.status().posix_error() == ENODATA) continue;
    SWALE_RETURN_IF_ERROR(value.status());
    dress.attributes.emplace(name, *std::move(value));
  }
  return dress;
}

// In place of `before`.
Status JobFs::put_on(const meta::FileId& file, const Dress& dress, const Dress& before, io::File& out) {
  const int fd = out.descriptor();
  struct stat own;
  if (::fstat(fd, &own) != 0) return errno_status(errno, out.path() + ": its attributes");
  // Before the mode, which may forbid it to a user who is not root.
  for (const auto& [name, value] : before.attributes)
    if (!dress.attributes.contains(name)) static_cast<void>(::fremovexattr(fd, name.c_str()));
  for (const auto& [name, value] : dress.attributes)
    if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0)
      note_lost(file, name, value.size(), errno);
  mode_t mode = dress.mode;
  if ((own.st_uid != dress.user || own.st_gid != dress.group) && ::fchown(fd, dress.user, dress.group) != 0) {
    if (errno != EPERM) return errno_status(errno, out.path() + ": its owner");
    mode &= 0777;
  }
  if (::fchmod(fd, mode) != 0) return errno_status(errno, out.path() + ": its mode");
  const timespec times[2] = {timespec_of(dress.accessed_ns), timespec_of(dress.modified_ns)};
  if (::futimens(fd, times) != 0) return errno_status(errno, out.path() + ": its times");
  return {};
}

// The bytes come there all the same, and nobody tries again: find_lost() says so at the end.
void JobFs::note_lost(const meta::FileId& file, const std::string& name, size_t bytes, int error_number) {
  const std::string what = fmt::format(
      "{}: its attribute {} of {} bytes does not fit the backing, which has the file's bytes: shorten or "
      "remove the attribute",
      nodes_.path_of(file).value_or(text_of(file)), name, bytes);
  Status why = errno_status(error_number, what);
  if (lost_.add({file, name, std::string(why.message())})) note(file, std::move(why));
}

std::string JobFs::name_of(Node& node) const {
  const meta::FileId& id = JobNode::of(node).id;
  const auto path = nodes_.path_of(id);
  return path && !path->empty() ? *path : text_of(id);
}

// What is no failure of a device is for those that look for the reason of a refusal.
int JobFs::answer(const Status& status) {
  if (status.ok()) return 0;
  const int number = status.posix_error();
  if (number == EIO)
    log_error("{}", status.message());
  else if (!is_usual_refusal(number))
    log_debug("{}", status.message());
  return number;
}

// O_PATH, of the directory that a file's name is in.
Result<io::Descriptor> JobFs::parent_on_backing(const meta::FileId& id) {
  const auto place = nodes_.place_of(id);
  if (!place) return io::Descriptor();
  if (place->parent != meta::kRootDirectory) return on_backing(place->parent);
  io::Descriptor own(::fcntl(root_directory_.get(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return errno_status(errno, options_.backing);
  return own;
}

// A path that changes meanwhile is followed.
Result<io::Descriptor> JobFs::on_backing(const meta::FileId& id) {
  std::optional<std::string> path = nodes_.path_of(id);
  while (path) {
    io::Descriptor there(io::open_path_beneath(root_directory_.get(), path->c_str(), O_PATH | O_NOFOLLOW));
    if (there.valid()) return there;
    // Others may have put a link, or a file, in the place of a directory.
    const int missing = errno;
    if (missing != ENOENT && missing != ENOTDIR && missing != ELOOP && missing != EXDEV)
      return errno_status(missing, options_.backing + "/" + *path);
    auto now = nodes_.path_of(id);
    if (now == path) break;
    path = std::move(now);
  }
  return io::Descriptor();
}

Result<io::Descriptor> JobFs::settled_there(const JobNode& node) {
  for (int tries = 0; tries < kSettleTries; ++tries) {
    RequestLock lock(mutex_, requests_);
    moving_.settle(node.id);
    const JobNodes::LookUp began(nodes_);
    lock.unlock();
    auto there = on_backing(node.id);
    lock.lock();
    if (!moving_.has(node.id) && nodes_.is_unchanged(began, node.id)) return there;
  }
  return error(Code::kBusy, Scope::kFile, "{}: its name changes whenever it is looked for; try again",
               nodes_.path_of(node.id).value_or(text_of(node.id)));
}

}  // namespace swale::fs
