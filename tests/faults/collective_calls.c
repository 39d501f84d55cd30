/* collective_calls PATH CALL...: one rank of a job (from the environment) that makes these calls in order:
 * open, append, end, close (the directory), make (another directory), leave (the job), wait (for a byte on
 * standard input). Prints "CALL CODE MESSAGE", a line each. Exit status 0 if all were OK. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "swale/swale.h"

static swale_job* job;
static swale_dir* dir;

static int make_call(const char* call, const char* path) {
  uint64_t key = 7;
  char other[4096], byte;
  if (strcmp(call, "open") == 0) return swale_dir_open(job, path, SWALE_CREATE, "imd.memory=8M", &dir);
  if (strcmp(call, "append") == 0) return swale_dir_append(dir, &key, sizeof key, &key, sizeof key);
  if (strcmp(call, "end") == 0) return swale_dir_epoch_end(dir, 1, 1.0);
  if (strcmp(call, "wait") == 0) return read(STDIN_FILENO, &byte, 1) < 0 ? SWALE_IO_ERROR : SWALE_OK;
  if (strcmp(call, "make") == 0) {
    snprintf(other, sizeof other, "%s.other", path);
    return swale_dir_make(job, other, "");
  }
  if (strcmp(call, "close") == 0) {
    swale_dir* closing = dir;
    dir = NULL;
    return swale_dir_close(closing);
  }
  if (strcmp(call, "leave") == 0) {
    swale_job* leaving = job;
    job = NULL;
    return swale_job_close(leaving);
  }
  return SWALE_INVALID_ARGUMENT;
}

int main(int argc, char** argv) {
  int failed = 0;
  if (argc < 3) return 2;
  if (swale_job_open(NULL, "net.silence_deadline_s=60,net.close_deadline_s=60", &job) != SWALE_OK) {
    printf("join FAILED %s\n", swale_last_error());
    return 1;
  }
  for (int i = 2; i < argc; ++i) {
    const int code = make_call(argv[i], argv[1]);
    printf("%s %s %s\n", argv[i], swale_code_name(code), code == SWALE_OK ? "" : swale_last_error());
    fflush(stdout);
    failed = failed || code != SWALE_OK;
  }
  return failed;
}
