#include "preload/massive.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "preload/massive_engine.h"
#include "preload/massive_pattern.h"
#include "preload/messages.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {

std::atomic<uint32_t> massive_known = 0;

namespace {

constexpr uint32_t kStreamsMax = 256;
constexpr size_t kFolderMax = 400;
constexpr char kManifestBegins[] = "{\"format\":\"swale-imd\"";  // docs/formats/manifest.md
constexpr size_t kAttributeMax = 64;
constexpr char kStepAttribute[] = "user.swale.step", kTimeAttribute[] = "user.swale.time";
constexpr char kWaitsAtMost[] = "imd.collective_deadline_s=600";

struct Stream {
  std::atomic<DIR*> stream = nullptr;
  MassiveDirectory* directory = nullptr;
  std::atomic<bool> listed = false;
};

// Of the last folder of this thread that matched.
struct Folder {
  uint32_t generation;
  size_t bytes;
  MassiveDirectory* directory;
  char text[kFolderMax];
};

constinit MassiveDirectory directories[kMassiveMax];
constinit Stream streams[kStreamsMax];
constinit std::atomic<uint32_t> generation = 1;  // changes when names may lead elsewhere
constinit swale_job* job = nullptr;
constinit std::atomic<pid_t> owner = 0;  // the process that has the engine
__attribute__((tls_model("initial-exec"))) constinit thread_local Folder last_folder = {};

// One step after the last epoch's.
bool find_next_step(MassiveDirectory& directory) {
  swale_reader* reader = nullptr;
  int code = library.reader_open(directory.path, nullptr, &reader);
  if (code != SWALE_OK) return failed("reading its epochs", directory.path, code) == 0;
  const int64_t count = library.reader_epoch_count(reader);
  directory.next_step = count;
  swale_epoch_info info = {};
  info.struct_bytes = sizeof info;
  if (count > 0) {
    code = library.reader_epoch_info(reader, count - 1, &info);
    if (code == SWALE_OK && info.step != INT64_MIN) directory.next_step = info.step + 1;
  }
  library.reader_close(reader);
  return code == SWALE_OK || failed("reading its last epoch", directory.path, code) == 0;
}

// Joins the job and opens the directory; all ranks do so, at their first value or at the epoch's end.
swale_dir* engine_of(MassiveDirectory& directory) {
  settle();
  if (swale_dir* const ready = directory.engine.load(std::memory_order_acquire)) return ready;
  const Locked lock(engine_mutex);
  if (swale_dir* const ready = directory.engine.load()) return ready;
  if (owner.load() != 0 && owner.load() != ::getpid()) {
    tell("%s: a child of fork cannot write here: its parent has the engine; write in the parent, or exec",
         directory.path);
    errno = EPERM;
    return nullptr;
  }
  errno = EIO;
  if (directory.failed || !load(directory.path)) return nullptr;
  if (job == nullptr) {
    owner.store(::getpid());  // first: a child that is forked meanwhile has nothing to join with
    const int code = library.job_open(nullptr, nullptr, &job);
    if (code != SWALE_OK) {
      directory.failed = true;
      failed("joining the job of its ranks", directory.path, code);
      return nullptr;
    }
  }
  swale_dir* opened = nullptr;
  const char* const limit = ::getenv("SWALE_IMD_COLLECTIVE_DEADLINE_S") == nullptr ? kWaitsAtMost : nullptr;
  const int code = library.dir_open(job, directory.path, SWALE_CREATE, limit, &opened);
  if (code != SWALE_OK || !find_next_step(directory)) {
    directory.failed = true;
    if (code != SWALE_OK) failed("opening it to write", directory.path, code);
    return nullptr;
  }
  close_at_exit();
  directory.engine.store(opened, std::memory_order_release);
  return opened;
}

// Collective, as main's return is for all ranks. What no closedir has committed is dropped, and said so.
void* finish(void*) {
  for (MassiveDirectory& each : directories) {
    if (swale_reader* const reader = each.reader.exchange(nullptr)) library.reader_close(reader);
    swale_dir* const engine = each.engine.exchange(nullptr);
    if (engine == nullptr) continue;
    const int code = library.dir_close(engine);
    if (code != SWALE_OK) failed("closing it at exit", each.path, code);
  }
  if (job != nullptr) library.job_close(job);
  job = nullptr;
  return nullptr;
}

// It is registered after each first call into the engine: it must come before the destructors of the statics
// that these calls have made, and the first of several does all. It has a thread of its own, since those of
// this thread's variables have run.
void finish_at_exit() {
  settle();
  bool has_readers = false;
  for (const MassiveDirectory& each : directories) has_readers |= each.reader.load() != nullptr;
  if (owner.load() != ::getpid() && !has_readers) return;
  pthread_t thread;
  if (const int error = ::pthread_create(&thread, nullptr, finish, nullptr); error != 0)
    tell("no thread to leave the job at exit: %s; the other ranks wait until they miss this one",
         ::strerror(error));
  else
    ::pthread_join(thread, nullptr);
  owner.store(-1);
}

// The text of the open directory's attribute `name`, if it has one.
bool attribute_of(int fd, const char* name, char (&text)[kAttributeMax]) {
  const ssize_t bytes = ::fgetxattr(fd, name, text, sizeof text - 1);
  text[bytes > 0 ? bytes : 0] = '\0';
  return bytes >= 0 || errno == ERANGE;
}

// What the attributes say of the epoch that begins, if they say something.
void read_labels(int fd, Labels* labels) {
  char text[kAttributeMax], *end = nullptr;
  *labels = {};
  if (attribute_of(fd, kStepAttribute, text)) {
    errno = 0;
    labels->step = ::strtoll(text, &end, 10);
    labels->has_step = true;
    if (end == text || *end != '\0' || errno != 0) labels->wrong = kStepAttribute;
  }
  if (attribute_of(fd, kTimeAttribute, text)) {
    const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);  // whatever the program's point is
    labels->time = ::strtod_l(text, &end, plain);
    if (plain != nullptr) ::freelocale(plain);
    if (end == text || *end != '\0') labels->wrong = kTimeAttribute;
  }
}

