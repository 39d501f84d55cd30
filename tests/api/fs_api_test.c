/* The C interface of files of a job's tree, from plain C11: written by the log and by the mount, as parts, as
 * strided records, and appended; read, also into parts, cut, committed and synced; sealed; names; mistakes; a
 * child made by fork, and one that is killed.
 * Usage: fs_api_test TREE OTHER (a directory of a tree, and one that is on none) */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "swale/swale_fs.h"

/* kReleaseTries: until the kernel has told the server of a close. */
enum { kThreads = 4, kRecords = 50, kRecordBytes = 4700, kReleaseTries = 60000 };
static const char* tree;
static const char* other;

static const char* path(const char* folder, const char* name) {
  static char text[8][4096];
  static int next = 0;
  char* const mine = text[next++ % 8];
  snprintf(mine, sizeof text[0], "%s/%s", folder, name);
  return mine;
}

static swale_fs_file* open_file(const char* name, int flags) {
  swale_fs_file* file = NULL;
  CHECK_OK(swale_fs_open(path(tree, name), flags, 0640, &file));
  if (file == NULL) exit(1);
  return file;
}

/* What the system's own calls find in a file of the tree. */
static void check_content(const char* name, const char* expected, size_t bytes) {
  char* const found = malloc(bytes + 1);
  const int file = open(path(tree, name), O_RDONLY);
  CHECK(file >= 0);
  CHECK(read(file, found, bytes + 1) == (ssize_t)bytes);
  CHECK(memcmp(found, expected, bytes) == 0);
  close(file);
  free(found);
}

static uint64_t size_of(swale_fs_file* file) {
  swale_attributes attributes;
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_fs_stat(file, &attributes));
  CHECK(attributes.mode == 0640);
  CHECK(attributes.modified_ns > 0);
  return attributes.size;
}

static void test_writes(void) {
  swale_fs_file* const file = open_file("writes", SWALE_CREATE | SWALE_FS_BY_LOG);
  const swale_fs_part parts[3] = {{"parts", 5}, {NULL, 0}, {" of it", 6}};
  char data[64];
  size_t got = 0;
  int by_log = 0;
  CHECK_OK(swale_fs_writes_by_log(file, &by_log));
  CHECK(by_log == 1);
  CHECK_OK(swale_fs_write(file, "0123456789", 10));
  CHECK_OK(swale_fs_write(file, "abcdef", 6));
  CHECK_OK(swale_fs_pwrite(file, 4, "----", 4));
  CHECK_OK(swale_fs_pwritev(file, 16, parts, 3));
  CHECK_OK(swale_fs_pwritev(file, 16, NULL, 0));
  CHECK_OK(swale_fs_pwrite(file, 100, NULL, 0));
  CHECK(size_of(file) == 27);
  check_content("writes", "0123----89abcdefparts of it", 27);
  CHECK_OK(swale_fs_pread(file, 20, data, sizeof data, &got));
  CHECK(got == 7 && memcmp(data, "s of it", 7) == 0);
  CHECK_OK(swale_fs_pread(file, 27, data, sizeof data, &got));
  CHECK(got == 0);
  CHECK_OK(swale_fs_commit(file));
  CHECK_OK(swale_fs_sync(file));
  CHECK_OK(swale_fs_truncate(file, 4));
  CHECK_OK(swale_fs_pwrite(file, 4, "4", 1));
  CHECK(size_of(file) == 5);
  CHECK_OK(swale_fs_close(file));
  check_content("writes", "01234", 5);
}

