/* particles.c DIR EPOCHS PARTICLES [DO]: a program that writes a file for each particle, with the C library's
 * functions only, as the one of deltafs-imd-2017 does. A rank (SWALE_JOB_RANK and others of a launcher) has
 * the particles "r<rank>.<i>"; a value is 40 bytes, which tell its epoch. DO is a case of its own: see main.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char* directory;
static int rank;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
  exit(1);
}

static void write_value(const char* folder, const char* name, const char* mode, const void* value,
                        size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s%s", folder, name);
  FILE* const file = fopen(path, mode);
  if (file == NULL) fail(path);
  if (fwrite(value, 1, bytes, file) != bytes) fail(path);
  if (fclose(file) != 0) fail(path);
}

static const char* with_slash(const char* path) {
  static char text[4096];
  snprintf(text, sizeof text, "%s/", path);
  return text;
}

static void write_epoch(int epoch, int particles) {
  DIR* const stream = opendir(directory);
  if (stream == NULL) fail(directory);
  for (int i = 0; i < particles; ++i) {
    char name[64], value[41];
    snprintf(name, sizeof name, "r%d.%d", rank, i);
    snprintf(value, sizeof value, "%-40d", epoch * 1000 + i);
    write_value(with_slash(directory), name, "a", value, 40);
  }
  if (closedir(stream) != 0) fail("closedir");
}

/* What the call gave, by the name of its error. */
static void said(const char* call, long result) {
  printf("%s %s\n", call, result == -1 || result == 0 ? (result == 0 ? "OK" : strerrorname_np(errno)) : "?");
}

/* Spellings of one folder, and one that looks like it and is another. */
static void spellings(void) {
  char other[4096];
  DIR* const stream = opendir(directory);
  write_value(with_slash(directory), "absolute", "a", "1", 1);
  if (chdir(directory) != 0) fail("chdir");
  write_value("", "relative", "a", "2", 1);
  write_value("./", "dot", "a", "3", 1);
  snprintf(other, sizeof other, "../%s/", strrchr(directory, '/') + 1);
  write_value(other, "up", "a", "4", 1);
  if (chdir("..") != 0 || symlink(directory, "link") != 0) fail("symlink");
  write_value("link/", "by-link", "a", "5", 1);
  write_value("", "outside", "a", "6", 1); /* a plain file, though its text was "relative"'s */
  if (unlink("link") != 0 || mkdir("link", 0700) != 0) fail("mkdir");
  write_value("link/", "elsewhere", "a", "7", 1);
  if (closedir(stream) != 0) fail("closedir");
}

static void sizes(void) {
  static char many[300000];
  DIR* const stream = opendir(directory);
  memset(many, 'x', sizeof many);
  write_value(with_slash(directory), "large", "a", many, sizeof many);
  write_value(with_slash(directory), "page", "a", many, 4097);
  char path[4096];
  snprintf(path, sizeof path, "%s/pieces", directory);
  FILE* const first = fopen(path, "a");
  FILE* const second = fopen(path, "a"); /* two at a time */
  fputs("one ", first);
  fputs("three", second);
  fflush(first);
  fprintf(first, "%s ", "two");
  if (fclose(first) != 0 || fclose(second) != 0) fail(path);
  for (int i = 0; i < 2; ++i) { /* a buffer of the program's, which the next stream must not have */
    char own[64];
    snprintf(path, sizeof path, "%s/buffer%d", directory, i);
    FILE* const file = fopen(path, "a");
    if (i == 0 && setvbuf(file, own, _IOLBF, sizeof own) != 0) fail("setvbuf");
    for (int line = 0; line < 100; ++line) fprintf(file, "line %d\n", line);
    if (fclose(file) != 0) fail(path);
    memset(own, '?', sizeof own);
  }
  snprintf(path, sizeof path, "%s/nothing", directory);
  if (fclose(fopen(path, "a")) != 0) fail(path);
  if (closedir(stream) != 0) fail("closedir");
}

static void processes(void) {
  DIR* const stream = opendir(directory);
  write_value(with_slash(directory), "before", "a", "1", 1);
  char path[4096];
  snprintf(path, sizeof path, "%s/by-parent", directory);
  FILE* const open_in_both = fopen(path, "a");
  fputs("once", open_in_both);
  const pid_t child = fork();
  if (child == 0) { /* it has no engine; at its exit it flushes what its parent has not */
    snprintf(path, sizeof path, "%s/by-child", directory);
    FILE* const file = fopen(path, "a");
    int wrong = 0;
    if (file != NULL) wrong = fputs("x", file) < 0 ? 2 : fclose(file) == 0 ? 3 : 0;
    exit(wrong);
  }
  int state = 0;
  waitpid(child, &state, 0);
  if (state != 0) fail("the child wrote");
  if (system("ls \"$PARTICLES\" > /dev/null && find \"$PARTICLES\" > /dev/null") != 0) fail("ls");
  DIR* const listing = opendir(directory); /* read: no epoch ends with it */
  while (readdir(listing) != NULL) continue;
  if (closedir(listing) != 0) fail("closedir");
  if (fclose(open_in_both) != 0) fail("by-parent");
  if (closedir(stream) != 0) fail("closedir");
}

