#include "io/memory_device.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "io/memory_node.h"

#include "base/mutex.h"

namespace swale::io {

struct MemoryDevice::State {
  Mutex mutex;  // guards also what the nodes hold
  const MemoryNodePtr root = std::make_shared<MemoryNode>(true);
  uint64_t crashes GUARDED_BY(mutex) = 0;
};

struct MemoryDevice::Held {
  MemoryNodePtr node;
  uint64_t crashes;  // at the time it was anchored
};

struct MemoryDevice::Lookup {
  MemoryNodePtr directory;  // the last component's parent; null for the root and the directory of an anchor
  std::string name;
  MemoryNodePtr node;  // null: does not exist
  int error = 0;       // ENOENT or ENOTDIR on the way; EIO for an anchor from before a crash
};

namespace {

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> names;
  size_t at = 0;
  while (at < path.size()) {
    const size_t slash = std::min(path.find('/', at), path.size());
    std::string name = path.substr(at, slash - at);
    if (!name.empty() && name != ".") names.push_back(std::move(name));
    at = slash + 1;
  }
  return names;
}

bool is_below(const MemoryNodePtr& node, const MemoryNodePtr& ancestor) {
  if (node == ancestor) return true;
  for (const auto& [name, child] : ancestor->names.entries())
    if (is_below(node, child)) return true;
  return false;
}

// 0, or the errno that says why `from` must not replace the entry.
template <class Lookup>
int rename_error(const Lookup& from, const Lookup& to) {
  if (from.error != 0 || !from.node) return ENOENT;
  if (to.error != 0) return to.error;
  if (!from.directory || !to.directory) return EBUSY;  // the root
  if (from.node->directory && is_below(to.directory, from.node)) return EINVAL;
  if (!to.node) return 0;
  if (to.node->directory != from.node->directory) return to.node->directory ? EISDIR : ENOTDIR;
  return to.node->names.entries().empty() ? 0 : ENOTEMPTY;
}

}  // namespace

// A handle: a node and the number of crashes at the time it was opened.
class MemoryFile : public File {
 public:
  // `crashes`: how many there have been so far.
  MemoryFile(std::shared_ptr<MemoryDevice::State> state, MemoryNodePtr node, std::string path,
             uint64_t crashes, bool writable)
      : state_(std::move(state)),
        node_(std::move(node)),
        path_(std::move(path)),
        crashes_(crashes),
        writable_(writable) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override {
    const MutexLock lock(state_->mutex);
    SWALE_RETURN_IF_ERROR(usable("reading", offset, 0, Access::kRead));
    return node_->content.read(offset, out);
  }

  Status pwrite(uint64_t offset, Bytes data) override {
    const MutexLock lock(state_->mutex);
    SWALE_RETURN_IF_ERROR(usable("writing", offset, data.size(), Access::kWrite));
    node_->content.write(offset, data);
    return {};
  }

  Status sync() override {
    const MutexLock lock(state_->mutex);
    SWALE_RETURN_IF_ERROR(usable("syncing", 0, 0, Access::kRead));
    node_->content.sync();
    return {};
  }

  Result<uint64_t> size() override {
    const MutexLock lock(state_->mutex);
    SWALE_RETURN_IF_ERROR(usable("asking for the size", 0, 0, Access::kRead));
    return node_->content.size();
  }

  Status truncate(uint64_t size) override {
    const MutexLock lock(state_->mutex);
    SWALE_RETURN_IF_ERROR(usable("setting the size", size, 0, Access::kWrite));
    node_->content.truncate(size);
    return {};
  }

  // Zeros, so that tests find code that still needs the bytes.
  void discard(uint64_t offset, uint64_t bytes) override {
    const MutexLock lock(state_->mutex);
    const uint64_t size = node_->content.size();
    if (!usable("discarding", offset, 0, Access::kWrite).ok() || offset >= size) return;
    node_->content.write(offset, std::string(std::min(bytes, size - offset), '\0'));
  }

  const std::string& path() const override { return path_; }

 private:
  enum class Access { kRead, kWrite };

  Status usable(std::string_view doing, uint64_t offset, uint64_t bytes, Access access) const
      REQUIRES(state_->mutex) {
    const bool stale = crashes_ != state_->crashes;
    const bool too_far = access == Access::kWrite && (offset > MemoryDevice::kFileBytesMax ||
                                                      bytes > MemoryDevice::kFileBytesMax - offset);
    const int failed = stale ? EIO : access == Access::kWrite && !writable_ ? EBADF : too_far ? EFBIG : 0;
    if (failed == 0) return {};
    return errno_status(failed, fmt::format("{}: {} at offset {}{}", path_, doing, offset,
                                            stale ? " with a handle from before the crash" : ""));
  }

  const std::shared_ptr<MemoryDevice::State> state_;
  const MemoryNodePtr node_;
  const std::string path_;
  const uint64_t crashes_;
  const bool writable_;
};

MemoryDevice::MemoryDevice() : state_(std::make_shared<State>()) {}
MemoryDevice::MemoryDevice(std::shared_ptr<State> state, std::shared_ptr<const Anchor<Held>> anchor)
    : state_(std::move(state)), anchor_(std::move(anchor)) {}
MemoryDevice::~MemoryDevice() = default;

// Callers hold the mutex. The header cannot annotate that, as it does not know State.
MemoryDevice::Lookup MemoryDevice::look_up(const std::string& path) const NO_THREAD_SAFETY_ANALYSIS {
  const AnchoredPath<Held> place = resolve(anchor_, path);
  Lookup at{nullptr, "", state_->root, 0};
  if (place.anchor) {
    const Held& held = place.anchor->directory;
    if (held.crashes != state_->crashes) return {nullptr, "", nullptr, EIO};
    if (held.node->removed) return {nullptr, "", nullptr, ENOENT};
    at.node = held.node;
  }
  for (std::string& name : components(place.rest)) {
    if (!at.node) return {nullptr, "", nullptr, ENOENT};
    if (!at.node->directory) return {nullptr, "", nullptr, ENOTDIR};
    MemoryNodePtr next = at.node->names.find(name);
    at = {std::move(at.node), std::move(name), std::move(next), 0};
  }
  return at;
}

