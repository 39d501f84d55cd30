#include "fuse/mount.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "fs/tier_fs.h"
#include "fuse/idle_nodes.h"
#include "fuse/kept_blocks.h"
#include "fuse/mounted.h"
#include "fuse/tree_trust.h"
#include "io/posix_device.h"

namespace swale::fuse {
namespace {

bool is_within(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  const auto relative = inner.lexically_relative(outer);
  return !relative.empty() && *relative.begin() != "..";
}

// The mountpoint is a directory, and neither hides the store's directories nor lies in them.
Status check_mountpoint(const MountOptions& options) {
  SWALE_RETURN_IF_ERROR(expect_mountpoint(options.mountpoint));
  std::error_code failed;
  const auto mountpoint = std::filesystem::canonical(options.mountpoint, failed);
  for (const std::string& other : {options.store.ssd_directory, options.store.backing_directory}) {
    const auto path = std::filesystem::weakly_canonical(other, failed);
    if (is_within(mountpoint, path) || is_within(path, mountpoint))
      return invalid_argument("{}: the mountpoint must lie outside of {} and must not hide it",
                              mountpoint.string(), path.string());
  }
  if (options.trace_file.empty()) return {};
  const auto trace = std::filesystem::weakly_canonical(options.trace_file, failed);
  const auto backing = std::filesystem::weakly_canonical(options.store.backing_directory, failed);
  if (is_within(trace, mountpoint) || is_within(trace, backing))
    return invalid_argument("{}: the trace must lie outside of the mountpoint and of {}", trace.string(),
                            backing.string());
  return {};
}

// Nobody tells when another process gives its lock up: looks again until then.
Result<std::unique_ptr<tier::Store>> open_store(io::Device& device, const MountOptions& options) {
  constexpr useconds_t kLookEveryUs = 20'000;
  const SignalsBlocked blocked;
  const Nanos end = system_clock().now() + options.wait;
  for (;;) {
    auto store = tier::Store::open(device, options.store);
    if (store.status().code() != Code::kBusy || system_clock().now() >= end) return store;
    ::usleep(kLookEveryUs);
  }
}

Result<std::unique_ptr<tier::TraceWriter>> open_trace(io::Device& device, const MountOptions& options) {
  if (options.trace_file.empty()) return std::unique_ptr<tier::TraceWriter>();
  const SignalsBlocked blocked;
  return tier::TraceWriter::open(device, options.trace_file);
}

Status serve(io::Device& device, const MountOptions& options, tier::Store* store, size_t descriptors) {
  SWALE_ASSIGN_OR_RETURN(const auto trace, open_trace(device, options));
  SWALE_ASSIGN_OR_RETURN(const auto fs,
                         fs::TierFs::open(*store, options.store.backing_directory, trace.get()));
  if (options.all_as_this_process) fs->never_switch();
  fs->call_after_mkdir(options.made_directory);
  Mounted mounted;
  mounted.mountpoint = options.mountpoint;
  mounted.name = "swale:" + options.store.backing_directory;
  mounted.allow_other = options.allow_other;
  mounted.threads = options.threads;
  mounted.nodes_max = options.nodes_max;
  return serve_mounted(mounted, fs.get(), descriptors, [&] {
    if (options.ready) options.ready(store->recovery());
  });
}

// Of a mount that serves others: as root, or with the rights of one user.
Status check_others(const MountOptions& options) {
  if (!options.allow_other) return {};
  SWALE_ASSIGN_OR_RETURN(const auto identity, fs::Identity::of_this_process());
  const std::string& backing = options.store.backing_directory;
  if (!identity.switches()) return options.trust_tree ? Status() : check_trust(backing);
  if (const std::string warning = warning_of_kept_blocks(backing); !warning.empty()) log_warn("{}", warning);
  return {};
}

}  // namespace

Status run_mount(const MountOptions& options) {
  SWALE_RETURN_IF_ERROR(check_mountpoint(options));
  SWALE_RETURN_IF_ERROR(check_others(options));
  const size_t descriptors = raise_descriptor_limit();
  // With it, root's flushes would pass over the quotas of the files' owners.
  SWALE_RETURN_IF_ERROR(fs::give_up_capability(CAP_SYS_RESOURCE));
  MountOptions used = options;
  used.store.open_files_max = std::min(options.store.open_files_max, store_files_max_of(descriptors));
  io::PosixDevice files;
  io::Device& device = options.device ? *options.device : files;
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, used));
  for (const Status& damaged : store->recovery().damaged) log_error("{}", damaged.message());
  const Status served = serve(device, used, store.get(), descriptors);
  const Status closed = store->close(served.ok() ? options.at_unmount : tier::Store::AtClose::kKeep);
  return served.ok() ? closed : served;
}

}  // namespace swale::fuse
