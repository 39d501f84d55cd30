/* steps NAME DIRECTORY [SEED [COUNT]]: calls on files in a directory. What they return goes to standard
 * output: it must be the same in a plain directory, and in a job's tree with libswale_preload.so.
 *
 *   random     all kinds of calls on a few files, by a seed
 *   fork       parent and child write by one description, in turn
 *   exec       a description goes through two programs
 *   spawn      vfork, posix_spawn, system and popen, with redirections to open files
 *   pass       a description goes to another process by a socket
 *   threads    threads write one file while others fork
 *   many       many files are open at a time
 *   streams    the C library's streams, on descriptors of ours, and beside them
 *   numbers    all descriptors are closed, and numbers are used again
 *   killed     writes, tells by a byte, and waits to be killed
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 6, FILES = 4, BYTES_MAX = 60000, FIRST_NUMBER = 40, MAPS_BEGIN = 400 };

static uint64_t state;
static uint32_t below(uint32_t end) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % end;
}

static void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static uint32_t hash_of(const char* bytes, ssize_t count) {
  uint32_t hash = 2166136261u;
  for (ssize_t i = 0; i < count; ++i) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
  return hash;
}

static char data[BYTES_MAX];
static void fill(uint32_t number, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] = (char)((number * 2654435761u + i * 31) >> 3 | 1);
}

static int say(uint32_t number, const char* what, long result) {
  const int failed = result < 0 ? errno : 0;
  printf("%u %s %ld %d\n", number, what, result, failed);
  return 0;
}

/* Writes all of a text. */
static void put(int fd, const char* text) {
  need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static int wait_for(pid_t process) {
  int status = 0;
  need(waitpid(process, &status, 0) == process, "waitpid");
  return status;
}

static void say_content(const char* name) {
  const int fd = open(name, O_RDONLY);
  static char all[1 << 20];
  ssize_t size = 0, got;
  need(fd >= 0, name);
  while ((got = read(fd, all + size, sizeof(all) - (size_t)size)) > 0) size += got;
  printf("%s: %zd bytes, %08x\n", name, size, hash_of(all, size));
  close(fd);
}

/* ---- random ---- */

static int slots[SLOTS];

static int open_slot(void) {
  static const int kFlags[] = {O_RDWR | O_CREAT,
                               O_RDWR | O_CREAT,
                               O_WRONLY | O_CREAT,
                               O_RDWR | O_CREAT | O_TRUNC,
                               O_RDWR | O_CREAT | O_APPEND,
                               O_RDWR | O_SYNC,
                               O_RDWR | O_CREAT | O_EXCL,
                               O_RDWR};
  char name[16];
  snprintf(name, sizeof(name), "f%u", below(FILES));
  if (below(40) == 0) return open(name, O_RDONLY);
  return open(name, kFlags[below(sizeof(kFlags) / sizeof(kFlags[0]))] | O_CLOEXEC, 0644);
}

static long vector_call(int fd, int writes, int64_t offset) {
  static char read_here[3][5000];
  struct iovec parts[3];
  for (int i = 0; i < 3; ++i) {
    parts[i].iov_len = below(5000);
    parts[i].iov_base = writes ? data + i * 7 : read_here[i];
  }
  if (writes) return offset < 0 ? writev(fd, parts, 3) : pwritev(fd, parts, 3, offset);
  const ssize_t got = offset < 0 ? readv(fd, parts, 3) : preadv(fd, parts, 3, offset);
  if (got > 0)
    printf("  %08x\n",
           hash_of(read_here[0], got < (ssize_t)parts[0].iov_len ? got : (ssize_t)parts[0].iov_len));
  return got;
}

static long in_child(int fd) {
  fflush(stdout);
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    const ssize_t done = write(fd, "child", 5);
    _exit(lseek(fd, 3, SEEK_CUR) >= 0 && done == 5 ? 0 : 1);
  }
  return WEXITSTATUS(wait_for(child));
}