/* A read into places ends where the file does. */
static void test_vectored_reads(void) {
  swale_fs_file* const file = open_file("vectored", SWALE_CREATE | SWALE_FS_BY_LOG);
  char first[4] = "", second[8] = "", third[3] = "zz";
  const swale_fs_space parts[4] = {{first, 3}, {NULL, 0}, {second, 7}, {third, 2}};
  const swale_fs_space wrong[2] = {{first, 1}, {NULL, 1}};
  size_t got = 99;
  CHECK_OK(swale_fs_write(file, "0123456789a", 11));
  CHECK_OK(swale_fs_preadv(file, 1, parts, 4, &got));
  CHECK(got == 10 && memcmp(first, "123", 3) == 0 && memcmp(second, "456789a", 7) == 0);
  CHECK(memcmp(third, "zz", 2) == 0);
  CHECK_OK(swale_fs_preadv(file, 4, parts, 3, &got));
  CHECK(got == 7 && memcmp(first, "456", 3) == 0 && memcmp(second, "789a", 4) == 0);
  CHECK_OK(swale_fs_preadv(file, 11, parts, 4, &got));
  CHECK(got == 0);
  CHECK_OK(swale_fs_preadv(file, 0, NULL, 0, &got));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "parts", swale_fs_preadv(file, 0, NULL, 1, &got));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "parts[1]", swale_fs_preadv(file, 0, wrong, 2, &got));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "got", swale_fs_preadv(file, 0, parts, 1, NULL));
  CHECK_OK(swale_fs_close(file));
}

static void test_records(void) {
  static char records[kRecords * kRecordBytes], expected[2 * kRecords * kRecordBytes];
  swale_fs_file* const file = open_file("records", SWALE_CREATE | SWALE_FS_BY_LOG);
  for (size_t i = 0; i < sizeof records; ++i) records[i] = (char)(i * 7 + i / kRecordBytes);
  for (int half = 0; half < 2; ++half)
    for (size_t i = 0; i < kRecords; ++i)
      memcpy(expected + (2 * i + (size_t)half) * kRecordBytes, records + i * kRecordBytes, kRecordBytes);
  CHECK_OK(swale_fs_write_many(file, 0, 2 * kRecordBytes, records, kRecordBytes, kRecords));
  CHECK_OK(swale_fs_write_many(file, kRecordBytes, 2 * kRecordBytes, records, kRecordBytes, kRecords));
  CHECK_OK(swale_fs_write_many(file, 7, 0, NULL, 0, 0));
  check_content("records", expected, sizeof expected);
  CHECK_OK(swale_fs_close(file));
}

/* Appends have places of their own, whoever makes them. */
static void* append_lines(void* ignored) {
  swale_fs_file* const file = open_file("lines", SWALE_CREATE | SWALE_FS_APPEND);
  (void)ignored;
  for (int i = 0; i < 100; ++i) CHECK_OK(swale_fs_write(file, "a line of 16 b.\n", 16));
  CHECK_OK(swale_fs_close(file));
  return NULL;
}

static void test_appends(void) {
  static char expected[kThreads * 100 * 16];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, append_lines, NULL) == 0);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < sizeof expected; i += 16) memcpy(expected + i, "a line of 16 b.\n", 16);
  check_content("lines", expected, sizeof expected);
}

/* Who keeps the file open for the system's own calls keeps others from the log, and harms nothing. */
static void test_by_mount(void) {
  swale_fs_file* file = NULL;
  swale_fs_file* const through = open_file("mounted", SWALE_CREATE | SWALE_FS_BY_MOUNT);
  char data[8] = "";
  int by_log = 1;
  int plain = open(path(tree, "mounted"), O_RDONLY);
  CHECK_OK(swale_fs_writes_by_log(through, &by_log));
  CHECK(by_log == 0);
  CHECK_FAILS(SWALE_BUSY, "mounted", swale_fs_open(path(tree, "mounted"), SWALE_FS_BY_LOG, 0, &file));
  file = open_file("mounted", 0);
  CHECK_OK(swale_fs_pwrite(file, 0, "first", 5));
  CHECK(pread(plain, data, 5, 0) == 5 && memcmp(data, "first", 5) == 0);
  CHECK_OK(swale_fs_pwrite(through, 0, "again", 5));
  CHECK(pread(plain, data, 5, 0) == 5 && memcmp(data, "again", 5) == 0);
  close(plain);
  for (int tries = 0; tries < kReleaseTries && by_log == 0; ++tries) {
    CHECK_OK(swale_fs_commit(file));
    CHECK_OK(swale_fs_writes_by_log(file, &by_log));
    if (by_log == 0) usleep(1000);
  }
  CHECK(by_log == 1);
  CHECK_OK(swale_fs_pwrite(file, 0, "third", 5));
  CHECK_OK(swale_fs_close(through));
  CHECK_OK(swale_fs_close(file));
  check_content("mounted", "third", 5);
}

