#include "fuse/mount.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "base/mutex.h"
#include "fs/tier_fs.h"
#include "fuse/idle_nodes.h"
#include "fuse/kept_blocks.h"
#include "fuse/session.h"
#include "fuse/tree_trust.h"
#include "fuse/wire.h"
#include "io/posix_device.h"

namespace swale::fuse {
namespace {

// What libfuse says of the mount: the reason that its return values do not have.
class FuseWords {
 public:
  FuseWords() {
    const MutexLock lock(mutex());
    words().clear();
    fuse_set_log_func(listen);
  }
  static std::string said() {
    const MutexLock lock(mutex());
    return words();
  }

 private:
  static Mutex& mutex() {
    static Mutex one;
    return one;
  }
  static std::string& words() {
    static std::string text;
    return text;
  }
  static void listen(fuse_log_level, const char* format, va_list arguments) {
    char line[512];
    ::vsnprintf(line, sizeof(line), format, arguments);
    std::string text(line);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    log_warn("{}", text);
    const MutexLock lock(mutex());
    words() = std::move(text);
  }
};

bool is_within(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  const auto relative = inner.lexically_relative(outer);
  return !relative.empty() && *relative.begin() != "..";
}

// The mountpoint is a directory, and neither hides the store's directories nor lies in them.
Status check_mountpoint(const MountOptions& options) {
  struct stat found;
  if (::stat(options.mountpoint.c_str(), &found) != 0) {
    const int failed = errno;
    if (failed == ENOTCONN)
      return error(Code::kBusy, Scope::kFile,
                   "{}: an earlier mount ended without being unmounted; run: fusermount3 -u {}",
                   options.mountpoint, options.mountpoint);
    return errno_status(failed, options.mountpoint + ": the mountpoint");
  }
  if (!S_ISDIR(found.st_mode))
    return invalid_argument("{}: the mountpoint is not a directory", options.mountpoint);
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

// Each file that the kernel knows takes a descriptor, and so does each that is open or has bytes in the log.
// The limit.
size_t raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  constexpr rlim_t kWanted = 1u << 20;
  const rlimit wanted = {kWanted, std::max(limit.rlim_max, kWanted)};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return kWanted;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

// Threads that begin while it lives leave signals to the thread that serves the mount.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

struct Session {
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_session* session = nullptr;
  fuse_loop_config* config = nullptr;
  std::unique_ptr<IdleNodes> idle;
  bool handles_signals = false;
  bool mounted = false;

  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (idle) idle->stop();
    if (mounted) fuse_session_unmount(session);
    if (handles_signals) fuse_remove_signal_handlers(session);
    if (session != nullptr) fuse_session_destroy(session);
    if (config != nullptr) fuse_loop_cfg_destroy(config);
    fuse_opt_free_args(&arguments);
  }
};

Status failed_mount(const MountOptions& options, std::string_view step) {
  const std::string said = FuseWords::said();
  return error(Code::kIoError, Scope::kFatal,
               "{}: {}: {}; check that /dev/fuse is there and readable, that fusermount3 is installed, and, "
               "for allow_other, that /etc/fuse.conf has user_allow_other",
               options.mountpoint, step, said.empty() ? "libfuse gives no reason" : said);
}

Status start(const MountOptions& options, fs::FileSystem* fs, Session* session) {
  char* text = nullptr;
  const std::string name = "fsname=swale:" + options.store.backing_directory;
  bool made = fuse_opt_add_arg(&session->arguments, "swale") == 0 &&
              fuse_opt_add_opt(&text, "default_permissions,subtype=swale") == 0 &&
              fuse_opt_add_opt_escaped(&text, name.c_str()) == 0;
  if (made && options.allow_other) made = fuse_opt_add_opt(&text, "allow_other") == 0;
  made = made && fuse_opt_add_arg(&session->arguments, "-o") == 0 &&
         fuse_opt_add_arg(&session->arguments, text) == 0;
  std::free(text);
  if (!made) return Status::out_of_memory();
  const fuse_lowlevel_ops& operations = session_operations();
  session->session = fuse_session_new(&session->arguments, &operations, sizeof(operations), fs);
  if (session->session == nullptr) return failed_mount(options, "a FUSE session");
  session->handles_signals = fuse_set_signal_handlers(session->session) == 0;
  if (fuse_session_mount(session->session, options.mountpoint.c_str()) != 0)
    return failed_mount(options, "mounting");
  session->mounted = true;
  SWALE_RETURN_IF_ERROR(use_wire(session->session));
  session->config = fuse_loop_cfg_create();
  if (session->config == nullptr) return Status::out_of_memory();
  fuse_loop_cfg_set_max_threads(session->config, options.threads);
  fuse_loop_cfg_set_idle_threads(session->config, options.threads);
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
  if (options.canary_mode_by_name) fs->canary_mode_by_name();
  Session session;
  SWALE_RETURN_IF_ERROR(start(options, fs.get(), &session));
  session.idle = std::make_unique<IdleNodes>(
      fs.get(), session.session, options.nodes_max > 0 ? options.nodes_max : nodes_max_of(descriptors));
  SWALE_RETURN_IF_ERROR(session.idle->start());
  if (options.ready) options.ready(store->recovery());
  const int ended = fuse_session_loop_mt(session.session, session.config);
  if (ended < 0) return errno_status(-ended, options.mountpoint + ": serving the mount");
  return {};
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
  const FuseWords words;
  io::PosixDevice files;
  io::Device& device = options.device ? *options.device : files;
  SWALE_ASSIGN_OR_RETURN(const auto store, open_store(device, used));
  for (const Status& damaged : store->recovery().damaged) log_error("{}", damaged.message());
  const Status served = serve(device, used, store.get(), descriptors);
  const Status closed = store->close(served.ok() ? options.at_unmount : tier::Store::AtClose::kKeep);
  return served.ok() ? closed : served;
}

}  // namespace swale::fuse
