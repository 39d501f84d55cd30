#include "fuse/mounted.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "base/mutex.h"
#include "fuse/idle_nodes.h"
#include "fuse/kernel_pages.h"
#include "fuse/served.h"
#include "fuse/session.h"
#include "fuse/watch.h"
#include "fuse/wire.h"

namespace swale::fuse {
namespace {

constexpr Nanos kLookForEnd = milliseconds(500);

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

struct Session {
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_session* session = nullptr;
  fuse_loop_config* config = nullptr;
  std::unique_ptr<IdleNodes> idle;
  std::unique_ptr<KernelPages> pages;
  bool handles_signals = false;
  bool mounted = false;

  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (idle) idle->stop();
    if (pages) pages->stop();
    if (mounted) fuse_session_unmount(session);
    if (handles_signals) fuse_remove_signal_handlers(session);
    if (session != nullptr) fuse_session_destroy(session);
    if (config != nullptr) fuse_loop_cfg_destroy(config);
    fuse_opt_free_args(&arguments);
  }
};

// Until the mount has ended. A signal marks the session and interrupts the wait of this thread. It interrupts
// nothing if another thread has taken it, or if it comes between this one's look at the mark and its wait, as
// one that follows SIGCONT may: then it is sent again.
int serve_requests(const Session& session) {
  const pthread_t self = ::pthread_self();
  Watch end(kLookForEnd, [&] {
    if (fuse_session_exited(session.session) != 0) ::pthread_kill(self, SIGTERM);
  });
  if (session.handles_signals)
    if (const Status failed = end.start("the thread that looks whether the mount is to end"); !failed.ok())
      log_warn("{}", failed.message());
  return fuse_session_loop_mt(session.session, session.config);
}

Status failed_mount(const Mounted& options, std::string_view step) {
  const std::string said = FuseWords::said();
  return error(
      Code::kIoError, Scope::kFatal,
      "{}: {}: {}; check that /dev/fuse is there and readable, that fusermount3 is installed, and, "
      "for allow_other, that /etc/fuse.conf has user_allow_other; where nothing can be mounted, swale run "
      "--no-mount has programs work in a job's tree without",
      options.mountpoint, step, said.empty() ? "libfuse gives no reason" : said);
}

Status start(const Mounted& options, Served* served, Session* session) {
  char* text = nullptr;
  const std::string name = "fsname=" + options.name;
  bool made = fuse_opt_add_arg(&session->arguments, "swale") == 0 &&
              fuse_opt_add_opt(&text, "default_permissions,subtype=swale") == 0 &&
              fuse_opt_add_opt_escaped(&text, name.c_str()) == 0;
  if (made && options.allow_other) made = fuse_opt_add_opt(&text, "allow_other") == 0;
  if (made && !options.trusts_files) made = fuse_opt_add_opt(&text, "nosuid,nodev") == 0;
  if (made && options.read_only) made = fuse_opt_add_opt(&text, "ro") == 0;
  made = made && fuse_opt_add_arg(&session->arguments, "-o") == 0 &&
         fuse_opt_add_arg(&session->arguments, text) == 0;
  std::free(text);
  if (!made) return Status::out_of_memory();
  const fuse_lowlevel_ops& operations = session_operations();
  session->session = fuse_session_new(&session->arguments, &operations, sizeof(operations), served);
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

}  // namespace

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

SignalsBlocked::SignalsBlocked() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

Status expect_mountpoint(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) {
    const int failed = errno;
    if (failed == ENOTCONN)
      return error(Code::kBusy, Scope::kFile,
                   "{}: an earlier mount ended without being unmounted; run: fusermount3 -u {}", path, path);
    return errno_status(failed, path + ": the mountpoint");
  }
  if (!S_ISDIR(found.st_mode)) return invalid_argument("{}: the mountpoint is not a directory", path);
  return {};
}

Status serve_mounted(const Mounted& mounted, fs::FileSystem* fs, size_t descriptors,
                     const std::function<void()>& ready) {
  const FuseWords words;
  Served served(*fs);
  Session session;  // ends before what it serves
  SWALE_RETURN_IF_ERROR(start(mounted, &served, &session));
  session.pages = std::make_unique<KernelPages>(fs, session.session);
  served.pages = session.pages.get();
  session.pages->start();
  session.idle = std::make_unique<IdleNodes>(
      fs, session.session, mounted.nodes_max > 0 ? mounted.nodes_max : nodes_max_of(descriptors));
  SWALE_RETURN_IF_ERROR(session.idle->start());
  ready();
  const int ended = serve_requests(session);
  if (fs->locks() != nullptr) fs->locks()->end_waits();  // while their requests are there
  if (ended < 0) return errno_status(-ended, mounted.mountpoint + ": serving the mount");
  return {};
}

}  // namespace swale::fuse
