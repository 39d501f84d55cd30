/* The C interface of a tiered write buffer, from plain C11: files written, read, cut, synced, drained,
 * renamed and removed; every kind of mistake; a log smaller than what is written; a log that is damaged; two
 * processes that want one buffer, and a child made by fork. Usage: tier_api_test SCRATCH (an empty directory
 * on a file system with extended attributes) */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "swale/swale_tier.h"

enum { kMiB = 1 << 20, kThreads = 4, kBlock = 8192, kBlocks = 64 };
static const char kSmall[] = "tier.size=16M,tier.policy=ssd";
static char scratch[2048];

/* A path in the scratch directory. Several can be in use at once. */
static const char* path(const char* name) {
  static char text[8][4096];
  static int next = 0;
  char* const mine = text[next++ % 8];
  snprintf(mine, sizeof text[0], "%s/%s", scratch, name);
  return mine;
}

/* A buffer in new directories, or in those that are there. */
static swale_tier* open_tier(const char* name, int flags, const char* options) {
  char backing[4096], ssd[4200];
  swale_tier* tier = NULL;
  snprintf(backing, sizeof backing, "%s", path(name));
  snprintf(ssd, sizeof ssd, "%s-ssd", backing);
  mkdir(backing, 0777);
  CHECK_OK(swale_tier_open(backing, ssd, flags, options, &tier));
  if (tier == NULL) exit(1);
  return tier;
}

static uint64_t counter(swale_tier* tier, const char* name) {
  swale_stats* stats = NULL;
  swale_stat stat;
  stat.struct_bytes = sizeof stat;
  stat.sum = 0;
  CHECK_OK(swale_tier_stats(tier, &stats));
  CHECK_OK(swale_stats_find(stats, name, &stat));
  swale_stats_free(stats);
  return stat.sum;
}

static swale_attributes attributes_of(swale_tier* tier, const char* name) {
  swale_attributes attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_tier_stat(tier, name, &attributes));
  return attributes;
}

static size_t file_bytes(const char* name) {
  struct stat found;
  return stat(path(name), &found) == 0 ? (size_t)found.st_size : (size_t)-1;
}

static void check_bytes(swale_tier_file* file, uint64_t offset, size_t bytes, char expected) {
  char* const data = malloc(bytes + 1);
  size_t got = 0;
  CHECK_OK(swale_tier_read(file, offset, data, bytes, &got));
  CHECK(got == bytes);
  for (size_t i = 0; i < got; ++i) {
    if (data[i] == expected) continue;
    CHECK(!"another byte than was written");
    break;
  }
  free(data);
}

static void files_of_a_buffer(void) {
  char data[10000], back[10000];
  size_t got = 7;
  swale_tier* tier = open_tier("usual", SWALE_CREATE, kSmall);
  swale_tier_file* file = NULL;
  CHECK_FAILS(SWALE_NOT_FOUND, "usual/a", swale_tier_file_open(tier, "a", 0, 0, &file));
  CHECK_OK(swale_tier_file_open(tier, "a", SWALE_CREATE | SWALE_EXCLUSIVE, 0640, &file));
  memset(data, 'x', sizeof data);
  CHECK_OK(swale_tier_write(file, 5000, data, sizeof data));
  CHECK_OK(swale_tier_write(file, 0, data, 0));
  CHECK_OK(swale_tier_read(file, 0, back, sizeof back, &got));
  CHECK(got == sizeof back && back[0] == 0 && back[4999] == 0 && back[5000] == 'x');
  CHECK_OK(swale_tier_read(file, 14999, back, sizeof back, &got));
  CHECK(got == 1);
  CHECK_OK(swale_tier_read(file, UINT64_MAX, back, sizeof back, &got));
  CHECK(got == 0);
  CHECK_OK(swale_tier_sync(file));
  CHECK(counter(tier, "ssd.bytes") == sizeof data && counter(tier, "log.dirty") == sizeof data);
  CHECK_OK(swale_tier_truncate(file, 6000));
  swale_attributes attributes;
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_tier_file_stat(file, &attributes));
  CHECK(attributes.size == 6000 && attributes.sealed == 0 && attributes.modified_ns > 0);
  CHECK((attributes.mode & 0777) == 0640 || (attributes.mode & 0700) == 0600);
  CHECK_OK(swale_tier_truncate(file, 9000));
  check_bytes(file, 6000, 3000, 0);
  CHECK_OK(swale_tier_rename(tier, "a", "b"));
  CHECK_FAILS(SWALE_NOT_FOUND, "usual/a", swale_tier_stat(tier, "a", &attributes));
  CHECK(attributes_of(tier, "b").size == 9000);
  CHECK_OK(swale_tier_drain(tier));
  CHECK(counter(tier, "log.dirty") == 0 && file_bytes("usual/b") == 9000);
  CHECK_OK(swale_tier_remove(tier, "b"));
  CHECK_OK(swale_tier_write(file, 0, data, 10)); /* who has it open can go on */
  CHECK_OK(swale_tier_file_close(file));
  CHECK(file_bytes("usual/b") == (size_t)-1);
  CHECK_OK(swale_tier_close(tier));
}

