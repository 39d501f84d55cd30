/* many_jobs PATH EPOCHS RECORDS HOLD: one rank of several jobs, one after the other and then at the same
 * time, each with a directory of its own (PATH.0, PATH.1, ...), in which it appends RECORDS records in
 * EPOCHS epochs. launcher.h starts it. Says "jobs N", "failed MESSAGE", "leaks WHAT"; status 0 only if
 * every call succeeded and nothing was left. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "left_open.h"
#include "swale/swale.h"

enum { kInTurn = 4, kAtOnce = 3 };

static const char* path;
static int64_t epochs;
static uint64_t records;

static int fails(int code) {
  if (code != SWALE_OK) printf("failed %s %s\n", swale_code_name(code), swale_last_error());
  fflush(stdout);
  return code != SWALE_OK;
}

static int write_directory(swale_job* job, const char* directory) {
  swale_dir* dir = NULL;
  if (fails(swale_dir_open(job, directory, SWALE_CREATE, "imd.memory=8M", &dir))) return 1;
  int wrong = 0;
  for (int64_t epoch = 0; epoch < epochs && !wrong; ++epoch) {
    for (uint64_t i = 0; i < records && !wrong; ++i)
      wrong = fails(swale_dir_append(dir, &i, sizeof i, &epoch, sizeof epoch));
    if (!wrong) wrong = fails(swale_dir_epoch_end(dir, epoch, (double)epoch));
  }
  return fails(swale_dir_close(dir)) || wrong;
}

static void* run(void* number) {
  char directory[4096];
  char options[64];
  snprintf(directory, sizeof directory, "%s.%d", path, *(int*)number);
  snprintf(options, sizeof options, "job.id=many-%d", *(int*)number);
  swale_job* job = NULL;
  int wrong = fails(swale_job_open(NULL, options, &job));
  if (!wrong) wrong = write_directory(job, directory);
  wrong |= fails(swale_job_close(job));
  return wrong ? number : NULL;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  path = argv[1];
  epochs = atoll(argv[2]);
  records = strtoull(argv[3], NULL, 10);
  note_what_is_open();
  int numbers[kInTurn + kAtOnce];
  int wrong = 0;
  for (int i = 0; i < kInTurn + kAtOnce; ++i) numbers[i] = i;
  for (int i = 0; i < kInTurn; ++i) wrong |= run(&numbers[i]) != NULL;
  pthread_t running[kAtOnce];
  for (int i = 0; i < kAtOnce; ++i) {
    if (pthread_create(&running[i], NULL, run, &numbers[kInTurn + i]) != 0) return 3;
  }
  for (int i = 0; i < kAtOnce; ++i) {
    void* failed = NULL;
    pthread_join(running[i], &failed);
    wrong |= failed != NULL;
  }
  wrong |= something_is_left_open();
  printf("jobs %d\n", kInTurn + kAtOnce);
  fflush(stdout);
  return wrong;
}
