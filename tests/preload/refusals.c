/* refusals.c DIR GROUP: calls that a massive directory refuses. Prints "call ERRNO" lines; what is logged of
 * each, the test compares. A process logs 20 refusals: so they come in groups.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

static const char* directory;
static DIR* stream;

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void said(const char* call, long result) {
  printf("%s %s\n", call, result == 0 ? "OK" : result == -1 ? strerrorname_np(errno) : "?");
}

/* It must not have made anything. */
static void said_path(const char* call, const char* path) { said(call, path == NULL ? -1 : 0); }

static void said_stream(const char* call, FILE* opened) {
  said(call, opened == NULL ? -1 : 0);
  if (opened != NULL) fclose(opened);
}

static void begin(void) {
  stream = opendir(directory);
  if (stream == NULL || chdir(directory) != 0) fail(directory);
  FILE* const plain = fopen("../plain", "w");
  if (plain == NULL || fclose(plain) != 0) fail("../plain");
}

static void moves(void) {
  said("rename-into", rename("../plain", "a"));
  said("rename-out", rename("a", "../b"));
  said("rename", rename("a", "b"));
  said("renameat-into", renameat(AT_FDCWD, "../plain", dirfd(stream), "a"));
  said("renameat2", renameat2(AT_FDCWD, "a", AT_FDCWD, "b", 0));
  said("unlink", unlink("a"));
  said("unlinkat", unlinkat(dirfd(stream), "a", 0));
  said("remove", remove("a"));
}

static void attributes(void) {
  const struct timespec times[2] = {{1, 0}, {1, 0}};
  const struct timeval old_times[2] = {{1, 0}, {1, 0}};
  const struct utimbuf seconds = {1, 1};
  said("chmod", chmod("a", 0600));
  said("lchmod", lchmod("a", 0600));
  said("fchmodat", fchmodat(AT_FDCWD, "a", 0600, 0));
  said("chown", chown("a", 1, 1));
  said("lchown", lchown("a", 1, 1));
  said("fchownat", fchownat(AT_FDCWD, "a", 1, 1, 0));
  said("utime", utime("a", &seconds));
  said("utimes", utimes("a", old_times));
  said("lutimes", lutimes("a", old_times));
  said("futimesat", futimesat(dirfd(stream), "a", old_times));
  said("utimensat", utimensat(AT_FDCWD, "a", times, 0));
  said("truncate", truncate("a", 1));
}

/* Entries that are no values. */
static void entries(void) {
  char name[4096];
  const int at = dirfd(stream);
  said("link", link("../plain", "stray"));
  said("link-out", link("a", "../stray"));
  said("linkat", linkat(AT_FDCWD, "../plain", at, "stray", 0));
  said("symlink", symlink("../plain", "stray"));
  said("symlinkat", symlinkat("../plain", at, "stray"));
  said("mkdir", mkdir("stray", 0700));
  said("mkdirat", mkdirat(at, "stray", 0700));
  snprintf(name, sizeof name, "%s/stray//", directory);
  said("mkdir-slash", mkdir(name, 0700));
  said("mkfifo", mkfifo("stray", 0600));
  said("mkfifoat", mkfifoat(at, "stray", 0600));
  said("mknod", mknod("stray", S_IFREG | 0600, 0));
  said("mknodat", mknodat(at, "stray", S_IFREG | 0600, 0));
  said_path("mkdtemp", mkdtemp(strcpy(name, "strayXXXXXX")));
  said("mkstemp", mkstemp(strcpy(name, "strayXXXXXX")));
  said("mkostemp", mkostemp(strcpy(name, "strayXXXXXX"), O_CLOEXEC));
  said("mkstemps", mkstemps(strcpy(name, "strayXXXXXX.a"), 2));
  said("mkostemps", mkostemps(strcpy(name, "strayXXXXXX.a"), 2, O_CLOEXEC));
  said("beside", mkdir("../beside", 0700)); /* it is not in the directory */
}

static void opens(void) {
  said("open-both", open("a", O_RDWR | O_CREAT, 0600));
  said("open-write", open("a", O_WRONLY | O_CREAT, 0600));
  said("openat-both", openat(dirfd(stream), "a", O_RDWR | O_CREAT, 0600));
  said_stream("fopen-w", fopen("a", "w"));
  said_stream("fopen-r+", fopen("a", "r+"));
  said_stream("fopen-a+", fopen("a", "a+"));
  said_stream("fopen-r", fopen("a", "r"));
  FILE* const file = fopen("a", "a");
  if (file == NULL) fail("a");
  said("fseek", fseek(file, 0, SEEK_SET));
  said("ftell", ftell(file)); /* only asks: nothing is logged */
  said("fileno", fileno(file));
  if (fputs("kept", file) < 0 || fclose(file) != 0) fail("a");
  said("closedir", closedir(stream));
  said_stream("fopen-no-epoch", fopen("a", "a"));
  said("plain-unlink", unlink("../plain"));
}

int main(int count, char** words) {
  if (count < 3) return 2;
  directory = words[1];
  begin();
  if (strcmp(words[2], "moves") == 0) moves();
  if (strcmp(words[2], "attributes") == 0) attributes();
  if (strcmp(words[2], "entries") == 0) entries();
  if (strcmp(words[2], "opens") == 0) return opens(), 0;
  if (closedir(stream) != 0) fail("closedir");
  return 0;
}
