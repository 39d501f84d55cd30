/* light_steps NAME DIRECTORY [COUNT]: files that are made past the kernel (SWALE_FS_DESCRIPTORS=light), and what
 * is done with their descriptors. What calls return goes to standard output: it must be the same in a plain
 * directory and in a job's tree.
 *
 *   errors     opens of each kind that make a file, or are refused. Without capabilities: modes bind root, too
 *   calls      each call of the C library that takes a descriptor, on one that is open for it alone
 *   names      prints the names of the functions that `calls` calls
 *   others     fork, exec, dup2, mmap, a socket, and others reach the file that was opened, whatever its name is
 *   numbers    descriptors are closed in all ways, and numbers are used again
 *   limit      no number is free, and a descriptor is written
 *   exclusive  processes make the same files with O_EXCL
 *   many       so many files are open at a time
 *   threads    make, write and close files at the same time
 *   waits      makes a file, tells so, and waits; then uses the descriptor
 */
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

extern char** environ;

static void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static void say(const char* what, long result) {
  printf("%s: %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

/* By this the process finds the tree. */
static void begin(const char* directory) {
  need(chdir(directory) == 0, directory);
  const int fd = open("first", O_WRONLY | O_CREAT, 0600);
  need(fd >= 0 && close(fd) == 0, "first");
}

static int make(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  need(fd >= 0, name);
  return fd;
}

static void say_content(const char* name) {
  char text[4096];
  const int fd = open(name, O_RDONLY);
  const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
  need(got >= 0, name);
  text[got] = '\0';
  printf("%s: %zd %s\n", name, got, text);
  close(fd);
}

/* ---- errors ---- */

struct Open {
  const char* path;
  int flags;
  int mode;
};

static void drop_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  need(syscall(SYS_capset, &header, none) == 0, "capset");
}

static void try_open(const struct Open* each, int at, const char* prefix) {
  char path[8192];
  snprintf(path, sizeof(path), "%s%s", prefix, each->path);
  const int fd = openat(at, path, each->flags | O_CLOEXEC, each->mode);
  printf("%.80s %x %o: %s", each->path, each->flags, each->mode, fd < 0 ? strerrorname_np(errno) : "open");
  struct stat found;
  if (fd >= 0) {
    const int failed = fstat(fd, &found);
    printf(" %d mode %o links %d size %ld flags %x", failed, found.st_mode, (int)found.st_nlink,
           (long)found.st_size, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_PATH));
    close(fd);
  }
  printf("\n");
  if (fd >= 0 && (each->flags & O_TMPFILE) != O_TMPFILE && S_ISREG(found.st_mode) &&
      strncmp(each->path, "kept", 4) != 0)
    unlinkat(at, path, 0);
}

static char long_name[300], long_path[5000], deep_path[1200];

