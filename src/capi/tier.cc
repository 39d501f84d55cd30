#include <memory>
#include <utility>

#include "base/plain_text.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "iond/named_files.h"
#include "tier/store/serving_options.h"
#include "tier/store/tier_counters.h"

namespace swale::capi {

struct TierState {
  TierState() = default;
  TierState(const TierState&) = delete;

  OwnProcess process;
  io::PosixDevice device;
  std::unique_ptr<tier::Store> store;  // null after close
  std::optional<iond::NamedFiles> files;
};

namespace {

Result<tier::StoreOptions> tier_options(const char* backing, const char* ssd, std::string_view text,
                                        io::Device& device) {
  SWALE_RETURN_IF_ERROR(check_process_variables());
  SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kTier, text, process_environment));
  return tier::tier_store_options(config, device, ssd, backing);
}

// A mistyped path makes no log.
Status check_log(io::Device& device, const std::string& ssd, int flags) {
  SWALE_ASSIGN_OR_RETURN(const bool there, device.exists(ssd + "/log"));
  if (there && (flags & SWALE_EXCLUSIVE) != 0)
    return error(Code::kAlreadyExists, Scope::kFile, "{}: has a log already", ssd);
  if (there || (flags & (SWALE_CREATE | SWALE_ACCEPT_LOSS)) != 0) return {};
  return error(Code::kNotFound, Scope::kFile,
               "{}: has no log of a tiered write buffer; correct the path, or make one with SWALE_CREATE",
               ssd);
}

Status open_tier(const char* backing, const char* ssd, int flags, std::string_view text,
                 std::shared_ptr<TierState>* out) {
  constexpr int kKnown = SWALE_CREATE | SWALE_EXCLUSIVE | SWALE_ACCEPT_LOSS;
  if ((flags & ~kKnown) != 0 || (flags & (SWALE_CREATE | SWALE_EXCLUSIVE)) == SWALE_EXCLUSIVE)
    return invalid_argument(
        "swale_tier_open: flags {:#x}: expected 0, or SWALE_CREATE, which SWALE_EXCLUSIVE may go with, and "
        "SWALE_ACCEPT_LOSS",
        static_cast<unsigned>(flags));
  auto state = std::make_shared<TierState>();
  SWALE_ASSIGN_OR_RETURN(tier::StoreOptions options, tier_options(backing, ssd, text, state->device));
  options.accept_loss = (flags & SWALE_ACCEPT_LOSS) != 0;
  SWALE_RETURN_IF_ERROR(check_log(state->device, options.ssd_directory, flags));
  SWALE_ASSIGN_OR_RETURN(state->store, tier::Store::open(state->device, options));
  SWALE_ASSIGN_OR_RETURN(state->files, iond::NamedFiles::open(state->store.get(), options.backing_directory));
  *out = std::move(state);
  return {};
}

}  // namespace
}  // namespace swale::capi

struct swale_tier {
  std::shared_ptr<swale::capi::TierState> state;
};
struct swale_tier_file {
  std::shared_ptr<swale::capi::TierState> state;
  swale::iond::NamedFiles::File file;
};

namespace {

using swale::Status;
using swale::capi::guarded;
using swale::capi::null_argument;
namespace tier = swale::tier;
namespace iond = swale::iond;

// The open buffer of a handle.
template <class Handle>
swale::Result<swale::capi::TierState*> tier_of(const char* call, const char* argument, const Handle* handle) {
  if (handle == nullptr) return null_argument(call, argument);
  SWALE_RETURN_IF_ERROR(
      swale::capi::check_process(call, handle->state->process, "open the buffer in the child"));
  if (!handle->state->store) return swale::invalid_argument("{}: the tiered write buffer is closed", call);
  return handle->state.get();
}

std::string words_of(const tier::LostBytes& lost) {
  const std::string range = lost.length == 0
                                ? std::string("any of its newest bytes")
                                : fmt::format("bytes {} to {}", lost.offset, lost.offset + lost.length);
  return swale::plain_text(fmt::format(
      "{}: {} are lost: {}; write them again, or open with SWALE_ACCEPT_LOSS", lost.path, range, lost.what));
}

}  // namespace

extern "C" {

int swale_tier_open(const char* backing, const char* ssd, int flags, const char* options,
                    swale_tier** opened) {
  return guarded([&]() -> Status {
    if (backing == nullptr) return null_argument("swale_tier_open", "backing");
    if (ssd == nullptr) return null_argument("swale_tier_open", "ssd");
    if (opened == nullptr) return null_argument("swale_tier_open", "tier");
    auto handle = std::make_unique<swale_tier>();
    SWALE_RETURN_IF_ERROR(
        swale::capi::open_tier(backing, ssd, flags, swale::capi::text_or_empty(options), &handle->state));
    *opened = handle.release();
    return {};
  });
}

int swale_tier_close(swale_tier* closed) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_tier> handle(closed);
    if (closed == nullptr) return {};
    const auto state = tier_of("swale_tier_close", "tier", closed);
    if (!state.ok()) {
      static_cast<void>(
          handle.release());  // in a child of fork: what it refers to would wait for its threads
      return state.status();
    }
    const Status status = (*state)->store->close(tier::Store::AtClose::kKeep);
    (*state)->files.reset();
    (*state)->store.reset();
    return status;
  });
}

