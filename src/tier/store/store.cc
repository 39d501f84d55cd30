#include "tier/store/store.h"

#include <cstring>

#include "base/contain.h"
#include "tier/store/store_core.h"

namespace swale::tier {

Result<std::unique_ptr<Store>> Store::open(io::Device& device, const StoreOptions& options) {
  SWALE_ASSIGN_OR_RETURN(auto opened, open_store(device, options));
  auto core = std::make_shared<StoreCore>(device, std::move(opened));
  SWALE_RETURN_IF_ERROR(core->start());
  return std::unique_ptr<Store>(new Store(std::move(core)));
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
Status Store::expect_whole(const FileKey& key) const { return core_->expect_whole(key); }
void Store::removed(const FileKey& key) { core_->removed(key); }
Status Store::remove(const std::string& path) { return core_->remove(path); }
Status Store::rename(const std::string& from, const std::string& to) { return core_->rename(from, to); }
std::vector<LostBytes> Store::losses() const { return core_->losses(); }
Status Store::accept_losses() { return core_->accept_losses(); }
Status Store::drain() { return core_->drain(); }
void Store::pause_flush(bool paused) { core_->pause_flush(paused); }
Stats Store::stats() const { return core_->stats(); }
Durability Store::durability() const { return core_->durability(); }
const RecoveryReport& Store::recovery() const { return core_->recovery(); }
std::vector<std::pair<std::string, uint64_t>> Store::dirty_files() const { return core_->dirty_files(); }

}  // namespace swale::tier