static const struct Open kOpens[] = {
    {"new", O_CREAT | O_WRONLY, 0644},
    {"new", O_CREAT | O_RDWR | O_EXCL, 0},
    {"new", O_CREAT | O_RDONLY, 0444},
    {"new", O_CREAT | O_WRONLY | O_APPEND, 0666},
    {"new", O_CREAT | O_WRONLY | O_TRUNC, 0777},
    {"new", O_CREAT | O_WRONLY, 04755},
    {"new", O_CREAT | O_WRONLY | O_NOFOLLOW | O_NOCTTY, 0600},
    {"new", O_CREAT | O_RDWR | O_SYNC, 0600},
    {"new", O_CREAT | O_RDWR | O_NONBLOCK, 0600},
    {"new", O_CREAT | O_RDWR | O_DIRECTORY, 0600},
    {"new", O_CREAT | O_ACCMODE, 0600},
    {"", O_CREAT | O_WRONLY, 0600},
    {".", O_CREAT | O_WRONLY, 0600},
    {"..", O_CREAT | O_WRONLY, 0600},
    {"new/", O_CREAT | O_WRONLY, 0600},
    {"kept", O_CREAT | O_WRONLY, 0600},
    {"kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"kept/", O_CREAT | O_WRONLY, 0600},
    {"kept/new", O_CREAT | O_WRONLY, 0600},
    {"kept-unreadable", O_CREAT | O_RDWR, 0600},
    {"kept-unreadable", O_CREAT | O_RDWR | O_TRUNC, 0600},
    {"free", O_CREAT | O_WRONLY, 0600},
    {"free", O_CREAT | O_RDONLY, 0600},
    {"free", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"free/new", O_CREAT | O_WRONLY, 0600},
    {"free//new", O_CREAT | O_WRONLY, 0600},
    {"free/./new", O_CREAT | O_WRONLY, 0600},
    {"free/../new", O_CREAT | O_WRONLY, 0600},
    {"free/missing/new", O_CREAT | O_WRONLY, 0600},
    {"missing/new", O_CREAT | O_WRONLY, 0600},
    {"read-only/new", O_CREAT | O_WRONLY, 0600},
    {"read-only/kept", O_CREAT | O_WRONLY, 0600},
    {"read-only/kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"read-only/below/new", O_CREAT | O_WRONLY, 0600},
    {"no-search/new", O_CREAT | O_WRONLY, 0600},
    {"no-search/kept", O_CREAT | O_WRONLY, 0600},
    {"no-search/below/new", O_CREAT | O_WRONLY, 0600},
    {"closed/new", O_CREAT | O_WRONLY, 0600},
    {"closed/below/new", O_CREAT | O_WRONLY, 0600},
    {"write-only/new", O_CREAT | O_WRONLY, 0600},
    {"sticky/new", O_CREAT | O_WRONLY, 0600},
    {"set-group/new", O_CREAT | O_WRONLY, 0660},
    {"link-to-kept", O_CREAT | O_WRONLY, 0600},
    {"link-to-kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"link-to-kept", O_CREAT | O_WRONLY | O_NOFOLLOW, 0600},
    {"link-to-free/new", O_CREAT | O_WRONLY, 0600},
    {"link-to-closed/new", O_CREAT | O_WRONLY, 0600},
    {"link-outside/light-new", O_CREAT | O_WRONLY, 0600},
    {"link-to-nothing", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"link-to-itself", O_CREAT | O_WRONLY, 0600},
    {"link-to-itself/new", O_CREAT | O_WRONLY, 0600},
    {long_name, O_CREAT | O_WRONLY, 0600},
    {long_path, O_CREAT | O_WRONLY, 0600},
    {deep_path, O_CREAT | O_WRONLY, 0600},
};

static void make_places(void) {
  static const struct {
    const char* name;
    int mode;
  } kFolders[] = {{"free", 0755},       {"read-only", 0555},  {"no-search", 0655}, {"closed", 0},
                  {"write-only", 0333}, {"sticky", 01777},    {"set-group", 02775}};
  char path[64];
  memset(long_name, 'n', sizeof(long_name) - 1);
  memset(long_path, '/', sizeof(long_path) - 1);
  strcpy(deep_path, "free");
  for (size_t i = 0; i < 500; ++i) strcat(deep_path, "/.");
  strcat(deep_path, "/new");
  for (size_t i = 0; i < sizeof(kFolders) / sizeof(kFolders[0]); ++i) {
    need(mkdir(kFolders[i].name, 0755) == 0, "mkdir");
    snprintf(path, sizeof(path), "%s/below", kFolders[i].name);
    need(mkdir(path, 0755) == 0, "mkdir");
    snprintf(path, sizeof(path), "%s/kept", kFolders[i].name);
    close(open(path, O_WRONLY | O_CREAT, 0644));
  }
  close(open("kept", O_WRONLY | O_CREAT, 0644));
  close(open("kept-unreadable", O_WRONLY | O_CREAT, 0));
  need(symlink("kept", "link-to-kept") == 0 && symlink("free", "link-to-free") == 0 &&
           symlink("closed", "link-to-closed") == 0 && symlink("/tmp", "link-outside") == 0 &&
           symlink("nothing", "link-to-nothing") == 0 && symlink("link-to-itself", "link-to-itself") == 0,
       "symlink");
  for (size_t i = 0; i < sizeof(kFolders) / sizeof(kFolders[0]); ++i)
    need(chmod(kFolders[i].name, (mode_t)kFolders[i].mode) == 0, "chmod");
}

static void open_them_all(void) {
  char here[4096], prefix[4200];
  need(getcwd(here, sizeof(here)) != NULL, "getcwd");
  snprintf(prefix, sizeof(prefix), "%s/", here);
  const int at = open(".", O_RDONLY | O_DIRECTORY);
  static const int kUmasks[] = {022, 0, 0777};
  for (size_t i = 0; i < sizeof(kOpens) / sizeof(kOpens[0]); ++i) {
    umask(kUmasks[i % 3]);
    try_open(&kOpens[i], AT_FDCWD, "");
    try_open(&kOpens[i], AT_FDCWD, prefix);
    try_open(&kOpens[i], at, "");
  }
  umask(022);
  const int file = make("no-folder");
  const struct Open below = {"new", O_CREAT | O_WRONLY, 0600};
  try_open(&below, file, "");
  try_open(&below, 999, "");
  say("fchdir", fchdir(file));
  say("creat", creat("kept-creat", 0640) >= 0);
  say("creat", creat("kept-creat/x", 0640));
  close(file);
}

static void errors(const char* directory) {
  need(chdir(directory) == 0, directory);
  make_places();
  drop_capabilities();
  begin(".");
  open_them_all();
  for (const char* const* name = (const char* const[]){"read-only", "no-search", "closed", "write-only", NULL};
       *name != NULL; ++name)
    need(chmod(*name, 0755) == 0, "chmod");
}

/* ---- calls ---- */

static char buffer[64] = "some bytes";
static struct iovec part = {buffer, 8};

/* Each case: what the function returns. Functions whose types differ are called by their own type. */
#define AS(type) ((type)function)
typedef ssize_t (*Io)(int, void*, size_t);
typedef ssize_t (*IoAt)(int, void*, size_t, off_t);
typedef ssize_t (*Vector)(int, struct iovec*, int);
typedef ssize_t (*VectorAt)(int, struct iovec*, int, off_t);
typedef ssize_t (*VectorAt2)(int, struct iovec*, int, off_t, int);
typedef int (*Plain)(int);
typedef int (*Two)(int, long);
typedef int (*Three)(int, long, long);
typedef int (*Four)(int, long, long, long);
typedef int (*Out)(int, void*);

static long by_io(void* function, int fd) { return AS(Io)(fd, buffer, 8); }
static long by_io_at(void* function, int fd) { return AS(IoAt)(fd, buffer, 8, 3); }
static long by_vector(void* function, int fd) { return AS(Vector)(fd, &part, 1); }
static long by_vector_at(void* function, int fd) { return AS(VectorAt)(fd, &part, 1, 3); }
static long by_vector_at2(void* function, int fd) { return AS(VectorAt2)(fd, &part, 1, 3, 0); }
static long by_read_chk(void* function, int fd) {
  return ((ssize_t(*)(int, void*, size_t, size_t))function)(fd, buffer, 8, sizeof(buffer));
}
static long by_pread_chk(void* function, int fd) {
  return ((ssize_t(*)(int, void*, size_t, off_t, size_t))function)(fd, buffer, 8, 0, sizeof(buffer));
}
static long by_lseek(void* function, int fd) { return ((off_t(*)(int, off_t, int))function)(fd, 5, SEEK_SET); }
static long by_plain(void* function, int fd) { return AS(Plain)(fd); }
static long by_dup(void* function, int fd) {
  const int made = AS(Plain)(fd);
  const long wrote = write(made, "dup", 3);
  close(made);
  return wrote;
}
static long by_dup2(void* function, int fd) {
  const long made = AS(Two)(fd, 90);
  need(write(90, "dup2", 4) == 4 || made < 0, "write");
  close(90);
  return made;
}
static long by_dup3(void* function, int fd) {
  const long made = AS(Three)(fd, 91, O_CLOEXEC);
  const long marks = fcntl(91, F_GETFD);
  close(91);
  return made * 10 + marks;
}
static long by_fcntl(void* function, int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  long sum = AS(Three)(fd, F_GETFD, 0);
  sum = sum * 10 + AS(Three)(fd, F_SETFD, 0);
  sum = sum * 10 + AS(Three)(fd, F_SETLK, (long)&lock);
  sum = sum * 10 + AS(Three)(fd, F_SETFL, O_APPEND);
  sum = sum * 10000 + (AS(Three)(fd, F_GETFL, 0) & (O_ACCMODE | O_APPEND | O_PATH));
  const int again = AS(Three)(fd, F_DUPFD_CLOEXEC, 95);
  close(again);
  return sum * 100 + again;
}
static long say_stat(long failed, const struct stat* found) {
  struct stat above;
  need(stat(".", &above) == 0, "stat");
  if (failed != 0) return failed;
  return (long)found->st_mode * 1000 + (long)found->st_size * 10 + (long)found->st_nlink +
         (found->st_dev == above.st_dev ? 0 : 100000000);
}
static long by_fstat(void* function, int fd) {
  struct stat found;
  return say_stat(AS(Out)(fd, &found), &found);
}
static long by_fxstat(void* function, int fd) {
  struct stat found;
  return say_stat(((int (*)(int, int, void*))function)(1, fd, &found), &found);
}
static long by_fstatat(void* function, int fd) {
  struct stat found;
  return say_stat(((int (*)(int, const char*, void*, int))function)(fd, "", &found, AT_EMPTY_PATH), &found);
}
static long by_fxstatat(void* function, int fd) {
  struct stat found;
  return say_stat(((int (*)(int, int, const char*, void*, int))function)(1, fd, "", &found, AT_EMPTY_PATH),
                  &found);
}
static long by_statx(void* function, int fd) {
  struct statx found;
  const int failed = ((int (*)(int, const char*, int, unsigned, struct statx*))function)(
      fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &found);
  return failed != 0 ? failed : found.stx_mode;
}
static long by_fstatfs(void* function, int fd) {
  struct statfs found;
  return AS(Out)(fd, &found) != 0 ? -1 : found.f_type != 0x01021994;  /* no tmpfs, where /dev/null is */
}
static long by_fstatvfs(void* function, int fd) {
  struct statvfs found;
  return AS(Out)(fd, &found) != 0 ? -1 : found.f_blocks > 0;
}
static long by_two(void* function, int fd) { return AS(Two)(fd, 5); }
static long by_allocate(void* function, int fd) { return AS(Four)(fd, 0, 0, 100); }
static long by_posix_allocate(void* function, int fd) { return AS(Three)(fd, 0, 100); }
static long by_advise(void* function, int fd) { return AS(Four)(fd, 0, 100, POSIX_FADV_NORMAL); }
static long by_flock(void* function, int fd) { return AS(Two)(fd, LOCK_EX | LOCK_NB); }
static long by_fchmod(void* function, int fd) { return AS(Two)(fd, 0600); }
static long by_fchown(void* function, int fd) { return AS(Three)(fd, getuid(), getgid()); }
static long by_times(void* function, int fd) { return AS(Two)(fd, 0); }
static long by_futimesat(void* function, int fd) { return AS(Three)(fd, 0, 0); }
static long by_ttyname(void* function, int fd) { return ((char* (*)(int))function)(fd) == NULL ? -1 : 0; }
static long by_ttyname_r(void* function, int fd) { return AS(Three)(fd, (long)buffer, sizeof(buffer)); }
static long by_getxattr(void* function, int fd) { return AS(Four)(fd, (long)"user.x", (long)buffer, 8); }
static long by_setxattr(void* function, int fd) {
  return ((int (*)(int, const char*, const void*, size_t, int))function)(fd, "user.x", "value", 5, 0);
}
static long by_listxattr(void* function, int fd) { return AS(Three)(fd, 0, 0); }
static long by_removexattr(void* function, int fd) { return AS(Two)(fd, (long)"user.y"); }
static long by_pathconf(void* function, int fd) { return AS(Two)(fd, _PC_PIPE_BUF) > 0; }
static long by_tcgetattr(void* function, int fd) {
  struct termios found;
  return AS(Out)(fd, &found);
}
static long by_ioctl(void* function, int fd) {
  int count = 7;
  const int failed = ((int (*)(int, unsigned long, int*))function)(fd, FIONREAD, &count);
  return failed != 0 ? failed : count;
}
static long by_mmap(void* function, int fd) {
  need(ftruncate(fd, 4096) == 0, "ftruncate");
  char* const map =
      ((void* (*)(void*, size_t, int, int, int, off_t))function)(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) return -1;
  const long first = map[0];
  munmap(map, 4096);
  return first;
}
static long by_mmap_first(void* function, int fd) {
  void* const map =
      ((void* (*)(void*, size_t, int, int, int, off_t))function)(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  return map == MAP_FAILED ? -1 : munmap(map, 4096);
}
static int other_file(void) {
  const int fd = open("other", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  need(fd >= 0 && write(fd, "0123456789", 10) == 10 && lseek(fd, 0, SEEK_SET) == 0, "other");
  return fd;
}
static long by_sendfile(void* function, int fd) {
  const int other = other_file();
  const long sent = ((ssize_t(*)(int, int, off_t*, size_t))function)(fd, other, NULL, 10);
  close(other);
  return sent;
}
static long by_copy(void* function, int fd) {
  const int other = other_file();
  const long sent =
      ((ssize_t(*)(int, void*, int, void*, size_t, unsigned))function)(other, NULL, fd, NULL, 10, 0);
  close(other);
  return sent;
}
static long by_splice(void* function, int fd) {
  int ends[2];
  need(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4, "pipe");
  const long sent =
      ((ssize_t(*)(int, void*, int, void*, size_t, unsigned))function)(ends[0], NULL, fd, NULL, 4, 0);
  close(ends[0]);
  close(ends[1]);
  return sent;
}
static long by_dprintf(void* function, int fd) { return ((int (*)(int, const char*, ...))function)(fd, "%d", 77); }
static long by_dprintf_chk(void* function, int fd) {
  return ((int (*)(int, int, const char*, ...))function)(fd, 1, "%d", 78);
}
static int print_by(void* function, int checked, int fd, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int done = checked ? ((int (*)(int, int, const char*, va_list))function)(fd, 1, format, arguments)
                           : ((int (*)(int, const char*, va_list))function)(fd, format, arguments);
  va_end(arguments);
  return done;
}
static long by_vdprintf(void* function, int fd) { return print_by(function, 0, fd, "%d", 79); }
static long by_vdprintf_chk(void* function, int fd) { return print_by(function, 1, fd, "%d", 80); }
static long by_lockf(void* function, int fd) { return AS(Three)(fd, F_LOCK, 0); }
static long by_fdopen(void* function, int fd) {
  FILE* const stream = ((FILE * (*)(int, const char*)) function)(dup(fd), "w");
  if (stream == NULL) return -1;
  fputs("stream", stream);
  return fclose(stream);
}
static long by_fdopen_first(void* function, int fd) {
  FILE* const stream = ((FILE * (*)(int, const char*)) function)(fd, "w");
  if (stream == NULL) return -1;
  fputs("stream", stream);
  return fflush(stream);
}
static long by_symbols(void* function, int fd) {
  void* here[1] = {(void*)by_symbols};
  ((void (*)(void* const*, int, int))function)(here, 1, fd);
  const long wrote = lseek(fd, 0, SEEK_END) > 0;
  need(ftruncate(fd, 0) == 0, "ftruncate");  /* addresses differ */
  return wrote;
}
static long by_aio(void* function, int fd) {
  struct aiocb64 request = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = 8};
  const struct aiocb64* const list[] = {&request};
  const int begun = ((int (*)(void*))function)(&request);
  if (begun != 0) return begun;
  while (aio_error64(&request) == EINPROGRESS) aio_suspend64(list, 1, NULL);
  return aio_return64(&request);
}
static long by_select(void* function, int fd) {
  fd_set all;
  FD_ZERO(&all);
  FD_SET(fd, &all);
  struct timeval none = {0, 0};
  return ((int (*)(int, fd_set*, fd_set*, fd_set*, void*))function)(fd + 1, NULL, &all, NULL, &none);
}
static long by_pselect(void* function, int fd) {
  fd_set all;
  FD_ZERO(&all);
  FD_SET(fd, &all);
  struct timespec none = {0, 0};
  return ((int (*)(int, fd_set*, fd_set*, fd_set*, void*, void*))function)(fd + 1, NULL, &all, NULL, &none, NULL);
}
static long by_poll(void* function, int fd) {
  struct pollfd all = {fd, POLLOUT, 0};
  const int ready = ((int (*)(void*, nfds_t, int))function)(&all, 1, 0);
  return ready * 1000 + all.revents;
}
static long by_poll_chk(void* function, int fd) {
  struct pollfd all = {fd, POLLOUT, 0};
  const int ready = ((int (*)(void*, nfds_t, int, size_t))function)(&all, 1, 0, sizeof(all));
  return ready * 1000 + all.revents;
}
static long by_ppoll(void* function, int fd) {
  struct pollfd all = {fd, POLLOUT, 0};
  struct timespec none = {0, 0};
  const int ready = ((int (*)(void*, nfds_t, void*, void*))function)(&all, 1, &none, NULL);
  return ready * 1000 + all.revents;
}
static long by_ppoll_chk(void* function, int fd) {
  struct pollfd all = {fd, POLLOUT, 0};
  struct timespec none = {0, 0};
  const int ready =
      ((int (*)(void*, nfds_t, void*, void*, size_t))function)(&all, 1, &none, NULL, sizeof(all));
  return ready * 1000 + all.revents;
}
static long by_epoll(void* function, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  const int set = epoll_create1(0);
  const int failed = ((int (*)(int, int, int, void*))function)(set, EPOLL_CTL_ADD, fd, &event);
  const int kept = errno;
  close(set);
  errno = kept;
  return failed;
}
static long by_fdopendir(void* function, int fd) { return ((void* (*)(int))function)(fd) == NULL ? -1 : 0; }
static long by_vmsplice(void* function, int fd) { return ((ssize_t(*)(int, void*, size_t, unsigned))function)(fd, &part, 1, 0); }
static long by_tee(void* function, int fd) { return ((ssize_t(*)(int, int, size_t, unsigned))function)(fd, fd, 1, 0); }
static long by_sync_range(void* function, int fd) { return AS(Four)(fd, 0, 0, 0); }
static long by_readahead(void* function, int fd) { return AS(Three)(fd, 0, 10); }
static long by_handle(void* function, int fd) {
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle = {.head = {.handle_bytes = 0}};
  int mount = 0;
  const int failed =
      ((int (*)(int, const char*, void*, int*, int))function)(fd, "", &handle, &mount, AT_EMPTY_PATH);
  return failed != 0 && (errno == EOVERFLOW || errno == EOPNOTSUPP) ? 0 : failed;
}
static long by_close(void* function, int fd) {
  const int closed = AS(Plain)(fd);
  return closed * 10 + (fcntl(fd, F_GETFD) >= 0);
}
static long by_close_range(void* function, int fd) {
  const int closed = ((int (*)(unsigned, unsigned, int))function)((unsigned)fd, (unsigned)fd, 0);
  return closed * 10 + (fcntl(fd, F_GETFD) >= 0);
}
static long by_closefrom(void* function, int fd) {
  const int above = fcntl(0, F_DUPFD, fd + 1);
  ((void (*)(int))function)(fd);
  return (fcntl(fd, F_GETFD) >= 0) + (fcntl(above, F_GETFD) >= 0);
}
static long by_syscall(void* function, int fd) {
  return ((long (*)(long, ...))function)(SYS_pwrite64, fd, "syscall", 7, 0);
}
static long by_freopen(void* function, int fd) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  FILE* const stream =
      ((FILE * (*)(const char*, const char*, FILE*)) function)(path, "w", fopen("/dev/null", "w"));
  if (stream == NULL) return -1;
  fputs("reopened", stream);
  return fclose(stream);
}
static long by_fopen(void* function, int fd) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  FILE* const stream = ((FILE * (*)(const char*, const char*)) function)(path, "w");
  if (stream == NULL) return -1;
  fputs("reopened", stream);
  return fclose(stream);
}
static long by_open(void* function, int fd) {
  char path[64];
  snprintf(path, sizeof(path), "/dev/fd/%d", fd);
  const int again = ((int (*)(const char*, int))function)(path, O_WRONLY);
  const long wrote = write(again, "again", 5);
  close(again);
  return wrote;
}
static long by_openat(void* function, int fd) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const int again = ((int (*)(int, const char*, int))function)(AT_FDCWD, path, O_WRONLY);
  const long wrote = write(again, "again", 5);
  close(again);
  return wrote;
}

static const struct {
  const char* names;
  long (*call)(void*, int);
} kCalls[] = {
    {"write __write read __read", by_io},
    {"pwrite pwrite64 __pwrite64 pread pread64 __pread64", by_io_at},
    {"writev readv", by_vector},
    {"pwritev pwritev64 preadv preadv64", by_vector_at},
    {"pwritev2 pwritev64v2 preadv2 preadv64v2", by_vector_at2},
    {"__read_chk", by_read_chk},
    {"__pread_chk __pread64_chk", by_pread_chk},
    {"lseek lseek64 __lseek llseek", by_lseek},
    {"close __close", by_close},
    {"close_range", by_close_range},
    {"closefrom", by_closefrom},
    {"dup", by_dup},
    {"dup2 __dup2", by_dup2},
    {"dup3", by_dup3},
    {"fcntl fcntl64 __fcntl", by_fcntl},
    {"fstat fstat64", by_fstat},
    {"__fxstat __fxstat64", by_fxstat},
    {"fstatat fstatat64", by_fstatat},
    {"__fxstatat __fxstatat64", by_fxstatat},
    {"statx", by_statx},
    {"fstatfs fstatfs64", by_fstatfs},
    {"fstatvfs fstatvfs64", by_fstatvfs},
    {"fsync fdatasync syncfs isatty", by_plain},
    {"sync_file_range", by_sync_range},
    {"ftruncate ftruncate64", by_two},
    {"fallocate fallocate64", by_allocate},
    {"posix_fallocate posix_fallocate64", by_posix_allocate},
    {"posix_fadvise posix_fadvise64", by_advise},
    {"readahead", by_readahead},
    {"flock", by_flock},
    {"fchmod", by_fchmod},
    {"fchown", by_fchown},
    {"futimens futimes", by_times},
    {"futimesat", by_futimesat},
    {"ttyname", by_ttyname},
    {"ttyname_r", by_ttyname_r},
    {"fgetxattr", by_getxattr},
    {"fsetxattr", by_setxattr},
    {"flistxattr", by_listxattr},
    {"fremovexattr", by_removexattr},
    {"fpathconf", by_pathconf},
    {"tcgetattr", by_tcgetattr},
    {"ioctl __ioctl", by_ioctl},
    {"mmap mmap64 __mmap", by_mmap_first},
    {"mmap", by_mmap},
    {"sendfile sendfile64", by_sendfile},
    {"copy_file_range", by_copy},
    {"splice", by_splice},
    {"dprintf", by_dprintf},
    {"__dprintf_chk", by_dprintf_chk},
    {"vdprintf", by_vdprintf},
    {"__vdprintf_chk", by_vdprintf_chk},
    {"lockf lockf64", by_lockf},
    {"fdopen", by_fdopen},
    {"fdopen _IO_fdopen", by_fdopen_first},
    {"backtrace_symbols_fd __backtrace_symbols_fd", by_symbols},
    {"aio_read64 aio_write64 aio_read aio_write", by_aio},
    {"select __select", by_select},
    {"pselect", by_pselect},
    {"poll __poll", by_poll},
    {"__poll_chk", by_poll_chk},
    {"ppoll ppoll64", by_ppoll},
    {"__ppoll_chk", by_ppoll_chk},
    {"epoll_ctl", by_epoll},
    {"fdopendir", by_fdopendir},
    {"vmsplice", by_vmsplice},
    {"tee", by_tee},
    {"name_to_handle_at", by_handle},
    {"syscall", by_syscall},
    {"fopen fopen64 _IO_fopen", by_fopen},
    {"freopen freopen64", by_freopen},
    {"open open64 __open __open64 __open_2 __open64_2", by_open},
    {"openat openat64 __openat_2 __openat64_2", by_openat},
};

static void each_call(int only_names) {
  int number = 0;
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  need(libc != NULL, "libc.so.6");
  for (size_t i = 0; i < sizeof(kCalls) / sizeof(kCalls[0]); ++i) {
    char names[256];
    snprintf(names, sizeof(names), "%s", kCalls[i].names);
    for (char *state = NULL, *name = strtok_r(names, " ", &state); name != NULL;
         name = strtok_r(NULL, " ", &state)) {
      if (only_names) {
        printf("%s\n", name);
        continue;
      }
      void* const function = dlsym(RTLD_DEFAULT, name);
      if (function == NULL || dlsym(libc, name) == NULL) continue;
      char file[64];
      snprintf(file, sizeof(file), "call-%d", number++);
      const int fd = make(file);
      fflush(stdout);
      errno = 0;
      say(name, kCalls[i].call(function, fd));
      close(fd);
      say_content(file);
    }
  }
}

/* ---- others ---- */

static int wait_for(pid_t process) {
  int status = 0;
  need(waitpid(process, &status, 0) == process, "waitpid");
  return status;
}

static void put(int fd, const char* text) {
  need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void by_fork(const char* name) {
  const int fd = make(name);
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    put(fd, "child ");
    _exit(0);
  }
  say("child", wait_for(child));
  put(fd, "parent");
  close(fd);
  say_content(name);
}

static void by_exec(const char* name) {
  const int fd = open(name, O_WRONLY | O_CREAT, 0644);
  char command[64];
  need(fd >= 0, name);
  snprintf(command, sizeof(command), "echo by a shell >&%d", fd);
  say("system", system(command));
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(1);
  }
  say("child", wait_for(child));
  put(fd, "then\n");
  close(fd);
  say_content(name);
}

