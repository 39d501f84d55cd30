#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "io/posix_settings.h"
#include "meta/store/store.h"
#include "net/job/opening.h"

namespace swale::capi {

// Arrays of the interface are arrays of the engine: a get of many ranges copies neither question nor answer.
// Only callers, which are compiled apart, read an answer through the interface's type.
static_assert(sizeof(swale_meta_segment) == sizeof(meta::Extent) &&
              offsetof(swale_meta_segment, length) == offsetof(meta::Extent, length) &&
              offsetof(swale_meta_segment, address) == offsetof(meta::Extent, place.address) &&
              offsetof(swale_meta_segment, log) == offsetof(meta::Extent, place.log) &&
              offsetof(swale_meta_segment, reserved) == offsetof(meta::Extent, place.reserved));
static_assert(sizeof(swale_meta_range) == sizeof(meta::ByteRange) &&
              offsetof(swale_meta_range, length) == offsetof(meta::ByteRange, length));

// Clients, one for each thread in a call. This holds the idle ones.
class MetaClients {
 public:
  explicit MetaClients(meta::Store* store) : store_(*store) {}
  std::unique_ptr<meta::Client> take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return store_.client();
    std::unique_ptr<meta::Client> client = std::move(idle_.back());
    idle_.pop_back();
    return client;
  }
  void give(std::unique_ptr<meta::Client> client) noexcept {
    if (!client->at_rest()) return;  // freed: what comes late for it is no answer to a later call
    const MutexLock lock(mutex_);
    if (idle_.size() < idle_.capacity()) idle_.push_back(std::move(client));  // else it is freed
  }
  void prepare() {
    const MutexLock lock(mutex_);
    idle_.reserve(64);
  }

 private:
  meta::Store& store_;
  Mutex mutex_;
  std::vector<std::unique_ptr<meta::Client>> idle_ GUARDED_BY(mutex_);
};

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct MetaState {
  MetaState(io::PosixOptions storage, const std::string& path) : device(storage, path) {}
  std::shared_ptr<JobState> job;  // outlives the store
  io::PosixDevice device;
  std::unique_ptr<meta::Store> store;  // null after close
  std::unique_ptr<MetaClients> clients;
};

namespace {

// A client for the duration of a call.
class Using {
 public:
  explicit Using(MetaState& state) : clients_(*state.clients), client_(clients_.take()) {}
  ~Using() { clients_.give(std::move(client_)); }
  Using(const Using&) = delete;
  meta::Client* operator->() { return client_.get(); }

 private:
  MetaClients& clients_;
  std::unique_ptr<meta::Client> client_;
};

Result<meta::OpenStore> open_flags(int flags) {
  switch (flags) {
    case 0:
      return meta::OpenStore::kExisting;
    case SWALE_CREATE:
      return meta::OpenStore::kCreate;
    case SWALE_CREATE | SWALE_EXCLUSIVE:
      return meta::OpenStore::kExclusive;
    case SWALE_READ_ONLY:
      return meta::OpenStore::kReadOnly;
    default:
      return invalid_argument(
          "swale_meta_open: flags {:#x}: expected 0, SWALE_CREATE, that with SWALE_EXCLUSIVE, or "
          "SWALE_READ_ONLY",
          flags);
  }
}

Status open_meta(swale_job* job, const char* path, int flags, std::string_view text,
                 std::shared_ptr<MetaState>* out) {
  const auto read_options = [&]() -> Result<std::pair<meta::StoreOptions, io::PosixOptions>> {
    SWALE_RETURN_IF_ERROR(check_process_variables());
    SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kMeta, text, process_environment));
    meta::StoreOptions store = meta::store_options(config);
    SWALE_ASSIGN_OR_RETURN(store.open, open_flags(flags));
    return std::pair(store, io::posix_options(config));
  };
  const auto options = read_options();
  SWALE_RETURN_IF_ERROR(
      net::begin_collective(*job->state->job, net::CallKind::kOpenStore, path, options.status()));
  auto state = std::make_shared<MetaState>(options->second, path);
  state->job = job->state;
  SWALE_ASSIGN_OR_RETURN(state->store,
                         meta::Store::open(*job->state->job, state->device, path, options->first));
  state->clients = std::make_unique<MetaClients>(state->store.get());
  state->clients->prepare();
  ++job->state->open_directories;
  *out = std::move(state);
  return {};
}

}  // namespace
}  // namespace swale::capi

