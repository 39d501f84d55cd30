#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_fs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kWriters = 4, kRecords = 100, kRecordBytes = 47008 };

static void must(int code) {
  if (code == SWALE_OK) return;
  fprintf(stderr, "checkpoint: %s\n", swale_last_error());
  exit(1);
}

/* Each writer has each fourth record of one file. */
static int write_records(const char* path, int writer) {
  static char records[kRecords][kRecordBytes];
  swale_fs_file* file;
  memset(records, 'a' + writer, sizeof records);
  must(swale_fs_open(path, SWALE_CREATE, 0644, &file));
  must(swale_fs_write_many(file, (uint64_t)writer * kRecordBytes, (uint64_t)kWriters * kRecordBytes, records,
                           kRecordBytes, kRecords)); /* all processes of the node see them from here on */
  must(swale_fs_sync(file));                         /* they survive a power cut from here on */
  must(swale_fs_close(file));
  return 0;
}

int main(int argc, char** argv) {
  int failed = 0, status;
  if (argc != 2) return 2;
  for (int writer = 0; writer < kWriters; ++writer)
    if (fork() == 0) return write_records(argv[1], writer);
  while (wait(&status) > 0) failed |= status;
  return failed != 0;
}
