#include "io/virtual_device.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace swale::io {
namespace {

using Kind = DiskRequest::Kind;

}  // namespace

// The disk with its clock, the places of files on it, and the operations that wait.
class VirtualDevice::Disk {
 public:
  // An operation in flight: one request for each piece of the file that it touches.
  struct Pending {
    size_t requests = 0;  // not yet completed
    Nanos done = 0;
    bool finished() const { return requests == 0; }
  };

  Disk(const DiskModel& model, ManualClock& clock) : disk_(model), clock_(clock) {}

  // Submits the operation; waits while no slot is free. `pending` must not move until the operation has
  // completed.
  void begin(Kind kind, const std::string& path, uint64_t offset, uint64_t bytes, DiskPriority priority,
             Pending* pending) {
    const MutexLock lock(mutex_);
    pending->done = clock_.now();
    if (kind == Kind::kSync) return submit({kind, 0, 0, priority, 0}, pending);
    while (bytes > 0) {
      const uint64_t count = std::min(bytes, kPieceBytes - offset % kPieceBytes);
      submit({kind, address(path, offset), count, priority, 0}, pending);
      offset += count;
      bytes -= count;
    }
  }
  void finish(const Pending& pending) {
    const MutexLock lock(mutex_);
    while (!pending.finished()) step();
  }
  void take_time(Kind kind, const std::string& path, uint64_t offset, uint64_t bytes, DiskPriority priority) {
    Pending pending;
    begin(kind, path, offset, bytes, priority, &pending);
    finish(pending);
  }
  // Advances the clock to the next completion, if any request is in flight.
  void step_once() {
    const MutexLock lock(mutex_);
    if (disk_.next_event() != kForever) step();
  }
  // Records the requests that have completed by now.
  void look() {
    const MutexLock lock(mutex_);
    complete_until(clock_.now());
  }
  bool is_finished(const Pending& pending) {
    const MutexLock lock(mutex_);
    return pending.finished();
  }
  Nanos next_event() {
    const MutexLock lock(mutex_);
    return disk_.next_event();
  }
  DiskUse use() {
    const MutexLock lock(mutex_);
    return disk_.use();
  }

  void move_file(const std::string& from, const std::string& to) {
    const MutexLock lock(mutex_);
    auto node = pieces_.extract(from);
    pieces_.erase(to);
    if (node.empty()) return;
    node.key() = to;
    pieces_.insert(std::move(node));
  }
  void forget_file(const std::string& path) {
    const MutexLock lock(mutex_);
    pieces_.erase(path);
  }

 private:
  void submit(DiskRequest request, Pending* pending) REQUIRES(mutex_) {
    request.tag = ++tags_;
    waiting_.emplace(request.tag, pending);
    ++pending->requests;
    while (!disk_.submit(request, std::max(clock_.now(), now_))) step();
    now_ = std::max(clock_.now(), now_);
  }

  void step() REQUIRES(mutex_) {
    const Nanos next = disk_.next_event();
    if (next > clock_.now()) clock_.advance(next - clock_.now());
    complete_until(clock_.now());
  }

  void complete_until(Nanos now) REQUIRES(mutex_) {
    now_ = std::max(now_, now);
    completions_.clear();
    disk_.advance(now_, &completions_);
    for (const DiskCompletion& completion : completions_) {
      const auto found = waiting_.find(completion.tag);
      found->second->done = completion.at;
      --found->second->requests;
      waiting_.erase(found);
    }
  }

  uint64_t address(const std::string& path, uint64_t offset) REQUIRES(mutex_) {
    uint64_t& begin = pieces_[path].try_emplace(offset / kPieceBytes, kUnplaced).first->second;
    if (begin == kUnplaced) {
      begin = next_piece_;
      next_piece_ += kPieceBytes;
      const uint64_t capacity = disk_.model().capacity_bytes;
      if (capacity != 0 && next_piece_ + kPieceBytes > capacity) next_piece_ = 0;
    }
    return begin + offset % kPieceBytes;
  }

  static constexpr uint64_t kUnplaced = UINT64_MAX;