static long in_shell(int fd) {
  char command[64];
  const int again = dup(fd); /* a shell knows numbers of one digit */
  if (again < 0) return -1;
  need(dup2(again, 9) == 9, "dup2");
  snprintf(command, sizeof(command), "echo shell >&9");
  const int status = system(command);
  close(9);
  close(again);
  return WEXITSTATUS(status);
}

static long by_stream(int fd) {
  const int again = dup(fd);
  if (again < 0) return -1;
  FILE* const stream = fdopen(again, "r+");
  if (stream == NULL) {
    close(again);
    return -1;
  }
  fprintf(stream, "stream %d", 7);
  return fclose(stream);
}

static long by_mapping(int fd) {
  struct stat found;
  need(fstat(fd, &found) == 0, "fstat");
  if (found.st_size < 10) return 0;
  char* const map = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return -1;
  printf("  %08x\n", hash_of(map, found.st_size));
  memcpy(map + found.st_size / 2, "map", 3);
  need(msync(map, (size_t)found.st_size, MS_SYNC) == 0, "msync");
  return munmap(map, (size_t)found.st_size);
}

static long send_to(int fd) {
  const int from = open("f0", O_RDONLY);
  struct stat one, other;
  if (from < 0) return -1;
  long sent = 0;
  if (fstat(from, &one) == 0 && fstat(fd, &other) == 0 && one.st_ino != other.st_ino)
    sent = sendfile(fd, from, NULL, 1000);
  close(from);
  return sent;
}

static int step(uint32_t number) {
  const uint32_t which = below(SLOTS);
  int* const fd = &slots[which];
  const uint32_t count = 1 + below(20000);
  const int64_t offset = below(BYTES_MAX);
  fill(number, count + 32);
  struct stat found;
  switch (below(26)) {
    case 0:
    case 1:
      if (*fd >= 0) say(number, "close", close(*fd));
      *fd = open_slot();
      return say(number, "open", *fd < 0 ? -1 : 0);
    case 2:
    case 3:
    case 4:
    case 5:
      return say(number, "write", write(*fd, data, count));
    case 6:
    case 7: {
      const ssize_t got = read(*fd, data, count);
      say(number, "read", got);
      if (got > 0) printf("  %08x\n", hash_of(data, got));
      return 0;
    }
    case 8:
    case 9:
      return say(number, "pwrite", pwrite(*fd, data, count, offset));
    case 10: {
      const ssize_t got = pread(*fd, data, count, offset);
      say(number, "pread", got);
      if (got > 0) printf("  %08x\n", hash_of(data, got));
      return 0;
    }
    case 11:
      return say(number, "set", lseek(*fd, offset, SEEK_SET));
    case 12:
      return say(number, "current", lseek(*fd, offset - BYTES_MAX / 2, SEEK_CUR));
    case 13:
      return say(number, "end", lseek(*fd, -(off_t)below(1000), SEEK_END));
    case 14:
      return say(number, "writev", vector_call(*fd, 1, -1));
    case 15:
      return say(number, "readv", vector_call(*fd, 0, -1));
    case 16:
      return say(number, "pwritev", vector_call(*fd, 1, offset));
    case 17: {
      const uint32_t other = below(SLOTS);
      if (other == which) return 0;
      if (slots[other] >= 0) close(slots[other]);
      slots[other] = below(2) ? dup(*fd) : fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_NUMBER);
      return say(number, "dup", slots[other] < 0 ? -1 : 0);
    }
    case 18: {
      const uint32_t other = below(SLOTS);
      if (other == which || slots[other] < 0) return 0;
      return say(number, "dup2", dup2(*fd, slots[other]) < 0 ? -1 : 0);
    }
    case 19:
      return say(number, "truncate", ftruncate(*fd, offset));
    case 20:
      return say(number, "size", fstat(*fd, &found) == 0 ? (long)found.st_size : -1);
    case 21:
      return say(number, "fork", *fd < 0 ? 0 : in_child(*fd));
    case 22:
      return say(number, "stream", by_stream(*fd));
    case 23:
      return say(number, "printed", dprintf(*fd, "%s %d %.3f", "printed", 5, 2.5));
    case 24:
      if (number > MAPS_BEGIN && below(3) == 0) return say(number, "mapping", *fd < 0 ? 0 : by_mapping(*fd));
      if (below(3) == 0) return say(number, "shell", *fd < 0 ? 0 : in_shell(*fd));
      return say(number, "sync", fsync(*fd));
    default:
      if (below(3) == 0) return say(number, "appends", fcntl(*fd, F_SETFL, below(2) ? O_APPEND : 0));
      return say(number, "sendfile", *fd < 0 ? 0 : send_to(*fd));
  }
}

