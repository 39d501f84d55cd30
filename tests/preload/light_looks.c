/* What is asked of paths: stat and its kin, and access. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "light_steps.h"

static const char* const kPaths[] = {
    "kept",
    "kept/",
    "kept/x",
    "kept-unreadable",
    "written",
    "first",
    "missing",
    "missing/x",
    "",
    ".",
    "..",
    "./kept",
    "free",
    "free/",
    "free/.",
    "free//kept",
    "free/kept",
    "free/missing",
    "free/../kept",
    "free/below",
    "read-only/kept",
    "read-only/below",
    "no-search",
    "no-search/kept",
    "no-search/below/x",
    "closed",
    "closed/kept",
    "closed/missing",
    "write-only/kept",
    "sticky/kept",
    "set-group/below",
    "link-to-kept",
    "link-to-free",
    "link-to-free/kept",
    "link-to-closed/kept",
    "link-outside",
    "link-to-nothing",
    "link-to-itself",
    "link-to-itself/x",
    "program",
    "program-of-others",
    "set-user",
    ".swale",
};

static int is_same_time(struct timespec one, struct timespec other) {
  return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

enum { kAsksAgain = 5 };

static int is_same(const struct stat* one, const struct stat* other) {
  return one->st_dev == other->st_dev && one->st_ino == other->st_ino && one->st_mode == other->st_mode &&
         one->st_nlink == other->st_nlink && one->st_uid == other->st_uid && one->st_gid == other->st_gid &&
         one->st_size == other->st_size && one->st_blocks == other->st_blocks &&
         one->st_blksize == other->st_blksize && is_same_time(one->st_atim, other->st_atim) &&
         is_same_time(one->st_mtim, other->st_mtim) && is_same_time(one->st_ctim, other->st_ctim);
}

/* The kernel's word, which nobody has taken. */
static const char* beside_kernel(int at, const char* path, int flags, int result, int error,
                                 const struct stat* found) {
  struct stat kernel, again;
  const long said = syscall(SYS_newfstatat, at, path, &kernel, flags);
  if (said != result || (said != 0 && errno != error)) return "NOT AS THE KERNEL";
  if (said != 0) return "";
  // A drain may give a directory another time between the two: both are asked again.
  int same = is_same(&kernel, found);
  for (int i = 0; !same && i < kAsksAgain; ++i)
    same = fstatat(at, path, &again, flags) == 0 && syscall(SYS_newfstatat, at, path, &kernel, flags) == 0 &&
           is_same(&kernel, &again);
  return same ? "as the kernel" : "NOT AS THE KERNEL";
}

static void say_stat(const char* call, int at, const char* path, int flags, int result,
                     const struct stat* found) {
  const int error = errno;
  const char* const beside = beside_kernel(at, path, flags, result, error, found);
  if (result != 0) {
    printf(" %s %s %s", call, strerrorname_np(error), beside);
  } else if (S_ISREG(found->st_mode)) {
    printf(" %s mode %o links %d size %ld %s", call, found->st_mode, (int)found->st_nlink,
           (long)found->st_size, beside);
  } else {
    printf(" %s mode %o %s", call, found->st_mode, beside);
  }
}

static void put_time(struct timespec* to, const struct statx_timestamp* from) {
  to->tv_sec = from->tv_sec;
  to->tv_nsec = from->tv_nsec;
}