  Mutex mutex_;  // guards also every Pending
  VirtualDisk disk_ GUARDED_BY(mutex_);
  ManualClock& clock_;
  Nanos now_ GUARDED_BY(mutex_) = 0;  // the disk's: never before what it was told
  uint64_t tags_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Pending*> waiting_ GUARDED_BY(mutex_);  // by the request's tag
  std::vector<DiskCompletion> completions_ GUARDED_BY(mutex_);
  // by path: number of the piece -> its address
  std::map<std::string, std::map<uint64_t, uint64_t>> pieces_ GUARDED_BY(mutex_);
  uint64_t next_piece_ GUARDED_BY(mutex_) = 0;
};

class VirtualFile final : public File {
 public:
  VirtualFile(std::shared_ptr<VirtualDevice::Disk> disk, DiskPriority priority, std::unique_ptr<File> file)
      : disk_(std::move(disk)), priority_(priority), file_(std::move(file)) {}

  Result<size_t> pread(uint64_t offset, MutableBytes out) override {
    SWALE_ASSIGN_OR_RETURN(const size_t got, file_->pread(offset, out));
    disk_->take_time(Kind::kRead, path(), offset, got, priority_);
    return got;
  }
  Status pwrite(uint64_t offset, Bytes data) override {
    SWALE_RETURN_IF_ERROR(file_->pwrite(offset, data));
    disk_->take_time(Kind::kWrite, path(), offset, data.size(), priority_);
    return {};
  }
  Status sync() override {
    SWALE_RETURN_IF_ERROR(file_->sync());
    disk_->take_time(Kind::kSync, path(), 0, 0, priority_);
    return {};
  }
  void discard(uint64_t offset, uint64_t bytes) override {
    file_->discard(offset, bytes);
    const uint64_t size = file_->size().ok() ? *file_->size() : 0;
    if (offset < size)
      disk_->take_time(Kind::kDiscard, path(), offset, std::min(bytes, size - offset), priority_);
  }
  Result<uint64_t> size() override { return file_->size(); }
  Status truncate(uint64_t size) override { return file_->truncate(size); }
  void prefer_direct() override { file_->prefer_direct(); }
  size_t direct_alignment() const override { return file_->direct_alignment(); }
  void reserve(uint64_t end) override { file_->reserve(end); }
  bool give_back() override { return file_->give_back(); }
  uint64_t next_data(uint64_t offset) override { return file_->next_data(offset); }
  const std::string& path() const override { return file_->path(); }

  // In parallel: submits all before it waits for the first.
  void read_many(std::span<ReadRequest> requests) override {
    std::deque<VirtualDevice::Disk::Pending> pending(requests.size());
    file_->read_many(requests);
    for (size_t i = 0; i < requests.size(); ++i)
      disk_->begin(Kind::kRead, path(), requests[i].offset, requests[i].got, priority_, &pending[i]);
    for (const auto& one : pending) disk_->finish(one);
  }

  File& below() { return *file_; }
  DiskPriority priority() const { return priority_; }
  const VirtualDevice::Disk* disk() const { return disk_.get(); }

 private:
  const std::shared_ptr<VirtualDevice::Disk> disk_;
  const DiskPriority priority_;
  const std::unique_ptr<File> file_;
};

// Operations on files of other devices complete at once.
class VirtualQueue final : public IoQueue {
 public:
  explicit VirtualQueue(std::shared_ptr<VirtualDevice::Disk> disk) : disk_(std::move(disk)) {}
  ~VirtualQueue() override {
    for (const Entry& entry : entries_) disk_->finish(entry.pending);
  }

  void submit(std::span<const Operation> operations) override {
    for (Operation operation : operations) {
      auto* const file = dynamic_cast<VirtualFile*>(operation.file);
      const bool ours = file != nullptr && file->disk() == disk_.get();
      if (ours) operation.file = &file->below();
      Entry& entry = entries_.emplace_back();
      entry.completion = execute(operation);
      if (!ours || !entry.completion.status.ok()) continue;
      disk_->begin(disk_kind(operation.kind), file->path(), operation.offset,
                   operation.kind == Operation::Kind::kRead ? entry.completion.bytes : operation.from.size(),
                   file->priority(), &entry.pending);
    }
  }

