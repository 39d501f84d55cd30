#include "iond/iond.h"

#include <memory>
#include <utility>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "net/job/agree.h"

namespace swale::capi {

struct IondState {
  std::shared_ptr<JobState> job;        // outlives the rest
  std::unique_ptr<iond::Iond> servers;  // null after close
};

namespace {

Status open_iond(swale_job* job, int flags, std::string_view text, std::shared_ptr<IondState>* out) {
  const auto read_options = [&]() -> Result<iond::IondOptions> {
    SWALE_RETURN_IF_ERROR(check_process_variables());
    if (flags != 0)
      return invalid_argument("swale_iond_open: flags {:#x}: expected 0", static_cast<unsigned>(flags));
    SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kIond, text, process_environment));
    return iond::iond_options(config);
  };
  const auto options = read_options();
  auto state = std::make_shared<IondState>();
  state->job = job->state;
  SWALE_ASSIGN_OR_RETURN(state->servers,
                         iond::Iond::open(*job->state->job, options.ok() ? *options : iond::IondOptions(),
                                          std::nullopt, options.status()));
  ++job->state->open_directories;
  *out = std::move(state);
  return {};
}

}  // namespace
}  // namespace swale::capi

struct swale_iond {
  std::shared_ptr<swale::capi::IondState> state;
};
struct swale_iond_file {
  std::shared_ptr<swale::capi::IondState> state;
  swale::iond::IondFile file;
};

namespace {

using swale::Status;
using swale::capi::guarded;
using swale::capi::null_argument;
namespace iond = swale::iond;

// The open servers of a handle.
template <class Handle>
swale::Result<iond::Iond*> servers_of(const char* call, const char* argument, const Handle* handle) {
  if (handle == nullptr) return null_argument(call, argument);
  SWALE_RETURN_IF_ERROR(swale::capi::check_process(call, *handle->state->job));
  if (!handle->state->servers) return swale::invalid_argument("{}: the I/O servers are closed", call);
  return handle->state->servers.get();
}

}  // namespace

extern "C" {

int swale_iond_open(swale_job* job, int flags, const char* options, swale_iond** iond) {
  return guarded([&]() -> Status {
    if (job == nullptr) return null_argument("swale_iond_open", "job");
    if (iond == nullptr) return null_argument("swale_iond_open", "iond");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_iond_open", *job->state));
    auto handle = std::make_unique<swale_iond>();
    SWALE_RETURN_IF_ERROR(
        swale::capi::open_iond(job, flags, swale::capi::text_or_empty(options), &handle->state));
    *iond = handle.release();
    return {};
  });
}

int swale_iond_close(swale_iond* iond) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_iond> handle(iond);
    if (iond == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_iond_close", *iond->state->job, &handle));
    swale::capi::IondState& state = *iond->state;
    --state.job->open_directories;
    const Status closed = state.servers->close();
    state.servers.reset();
    return closed;
  });
}

int swale_iond_file_open(swale_iond* iond, const char* name, int flags, uint32_t mode,
                         swale_iond_file** file) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_file_open", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_file_open", "name");
    if (file == nullptr) return null_argument("swale_iond_file_open", "file");
    SWALE_RETURN_IF_ERROR(swale::capi::check_file_flags("swale_iond_file_open", flags));
    auto handle = std::make_unique<swale_iond_file>();
    handle->state = iond->state;
    SWALE_ASSIGN_OR_RETURN(handle->file, servers->open_file(name, static_cast<uint32_t>(flags), mode));
    *file = handle.release();
    return {};
  });
}

int swale_iond_file_close(swale_iond_file* file) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_iond_file> handle(file);
    if (file == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_iond_file_close", *file->state->job, &handle));
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_file_close", "file", file));
    return servers->close_file(&file->file);
  });
}

int swale_iond_write(swale_iond_file* file, uint64_t offset, const void* data, size_t bytes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_write", "file", file));
    SWALE_ASSIGN_OR_RETURN(const swale::Bytes all,
                           swale::capi::bytes_argument("swale_iond_write", "data", data, bytes));
    return servers->write(file->file, offset, all);
  });
}