struct swale_meta {
  std::shared_ptr<swale::capi::MetaState> state;
};
struct swale_meta_file {
  std::shared_ptr<swale::capi::MetaState> state;
  swale::meta::File file;
};
struct swale_meta_found_runs {
  std::vector<swale_meta_run> runs;
  std::vector<size_t> ends;
};
struct swale_meta_found {
  swale::meta::Found found;
};

namespace {

using swale::Status;
using swale::capi::guarded;
using swale::capi::null_argument;
using swale::capi::Using;
namespace meta = swale::meta;

swale_meta_segment segment_of(const meta::Extent& extent) {
  return {extent.offset, extent.length, extent.place.address, extent.place.log, 0};
}

// The result that this thread freed last, for its next get: a loop of gets would pay for the pages of each
// result.
thread_local std::unique_ptr<swale_meta_found> spare_found;

std::unique_ptr<swale_meta_found> take_spare_found() {
  return spare_found ? std::move(spare_found) : std::make_unique<swale_meta_found>();
}

static_assert(SWALE_META_LEVELS == meta::kRunLevels);

swale_meta_run run_of(const meta::Run& run) {
  swale_meta_run out = {};
  out.offset = run.offset;
  out.length = run.length;
  out.address = run.place.address;
  out.log = run.place.log;
  out.levels = run.levels;
  for (uint32_t i = 0; i < run.levels; ++i)
    out.level[i] = {run.level[i].count, run.level[i].stride, run.level[i].address_stride};
  return out;
}

swale::Result<meta::Run> query_of(const swale_meta_run& query, size_t index) {
  if (query.levels > SWALE_META_LEVELS) {
    return swale::invalid_argument("swale_meta_get_runs: run {} has {} levels: expected at most {}", index,
                                   query.levels, SWALE_META_LEVELS);
  }
  meta::Run run;
  run.offset = query.offset;
  run.length = query.length;
  run.levels = query.levels;
  for (uint32_t i = 0; i < query.levels; ++i) run.level[i] = {query.level[i].count, query.level[i].stride, 0};
  return run;
}

Status check_open(const char* call, const swale::capi::MetaState& state) {
  SWALE_RETURN_IF_ERROR(swale::capi::check_process(call, *state.job));
  if (state.store) return {};
  return swale::invalid_argument("{}: the store is closed", call);
}

}  // namespace

extern "C" {

int swale_meta_open(swale_job* job, const char* path, int flags, const char* options, swale_meta** store) {
  return guarded([&]() -> Status {
    if (job == nullptr) return null_argument("swale_meta_open", "job");
    if (path == nullptr) return null_argument("swale_meta_open", "path");
    if (store == nullptr) return null_argument("swale_meta_open", "meta");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_meta_open", *job->state));
    auto handle = std::make_unique<swale_meta>();
    SWALE_RETURN_IF_ERROR(
        swale::capi::open_meta(job, path, flags, swale::capi::text_or_empty(options), &handle->state));
    *store = handle.release();
    return {};
  });
}

int swale_meta_close(swale_meta* store) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_meta> handle(store);
    if (store == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_meta_close", *store->state->job, &handle));
    swale::capi::MetaState& state = *store->state;
    --state.job->open_directories;
    state.clients.reset();
    const Status closed = state.store->close();
    state.store.reset();
    return closed;
  });
}

int swale_meta_file_open(swale_meta* store, const char* name, int flags, uint32_t mode,
                         swale_meta_file** file) {
  return guarded([&]() -> Status {
    if (store == nullptr) return null_argument("swale_meta_file_open", "meta");
    if (name == nullptr) return null_argument("swale_meta_file_open", "name");
    if (file == nullptr) return null_argument("swale_meta_file_open", "file");
    SWALE_RETURN_IF_ERROR(swale::capi::check_file_flags("swale_meta_file_open", flags));
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_file_open", *store->state));
    auto handle = std::make_unique<swale_meta_file>();
    handle->state = store->state;
    Using client(*store->state);
    SWALE_ASSIGN_OR_RETURN(handle->file,
                           client->open(name, static_cast<unsigned>(flags), mode, swale::capi::now_ns()));
    *file = handle.release();
    return {};
  });
}

