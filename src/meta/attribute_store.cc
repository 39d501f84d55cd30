#include "meta/attribute_store.h"

#include <algorithm>
#include <optional>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/entropy.h"

namespace swale::meta {
namespace {

constexpr char kMagic[] = "SWATTR01";  // 8 bytes
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = 32;
constexpr uint32_t kGroupMagic = 0x47415753;  // "SWAG"
constexpr size_t kGroupHeadBytes = 24;
constexpr uint64_t kGroupBytesMax = 64 * kMiB;
constexpr size_t kLogBytesMax = 4 * kGiB;
constexpr size_t kSnapshotGroupBytes = kMiB;

std::string name_of(uint32_t server, uint32_t job) {
  return fmt::format("attributes-{:05}.j{:04}.log", server, job);
}

// A log that a later job has taken over: its writer notices at its next commit that the name is gone.
std::string closed_name_of(uint32_t server, uint32_t job) {
  return fmt::format("attributes-{:05}.j{:04}.closed", server, job);
}

std::optional<uint32_t> job_of(std::string_view name, uint32_t server) {
  const std::string head = fmt::format("attributes-{:05}.j", server);
  const std::string_view tail = name.ends_with(".log") ? ".log" : ".closed";
  if (!name.starts_with(head) || !name.ends_with(tail)) return std::nullopt;
  name.remove_prefix(head.size());
  name.remove_suffix(std::min(tail.size(), name.size()));
  uint32_t job = 0;
  if (name.size() < 4 || name.size() > 9) return std::nullopt;
  for (const char digit : name) {
    if (digit < '0' || digit > '9') return std::nullopt;
    job = job * 10 + static_cast<uint32_t>(digit - '0');
  }
  return job == 0 ? std::nullopt : std::optional(job);
}

std::string head(uint32_t server, uint32_t job) {
  std::string out(kMagic, 8);
  append_u32(&out, kVersion);
  append_u32(&out, 0);  // features that a reader must know
  append_u32(&out, server);
  append_u32(&out, job);
  append_u32(&out, 0);
  append_u32(&out, crc32c(out));
  return out;
}

Status check_head(Bytes bytes, const std::string& path, uint32_t server, uint32_t job) {
  if (bytes.size() < kHeadBytes || bytes.substr(0, 8) != Bytes(kMagic, 8) ||
      get_u32(bytes.data() + 28) != crc32c(bytes.substr(0, 28))) {
    return corruption("{}: offset 0: not the head of a log of attributes: restore the file from a copy",
                      path);
  }
  if (get_u32(bytes.data() + 8) != kVersion || get_u32(bytes.data() + 12) != 0) {
    return error(Code::kUnsupported, Scope::kFile, "{}: version {}, features {:x}: a newer Swale wrote it",
                 path, get_u32(bytes.data() + 8), get_u32(bytes.data() + 12));
  }
  if (get_u32(bytes.data() + 16) != server || get_u32(bytes.data() + 20) != job) {
    return corruption("{}: is the log of server {} and job {}: was it renamed?", path,
                      get_u32(bytes.data() + 16), get_u32(bytes.data() + 20));
  }
  return {};
}

// u32 magic | u32 crc of all that follows | u32 bytes of records | u32 zero | u64 sequence | records, each sized
std::string group(uint64_t sequence, Bytes records) {
  std::string out;
  out.reserve(kGroupHeadBytes + records.size());
  append_u32(&out, kGroupMagic);
  append_u32(&out, 0);
  append_u32(&out, static_cast<uint32_t>(records.size()));
  append_u32(&out, 0);
  append_u64(&out, sequence);
  out.append(records);
  put_u32(&out[4], crc32c(Bytes(out).substr(8)));
  return out;
}

// The bytes of the whole group at the start of `bytes`; 0: there is none, or a damaged one.
size_t group_bytes(Bytes bytes, uint64_t* sequence) {
  if (bytes.size() < kGroupHeadBytes || get_u32(bytes.data()) != kGroupMagic) return 0;
  const uint64_t length = get_u32(bytes.data() + 8);
  if (length > kGroupBytesMax || length > bytes.size() - kGroupHeadBytes) return 0;
  const size_t total = kGroupHeadBytes + length;
  if (get_u32(bytes.data() + 4) != crc32c(bytes.substr(8, total - 8))) return 0;
  *sequence = get_u64(bytes.data() + 16);
  return total;
}

// Groups are written one after the other, each synced before the next: a whole group after a damaged one says that the
// damage came later, and that acknowledged changes are lost.
Status check_torn(Bytes log, size_t at, uint64_t sequence, const std::string& path) {
  for (size_t next = at + 1; next + kGroupHeadBytes <= log.size(); ++next) {
    if (get_u32(log.data() + next) != kGroupMagic) continue;
    uint64_t later = 0;
    if (group_bytes(log.substr(next), &later) == 0 || later <= sequence) continue;
    return corruption(
        "{}: offset {}: expected group {}, found damage, and group {} after it at offset {}: changes that "
        "were "
        "acknowledged are lost; restore the file from a copy",
        path, at, sequence + 1, later, next);
  }
  return {};
}

Status replay(Bytes log, const std::string& path, AttributeTable* table, AttributeRecovery* report,
              uint64_t* sequence) {
  size_t at = kHeadBytes;
  while (at < log.size()) {
    uint64_t number = 0;
    const size_t bytes = group_bytes(log.substr(at), &number);
    if (bytes == 0 || number != *sequence + 1) {
      SWALE_RETURN_IF_ERROR(check_torn(log, at, *sequence, path));
      report->torn_bytes = log.size() - at;
      return {};
    }
    Decoder in(log.substr(at + kGroupHeadBytes, bytes - kGroupHeadBytes));
    while (in.ok() && in.remaining() > 0) {
      const Bytes record = in.sized();
      if (!in.ok()) break;
      const Status status = table->replay(record);
      if (!status.ok()) return status.with_context(fmt::format("{}: group at offset {}", path, at));
      ++report->records;
    }
    SWALE_RETURN_IF_ERROR(in.status(fmt::format("{}: group at offset {}", path, at)));
    *sequence = number;
    at += bytes;
  }
  return {};
}

struct Logs {
  uint32_t newest = 0;  // job; 0: there is none
  std::vector<std::string> paths;
};

Result<Logs> find_logs(io::Device& device, const std::string& directory, uint32_t server) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(directory));
  Logs logs;
  for (const std::string& name : names) {
    const std::optional<uint32_t> job = job_of(name, server);
    if (!job) continue;
    logs.paths.push_back(directory + "/" + name);
    logs.newest = std::max(logs.newest, *job);
  }
  return logs;
}