Result<std::unique_ptr<Device>> MemoryDevice::anchored(const std::string& directory) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(directory);
  const int failed = at.error != 0 ? at.error : !at.node ? ENOENT : !at.node->directory ? ENOTDIR : 0;
  if (failed != 0) return errno_status(failed, directory + ": opening the directory");
  auto anchor = std::make_shared<const Anchor<Held>>(
      Anchor<Held>{without_trailing_slashes(directory), Held{at.node, state_->crashes}, anchor_});
  return std::unique_ptr<Device>(new MemoryDevice(state_, std::move(anchor)));
}

void MemoryDevice::crash(Rng& rng, CrashMode mode) {
  const MutexLock lock(state_->mutex);
  ++state_->crashes;
  std::vector<MemoryNodePtr> queue{state_->root};
  std::set<MemoryNodePtr> seen;
  while (!queue.empty()) {
    const MemoryNodePtr node = std::move(queue.back());
    queue.pop_back();
    if (!seen.insert(node).second) continue;
    if (!node->directory) {
      node->content.crash(rng, mode);
      continue;
    }
    node->removed = false;  // its removal may have been undone; earlier anchors fail in any case
    node->names.crash(rng, mode);
    for (const auto& [name, child] : node->names.entries()) queue.push_back(child);
  }
}

Result<std::unique_ptr<File>> MemoryDevice::open(const std::string& path, OpenMode mode) {
  const MutexLock lock(state_->mutex);
  Lookup at = look_up(path);
  const bool creates = mode == OpenMode::kCreate || mode == OpenMode::kOpenOrCreate;
  if (at.error == 0 && at.node && mode == OpenMode::kCreate) at.error = EEXIST;
  if (at.error == 0 && at.node && at.node->directory) at.error = EISDIR;
  if (at.error == 0 && !at.node && !creates) at.error = ENOENT;
  if (at.error != 0) return errno_status(at.error, path + ": opening");
  if (!at.node) {
    at.node = std::make_shared<MemoryNode>(false);
    at.directory->names.apply({{at.name, at.node}});
  }
  return std::unique_ptr<File>(
      std::make_unique<MemoryFile>(state_, at.node, path, state_->crashes, mode != OpenMode::kRead));
}

Status MemoryDevice::make_directory(const std::string& path) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(path);
  const int failed = at.error != 0 ? at.error : at.node ? EEXIST : 0;
  if (failed != 0) return errno_status(failed, path + ": making the directory");
  at.directory->names.apply({{at.name, std::make_shared<MemoryNode>(true)}});
  return {};
}

Status MemoryDevice::rename(const std::string& from, const std::string& to) {
  const MutexLock lock(state_->mutex);
  const Lookup source = look_up(from);
  const Lookup target = look_up(to);
  const int failed = rename_error(source, target);
  if (failed != 0) return errno_status(failed, from + ": renaming to " + to);
  if (source.node == target.node) return {};
  if (target.node) target.node->removed = true;
  if (source.directory == target.directory) {
    source.directory->names.apply({{source.name, nullptr}, {target.name, source.node}});
  } else {
    target.directory->names.apply({{target.name, source.node}});
    source.directory->names.apply({{source.name, nullptr}});
  }
  return {};
}

Status MemoryDevice::rename_new(const std::string& from, const std::string& to) {
  const MutexLock lock(state_->mutex);
  const Lookup source = look_up(from);
  const Lookup target = look_up(to);
  int failed = source.error != 0 ? source.error : !source.node ? ENOENT : target.error;
  if (failed == 0 && target.node) failed = EEXIST;
  if (failed == 0 && source.node->directory) failed = EPERM;
  if (failed != 0) return errno_status(failed, from + ": giving it the new name " + to);
  target.directory->names.apply({{target.name, source.node}});
  source.directory->names.apply({{source.name, nullptr}});
  return {};
}

Status MemoryDevice::remove(const std::string& path) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(path);
  int failed = at.error != 0 ? at.error : !at.node ? ENOENT : !at.directory ? EBUSY : 0;
  if (failed == 0 && !at.node->names.entries().empty()) failed = ENOTEMPTY;
  if (failed != 0) return errno_status(failed, path + ": removing");
  at.node->removed = true;
  at.directory->names.apply({{at.name, nullptr}});
  return {};
}

Status MemoryDevice::sync_directory(const std::string& path) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(path);
  const int failed = at.error != 0 ? at.error : !at.node ? ENOENT : !at.node->directory ? ENOTDIR : 0;
  if (failed != 0) return errno_status(failed, path + ": syncing the directory");
  at.node->names.sync();
  return {};
}

Result<std::vector<std::string>> MemoryDevice::list(const std::string& path) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(path);
  const int failed = at.error != 0 ? at.error : !at.node ? ENOENT : !at.node->directory ? ENOTDIR : 0;
  if (failed != 0) return errno_status(failed, path + ": listing the directory");
  std::vector<std::string> names;
  for (const auto& [name, node] : at.node->names.entries()) names.push_back(name);
  return names;
}

Result<bool> MemoryDevice::exists(const std::string& path) {
  const MutexLock lock(state_->mutex);
  const Lookup at = look_up(path);
  if (at.error == EIO) return errno_status(at.error, path + ": looking it up, held from before the crash");
  return at.node != nullptr;
}

}  // namespace swale::io
