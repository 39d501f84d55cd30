/* fabric_test PATH: a rank of a job that says what the job did to its process. Writes a record into the
 * massive directory PATH, and fails if
 *   - a job of one rank has loaded anything of UCX,
 *   - a job of several ranks has not, or has changed what becomes of any signal, or the environment.
 * Started by fabric_test.py and options_test.py. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swale/swale.h"

static int fails(int code) {
  if (code != SWALE_OK) fprintf(stderr, "fabric_test: %s: %s\n", swale_code_name(code), swale_last_error());
  return code != SWALE_OK;
}

static int ucx_is_loaded(void) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return -1;
  while (fgets(line, sizeof line, maps) != NULL)
    found |= strstr(line, "libucp") != NULL || strstr(line, "libucs") != NULL;
  fclose(maps);
  return found;
}

/* What the kernel does with each signal: caught, ignored or neither; and where it is caught. */
static void read_signals(struct sigaction* actions) {
  memset(actions, 0, sizeof *actions * NSIG);
  for (int number = 1; number < NSIG; ++number) sigaction(number, NULL, &actions[number]);
}

static int signals_differ(const struct sigaction* before, const char* when) {
  struct sigaction now[NSIG];
  int different = 0;
  read_signals(now);
  for (int number = 1; number < NSIG; ++number) {
    if (before[number].sa_sigaction == now[number].sa_sigaction &&
        before[number].sa_flags == now[number].sa_flags)
      continue;
    fprintf(stderr, "fabric_test: signal %d (%s) is handled otherwise %s\n", number, strsignal(number), when);
    different = 1;
  }
  return different;
}

int main(int argc, char** argv) {
  struct sigaction before[NSIG];
  char** const environment = environ;
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: fabric_test PATH\n");
    return 2;
  }
  const char* options = getenv("SWALE_IMD_MEMORY") == NULL ? "imd.memory=8M" : NULL;
  read_signals(before);
  if (fails(swale_job_open(NULL, NULL, &job))) return 1;
  const int ranks = swale_job_size(job);
  int wrong = signals_differ(before, "while the job is open");
  if (ucx_is_loaded() != (ranks > 1)) {
    fprintf(stderr, "fabric_test: %d ranks, and UCX is %s\n", ranks, ranks > 1 ? "not loaded" : "loaded");
    wrong = 1;
  }
  if (environ != environment) {
    fprintf(stderr, "fabric_test: the environment has changed\n");
    wrong = 1;
  }
  if (fails(swale_dir_open(job, argv[1], SWALE_CREATE, options, &dir))) {
    swale_job_close(job); /* waits until the others have been told, too */
    return 1;
  }
  if (fails(swale_dir_append(dir, "key", 3, "value", 5)) || fails(swale_dir_epoch_end(dir, 0, 0)) ||
      fails(swale_dir_close(dir)) || fails(swale_job_close(job)))
    return 1;
  return signals_differ(before, "after the job") || wrong;
}