bool holds_nothing(DIR* stream) {
  int entries = 0;
  while (::readdir(stream) != nullptr) ++entries;
  ::rewinddir(stream);
  return entries <= 2;
}

// Whether the directory is one by its manifest, by an attribute, or by the pattern SWALE_FS_MASSIVE. The last
// two make an empty directory one. The program has named it `given`.
bool is_massive(DIR* stream, const char* given, const char* path) {
  const int fd = ::dirfd(stream);
  const auto manifest = static_cast<int>(raw(SYS_openat, fd, "swale.json", O_RDONLY | O_CLOEXEC));
  if (manifest >= 0) {
    char begin[sizeof kManifestBegins] = {};
    raw(SYS_read, manifest, begin, sizeof begin - 1);
    raw(SYS_close, manifest);
    return strcmp(begin, kManifestBegins) == 0;
  }
  char value[8];
  const bool marked =
      ::fgetxattr(fd, "user.swale.massive", value, sizeof value) >= 0 || matches_pattern(given, path);
  return marked && holds_nothing(stream);
}

// Under the tables' mutex.
MassiveDirectory* known(dev_t device, ino_t inode) {
  for (MassiveDirectory& each : directories)
    if (each.used && each.device == device && each.inode == inode) return &each;
  return nullptr;
}

MassiveDirectory* make_known(const struct stat& found, const char* path) {
  if (!make_own()) return nullptr;
  for (MassiveDirectory& each : directories) {
    if (each.used) continue;
    each.device = found.st_dev;
    each.inode = found.st_ino;
    each.failed = false;
    ::strcpy(each.path, path);
    each.used = true;
    massive_known.fetch_add(1);
    return &each;
  }
  return nullptr;
}

void begin_epoch(DIR* stream, const char* path) {
  char whole[PATH_MAX];
  struct stat found;
  if (::realpath(path, whole) == nullptr || ::fstat(::dirfd(stream), &found) != 0) return;
  if (massive_known.load() == 0 && !is_massive(stream, path, whole)) return;
  const Locked lock(tables_mutex);
  MassiveDirectory* directory = known(found.st_dev, found.st_ino);
  if (directory == nullptr && is_massive(stream, path, whole)) directory = make_known(found, whole);
  if (directory == nullptr) return;
  for (Stream& each : streams) {
    if (each.stream.load() != nullptr) continue;
    each.directory = directory;
    each.listed.store(false);
    each.stream.store(stream);
    if (directory->epochs.fetch_add(1) == 0) read_labels(::dirfd(stream), &directory->labels);
    generation.fetch_add(1);
    return;
  }
  tell("%s: %u massive directories are open: no epoch begins", whole, kStreamsMax);
}

Stream* stream_of(DIR* stream) {
  for (Stream& each : streams)
    if (each.stream.load(std::memory_order_acquire) == stream) return &each;
  return nullptr;
}

// The stream was only a look; or its epoch has ended. Nothing is kept of a directory that nobody writes.
void forget(MassiveDirectory& directory) {
  const Locked lock(tables_mutex);
  for (const Stream& each : streams)
    if (each.stream.load() != nullptr && each.directory == &directory) return;
  if (directory.engine.load() != nullptr || directory.reader.load() != nullptr) return;
  if (directory.failed || !directory.used) return;
  directory.used = false;
  massive_known.fetch_sub(1);
  generation.fetch_add(1);
}