static void by_redirection(const char* name) {
  const int fd = make(name), kept = dup(1);
  fflush(stdout);
  need(dup2(fd, 1) == 1, "dup2");
  need(system("echo redirected") == 0, "system");
  printf("and printed\n");
  fflush(stdout);
  need(dup2(kept, 1) == 1, "dup2");
  close(kept);
  close(fd);
  say_content(name);
  const int replaced = make("replaced"), by = make("replaces");
  need(dup2(by, replaced) == replaced, "dup2");
  put(replaced, "by another number");
  close(replaced);
  close(by);
  say_content("replaced");
  say_content("replaces");
}

static void by_map(const char* name) {
  const int fd = make(name);
  need(ftruncate(fd, 4096) == 0, "ftruncate");
  char* const map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  need(map != MAP_FAILED, "mmap");
  strcpy(map, "mapped");
  need(msync(map, 4096, MS_SYNC) == 0 && munmap(map, 4096) == 0 && ftruncate(fd, 6) == 0, "msync");
  close(fd);
  say_content(name);
}

static void by_socket(const char* name) {
  const int fd = make(name);
  int ends[2];
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  char control[CMSG_SPACE(sizeof(int))] = {0};
  char byte = 'x';
  struct iovec one = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fd, sizeof(fd));
  need(sendmsg(ends[0], &message, 0) == 1, "sendmsg");
  close(fd);
  need(recvmsg(ends[1], &message, 0) == 1, "recvmsg");
  int got = -1;
  memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(got));
  put(got, "by a socket");
  close(got);
  close(ends[0]);
  close(ends[1]);
  say_content(name);
}

