// Calls that this library takes for trees that are mounted nowhere alone (unmounted.h): lists of directories,
// and calls that would find or make a name on the backing.
//
// A list is ours: the pointer that the program has is odd, which no stream of the C library is.
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "preload/descriptions.h"
#include "preload/light.h"
#include "preload/log_right.h"
#include "preload/massive_files.h"
#include "preload/next_calls.h"
#include "preload/unmounted.h"

namespace swale::preload {
namespace {

using fs::ListedName;
using fs::UnmountedAnswer;
using fs::UnmountedCall;
using fs::UnmountedRequest;

struct List {
  int fd = -1;
  char* bytes = nullptr;  // ListedName records, mapped
  size_t size = 0, place = 0;
  dirent entry = {};
};

List* list_of(DIR* stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  return (number & 1) != 0 ? reinterpret_cast<List*>(number - 1) : nullptr;
}

void drop(List* list) {
  if (list->bytes != nullptr) ::munmap(list->bytes, list->size);
  list->bytes = nullptr;
  list->size = list->place = 0;
}

// What the directory has now. 0, or an errno.
int fill(List* list) {
  UnmountedRequest request;
  request.call = UnmountedCall::kList;
  if (!directory_unmounted(list->fd, &request)) return ENOENT;
  UnmountedAnswer answer;
  int text = -1;
  if (const int failed = ask_unmounted(request, &answer, &text); failed != 0) return failed;
  drop(list);
  const long size = raw(SYS_lseek, text, 0L, SEEK_END);
  int failed = text < 0 || size < 0 ? EMFILE : 0;
  if (failed == 0 && size > 0) {
    void* const mapped = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, text, 0);
    if (mapped == MAP_FAILED) failed = ENOMEM;
    if (failed == 0) list->bytes = static_cast<char*>(mapped);
    if (failed == 0) list->size = static_cast<size_t>(size);
  }
  if (text >= 0) raw(SYS_close, text);
  return failed;
}

// Of a directory of the tree; it has `fd` from now on. False: it is another one.
bool begin(int fd, DIR** stream) {
  UnmountedRequest request;
  if (!is_unmounted() || !directory_unmounted(fd, &request)) return false;
  struct stat found;
  if (next<int(int, struct stat*)>(calls::fstat)(fd, &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  *stream = nullptr;
  auto* const list = static_cast<List*>(::malloc(sizeof(List)));
  if (list == nullptr) return true;
  *list = {};
  list->fd = fd;
  const int failed = fill(list);
  if (failed == 0) {
    *stream = reinterpret_cast<DIR*>(reinterpret_cast<uintptr_t>(list) + 1);
  } else {
    ::free(list);
    errno = failed;
  }
  return true;
}

dirent* read_on(List* list) {
  if (list->place + sizeof(ListedName) > list->size) return nullptr;
  ListedName head;
  ::memcpy(&head, list->bytes + list->place, sizeof(head));
  const char* const name = list->bytes + list->place + sizeof(head);
  if (head.name_bytes >= sizeof(list->entry.d_name) ||
      list->size - list->place - sizeof(head) < head.name_bytes) {
    errno = EIO;
    return nullptr;
  }
  list->place += sizeof(head) + head.name_bytes;
  list->entry.d_ino = head.inode;
  list->entry.d_off = static_cast<off_t>(list->place);
  list->entry.d_reclen = sizeof(list->entry);
  list->entry.d_type = head.type;
  ::memcpy(list->entry.d_name, name, head.name_bytes);
  list->entry.d_name[head.name_bytes] = '\0';
  return &list->entry;
}

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

int add_copy(dirent*** all, size_t count, size_t* space, const dirent& each) {
  if (count == *space) {
    const size_t more = *space == 0 ? 64 : *space * 2;
    auto* const larger = static_cast<dirent**>(::realloc(static_cast<void*>(*all), more * sizeof(dirent*)));
    if (larger == nullptr) return ENOMEM;
    *all = larger;
    *space = more;
  }
  auto* const copy = static_cast<dirent*>(::malloc(sizeof(dirent)));
  if (copy == nullptr) return ENOMEM;
  *copy = each;
  (*all)[count] = copy;
  return 0;
}

int scan(int at, const char* path, dirent*** names, Filter filter, Order order) {
  const long fd = raw(SYS_openat, at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  DIR* stream = nullptr;
  if (!begin(static_cast<int>(fd), &stream)) errno = ENOENT;
  if (stream == nullptr) {
    raw(SYS_close, fd);
    return -1;
  }
  List* const list = list_of(stream);
  dirent** all = nullptr;
  size_t count = 0, space = 0;
  int failed = 0;
  while (const dirent* const each = failed == 0 ? read_on(list) : nullptr) {
    if (filter != nullptr && filter(each) == 0) continue;
    failed = add_copy(&all, count, &space, *each);
    if (failed == 0) ++count;
  }
  drop(list);
  ::free(list);
  raw(SYS_close, fd);
  if (failed != 0) {
    while (count > 0) ::free(all[--count]);
    ::free(static_cast<void*>(all));
    errno = failed;
    return -1;
  }
  if (order != nullptr && count > 0)
    ::qsort(static_cast<void*>(all), count, sizeof(dirent*),
            reinterpret_cast<int (*)(const void*, const void*)>(order));
  *names = all;
  return static_cast<int>(count);
}

}  // namespace

extern "C" {

// Of massive.cc's opendir and closedir.
DIR* swale_open_list(const char* path, bool* is_ours) {
  const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = nullptr;
  *is_ours = fd >= 0 && begin(static_cast<int>(fd), &stream);
  const int kept = errno;
  if (fd >= 0 && stream == nullptr) raw(SYS_close, fd);
  errno = kept;
  return stream;
}

int swale_close_list(DIR* stream, bool* is_ours) {
  List* const list = list_of(stream);
  *is_ours = list != nullptr;
  if (list == nullptr) return 0;
  drop(list);
  const int closed = next<int(int)>(calls::close)(list->fd);
  ::free(list);
  return closed;
}

DIR* swale_take_fdopendir(int fd) {
  ready();
  {
    const Held held(fd);  // a placeholder becomes real
  }
  if (DIR* stream = nullptr; begin(fd, &stream)) return stream;
  return next<DIR*(int)>(calls::fdopendir)(fd);
}

dirent* swale_take_readdir(DIR* stream) {
  if (List* const list = list_of(stream)) return read_on(list);
  swale_before_lists(stream);
  return next<dirent*(DIR*)>(calls::readdir)(stream);
}

int swale_take_readdir_r(DIR* stream, dirent* entry, dirent** result) {
  List* const list = list_of(stream);
  if (list == nullptr) {
    swale_before_lists(stream);
    return next<int(DIR*, dirent*, dirent**)>(calls::readdir_r)(stream, entry, result);
  }
  const dirent* const found = read_on(list);
  if (found != nullptr) *entry = *found;
  *result = found != nullptr ? entry : nullptr;
  return 0;
}

void swale_take_seekdir(DIR* stream, long place) {
  List* const list = list_of(stream);
  if (list == nullptr) {
    swale_before_lists(stream);
    return next<void(DIR*, long)>(calls::seekdir)(stream, place);
  }
  if (place >= 0 && static_cast<size_t>(place) <= list->size) list->place = static_cast<size_t>(place);
}

long swale_take_telldir(DIR* stream) {
  if (const List* const list = list_of(stream)) return static_cast<long>(list->place);
  return next<long(DIR*)>(calls::telldir)(stream);
}

void swale_take_rewinddir(DIR* stream) {
  List* const list = list_of(stream);
  if (list == nullptr) return next<void(DIR*)>(calls::rewinddir)(stream);
  static_cast<void>(fill(list));  // where that fails, what it had stays
  list->place = 0;
}

int swale_take_dirfd(DIR* stream) {
  if (const List* const list = list_of(stream)) return list->fd;
  return next<int(DIR*)>(calls::dirfd)(stream);
}

ssize_t swale_take_getdents64(int fd, void* buffer, size_t bytes) {
  UnmountedRequest request;
  if (int result = 0; is_unmounted() && directory_unmounted(fd, &request) &&
                      refuse_unmounted("getdents64", "a directory", EOPNOTSUPP, &result))
    return result;
  return next<ssize_t(int, void*, size_t)>(calls::getdents64)(fd, buffer, bytes);
}

int swale_take_scandir(const char* path, dirent*** names, Filter filter, Order order) {
  if (is_directory_unmounted(AT_FDCWD, path)) return scan(AT_FDCWD, path, names, filter, order);
  return next<int(const char*, dirent***, Filter, Order)>(calls::scandir)(path, names, filter, order);
}

int swale_take_scandirat(int at, const char* path, dirent*** names, Filter filter, Order order) {
  if (is_directory_unmounted(at, path)) return scan(at, path, names, filter, order);
  return next<int(int, const char*, dirent***, Filter, Order)>(calls::scandirat)(at, path, names, filter,
                                                                                 order);
}

// The C library looks by functions that it is given.
int swale_take_glob(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* found) {
  if (is_unmounted() && found != nullptr && (flags & GLOB_ALTDIRFUNC) == 0) {
    found->gl_opendir = [](const char* path) -> void* { return ::opendir(path); };
    found->gl_readdir = [](void* stream) { return ::readdir(static_cast<DIR*>(stream)); };
    found->gl_closedir = [](void* stream) { static_cast<void>(::closedir(static_cast<DIR*>(stream))); };
    found->gl_stat = ::stat;
    found->gl_lstat = ::lstat;
    flags |= GLOB_ALTDIRFUNC;
  }
  return next<int(const char*, int, int (*)(const char*, int), glob_t*)>(calls::glob)(pattern, flags, failed,
                                                                                      found);
}

FTS* swale_take_fts_open(char* const* paths, int options, int (*order)(const FTSENT**, const FTSENT**)) {
  for (char* const* each = paths; is_unmounted() && each != nullptr && *each != nullptr; ++each)
    if (int result = 0;
        is_directory_unmounted(AT_FDCWD, *each) && refuse_unmounted("fts_open", *each, EOPNOTSUPP, &result))
      return nullptr;
  return next<FTS*(char* const*, int, int (*)(const FTSENT**, const FTSENT**))>(calls::fts_open)(
      paths, options, order);
}

// ---- what is asked of a name that the backing lacks

ssize_t swale_take_readlink(const char* path, char* out, size_t bytes) {
  const ssize_t got = next<ssize_t(const char*, char*, size_t)>(calls::readlink)(path, out, bytes);
  UnmountedAnswer answer;
  if (got < 0 && errno == ENOENT && is_unmounted() &&
      is_file_unmounted(AT_FDCWD, path, Links::kStay, &answer))
    errno = EINVAL;
  return got;
}

ssize_t swale_take_readlinkat(int at, const char* path, char* out, size_t bytes) {
  const ssize_t got = next<ssize_t(int, const char*, char*, size_t)>(calls::readlinkat)(at, path, out, bytes);
  UnmountedAnswer answer;
  if (got < 0 && errno == ENOENT && is_unmounted() && is_file_unmounted(at, path, Links::kStay, &answer))
    errno = EINVAL;
  return got;
}

ssize_t swale_take_readlink_chk(const char* path, char* out, size_t bytes, size_t space) {
  if (bytes <= space) return swale_take_readlink(path, out, bytes);
  return next<ssize_t(const char*, char*, size_t, size_t)>(calls::__readlink_chk)(path, out, bytes, space);
}

ssize_t swale_take_readlinkat_chk(int at, const char* path, char* out, size_t bytes, size_t space) {
  if (bytes <= space) return swale_take_readlinkat(at, path, out, bytes);
  return next<ssize_t(int, const char*, char*, size_t, size_t)>(calls::__readlinkat_chk)(at, path, out, bytes,
                                                                                         space);
}

// The folder is on the backing; the file need not be.
char* swale_take_realpath(const char* path, char* resolved) {
  auto* const realpath_next = next<char*(const char*, char*)>(calls::realpath);
  char* const found = realpath_next(path, resolved);
  UnmountedAnswer answer;
  if (found != nullptr || errno != ENOENT || !is_unmounted() ||
      !is_file_unmounted(AT_FDCWD, path, Links::kStay, &answer))
    return found;
  char folder[PATH_MAX];
  const size_t bytes = ::strnlen(path, sizeof(folder));
  if (bytes >= sizeof(folder)) return nullptr;
  ::memcpy(folder, path, bytes + 1);
  char* const slash = ::strrchr(folder, '/');
  const char* const name = path + (slash == nullptr ? 0 : slash + 1 - folder);
  if (slash == nullptr)
    ::memcpy(folder, ".", 2);
  else
    slash[slash == folder ? 1 : 0] = '\0';
  char whole[PATH_MAX];
  if (realpath_next(folder, whole) == nullptr) return nullptr;
  const size_t above = ::strlen(whole), below = ::strlen(name);
  if (above + 1 + below >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return nullptr;
  }
  char* const out = resolved != nullptr ? resolved : static_cast<char*>(::malloc(above + below + 2));
  if (out == nullptr) return nullptr;
  ::memcpy(out, whole, above);
  out[above] = '/';
  ::memcpy(out + above + 1, name, below + 1);
  return out;
}

char* swale_take_canonicalize_file_name(const char* path) { return swale_take_realpath(path, nullptr); }

char* swale_take_realpath_chk(const char* path, char* resolved, size_t space) {
  if (space >= PATH_MAX) return swale_take_realpath(path, resolved);
  return next<char*(const char*, char*, size_t)>(calls::__realpath_chk)(path, resolved, space);
}

int swale_take_statfs(const char* path, struct statfs* found) {
  const int result = next<int(const char*, struct statfs*)>(calls::statfs)(path, found);
  UnmountedAnswer answer;
  if (result == 0 || errno != ENOENT || !is_unmounted() ||
      !is_file_unmounted(AT_FDCWD, path, Links::kFollowed, &answer))
    return result;
  return next<int(const char*, struct statfs*)>(calls::statfs)(top_unmounted(), found);
}

int swale_take_statvfs(const char* path, struct statvfs* found) {
  const int result = next<int(const char*, struct statvfs*)>(calls::statvfs)(path, found);
  UnmountedAnswer answer;
  if (result == 0 || errno != ENOENT || !is_unmounted() ||
      !is_file_unmounted(AT_FDCWD, path, Links::kFollowed, &answer))
    return result;
  return next<int(const char*, struct statvfs*)>(calls::statvfs)(top_unmounted(), found);
}

// A socket's name would be on the backing.
int swale_take_bind(int fd, const sockaddr* address, socklen_t bytes) {
  if (is_unmounted() && address != nullptr && address->sa_family == AF_UNIX && bytes > sizeof(sa_family_t)) {
    sockaddr_un named = {};
    ::memcpy(&named, address, bytes < sizeof(named) ? bytes : sizeof(named) - 1);
    named.sun_path[sizeof(named.sun_path) - 1] = '\0';
    if (int result = 0; no_entry_unmounted("bind", AT_FDCWD, named.sun_path, EPERM, &result)) return result;
  }
  return next<int(int, const sockaddr*, socklen_t)>(calls::bind)(fd, address, bytes);
}

// ---- programs

void swale_before_all();

void swale_before_program(const char* path) {
  swale_before_all();
  bring_unmounted(path);
}

void swale_before_spawned(void*, const char* path) {
  swale_before_all();
  bring_unmounted(path);
}

}  // extern "C"

}  // namespace swale::preload
