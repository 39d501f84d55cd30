#include "meta/attributes/attribute_store.h"

#include <algorithm>
#include <optional>

#include "base/contain.h"
#include "base/crc32c.h"
#include "base/entropy.h"
#include "meta/index/log_window.h"

namespace swale::meta {
namespace {

constexpr char kMagic[] = "SWATTR01";  // 8 bytes
constexpr uint32_t kVersion = 2;
constexpr size_t kHeadBytes = 32;
constexpr uint32_t kGroupMagic = 0x47415753;  // "SWAG"
constexpr size_t kGroupHeadBytes = 24;
constexpr uint64_t kGroupBytesMax = 64 * kMiB;
constexpr uint64_t kCompactFactor = 4;  // a log so many times as long as its snapshot is compacted
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
    return error(
        Code::kUnsupported, Scope::kFile,
        "{}: version {}, features {:x}; this build reads version {}: read it with the Swale that wrote it",
        path, get_u32(bytes.data() + 8), get_u32(bytes.data() + 12), kVersion);
  }
  if (get_u32(bytes.data() + 16) != server || get_u32(bytes.data() + 20) != job) {
    return corruption("{}: is the log of server {} and job {}: was it renamed?", path,
                      get_u32(bytes.data() + 16), get_u32(bytes.data() + 20));
  }
  return {};
}

// u32 magic | u32 crc of all that follows | u32 bytes of records | u32 zero | u64 sequence | records, each
// sized
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

struct GroupHead {
  uint64_t bytes = 0;  // of the whole group; 0: there is none, or a damaged one
  uint64_t sequence = 0;
};

Result<GroupHead> whole_group(LogWindow* log, uint64_t at) {
  if (log->size() - at < kGroupHeadBytes) return GroupHead();
  SWALE_ASSIGN_OR_RETURN(const Bytes head, log->at(at, kGroupHeadBytes));
  const uint32_t crc = get_u32(head.data() + 4);
  const uint64_t length = get_u32(head.data() + 8);
  const GroupHead group{kGroupHeadBytes + length, get_u64(head.data() + 16)};
  if (get_u32(head.data()) != kGroupMagic || length > kGroupBytesMax ||
      length > log->size() - at - kGroupHeadBytes)
    return GroupHead();
  SWALE_ASSIGN_OR_RETURN(const uint32_t found, log->checksum(crc32c({}), at + 8, group.bytes - 8));
  return found == crc ? group : GroupHead();
}

// Groups are written one after the other, each synced before the next: a whole group after a damaged one says
// that the damage came later, and that acknowledged changes are lost.
Status check_torn(LogWindow* log, uint64_t at, uint64_t sequence, const std::string& path) {
  for (uint64_t next = at + 1;; ++next) {
    SWALE_ASSIGN_OR_RETURN(next, log->find(kGroupMagic, next));
    if (next == log->size()) return {};
    SWALE_ASSIGN_OR_RETURN(const GroupHead later, whole_group(log, next));
    if (later.bytes == 0 || later.sequence <= sequence) continue;
    return corruption(
        "{}: offset {}: expected group {}, found damage, and group {} after it at offset {}: acknowledged "
        "changes are lost; restore the file from a copy, or see what `swale repair` can keep",
        path, at, sequence + 1, later.sequence, next);
  }
}