int swale_meta_file_close(swale_meta_file* file) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_meta_file> handle(file);
    if (file == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_meta_file_close", *file->state->job, &handle));
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_file_close", *file->state));
    if (file->file.written_end == 0) return {};
    Using client(*file->state);
    return client->close(&file->file, swale::capi::now_ns()).status();
  });
}

int swale_meta_put(swale_meta_file* file, const swale_meta_segment* segments, size_t count) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_put", "file");
    if (segments == nullptr && count != 0) return null_argument("swale_meta_put", "segments");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_put", *file->state));
    Using client(*file->state);
    return client->put(&file->file, {reinterpret_cast<const meta::Extent*>(segments), count});
  });
}

int swale_meta_get(swale_meta_file* file, const swale_meta_range* ranges, size_t count,
                   swale_meta_found** found) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_get", "file");
    if (ranges == nullptr && count != 0) return null_argument("swale_meta_get", "ranges");
    if (found == nullptr) return null_argument("swale_meta_get", "found");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_get", *file->state));
    std::unique_ptr<swale_meta_found> handle = take_spare_found();
    Using client(*file->state);
    const std::span wanted(reinterpret_cast<const meta::ByteRange*>(ranges), count);
    SWALE_RETURN_IF_ERROR(client->get(file->file, wanted, &handle->found));
    *found = handle.release();
    return {};
  });
}

namespace {

[[gnu::cold, gnu::noinline]] int refuse_found_at(const swale_meta_found* found, size_t index, bool segments,
                                                 bool count) {
  return guarded([&]() -> Status {
    if (found == nullptr) return null_argument("swale_meta_found_at", "found");
    if (!segments) return null_argument("swale_meta_found_at", "segments");
    if (!count) return null_argument("swale_meta_found_at", "count");
    return swale::invalid_argument("swale_meta_found_at: range {}: there are {}", index,
                                   found->found.ends.size());
  });
}

}  // namespace

// Called for each range of a get.
int swale_meta_found_at(const swale_meta_found* found, size_t index, const swale_meta_segment** segments,
                        size_t* count) {
  if (found == nullptr || segments == nullptr || count == nullptr || index >= found->found.ends.size())
    return refuse_found_at(found, index, segments != nullptr, count != nullptr);
  const size_t first = index == 0 ? 0 : found->found.ends[index - 1];
  *segments = reinterpret_cast<const swale_meta_segment*>(found->found.extents.data() + first);
  *count = found->found.ends[index] - first;
  return SWALE_OK;
}

void swale_meta_found_free(swale_meta_found* found) {
  constexpr size_t kKept = 16 * 1024;  // segments: below 1 MiB a thread
  std::unique_ptr<swale_meta_found> freed(found);
  if (freed && freed->found.extents.capacity() <= kKept && freed->found.ends.capacity() <= kKept)
    spare_found = std::move(freed);
}

int swale_meta_get_runs(swale_meta_file* file, const swale_meta_run* queries, size_t count,
                        swale_meta_found_runs** found) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_get_runs", "file");
    if (queries == nullptr && count != 0) return null_argument("swale_meta_get_runs", "queries");
    if (found == nullptr) return null_argument("swale_meta_get_runs", "found");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_get_runs", *file->state));
    std::vector<meta::Run> wanted;
    wanted.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      SWALE_ASSIGN_OR_RETURN(const meta::Run query, query_of(queries[i], i));
      wanted.push_back(query);
    }
    meta::FoundRuns answer;
    {
      Using client(*file->state);
      SWALE_RETURN_IF_ERROR(client->get_runs(file->file, wanted, &answer));
    }
    auto handle = std::make_unique<swale_meta_found_runs>();
    handle->runs.reserve(answer.runs.size());
    for (const meta::Run& each : answer.runs) handle->runs.push_back(run_of(each));
    handle->ends = std::move(answer.ends);
    *found = handle.release();
    return {};
  });
}

