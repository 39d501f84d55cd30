/* read_steps WHAT DIRECTORY [NUMBER...]: reads of files that another process writes, in the tree of a job
 * with libswale_preload.so or natively: the same is printed. Exit status 1: a read gave something else than
 * what had been written when it began. The last line of stderr: how many reads took their bytes from logs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 17, PART_MAX = 20000, PAGE = 4096 };
static char model[BYTES];
static long size;
static uint64_t state = 1;

static uint32_t below(uint32_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % limit;
}
static void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}
static void fill(char* out, uint32_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out[i] = (char)(((number * 2654435761u + i * 31) >> 3 | 1) & 0xff);
}

static void say_reads_in_logs(void) {
  const uint64_t* const count = dlsym(RTLD_DEFAULT, "swale_preload_reads_in_logs");
  fprintf(stderr, "%llu\n", count == NULL ? 0ull : (unsigned long long)*count);
}

/* ---- a writer, which does what it is told, and says when that has returned ---- */

enum What { WRITE, TRUNCATE, STORE, OTHER_FILE };
struct Order {
  uint32_t what, number;
  int64_t offset, bytes;
};
static int orders[2], answers[2];
static pid_t writer;

static void obey(void) {
  static char data[PART_MAX];
  close(orders[1]); /* else it would wait for itself */
  const int file = open("file", O_RDWR | O_CREAT, 0644), other = open("other", O_RDWR | O_CREAT, 0644);
  need(file >= 0 && other >= 0, "the writer's files");
  struct Order order;
  while (read(orders[0], &order, sizeof(order)) == sizeof(order)) {
    const size_t bytes = (size_t)order.bytes;
    fill(data, order.number, bytes);
    if (order.what == TRUNCATE) need(ftruncate(file, order.offset) == 0, "ftruncate");
    if (order.what == WRITE || order.what == OTHER_FILE)
      need(pwrite(order.what == WRITE ? file : other, data, bytes, order.offset) == order.bytes, "pwrite");
    need(write(answers[1], "x", 1) == 1, "the answer");
  }
  _exit(0);
}

/* A process of its own: who has mapped a file does not write by its log any more. */
static void store(int64_t offset, uint32_t number, size_t bytes) {
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    const int file = open("file", O_RDWR);
    char* const at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(file >= 0 && at != MAP_FAILED, "mmap");
    fill(at + offset, number, bytes);
    need(write(answers[1], "x", 1) == 1, "the answer");
    char byte;
    need(read(orders[0], &byte, 1) == 1, "the end");
    _exit(0); /* its pages go back now */
  }
}