/* The file that was opened, whatever its name leads to now. */
static void behind_its_name(void) {
  int fd = make("before");
  need(rename("before", "after") == 0, "rename");
  const int other = make("before");
  put(other, "another one");
  put(fd, "renamed");
  close(other);
  close(fd);
  say_content("before");
  say_content("after");
  fd = make("gone");
  need(unlink("gone") == 0, "unlink");
  struct stat found;
  need(fstat(fd, &found) == 0, "fstat");
  say("links", (long)found.st_nlink);
  put(fd, "without a name");
  char text[32] = "";
  say("pread", pread(fd, text, sizeof(text), 0));
  printf("%s\n", text);
  close(fd);
  say("again", open("gone", O_RDONLY));
  fd = open("bound", O_WRONLY | O_CREAT | O_EXCL, 0);  /* its mode does not bind who has made it */
  put(fd, "written all the same");
  need(fchmod(fd, 0600) == 0, "fchmod");
  close(fd);
  say_content("bound");
  need(mkdir("moved", 0755) == 0, "mkdir");
  fd = make("moved/file");
  need(rename("moved", "elsewhere") == 0, "rename");
  put(fd, "in a folder that has moved");
  close(fd);
  say_content("elsewhere/file");
  need(chdir("elsewhere") == 0, "chdir");
  fd = make("below");
  put(fd, "relative");
  close(fd);
  say_content("below");
  need(chdir("..") == 0, "chdir");
  fd = open("appended", O_WRONLY | O_CREAT | O_APPEND, 0644);
  const int beside = open("appended", O_WRONLY);
  put(beside, "first ");
  put(fd, "second ");
  close(beside);
  close(fd);
  say_content("appended");
  fd = open("only-read", O_RDONLY | O_CREAT, 0644);
  say("read", read(fd, text, 1));
  say("write", write(fd, text, 1));
  say("lseek", lseek(fd, 7, SEEK_SET));
  close(fd);
}

