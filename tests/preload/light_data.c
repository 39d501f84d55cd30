/* Bytes of files that are opened past the kernel: written and read without another open. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "light_steps.h"

enum { FILES = 60, BYTES = 40000, PART_MAX = 5000, STEPS = 20 };
static char model[BYTES], out[BYTES];
static long size;
static uint64_t state = 1;
static int still_light, seen;

static uint32_t below(uint32_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % limit;
}

/* A placeholder is what the kernel knows of it. */
static void count(int fd) {
  char path[64], leads[64] = "";
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  need(readlink(path, leads, sizeof(leads) - 1) > 0, path);
  still_light += strcmp(leads, "/dev/null") == 0;
  ++seen;
}

static void same(const char* what, long got, long wanted, const char* bytes, long from) {
  if (got == wanted && (got <= 0 || memcmp(bytes, model + from, (size_t)got) == 0)) return;
  printf("%s: %ld of %ld bytes at %ld, or others\n", what, got, wanted, from);
  exit(3);
}

static long at_most(long from, long bytes) {
  return from >= size ? 0 : bytes < size - from ? bytes : size - from;
}

static void put(int fd, int way, long at, long bytes) {
  for (long i = 0; i < bytes; ++i) model[at + i] = (char)('a' + below(26));
  struct iovec parts[] = {{model + at, (size_t)bytes / 2},
                          {model + at + bytes / 2, (size_t)(bytes - bytes / 2)}};
  long done = 0;
  if (way == 0 || way == 1) need(lseek(fd, at, SEEK_SET) == at, "lseek");
  if (way == 0) done = write(fd, model + at, (size_t)bytes);
  if (way == 1) done = writev(fd, parts, 2);
  if (way == 2) done = pwrite(fd, model + at, (size_t)bytes, at);
  if (way == 3) done = pwritev(fd, parts, 2, at);
  need(done == bytes, "a write");
  if (way < 2) need(lseek(fd, 0, SEEK_CUR) == at + bytes, "the place");
  if (at + bytes > size) size = at + bytes;
}

static void get(int fd, int way, long at, long bytes) {
  struct iovec parts[] = {{out, (size_t)bytes / 2}, {out + bytes / 2, (size_t)(bytes - bytes / 2)}};
  if (way == 0 || way == 1) need(lseek(fd, at, SEEK_SET) == at, "lseek");
  if (way == 0) same("read", read(fd, out, (size_t)bytes), at_most(at, bytes), out, at);
  if (way == 1) same("readv", readv(fd, parts, 2), at_most(at, bytes), out, at);
  if (way == 2) same("pread", pread(fd, out, (size_t)bytes, at), at_most(at, bytes), out, at);
  if (way == 3) same("preadv", preadv(fd, parts, 2, at), at_most(at, bytes), out, at);
}

static void write_one(const char* name, int flags) {
  struct stat found;
  const int fd = open(name, flags | O_CLOEXEC, 0644);
  need(fd >= 0, name);
  for (int i = 0; i < STEPS; ++i) {
    put(fd, (int)below(4), below((uint32_t)(size + 1)), 1 + below(PART_MAX) % (BYTES - PART_MAX - size + 1));
    if (size > BYTES - 2 * PART_MAX) break;
  }
  need(fstat(fd, &found) == 0 && found.st_size == size && lseek(fd, 0, SEEK_END) == size, "size");
  count(fd);
  need(close(fd) == 0, "close");
}

static void read_one(const char* name) {
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  need(fd >= 0, name);
  get(fd, 0, 0, BYTES);
  for (int i = 0; i < STEPS; ++i) get(fd, i % 4, below((uint32_t)(size + 10)), 1 + below(PART_MAX));
  say("at the end", read(fd, out, lseek(fd, 0, SEEK_END) > 0 ? 10 : 0));
  count(fd);
  need(close(fd) == 0, "close");
}

void data(int says) {
  char name[32];
  for (int i = 0; i < FILES; ++i) {
    snprintf(name, sizeof(name), "data%d", i);
    size = 0;
    write_one(name, O_RDWR | O_CREAT | O_EXCL);
    read_one(name);
    write_one(name, O_WRONLY);
    read_one(name);
    if (i % 3 > 0) continue;
    size = 0;
    write_one(name, O_RDWR | O_TRUNC | O_CREAT);
    read_one(name);
  }
  if (says) printf("%d of %d\n", still_light, seen);
}

/* ---- other threads fork while files are written ---- */

enum { THREADS = 3, RECORDS = 20000 };

static void* write_records(void* which) {
  char name[32];
  snprintf(name, sizeof(name), "records%ld", (long)which);
  const int fd = make(name);
  for (uint64_t i = 0; i < RECORDS; ++i)
    need(pwrite(fd, &i, sizeof(i), (off_t)(i * sizeof(i))) == sizeof(i), "pwrite");
  need(close(fd) == 0, "close");
  return NULL;
}

void forks(void) {
  pthread_t all[THREADS];
  for (int i = 0; i < 40; ++i) {
    size = 0;
    write_one("warm", O_RDWR | O_CREAT | O_TRUNC);
  }
  for (long i = 0; i < THREADS; ++i)
    need(pthread_create(&all[i], NULL, write_records, (void*)i) == 0, "thread");
  for (int i = 0; i < 10; ++i) need(system("true") == 0, "system");
  for (int i = 0; i < THREADS; ++i) pthread_join(all[i], NULL);
  static uint64_t records[RECORDS + 1];
  for (int which = 0; which < THREADS; ++which) {
    char name[32];
    snprintf(name, sizeof(name), "records%d", which);
    const int fd = open(name, O_RDONLY);
    long got = 0, missing = 0;
    for (ssize_t more; (more = read(fd, (char*)records + got, sizeof(records) - (size_t)got)) > 0;)
      got += more;
    for (uint64_t i = 0; i < RECORDS; ++i) missing += records[i] != i;
    say("bytes", got);
    say("missing", missing);
    close(fd);
  }
}
