#include "left_open.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static int descriptors;
static int threads;

static int entries(const char* folder) {
  int count = 0;
  DIR* directory = opendir(folder);
  if (directory == NULL) return -1;
  while (readdir(directory) != NULL) ++count;
  closedir(directory);
  return count;
}

static void* nothing(void* argument) { return argument; }

/* A thread that was joined stays in the list for a moment: up to a second is waited for no more than
 * `expected` of them. */
static int threads_now(int expected) {
  const struct timespec pause = {0, 10 * 1000 * 1000};
  int count = entries("/proc/self/task");
  for (int i = 0; i < 100 && count > expected; i++) {
    nanosleep(&pause, NULL);
    count = entries("/proc/self/task");
  }
  return count;
}

void note_what_is_open(void) {
  /* ThreadSanitizer's runtime has a thread of its own from a program's first one on. */
  pthread_t first;
  const int before = entries("/proc/self/task");
  if (pthread_create(&first, NULL, nothing, NULL) == 0) pthread_join(first, NULL);
  descriptors = entries("/proc/self/fd");
  threads = threads_now(before);
}

int something_is_left_open(void) {
  const int more_descriptors = entries("/proc/self/fd") - descriptors;
  const int more_threads = threads_now(threads) - threads;
  if (more_descriptors == 0 && more_threads == 0) return 0;
  printf("leaks %d descriptors, %d threads\n", more_descriptors, more_threads);
  fflush(stdout);
  return 1;
}
