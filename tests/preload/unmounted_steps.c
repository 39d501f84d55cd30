// Calls of names in a folder, each with what it has answered: natively and in a tree that is mounted nowhere
// the same (unmounted_test.py).
//   unmounted_steps calls FOLDER OUTSIDE   OUTSIDE: a folder that is in no tree, on the same file system
//   unmounted_steps modes FOLDER           as a user whom modes bind
//   unmounted_steps held FOLDER            makes a file by each call that can, says "held", waits for a line
//   unmounted_steps particles FOLDER COUNT a file a particle, by streams, twice
//   unmounted_steps threads FOLDER         threads make, rename and remove files of one folder
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64  // so that the canary's table can lack some of the names
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static void say(const char* call, long result) {
  if (result < 0)
    printf("%s: %s\n", call, strerrorname_np(errno));
  else
    printf("%s: %ld\n", call, result);
}
#define SAY(call) (errno = 0, say(#call, (long)(call)))
#define DO(call) say(#call, (errno = 0, (call) < 0 ? -1L : 0L))

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void put(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0) die(path);
}

static void show(const char* path) {
  char text[256];
  const int fd = open(path, O_RDONLY);
  const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
  if (got < 0)
    printf("%s: %s\n", path, strerrorname_np(errno));
  else
    printf("%s: '%.*s'\n", path, (int)got, text);
  if (fd >= 0) close(fd);
}

static void show_stat(const char* path) {
  struct stat by_path, by_link, by_open;
  const int a = stat(path, &by_path), e = errno, b = lstat(path, &by_link);
  printf("%s: ", path);
  if (a != 0 || b != 0) {
    printf("%d %d %s\n", a, b, strerrorname_np(e));
    return;
  }
  printf("%o %o %ld links %ld", by_path.st_mode, by_link.st_mode,
         S_ISREG(by_path.st_mode) ? (long)by_path.st_size : 0L,
         S_ISREG(by_path.st_mode) ? (long)by_path.st_nlink : 0L);
  const int fd = open(path, O_RDONLY);
  struct statx more;
  if (fd >= 0 && S_ISREG(by_path.st_mode)) {
    if (fstat(fd, &by_open) != 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more) != 0) die(path);
    printf(" same %d %d %d %d", by_open.st_ino == by_path.st_ino, by_open.st_dev == by_path.st_dev,
           by_open.st_mode == by_path.st_mode, by_open.st_size == by_path.st_size);
    printf(" %d %d", more.stx_ino == by_path.st_ino, more.stx_mtime.tv_sec == by_path.st_mtime);
  }
  if (fd >= 0) close(fd);
  printf("\n");
}

