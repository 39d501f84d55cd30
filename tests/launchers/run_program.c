/* run_program WHAT [ARGUMENT...]: a program of MPI that `swale run` has put I/O servers beside, for
 * run_test.py.
 *   write      ranks write one file together by the I/O servers, and each reads its neighbour's part
 *   fail       the same, and rank 1 then ends with status 7 while the others wait for it in MPI
 *   nothing    does not open the servers
 *   words      prints its arguments, one a line
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_iond.h>

enum { kBlock = 300000 };

static void must(int code) {
  if (code == SWALE_OK) return;
  fprintf(stderr, "run_program: %s\n", swale_last_error());
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "run_program: expected: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 4);
}

static void write_and_read(int fails) {
  static char block[kBlock], read[kBlock];
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  swale_job* job;
  swale_iond* iond;
  swale_iond_file* file;
  must(swale_job_open(NULL, NULL, &job));
  expect(swale_job_rank(job) == rank, "the launcher's rank");
  expect(swale_job_size(job) == size + atoi(getenv("SERVERS")),
         "a rank for each server, after the program's");
  must(swale_iond_open(job, 0, "iond.stripe=65536", &iond));
  must(swale_iond_file_open(iond, "field", SWALE_CREATE, 0644, &file));
  memset(block, 'a' + rank, sizeof block);
  must(swale_iond_write(file, (uint64_t)rank * kBlock, block, sizeof block));
  MPI_Barrier(MPI_COMM_WORLD);
  if (fails && rank == 1) exit(7);
  if (fails) MPI_Barrier(MPI_COMM_WORLD);
  const int other = (rank + 1) % size;
  size_t got = 0;
  must(swale_iond_read(file, (uint64_t)other * kBlock, read, sizeof read, &got));
  expect(got == sizeof read && read[0] == 'a' + other && read[kBlock - 1] == 'a' + other,
         "the neighbour's block");
  must(swale_iond_file_close(file));
  must(swale_iond_close(iond));
  must(swale_job_close(job));
  if (rank == 0) printf("%d ranks wrote\n", size);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "write") == 0 || strcmp(what, "fail") == 0) {
    write_and_read(what[0] == 'f');
  } else if (strcmp(what, "words") == 0) {
    for (int i = 2; i < argc; ++i) printf("<%s>\n", argv[i]);
  }
  MPI_Finalize();
  return 0;
}