static void random_calls(uint32_t count) {
  for (int i = 0; i < SLOTS; ++i) slots[i] = -1;
  for (uint32_t i = 0; i < count; ++i) step(i);
  for (int i = 0; i < SLOTS; ++i)
    if (slots[i] >= 0) close(slots[i]);
  for (int i = 0; i < FILES; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "f%d", i);
    if (access(name, F_OK) == 0) say_content(name);
  }
}

/* Enough writes for the process to meet the server. */
static int warm_file(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  need(fd >= 0, name);
  for (int i = 0; i < 100; ++i) put(fd, "0123456789abcde\n");
  return fd;
}

/* ---- fork, exec, spawn, pass ---- */

static void fork_turns(void) {
  const int fd = warm_file("turns");
  for (int i = 0; i < 20; ++i) {
    put(fd, "parent\n");
    fflush(stdout);
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
      put(fd, "child\n");
      const int again = dup(fd);
      put(again, "child again\n");
      need(pwrite(fd, "C", 1, i) == 1, "pwrite");
      close(again);
      close(fd);
      const int own = open("of-children", O_WRONLY | O_CREAT, 0644);
      need(lseek(own, 0, SEEK_END) >= 0, "lseek");
      for (int j = 0; j < 50; ++j) put(own, "own\n");
      _exit(0);
    }
    printf("%d\n", wait_for(child));
  }
  printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
  close(fd);
  say_content("turns");
  say_content("of-children");
}

static void exec_chain(const char* self, const char* depth) {
  const int fd = strcmp(depth, "0") == 0 ? warm_file("chain") : 33;
  put(fd, depth);
  if (strcmp(depth, "3") == 0) {
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    say_content("chain");
    return;
  }
  if (fd != 33) need(dup2(fd, 33) == 33, "dup2");
  for (int i = 0; i < 60; ++i) put(33, "more\n");
  const char next[] = {(char)(depth[0] + 1), '\0'};
  fflush(stdout);
  execl(self, self, "chain", ".", next, (char*)NULL);
  need(0, "execl");
}

extern char** environ;

static void spawn_all(void) {
  const int fd = warm_file("spawned");
  for (int i = 0; i < 5; ++i) {
    put(fd, "before\n");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_addclose(&actions, fd);
    char* const words[] = {"echo", "spawned", NULL};
    pid_t child = 0;
    need(posix_spawnp(&child, "echo", &actions, NULL, words, environ) == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    wait_for(child);
    put(fd, "between\n");
    child = vfork();
    if (child == 0) {
      dup2(fd, 1);
      close(fd);
      execlp("echo", "echo", "vforked", (char*)NULL);
      _exit(1);
    }
    wait_for(child);
    put(fd, "after\n"); /* the child's close is the child's */
    const int saved = dup(1);
    fflush(stdout);
    need(dup2(fd, 1) == 1, "dup2");
    printf("printed\n");
    fflush(stdout);
    need(system("echo of a shell") == 0, "system");
    FILE* const pipe = popen("cat", "w");
    fputs("by a pipe\n", pipe);
    pclose(pipe);
    need(dup2(saved, 1) == 1, "dup2");
    close(saved);
    put(fd, "end\n");
  }
  printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
  close(fd);
  say_content("spawned");
}

static void pass_on(void) {
  const int fd = warm_file("passed");
  int ends[2];
  need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
  fflush(stdout);
  const pid_t child = fork();
  need(child >= 0, "fork");
  const int later = child != 0 ? warm_file("passed-later") : -1;
  char byte = 'x';
  struct iovec part = {&byte, 1};
  union {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  if (child == 0) {
    need(recvmsg(ends[1], &message, 0) == 1, "recvmsg");
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(got));
    for (int i = 0; i < 60; ++i) put(got, "received\n");
    _exit(0);
  }
  struct cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &later, sizeof(later));
  need(sendmsg(ends[0], &message, 0) == 1, "sendmsg");
  wait_for(child);
  put(later, "sent\n");
  printf("%ld\n", (long)lseek(later, 0, SEEK_CUR));
  close(fd);
  close(later);
  say_content("passed-later");
}