int swale_iond_read(swale_iond_file* file, uint64_t offset, void* data, size_t bytes, size_t* got) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_read", "file", file));
    if (data == nullptr && bytes != 0) return null_argument("swale_iond_read", "data");
    if (got == nullptr) return null_argument("swale_iond_read", "got");
    SWALE_ASSIGN_OR_RETURN(*got, servers->read(file->file, offset, {static_cast<char*>(data), bytes}));
    return {};
  });
}

int swale_iond_truncate(swale_iond_file* file, uint64_t size) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_truncate", "file", file));
    return servers->truncate(file->file, size);
  });
}

int swale_iond_file_stat(swale_iond_file* file, swale_attributes* attributes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_file_stat", "file", file));
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_iond_file_stat", "attributes", attributes));
    SWALE_ASSIGN_OR_RETURN(const auto found, servers->attributes(file->file));
    swale::capi::show_attributes(found, attributes);
    return {};
  });
}

int swale_iond_stat(swale_iond* iond, const char* name, swale_attributes* attributes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_stat", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_stat", "name");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_iond_stat", "attributes", attributes));
    SWALE_ASSIGN_OR_RETURN(const auto found, servers->stat(name));
    if (found.kind == iond::FileKind::kSymlink)
      return swale::invalid_argument("swale_iond_stat: {}: is a symbolic link, which a mount follows", name);
    swale::capi::show_attributes(found, attributes);
    return {};
  });
}

int swale_iond_sync(swale_iond_file* file) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_sync", "file", file));
    return servers->sync(file->file);
  });
}

int swale_iond_remove(swale_iond* iond, const char* name) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_remove", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_remove", "name");
    return servers->remove(name);
  });
}

int swale_iond_rename(swale_iond* iond, const char* from, const char* to) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_rename", "iond", iond));
    if (from == nullptr) return null_argument("swale_iond_rename", "from");
    if (to == nullptr) return null_argument("swale_iond_rename", "to");
    return servers->rename(from, to);
  });
}

int swale_iond_mkdir(swale_iond* iond, const char* name, uint32_t mode) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_mkdir", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_mkdir", "name");
    return servers->make_directory(name, mode);
  });
}

int swale_iond_rmdir(swale_iond* iond, const char* name) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_rmdir", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_rmdir", "name");
    return servers->remove_directory(name);
  });
}

int swale_iond_list(swale_iond* iond, const char* name, swale_iond_entry_fn fn, void* context) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_list", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_list", "name");
    if (fn == nullptr) return null_argument("swale_iond_list", "fn");
    return servers->list(name, [&](const iond::IondEntry& entry) {
      const bool link = entry.kind == iond::IondEntryKind::kSymlink;
      return fn(context, entry.name.c_str(), link ? SWALE_IOND_OTHER_ENTRY : static_cast<int>(entry.kind)) ==
             0;
    });
  });
}

int swale_iond_set_mode(swale_iond* iond, const char* name, uint32_t mode) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_set_mode", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_set_mode", "name");
    return servers->set_attributes(name, {.mode = mode});
  });
}

int swale_iond_set_modified(swale_iond* iond, const char* name, int64_t modified_ns) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_set_modified", "iond", iond));
    if (name == nullptr) return null_argument("swale_iond_set_modified", "name");
    return servers->set_attributes(name, {.modified_ns = modified_ns});
  });
}

int swale_iond_drain(swale_iond* iond) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_drain", "iond", iond));
    return servers->drain();
  });
}

int swale_iond_stats(swale_iond* iond, swale_stats** stats) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(iond::Iond* const servers, servers_of("swale_iond_stats", "iond", iond));
    if (stats == nullptr) return null_argument("swale_iond_stats", "stats");
    SWALE_ASSIGN_OR_RETURN(swale::Counters all, servers->stats());
    *stats = std::make_unique<swale_stats>(swale_stats{std::move(all)}).release();
    return {};
  });
}

}  // extern "C"