static void test_mistakes(void) {
  swale_fs_file* file = NULL;
  swale_fs_file* good = open_file("mistakes", SWALE_CREATE | SWALE_EXCLUSIVE);
  const swale_fs_part wrong[2] = {{"a", 1}, {NULL, 1}};
  swale_attributes attributes;
  struct stat found;
  size_t got = 0;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_fs_open(NULL, 0, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "file", swale_fs_open("x", 0, 0, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_fs_open(path(tree, "x"), 1 << 20, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags",
              swale_fs_open(path(tree, "x"), SWALE_READ_ONLY | SWALE_CREATE, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_fs_open(path(tree, "x"), SWALE_EXCLUSIVE, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags",
              swale_fs_open(path(tree, "x"), SWALE_FS_BY_LOG | SWALE_FS_APPEND, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "mode", swale_fs_open(path(tree, "x"), SWALE_CREATE, 0100644, &file));
  CHECK_FAILS(SWALE_NOT_FOUND, "x", swale_fs_open(path(tree, "x"), 0, 0, &file));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, "mistakes",
              swale_fs_open(path(tree, "mistakes"), SWALE_CREATE | SWALE_EXCLUSIVE, 0640, &file));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_open(path(other, "x"), SWALE_CREATE, 0640, &file));
  CHECK(stat(path(other, "x"), &found) != 0);
  CHECK(file == NULL);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "file", swale_fs_pwrite(NULL, 0, "a", 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "data", swale_fs_pwrite(good, 0, NULL, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "data", swale_fs_write(good, NULL, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "parts", swale_fs_pwritev(good, 0, NULL, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "parts[1]", swale_fs_pwritev(good, 0, wrong, 2));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "stride", swale_fs_write_many(good, 0, 1, "abcd", 2, 2));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "got", swale_fs_pread(good, 0, &found, 1, NULL));
  CHECK(swale_fs_pwrite(good, UINT64_C(1) << 63, "a", 1) != SWALE_OK);
  CHECK(swale_fs_truncate(good, (UINT64_C(1) << 63) + 1) != SWALE_OK);
  attributes.struct_bytes = 1;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "struct_bytes", swale_fs_stat(good, &attributes));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "by_log", swale_fs_writes_by_log(good, NULL));
  CHECK(size_of(good) == 0);
  CHECK_OK(swale_fs_close(good));
  CHECK_OK(swale_fs_close(NULL));
  good = open_file("mistakes", SWALE_READ_ONLY);
  CHECK(swale_fs_pwrite(good, 0, "a", 1) != SWALE_OK);
  CHECK_OK(swale_fs_pread(good, 0, &found, 1, &got));
  CHECK(got == 0);
  CHECK_OK(swale_fs_close(good));
}

static void test_processes(void) {
  swale_fs_file* const file = open_file("shared", SWALE_CREATE | SWALE_FS_BY_LOG);
  int state = 0;
  pid_t child = 0;
  CHECK_OK(swale_fs_pwrite(file, 0, "parent", 6));
  child = fork();
  if (child == 0) {
    int by_log = 0;
    if (swale_fs_pwrite(file, 6, " child", 6) != SWALE_OK) _exit(1);
    if (swale_fs_writes_by_log(file, &by_log) != SWALE_OK || by_log != 1) _exit(2);
    _exit(swale_fs_close(file) == SWALE_OK ? 0 : 3);
  }
  CHECK(waitpid(child, &state, 0) == child && state == 0);
  child = fork();
  if (child == 0) {
    if (swale_fs_pwrite(file, 12, " killed", 7) != SWALE_OK) _exit(1);
    raise(SIGKILL);
  }
  CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
  CHECK_OK(swale_fs_pwrite(file, 19, " parent", 7));
  CHECK_OK(swale_fs_close(file));
  check_content("shared", "parent child killed parent", 26);
}

static void test_seals(void) {
  swale_fs_file* file = open_file("sealed", SWALE_CREATE | SWALE_FS_BY_LOG);
  swale_attributes attributes;
  char who[64];
  int plain;
  CHECK_OK(swale_fs_write(file, "bytes", 5));
  snprintf(who, sizeof who, "process %d of node", (int)getpid());
  CHECK_FAILS(SWALE_BUSY, who, swale_fs_seal(path(tree, "sealed")));
  CHECK(size_of(file) == 5);
  CHECK_OK(swale_fs_close(file));
  CHECK_OK(swale_fs_seal(path(tree, "sealed")));
  CHECK_OK(swale_fs_seal(path(tree, "sealed")));
  CHECK(swale_fs_open(path(tree, "sealed"), 0, 0, &file) != SWALE_OK);
  CHECK(truncate(path(tree, "sealed"), 1) != 0);
  file = open_file("sealed", SWALE_READ_ONLY);
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_fs_stat(file, &attributes));
  CHECK(attributes.sealed == 1 && attributes.mode == 0440);
  CHECK_OK(swale_fs_unseal(path(tree, "sealed")));
  CHECK_OK(swale_fs_unseal(path(tree, "sealed")));
  CHECK_OK(swale_fs_stat(file, &attributes));
  CHECK(attributes.sealed == 0 && attributes.mode == 0640);
  CHECK_OK(swale_fs_close(file));
  file = open_file("sealed", 0);
  CHECK_OK(swale_fs_pwrite(file, 0, "B", 1));
  CHECK_OK(swale_fs_close(file));
  check_content("sealed", "Bytes", 5);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_fs_seal(NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_fs_unseal(NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "none", swale_fs_seal(path(tree, "none")));
  CHECK_FAILS(SWALE_NOT_FOUND, "none", swale_fs_unseal(path(tree, "none")));
  CHECK_FAILS(SWALE_NOT_FOUND, "no file of a tree", swale_fs_seal(tree));
  plain = open(path(other, "plain"), O_WRONLY | O_CREAT, 0400);
  CHECK(plain >= 0);
  close(plain);
  CHECK_FAILS(SWALE_NOT_FOUND, "no file of a tree", swale_fs_seal(path(other, "plain")));
  CHECK_FAILS(SWALE_NOT_FOUND, "no file of a tree", swale_fs_unseal(path(other, "plain")));
  CHECK(unlink(path(other, "plain")) == 0);
}

typedef struct listing {
  int files, directories, others, stop_after;
} listing;

static int count_entry(void* context, const char* name, int kind) {
  listing* const found = context;
  found->files += kind == SWALE_FS_FILE_ENTRY && strcmp(name, "file") == 0;
  found->directories += kind == SWALE_FS_DIRECTORY_ENTRY && strcmp(name, "directory") == 0;
  found->others += kind == SWALE_FS_OTHER_ENTRY && strcmp(name, "link") == 0;
  return --found->stop_after == 0;
}

/* Names, as the system's calls see them, and not elsewhere. */
static void test_names(void) {
  swale_fs_file* file = NULL;
  swale_attributes attributes;
  struct stat system;
  listing found = {0, 0, 0, -1}, short_list = {0, 0, 0, 1};
  const mode_t mask = umask(0);
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_fs_mkdir(path(tree, "names"), 0751));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, "names", swale_fs_mkdir(path(tree, "names"), 0751));
  CHECK_OK(swale_fs_mkdir(path(tree, "names/directory"), 0700));
  umask(mask);
  CHECK_OK(swale_fs_stat_path(path(tree, "names"), &attributes));
  CHECK(attributes.mode == (SWALE_FS_DIRECTORY | 0751) && attributes.sealed == 0);
  CHECK(stat(path(tree, "names"), &system) == 0 && S_ISDIR(system.st_mode));
  file = open_file("names/first", SWALE_CREATE | SWALE_FS_BY_LOG);
  CHECK_OK(swale_fs_write(file, "bytes", 5));
  CHECK_OK(swale_fs_stat_path(path(tree, "names/first"), &attributes));
  CHECK(attributes.size == 5 && attributes.mode == 0640 && attributes.modified_ns > 0);
  CHECK_OK(swale_fs_rename(path(tree, "names/first"), path(tree, "names/file")));
  CHECK_OK(swale_fs_close(file));
  CHECK_FAILS(SWALE_NOT_FOUND, "first", swale_fs_stat_path(path(tree, "names/first"), &attributes));
  CHECK_OK(swale_fs_seal(path(tree, "names/file")));
  CHECK_OK(swale_fs_stat_path(path(tree, "names/file"), &attributes));
  CHECK(attributes.sealed == 1 && attributes.mode == 0440);
  CHECK(symlink("file", path(tree, "names/link")) == 0);
  CHECK_OK(swale_fs_stat_path(path(tree, "names/link"), &attributes));
  CHECK(attributes.size == 5);
  CHECK_OK(swale_fs_list(path(tree, "names"), count_entry, &found));
  CHECK(found.files == 1 && found.directories == 1 && found.others == 1 && found.stop_after == -4);
  CHECK_OK(swale_fs_list(path(tree, "names"), count_entry, &short_list));
  CHECK(short_list.files + short_list.directories + short_list.others == 1);
  CHECK(swale_fs_rmdir(path(tree, "names")) != SWALE_OK);
  CHECK(swale_fs_rmdir(path(tree, "names/file")) != SWALE_OK);
  CHECK(swale_fs_remove(path(tree, "names/directory")) != SWALE_OK);
  CHECK_OK(swale_fs_remove(path(tree, "names/link")));
  CHECK_OK(swale_fs_remove(path(tree, "names/file")));
  CHECK_FAILS(SWALE_NOT_FOUND, "file", swale_fs_remove(path(tree, "names/file")));
  CHECK_OK(swale_fs_rmdir(path(tree, "names/directory")));
  CHECK_OK(swale_fs_rmdir(path(tree, "names")));
  CHECK(stat(path(tree, "names"), &system) != 0);
}