/* ---- threads ---- */

enum { WRITERS = 4, RECORDS = 2000, FORKS = 30 };
static int shared_file;
static void* write_records(void* which) {
  char record[64];
  memset(record, (int)('a' + (intptr_t)which), sizeof(record));
  for (int i = 0; i < RECORDS; ++i)
    need(write(shared_file, record, sizeof(record)) == sizeof(record), "write");
  return NULL;
}
static void* fork_often(void* nothing) {
  for (int i = 0; i < FORKS; ++i) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
      char record[64];
      memset(record, 'z', sizeof(record));
      _exit(write(shared_file, record, sizeof(record)) == sizeof(record) ? 0 : 1);
    }
    need(wait_for(child) == 0, "child");
  }
  return nothing;
}

static void threads_fork(void) {
  shared_file = warm_file("threads");
  need(ftruncate(shared_file, 0) == 0 && lseek(shared_file, 0, SEEK_SET) == 0, "ftruncate");
  fflush(stdout);
  pthread_t threads[WRITERS + 1];
  for (intptr_t i = 0; i < WRITERS; ++i)
    need(pthread_create(&threads[i], NULL, write_records, (void*)i) == 0, "thread");
  need(pthread_create(&threads[WRITERS], NULL, fork_often, NULL) == 0, "thread");
  for (int i = 0; i <= WRITERS; ++i) pthread_join(threads[i], NULL);
  printf("%ld\n", (long)lseek(shared_file, 0, SEEK_CUR));
  long counts[256] = {0};
  char record[64];
  for (off_t at = 0; pread(shared_file, record, sizeof(record), at) == sizeof(record); at += sizeof(record)) {
    int whole = 1;
    for (size_t i = 1; i < sizeof(record); ++i) whole &= record[i] == record[0];
    ++counts[whole ? (unsigned char)record[0] : 0];
  }
  for (int i = 0; i < 256; ++i)
    if (counts[i] != 0) printf("%d: %ld\n", i, counts[i]);
  close(shared_file);
  unlink("threads");
}

/* ---- many, streams, numbers, killed ---- */

static void many_files(uint32_t count) {
  struct rlimit limit;
  need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  if (limit.rlim_cur < count + 100) limit.rlim_cur = count + 100;
  need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  int* const fds = calloc(count, sizeof(int));
  char name[32];
  for (uint32_t i = 0; i < count; ++i) {
    snprintf(name, sizeof(name), "many%u", i);
    fds[i] = open(name, O_RDWR | O_CREAT, 0644);
    need(fds[i] >= 0, name);
  }
  for (int round = 0; round < 3; ++round)
    for (uint32_t i = 0; i < count; ++i) {
      fill(i, 200);
      need(write(fds[i], data, 200) == 200, "write");
    }
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < count; ++i) {
    wrong += lseek(fds[i], 0, SEEK_CUR) != 600;
    fill(i, 200);
    char got[200];
    wrong += pread(fds[i], got, 200, 400) != 200 || memcmp(got, data, 200) != 0;
    wrong += close(fds[i]) != 0;
  }
  printf("%u wrong\n", wrong);
  free(fds);
}

