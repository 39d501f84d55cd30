#include "preload/massive_engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/messages.h"
#include "preload/next_calls.h"

namespace swale::preload {

constinit Library library = {};
constinit std::atomic<MassiveProcess*> own = nullptr;
constinit pthread_mutex_t tables_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit pthread_mutex_t engine_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit pthread_mutex_t reader_mutex = PTHREAD_MUTEX_INITIALIZER;

namespace {

constexpr pid_t kSettling = -1;

constinit pthread_mutex_t loading_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit std::atomic<bool> loaded = false, loading = false;
constinit bool parents = false;  // libswale was loaded before the fork, whose threads are not here
constinit uintptr_t library_begin = 0, library_end = 0;

pid_t own_process() { return static_cast<pid_t>(raw(SYS_getpid)); }

template <class Function>
bool find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  return *function != nullptr;
}

int note_range(dl_phdr_info* info, size_t, void* base) {
  if (info->dlpi_addr != *static_cast<ElfW(Addr)*>(base)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (library_begin == 0 || begin < library_begin) library_begin = begin;
    if (begin + part.p_memsz > library_end) library_end = begin + part.p_memsz;
  }
  return 1;
}

// Installed, this library is in lib/swale-VERSION, and libswale in lib. Else as the linker finds it.
void* open_library() {
  constexpr char kName[] = "libswale.so." SWALE_LIBRARY_VERSION, kBeside[] = "/../";
  Dl_info own;
  char beside[PATH_MAX];
  const bool known = ::dladdr(&massive_known, &own) != 0 && own.dli_fname != nullptr;
  const char* const slash = known ? strrchr(own.dli_fname, '/') : nullptr;
  const size_t folder = slash != nullptr ? static_cast<size_t>(slash - own.dli_fname) : sizeof beside;
  if (folder + sizeof kBeside + sizeof kName <= sizeof beside) {
    memcpy(beside, own.dli_fname, folder);
    memcpy(beside + folder, kBeside, sizeof kBeside);
    memcpy(beside + folder + sizeof kBeside - 1, kName, sizeof kName);
    if (::access(beside, R_OK) == 0) return ::dlopen(beside, RTLD_NOW | RTLD_LOCAL);
  }
  return ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

int errno_of(int code) noexcept {
  switch (code) {
    case SWALE_INVALID_ARGUMENT:
      return EINVAL;
    case SWALE_NO_SPACE:
      return ENOSPC;
    case SWALE_RESOURCE_EXHAUSTED:
      return ENOMEM;
    case SWALE_BUSY:
      return EBUSY;
    case SWALE_DEADLINE_EXCEEDED:
      return ETIMEDOUT;
    default:
      return EIO;
  }
}

int failed(const char* what, const char* path, int code) noexcept {
  tell("%s: %s: %s", path, what, library.last_error());
  errno = errno_of(code);
  return -1;
}

bool make_own() noexcept {
  if (own.load() != nullptr) return true;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  const long made = raw(SYS_mmap, nullptr, 4096L, PROT_READ | PROT_WRITE, kFlags, -1, 0L);
  if (made == -1) return false;
  auto* const mine = reinterpret_cast<MassiveProcess*>(made);
  mine->id.store(own_process());
  MassiveProcess* nobodys = nullptr;
  if (raw(SYS_madvise, mine, 4096L, MADV_WIPEONFORK) == 0 && own.compare_exchange_strong(nobodys, mine))
    return true;
  raw(SYS_munmap, mine, 4096L);
  return nobodys != nullptr;
}

void settle_after_fork() noexcept {
  MassiveProcess& page = *own.load();
  pid_t seen = 0;
  if (!page.id.compare_exchange_strong(seen, kSettling)) {
    while (page.id.load(std::memory_order_acquire) == kSettling) raw(SYS_sched_yield);
    return;
  }
  for (pthread_mutex_t* each : {&tables_mutex, &engine_mutex, &reader_mutex, &loading_mutex})
    *each = PTHREAD_MUTEX_INITIALIZER;
  parents = parents || loading.load();
  forget_engines();
  forget_descriptors();
  page.id.store(own_process(), std::memory_order_release);
}

bool is_borrowed_memory() noexcept {
  const MassiveProcess* const page = own.load(std::memory_order_acquire);
  return page != nullptr && page->id.load(std::memory_order_acquire) != own_process();
}

bool load(const char* path) noexcept {
  settle();
  if (parents) {
    tell("%s: a child of fork cannot use it: its parent has libswale's threads; do it in the parent, or exec",
         path);
    errno = EPERM;
    return false;
  }
  if (loaded.load()) return true;
  const Locked lock(loading_mutex);
  if (loaded.load()) return true;
  loading.store(true);
  void* const handle = open_library();
  if (handle == nullptr) {
    tell("%s: a massive directory needs libswale, which does not load: %s", path, ::dlerror());
    errno = EIO;
    return false;
  }
  Library& to = library;
  if (!find(handle, "swale_job_open", &to.job_open) || !find(handle, "swale_job_close", &to.job_close) ||
      !find(handle, "swale_dir_open", &to.dir_open) || !find(handle, "swale_dir_append", &to.dir_append) ||
      !find(handle, "swale_dir_epoch_end", &to.dir_epoch_end) ||
      !find(handle, "swale_dir_close", &to.dir_close) ||
      !find(handle, "swale_reader_open", &to.reader_open) ||
      !find(handle, "swale_reader_close", &to.reader_close) ||
      !find(handle, "swale_reader_refresh", &to.reader_refresh) ||
      !find(handle, "swale_reader_get", &to.reader_get) ||
      !find(handle, "swale_values_count", &to.values_count) ||
      !find(handle, "swale_values_at", &to.values_at) ||
      !find(handle, "swale_values_free", &to.values_free) ||
      !find(handle, "swale_reader_epoch_count", &to.reader_epoch_count) ||
      !find(handle, "swale_reader_epoch_info", &to.reader_epoch_info) ||
      !find(handle, "swale_last_error", &to.last_error)) {
    tell("%s: libswale lacks a function: it is of another release", path);
    errno = EIO;
    return false;
  }
  const auto* const map = static_cast<const link_map*>(handle);
  ElfW(Addr) base = map->l_addr;
  ::dl_iterate_phdr(note_range, &base);
  loaded.store(true);
  return true;
}

bool is_libswale(const void* caller) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  return at >= library_begin && at < library_end;
}

}  // namespace swale::preload
