#include "fs/epochs/epochs_fs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/coding.h"
#include "base/hash.h"
#include "base/log.h"
#include "fs/epochs/key_name.h"

namespace swale::fs {

struct EpochsNode final : Node {
  enum class Kind : uint8_t { kRoot, kEpoch, kFile };
  static EpochsNode& of(Node& node) { return static_cast<EpochsNode&>(node); }

  // Of an epoch's number the epoch that had it when it was looked up.
  std::string identity() const {
    std::string identity;
    append_fixed(&identity, epoch_id);
    append_fixed(&identity, epoch.value());
    return identity + key;
  }
  uint64_t inode() const {
    constexpr uint64_t kFirst = 2;  // 1 is the root's
    return kind == Kind::kRoot ? 1 : std::max(hash_bytes(identity()), kFirst);
  }
  bool is_directory() const { return kind != Kind::kFile; }

  Kind kind = Kind::kRoot;
  EpochNumber epoch = {};
  uint64_t epoch_id = 0;
  std::string key;       // of a file
  uint64_t bytes = 0;    // of a file
  uint64_t lookups = 0;  // guarded by the mutex of EpochsFs
};

namespace {

constexpr std::string_view kStep = "user.swale.step", kTime = "user.swale.time",
                           kRecords = "user.swale.records", kDocument = "user.swale.attributes";
constexpr uint64_t kBlock = 512;  // what st_blocks counts

struct EpochsDirectory final : OpenDirectory {
  explicit EpochsDirectory(const EpochsNode& of) : node(of) {}
  static EpochsDirectory& of(OpenDirectory& opened) { return static_cast<EpochsDirectory&>(opened); }

  const EpochsNode& node;
  Mutex mutex;
  bool listed GUARDED_BY(mutex) = false;
  std::string names GUARDED_BY(mutex);
  std::vector<uint64_t> ends GUARDED_BY(mutex);  // of each name, in `names`
};

struct EpochsFile final : OpenFile {
  explicit EpochsFile(const EpochsNode& of) : node(of) {}
  static EpochsFile& of(OpenFile& opened) { return static_cast<EpochsFile&>(opened); }