/* As a stat, with what only statx knows where `more` says so. */
static int stat_by_statx(int at, const char* path, int flags, int more, struct stat* found) {
  struct statx by;
  memset(&by, 0xee, sizeof(by));
  if (statx(at, path, flags, more ? STATX_BASIC_STATS | STATX_BTIME : STATX_BASIC_STATS, &by) != 0) return -1;
  need((by.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS, "the mask of statx");
  memset(found, 0, sizeof(*found));
  found->st_dev = makedev(by.stx_dev_major, by.stx_dev_minor);
  found->st_ino = by.stx_ino;
  found->st_mode = by.stx_mode;
  found->st_nlink = by.stx_nlink;
  found->st_uid = by.stx_uid;
  found->st_gid = by.stx_gid;
  found->st_size = (off_t)by.stx_size;
  found->st_blocks = (blkcnt_t)by.stx_blocks;
  found->st_blksize = by.stx_blksize;
  put_time(&found->st_atim, &by.stx_atime);
  put_time(&found->st_mtim, &by.stx_mtime);
  put_time(&found->st_ctim, &by.stx_ctime);
  return 0;
}

static void say_access(const char* call, int mode, int result) {
  printf(" %s %d %s", call, mode, result == 0 ? "yes" : strerrorname_np(errno));
}

static void look_at(int at, const char* prefix, const char* name) {
  char path[8192];
  struct stat found;
  snprintf(path, sizeof(path), "%s%s", prefix, name);
  printf("%.80s:", name);
  if (at == AT_FDCWD) {
    say_stat("stat", at, path, 0, stat(path, &found), &found);
    say_stat("lstat", at, path, AT_SYMLINK_NOFOLLOW, lstat(path, &found), &found);
  }
  say_stat("fstatat", at, path, 0, fstatat(at, path, &found, 0), &found);
  say_stat("fstatat", at, path, AT_SYMLINK_NOFOLLOW, fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW), &found);
  for (int more = 0; more < 2; ++more) {
    const int flags = more ? AT_SYMLINK_NOFOLLOW : AT_STATX_DONT_SYNC;
    const int result = stat_by_statx(at, path, flags, more, &found);
    say_stat("statx", at, path, flags & AT_SYMLINK_NOFOLLOW, result, &found);
  }
  for (int mode = F_OK; mode <= (R_OK | W_OK | X_OK); ++mode) {
    if (at == AT_FDCWD) say_access("access", mode, access(path, mode));
    say_access("faccessat", mode, faccessat(at, path, mode, 0));
    say_access("eaccess", mode, faccessat(at, path, mode, AT_EACCESS));
  }
  printf("\n");
}

static void look_at_all(const char* prefix, int at) {
  for (size_t i = 0; i < sizeof(kPaths) / sizeof(kPaths[0]); ++i) look_at(at, prefix, kPaths[i]);
  char name[300];
  memset(name, 'n', sizeof(name) - 1);
  name[sizeof(name) - 1] = '\0';
  look_at(at, prefix, name);
}

void looks(const char* directory, int bound) {
  char prefix[4200];
  need(chdir(directory) == 0, directory);
  make_places();
  if (bound) drop_capabilities();
  begin(".");
  close(open("program", O_WRONLY | O_CREAT, 0755));
  close(open("program-of-others", O_WRONLY | O_CREAT, 0641));
  close(open("set-user", O_WRONLY | O_CREAT, 0755));
  need(chmod("set-user", 04755) == 0, "chmod");
  const struct timespec before_1970[2] = {{-1, 250000000}, {-5, 7}};
  need(utimensat(AT_FDCWD, "program-of-others", before_1970, 0) == 0, "utimensat");
  const int fd = make("written");
  need(write(fd, "some bytes", 10) == 10, "written");
  snprintf(prefix, sizeof(prefix), "%s/", directory);
  const int at = open(".", O_RDONLY | O_DIRECTORY);
  look_at_all("", AT_FDCWD);
  look_at_all(prefix, AT_FDCWD);
  look_at_all("", at);
  close(at);
  close(fd);
  look_at(999, "", "kept");
  need(rename("kept", "moved") == 0 && unlink("program") == 0, "rename");
  look_at(AT_FDCWD, "", "kept");
  look_at(AT_FDCWD, "", "moved");
  look_at(AT_FDCWD, "", "program");
  for (const char* const* name =
           (const char* const[]){"read-only", "no-search", "closed", "write-only", NULL};
       *name != NULL; ++name)
    need(chmod(*name, 0755) == 0, "chmod");
}

enum { kTimesOfStatx = 100 };

void looks_by_statx(const char* directory) {
  struct stat found;
  need(chdir(directory) == 0, directory);
  begin(".");
  const int fd = make("written");
  for (int i = 0; i < kTimesOfStatx; ++i)
    need(stat_by_statx(AT_FDCWD, "written", 0, 0, &found) == 0 && S_ISREG(found.st_mode), "statx");
  close(fd);
}