static void what_is_left_is_found_again(void) {
  static char data[kMiB / 2]; /* less than a segment holds: a full one is flushed at once */
  swale_tier* tier = open_tier("again", SWALE_CREATE | SWALE_EXCLUSIVE, kSmall);
  swale_tier_file* file = NULL;
  memset(data, 'y', sizeof data);
  CHECK_OK(swale_tier_file_open(tier, "f", SWALE_CREATE, 0644, &file));
  CHECK_OK(swale_tier_write(file, 0, data, sizeof data));
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
  CHECK_FAILS(
      SWALE_ALREADY_EXISTS, "has a log already",
      swale_tier_open(path("again"), path("again-ssd"), SWALE_CREATE | SWALE_EXCLUSIVE, kSmall, &tier));
  tier = open_tier("again", 0, NULL);
  CHECK(counter(tier, "open.dirty") == sizeof data && counter(tier, "log.capacity") == 16 * kMiB);
  CHECK_OK(swale_tier_file_open(tier, "f", 0, 0, &file));
  check_bytes(file, 0, sizeof data, 'y');
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
}

/* Four times as much as the log holds: writers wait for the flush, or pass it by. */
static void more_than_the_log_holds(const char* name, const char* options) {
  static char data[kMiB];
  swale_tier* tier = open_tier(name, SWALE_CREATE, options);
  swale_tier_file* file = NULL;
  CHECK_OK(swale_tier_file_open(tier, "f", SWALE_CREATE, 0644, &file));
  for (int i = 0; i < 64; ++i) {
    memset(data, 'a' + i % 26, sizeof data);
    CHECK_OK(swale_tier_write(file, (uint64_t)i * sizeof data, data, sizeof data));
  }
  for (int i = 0; i < 64; ++i)
    check_bytes(file, (uint64_t)i * sizeof data, sizeof data, (char)('a' + i % 26));
  CHECK(counter(tier, "log.used") <= counter(tier, "log.capacity"));
  CHECK_OK(swale_tier_drain(tier));
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
  CHECK(file_bytes(strcmp(name, "full") == 0 ? "full/f" : "regions/f") == (size_t)64 * kMiB);
}

static void no_space_for_the_log(void) {
  swale_tier* tier = NULL;
  mkdir(path("large"), 0777);
  const int code = swale_tier_open(path("large"), path("large-ssd"), SWALE_CREATE, "tier.size=16T", &tier);
  CHECK(code == SWALE_NO_SPACE || code == SWALE_IO_ERROR); /* some file systems have no files of 16 TiB */
  CHECK(strstr(swale_last_error(), "large-ssd") != NULL && tier == NULL);
  CHECK(access(path("large-ssd/log"), F_OK) != 0);
  swale_tier_close(tier);
  tier = open_tier("large", SWALE_CREATE, kSmall); /* nothing of it is left */
  CHECK_OK(swale_tier_close(tier));
}