static int by_name(const struct dirent** a, const struct dirent** b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static void show_list(const char* path) {
  struct dirent** names;
  const int count = scandir(path, &names, NULL, by_name);
  printf("%s has", path);
  for (int i = 0; i < count; ++i) printf(" %s(%d)", names[i]->d_name, names[i]->d_type);
  printf("\n");
  DIR* const stream = opendir(path);
  int seen = 0, again = 0;
  while (stream != NULL && readdir(stream) != NULL) ++seen;
  if (stream != NULL) rewinddir(stream);
  while (stream != NULL && readdir(stream) != NULL) ++again;
  struct stat found;
  printf("%d %d %d\n", seen == count, again == count, stream != NULL && fstat(dirfd(stream), &found) == 0);
  if (stream != NULL) closedir(stream);
}

static void opens(void) {
  DO(open("new", O_RDONLY));
  DO(open("new", O_WRONLY | O_CREAT | O_EXCL, 0640));
  DO(open("new", O_WRONLY | O_CREAT | O_EXCL, 0640));
  DO(open("new/", O_RDONLY));
  DO(open("new/below", O_WRONLY | O_CREAT, 0640));
  DO(open("none/below", O_WRONLY | O_CREAT, 0640));
  DO(open("new", O_RDONLY | O_DIRECTORY));
  DO(open("./folder/../new", O_RDONLY));
  DO(open("folder", O_WRONLY));
  DO(open("folder", O_RDONLY | O_CREAT, 0600));
  DO(open("folder", O_RDONLY));
  DO(open("", O_RDONLY));
  DO(open("slash/", O_WRONLY | O_CREAT, 0600));
  DO(creat("created", 0600));
  DO(openat(AT_FDCWD, "old", O_RDONLY));
  show_stat("new");
  show_stat("created");
  show_stat("old");
  char longest[300];
  memset(longest, 'n', sizeof longest);
  longest[255] = '\0';
  SAY(close(open(longest, O_WRONLY | O_CREAT, 0600)) == 0);
  SAY(unlink(longest));
  longest[255] = 'n';
  longest[256] = '\0';
  DO(open(longest, O_WRONLY | O_CREAT, 0600));
  const mode_t before = umask(077);
  DO(open("private", O_WRONLY | O_CREAT, 0666));
  DO(mkdir("private-folder", 0777));
  umask(before);
  show_stat("private");
  show_stat("private-folder");
}

static void links(void) {
  SAY(symlink("new", "to-new"));
  SAY(symlink("none-yet", "to-none"));
  SAY(symlink("to-loop", "to-loop"));
  SAY(symlink("folder", "to-folder"));
  SAY(symlink("x", "new"));
  DO(open("to-new", O_RDONLY));
  DO(open("to-new", O_RDONLY | O_NOFOLLOW));
  DO(open("to-none", O_RDONLY));
  DO(open("to-none", O_WRONLY | O_CREAT | O_EXCL, 0600));
  DO(open("to-none", O_WRONLY | O_CREAT, 0600));
  DO(open("to-loop", O_RDONLY));
  DO(open("to-folder/inside", O_WRONLY | O_CREAT, 0600));
  show_stat("none-yet");
  show_stat("to-none");
  show_stat("to-folder");
  show_stat("folder/inside");
  show_stat("to-loop");
  char text[100];
  SAY(readlink("to-new", text, sizeof text));
  SAY(readlink("new", text, sizeof text));
  SAY(readlink("none", text, sizeof text));
  SAY(realpath("new", NULL) != NULL);
  SAY(realpath("to-folder/inside", NULL) != NULL);
  SAY(realpath("none", NULL) != NULL);
}

static void data(void) {
  put("text", "0123456789");
  const int fd = open("text", O_RDWR);
  char piece[16] = "";
  SAY(lseek(fd, 4, SEEK_SET));
  SAY(read(fd, piece, 3));
  SAY(write(fd, "ABC", 3));
  SAY(pwrite(fd, "Z", 1, 0));
  SAY(lseek(fd, 0, SEEK_CUR));
  SAY(ftruncate(fd, 12));
  SAY(fsync(fd));
  SAY(fdatasync(fd));
  char* const map = mmap(NULL, 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  SAY(map != MAP_FAILED);
  if (map != MAP_FAILED) map[1] = 'M';
  show("text");
  SAY(fchmod(fd, 0600));
  const struct timespec times[2] = {{1000, 0}, {2000, 5000}};
  SAY(futimens(fd, times));
  struct stat found;
  fstat(fd, &found);
  printf("%o %ld %ld\n", found.st_mode, (long)found.st_atime, (long)found.st_mtime);
  const int other = open("copied", O_WRONLY | O_CREAT, 0644);
  off_t place = 0;
  SAY(sendfile(other, fd, &place, 12));
  SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
  close(other);
  show("copied");
  const int appends = open("text", O_WRONLY | O_APPEND), also = open("text", O_WRONLY | O_APPEND);
  SAY(write(appends, "one", 3));
  SAY(write(also, "two", 3));
  SAY(write(appends, "three", 5));
  close(appends);
  close(also);
  if (map != MAP_FAILED) munmap(map, 12);
  close(fd);
  show("text");
  show_stat("text");
  SAY(truncate("text", 3));
  show("text");
  SAY(truncate("text", 8));
  show_stat("text");
  SAY(truncate("none", 8));
  SAY(truncate("folder", 8));
  SAY(truncate("old", 2));
  show("old");
  put("old", "written anew");
  show("old");
  SAY(unlink("copied"));
}

static void children(void) {
  const int fd = open("shared", O_RDWR | O_CREAT, 0644);
  if (write(fd, "parent ", 7) != 7) die("shared");
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (write(fd, "child ", 6) != 6) _exit(1);
    dup2(fd, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", "echo from a shell; cat old", (char*)NULL);
    _exit(2);
  }
  int state = 0;
  waitpid(child, &state, 0);
  SAY(state);
  SAY(write(fd, "parent again", 12));
  SAY(lseek(fd, 0, SEEK_CUR));
  close(fd);
  show("shared");
  SAY(system("echo appended >> shared; wc -c < shared; test -f shared && echo there"));
  put("script", "#!/bin/sh\necho a script has run\n");
  SAY(chmod("script", 0755));
  SAY(system("./script"));
  SAY(system("for f in ol*; do echo $f; done; ls folder | sort; cp shared copy; cmp shared copy && rm copy"));
}

static void streams(void) {
  FILE* stream = fopen("stream", "w");
  SAY(fprintf(stream, "%s %d\n", "line", 1));
  SAY(fileno(stream) >= 0);
  SAY(fclose(stream));
  stream = fopen("stream", "a+");
  SAY(fputs("line 2\n", stream) >= 0);
  rewind(stream);
  char line[100];
  while (fgets(line, sizeof line, stream) != NULL) printf("read %s", line);
  SAY(fclose(stream));
  SAY(fopen("stream", "wx") != NULL);
  SAY(fopen("none", "r") != NULL);
  SAY(fopen("none", "r+") != NULL);
  stream = fopen("stream", "r+");
  SAY(fseek(stream, 5, SEEK_SET));
  SAY(fputc('X', stream));
  stream = freopen("reopened", "w", stream);
  SAY(stream != NULL);
  SAY(fputs("into another", stream) >= 0);
  SAY(fclose(stream));
  show("stream");
  show("reopened");
  char drawn[] = "drawnXXXXXX", with_end[] = "drawnXXXXXX.end", wrong[] = "drawnXXXXX";
  SAY(close(mkstemp(drawn)));
  SAY(close(mkstemps(with_end, 4)));
  DO(mkstemp(wrong));
  SAY(access(drawn, R_OK));
  SAY(unlink(drawn));
  SAY(unlink(with_end));
}

static void names(const char* outside) {
  put("a", "a");
  put("b", "bb");
  SAY(rename("a", "b"));
  show("b");
  SAY(rename("a", "b"));
  SAY(rename("b", "folder"));
  SAY(rename("folder", "b"));
  SAY(rename("b", "folder/b"));
  SAY(rename("folder/b", "b/c"));
  SAY(renameat2(AT_FDCWD, "folder/b", AT_FDCWD, "old", RENAME_NOREPLACE));
  SAY(renameat2(AT_FDCWD, "folder/b", AT_FDCWD, "old", RENAME_EXCHANGE));
  show("old");
  show("folder/b");
  SAY(rename("folder/b", "old"));
  SAY(mkdir("folder", 0755));
  SAY(mkdir("old", 0755));
  SAY(mkdir("made", 0755));
  SAY(mkdir("made/deeper/", 0755));
  put("made/deeper/file", "deep");
  SAY(rmdir("made"));
  SAY(rmdir("made/deeper"));
  SAY(rename("made", "moved"));
  show("moved/deeper/file");
  SAY(rename("moved", "moved/deeper/into-itself"));
  SAY(unlink("moved/deeper"));
  SAY(rmdir("moved/deeper/file"));
  SAY(unlink("moved/deeper/file"));
  SAY(unlink("moved/deeper/file"));
  SAY(remove("moved/deeper"));
  SAY(rmdir("moved"));
  SAY(rmdir("."));
  const int fd = open("gone", O_RDWR | O_CREAT, 0600);
  SAY(write(fd, "still", 5));
  SAY(unlink("gone"));
  struct stat found;
  SAY(fstat(fd, &found));
  printf("%ld links, %ld bytes\n", (long)found.st_nlink, (long)found.st_size);
  SAY(pread(fd, &found, 5, 0));
  close(fd);
  SAY(access("gone", F_OK));
  char path[4096];
  snprintf(path, sizeof path, "%s/out", outside);
  put(path, "outside");
  show(path);
  SAY(unlink(path));
  snprintf(path, sizeof path, "%s/link", outside);
  char target[4096];
  if (getcwd(target, sizeof target - 10) == NULL) die("getcwd");
  strcat(target, "/by-link");
  SAY(symlink(target, path));
  put(path, "through a link from outside");
  show("by-link");
  SAY(unlink(path));
}

static void attributes(void) {
  put("dressed", "x");
  SAY(chmod("dressed", 0604));
  show_stat("dressed");
  SAY(chmod("none", 0604));
  SAY(chmod("folder", 0700));
  show_stat("folder");
  const struct timespec times[2] = {{100, 0}, {200, 300}};
  SAY(utimensat(AT_FDCWD, "dressed", times, 0));
  const struct timeval late[2] = {{300, 0}, {400, 0}};
  struct stat found;
  stat("dressed", &found);
  printf("%ld %ld.%09ld\n", (long)found.st_atime, (long)found.st_mtime, found.st_mtim.tv_nsec);
  SAY(utimes("dressed", late));
  stat("dressed", &found);
  printf("%ld %ld\n", (long)found.st_atime, (long)found.st_mtime);
  const struct utimbuf simple = {500, 600};
  SAY(utime("dressed", &simple));
  stat("dressed", &found);
  printf("%ld %ld\n", (long)found.st_atime, (long)found.st_mtime);
  SAY(utimes("none", late));
  SAY(chown("dressed", getuid(), getgid()));
  SAY(access("dressed", R_OK));
  SAY(access("dressed", X_OK));
  SAY(access("none", R_OK));
  SAY(access("folder", W_OK));
  SAY(euidaccess("folder", W_OK));
  struct statvfs space;
  SAY(statvfs("dressed", &space));
  SAY(getxattr("none", "user.x", NULL, 0));
}

static void lists(void) {
  show_list("folder");
  DIR* const none = opendir("none");
  SAY(none == NULL);
  SAY(opendir("old") == NULL);
  const int fd = open("folder", O_RDONLY | O_DIRECTORY);
  SAY(close(openat(fd, "by-descriptor", O_WRONLY | O_CREAT, 0600)));
  struct stat found;
  SAY(fstatat(fd, "by-descriptor", &found, 0));
  SAY(fstatat(fd, "none", &found, 0));
  SAY(faccessat(fd, "by-descriptor", R_OK, 0));
  SAY(renameat(fd, "by-descriptor", AT_FDCWD, "by-name"));
  SAY(unlinkat(fd, "by-descriptor", 0));
  SAY(mkdirat(fd, "sub", 0755));
  SAY(unlinkat(fd, "sub", AT_REMOVEDIR));
  DIR* const stream = fdopendir(fd);
  int count = 0;
  while (readdir(stream) != NULL) ++count;
  SAY(count);
  SAY(closedir(stream));
  glob_t matched;
  SAY(glob("*ol*", 0, NULL, &matched));
  for (size_t i = 0; i < matched.gl_pathc; ++i) printf("%s\n", matched.gl_pathv[i]);
  globfree(&matched);
  SAY(chdir("folder"));
  SAY(close(open("in-it", O_WRONLY | O_CREAT, 0600)));
  SAY(access("../folder/in-it", F_OK));
  SAY(unlink("in-it"));
  SAY(chdir(".."));
}

static int calls(const char* outside) {
  opens();
  links();
  data();
  children();
  streams();
  names(outside);
  attributes();
  lists();
  return 0;
}

// What modes forbid one that does not override them, whoever runs the test.
static int modes(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0}};
  if (syscall(SYS_capset, &header, none) != 0) die("capset");
  mkdir("closed", 0700);
  put("closed/file", "x");
  put("unreadable", "x");
  put("read-only", "x");
  chmod("unreadable", 0200);
  chmod("read-only", 0444);
  chmod("closed", 0000);
  DO(open("closed/file", O_RDONLY));
  DO(open("closed/new", O_WRONLY | O_CREAT, 0600));
  SAY(unlink("closed/file"));
  SAY(access("closed/file", F_OK));
  SAY(opendir("closed") == NULL);
  chmod("closed", 0500);
  DO(open("closed/file", O_RDONLY));
  DO(open("closed/new", O_WRONLY | O_CREAT, 0600));
  SAY(unlink("closed/file"));
  SAY(rename("closed/file", "closed/other"));
  SAY(mkdir("closed/folder", 0700));
  chmod("closed", 0300);
  SAY(opendir("closed") == NULL);
  DO(open("closed/new", O_WRONLY | O_CREAT, 0600));
  chmod("closed", 0700);
  DO(open("unreadable", O_RDONLY));
  DO(open("unreadable", O_WRONLY));
  DO(open("read-only", O_RDONLY));
  DO(open("made-so", O_WRONLY | O_CREAT, 0000));
  DO(open("made-so", O_WRONLY));
  SAY(access("unreadable", R_OK));
  SAY(access("unreadable", W_OK));
  show_list(".");
  return 0;
}