Status replay(LogWindow* log, const std::string& path, AttributeTable* table, AttributeRecovery* report) {
  uint64_t sequence = 0;
  for (uint64_t at = kHeadBytes; at < log->size();) {
    SWALE_ASSIGN_OR_RETURN(const GroupHead group, whole_group(log, at));
    if (group.bytes == 0 || group.sequence != sequence + 1) {
      SWALE_RETURN_IF_ERROR(check_torn(log, at, sequence, path));
      report->torn_bytes = log->size() - at;
      return {};
    }
    SWALE_ASSIGN_OR_RETURN(const Bytes records, log->at(at + kGroupHeadBytes, group.bytes - kGroupHeadBytes));
    Decoder in(records);
    size_t whole = 0;  // bytes of whole records
    while (in.remaining() > 0) {
      const Bytes record = in.sized();
      if (!in.ok()) break;
      whole = in.offset();
      const Status status = table->replay(record);
      if (!status.ok()) return status.with_context(fmt::format("{}: group at offset {}", path, at));
      ++report->records;
    }
    if (!in.ok()) {
      // Half a record at the end of the last group: a version that is older than this one has written it when
      // it had no memory for the rest, and has acknowledged it to nobody.
      SWALE_RETURN_IF_ERROR(check_torn(log, at, group.sequence, path));
      report->torn_bytes = log->size() - at - kGroupHeadBytes - whole;
      return {};
    }
    sequence = group.sequence;
    at += group.bytes;
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
  SWALE_ASSIGN_OR_RETURN(const auto file, device.open(path, io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const uint64_t size, file->size());
  LogWindow log(*file, size);
  SWALE_ASSIGN_OR_RETURN(const Bytes head, log.at(0, std::min<uint64_t>(size, kHeadBytes)));
  SWALE_RETURN_IF_ERROR(check_head(head, path, server, job));
  report->job = job;
  return replay(&log, path, table, report);
}

// The newest log gets another name before it is read: what its writer commits after that, it does not
// acknowledge.
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
  Commit(const AttributeStore* store, std::string bytes)
      : Work(WorkKind::kCommit), store_(*store), offset_(store->end_), bytes_(std::move(bytes)) {}
  void run() noexcept override {
    bool synced = false;
    status_ = contain([&]() -> Status {
      SWALE_RETURN_IF_ERROR(store_.file_->pwrite(offset_, bytes_));
      synced = true;
      SWALE_RETURN_IF_ERROR(store_.file_->sync());
      return store_.fence();
    });
    if (synced || (status_.code() != Code::kNoSpace && status_.code() != Code::kResourceExhausted)) return;
    taken_back_ = contain([&]() -> Status {
                    SWALE_RETURN_IF_ERROR(store_.file_->truncate(offset_));
                    return store_.file_->sync();
                  }).ok();
  }
  const Status& status() const { return status_; }
  bool taken_back() const { return taken_back_; }
  uint64_t bytes() const { return bytes_.size(); }

 private:
  const AttributeStore& store_;
  const uint64_t offset_;
  const std::string bytes_;
  Status status_;
  bool taken_back_ = false;
};

// As a later job begins its log, so does this one: the old log has its name until the new one has.
class AttributeStore::Compaction final : public Work {
 public:
  Compaction(AttributeStore* store, uint32_t job, std::string content)
      : Work(WorkKind::kCommit), store_(*store), job_(job), content_(std::move(content)) {}
  void run() noexcept override {
    status_ = contain([&]() -> Status {
      std::string old = store_.path();
      SWALE_RETURN_IF_ERROR(write_log(*store_.device_, store_.options_, job_, content_, &log));
      // Whoever has opened the store since has taken the old name away.
      SWALE_RETURN_IF_ERROR(store_.fence());
      std::string name = log.path;
      {
        const MutexLock lock(store_.path_mutex_);
        store_.path_.swap(name);
      }
      static_cast<void>(store_.device_->remove(old));  // else the next job does it
      return {};
    });
    const bool may_pass = status_.code() == Code::kNoSpace || status_.code() == Code::kResourceExhausted;
    if (!may_pass) return;
    // A log with a higher number is the truth for the next job, whoever writes on in the old one.
    nothing_done_ = contain([&]() -> Status {
                      if (log.path.empty()) return {};
                      SWALE_ASSIGN_OR_RETURN(const bool there, store_.device_->exists(log.path));
                      return there ? status_ : ok_status();
                    }).ok();
  }
  const Status& status() const { return status_; }
  bool nothing_done() const { return nothing_done_; }

  Log log;

 private:
  bool nothing_done_ = false;
  AttributeStore& store_;
  const uint32_t job_;
  const std::string content_;
  Status status_;
};

// A draft gets its name when it is durable. kBusy: another process has the name.
Status AttributeStore::write_log(io::Device& device, const AttributeStoreOptions& options, uint32_t job,
                                 Bytes content, Log* log) {
  log->job = job;
  log->bytes = content.size();
  log->path = options.directory + "/" + name_of(options.server, job);
  const std::string draft = fmt::format("{}.{:016x}.new", log->path, random_number());
  const auto write = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(log->file, device.open(draft, io::OpenMode::kCreate));
    SWALE_RETURN_IF_ERROR(log->file->pwrite(0, content));
    SWALE_RETURN_IF_ERROR(log->file->sync());
    return device.rename_new(draft, log->path);
  };
  if (const Status written = write(); !written.ok()) {
    static_cast<void>(device.remove(draft));
    if (written.code() != Code::kAlreadyExists) return written;
    return error(Code::kBusy, Scope::kFile, "{}: another process has just opened this store for writing",
                 log->path);
  }
  return device.sync_directory(options.directory);
}

