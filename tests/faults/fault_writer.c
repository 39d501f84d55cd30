/* fault_writer PATH EPOCHS RECORDS HOLD: one rank of a job under test; launcher.h starts it.
 *
 * Appends RECORDS records per epoch and says on standard output, a line each, where it is:
 *   joined | open | append E | end E | ended E | closing | leaving | closed | failed CODE MESSAGE | leaks
 *   WHAT
 * At the stage HOLD ("append 1", or "none") it waits for a byte on standard input before it goes on. The
 * step of every epoch is the number of ranks that wrote it: with it and the records' own numbers a reader
 * knows what must be there. With SWALE_FAULT_LARGE in the environment every 250th record is a large one
 * (large_value). After the job it compares its descriptors and threads with those it began with; with
 * SWALE_FAULT_LEAK it leaves a descriptor open, for the canary. Exit status 0 only if every call succeeded
 * and nothing was left. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "left_open.h"
#include "swale/swale.h"

enum { LARGE_WORDS_MIN = 9000, LARGE_WORDS_MAX = 40000 };
static uint64_t large_words[LARGE_WORDS_MAX];
static int with_large;
static const char* hold;

static void stage(const char* name, int64_t epoch) {
  char line[64];
  int length = epoch < 0 ? snprintf(line, sizeof line, "%s\n", name)
                         : snprintf(line, sizeof line, "%s %lld\n", name, (long long)epoch);
  if (write(STDOUT_FILENO, line, (size_t)length) != length) exit(3);
  line[length - 1] = '\0';
  if (strcmp(line, hold) == 0 && read(STDIN_FILENO, line, 1) < 0) exit(3);
}

static int fails(int code) {
  if (code != SWALE_OK) {
    printf("failed %s %s\n", swale_code_name(code), swale_last_error());
    fflush(stdout);
  }
  return code != SWALE_OK;
}

/* The five numbers of any record, the last of which is the size, and then words that follow from them: 64
 * KiB and more, so that it stays in the value log. job_files.cc knows them again. */
static size_t large_value(const uint64_t* fields, uint64_t* value) {
  const uint64_t words = LARGE_WORDS_MIN + fields[2] * 7919 % (LARGE_WORDS_MAX - LARGE_WORDS_MIN);
  memcpy(value, fields, 4 * sizeof *fields);
  value[4] = words * sizeof *value;
  for (uint64_t i = 5; i < words; ++i)
    value[i] = (fields[3] ^ fields[0] << 32 ^ fields[1]) + i * 0x9e3779b97f4a7c15;
  return words * sizeof *value;
}

static int append_records(swale_dir* dir, int rank, int64_t epoch, uint64_t from, uint64_t to) {
  for (uint64_t number = from; number < to; ++number) {
    uint64_t value[5] = {(uint64_t)epoch, (uint64_t)rank, number, number * 0x9e3779b97f4a7c15, 7};
    const uint64_t key = number % 1000;
    const int large = with_large && number % 250 == 0;
    const size_t bytes = large ? large_value(value, large_words) : sizeof value;
    if (fails(swale_dir_append(dir, &key, sizeof key, large ? large_words : value, bytes))) return 1;
  }
  return 0;
}

static int write_epochs(swale_job* job, swale_dir* dir, int64_t first, int64_t epochs, uint64_t records) {
  const int rank = swale_job_rank(job);
  for (int64_t epoch = first; epoch < first + epochs; ++epoch) {
    if (append_records(dir, rank, epoch, 0, records / 2)) return 1;
    stage("append", epoch - first);
    if (append_records(dir, rank, epoch, records / 2, records)) return 1;
    stage("end", epoch - first);
    if (fails(swale_dir_epoch_end(dir, swale_job_size(job), (double)records))) return 1;
    stage("ended", epoch - first);
  }
  return 0;
}

static int run(const char* path, int64_t epochs, uint64_t records) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  swale_reader* reader = NULL;
  int64_t first = 0;
  if (fails(swale_job_open(NULL, NULL, &job))) return 1;
  stage("joined", -1);
  int wrong = fails(swale_dir_open(job, path, SWALE_CREATE, "imd.memory=16M,imd.steps=any", &dir));
  if (!wrong) {
    wrong = fails(swale_reader_open(path, NULL, &reader));
    if (!wrong) first = swale_reader_epoch_count(reader);
    swale_reader_close(reader);
    stage("open", -1);
    if (!wrong) wrong = write_epochs(job, dir, first, epochs, records);
    stage("closing", -1);
    wrong |= fails(swale_dir_close(dir));
  }
  stage("leaving", -1);
  wrong |= fails(swale_job_close(job));
  return wrong;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: fault_writer PATH EPOCHS RECORDS HOLD\n");
    return 2;
  }
  hold = argv[4];
  with_large = getenv("SWALE_FAULT_LARGE") != NULL;
  note_what_is_open();
  int wrong = run(argv[1], atoll(argv[2]), strtoull(argv[3], NULL, 10));
  if (getenv("SWALE_FAULT_LEAK") != NULL && dup(STDIN_FILENO) < 0) return 3;
  wrong |= something_is_left_open();
  stage("closed", -1);
  return wrong;
}