int swale_tier_file_open(swale_tier* in, const char* name, int flags, uint32_t mode, swale_tier_file** file) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_file_open", "tier", in));
    if (name == nullptr) return null_argument("swale_tier_file_open", "name");
    if (file == nullptr) return null_argument("swale_tier_file_open", "file");
    SWALE_RETURN_IF_ERROR(swale::capi::check_file_flags("swale_tier_file_open", flags));
    auto handle = std::make_unique<swale_tier_file>();
    handle->state = in->state;
    SWALE_ASSIGN_OR_RETURN(handle->file, state->files->open_file(name, static_cast<uint32_t>(flags), mode));
    *file = handle.release();
    return {};
  });
}

int swale_tier_file_close(swale_tier_file* file) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_tier_file> handle(file);
    if (file == nullptr) return {};
    const auto state = tier_of("swale_tier_file_close", "file", file);
    if (!state.ok()) {
      if (!file->state->process.is_this()) static_cast<void>(handle.release());
      return state.status();
    }
    return (*state)->files->close_file(&file->file);
  });
}

int swale_tier_write(swale_tier_file* file, uint64_t offset, const void* data, size_t bytes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_write", "file", file));
    SWALE_ASSIGN_OR_RETURN(const swale::Bytes all,
                           swale::capi::bytes_argument("swale_tier_write", "data", data, bytes));
    return state->files->write(file->file, offset, all);
  });
}

int swale_tier_read(swale_tier_file* file, uint64_t offset, void* data, size_t bytes, size_t* got) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_read", "file", file));
    if (data == nullptr && bytes != 0) return null_argument("swale_tier_read", "data");
    if (got == nullptr) return null_argument("swale_tier_read", "got");
    SWALE_ASSIGN_OR_RETURN(*got, state->files->read(file->file, offset, {static_cast<char*>(data), bytes}));
    return {};
  });
}

int swale_tier_truncate(swale_tier_file* file, uint64_t size) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_truncate", "file", file));
    return state->files->truncate(file->file, size);
  });
}

int swale_tier_sync(swale_tier_file* file) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_sync", "file", file));
    return state->files->sync(file->file);
  });
}

int swale_tier_file_stat(swale_tier_file* file, swale_attributes* attributes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_file_stat", "file", file));
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_tier_file_stat", "attributes", attributes));
    swale::capi::show_attributes(state->files->stat(file->file), attributes);
    return {};
  });
}

int swale_tier_stat(swale_tier* in, const char* name, swale_attributes* attributes) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_stat", "tier", in));
    if (name == nullptr) return null_argument("swale_tier_stat", "name");
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_tier_stat", "attributes", attributes));
    SWALE_ASSIGN_OR_RETURN(const auto found, state->files->stat(name));
    swale::capi::show_attributes(found, attributes);
    return {};
  });
}

int swale_tier_remove(swale_tier* in, const char* name) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_remove", "tier", in));
    if (name == nullptr) return null_argument("swale_tier_remove", "name");
    return state->files->remove(name);
  });
}

int swale_tier_rename(swale_tier* in, const char* from, const char* to) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_rename", "tier", in));
    if (from == nullptr) return null_argument("swale_tier_rename", "from");
    if (to == nullptr) return null_argument("swale_tier_rename", "to");
    return state->files->rename(from, to);
  });
}

int swale_tier_drain(swale_tier* in) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_drain", "tier", in));
    return state->store->drain();
  });
}

int swale_tier_losses(swale_tier* in, swale_tier_loss_fn fn, void* context) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_losses", "tier", in));
    if (fn == nullptr) return null_argument("swale_tier_losses", "fn");
    for (const tier::LostBytes& each : state->store->losses()) {
      if (fn(context, words_of(each).c_str()) != 0) return {};
    }
    for (const tier::KeptBytes& each : state->store->recovery().kept) {
      if (fn(context, swale::plain_text(each.text().message()).c_str()) != 0) return {};
    }
    return {};
  });
}

int swale_tier_stats(swale_tier* in, swale_stats** stats) {
  return guarded([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(auto* const state, tier_of("swale_tier_stats", "tier", in));
    if (stats == nullptr) return null_argument("swale_tier_stats", "stats");
    *stats = std::make_unique<swale_stats>(swale_stats{tier::tier_counters(*state->store)}).release();
    return {};
  });
}

}  // extern "C"