// Everything in it is durable.
void AttributeStore::use(Log log) {
  file_ = std::move(log.file);
  log_job_ = log.job;
  end_ = snapshot_bytes_ = log.bytes;
  log_sequence_ = log.sequence;
  compact_after_ = 0;
}

Result<std::unique_ptr<AttributeStore>> AttributeStore::open(io::Device& device,
                                                             const AttributeStoreOptions& options,
                                                             AttributeRecovery* report) {
  AttributeRecovery own;
  if (report == nullptr) report = &own;
  *report = {};
  std::unique_ptr<AttributeStore> store(new AttributeStore(options));
  SWALE_ASSIGN_OR_RETURN(const Logs logs, find_logs(device, options.directory, options.server));
  std::vector<std::string> older = logs.paths;
  if (logs.newest > 0) {
    SWALE_RETURN_IF_ERROR(take_over(device, options.directory, options.server, logs));
    older.push_back(options.directory + "/" + closed_name_of(options.server, logs.newest));
    SWALE_RETURN_IF_ERROR(
        read_log(device, older.back(), options.server, logs.newest, &store->table_, report));
  }
  store->job_ = logs.newest + 1;
  store->device_ = &device;
  uint64_t sequence = 0;
  const std::string content = snapshot(store->table_, options.server, store->job_, &sequence);
  Log log;
  SWALE_RETURN_IF_ERROR(write_log(device, options, store->job_, content, &log));
  log.sequence = sequence;
  {
    const MutexLock lock(store->path_mutex_);
    store->path_ = log.path;
  }
  store->use(std::move(log));
  for (const std::string& old : older) static_cast<void>(device.remove(old));  // else the next job does it
  return store;
}

Result<std::unique_ptr<AttributeTable>> AttributeStore::read(io::Device& device, const std::string& directory,
                                                             uint32_t server, AttributeRecovery* report) {
  auto table = std::make_unique<AttributeTable>(server);
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
  for (;;) {
    const std::string log = path();
    SWALE_ASSIGN_OR_RETURN(const bool there, device_->exists(log));
    if (there) return {};
    // A compaction takes the name away too, but only after the log has another one.
    if (path() != log) continue;
    return error(Code::kAborted, Scope::kNode,
                 "{}: another job has opened this metadata store; this one may write to it no more", log);
  }
}

std::string AttributeStore::path() const {
  const MutexLock lock(path_mutex_);
  return path_;
}

AttributeStore::~AttributeStore() = default;

