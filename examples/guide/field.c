#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_iond.h>

enum { kBlock = 1 << 20 };

static void must(int code) {
  if (code == SWALE_OK) return;
  fprintf(stderr, "field: %s\n", swale_last_error());
  exit(1);
}

int main(void) {
  static char block[kBlock];
  swale_job* job;
  swale_iond* iond;
  swale_iond_file* file;
  must(swale_job_open(NULL, NULL, &job)); /* without a communicator: the servers are ranks of the job, too */
  must(swale_iond_open(job, 0, NULL, &iond)); /* all ranks together */
  must(swale_iond_file_open(iond, "field", SWALE_CREATE, 0644, &file));
  const int rank = swale_job_rank(job);
  memset(block, 'a' + rank, sizeof block);
  must(swale_iond_write(file, (uint64_t)rank * kBlock, block, sizeof block));
  must(swale_iond_file_close(file));
  must(swale_iond_close(iond)); /* all ranks together; the servers end */
  must(swale_job_close(job));
  return 0;
}
