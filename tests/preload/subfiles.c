/* subfiles.c DIR DO: subfiles of a massive directory by open, write and close, by name, and in processes and
 * threads that fork. Prints "call ERRNO" lines, which the test compares; what was written, it reads by swale.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define APPEND (O_WRONLY | O_CREAT | O_APPEND)
#define SAID(call) said(#call, (long)(call))
#define WRITERS 3
#define VALUES 400
#define FORKS 40

int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int at, const char* path, int flags);

static const char* directory;

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

/* 0 and positive numbers are OK. */
static void said(const char* call, long result) {
  printf("%s %s\n", call, result == -1 ? strerrorname_np(errno) : "OK");
  fflush(stdout);
}

static int open_name(const char* name) {
  const int fd = open(name, APPEND, 0644);
  if (fd < 0) fail(name);
  return fd;
}

static void put(int fd, const char* text) {
  if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail(text);
}

static void end(int fd) {
  if (close(fd) != 0) fail("close");
}

static void put_one(int fd, const char* text) {
  if (fd < 0) fail(text);
  put(fd, text);
  end(fd);
}

static void aliases(int folder) {
  put_one(open("open", APPEND, 0644), "1");
  put_one(open64("open64", APPEND | O_CLOEXEC, 0644), "2");
  put_one(openat(AT_FDCWD, "openat", APPEND, 0644), "3");
  put_one(openat64(folder, "openat64", APPEND, 0644), "4");
  put_one(__open_2("open_2", O_WRONLY | O_APPEND), "5");
  put_one(__open64_2("open64_2", O_WRONLY | O_APPEND), "6");
  put_one(__openat_2(folder, "openat_2", O_WRONLY | O_APPEND), "7");
}

static void refused(void) {
  SAID(open("x", O_RDWR | O_CREAT | O_APPEND, 0600));
  SAID(open("x", O_WRONLY | O_CREAT, 0600));
  SAID(open("x", APPEND | O_EXCL, 0600));
  SAID(open("x", APPEND | O_SYNC, 0600));
  SAID(open("x", O_RDONLY | O_CREAT, 0600));
  SAID(open("x", O_RDONLY));
  SAID(creat("x", 0600));
}

