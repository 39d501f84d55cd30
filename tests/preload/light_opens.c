/* Files that are there, opened in each way, read and written. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "light_steps.h"

static const char* const kPaths[] = {
    "kept",
    "kept/",
    "kept/x",
    "kept-unreadable",
    "missing",
    "",
    ".",
    "free",
    "free/kept",
    "free//kept",
    "free/./kept",
    "free/../kept",
    "free/missing",
    "read-only/kept",
    "no-search/kept",
    "closed/kept",
    "write-only/kept",
    "sticky/kept",
    "set-group/kept",
    "program",
    "link-to-kept",
    "link-to-free/kept",
    "link-to-closed/kept",
    "link-outside",
    "link-to-nothing",
    "link-to-itself",
};

static const int kFlags[] = {
    O_RDONLY,
    O_WRONLY,
    O_RDWR,
    O_RDWR | O_CREAT,
    O_RDONLY | O_CREAT,
    O_WRONLY | O_CREAT | O_EXCL,
    O_RDWR | O_EXCL,
    O_RDONLY | O_NOFOLLOW,
    O_RDWR | O_NOFOLLOW | O_NOCTTY,
    O_WRONLY | O_APPEND,
    O_RDWR | O_APPEND,
    O_RDONLY | O_DIRECTORY,
    O_RDWR | O_SYNC,
    O_RDONLY | O_NONBLOCK,
    O_RDONLY | O_TRUNC,
    O_WRONLY | O_TRUNC,
    O_RDWR | O_TRUNC | O_CREAT,
    O_PATH,
};

static void say_all(int fd) {
  struct stat found;
  char text[8] = "";
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) return;
  printf(" mode %o size %ld", found.st_mode, (long)found.st_size);
  const long got = read(fd, text, 3);
  printf(" read %ld %s", got, got < 0 ? strerrorname_np(errno) : text);
  const long put = write(fd, "written", 7);
  printf(" write %ld %s", put, put < 0 ? strerrorname_np(errno) : "");
  printf(" at %ld", (long)lseek(fd, 0, SEEK_CUR));
  const long got_at = pread(fd, text, 4, 1);
  printf(" pread %ld %.4s", got_at, got_at < 0 ? strerrorname_np(errno) : text);
  printf(" size %ld flags %x", (long)lseek(fd, 0, SEEK_END), fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
}

static void open_one(int at, const char* prefix, const char* name, int flags) {
  char path[8192];
  snprintf(path, sizeof(path), "%s%s", prefix, name);
  const int fd = openat(at, path, flags | O_CLOEXEC, 0600);
  printf("%s %x: %s", name, flags, fd < 0 ? strerrorname_np(errno) : "open");
  if (fd >= 0) say_all(fd);
  if (fd >= 0) close(fd);
  printf("\n");
}

static void make_written(const char* name) {
  const int fd = make(name);
  need(write(fd, "first words", 11) == 11 && close(fd) == 0, name);
}

/* What was opened stays so, whatever its name leads to now. */
static void behind_its_name(void) {
  char text[32] = "";
  make_written("removed");
  int fd = open("removed", O_RDWR);
  need(fd >= 0 && unlink("removed") == 0, "unlink");
  struct stat found;
  need(fstat(fd, &found) == 0, "fstat");
  say("links", (long)found.st_nlink);
  say("pread", pread(fd, text, 5, 6));
  say("pwrite", pwrite(fd, "last", 4, 0));
  say("pread", pread(fd, text, sizeof(text), 0));
  printf("%s\n", text);
  close(fd);
  make_written("replaced");
  make_written("replaces");
  fd = open("replaced", O_WRONLY);
  need(fd >= 0 && rename("replaces", "replaced") == 0, "rename");
  say("write", write(fd, "nobody sees it", 14));
  close(fd);
  say_content("replaced");
  make_written("cut");
  const int before = open("cut", O_RDWR);
  fd = open("cut", O_RDWR | O_TRUNC);
  need(before >= 0 && fd >= 0 && write(fd, "new", 3) == 3, "cut");
  say("pread", pread(before, text, sizeof(text), 0));
  need(write(before, "NE", 2) == 2, "cut");
  close(before);
  close(fd);
  say_content("cut");
}

enum { kTimes = 200 };

static void many_times(void) {
  struct stat found;
  for (int i = 0; i < kTimes; ++i) {
    const int fd = open("often", i % 2 == 0 ? O_RDONLY : O_WRONLY);
    need(fd >= 0 && fstat(fd, &found) == 0 && found.st_size == 11 && close(fd) == 0, "often");
  }
}

void opens(const char* directory, int bound) {
  char prefix[4200];
  need(chdir(directory) == 0, directory);
  make_places();
  if (bound) drop_capabilities();
  begin(".");
  close(open("program", O_WRONLY | O_CREAT, 0755));
  snprintf(prefix, sizeof(prefix), "%s/", directory);
  const int at = open(".", O_RDONLY | O_DIRECTORY);
  for (size_t flags = 0; flags < sizeof(kFlags) / sizeof(kFlags[0]); ++flags) {
    for (size_t i = 0; i < sizeof(kPaths) / sizeof(kPaths[0]); ++i) {
      open_one(AT_FDCWD, "", kPaths[i], kFlags[flags]);
      open_one(AT_FDCWD, prefix, kPaths[i], kFlags[flags]);
      open_one(at, "", kPaths[i], kFlags[flags]);
      if ((kFlags[flags] & O_CREAT) != 0) unlink("missing"), unlink("free/missing"), unlink("nothing");
    }
  }
  close(at);
  behind_its_name();
  make_written("often");
  many_times();
  for (const char* const* name =
           (const char* const[]){"read-only", "no-search", "closed", "write-only", NULL};
       *name != NULL; ++name)
    need(chmod(*name, 0755) == 0, "chmod");
}