static int held(void) {
  char drawn[] = "mkstempXXXXXX";
  const int by[] = {open("open", O_WRONLY | O_CREAT, 0600),
                    openat(AT_FDCWD, "openat", O_WRONLY | O_CREAT, 0600), creat("creat", 0600),
                    mkstemp(drawn)};
  for (size_t i = 0; i < sizeof by / sizeof *by; ++i)
    if (by[i] < 0 || write(by[i], "held", 4) != 4) die("held");
  FILE* const stream = fopen("fopen", "w");
  FILE* const again = freopen("freopen", "w", fopen("/dev/null", "r"));
  if (stream == NULL || again == NULL) die("streams");
  fputs("held", stream);
  fputs("held", again);
  fflush(NULL);
  put("renamed-before", "held");
  if (rename("renamed-before", "renamed") != 0) die("rename");
  const int kept = open("renamed", O_RDWR);
  if (kept < 0) die("renamed");
  puts("held");
  fflush(stdout);
  return getchar() == EOF;
}

static int particles(const char* counted) {
  const int count = atoi(counted);
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < count; ++i) {
      char name[32];
      snprintf(name, sizeof name, "particle.%d", i);
      FILE* const stream = fopen(name, "a");
      if (stream == NULL) die(name);
      const double values[5] = {i, step, 1.0 / (i + 1), 2.0, 3.0};
      if (fwrite(values, sizeof values, 1, stream) != 1 || fclose(stream) != 0) die(name);
    }
  }
  return 0;
}

