// What massive directories by path need of libswale, which is loaded at the first use, and of their process.
//
// Threads: any. A child of fork has nothing of its parent's: the page `own` is wiped in it, and whoever comes
// first settles: mutexes that another thread held are new, engines and readers are nobody's, descriptors lead
// nowhere. So a call that may find itself in a child begins with settle().
#pragma once

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "preload/massive.h"
#include "swale/swale.h"

namespace swale::preload {

// The functions of libswale that are called here.
struct Library {
  decltype(&swale_job_open) job_open;
  decltype(&swale_job_close) job_close;
  decltype(&swale_dir_open) dir_open;
  decltype(&swale_dir_append) dir_append;
  decltype(&swale_dir_epoch_end) dir_epoch_end;
  decltype(&swale_dir_close) dir_close;
  decltype(&swale_reader_open) reader_open;
  decltype(&swale_reader_close) reader_close;
  decltype(&swale_reader_refresh) reader_refresh;
  decltype(&swale_reader_get) reader_get;
  decltype(&swale_values_count) values_count;
  decltype(&swale_values_at) values_at;
  decltype(&swale_values_free) values_free;
  decltype(&swale_reader_epoch_count) reader_epoch_count;
  decltype(&swale_reader_epoch_info) reader_epoch_info;
  decltype(&swale_last_error) last_error;
};
extern Library library;

// What attributes of a directory say of an epoch, when it begins.
struct Labels {
  bool has_step = false;
  int64_t step = 0;
  double time = __builtin_nan("");
  const char* wrong = nullptr;  // the attribute that is no number
};

struct MassiveDirectory {
  bool used = false;
  dev_t device = 0;
  ino_t inode = 0;
  std::atomic<uint32_t> epochs = 0;  // streams of it that are open and were never read
  std::atomic<swale_dir*> engine = nullptr;
  std::atomic<swale_reader*> reader = nullptr;
  bool failed = false;                     // the engine did not open: it is not asked again
  bool ended = false, end_failed = false;  // an epoch
  int64_t next_step = 0;
  Labels labels;
  char path[PATH_MAX] = {};
};

struct MassiveProcess {
  std::atomic<pid_t> id;
};
extern std::atomic<MassiveProcess*> own;  // null: no directory was ever known

// False: there is no memory.
bool make_own() noexcept;
void settle_after_fork() noexcept;
inline void settle() noexcept {
  MassiveProcess* const page = own.load(std::memory_order_acquire);
  if (page != nullptr && page->id.load(std::memory_order_acquire) <= 0) settle_after_fork();
}
// Whether this is a child of vfork, which has its parent's memory.
bool is_borrowed_memory() noexcept;
void forget_engines() noexcept;
void forget_descriptors() noexcept;

extern pthread_mutex_t tables_mutex;
// Held while the engine is opened. Libraries that libswale loads call opendir then, which takes the other.
extern pthread_mutex_t engine_mutex;
extern pthread_mutex_t reader_mutex;

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) {
    settle();
    ::pthread_mutex_lock(&mutex_);
  }
  ~Locked() { ::pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

int errno_of(int code) noexcept;
// -1, with errno set: it was said what failed.
int failed(const char* what, const char* path, int code) noexcept;

// Under the engine's mutex or the reader's. False: `path` cannot be used, and it was said why.
bool load(const char* path) noexcept;
bool is_libswale(const void* caller) noexcept;

// All that this process has of libswale is closed at its end; once for each call.
void close_at_exit() noexcept;

}  // namespace swale::preload