static void mistakes(void) {
  swale_tier *tier = NULL, *second = NULL;
  swale_tier_file* file = NULL;
  char data[8] = "1234567";
  size_t got = 0;
  mkdir(path("wrong"), 0777);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"backing\"", swale_tier_open(NULL, "x", 0, NULL, &tier));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"ssd\"", swale_tier_open("x", NULL, 0, NULL, &tier));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"tier\"", swale_tier_open("x", "y", 0, NULL, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "SWALE_CREATE",
              swale_tier_open(path("wrong"), path("wrong-ssd"), 0, NULL, &tier));
  CHECK(access(path("wrong-ssd"), F_OK) != 0);
  CHECK_FAILS(SWALE_NOT_FOUND, "nowhere",
              swale_tier_open(path("nowhere"), path("no-ssd"), SWALE_CREATE, kSmall, &tier));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "0x2", swale_tier_open("x", "y", SWALE_EXCLUSIVE, NULL, &tier));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "0x4", swale_tier_open("x", "y", SWALE_READ_ONLY, NULL, &tier));
  static const struct {
    const char *options, *word;
  } kWrong[] = {{"tier.size=1M", "tier.size"},
                {"tier.sizes=16M", "tier.size"},
                {"tier.segments=0", "tier.segments"},
                {"tier.segments=1", "tier.segments=1 with tier.policy=swale"},
                {"tier.segments=65535,tier.size=16M", "tier.segments=65535"},
                {"tier.policy=fast", "tier.policy"},
                {"tier.memory=1", "tier.memory"},
                {"tier.writes=99999999", "tier.writes"},
                {"tier.write_bytes=2M", "tier.write_bytes"},
                {"tier.dirty_age_s=-1", "tier.dirty_age_s"},
                {"tier.guard_above=101", "tier.guard_above"},
                {"tier.watermark_low=60", "tier.watermark_low=60 is above"},
                {"tier.preset=/nowhere", "/nowhere"},
                {"imd.ways=2", "swale_dir_open"}};
  for (size_t i = 0; i < sizeof kWrong / sizeof *kWrong; ++i) {
    const int code =
        swale_tier_open(path("wrong"), path("wrong-ssd"), SWALE_CREATE, kWrong[i].options, &tier);
    CHECK(code == SWALE_INVALID_ARGUMENT || code == SWALE_NOT_FOUND);
    CHECK(strstr(swale_last_error(), kWrong[i].word) != NULL && tier == NULL);
  }
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "wrong",
              swale_tier_open(path("wrong"), path("wrong/inside"), SWALE_CREATE, kSmall, &tier));
  tier = open_tier("wrong", SWALE_CREATE, kSmall);
  CHECK_FAILS(SWALE_BUSY, "wrong-ssd", swale_tier_open(path("wrong"), path("wrong-ssd"), 0, kSmall, &second));
  static const char* const kNames[] = {"",     "/etc/passwd", "../wrong",       "a/../b",
                                       "a//b", ".",           ".swale-tier/log"};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i)
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, kNames[i],
                swale_tier_file_open(tier, kNames[i], SWALE_CREATE, 0644, &file));
  CHECK_FAILS(SWALE_NOT_FOUND, "none/a", swale_tier_file_open(tier, "none/a", SWALE_CREATE, 0644, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "mode 444", swale_tier_file_open(tier, "a", SWALE_CREATE, 0444, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags 0x40", swale_tier_file_open(tier, "a", 0x40, 0644, &file));
  CHECK(symlink("/etc/passwd", path("wrong/link")) == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "a symbolic link", swale_tier_file_open(tier, "link", 0, 0, &file));
  CHECK(mkfifo(path("wrong/pipe"), 0600) == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "not a regular file", swale_tier_file_open(tier, "pipe", 0, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"name\"", swale_tier_file_open(tier, NULL, 0, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"file\"", swale_tier_file_open(tier, "a", SWALE_CREATE, 0644, NULL));
  CHECK(file == NULL);
  CHECK_OK(swale_tier_file_open(tier, "a", SWALE_CREATE, 0644, &file));
  swale_tier_file* again = NULL;
  CHECK_FAILS(SWALE_ALREADY_EXISTS, "wrong/a",
              swale_tier_file_open(tier, "a", SWALE_CREATE | SWALE_EXCLUSIVE, 0644, &again));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "at most", swale_tier_write(file, UINT64_MAX, data, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "at most", swale_tier_write(file, ((uint64_t)1 << 48) - 6, data, 7));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "at most", swale_tier_truncate(file, UINT64_MAX));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"data\"", swale_tier_write(file, 0, NULL, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"data\"", swale_tier_read(file, 0, NULL, 1, &got));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"got\"", swale_tier_read(file, 0, data, 1, NULL));
  swale_attributes attributes;
  attributes.struct_bytes = 8;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "struct_bytes", swale_tier_file_stat(file, &attributes));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"attributes\"", swale_tier_stat(tier, "a", NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"stats\"", swale_tier_stats(tier, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"fn\"", swale_tier_losses(tier, NULL, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "wrong/none", swale_tier_remove(tier, "none"));
  CHECK_FAILS(SWALE_NOT_FOUND, "wrong/none", swale_tier_rename(tier, "none", "other"));
  /* Every call without a handle, and with a file whose buffer is closed. */
  CHECK_OK(swale_tier_close(tier));
  for (int round = 0; round < 2; ++round) {
    swale_tier_file* const one = round == 0 ? file : NULL;
    const char* const word = round == 0 ? "is closed" : "\"file\"";
    attributes.struct_bytes = sizeof attributes;
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, word, swale_tier_write(one, 0, data, 1));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, word, swale_tier_read(one, 0, data, 1, &got));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, word, swale_tier_truncate(one, 0));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, word, swale_tier_sync(one));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, word, swale_tier_file_stat(one, &attributes));
  }
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "is closed", swale_tier_file_close(file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"tier\"", swale_tier_drain(NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"tier\"", swale_tier_remove(NULL, "a"));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"tier\"", swale_tier_stats(NULL, NULL));
  CHECK_OK(swale_tier_close(NULL));
  CHECK_OK(swale_tier_file_close(NULL));
}

