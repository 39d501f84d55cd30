// LossFs: names and attributes.
#include "fs/losses/loss_fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/contain.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "fs/job/job_fs_options.h"
#include "fs/job/job_marks.h"
#include "fs/losses/loss_node.h"
#include "fs/node/drain_mark.h"
#include "io/beneath.h"
#include "io/descriptor_path.h"

namespace swale::fs {
namespace {

constexpr uint64_t kStatBlockBytes = 512;  // what st_blocks counts
constexpr size_t kToldMax = 10'000;        // paths, in the log
constexpr size_t kUserBytes = 64 * kKiB;
constexpr std::string_view kUserPrefix = "user.";

struct LossDirectory final : OpenDirectory {
  static LossDirectory& of(OpenDirectory& opened) { return static_cast<LossDirectory&>(opened); }
  std::vector<DirectoryEntry> entries;
};

bool is_shown(mode_t type) { return S_ISREG(type) || S_ISDIR(type) || S_ISLNK(type); }

// The same in a listing and in a look.
uint64_t inode_of_path(const std::string& path) { return hash_bytes(path) | 1; }

}  // namespace

LossFs::LossFs(const LossPlan& plan, std::span<const NodeSurvey> surveys, std::vector<LeftDetails> details,
               io::Device& device, Fetch fetch, LossFsOptions options)
    : plan_(plan),
      details_(std::move(details)),
      names_(surveys, details_, plan, options.rules.asks_partition),
      device_(device),
      fetch_(std::move(fetch)),
      options_(std::move(options)) {
  for (const FileLoss& loss : plan_.files) {
    losses_.emplace(loss.file, &loss);
    for (const SeenBacking& seen : {loss.backing, loss.ours})
      if (seen.inode != 0) by_inode_.emplace(seen.inode, &loss);
  }
  for (const NodeSurvey& each : surveys)
    for (const auto& [id, file] : each.files) known_files_.insert(id);
  Place top;
  top.type = S_IFDIR;
  top.id = meta::kRootDirectory;
  root_ = enter(nullptr, "", top);
}

LossFs::~LossFs() = default;

std::string LossFs::name_of(Node& node) const { return LossNode::of(node).path; }

size_t LossFs::nodes_known() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

std::string LossFs::remedy() const {
  return fmt::format("until swale fs recover {} --without {} --accept-losses", options_.backing,
                     list_of(plan_.absent));
}

bool LossFs::tells(const std::string& path) {
  const MutexLock lock(mutex_);
  return told_.size() < kToldMax && told_.insert(path).second;
}

int LossFs::refuse(const std::string& path, const std::string& why) {
  if (tells(path)) log_error("{}/{}: {}: EIO {}", options_.backing, path, why, remedy());
  return EIO;
}

int LossFs::fail(const std::string& path, const Status& why) {
  if (why.posix_error() == ENOMEM) return ENOMEM;
  if (tells(path)) log_error("{}/{}: {}", options_.backing, path, why.message());
  return EIO;
}

int LossFs::open_there(const std::string& path, int flags, io::Descriptor* there) const {
  *there = io::Descriptor(
      io::open_path_beneath(options_.root, path.empty() ? "." : path.c_str(), flags | O_NOFOLLOW));
  return there->valid() ? 0 : errno;
}

// ---- names

int LossFs::find(const LossNode& above, const std::string& name, const std::string& path, Place* place) {
  if (above.id == meta::kRootDirectory && name == kSwaleDirectory) return ENOENT;
  if (above.id.none()) return find_there(path, place);
  const LossNames::Found found = names_.find(above.id, name);
  switch (found.what) {
    case LossNames::Found::What::kUnknown:
      return refuse(path, fmt::format("node {}, which is lost, had this name: what it leads to is not known",
                                      found.lost));
    case LossNames::Found::What::kEntry:
      return find_entry(found.entry, path, place);
    default:
      return find_there(path, place);
  }
}

int LossFs::find_entry(const meta::DirEntry& entry, const std::string& path, Place* place) {
  if (entry.type == meta::NodeType::kFile) {
    const auto loss = losses_.find(entry.file);
    if (loss == losses_.end()) {
      if (known_files_.contains(entry.file)) return find_there(path, place);
      return refuse(path, "the node of its name says nothing of it");
    }
    if (loss->second->fate == FileLoss::Fate::kLostRoot)
      return refuse(path, fmt::format("node {}, which is lost, knew which bytes of it are the newest",
                                      entry.file.high));
    place->type = S_IFREG;
    place->id = entry.file;
    place->loss = loss->second;
    for (const LeftDetails& each : details_)
      if (const auto at = each.files.find(entry.file); at != each.files.end()) place->details = &at->second;
    return place->details != nullptr ? 0 : refuse(path, "its attributes are not known");
  }
  const int failed = find_there(path, place);
  if (entry.type != meta::NodeType::kDirectory) return failed;
  if (failed == ENOENT) return refuse(path, "the backing lacks this directory, which the job has");
  if (failed == 0 && S_ISDIR(place->type)) place->id = entry.file;
  return failed;
}

int LossFs::find_there(const std::string& path, Place* place) {
  io::Descriptor there;
  if (const int failed = open_there(path, O_PATH, &there); failed != 0) return failed;
  struct stat found;
  if (::fstat(there.get(), &found) != 0) return errno;
  if (!is_shown(found.st_mode)) return ENOENT;
  place->type = found.st_mode & S_IFMT;
  return guard(found, path);
}

// A name on the backing that the tree does not have may be a file's of which the job has newer bytes: a
// rename was cut off there.
int LossFs::guard(const struct stat& found, const std::string& path) {
  if (!S_ISREG(found.st_mode) || !options_.rules.guards_inodes) return 0;
  const auto at = by_inode_.find(found.st_ino);
  if (at == by_inode_.end()) return 0;
  const FileLoss& loss = *at->second;
  return refuse(path, fmt::format("the job has newer bytes of this file, which it knows as {}",
                                  loss.path.empty() ? "one without a name" : loss.path));
}

LossNode* LossFs::enter(const LossNode* above, const std::string& path, const Place& place) {
  const MutexLock lock(mutex_);
  std::unique_ptr<LossNode>& node = nodes_[{path, place.type}];
  if (node) return node.get();
  auto made = std::make_unique<LossNode>();
  made->path = path;
  made->inode = inode_of_path(path);
  made->above = above != nullptr ? above->inode : made->inode;
  made->type = place.type;
  made->id = place.id;
  made->loss = place.loss;
  made->details = place.details;
  node = std::move(made);
  return node.get();
}

int LossFs::lookup(Node& parent, const char* name, Entry* entry) {
  const LossNode& above = LossNode::of(parent);
  if (!S_ISDIR(above.type)) return ENOTDIR;
  const std::string path = path_below(above.path, name);
  Place place;
  if (const int failed = find(above, name, path, &place); failed != 0) return failed;
  LossNode* const node = enter(&above, path, place);
  if (const int failed = fill(*node, &entry->attributes); failed != 0) return failed;
  entry->node = node;
  return 0;
}

int LossFs::read_symlink(Node& known, std::string* target) {
  const LossNode& node = LossNode::of(known);
  if (!S_ISLNK(node.type)) return EINVAL;
  io::Descriptor there;
  if (const int failed = open_there(node.path, O_PATH, &there); failed != 0) return failed;
  target->resize(PATH_MAX);
  const ssize_t bytes = ::readlinkat(there.get(), "", target->data(), target->size());
  if (bytes < 0) return errno;
  target->resize(static_cast<size_t>(bytes));
  return 0;
}

int LossFs::list(const LossNode& node, std::vector<DirectoryEntry>* entries) {
  io::Descriptor there;
  if (const int failed = open_there(node.path, O_RDONLY | O_DIRECTORY, &there); failed != 0) return failed;
  std::map<std::string, mode_t> names;
  {
    DIR* const opened = ::fdopendir(there.get());
    if (opened == nullptr) return errno;
    there.release();
    const std::unique_ptr<DIR, int (*)(DIR*)> closes(opened, ::closedir);
    errno = 0;
    while (const dirent* const each = ::readdir(opened))
      if (const std::string_view name = each->d_name; name != "." && name != "..")
        if (each->d_type == DT_UNKNOWN || is_shown(DTTOIF(each->d_type)))
          names.emplace(name, DTTOIF(each->d_type));
    if (errno != 0) return errno;
  }
  if (node.id == meta::kRootDirectory) names.erase(kSwaleDirectory);
  for (const auto& [name, entry] : names_.in(node.id)) {
    const bool is_file = entry.type == meta::NodeType::kFile;
    if (entry.type == meta::NodeType::kDirectory || (is_file && losses_.contains(entry.file)))
      names.insert_or_assign(name, mode_of(entry.type));
  }
  entries->push_back({".", node.inode, S_IFDIR, 1});
  entries->push_back({"..", node.above, S_IFDIR, 2});
  for (const auto& [name, type] : names) {
    const auto next = static_cast<off_t>(entries->size() + 1);
    entries->push_back({name, inode_of_path(path_below(node.path, name)), type, next});
  }
  return 0;
}

int LossFs::open_directory(Node& known, const Caller&, std::unique_ptr<OpenDirectory>* directory) {
  const LossNode& node = LossNode::of(known);
  if (!S_ISDIR(node.type)) return ENOTDIR;
  auto opened = std::make_unique<LossDirectory>();
  if (const int failed = list(node, &opened->entries); failed != 0) return failed;
  *directory = std::move(opened);
  return 0;
}

int LossFs::read_directory(OpenDirectory& opened, off_t from,
                           const std::function<bool(const DirectoryEntry&)>& add) {
  const auto& entries = LossDirectory::of(opened).entries;
  for (auto at = static_cast<size_t>(from); at < entries.size(); ++at)
    if (!add(entries[at])) break;
  return 0;
}

// ---- attributes

int LossFs::fill(const LossNode& node, struct stat* attributes) {
  *attributes = {};
  if (node.loss == nullptr) {
    io::Descriptor there;
    if (const int failed = open_there(node.path, O_PATH, &there); failed != 0) return failed;
    if (::fstat(there.get(), attributes) != 0) return errno;
  } else {
    const LeftDetails::File& details = *node.details;
    attributes->st_mode = S_IFREG | (details.mode & 07777);
    attributes->st_nlink = 1;
    attributes->st_uid = details.uid;
    attributes->st_gid = details.gid;
    attributes->st_size = static_cast<off_t>(node.loss->size);
    attributes->st_blocks = static_cast<blkcnt_t>((node.loss->size + kStatBlockBytes - 1) / kStatBlockBytes);
    attributes->st_blksize = 4096;
    attributes->st_atim = timespec_of(details.accessed_ns);
    attributes->st_mtim = timespec_of(details.modified_ns);
    attributes->st_ctim = timespec_of(details.changed_ns);
  }
  attributes->st_ino = node.inode;
  return 0;
}

int LossFs::attributes(Node& node, struct stat* attributes) { return fill(LossNode::of(node), attributes); }

int LossFs::statistics(struct statvfs* statistics) {
  if (::fstatvfs(options_.root, statistics) != 0) return errno;
  statistics->f_flag |= ST_RDONLY;
  return 0;
}

int LossFs::get_attribute(Node& known, const char* name, const Caller&, std::string* value) {
  const LossNode& node = LossNode::of(known);
  if (&node == root_ && std::string_view(name) == kJobStatsAttribute) {
    JsonWriter json;
    json.object().member("job", plan_.job).member("read_only", true).name("without").array();
    for (const NodeId each : plan_.absent) json.value(each);
    json.end().end();
    *value = json.text();
    return 0;
  }
  if (!std::string_view(name).starts_with(kUserPrefix)) return ENODATA;
  if (node.loss != nullptr) {
    const auto at = node.details->users.find(name);
    if (at == node.details->users.end()) return ENODATA;
    *value = at->second;
    return 0;
  }
  io::Descriptor there;
  if (const int failed = open_there(node.path, O_PATH, &there); failed != 0) return failed;
  value->resize(kUserBytes);
  const ssize_t bytes = ::getxattr(io::descriptor_path(there).c_str(), name, value->data(), value->size());
  if (bytes < 0) return errno;
  value->resize(static_cast<size_t>(bytes));
  return 0;
}

int LossFs::list_attributes(Node& known, const Caller&, std::string* names) {
  const LossNode& node = LossNode::of(known);
  names->clear();
  if (node.loss != nullptr) {
    for (const auto& [name, value] : node.details->users) names->append(name).push_back('\0');
    return 0;
  }
  io::Descriptor there;
  if (const int failed = open_there(node.path, O_PATH, &there); failed != 0) return failed;
  std::string all(kUserBytes, '\0');
  const ssize_t bytes = ::listxattr(io::descriptor_path(there).c_str(), all.data(), all.size());
  if (bytes < 0) return errno;
  for (size_t at = 0; at < static_cast<size_t>(bytes);) {
    const std::string name(all.c_str() + at);
    if (name.starts_with(kUserPrefix)) names->append(name).push_back('\0');
    at += name.size() + 1;
  }
  return 0;
}

}  // namespace swale::fs