static void others(void) {
  by_fork("fork");
  by_exec("exec");
  by_redirection("redirection");
  by_map("map");
  by_socket("socket");
  behind_its_name();
}

/* ---- numbers ---- */

static void numbers(void) {
  int fds[20];
  char name[32];
  for (int i = 0; i < 20; ++i) {
    snprintf(name, sizeof(name), "number%d", i);
    fds[i] = make(name);
    say(name, fds[i]);
  }
  close(fds[3]);
  say("again", close(fds[3]));
  say("close_range", close_range((unsigned)fds[5], (unsigned)fds[9], 0));
  syscall(SYS_close, fds[11]);
  for (int i = 20; i < 27; ++i) {
    snprintf(name, sizeof(name), "number%d", i);
    const int fd = make(name);
    say(name, fd);
    put(fd, name);
  }
  for (int i = 0; i < 20; ++i) {
    struct stat found;
    say("fstat", fstat(fds[i], &found));
  }
  for (int i = 3; i < 1024; ++i) close(i);
  say("lowest", make("lowest"));
  put(3, "the lowest number");
  closefrom(3);
  say("write", write(3, "x", 1));
  close(0);
  const int zero = make("zero");
  say("zero", zero);
  put(zero, "standard input");
  say_content("zero");
}

static void limit(void) {
  struct rlimit few = {64, 64};
  need(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
  int fds[64], count = 0;
  char name[32];
  for (;; ++count) {
    snprintf(name, sizeof(name), "limit%d", count);
    fds[count] = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fds[count] < 0) break;
  }
  printf("%s\n", strerrorname_np(errno));
  for (int i = 0; i < count; i += 7) put(fds[i], "at the limit");
  for (int i = 0; i < count; ++i) close(fds[i]);
  say_content("limit0");
  say_content("limit7");
}