Status read_log(io::Device& device, const std::string& path, uint32_t server, uint32_t job,
                AttributeTable* table, AttributeRecovery* report) {
  SWALE_ASSIGN_OR_RETURN(const std::string log, io::read_file(device, path, kLogBytesMax));
  SWALE_RETURN_IF_ERROR(check_head(log, path, server, job));
  uint64_t sequence = 0;
  report->job = job;
  return replay(log, path, table, report, &sequence);
}

// The newest log gets another name before it is read: what its writer commits after that, it does not acknowledge.
Status take_over(io::Device& device, const std::string& directory, uint32_t server, const Logs& logs) {
  const std::string path = directory + "/" + name_of(server, logs.newest);
  const std::string closed = directory + "/" + closed_name_of(server, logs.newest);
  if (std::find(logs.paths.begin(), logs.paths.end(), path) == logs.paths.end())
    return {};  // it has it already
  const Status renamed = device.rename_new(path, closed);
  if (renamed.code() == Code::kNotFound) {
    return error(Code::kBusy, Scope::kFile, "{}: another process is opening this store", path);
  }
  SWALE_RETURN_IF_ERROR(renamed);
  return device.sync_directory(directory);
}

std::string snapshot(const AttributeTable& table, uint32_t server, uint32_t job, uint64_t* sequence) {
  std::string out = head(server, job);
  std::string records;
  table.for_each_record([&](Bytes record) {
    append_sized(&records, record);
    if (records.size() < kSnapshotGroupBytes) return;
    out += group(++*sequence, records);
    records.clear();
  });
  if (!records.empty()) out += group(++*sequence, records);
  return out;
}

}  // namespace

class AttributeStore::Commit final : public Work {
 public:
  Commit(const AttributeStore* store, uint64_t offset, std::string bytes)
      : Work(WorkKind::kCommit), store_(*store), offset_(offset), bytes_(std::move(bytes)) {}
  void run() noexcept override {
    status_ = contain([&]() -> Status {
      SWALE_RETURN_IF_ERROR(store_.file_->pwrite(offset_, bytes_));
      SWALE_RETURN_IF_ERROR(store_.file_->sync());
      return store_.fence();
    });
  }
  const Status& status() const { return status_; }