static void calls(void) {
  struct iovec parts[2] = {{"two ", 4}, {"three", 5}};
  struct timespec times[2] = {{1, 0}, {1, 0}};
  struct stat found;
  struct statvfs system_found, folder_found;
  char byte;
  const int fd = open_name("calls");
  put(fd, "one ");
  SAID(writev(fd, parts, 2));
  SAID(pwrite(fd, "x", 1, 0));
  SAID(pwritev(fd, parts, 2, 0));
  SAID(pwritev2(fd, parts, 0, -1, 0));
  SAID(lseek(fd, 0, SEEK_SET));
  SAID(lseek(fd, 5, SEEK_SET));
  SAID(read(fd, &byte, 1));
  SAID(pread(fd, &byte, 1, 0));
  SAID(ftruncate(fd, 0));
  SAID(fchmod(fd, 0600));
  SAID(fchown(fd, 1, 1));
  SAID(fchownat(fd, "", 1, 1, AT_EMPTY_PATH));
  SAID(futimens(fd, times));
  SAID(fsync(fd));
  SAID(fdatasync(fd));
  SAID(flock(fd, LOCK_EX));
  SAID(sendfile(fd, fd, NULL, 1));
  SAID(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
  SAID(dprintf(fd, "inside the C library"));
  SAID(fdopen(fd, "a") == NULL ? -1 : 0);
  SAID(fcntl(fd, F_SETFL, 0));
  SAID(fstat(fd, &found));
  printf("size %ld\nregular %d\nflags %d\n", (long)found.st_size, S_ISREG(found.st_mode),
         fcntl(fd, F_GETFL) == (O_WRONLY | O_APPEND));
  if (fstatvfs(fd, &system_found) != 0 || statvfs(".", &folder_found) != 0) fail("fstatvfs");
  printf("same-system %d\n", system_found.f_fsid == folder_found.f_fsid);
  end(fd);
  SAID(close(fd));
  SAID(write(fd, "x", 1));
}

/* One description, several descriptors: one value, at the last close. */
static void copies(void) {
  const int fd = open_name("copies"), copy = dup(fd), other = fcntl(fd, F_DUPFD_CLOEXEC, 60);
  if (copy < 0 || other < 60 || dup2(fd, 70) != 70 || dup3(fd, 71, O_CLOEXEC) != 71) fail("dup");
  put(fd, "a");
  end(fd);
  put(copy, "b");
  end(copy);
  put(other, "c");
  end(other);
  put(70, "d");
  end(70);
  put(71, "e");
  if (dup2(STDERR_FILENO, 71) != 71) fail("dup2"); /* closes it */
  end(71);
  const int first = open_name("range1"), second = open_name("range2");
  put(first, "1");
  put(second, "2");
  if (close_range((unsigned)first, (unsigned)first, 0) != 0) fail("close_range");
  if (syscall(SYS_close, second) != 0) fail("SYS_close");
  int ends[2]; /* have their numbers */
  if (pipe(ends) != 0 || ends[0] != first) fail("pipe");
  put(ends[1], "pipe");
  char text[5] = "";
  if (read(ends[0], text, 4) != 4 || strcmp(text, "pipe") != 0) fail("the pipe");
  end(ends[0]);
  end(ends[1]);
  end(open_name("nothing"));
}

static void large(void) {
  static char many[3000000];
  memset(many, 'x', sizeof many);
  const int fd = open_name("large");
  for (size_t done = 0; done < sizeof many;) {
    const ssize_t wrote = write(fd, many + done, sizeof many - done < 7000 ? sizeof many - done : 7000);
    if (wrote <= 0) fail("large");
    done += (size_t)wrote;
  }
  end(fd);
}

static void wait_for(pid_t child, const char* what) {
  int state = 0;
  if (waitpid(child, &state, 0) != child || state != 0) fail(what);
}

/* Other processes have a number that takes nothing, and change nothing of the parent's. */
static void processes(void) {
  const int fd = open_name("parents");
  put(fd, "mine");
  pid_t child = fork();
  if (child == 0) {
    if (write(fd, "childs", 6) != -1 || errno != EBADF) _exit(2);
    if (close(fd) != 0) _exit(3);
    const int plain = open("../plain", O_WRONLY | O_CREAT | O_TRUNC, 0600); /* the same number */
    if (plain != fd || write(plain, "plain", 5) != 5 || close(plain) != 0) _exit(4);
    for (int i = 0; i < 200; ++i) { /* names that the engine takes at once */
      char name[32];
      snprintf(name, sizeof name, "%08d", i);
      FILE* const file = fopen(name, "a");
      if (file != NULL && fputs("x", file) >= 0 && fclose(file) == 0) _exit(5);
      const int own = open(name, APPEND, 0600);
      if (own >= 0 && write(own, "x", 1) == 1 && close(own) == 0) _exit(6);
    }
    exit(0);
  }
  wait_for(child, "fork");
  child = vfork();
  if (child == 0) {
    dup2(fd, STDOUT_FILENO);
    close(fd);
    execl("/bin/echo", "echo", "to the placeholder", (char*)NULL);
    _exit(9);
  }
  int state = 0;
  waitpid(child, &state, 0);
  printf("echo-failed %d\n", WIFEXITED(state) && WEXITSTATUS(state) == 1);
  char command[64];
  snprintf(command, sizeof command, "echo x 2>/dev/null >&%d", fd);
  printf("shell-failed %d\n", system(command) != 0);
  put(fd, " alone");
  end(fd);
}

static void descriptors(void) {
  DIR* const stream = opendir(directory);
  if (stream == NULL || chdir(directory) != 0) fail(directory);
  aliases(dirfd(stream));
  refused();
  calls();
  copies();
  large();
  processes();
  if (closedir(stream) != 0) fail("closedir");
  said("open-no-epoch", open("a", APPEND, 0600));
}

/* ---- Names, of epochs that have ended ---- */

static void show(const char* how, int fd) {
  char text[64] = "";
  const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  printf("%s %s\n", how, got < 0 ? strerrorname_np(errno) : text);
  if (fd >= 0) close(fd);
}

static void names(void) {
  struct stat found;
  struct statx found_x;
  for (int epoch = 0; epoch < 2; ++epoch) {
    DIR* const stream = opendir(directory);
    if (stream == NULL || chdir(directory) != 0) fail(directory);
    put_one(open("name", APPEND, 0644), epoch == 0 ? "first" : "second");
    printf("stat-%d %s\n", epoch, stat("name", &found) == 0 ? "OK" : strerrorname_np(errno));
    if (closedir(stream) != 0) fail("closedir");
    printf("size-%d %ld\n", epoch, stat("name", &found) == 0 ? (long)found.st_size : -1);
  }
  const ino_t inode = found.st_ino;
  if (lstat("name", &found) != 0 || fstatat(AT_FDCWD, "name", &found, 0) != 0) fail("lstat");
  printf("mode %o\n", (unsigned)found.st_mode);
  if (statx(AT_FDCWD, "name", 0, STATX_BASIC_STATS, &found_x) != 0) fail("statx");
  printf("same %d\n", found.st_ino == inode && found_x.stx_ino == inode && found_x.stx_size == 11);
  SAID(access("name", R_OK | W_OK));
  SAID(access("name", X_OK));
  SAID(faccessat(AT_FDCWD, "name", F_OK, 0));
  SAID(access("none", F_OK));
  SAID(stat("none", &found));
  show("open", open("name", O_RDONLY));
  show("none", open("none", O_RDONLY));
  const int fd = open("name", O_RDONLY | O_CLOEXEC);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int again = open(path, O_RDWR);
  said("write-again", again < 0 ? -1 : write(again, "x", 1));
  said("write", write(fd, "x", 1));
  if (lseek(fd, 5, SEEK_SET) != 5 || fstat(fd, &found) != 0) fail("lseek");
  printf("fstat %ld\n", (long)found.st_size);
  show("seek", fd);
  FILE* const file = fopen("name", "r");
  char text[64] = "";
  if (file == NULL || fgets(text, sizeof text, file) == NULL || fclose(file) != 0) fail("fopen");
  printf("fopen %s\n", text);
  FILE* const manifest = fopen("swale.json", "r"); /* the directory's own files are the kernel's */
  if (manifest == NULL || fgetc(manifest) != '{' || fclose(manifest) != 0) fail("swale.json");
  const pid_t child = fork(); /* without libswale's threads */
  if (child == 0) _exit(open("name", O_RDONLY) == -1 && errno == EPERM ? 0 : 1);
  wait_for(child, "a child reads");
}

/* ---- Threads that write while others fork ---- */

static atomic_int writing = WRITERS;
static atomic_int written = 0; /* the process that writes first has the engine: none may fork before */

static void* write_values(void* number) {
  for (int i = 0; i < VALUES; ++i) {
    char name[32];
    snprintf(name, sizeof name, "%ld.%d", (long)number, i);
    if (i % 2 == 0) {
      put_one(open(name, APPEND, 0600), name);
    } else {
      FILE* const file = fopen(name, "a");
      if (file == NULL || fputs(name, file) < 0 || fclose(file) != 0) fail(name);
    }
    atomic_store(&written, 1);
    DIR* const listing = i % 16 == 0 ? opendir(".") : NULL; /* takes the tables' lock */
    if (listing != NULL && (readdir(listing) == NULL || closedir(listing) != 0)) fail("listing");
  }
  atomic_fetch_sub(&writing, 1);
  return NULL;
}

static void forks(void) {
  pthread_t threads[WRITERS];
  DIR* const stream = opendir(directory);
  if (stream == NULL || chdir(directory) != 0) fail(directory);
  for (long i = 0; i < WRITERS; ++i)
    if (pthread_create(&threads[i], NULL, write_values, (void*)i) != 0) fail("pthread_create");
  while (atomic_load(&written) == 0) usleep(100);
  int count = 0;
  for (; count < FORKS || (atomic_load(&writing) > 0 && count < 10 * FORKS); ++count) {
    const pid_t child = fork();
    if (child == 0) {
      DIR* const listing = opendir(directory); /* may wait for nobody */
      if (listing == NULL || readdir(listing) == NULL || closedir(listing) != 0) _exit(1);
      FILE* const file = fopen("childs", "a");
      if (file != NULL && fputs("x", file) >= 0 && fclose(file) == 0) _exit(2);
      if (count % 2 == 0) exit(0);
      execl("/bin/true", "true", (char*)NULL);
      _exit(3);
    }
    wait_for(child, "a child of threads that write");
  }
  for (int i = 0; i < WRITERS; ++i) pthread_join(threads[i], NULL);
  if (closedir(stream) != 0) fail("closedir");
  printf("forks %d\n", count >= FORKS);
}

int main(int count, char** words) {
  if (count < 3) return 2;
  directory = words[1];
  if (strcmp(words[2], "descriptors") == 0) descriptors();
  if (strcmp(words[2], "names") == 0) names();
  if (strcmp(words[2], "forks") == 0) forks();
  return 0;
}