/* ---- several at once ---- */

static void exclusive(int names) {
  enum { PROCESSES = 8 };
  int* const wins = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int process = 0; process < PROCESSES; ++process) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0) continue;
    begin(".");
    char name[64];
    for (int i = 0; i < names; ++i) {
      snprintf(name, sizeof(name), "exclusive%d", i);
      const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
      if (fd < 0 && errno != EEXIST) need(0, name);
      if (fd >= 0) __atomic_fetch_add(wins, 1, __ATOMIC_SEQ_CST);
      if (fd >= 0) close(fd);
    }
    _exit(0);
  }
  int status = 0;
  while (wait(&status) > 0) need(status == 0, "a child");
  say("wins", *wins);
}

static void many(int count) {
  struct rlimit most;
  need(getrlimit(RLIMIT_NOFILE, &most) == 0, "getrlimit");
  most.rlim_cur = most.rlim_max;
  need(setrlimit(RLIMIT_NOFILE, &most) == 0, "setrlimit");
  int* const fds = malloc((size_t)count * sizeof(int));
  char name[32];
  for (int i = 0; i < count; ++i) {
    snprintf(name, sizeof(name), "many%d", i);
    fds[i] = make(name);
  }
  for (int i = 0; i < count; i += count / 10) put(fds[i], "written");
  for (int i = 0; i < count; ++i) need(close(fds[i]) == 0, "close");
  say_content("many0");
  say("many", count);
}