 private:
  const AttributeStore& store_;
  const uint64_t offset_;
  const std::string bytes_;
  Status status_;
};

Result<std::unique_ptr<AttributeStore>> AttributeStore::open(io::Device& device,
                                                             const AttributeStoreOptions& options,
                                                             AttributeRecovery* report) {
  AttributeRecovery own;
  if (report == nullptr) report = &own;
  *report = {};
  std::unique_ptr<AttributeStore> store(new AttributeStore(options.files_max, options.tables_bytes_max));
  SWALE_ASSIGN_OR_RETURN(const Logs logs, find_logs(device, options.directory, options.server));
  std::vector<std::string> older = logs.paths;
  if (logs.newest > 0) {
    SWALE_RETURN_IF_ERROR(take_over(device, options.directory, options.server, logs));
    older.push_back(options.directory + "/" + closed_name_of(options.server, logs.newest));
    SWALE_RETURN_IF_ERROR(
        read_log(device, older.back(), options.server, logs.newest, &store->table_, report));
  }
  store->job_ = logs.newest + 1;
  const std::string path = options.directory + "/" + name_of(options.server, store->job_);
  const std::string draft = fmt::format("{}.{:016x}.new", path, random_number());
  SWALE_ASSIGN_OR_RETURN(store->file_, device.open(draft, io::OpenMode::kCreate));
  const std::string bytes = snapshot(store->table_, options.server, store->job_, &store->sequence_);
  SWALE_RETURN_IF_ERROR(store->file_->pwrite(0, bytes));
  SWALE_RETURN_IF_ERROR(store->file_->sync());
  if (const Status claimed = device.rename_new(draft, path); !claimed.ok()) {
    static_cast<void>(device.remove(draft));
    if (claimed.code() != Code::kAlreadyExists) return claimed;
    return error(Code::kBusy, Scope::kFile, "{}: another process has just opened this store for writing",
                 path);
  }
  SWALE_RETURN_IF_ERROR(device.sync_directory(options.directory));
  store->device_ = &device;
  store->path_ = path;
  store->end_ = bytes.size();
  store->durable_ = store->sequence_;
  for (const std::string& old : older) static_cast<void>(device.remove(old));  // else the next job does it
  return store;
}

Result<std::unique_ptr<AttributeTable>> AttributeStore::read(io::Device& device, const std::string& directory,
                                                             uint32_t server, AttributeRecovery* report) {
  auto table = std::make_unique<AttributeTable>();
  *report = {};
  SWALE_ASSIGN_OR_RETURN(const Logs logs, find_logs(device, directory, server));
  if (logs.newest == 0) return table;
  std::string path = directory + "/" + name_of(server, logs.newest);
  if (std::find(logs.paths.begin(), logs.paths.end(), path) == logs.paths.end())
    path = directory + "/" + closed_name_of(server, logs.newest);
  SWALE_RETURN_IF_ERROR(read_log(device, path, server, logs.newest, table.get(), report));
  return table;
}

Status AttributeStore::fence() const {
  SWALE_ASSIGN_OR_RETURN(const bool there, device_->exists(path_));
  if (there) return {};
  return error(Code::kAborted, Scope::kNode,
               "{}: another job has opened this metadata store; this one may write to it no more", path_);
}

AttributeStore::~AttributeStore() = default;

void AttributeStore::add(Bytes record) {
  if (record.empty()) return;
  append_sized(&open_, record);
}

uint64_t AttributeStore::covering_group() const { return sequence_ + (open_.empty() ? 0 : 1); }

std::unique_ptr<Work> AttributeStore::next_commit() {
  if (committing_ || open_.empty() || !health_.ok()) return nullptr;
  auto work = std::make_unique<Commit>(this, end_, group(sequence_ + 1, open_));
  end_ += kGroupHeadBytes + open_.size();
  ++sequence_;
  open_.clear();
  committing_ = true;
  changes_committing_ = table_.changes();
  return work;
}

Status AttributeStore::finish(std::unique_ptr<Work> work) {
  committing_ = false;
  const Status status = static_cast<Commit&>(*work).status();
  if (status.ok()) {
    durable_ = sequence_;
    table_.keep(changes_committing_);
    return {};
  }
  health_ = error(status.code(), Scope::kNode,
                  "attributes of this server can no longer be changed, because their log failed: {}",
                  status.message());
  open_.clear();
  table_.undo();
  return health_;
}

}  // namespace swale::meta