  size_t wait(size_t at_least, std::vector<Completion>* out) override {
    for (;;) {
      disk_->look();
      const auto finished =
          static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
            return disk_->is_finished(entry.pending);
          }));
      if (finished >= at_least || finished == entries_.size() || woken_.exchange(false))
        return hand_out_finished(finished, out);
      disk_->step_once();
    }
  }

  void wake() override { woken_.store(true); }
  size_t in_flight() const override { return entries_.size(); }

 private:
  struct Entry {
    Completion completion;
    VirtualDevice::Disk::Pending pending;
  };

  static Kind disk_kind(Operation::Kind kind) {
    if (kind == Operation::Kind::kSync) return Kind::kSync;
    return kind == Operation::Kind::kRead ? Kind::kRead : Kind::kWrite;
  }

  // In the order of their completion.
  size_t hand_out_finished(size_t count, std::vector<Completion>* out) {
    reserve_more(out, count);
    std::vector<std::list<Entry>::iterator> finished;
    finished.reserve(count);
    for (auto at = entries_.begin(); at != entries_.end(); ++at)
      if (disk_->is_finished(at->pending)) finished.push_back(at);
    std::stable_sort(finished.begin(), finished.end(),
                     [](auto a, auto b) { return a->pending.done < b->pending.done; });
    for (const auto at : finished) {
      out->push_back(std::move(at->completion));
      entries_.erase(at);
    }
    return finished.size();
  }

  const std::shared_ptr<VirtualDevice::Disk> disk_;
  std::list<Entry> entries_;  // in the order of submission; an entry stays where it is
  std::atomic<bool> woken_{false};
};

VirtualDevice::VirtualDevice(Device& below, const DiskModel& model, ManualClock& clock)
    : VirtualDevice(nullptr, below, std::make_shared<Disk>(model, clock), DiskPriority::kNormal) {}

VirtualDevice::VirtualDevice(std::unique_ptr<Device> owned, Device& below, std::shared_ptr<Disk> disk,
                             DiskPriority priority)
    : owned_(std::move(owned)), device_(below), disk_(std::move(disk)), priority_(priority) {}

std::unique_ptr<Device> VirtualDevice::with_priority(DiskPriority priority) {
  return std::unique_ptr<Device>(new VirtualDevice(nullptr, device_, disk_, priority));
}

Nanos VirtualDevice::next_event() const { return disk_->next_event(); }
DiskUse VirtualDevice::use() const { return disk_->use(); }

Result<std::unique_ptr<Device>> VirtualDevice::anchored(const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(auto below, device_.anchored(directory));
  Device& device = *below;
  return std::unique_ptr<Device>(new VirtualDevice(std::move(below), device, disk_, priority_));
}

Result<std::unique_ptr<IoQueue>> VirtualDevice::make_queue(size_t /*depth*/) {
  return std::unique_ptr<IoQueue>(std::make_unique<VirtualQueue>(disk_));
}

Result<std::unique_ptr<File>> VirtualDevice::open(const std::string& path, OpenMode mode) {
  SWALE_ASSIGN_OR_RETURN(auto file, device_.open(path, mode));
  return std::unique_ptr<File>(std::make_unique<VirtualFile>(disk_, priority_, std::move(file)));
}

Status VirtualDevice::rename(const std::string& from, const std::string& to) {
  SWALE_RETURN_IF_ERROR(device_.rename(from, to));
  disk_->move_file(from, to);
  return {};
}

Status VirtualDevice::rename_new(const std::string& from, const std::string& to) {
  SWALE_RETURN_IF_ERROR(device_.rename_new(from, to));
  disk_->move_file(from, to);
  return {};
}

Status VirtualDevice::remove(const std::string& path) {
  SWALE_RETURN_IF_ERROR(device_.remove(path));
  disk_->forget_file(path);
  return {};
}

Status VirtualDevice::sync_directory(const std::string& path) {
  SWALE_RETURN_IF_ERROR(device_.sync_directory(path));
  disk_->take_time(Kind::kSync, path, 0, 0, priority_);
  return {};
}

}  // namespace swale::io