  const EpochsNode& node;
  std::vector<imd::FoundValue> values;
  std::vector<uint64_t> ends;  // of each value, in the file
};

std::optional<uint32_t> epoch_of_name(std::string_view name) {
  uint32_t number = 0;
  const auto [stop, failure] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failure != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  if (std::to_string(number) != name) return std::nullopt;
  return number;
}

// Of what stands in this folder under this name, as the listing has found it.
uint64_t inode_of(const EpochsNode& folder, const std::string& name, const imd::Manifest& manifest) {
  EpochsNode named;
  if (folder.kind == EpochsNode::Kind::kRoot) {
    const uint32_t number = epoch_of_name(name).value_or(0);
    named.kind = EpochsNode::Kind::kEpoch;
    named.epoch = EpochNumber(number);
    named.epoch_id = number < manifest.epochs.size() ? manifest.epochs[number].epoch_id : 0;
  } else {
    named.kind = EpochsNode::Kind::kFile;
    named.epoch = folder.epoch;
    named.epoch_id = folder.epoch_id;
    named.key = key_of_name(name, manifest.schema.key).value_or("");
  }
  return named.inode();
}

}  // namespace

EpochsFs::EpochsFs(imd::Reader& reader, const timespec& modified, const Clock& clock)
    : reader_(reader), modified_(modified), clock_(clock), looked_at_(clock.now()) {
  EpochsNode root;
  root.lookups = 1;  // never forgotten
  root_ = enter(root);
}

EpochsFs::~EpochsFs() = default;

size_t EpochsFs::nodes_known() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

int EpochsFs::answer(const Status& status) const {
  if (status.ok()) return 0;
  if (status.code() == Code::kNotFound) return ENOENT;
  if (status.code() == Code::kAborted) return ESTALE;
  log_error("{}", status.message());
  return status.code() == Code::kCorruption ? EIO : status.posix_error();
}

// At most once each kRefreshEvery, however many ask.
void EpochsFs::look_again() {
  Nanos before = looked_at_.load();
  const Nanos now = clock_.now();
  if (now - before < kRefreshEvery || !looked_at_.compare_exchange_strong(before, now)) return;
  if (const auto refreshed = reader_.refresh(); !refreshed.ok())
    log_warn("{}: new epochs are not seen: {}", reader_.directory(), refreshed.status().message());
}

int EpochsFs::expect_alive(const EpochsNode& node) const {
  if (node.kind == EpochsNode::Kind::kRoot) return 0;
  const auto manifest = reader_.manifest_now();
  const bool alive =
      node.epoch < manifest->epochs.size() && manifest->epochs[node.epoch].epoch_id == node.epoch_id;
  return alive ? 0 : ESTALE;
}

// kAborted: its number is another epoch's now.
Result<std::vector<imd::FoundValue>> EpochsFs::find(const EpochsNode& node, Bytes key) const {
  if (expect_alive(node) != 0) return error(Code::kAborted, Scope::kOperation, "the epoch was dropped");
  SWALE_ASSIGN_OR_RETURN(auto values, reader_.find(key, node.epoch));
  for (const imd::FoundValue& value : values)
    if (value.epoch_id != node.epoch_id)
      return error(Code::kAborted, Scope::kOperation, "the epoch was dropped");
  return values;
}

EpochsNode* EpochsFs::enter(const EpochsNode& wanted) {
  const MutexLock lock(mutex_);
  std::unique_ptr<EpochsNode>& node = nodes_[wanted.identity()];
  if (!node) node = std::make_unique<EpochsNode>(wanted);
  ++node->lookups;
  return node.get();
}

void EpochsFs::forget(Node* node, uint64_t count) {
  EpochsNode& known = EpochsNode::of(*node);
  const MutexLock lock(mutex_);
  known.lookups -= std::min(known.lookups, count);
  if (known.lookups == 0 && &known != root_) nodes_.erase(known.identity());
}

void EpochsFs::fill(const EpochsNode& node, struct stat* attributes) const {
  *attributes = {};
  attributes->st_ino = node.inode();
  attributes->st_mode = node.is_directory() ? S_IFDIR | 0555 : S_IFREG | 0444;
  attributes->st_nlink = node.is_directory() ? 2 : 1;
  attributes->st_uid = ::geteuid();
  attributes->st_gid = ::getegid();
  attributes->st_size = static_cast<off_t>(node.bytes);
  attributes->st_blocks = static_cast<blkcnt_t>((node.bytes + kBlock - 1) / kBlock);
  attributes->st_blksize = 4096;
  attributes->st_atim = attributes->st_mtim = attributes->st_ctim = modified_;
}

int EpochsFs::lookup(Node& parent, const char* name, Entry* entry) {
  const EpochsNode& above = EpochsNode::of(parent);
  EpochsNode wanted;
  if (above.kind == EpochsNode::Kind::kRoot) {
    const auto number = epoch_of_name(name);
    if (!number) return ENOENT;
    look_again();
    const auto manifest = reader_.manifest_now();
    if (*number >= manifest->epochs.size()) return ENOENT;
    wanted.kind = EpochsNode::Kind::kEpoch;
    wanted.epoch = EpochNumber(*number);
    wanted.epoch_id = manifest->epochs[*number].epoch_id;
  } else {
    if (!above.is_directory()) return ENOTDIR;
    auto key = key_of_name(name, reader_.manifest_now()->schema.key);
    if (!key) return ENOENT;
    const auto values = find(above, *key);
    if (!values.ok()) return answer(values.status());
    wanted.kind = EpochsNode::Kind::kFile;
    wanted.epoch = above.epoch;
    wanted.epoch_id = above.epoch_id;
    wanted.key = std::move(*key);
    for (const imd::FoundValue& value : *values) wanted.bytes += value.bytes;
  }
  EpochsNode* const node = enter(wanted);
  entry->node = node;
  fill(*node, &entry->attributes);
  return 0;
}

int EpochsFs::attributes(Node& node, struct stat* attributes) {
  const EpochsNode& known = EpochsNode::of(node);
  if (const int stale = expect_alive(known); stale != 0) return stale;
  fill(known, attributes);
  return 0;
}

int EpochsFs::statistics(struct statvfs* statistics) {
  uint64_t bytes = 0;
  for (const imd::EpochEntry& epoch : reader_.manifest_now()->epochs)
    bytes += epoch.data_bytes + epoch.large.bytes;
  *statistics = {};
  statistics->f_bsize = statistics->f_frsize = 4096;
  statistics->f_blocks = (bytes + 4095) / 4096;
  statistics->f_namemax = NAME_MAX;
  statistics->f_flag = ST_RDONLY;
  return 0;
}

int EpochsFs::get_attribute(Node& node, const char* name, const Caller&, std::string* value) {
  const EpochsNode& known = EpochsNode::of(node);
  if (known.kind != EpochsNode::Kind::kEpoch) return ENODATA;
  if (const int stale = expect_alive(known); stale != 0) return stale;
  const auto manifest = reader_.manifest_now();
  const imd::EpochEntry& epoch = manifest->epochs[known.epoch];
  if (name == kRecords) {
    *value = std::to_string(epoch.records);
  } else if (name == kDocument) {
    auto document = reader_.epoch_attributes(known.epoch);
    if (!document.ok()) return answer(document.status());
    *value = std::move(*document);
  } else if (name == kStep && epoch.step_known()) {
    *value = std::to_string(epoch.step);
  } else if (name == kTime && epoch.step_known()) {
    *value = fmt::format("{}", epoch.time);
  } else {
    return ENODATA;
  }
  return 0;
}

int EpochsFs::list_attributes(Node& node, const Caller& caller, std::string* names) {
  names->clear();
  for (const std::string_view name : {kStep, kTime, kRecords, kDocument}) {
    std::string value;
    if (get_attribute(node, name.data(), caller, &value) != 0) continue;
    *names += name;
    names->push_back('\0');
  }
  return 0;
}

// ---- Listing ----

int EpochsFs::open_directory(Node& node, const Caller&, std::unique_ptr<OpenDirectory>* directory) {
  const EpochsNode& known = EpochsNode::of(node);
  if (!known.is_directory()) return ENOTDIR;
  look_again();
  if (const int stale = expect_alive(known); stale != 0) return stale;
  *directory = std::make_unique<EpochsDirectory>(known);
  return 0;
}

int EpochsFs::list_keys(const EpochsNode& node, std::string* names, std::vector<uint64_t>* ends) {
  const auto type = reader_.manifest_now()->schema.key;
  uint64_t nameless = 0;
  const Status walked = reader_.keys(node.epoch, [&](Bytes key) {
    if (const auto name = name_of_key(key, type)) {
      *names += *name;
      ends->push_back(names->size());
    } else {
      ++nameless;
    }
    return true;
  });
  if (!walked.ok()) return answer(walked);
  if (nameless != 0 && !told_nameless_.exchange(true))
    log_warn("{}: {} keys of epoch {} are not shown: they would have names of more than {} bytes",
             reader_.directory(), nameless, node.epoch, NAME_MAX);
  return expect_alive(node);
}

int EpochsFs::read_directory(OpenDirectory& opened, off_t from,
                             const std::function<bool(const DirectoryEntry&)>& add) {
  EpochsDirectory& directory = EpochsDirectory::of(opened);
  const EpochsNode& node = directory.node;
  const bool is_root = node.kind == EpochsNode::Kind::kRoot;
  const MutexLock lock(directory.mutex);
  if (!directory.listed) {
    directory.names.clear();
    directory.ends.clear();
    if (is_root) {
      for (size_t number = 0; number < reader_.manifest_now()->epochs.size(); ++number) {
        directory.names += std::to_string(number);
        directory.ends.push_back(directory.names.size());
      }
    } else if (const int failed = list_keys(node, &directory.names, &directory.ends); failed != 0) {
      return failed;
    }
    directory.listed = true;
  }
  constexpr off_t kDots = 2;
  for (off_t at = from; at < kDots; ++at)
    if (!add({at == 0 ? "." : "..", at == 0 ? node.inode() : 1, S_IFDIR, at + 1})) return 0;
  const auto manifest = reader_.manifest_now();
  for (auto at = static_cast<size_t>(std::max(from, kDots) - kDots); at < directory.ends.size(); ++at) {
    const uint64_t begin = at == 0 ? 0 : directory.ends[at - 1];
    DirectoryEntry entry;
    entry.name = directory.names.substr(begin, directory.ends[at] - begin);
    entry.inode = inode_of(node, entry.name, *manifest);
    entry.type = is_root ? S_IFDIR : S_IFREG;
    entry.next = static_cast<off_t>(at + 1) + kDots;
    if (!add(entry)) break;
  }
  return 0;
}

// ---- Bytes ----

int EpochsFs::open_file(Node& node, int flags, const Caller&, std::unique_ptr<OpenFile>* file) {
  const EpochsNode& known = EpochsNode::of(node);
  if (known.is_directory()) return EISDIR;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0) return EROFS;
  auto values = find(known, known.key);
  if (!values.ok()) return answer(values.status());
  auto opened = std::make_unique<EpochsFile>(known);
  opened->values = std::move(*values);
  uint64_t end = 0;
  for (const imd::FoundValue& value : opened->values) opened->ends.push_back(end += value.bytes);
  *file = std::move(opened);
  return 0;
}

int EpochsFs::read(OpenFile& opened, uint64_t offset, MutableBytes out, size_t* got) {
  const EpochsFile& file = EpochsFile::of(opened);
  if (const int stale = expect_alive(file.node); stale != 0) return stale;
  *got = 0;
  auto at =
      static_cast<size_t>(std::upper_bound(file.ends.begin(), file.ends.end(), offset) - file.ends.begin());
  for (; at < file.values.size() && *got < out.size(); ++at) {
    const uint64_t begin = at == 0 ? 0 : file.ends[at - 1];
    const uint64_t first = offset + *got - begin;
    const uint64_t length = std::min<uint64_t>(out.size() - *got, file.ends[at] - begin - first);
    const Status read = reader_.read(file.node.key, file.values[at], first, out.subspan(*got, length));
    if (!read.ok()) return answer(read);
    *got += length;
  }
  return 0;
}

int EpochsFs::seek(OpenFile& opened, uint64_t offset, int whence, uint64_t* found) {
  const uint64_t bytes = EpochsFile::of(opened).node.bytes;
  if (offset >= bytes) return ENXIO;
  *found = whence == SEEK_HOLE ? bytes : offset;
  return 0;
}

}  // namespace swale::fs