static void begin_writer(void) {
  need(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
  fflush(stdout);
  writer = fork();
  need(writer >= 0, "fork");
  if (writer == 0) obey();
}
static void wait_for_answer(void) {
  char byte;
  need(read(answers[0], &byte, 1) == 1, "the writer has ended");
}
static void tell(enum What what, uint32_t number, int64_t offset, int64_t bytes) {
  const struct Order order = {what, number, offset, bytes};
  need(write(orders[1], &order, sizeof(order)) == sizeof(order), "an order");
  wait_for_answer();
  if (what == TRUNCATE) {
    if (offset < size) memset(model + offset, 0, (size_t)(size - offset));
    size = offset;
  }
  if (what != WRITE) return;
  fill(model + offset, number, (size_t)bytes);
  if (offset + bytes > size) size = offset + bytes;
}
static void end_writer(void) {
  close(orders[1]);
  int status = 0;
  need(waitpid(writer, &status, 0) == writer && status == 0, "the writer");
}

/* ---- reads ---- */

static int wrong;
static void compare(const char* how, const char* got, ssize_t count, int64_t offset, size_t wanted) {
  const ssize_t there = offset >= size ? 0 : size - offset < (long)wanted ? size - offset : (long)wanted;
  if (count == there && memcmp(got, model + offset, (size_t)there) == 0) return;
  if (++wrong < 5)
    fprintf(stderr, "%s of %zu at %ld: %zd, not %zd\n", how, wanted, (long)offset, count, there);
}
static void read_somehow(int file) {
  static char data[PART_MAX + 1];
  const int64_t offset = below(BYTES);
  const size_t bytes = 1 + below(below(3) == 0 ? PART_MAX : 600), first = bytes / 3;
  const struct iovec parts[] = {{data, first}, {data + first, bytes - first}};
  switch (below(4)) {
    case 0:
      compare("pread", data, pread(file, data, bytes, offset), offset, bytes);
      break;
    case 1:
      compare("preadv", data, preadv(file, parts, 2, offset), offset, bytes);
      break;
    case 2:
      need(lseek(file, offset, SEEK_SET) == offset, "lseek");
      compare("readv", data, readv(file, parts, 2), offset, bytes);
      break;
    default:
      need(lseek(file, offset, SEEK_SET) == offset, "lseek");
      for (int64_t at = offset; at < offset + 3; ++at) {
        const ssize_t got = read(file, data, bytes);
        const int64_t begin = lseek(file, 0, SEEK_CUR) - (got > 0 ? got : 0);
        compare("read", data, got, begin, bytes);
      }
  }
}

static void beside_a_writer(uint32_t rounds) {
  begin_writer();
  tell(TRUNCATE, 0, 0, 0);
  tell(WRITE, 1, 0, 100);
  const int file = open("file", O_RDONLY), again = dup(file), writable = open("file", O_RDWR);
  const int all[] = {file, again, writable};
  for (uint32_t round = 0; round < rounds; ++round) {
    const int64_t bytes = 1 + below(PART_MAX), offset = below(BYTES - PART_MAX);
    const uint32_t what = below(20);
    tell(what == 0 ? TRUNCATE : what == 1 ? OTHER_FILE : WRITE, round, offset, bytes);
    for (uint32_t i = below(40); i > 0; --i) read_somehow(all[below(3)]);
  }
  end_writer();
  printf("%d wrong, %ld\n", wrong, size);
}

/* Stores to a shared mapping are seen at once, and what was read before must not hide them. */
static void beside_a_mapping(uint32_t rounds) {
  begin_writer();
  tell(WRITE, 1, 0, PART_MAX);
  const int file = open("file", O_RDONLY);
  for (uint32_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < 30; ++i) read_somehow(file);
    end_writer();
    need(pipe(orders) == 0 && pipe(answers) == 0, "pipe");
    const int64_t offset = below(PART_MAX / 2), bytes = 1 + below(PART_MAX / 2);
    store(offset, round + 2, (size_t)bytes);
    wait_for_answer();
    fill(model + offset, round + 2, (size_t)bytes);
    for (int i = 0; i < 30; ++i) read_somehow(file);
    need(write(orders[1], "x", 1) == 1, "the end");
    wait(NULL);
    for (int i = 0; i < 30; ++i) read_somehow(file);
    begin_writer();
    tell(WRITE, round + 100, below(PART_MAX / 2), 1 + below(PART_MAX / 2));
  }
  end_writer();
  printf("%d wrong, %ld\n", wrong, size);
}

/* What another process writes by its log, a mapping of an open that came later shows at once. */
static void watch_by_mapping(uint32_t rounds) {
  begin_writer();
  tell(WRITE, 0, BYTES - 1, 1);
  for (uint32_t i = 1; i < 100; ++i) tell(WRITE, i, 0, PART_MAX); /* by now it has a log */
  const int file = open("file", O_RDONLY);
  const char* const map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
  need(file >= 0 && map != MAP_FAILED, "mmap");
  for (uint32_t round = 0; round < rounds; ++round) {
    tell(below(8) == 0 ? OTHER_FILE : WRITE, round, below(BYTES - PART_MAX), 1 + below(PART_MAX));
    wrong += memcmp(map, model, BYTES) != 0;
  }
  end_writer();
  wrong += memcmp(map, model, BYTES) != 0;
  printf("%d wrong, %ld\n", wrong, size);
}

/* ---- who else has the description ---- */