static swale_tier_file* shared;

static void* write_blocks(void* number) {
  static char blocks[kThreads][kBlock];
  const uint64_t mine = (uint64_t)(uintptr_t)number;
  memset(blocks[mine], (int)('0' + mine), kBlock);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    if (swale_tier_write(shared, (i * kThreads + mine) * kBlock, blocks[mine], kBlock) != SWALE_OK)
      return NULL;
  }
  return number;
}

static void threads_share_a_file(void) {
  pthread_t threads[kThreads];
  swale_tier* tier = open_tier("threads", SWALE_CREATE, "tier.size=16M,tier.durability=group");
  CHECK_OK(swale_tier_file_open(tier, "f", SWALE_CREATE, 0644, &shared));
  for (uintptr_t i = 0; i < kThreads; ++i)
    CHECK(pthread_create(&threads[i], NULL, write_blocks, (void*)i) == 0);
  for (uintptr_t i = 0; i < kThreads; ++i) {
    void* ended = NULL;
    CHECK(pthread_join(threads[i], &ended) == 0 && ended == (void*)i);
  }
  for (uint64_t i = 0; i < kBlocks * kThreads; ++i)
    check_bytes(shared, i * kBlock, kBlock, (char)('0' + i % kThreads));
  CHECK_OK(swale_tier_file_close(shared));
  CHECK_OK(swale_tier_close(tier));
}

/* The child's calls are refused at once; another process gets SWALE_BUSY; a killed one loses nothing. */
static void processes(void) {
  char data[5000];
  swale_tier* tier = open_tier("processes", SWALE_CREATE, kSmall);
  swale_tier_file* file = NULL;
  memset(data, 'p', sizeof data);
  CHECK_OK(swale_tier_file_open(tier, "f", SWALE_CREATE, 0644, &file));
  CHECK_OK(swale_tier_write(file, 0, data, sizeof data));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    swale_tier* other = NULL;
    alarm(60);
    failures = 0;
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "made by fork", swale_tier_write(file, 0, data, 1));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "made by fork", swale_tier_sync(file));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "made by fork", swale_tier_drain(tier));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "made by fork", swale_tier_file_close(file));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "made by fork", swale_tier_close(tier));
    CHECK_FAILS(SWALE_BUSY, "processes",
                swale_tier_open(path("processes"), path("processes-ssd"), 0, NULL, &other));
    _exit(failures == 0 ? 0 : 1);
  }
  int state = 0;
  CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
  check_bytes(file, 0, sizeof data, 'p');
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
  fflush(NULL);
  child = fork();
  if (child == 0) { /* it is killed with its writes acknowledged and no sync */
    failures = 0;
    tier = open_tier("processes", 0, NULL);
    memset(data, 'q', sizeof data);
    CHECK_OK(swale_tier_file_open(tier, "f", 0, 0, &file));
    CHECK_OK(swale_tier_write(file, 0, data, sizeof data));
    if (failures == 0) kill(getpid(), 9);
    _exit(1);
  }
  CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
  tier = open_tier("processes", 0, NULL);
  CHECK_OK(swale_tier_file_open(tier, "f", 0, 0, &file));
  check_bytes(file, 0, sizeof data, 'q');
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
}

