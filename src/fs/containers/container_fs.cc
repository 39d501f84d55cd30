#include "fs/containers/container_fs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <utility>

#include "base/log.h"

namespace swale::fs {

struct ContainerNode final : Node {
  static ContainerNode& of(Node& node) { return static_cast<ContainerNode&>(node); }

  bool is_file = false;
  uint64_t inode = 0;
  meta::Attributes attributes;                  // of a file
  std::map<std::string, ContainerNode*> named;  // in a folder
  ContainerNode* above = nullptr;
};

namespace {

constexpr uint64_t kBlock = 512;  // what st_blocks counts
constexpr mode_t kModeBits = 0555;
constexpr int64_t kSecond = 1'000'000'000;

struct ContainerDirectory final : OpenDirectory {
  explicit ContainerDirectory(const ContainerNode& of) : node(of) {}
  static ContainerDirectory& of(OpenDirectory& opened) { return static_cast<ContainerDirectory&>(opened); }
  const ContainerNode& node;
};

struct ContainerFile final : OpenFile {
  explicit ContainerFile(const ContainerNode& of, meta::File opened) : node(of), file(std::move(opened)) {}
  static ContainerFile& of(OpenFile& opened) { return static_cast<ContainerFile&>(opened); }
  const ContainerNode& node;
  const meta::File file;
};

int answer(const Status& status) {
  if (status.ok()) return 0;
  log_error("{}", status.message());
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption ? EIO : status.posix_error();
}

// The components of a name; none: no path can have it.
std::vector<std::string> components_of(const std::string& name) {
  std::vector<std::string> found;
  if (name.find('\0') != std::string::npos) return {};
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) continue;
    if (part == "." || part == ".." || part.size() > NAME_MAX) return {};
    found.push_back(std::move(part));
  }
  return found;
}

timespec time_of(int64_t nanoseconds) {
  const int64_t part = (nanoseconds % kSecond + kSecond) % kSecond;
  return {static_cast<time_t>((nanoseconds - part) / kSecond), static_cast<long>(part)};
}

void fill(const ContainerNode& node, struct stat* attributes) {
  *attributes = {};
  attributes->st_ino = node.inode;
  attributes->st_mode = node.is_file ? S_IFREG | (node.attributes.mode & kModeBits) : S_IFDIR | kModeBits;
  attributes->st_nlink = node.is_file ? 1 : 2;
  attributes->st_uid = ::geteuid();
  attributes->st_gid = ::getegid();
  attributes->st_size = static_cast<off_t>(node.attributes.size);
  attributes->st_blocks = static_cast<blkcnt_t>((node.attributes.size + kBlock - 1) / kBlock);
  attributes->st_blksize = 4096;
  attributes->st_atim = attributes->st_mtim = attributes->st_ctim = time_of(node.attributes.modified_ns);
}

}  // namespace

ContainerFs::ContainerFs(meta::Client& client, LogFiles& logs, std::vector<meta::Attributes> files)
    : logs_(logs), client_(client) {
  ContainerNode* const root = make_known();
  root->above = root;
  root_ = root;
  std::sort(files.begin(), files.end(),
            [](const meta::Attributes& a, const meta::Attributes& b) { return a.name < b.name; });
  const size_t all = files.size();
  for (meta::Attributes& each : files) shown_ += enter(std::move(each)) ? 1 : 0;
  if (shown_ < all)
    log_warn("{} of {} files are not shown: no path can have their names, or they are folders of others, too",
             all - shown_, all);
}

ContainerFs::~ContainerFs() = default;

ContainerNode* ContainerFs::make_known() {
  nodes_.push_back(std::make_unique<ContainerNode>());
  nodes_.back()->inode = nodes_.size();
  return nodes_.back().get();
}

// False: it is not shown, and nothing was made: what is in its way stands above all that would be new.
bool ContainerFs::enter(meta::Attributes attributes) {
  const std::vector<std::string> parts = components_of(attributes.name);
  if (parts.empty() || attributes.size > INT64_MAX) return false;
  ContainerNode* folder = &ContainerNode::of(*root_);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found = folder->named.find(parts[i]);
    const bool is_last = i + 1 == parts.size();
    if (found != folder->named.end()) {
      if (is_last || found->second->is_file) return false;
      folder = found->second;
      continue;
    }
    ContainerNode* const made = make_known();
    made->above = folder;
    folder->named.emplace(parts[i], made);
    folder->attributes.modified_ns = std::max(folder->attributes.modified_ns, attributes.modified_ns);
    folder = made;
  }
  folder->is_file = true;
  folder->attributes = std::move(attributes);
  return true;
}

