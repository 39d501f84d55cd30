#include "left_open.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
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

/* Whether the thread has ended, or is about to (PF_EXITING): it stays in the list for a moment after it was
 * joined; or is the kernel's own, for an io_uring (PF_IO_WORKER). */
static int is_not_ours(const char* thread) {
  char path[64], text[512];
  unsigned flags = 0;
  snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
  FILE* file = fopen(path, "r");
  if (file == NULL) return 1;
  const size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[bytes] = '\0';
  const char* name_end = strrchr(text, ')');
  if (name_end == NULL || sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1) return 1;
  return (flags & (0x4 | 0x10)) != 0;
}

static int threads_listed(void) {
  int count = 0;
  DIR* directory = opendir("/proc/self/task");
  if (directory == NULL) return -1;
  for (const struct dirent* entry; (entry = readdir(directory)) != NULL;)
    count += entry->d_name[0] != '.' && !is_not_ours(entry->d_name);
  closedir(directory);
  return count;
}

/* Up to ten seconds are waited for no more than `expected` of them: some nobody joins. */
static int threads_now(int expected) {
  const struct timespec pause = {0, 10 * 1000 * 1000};
  int count = threads_listed();
  for (int i = 0; i < 1000 && count > expected; i++) {
    nanosleep(&pause, NULL);
    count = threads_listed();
  }
  return count;
}

void note_what_is_open(void) {
  /* ThreadSanitizer's runtime has a thread of its own from a program's first one on. */
  pthread_t first;
  const int before = threads_listed();
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