int swale_meta_found_runs_at(const swale_meta_found_runs* found, size_t index, const swale_meta_run** runs,
                             size_t* count) {
  return guarded([&]() -> Status {
    if (found == nullptr) return null_argument("swale_meta_found_runs_at", "found");
    if (runs == nullptr) return null_argument("swale_meta_found_runs_at", "runs");
    if (count == nullptr) return null_argument("swale_meta_found_runs_at", "count");
    if (index >= found->ends.size()) {
      return swale::invalid_argument("swale_meta_found_runs_at: run {}: there are {}", index,
                                     found->ends.size());
    }
    const size_t first = index == 0 ? 0 : found->ends[index - 1];
    *runs = found->runs.data() + first;
    *count = found->ends[index] - first;
    return {};
  });
}

void swale_meta_found_runs_free(swale_meta_found_runs* found) { delete found; }

int swale_meta_scan(swale_meta_file* file, uint64_t offset, swale_meta_segment_fn fn, void* context) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_scan", "file");
    if (fn == nullptr) return null_argument("swale_meta_scan", "fn");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_scan", *file->state));
    constexpr size_t kPieces = 16 * 1024;
    while (offset < meta::kOffsetEnd) {
      std::vector<meta::Extent> some;
      {
        Using client(*file->state);
        SWALE_RETURN_IF_ERROR(client->scan(file->file, offset, kPieces, &some, &offset));
      }
      for (const meta::Extent& each : some) {
        const swale_meta_segment segment = segment_of(each);
        if (fn(context, &segment) != 0) return {};
      }
    }
    return {};
  });
}

int swale_meta_stat(swale_meta* store, const char* name, swale_attributes* attributes) {
  return guarded([&]() -> Status {
    if (store == nullptr) return null_argument("swale_meta_stat", "meta");
    if (name == nullptr) return null_argument("swale_meta_stat", "name");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_meta_stat", "attributes", attributes));
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_stat", *store->state));
    Using client(*store->state);
    SWALE_ASSIGN_OR_RETURN(const meta::Attributes found, client->stat(name));
    swale::capi::fill_struct(attributes, {.struct_bytes = 0,
                                          .size = found.size,
                                          .generation = found.generation,
                                          .mode = found.mode,
                                          .sealed = found.sealed ? 1u : 0u,
                                          .created_ns = found.created_ns,
                                          .modified_ns = found.modified_ns});
    return {};
  });
}

int swale_meta_truncate(swale_meta_file* file, uint64_t size) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_truncate", "file");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_truncate", *file->state));
    Using client(*file->state);
    return client->truncate(&file->file, size, swale::capi::now_ns());
  });
}

int swale_meta_seal(swale_meta_file* file) {
  return guarded([&]() -> Status {
    if (file == nullptr) return null_argument("swale_meta_seal", "file");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_seal", *file->state));
    Using client(*file->state);
    return client->seal(&file->file);
  });
}

int swale_meta_remove(swale_meta* store, const char* name) {
  return guarded([&]() -> Status {
    if (store == nullptr) return null_argument("swale_meta_remove", "meta");
    if (name == nullptr) return null_argument("swale_meta_remove", "name");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_remove", *store->state));
    Using client(*store->state);
    return client->remove(name);
  });
}

int swale_meta_relocate(swale_meta* store, uint32_t from, uint64_t begin, uint64_t end, uint32_t to,
                        uint64_t address) {
  return guarded([&]() -> Status {
    if (store == nullptr) return null_argument("swale_meta_relocate", "meta");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_relocate", *store->state));
    if (begin > end || from == meta::kHoleLog || to == meta::kHoleLog) {
      return swale::invalid_argument(
          "swale_meta_relocate: bytes {} to {} of log {} to log {}: expected an "
          "ascending range and numbers below 2^32 - 1",
          begin, end, from, to);
    }
    Using client(*store->state);
    return client->relocate({from, begin, end, {to, address}});
  });
}

int swale_meta_stats(swale_meta* store, swale_stats** stats) {
  return guarded([&]() -> Status {
    if (store == nullptr) return null_argument("swale_meta_stats", "meta");
    if (stats == nullptr) return null_argument("swale_meta_stats", "stats");
    SWALE_RETURN_IF_ERROR(check_open("swale_meta_stats", *store->state));
    Using client(*store->state);
    SWALE_ASSIGN_OR_RETURN(swale::Counters all, client->stats());
    *stats = std::make_unique<swale_stats>(swale_stats{std::move(all)}).release();
    return {};
  });
}

}  // extern "C"
