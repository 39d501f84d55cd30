/* container.c FOLDER: writes a container, FOLDER/store and its logs FOLDER/log-0 to log-2, and the same files
 * plainly in FOLDER/plain: what a container's files must have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_meta.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOGS 3
#define PUTS 200

static int logs[LOGS];
static uint64_t ends[LOGS];
static uint32_t state = 1;

static void die(const char* what) {
  fprintf(stderr, "container: %s: %s; %s\n", what, strerror(errno), swale_last_error());
  exit(1);
}

static uint32_t draw(void) { return (state = state * 1664525u + 1013904223u) >> 8; }

static void put(swale_meta_file* file, int plain, uint64_t offset, size_t bytes) {
  static char data[5000];
  const uint32_t log = draw() % LOGS;
  for (size_t i = 0; i < bytes; ++i) data[i] = (char)('a' + draw() % 26);
  const swale_meta_segment segment = {.offset = offset, .length = bytes, .address = ends[log], .log = log};
  if (write(logs[log], data, bytes) != (ssize_t)bytes) die("a log");
  ends[log] += bytes;
  if (pwrite(plain, data, bytes, (off_t)offset) != (ssize_t)bytes) die("a plain file");
  if (swale_meta_put(file, &segment, 1) != SWALE_OK) die("put");
}

static void write_file(swale_meta* meta, const char* folder, const char* name, int strided) {
  char path[4096];
  swale_meta_file* file = NULL;
  snprintf(path, sizeof path, "%s/plain%s", folder, name);
  const int plain = open(path, O_WRONLY | O_CREAT | O_EXCL, 0640);
  if (plain < 0) die(path);
  if (swale_meta_file_open(meta, name, SWALE_CREATE, 0640, &file) != SWALE_OK) die(name);
  for (uint64_t i = 0; i < PUTS; ++i) {
    if (strided)
      put(file, plain, i * 4096, 4096);
    else /* overlaps and holes */
      put(file, plain, draw() % 900000, 1 + draw() % 5000);
  }
  if (swale_meta_file_close(file) != SWALE_OK || close(plain) != 0) die(name);
}

int main(int count, char** words) {
  char path[4096];
  swale_job* job = NULL;
  swale_meta* meta = NULL;
  if (count != 2) return 2;
  for (int i = 0; i < LOGS; ++i) {
    snprintf(path, sizeof path, "%s/log-%d", words[1], i);
    if ((logs[i] = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)) < 0) die(path);
  }
  const char* const folders[] = {"plain", "plain/run7", "plain/run7/deep"};
  for (int i = 0; i < 3; ++i) {
    snprintf(path, sizeof path, "%s/%s", words[1], folders[i]);
    if (mkdir(path, 0755) != 0) die(path);
  }
  snprintf(path, sizeof path, "%s/store", words[1]);
  if (swale_job_open(NULL, NULL, &job) != SWALE_OK) die("the job");
  if (swale_meta_open(job, path, SWALE_CREATE, NULL, &meta) != SWALE_OK) die(path);
  write_file(meta, words[1], "/checkpoint", 1);
  write_file(meta, words[1], "/run7/restart", 0);
  write_file(meta, words[1], "/run7/deep/field.bin", 0);
  if (swale_meta_close(meta) != SWALE_OK || swale_job_close(job) != SWALE_OK) die("closing");
  return 0;
}