// It joins the group whole or not at all: half a record would make the group, and with it the log,
// unreadable.
void AttributeStore::add(Bytes record) {
  constexpr size_t kSizeBytesMax = 10;  // of append_sized
  if (record.empty()) return;
  // A group that recovery would refuse as too long must not be acknowledged.
  if (open_.empty() || open_.back().records.size() + record.size() > options_.group_bytes_max) {
    Group next;
    append_sized(&next.records, record);
    next.changes = 1;
    open_.push_back(std::move(next));
    return;
  }
  std::string& records = open_.back().records;
  const size_t wanted = records.size() + kSizeBytesMax + record.size();
  if (wanted > records.capacity()) records.reserve(std::max(wanted, 2 * records.capacity()));
  append_sized(&records, record);
  ++open_.back().changes;
}

uint64_t AttributeStore::covering_group() const { return sequence_ + open_.size(); }

// It is one group, as its number says: so it waits until no more than one is open.
bool AttributeStore::wants_compaction() const {
  if (open_.size() > 1) return false;
  return end_ > std::max({options_.compact_bytes_min, kCompactFactor * snapshot_bytes_, compact_after_});
}

std::unique_ptr<Work> AttributeStore::next_commit() {
  if (committing_ || !health_.ok()) return nullptr;
  std::unique_ptr<Work> work;
  if (wants_compaction()) work = compaction();
  if (work == nullptr) {
    if (open_.empty()) return nullptr;
    work = std::make_unique<Commit>(this, group(log_sequence_ + 1, open_.front().records));
    changes_committing_ = open_.front().changes;
    open_.pop_front();
  }
  ++sequence_;
  committing_ = true;
  return work;
}

// What is open is in the table: it becomes durable with it, or with the commit after an attempt that failed.
// Null: there is no memory for it now.
std::unique_ptr<Work> AttributeStore::compaction() {
  try {
    uint64_t sequence = 0;
    std::string content = snapshot(table_, options_.server, log_job_ + 1, &sequence);
    auto work = std::make_unique<Compaction>(this, log_job_ + 1, std::move(content));
    work->log.sequence = sequence;
    if (!open_.empty()) open_committing_ = std::move(open_.front());
    open_.clear();
    changes_committing_ = table_.changes();
    compacting_ = true;
    return work;
  } catch (const std::bad_alloc&) {
    compact_after_ = 2 * end_;
    return nullptr;
  }
}

Status AttributeStore::finish(std::unique_ptr<Work> work) {
  committing_ = false;
  if (compacting_) return finish_compaction(static_cast<Compaction*>(work.get()));
  const auto& commit = static_cast<const Commit&>(*work);
  if (!commit.status().ok()) {
    give_up(commit.status(), !commit.taken_back());
    return health_.ok() ? commit.status() : health_;
  }
  durable_ = sequence_;
  ++log_sequence_;
  end_ += commit.bytes();
  table_.keep(changes_committing_);
  return {};
}

Status AttributeStore::finish_compaction(Compaction* work) {
  compacting_ = false;
  if (work->status().ok()) {
    use(std::move(work->log));
    ++compactions_;
    open_committing_ = {};
    durable_ = sequence_;
    table_.keep(changes_committing_);
    return {};
  }
  if (!work->nothing_done()) {
    give_up(work->status(), true);
    return health_;
  }
  compact_after_ = 2 * end_;  // the old log goes on, and takes what is open, under the same number
  if (open_committing_.changes == 0) {
    durable_ = sequence_;  // nothing waits for a commit
    return {};
  }
  const Status kept = contain([this] { open_.push_front(std::move(open_committing_)); });
  if (!kept.ok()) {
    give_up(kept, false);
    return kept;
  }
  --sequence_;
  open_committing_ = {};
  return {};
}

// No group after the durable one exists any more.
void AttributeStore::give_up(const Status& why, bool for_good) {
  if (for_good) {
    health_ = error(why.code(), Scope::kNode,
                    "attributes of this server can no longer be changed, because their log failed: {}",
                    why.message());
  }
  open_.clear();
  open_committing_ = {};
  sequence_ = durable_;
  table_.undo();
}

}  // namespace swale::meta