int end_epoch(MassiveDirectory& directory) {
  swale_dir* const engine = engine_of(directory);
  if (engine == nullptr) return -1;
  const Labels& labels = directory.labels;
  if (labels.wrong != nullptr) {
    tell("%s: its epoch did not end: its attribute %s is no number; set it, then opendir and closedir again",
         directory.path, labels.wrong);
    errno = EINVAL;
    return -1;
  }
  const int64_t step = labels.has_step ? labels.step : directory.next_step;
  const int code = library.dir_epoch_end(engine, step, labels.time);
  if (bool& known_end = code == SWALE_OK ? directory.ended : directory.end_failed; !known_end) {
    close_at_exit();
    known_end = true;
  }
  if (code != SWALE_OK) return failed("its epoch did not end", directory.path, code);
  directory.next_step = step == INT64_MAX ? step : step + 1;
  return 0;
}

}  // namespace

void close_at_exit() noexcept { ::atexit(finish_at_exit); }

void forget_engines() noexcept {
  for (MassiveDirectory& each : directories) {
    each.engine.store(nullptr);
    each.reader.store(nullptr);
  }
  job = nullptr;
}

void refuse_massive(const char* call, const char* path, int error, const char* why) noexcept {
  tell("%s: %s of a subfile of a massive directory: %s", path, call, why);
  errno = error;
}

void refuse_massive_name(const MassiveDirectory& directory, const char* name, const char* call, int error,
                         const char* why) noexcept {
  char path[PATH_MAX + kSubfileNameMax + 2];
  ::snprintf(path, sizeof path, "%s/%s", directory.path, name);
  refuse_massive(call, path, error, why);
}

bool is_open_for_values(const MassiveDirectory& directory) noexcept { return directory.epochs.load() > 0; }

MassiveDirectory* massive_folder(int at, const char* path, const char** name, const void* caller) noexcept {
  if (path == nullptr || is_libswale(caller)) return nullptr;
  const char* const slash = strrchr(path, '/');
  *name = slash == nullptr ? path : slash + 1;
  const auto bytes = static_cast<size_t>(*name - path);
  if (**name == '\0' || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0 || bytes >= kFolderMax)
    return nullptr;
  const uint32_t now = generation.load(std::memory_order_acquire);
  Folder& last = last_folder;
  if (last.generation == now && last.bytes == bytes && at == AT_FDCWD && memcmp(last.text, path, bytes) == 0)
    return last.directory;
  char folder[kFolderMax] = ".";
  if (bytes > 0) {
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
  }
  const int kept = errno;
  struct stat found;
  const int looked = next<int(int, const char*, struct stat*, int)>(calls::fstatat)(at, folder, &found, 0);
  errno = kept;
  if (looked != 0) return nullptr;
  const Locked lock(tables_mutex);
  MassiveDirectory* const directory = known(found.st_dev, found.st_ino);
  if (directory == nullptr || at != AT_FDCWD) return directory;
  memcpy(last.text, path, bytes);
  last.bytes = bytes;
  last.directory = directory;
  last.generation = now;
  return directory;
}

int append_massive(MassiveDirectory& directory, const char* name, size_t name_bytes, const void* value,
                   size_t value_bytes) noexcept {
  swale_dir* const engine = engine_of(directory);
  if (engine == nullptr) return -1;
  const int code = library.dir_append(engine, name, name_bytes, value, value_bytes);
  return code == SWALE_OK ? 0 : failed("a value was not appended", directory.path, code);
}

extern "C" {

DIR* swale_take_opendir(const char* path) {
  const void* const caller = __builtin_return_address(0);
  bool is_list = false;
  if (DIR* const list = is_unmounted() ? swale_open_list(path, &is_list) : nullptr; is_list) return list;
  DIR* const stream = next<DIR*(const char*)>(calls::opendir)(path);
  if (stream == nullptr || is_libswale(caller)) return stream;
  const int kept = errno;
  begin_epoch(stream, path);
  errno = kept;
  return stream;
}

int swale_take_closedir(DIR* stream) {
  bool is_list = false;
  if (const int closed = swale_close_list(stream, &is_list); is_list) return closed;
  auto* const close_next = next<int(DIR*)>(calls::closedir);
  Stream* const found = massive_known.load() == 0 || stream == nullptr ? nullptr : stream_of(stream);
  if (found == nullptr) return close_next(stream);
  MassiveDirectory& directory = *found->directory;
  const bool listed = found->listed.load();
  const bool last = !listed && directory.epochs.load() == 1;
  const int ended = last ? end_epoch(directory) : 0;
  const int error = errno;
  if (!listed) directory.epochs.fetch_sub(1);
  found->stream.store(nullptr);
  const int closed = close_next(stream);
  forget(directory);
  if (ended != 0) errno = error;
  return ended != 0 ? ended : closed;
}

// The stream is read: it is a listing.
void swale_before_lists(DIR* stream) {
  ready();
  if (massive_known.load(std::memory_order_relaxed) == 0 || stream == nullptr) return;
  if (Stream* const found = stream_of(stream); found != nullptr && !found->listed.exchange(true))
    found->directory->epochs.fetch_sub(1);
}

// Names may lead elsewhere after it.
void swale_before_names() {
  ready();
  if (massive_known.load(std::memory_order_relaxed) != 0) generation.fetch_add(1);
}

}  // extern "C"

}  // namespace swale::preload