static void test_names_elsewhere(void) {
  swale_attributes attributes;
  struct stat system;
  listing none = {0, 0, 0, -1};
  attributes.struct_bytes = sizeof attributes;
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_mkdir(path(other, "made"), 0700));
  CHECK(stat(path(other, "made"), &system) != 0);
  CHECK(mkdir(path(other, "plain"), 0700) == 0);
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_stat_path(path(other, "plain"), &attributes));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_list(other, count_entry, &none));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_remove(path(other, "plain")));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_rmdir(path(other, "plain")));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_rename(path(other, "plain"), path(tree, "plain")));
  CHECK_FAILS(SWALE_NOT_FOUND, "swale run", swale_fs_rename(path(tree, "writes"), path(other, "writes")));
  CHECK(rmdir(path(other, "plain")) == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_fs_mkdir(NULL, 0700));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "mode", swale_fs_mkdir(path(tree, "x"), 0100700));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "to", swale_fs_rename("x", NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "from", swale_fs_rename(NULL, "x"));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "fn", swale_fs_list(tree, NULL, NULL));
  attributes.struct_bytes = 1;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "struct_bytes", swale_fs_stat_path(tree, &attributes));
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  tree = argv[1];
  other = argv[2];
  test_writes();
  test_vectored_reads();
  test_records();
  test_appends();
  test_by_mount();
  test_mistakes();
  test_processes();
  test_seals();
  test_names();
  test_names_elsewhere();
  printf("%d checks, %d failed\n", checks, failures);
  return failures != 0;
}