/* ---- Attributes that say an epoch's step and time ---- */

static void label(const char* name, const char* text) {
  const int done =
      text == NULL ? removexattr(directory, name) : setxattr(directory, name, text, strlen(text), 0);
  if (done != 0) fail(name);
}

/* An epoch of one value, or of none: what closedir says. */
static void end_with(const char* how, const char* value) {
  DIR* const stream = opendir(directory);
  if (stream == NULL) fail(directory);
  if (value != NULL) write_value(with_slash(directory), how, "a", value, strlen(value));
  said(how, closedir(stream));
}

static void labels(void) {
  label("user.swale.step", "100");
  label("user.swale.time", "2.5");
  end_with("both", "1");
  end_with("again", "2"); /* step 100 has been: the epoch stays open */
  label("user.swale.step", "ten");
  end_with("no-number", NULL);
  label("user.swale.step", "105");
  label("user.swale.time", "0x1p-3");
  end_with("later", NULL);
  label("user.swale.step", NULL);
  end_with("time", "3");
  label("user.swale.time", NULL);
  end_with("none", "4");
}

/* Rank 0 sets the step when the others have begun their epoch. */
static void labels_differ(void) {
  char begun[4096];
  snprintf(begun, sizeof begun, "%s.begun", directory);
  DIR* stream = NULL;
  if (rank == 0) {
    while (access(begun, F_OK) != 0) usleep(1000);
    label("user.swale.step", "7");
  }
  stream = opendir(directory);
  if (stream == NULL) fail(directory);
  if (rank != 0 && close(creat(begun, 0600)) != 0) fail(begun);
  write_value(with_slash(directory), "a", "a", "1", 1);
  said("closedir", closedir(stream));
}

/* ---- A rank that comes too late ---- */

static void tell_others(const char* what) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%s-%d", directory, what, rank);
  if (close(creat(path, 0600)) != 0) fail(path);
}

static void wait_for_rank(const char* what, int other) {
  char path[4096];
  snprintf(path, sizeof path, "%s.%s-%d", directory, what, other);
  while (access(path, F_OK) != 0) usleep(1000);
}

/* Rank 1 does not end the epoch until the others have stopped waiting for it. Says nothing: the machine was
 * too slow to begin within the deadline.
 */
static void late(int ranks) {
  DIR* const stream = opendir(directory);
  char path[4096];
  snprintf(path, sizeof path, "%s/late", directory);
  FILE* const file = stream == NULL ? NULL : fopen(path, "a");
  if (file == NULL || fputs("1", file) < 0) fail(path);
  const int begun = fclose(file) == 0;
  tell_others("wrote");
  for (int i = 0; i < ranks; ++i) wait_for_rank("wrote", i);
  for (int i = 0; rank == 1 && i < ranks; ++i)
    if (i != 1) wait_for_rank("ended", i);
  if (begun) said("closedir", closedir(stream));
  tell_others("ended");
}

int main(int count, char** words) {
  const char* const number = getenv("SWALE_JOB_RANK") != NULL         ? getenv("SWALE_JOB_RANK")
                             : getenv("OMPI_COMM_WORLD_RANK") != NULL ? getenv("OMPI_COMM_WORLD_RANK")
                                                                      : getenv("PMI_RANK");
  if (count < 4) return 2;
  rank = number == NULL ? 0 : atoi(number);
  directory = words[1];
  const char* const what = count > 4 ? words[4] : "";
  setenv("PARTICLES", directory, 1);
  if (strcmp(what, "spellings") == 0) spellings();
  if (strcmp(what, "sizes") == 0) sizes();
  if (strcmp(what, "processes") == 0) processes();
  if (strcmp(what, "labels") == 0) labels();
  if (strcmp(what, "labels-differ") == 0) labels_differ();
  for (int epoch = 0; epoch < atoi(words[2]); ++epoch) write_epoch(epoch, atoi(words[3]));
  if (strcmp(what, "dies") == 0 && rank == 1) raise(SIGKILL);
  if (strcmp(what, "dies") == 0) write_epoch(atoi(words[2]), atoi(words[3]));
  if (strcmp(what, "late") == 0) late(atoi(getenv("SWALE_JOB_SIZE")));
  return 0;
}