static void streams(void) {
  FILE* const stream = fopen("stream", "w+");
  need(stream != NULL, "stream");
  for (int i = 0; i < 20000; ++i) fprintf(stream, "line %d\n", i);
  need(fseek(stream, 100, SEEK_SET) == 0, "fseek");
  fputs("changed", stream);
  printf("%ld\n", ftell(stream));
  need(fflush(stream) == 0, "fflush");
  put(fileno(stream), "by number");
  printf("%ld\n", (long)lseek(fileno(stream), 0, SEEK_CUR));
  need(fclose(stream) == 0, "fclose");
  say_content("stream");
  const int fd = warm_file("of-descriptor");
  FILE* const other = fdopen(fd, "r+");
  fputs("stream", other);
  need(fflush(other) == 0, "fflush");
  put(fd, "number");
  need(fclose(other) == 0, "fclose");
  say_content("of-descriptor");
  FILE* const reader = fopen("stream", "r");
  char line[32];
  need(fseek(reader, 5000, SEEK_SET) == 0 && fgets(line, sizeof(line), reader) != NULL, "fgets");
  fputs(line, stdout);
  fclose(reader);
  need(freopen("again", "w", stderr) != NULL, "freopen");
  fputs("of stderr\n", stderr);
  fflush(stderr);
  say_content("again");
}

static void numbers(void) {
  for (int round = 0; round < 3; ++round) {
    const int fd = warm_file("numbers");
    put(fd, "round");
    const int last = round == 0 ? 1100 : -1;
    for (int i = 3; i < last; ++i) close(i);
    if (round == 1) closefrom(3);
    if (round == 2) close_range(3, ~0u, 0);
    const int again = warm_file("numbers-again");
    put(again, "again");
    printf("%ld %d\n", (long)lseek(again, 0, SEEK_CUR),
           write(fd == again ? 1000 : fd, "x", 1) < 0 ? errno : 0);
    FILE* const stream = fdopen(again, "a+");
    fputs("stream", stream);
    fclose(stream);
    const int third = warm_file("numbers-third");
    put(third, "third");
    close(third);
    say_content("numbers");
    say_content("numbers-again");
    say_content("numbers-third");
  }
}

static void until_killed(void) {
  const int fd = warm_file("killed");
  for (int i = 0; i < 5000; ++i) {
    fill((uint32_t)i, 500);
    need(pwrite(fd, data, 500, (off_t)i * 500) == 500, "pwrite");
  }
  puts("written");
  fflush(stdout);
  for (;;) pause();
}

int main(int count, char** words) {
  if (count < 3 || chdir(words[2]) != 0) {
    fprintf(stderr, "steps NAME DIRECTORY [SEED [COUNT]]\n");
    return 2;
  }
  const char* const name = words[1];
  const uint32_t number = count > 4 ? (uint32_t)atoi(words[4]) : 1000;
  state = count > 3 ? (uint64_t)atoll(words[3]) : 1;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  need(length > 0, "/proc/self/exe");
  self[length] = '\0';
  if (strcmp(name, "random") == 0)
    random_calls(number);
  else if (strcmp(name, "fork") == 0)
    fork_turns();
  else if (strcmp(name, "exec") == 0)
    exec_chain(self, "0");
  else if (strcmp(name, "chain") == 0)
    exec_chain(self, words[3]);
  else if (strcmp(name, "spawn") == 0)
    spawn_all();
  else if (strcmp(name, "pass") == 0)
    pass_on();
  else if (strcmp(name, "threads") == 0)
    threads_fork();
  else if (strcmp(name, "many") == 0)
    many_files(number);
  else if (strcmp(name, "streams") == 0)
    streams();
  else if (strcmp(name, "numbers") == 0)
    numbers();
  else if (strcmp(name, "killed") == 0)
    until_killed();
  else
    return 2;
  return 0;
}
