/* What light_steps.c and light_calls.c share. */
#ifndef LIGHT_STEPS_H
#define LIGHT_STEPS_H
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static inline void say(const char* what, long result) {
  printf("%s: %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

/* By this the process finds the tree. */
static inline void begin(const char* directory) {
  need(chdir(directory) == 0, directory);
  const int fd = open("first", O_WRONLY | O_CREAT, 0600);
  need(fd >= 0 && close(fd) == 0, "first");
}

static inline int make(const char* name) {
  const int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  need(fd >= 0, name);
  return fd;
}

static inline void say_content(const char* name) {
  char text[4096];
  const int fd = open(name, O_RDONLY);
  const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
  need(got >= 0, name);
  text[got] = '\0';
  printf("%s: %zd %s\n", name, got, text);
  close(fd);
}

/* Folders and files of many modes, and links; and a process that modes bind. */
void make_places(void);
void drop_capabilities(void);

/* Asks what is at many paths; bound: by a process that modes bind. */
void looks(const char* directory, int bound);
void looks_by_statx(const char* directory);

/* Opens what is there; bound: by a process that modes bind. */
void opens(const char* directory, int bound);

/* Writes and reads; says: how many descriptors were placeholders to their end. */
void data(int says);
void forks(void);

/* Calls each function that takes a descriptor, or prints its name. */
void each_call(int only_names);

#endif