enum { kThreads = 6, kRounds = 60 };

static void* one_of_threads(void* number) {
  const long own = (long)number;
  for (int i = 0; i < kRounds; ++i) {
    char name[32], other[32];
    snprintf(name, sizeof name, "t%ld-%d", own, i);
    snprintf(other, sizeof other, "shared-%d", i % 3);
    put(name, "the same");
    const int fd = open("together", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) != 0) die("together");
    if (i % 3 == 0 && rename(name, other) != 0) die(name);
    if (i % 3 == 1 && unlink(name) != 0) die(name);
  }
  return NULL;
}

static int threads(void) {
  pthread_t all[kThreads];
  for (long i = 0; i < kThreads; ++i)
    if (pthread_create(&all[i], NULL, one_of_threads, (void*)i) != 0) die("thread");
  for (int i = 0; i < kThreads; ++i) pthread_join(all[i], NULL);
  struct stat found;
  if (stat("together", &found) != 0) die("together");
  printf("%ld\n", (long)found.st_size);
  return 0;
}

int main(int count, char** words) {
  if (count < 3 || chdir(words[2]) != 0) die("unmounted_steps STEPS FOLDER");
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(words[1], "calls") == 0 && count == 4) return calls(words[3]);
  if (strcmp(words[1], "modes") == 0) return modes();
  if (strcmp(words[1], "held") == 0) return held();
  if (strcmp(words[1], "particles") == 0 && count == 4) return particles(words[3]);
  if (strcmp(words[1], "threads") == 0) return threads();
  return 2;
}
