// NodeLogs: memory, spilled chunks, and what a server finds.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <utility>

#include "base/contain.h"
#include "base/entropy.h"
#include "base/log.h"
#include "fs/log/node_logs.h"

namespace swale::fs {
namespace {

constexpr uint32_t kNoNumber = UINT32_MAX;  // of a log
constexpr uint64_t kAheadMax = 8;           // chunks of all logs that nobody has written to, and one of each
constexpr uint64_t kFreshAhead = 4;         // chunks that a process begins with, where memory is ready
constexpr size_t kOverMax = 128;            // chunks that are kept for a loss of power
constexpr size_t kNamelessMax = 512;        // files of chunks that are over

uint32_t number_after(uint32_t log) { return log == kNoNumber ? kNoNumber : log + 1; }

bool parse_log_name(const std::string& name, uint32_t* log) {
  const std::string_view prefix = kLogPrefix;
  if (!name.starts_with(prefix)) return false;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + prefix.size(), end, *log);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

Result<void*> map_page(const io::File& file) {
  if (const int failure = ::posix_fallocate(file.descriptor(), 0, kPageBytes); failure != 0)
    return errno_status(failure, fmt::format("{}: fallocate of a page in the node's memory file system; "
                                             "enlarge it (mount -o remount,size=...)",
                                             file.path()));
  void* const memory = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return errno_status(errno, file.path() + ": mmap");
  return memory;
}

}  // namespace

Result<std::unique_ptr<NodeLogs>> NodeLogs::open(io::Device& memory, io::Device& storage,
                                                 const NodeLogsOptions& options) noexcept {
  std::unique_ptr<NodeLogs> logs;
  const Status status = contain([&]() -> Status {
    const LogShape& shape = options.shape;
    if (shape.chunk_bytes < kChunkBytesMin || shape.chunk_bytes > kChunkBytesMax ||
        shape.chunk_bytes % kPageBytes != 0 || shape.slots < 1 || shape.slots > kSlotsMax)
      return invalid_argument("{} chunks of {} bytes; 1 to {} of {} to {} bytes, in pages, are possible",
                              shape.slots, shape.chunk_bytes, kSlotsMax, kChunkBytesMin, kChunkBytesMax);
    logs.reset(new NodeLogs(memory, storage, options));
    SWALE_RETURN_IF_ERROR(logs->open_folders());
    SWALE_RETURN_IF_ERROR(logs->lock_node());
    SWALE_RETURN_IF_ERROR(logs->map_node());
    SWALE_RETURN_IF_ERROR(logs->map_bell());
    return logs->find_logs();
  });
  if (!status.ok()) return status;
  return logs;
}

NodeLogs::~NodeLogs() {
  if (bell_ != nullptr) ::munmap(bell_, sizeof(Bell));
  if (page_ == nullptr) return;
  announce_change();  // nobody takes what is written from now on
  for (const auto& log : prepared_) static_cast<void>(memory_folder_->remove(log->path()));
  ::munmap(page_, kPageBytes);
}

Status NodeLogs::open_folders() {
  SWALE_RETURN_IF_ERROR(io::make_directories(memory_, options_.memory_directory));
  SWALE_ASSIGN_OR_RETURN(memory_folder_, memory_.anchored_private(options_.memory_directory));
  if (large_pages_of(options_.shape.chunk_bytes) > 0) {
    warm_ = std::make_unique<WarmPages>(*memory_folder_, options_.memory_directory + "/" + kWarmName,
                                        options_.memory_bytes / kWarmPart);
    warm_->open();
  }
  if (options_.spill_directory.empty()) return {};
  SWALE_RETURN_IF_ERROR(io::make_directories(storage_, options_.spill_directory));
  SWALE_ASSIGN_OR_RETURN(spill_folder_, storage_.anchored_private(options_.spill_directory));
  spills_ =
      std::make_unique<SpillWriter>(*spill_folder_, options_.spill_directory, options_.rules, &problems_);
  journal_ = std::make_unique<SyncJournal>(*spill_folder_, options_.spill_directory,
                                           options_.rules.journal_bytes, options_.rules.sync_spills);
  return {};
}

Status NodeLogs::lock_node() {
  const std::string path = options_.memory_directory + "/" + kNodeName;
  SWALE_ASSIGN_OR_RETURN(node_, memory_folder_->open(path, io::OpenMode::kOpenOrCreate));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(node_->descriptor(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES)
      return error(Code::kBusy, Scope::kOperation, "{}: another server of this job lives on this node", path);
    return errno_status(errno, path + ": lock");
  }
  NodeHead head = {};
  SWALE_ASSIGN_OR_RETURN(const size_t got,
                         node_->pread(0, MutableBytes(reinterpret_cast<char*>(&head), sizeof(head))));
  const bool whole = got == sizeof(head) && head.magic == kNodeMagic && head.version == kLogVersion;
  const bool fresh = got == 0 || (got == sizeof(head) && head.magic == 0);
  if (!fresh && !whole) return corruption("{}: offset 0: this is no folder of logs of this version", path);
  next_log_ = std::max(options_.first_log, whole ? head.next_log : 1);
  return {};
}

Status NodeLogs::map_bell() {
  const std::string path = options_.memory_directory + "/" + kBellName;
  SWALE_ASSIGN_OR_RETURN(bell_file_, memory_folder_->open(path, io::OpenMode::kOpenOrCreate));
  SWALE_ASSIGN_OR_RETURN(void* const memory, map_page(*bell_file_));
  bell_ = static_cast<Bell*>(memory);
  return {};
}

// What a server before this one has told counts no more.
Status NodeLogs::map_node() {
  SWALE_ASSIGN_OR_RETURN(void* const memory, map_page(*node_));
  page_ = static_cast<NodePage*>(memory);
  page_->epoch.store(random_number());
  return {};
}

Status NodeLogs::save_next_log() {
  const NodeHead head{kNodeMagic, kLogVersion, next_log_ + 1};
  return node_->pwrite(0, Bytes(reinterpret_cast<const char*>(&head), sizeof(head)));
}

Status NodeLogs::find_logs() {
  std::map<uint32_t, std::map<uint64_t, SpillIndex>> spilled;
  std::map<std::pair<uint32_t, uint64_t>, Status> unfinished;
  if (spill_folder_ != nullptr) {
    SWALE_ASSIGN_OR_RETURN(const auto names, spill_folder_->list(options_.spill_directory));
    for (const std::string& name : names) {
      uint32_t log = 0;
      uint64_t number = 0;
      if (!parse_spill_name(name, &log, &number)) continue;
      SWALE_ASSIGN_OR_RETURN(const auto file,
                             spill_folder_->open(spills_->path_of(log, number), io::OpenMode::kRead));
      auto index = read_spill_index(*file);
      if (index.ok() && (index->log != log || index->number != number))
        index = corruption("{}: it has chunk {} of log {}", file->path(), index->number, index->log);
      if (!index.ok() && index.status().code() != Code::kCorruption) return index.status();
      next_log_ = std::max(next_log_, number_after(log));
      if (index.ok())
        spilled[log].emplace(number, std::move(*index));
      else
        unfinished.emplace(std::pair(log, number), index.status());
    }
  }
  SWALE_ASSIGN_OR_RETURN(const auto names, memory_folder_->list(options_.memory_directory));
  for (const std::string& name : names) {
    uint32_t id = 0;
    if (!parse_log_name(name, &id)) continue;
    next_log_ = std::max(next_log_, number_after(id));
    std::set<uint64_t> in_files;
    for (const auto& [number, index] : spilled[id]) in_files.insert(number);
    auto log = ServedLog::adopt(*memory_folder_, path_of(id), id, in_files, &before_, &problems_);
    // The server before was killed while it made the log, or no process had come for it.
    if (log.ok() && (*log == nullptr || !(*log)->had_chunk()))
      SWALE_RETURN_IF_ERROR(memory_folder_->remove(path_of(id)));
    else if (log.ok())
      logs_.emplace(id, std::move(*log)).first->second->announce_by(&page_->epoch);
    else if (log.status().code() == Code::kCorruption)
      problems_.push_back(log.status());  // of this process only
    else
      return log.status();
  }
  if (journal_) SWALE_RETURN_IF_ERROR(find_journal(&spilled));
  for (const auto& [id, chunks] : spilled)
    for (const auto& [number, index] : chunks) unfinished.erase({id, number});
  for (auto& [id, chunks] : spilled) {
    for (auto& [number, index] : chunks) {
      auto& log = logs_[id];
      if (log == nullptr) log = ServedLog::of_spilled(id, index.chunk_bytes);
      SWALE_ASSIGN_OR_RETURN(auto file,
                             spill_folder_->open(spills_->path_of(id, number), io::OpenMode::kReadWrite));
      log->add_spilled(std::move(index), std::move(file), &before_);
    }
  }
  for (const auto& [place, why] : unfinished) {
    const auto log = logs_.find(place.first);
    if (log != logs_.end() && log->second->find(place.second) != nullptr)
      SWALE_RETURN_IF_ERROR(spill_folder_->remove(spills_->path_of(place.first, place.second)));
    else
      problems_.push_back(why);
  }
  for (const Found& found : before_) next_order_ = std::max(next_order_, found.order + 1);
  return {};
}

std::string NodeLogs::path_of(uint32_t log) const {
  return fmt::format("{}/{}{}", options_.memory_directory, kLogPrefix, log);
}

Result<uint32_t> NodeLogs::draw_number() {
  if (next_log_ == kNoNumber)
    return error(Code::kResourceExhausted, Scope::kNode,
                 "{}: the numbers of logs are used up, or a file there has a forged name; drain the node, "
                 "then remove the folder",
                 options_.memory_directory);
  SWALE_RETURN_IF_ERROR(save_next_log());
  return next_log_++;
}

Result<std::unique_ptr<ServedLog>> NodeLogs::make_log() {
  SWALE_ASSIGN_OR_RETURN(const uint32_t id, draw_number());
  auto log = ServedLog::create(*memory_folder_, path_of(id), id, options_.shape);
  if (log.ok())
    (*log)->announce_by(&page_->epoch);
  else
    static_cast<void>(memory_folder_->remove(path_of(id)));
  return log;
}

Result<uint32_t> NodeLogs::add_log() noexcept {
  uint32_t id = 0;
  const Status status = contain([&]() -> Status {
    if (prepared_.empty()) {
      SWALE_ASSIGN_OR_RETURN(auto log, make_log());
      prepared_.push_back(std::move(log));
    }
    id = prepared_.back()->id();
    ServedLog& log = *logs_.emplace(id, std::move(prepared_.back())).first->second;
    prepared_.pop_back();
    const Status supplied = contain([&] { return supply_by_spilling(log, Open::kMayGo); });
    if (!supplied.ok()) {
      static_cast<void>(memory_folder_->remove(log.path()));
      logs_.erase(id);
      return supplied;
    }
    while (log.has_reserved_slot() && log.wants_chunk(chunks_ahead(log))) log.grant();
    note_use();
    return {};
  });
  if (!status.ok()) return status;
  return id;
}

Result<NodeLogs::Descriptors> NodeLogs::descriptors(uint32_t log) const noexcept {
  Descriptors made;
  const Status status = contain([&]() -> Status {
    const auto reopened = [this](const std::string& path, io::Descriptor* out) -> Status {
      SWALE_ASSIGN_OR_RETURN(const auto file, memory_folder_->open(path, io::OpenMode::kReadWrite));
      *out = io::Descriptor(::fcntl(file->descriptor(), F_DUPFD_CLOEXEC, 0));
      return out->valid() ? Status() : errno_status(errno, path);
    };
    if (!logs_.contains(log)) return invalid_argument("log {} is none of this node's", log);
    SWALE_RETURN_IF_ERROR(reopened(path_of(log), &made.log));
    return reopened(options_.memory_directory + "/" + kBellName, &made.bell);
  });
  if (!status.ok()) return status;
  return made;
}

// One chunk, from what is free. kNoSpace or kResourceExhausted: there is none.
Status NodeLogs::supply(ServedLog& log) {
  if (!log.has_reserved_slot()) {
    while (!has_memory() && free_other_slot(log)) {
    }
    if (!has_memory())
      return error(Code::kNoSpace, Scope::kNode,
                   "{}: all {} bytes of memory for logs are in use; nothing is "
                   "drained yet",
                   options_.memory_directory, options_.memory_bytes);
    Status reserved = reserve_slot(log, ServedLog::Pages::kLeft);
    if (reserved.code() == Code::kNoSpace && free_other_slot(log))
      reserved = reserve_slot(log, ServedLog::Pages::kLeft);
    SWALE_RETURN_IF_ERROR(reserved);
  }
  log.grant();
  return {};
}

Status NodeLogs::supply_by_spilling(ServedLog& log, Open open) {
  for (;;) {
    const Status supplied = supply(log);
    const bool all_its_own = supplied.code() == Code::kResourceExhausted;
    if (supplied.code() != Code::kNoSpace && !all_its_own) return supplied;
    SWALE_ASSIGN_OR_RETURN(const Spilled spilled, spill_oldest(open, all_its_own ? &log : nullptr));
    if (spilled == Spilled::kNothing) return supplied;
  }
}

bool NodeLogs::free_other_slot(const ServedLog& wanting) {
  for (const auto& log : prepared_)
    if (log->give_back_slot()) return true;
  for (auto& [id, log] : logs_) {
    const uint32_t before = log->reserved_slots();
    if (log.get() != &wanting && log->free_slots() > 0) log->give_back_slot();
    if (log->reserved_slots() != before) return true;
  }
  return false;
}

// A process that has written a lot must not wait while the server waits for a disk. One whose chunks are over
// as soon as they are full goes round in as few as it can, which stay in its processor's cache.
uint64_t NodeLogs::chunks_ahead(const ServedLog& log) const {
  const bool plenty = memory_bytes() - free_bytes() + log.chunk_bytes() <= options_.memory_bytes / 2;
  const uint64_t share = kAheadMax / std::max<uint64_t>(logs_.size(), 1);
  if (!plenty) return 1;
  return log.is_fresh() ? kFreshAhead : std::max<uint64_t>(log.full_chunks(share), 1);
}

void NodeLogs::grant_at_once() noexcept {
  static_cast<void>(contain([&] {
    for (auto& [id, log] : logs_)
      while (log->wants_chunk(chunks_ahead(*log)) && supply(*log).ok()) {
      }
  }));
}

Status NodeLogs::serve() noexcept {
  return contain([&]() -> Status {
    note_use();
    Status first = spills_ ? spill_ahead() : Status();
    free_what_is_over();
    // The disk is behind: writers wait for what is on its way there.
    if (over_and_kept_ > kOverMax && first.ok() && spills_ && spills_->is_busy()) {
      first = note_names(spills_->finish());
      free_what_is_over();
    }
    while (is_short() && first.ok()) {
      const auto spilled = spill_oldest(Open::kStay, nullptr);
      first = spilled.status();
      if (spilled.ok() && *spilled == Spilled::kNothing) break;
    }
    while (nameless_.size() > kNamelessMax) nameless_.pop_back();
    had_no_chunk_ = false;
    for (auto& [id, log] : logs_) {
      if (!log->wants_chunk(1)) continue;
      const bool waits = log->needs_chunk();
      // Only for a writer that waits are chunks closed that others write.
      Status status =
          first.ok() ? supply_by_spilling(*log, waits ? Open::kMayGo : Open::kStay) : supply(*log);
      const bool full = status.code() == Code::kNoSpace || status.code() == Code::kResourceExhausted;
      had_no_chunk_ |= waits && !status.ok();
      if (!full && first.ok()) first = std::move(status);
    }
    return first;
  });
}

// What took the place of its bytes is durable, or drained, or nobody cares what a loss of power leaves.
bool NodeLogs::may_go(Chunk& chunk, uint64_t oldest_in_memory) const {
  if (!options_.rules.is_over(chunk)) return false;
  if (chunk.is_on_its_way) return false;
  if (!options_.outlives_power || chunk.spilled == nullptr) return true;
  if (chunk.over_before == 0) {
    chunk.over_before = next_order_;
    return false;
  }
  return oldest_in_memory >= chunk.over_before;
}

// What goes from memory now was never durable: what it had overwritten waits for what has overwritten it. A
// chunk that its process may fill up has gone as far as that matters: else an idle process would keep all
// that others have spilled since.
void NodeLogs::keep_for_what_goes() {
  uint64_t going = kOrderMax;
  const auto each_chunk = [this](const auto& act) {
    for (auto& [id, log] : logs_)
      for (const auto& [number, chunk] : log->chunks()) act(*log->find(number));
  };
  each_chunk([&](Chunk& chunk) {
    if (!chunk.only_in_memory() || chunk.needed_from == 0 || chunk.live > 0) return;
    going = std::min(going, std::exchange(chunk.needed_from, 0));
  });
  each_chunk([&](Chunk& chunk) {
    if (chunk.over_before > going) chunk.over_before = next_order_;
  });
}

void NodeLogs::free_what_is_over() {
  if (options_.outlives_power) keep_for_what_goes();
  const uint64_t oldest = options_.outlives_power ? oldest_in_memory() : next_order_;
  over_and_kept_ = 0;
  for (auto log = logs_.begin(); log != logs_.end();) {
    std::vector<uint64_t> over;
    nameless_.reserve(nameless_.size() + log->second->chunks().size());
    for (const auto& [number, each] : log->second->chunks()) {
      Chunk& chunk = *log->second->find(number);
      if (may_go(chunk, oldest)) {
        over.push_back(number);
      } else if (each.over_before != 0) {
        ++over_and_kept_;
        if (chunk.in_memory()) log->second->free_slot(chunk);
      }
    }
    for (const uint64_t number : over) {
      Chunk& chunk = *log->second->find(number);
      if (chunk.spilled != nullptr) {
        const Status removed = spill_folder_->remove(spills_->path_of(log->first, number));
        if (!removed.ok() && removed.code() != Code::kNotFound) {
          log_warn("{}; it is found again, and dropped, at the next start", removed.message());
          continue;
        }
        if (chunk.first_order != 0) oldest_removed_ = std::min(oldest_removed_, chunk.first_order);
        nameless_.push_back(std::move(chunk.spilled));
      }
      if (chunk.in_memory()) log->second->free_slot(chunk);
      log->second->forget(number);
    }
    const bool gone = log->second->ended() && log->second->chunks().empty();
    if (gone && log->second->in_memory()) release(log->second);
    log = gone ? logs_.erase(log) : std::next(log);
  }
}

Chunk* NodeLogs::oldest(bool (*fits)(const Chunk&), const ServedLog* only, ServedLog** log) {
  Chunk* found = nullptr;
  for (auto& [id, each] : logs_) {
    if (only != nullptr && only != each.get()) continue;
    for (const auto& [number, chunk] : each->chunks()) {
      if (!chunk.in_memory() || !fits(chunk)) continue;
      if (found != nullptr && found->first_order <= chunk.first_order) continue;
      found = each->find(number);
      *log = each.get();
    }
  }
  return found;
}

Result<NodeLogs::Spilled> NodeLogs::spill_oldest(Open open, const ServedLog* only) {
  if (spill_folder_ == nullptr) return Spilled::kNothing;
  ServedLog* log = nullptr;
  Chunk* chunk = oldest([](const Chunk& each) { return each.complete() && each.live > 0; }, only, &log);
  if (chunk == nullptr && open == Open::kMayGo) {
    for (auto& [id, each] : logs_)
      if ((only == nullptr || only == each.get()) && each->take_back_empty()) return Spilled::kOne;
    // One that nobody has filled: idle processes must not keep all memory.
    chunk = oldest([](const Chunk& each) { return !each.broken && !each.seen.closed && each.live > 0; }, only,
                   &log);
    if (chunk == nullptr || !close(*log, *chunk)) return Spilled::kNothing;
  }
  if (chunk == nullptr) return Spilled::kNothing;
  if (chunk->spilled == nullptr) {
    Status failed = chunk->is_on_its_way ? Status() : start_spill(*log, *chunk);
    while (failed.ok() && chunk->is_on_its_way) failed = rest();
    if (chunk->spilled == nullptr) return failed;
    fails_ahead_ = false;
  }
  log->free_slot(*chunk);
  return Spilled::kOne;
}

// False: what was reserved meanwhile is to be handed out first.
bool NodeLogs::close(ServedLog& log, Chunk& chunk) {
  if (chunk.complete()) return true;
  if (chunk.broken) return false;
  log.close(chunk);
  if (log.reservation(chunk).entries != chunk.entries.size() || chunk.known != chunk.entries.size())
    return false;
  chunk.seen.closed = true;
  return true;
}

Status NodeLogs::note_names(Status spilled) {
  if (spills_->take_named()) oldest_removed_ = kOrderMax;
  return spilled;
}

Status NodeLogs::start_spill(ServedLog& log, Chunk& chunk) {
  while (!spills_->has_place()) SWALE_RETURN_IF_ERROR(note_names(spills_->advance(1)));
  log.settle(chunk);
  return spills_->start(log, chunk);
}

Status NodeLogs::rest() noexcept {
  return contain([&] { return spills_ ? note_names(spills_->finish()) : Status(); });
}

// What an fsync will want on the disk goes there while programs write on. After a failure only what must go
// does, until one of that has gone.
Status NodeLogs::spill_ahead() {
  Status status = note_names(spills_->advance(0));
  if (!options_.outlives_power || fails_ahead_) return status;
  const auto fits = [](const Chunk& each) {
    return each.complete() && each.live > 0 && !each.spilled && !each.is_on_its_way;
  };
  while (status.ok() && spills_->has_place()) {
    ServedLog* log = nullptr;
    Chunk* const chunk = oldest(fits, nullptr, &log);
    if (chunk == nullptr) break;
    status = start_spill(*log, *chunk);
  }
  fails_ahead_ = !status.ok();
  return status;
}

// A log whose last chunk is closed gets the next one before it asks. A chunk of few bytes needs no memory to
// be read soon.
void NodeLogs::grant_next(ServedLog& log, Chunk& spilled) {
  if (spilled.in_memory() && spilled.seen.used < log.chunk_bytes() / 2) log.free_slot(spilled);
  if (log.ended() || log.has_open_chunk()) return;
  if (!supply(log).ok() && spilled.in_memory()) {
    log.free_slot(spilled);
    log.grant();
  }
}

}  // namespace swale::fs