static void* make_some(void* which) {
  char name[32];
  for (int i = 0; i < 60; ++i) {
    snprintf(name, sizeof(name), "thread%ld-%d", (long)which, i);
    const int fd = make(name);
    if (i % 3 == 0) put(fd, name);
    need(close(fd) == 0, "close");
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  for (long i = 0; i < 4; ++i) need(pthread_create(&all[i], NULL, make_some, (void*)i) == 0, "pthread_create");
  for (int i = 0; i < 5; ++i) say("system", system("true"));
  for (int i = 0; i < 4; ++i) pthread_join(all[i], NULL);
}

static void waits(void) {
  const int fd = make("waits");
  char line[8];
  printf("waits\n");
  fflush(stdout);
  need(fgets(line, sizeof(line), stdin) != NULL, "standard input");
  struct stat found;
  say("fstat", fstat(fd, &found));
  say("fcntl", fcntl(fd, F_GETFL));
  say("write", write(fd, "x", 1));
  say("lseek", lseek(fd, 0, SEEK_END));
  say("dup", dup(fd));
  say("open", open("more", O_WRONLY | O_CREAT, 0600));
  say("close", close(fd));
}

int main(int count, char** words) {
  need(count >= 3, "light_steps NAME DIRECTORY [COUNT]");
  const char* const name = words[1];
  const int number = count > 3 ? atoi(words[3]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(name, "errors") == 0) {
    errors(words[2]);
    return 0;
  }
  if (strcmp(name, "names") == 0) {
    each_call(1);
    return 0;
  }
  begin(words[2]);
  if (strcmp(name, "calls") == 0) each_call(0);
  if (strcmp(name, "others") == 0) others();
  if (strcmp(name, "numbers") == 0) numbers();
  if (strcmp(name, "limit") == 0) limit();
  if (strcmp(name, "exclusive") == 0) exclusive(number);
  if (strcmp(name, "many") == 0) many(number);
  if (strcmp(name, "threads") == 0) threads();
  if (strcmp(name, "waits") == 0) waits();
  return 0;
}