static int note_loss(void* context, const char* what) {
  ++*(int*)context;
  CHECK(strstr(what, "damaged/f") != NULL || strstr(what, "f: ") != NULL);
  CHECK(strstr(what, "SWALE_ACCEPT_LOSS") != NULL);
  return 0;
}

/* One bit of a payload in the log is flipped: that range is refused, never an older byte, until it is given
 * up. */
static void damaged_logs(void) {
  enum { kPayload = 200000 };
  static char data[kPayload];
  size_t got = 0;
  int lost = 0;
  swale_tier* tier = open_tier("damaged", SWALE_CREATE, kSmall);
  swale_tier_file* file = NULL;
  CHECK_OK(swale_tier_file_open(tier, "f", SWALE_CREATE, 0644, &file));
  memset(data, 'o', sizeof data);
  CHECK_OK(swale_tier_write(file, 0, data, sizeof data));
  CHECK_OK(swale_tier_drain(tier));
  memset(data, 'n', sizeof data);
  CHECK_OK(swale_tier_write(file, 0, data, sizeof data));
  CHECK_OK(swale_tier_write(file, kPayload, data, sizeof data));
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
  const int log = open(path("damaged-ssd/log"), O_RDWR);
  CHECK(log >= 0);
  /* In the middle of the newest run of 'n' that covers the first write: behind the older 'o's. */
  uint64_t first = 0, at = 0;
  char byte = 0;
  for (; pread(log, &byte, 1, (off_t)at) == 1 && first == 0; at += 4096) {
    if (byte == 'n') first = at;
  }
  CHECK(first != 0);
  byte = 'N';
  CHECK(pwrite(log, &byte, 1, (off_t)(first + 4096)) == 1);
  close(log);
  tier = open_tier("damaged", 0, NULL);
  CHECK(counter(tier, "open.damaged") + counter(tier, "open.lost") > 0);
  CHECK_OK(swale_tier_losses(tier, note_loss, &lost));
  CHECK(lost >= 1);
  CHECK_OK(swale_tier_file_open(tier, "f", 0, 0, &file));
  CHECK_FAILS(SWALE_CORRUPTION, "lost", swale_tier_read(file, 0, data, sizeof data, &got));
  check_bytes(file, kPayload, kPayload, 'n'); /* the other record */
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
  tier = open_tier("damaged", SWALE_ACCEPT_LOSS, NULL);
  CHECK_OK(swale_tier_file_open(tier, "f", 0, 0, &file));
  CHECK_OK(swale_tier_read(file, 0, data, sizeof data, &got));
  CHECK(got == sizeof data && data[4096 * 2] != 'N');
  lost = 0;
  CHECK_OK(swale_tier_losses(tier, note_loss, &lost));
  CHECK(lost == 0);
  CHECK_OK(swale_tier_file_close(file));
  CHECK_OK(swale_tier_close(tier));
}

static void counters_are_text_too(void) {
  swale_tier* tier = open_tier("usual", 0, NULL);
  swale_stats* stats = NULL;
  CHECK_OK(swale_tier_stats(tier, &stats));
  const char* const text = swale_stats_json(stats);
  CHECK(text != NULL &&
        strstr(text, "{\"ranks\":1,\"stats\":{\"write.requests\":{\"unit\":\"\",\"sum\":0,") == text);
  CHECK(swale_stats_json(NULL) == NULL);
  CHECK(swale_stats_ranks(stats) == 1 && swale_stats_count(stats) > 30);
  swale_stats_free(stats);
  CHECK_OK(swale_tier_close(tier));
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  snprintf(scratch, sizeof scratch, "%s", argv[1]);
  files_of_a_buffer();
  what_is_left_is_found_again();
  more_than_the_log_holds("full", kSmall);
  more_than_the_log_holds("regions", "tier.size=16M,tier.segments=2,tier.policy=ssdup+");
  no_space_for_the_log();
  mistakes();
  threads_share_a_file();
  processes();
  damaged_logs();
  counters_are_text_too();
  printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