static void say_next(int file, const char* who) {
  char data[8] = "";
  const ssize_t got = read(file, data, 7);
  printf("%s: %zd %.7s at %ld\n", who, got, data, (long)lseek(file, 0, SEEK_CUR));
  fflush(stdout);
}
static int lines_file(void) {
  const int made = open("lines", O_RDWR | O_CREAT | O_TRUNC, 0644);
  need(made >= 0, "lines");
  char line[8];
  for (int i = 0; i < 3000; ++i) {
    snprintf(line, sizeof(line), "%06d\n", i);
    need(write(made, line, 7) == 7, "lines");
  }
  close(made);
  return open("lines", O_RDONLY);
}
static void pass_on(const char* self) {
  const int file = lines_file();
  for (int i = 0; i < 20; ++i) say_next(file, "before");
  const int again = dup(file);
  say_next(again, "dup");
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
      for (int j = 0; j < 8; ++j) say_next(file, "child");
      char data[8] = "";
      for (int j = 0; j < 8; ++j) need(pread(again, data, 7, 7 * j) == 7 && atoi(data) == j, "pread");
      _exit(0);
    }
    wait(NULL);
    say_next(file, "parent");
  }
  const int fresh = open("lines", O_RDONLY);
  for (int i = 0; i < 20; ++i) say_next(fresh, "fresh");
  fflush(stdout);
  need(dup2(fresh, 0) == 0, "dup2");
  if (fork() == 0) {
    execl(self, self, "inherited", ".", (char*)NULL);
    _exit(1);
  }
  wait(NULL);
  say_next(fresh, "after exec");
  for (int i = 3; i < 2000; ++i) close(i);
  const int last = open("lines", O_RDONLY);
  for (int i = 0; i < 20; ++i) say_next(last, "after all were closed");
}

static void many(int count) {
  struct rlimit limit;
  need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  if ((long)limit.rlim_cur < count + 100) limit.rlim_cur = (rlim_t)count + 100;
  need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  int* const files = calloc((size_t)count, sizeof(int));
  char name[32], data[600], expected[600];
  for (int i = 0; i < count; ++i) {
    snprintf(name, sizeof(name), "many%d", i);
    const int made = open(name, O_WRONLY | O_CREAT, 0644);
    fill(data, (uint32_t)i, sizeof(data));
    need(made >= 0 && write(made, data, sizeof(data)) == sizeof(data) && close(made) == 0, name);
    need((files[i] = open(name, O_RDONLY)) >= 0, name);
  }
  for (int round = 0; round < 6; ++round)
    for (int i = 0; i < count; ++i) {
      fill(expected, (uint32_t)i, sizeof(expected));
      const int at = round * 90;
      wrong += pread(files[i], data, 100, at) != 100 || memcmp(data, expected + at, 100) != 0;
    }
  printf("%d wrong\n", wrong);
}

/* Reads what does not change, until stdin ends. Errors are told once, by number. */
static void go_on(void) {
  static char data[PART_MAX], expected[BYTES];
  const int made = open("steady", O_RDWR | O_CREAT | O_TRUNC, 0644);
  for (uint32_t i = 0; i < 4; ++i) {
    fill(expected + i * (BYTES / 4), i, BYTES / 4);
    need(write(made, expected + i * (BYTES / 4), BYTES / 4) == BYTES / 4, "steady");
  }
  close(made);
  const int file = open("steady", O_RDONLY);
  int failed = 0;
  long reads = 0;
  for (;; ++reads) {
    const uint32_t offset = below(BYTES - PART_MAX), bytes = 1 + below(PART_MAX);
    const ssize_t got = pread(file, data, bytes, offset);
    if (got < 0) {
      if (errno != failed) printf("%s\n", strerrorname_np(failed = errno));
    } else if (got != (ssize_t)bytes || memcmp(data, expected + offset, bytes) != 0) {
      printf("wrong at %u\n", offset);
      ++wrong;
      break;
    }
    if (reads == 200) puts("begun");
    fflush(stdout);
    struct pollfd input = {0, POLLIN, 0};
    if (reads > 200 && poll(&input, 1, 0) != 0) break;
  }
  printf("%d wrong\n", wrong);
}

int main(int count, char** words) {
  need(count >= 3 && chdir(words[2]) == 0, "read_steps WHAT DIRECTORY [NUMBER...]");
  const char* const what = words[1];
  const uint32_t number = count > 3 ? (uint32_t)atoi(words[3]) : 1;
  if (count > 4) state = (uint64_t)atoll(words[4]);
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  need(length > 0, "/proc/self/exe");
  self[length] = '\0';
  if (strcmp(what, "writer") == 0)
    beside_a_writer(number);
  else if (strcmp(what, "mapping") == 0)
    beside_a_mapping(number);
  else if (strcmp(what, "watch") == 0)
    watch_by_mapping(number);
  else if (strcmp(what, "pass") == 0)
    pass_on(self);
  else if (strcmp(what, "inherited") == 0)
    say_next(0, "inherited");
  else if (strcmp(what, "many") == 0)
    many((int)number);
  else if (strcmp(what, "steady") == 0)
    go_on();
  else
    return 2;
  fflush(stdout);
  say_reads_in_logs();
  return wrong == 0 ? 0 : 1;
}