int ContainerFs::lookup(Node& parent, const char* name, Entry* entry) {
  const ContainerNode& folder = ContainerNode::of(parent);
  if (folder.is_file) return ENOTDIR;
  const auto found = folder.named.find(name);
  if (found == folder.named.end()) return ENOENT;
  entry->node = found->second;
  fill(*found->second, &entry->attributes);
  return 0;
}

int ContainerFs::attributes(Node& node, struct stat* attributes) {
  fill(ContainerNode::of(node), attributes);
  return 0;
}

int ContainerFs::statistics(struct statvfs* statistics) {
  uint64_t bytes = 0;
  for (const auto& node : nodes_) bytes += node->attributes.size;
  *statistics = {};
  statistics->f_bsize = statistics->f_frsize = 4096;
  statistics->f_blocks = (bytes + 4095) / 4096;
  statistics->f_files = nodes_.size();
  statistics->f_namemax = NAME_MAX;
  statistics->f_flag = ST_RDONLY;
  return 0;
}

int ContainerFs::open_directory(Node& node, const Caller&, std::unique_ptr<OpenDirectory>* directory) {
  const ContainerNode& known = ContainerNode::of(node);
  if (known.is_file) return ENOTDIR;
  *directory = std::make_unique<ContainerDirectory>(known);
  return 0;
}

int ContainerFs::read_directory(OpenDirectory& opened, off_t from,
                                const std::function<bool(const DirectoryEntry&)>& add) {
  const ContainerNode& folder = ContainerDirectory::of(opened).node;
  constexpr off_t kDots = 2;
  for (off_t at = from; at < kDots; ++at)
    if (!add({at == 0 ? "." : "..", at == 0 ? folder.inode : folder.above->inode, S_IFDIR, at + 1})) return 0;
  off_t at = std::max(from, kDots);
  const auto skipped = std::min<size_t>(static_cast<size_t>(at - kDots), folder.named.size());
  for (auto next = std::next(folder.named.begin(), static_cast<ptrdiff_t>(skipped));
       next != folder.named.end(); ++next) {
    const mode_t type = next->second->is_file ? S_IFREG : S_IFDIR;
    if (!add({next->first, next->second->inode, type, ++at})) break;
  }
  return 0;
}

int ContainerFs::open_file(Node& node, int flags, const Caller&, std::unique_ptr<OpenFile>* file) {
  const ContainerNode& known = ContainerNode::of(node);
  if (!known.is_file) return EISDIR;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return EROFS;
  const MutexLock lock(mutex_);
  auto opened = client_.open(known.attributes.name, 0, 0, 0);
  if (!opened.ok()) return answer(opened.status());
  *file = std::make_unique<ContainerFile>(known, *std::move(opened));
  return 0;
}

// Of `out`, which lies within the file.
Status ContainerFs::read_pieces(const meta::File& file, uint64_t offset, MutableBytes out) {
  meta::Found found;
  {
    const meta::ByteRange range{offset, out.size()};
    const MutexLock lock(mutex_);
    SWALE_RETURN_IF_ERROR(client_.get(file, {&range, 1}, &found));
  }
  uint64_t done = 0;  // what was not put is zeros
  for (const meta::Extent& piece : found.extents) {
    const uint64_t begin = piece.offset - offset;
    std::memset(out.data() + done, 0, begin - done);
    SWALE_RETURN_IF_ERROR(logs_.read(piece.place.log, piece.place.address, out.subspan(begin, piece.length)));
    done = begin + piece.length;
  }
  std::memset(out.data() + done, 0, out.size() - done);
  return {};
}

int ContainerFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  const ContainerFile& file = ContainerFile::of(opened);
  const uint64_t size = file.node.attributes.size;
  const uint64_t wanted = offset >= size ? 0 : std::min<uint64_t>(out.size(), size - offset);
  if (wanted > 0) {
    const Status read = read_pieces(file.file, offset, out.subspan(0, wanted));
    if (!read.ok()) return answer(read.with_context(file.node.attributes.name));
  }
  *got = wanted;
  return 0;
}

int ContainerFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  const uint64_t bytes = ContainerFile::of(opened).node.attributes.size;
  if (offset >= bytes) return ENXIO;
  *found = whence == SEEK_HOLE ? bytes : offset;
  return 0;
}

}  // namespace swale::fs
