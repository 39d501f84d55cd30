#include "tier/store/store.h"

#include <algorithm>
#include <cstring>

#include "base/contain.h"
#include "base/log.h"
#include "tier/store/store_core.h"
#include "tier/store/store_memory.h"

namespace swale::tier {

namespace {

constexpr uint32_t kFewSlots = 4, kSmallSlotBytes = 64 * 1024;

// Whether queues of killed processes take space of the SSD.
bool has_queues(io::Device& device, const std::string& ssd_directory) {
  const auto names = device.list(ssd_directory);
  return names.ok() && std::any_of(names->begin(), names->end(),
                                   [](const std::string& name) { return name.starts_with("queue."); });
}

// A killed process has left its queue, and this one's has no space beside it. With a small queue the old one
// is written to the backing directory, which ends it. The log stays, and so does the backing directory's
// claim on it.
Status drain_queues(io::Device& device, StoreOptions options, const Status& no_space) {
  log_warn(
      "{}; the queue of a killed process takes that space: what it and the log hold is written to {} first, "
      "and then the queue is removed",
      no_space.message(), options.backing_directory);
  options.queue_slots = std::min(options.queue_slots, kFewSlots);
  options.slot_bytes = std::min(options.slot_bytes, kSmallSlotBytes);
  auto opened = open_store(device, options);
  if (!opened.ok()) return no_space;
  StoreCore core(device, std::move(*opened));
  SWALE_RETURN_IF_ERROR(core.start());
  for (const Status& damaged : core.recovery().damaged) log_error("{}", damaged.message());
  SWALE_RETURN_IF_ERROR(core.drain_queues());
  return core.close(false);
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(io::Device& device, const StoreOptions& wanted) {
  StoreOptions options = wanted;
  SWALE_ASSIGN_OR_RETURN(MemoryBudget::Reservation memory, take_store_memory(&options));
  auto opened = open_store(device, options);
  if (!opened.ok() && opened.status().code() == Code::kNoSpace && has_queues(device, options.ssd_directory)) {
    SWALE_RETURN_IF_ERROR(drain_queues(device, options, opened.status()));
    opened = open_store(device, options);
  }
  if (!opened.ok()) return opened.status();
  auto core = std::make_shared<StoreCore>(device, std::move(*opened));
  SWALE_RETURN_IF_ERROR(core->start());
  return std::unique_ptr<Store>(new Store(std::move(memory), std::move(core)));
}

Store::~Store() {
  static_cast<void>(contain([this] { return core_->close(false); }));
}
Status Store::close(AtClose how) { return core_->close(how == AtClose::kDrain); }

Result<Store::Handle> Store::open_file(const std::string& path, io::OpenMode mode) {
  return core_->open_file(path, mode);
}
Result<Store::Handle> Store::adopt_file(const std::string& path) { return core_->adopt_file(path); }
std::optional<Store::Handle> Store::handle_of(const FileKey& key) { return core_->handle_of(key); }
void Store::close_file(Handle file) { core_->close_file(file); }
Status Store::write(Handle file, uint64_t offset, Bytes data) {
  return core_->write(file, offset, data.size(), [&data](MutableBytes out) -> Status {
    std::memcpy(out.data(), data.data(), out.size());
    data.remove_prefix(out.size());
    return {};
  });
}
Status Store::write(Handle file, uint64_t offset, uint64_t length, const Fill& fill) {
  return core_->write(file, offset, length, fill);
}
void Store::write(Handle file, uint64_t offset, uint64_t length, const Fill& fill, const Answered& answered) {
  // Also if `answered` throws: what the write has left to this thread has woken nobody.
  const struct Help {
    StoreCore& core;
    ~Help() {
      static_cast<void>(contain([this] { core.help(); }));
    }
  } help{*core_};
  const Status status = core_->write(file, offset, length, fill, StoreCore::Helps::kYes);
  core_->help_before_answer();
  answered(status);
}
Result<size_t> Store::read(Handle file, uint64_t offset, MutableBytes out) {
  return core_->read(file, offset, out);
}
Result<uint64_t> Store::seek(Handle file, uint64_t offset, Seek what) {
  return core_->seek(file, offset, what);
}
Result<uint64_t> Store::size(Handle file) { return core_->size(file); }
Status Store::truncate(Handle file, uint64_t size) { return core_->truncate(file, size); }
Status Store::sync(Handle file) { return core_->sync(file); }
Status Store::deferred_failure(Handle file) { return core_->deferred_failure(file); }
std::optional<FileView> Store::view(const FileKey& key) { return core_->view(key); }
void Store::set_modified(const FileKey& key, int64_t modified_ns) { core_->set_modified(key, modified_ns); }
Status Store::expect_whole(int fd) const { return core_->expect_whole(fd); }
void Store::removed(int fd) { core_->removed(fd); }
Status Store::remove(const std::string& path) { return core_->remove(path); }
Status Store::rename(const std::string& from, const std::string& to) { return core_->rename(from, to); }
std::vector<LostBytes> Store::losses() const { return core_->losses(); }
Status Store::accept_losses() { return core_->accept_losses(); }
Status Store::drain() { return core_->drain(); }
void Store::pause_flush(bool paused) { core_->pause_flush(paused); }
Stats Store::stats() const {
  Stats stats = core_->stats();
  stats.reserved_bytes = memory_.bytes();
  return stats;
}
Durability Store::durability() const { return core_->durability(); }
const RecoveryReport& Store::recovery() const { return core_->recovery(); }
std::vector<std::pair<std::string, uint64_t>> Store::dirty_files() const { return core_->dirty_files(); }

}  // namespace swale::tier
