/* run_program WHAT [ARGUMENT...]: a program of MPI that `swale run` has put I/O servers beside, for
 * run_test.py.
 *   write      ranks write one file together by the I/O servers, and each reads its neighbour's part
 *   fail       the same, and rank 1 then ends with status 7 while the others wait for it in MPI
 *   nothing    does not open the servers
 *   beside DIR  ranks write to the servers and end epochs of the massive directory DIR at the same time
 *   words      prints its arguments, one a line
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_iond.h>
#include <swale/swale_mpi.h>

enum { kBlock = 300000, kEpochs = 20 };

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

struct writer {
  swale_iond_file* file;
  int rank, size;
  int blocks; /* written, until `stop` */
  int stop;
};

/* Block i of rank r is block i * size + r of the file. */
static void* write_blocks(void* context) {
  static char block[kBlock];
  struct writer* mine = context;
  memset(block, 'a' + mine->rank, sizeof block);
  while (mine->blocks < kEpochs || !__atomic_load_n(&mine->stop, __ATOMIC_ACQUIRE)) {
    must(swale_iond_write(mine->file, ((uint64_t)mine->blocks * mine->size + mine->rank) * kBlock, block,
                          sizeof block));
    ++mine->blocks;
  }
  return NULL;
}

/* The servers are of the launcher's job; all that is collective among the program's ranks is of one over its
 * communicator. */
static void write_beside_epochs(const char* directory) {
  static char read[kBlock];
  MPI_Comm world = MPI_COMM_WORLD;
  const swale_comm comm = swale_comm_from_mpi(&world);
  swale_job *job, *own;
  swale_iond* iond;
  swale_dir* dir;
  struct writer mine = {NULL, comm.rank, comm.size, 0, 0};
  must(swale_job_open(NULL, NULL, &job));
  must(swale_iond_open(job, 0, "iond.stripe=65536", &iond));
  must(swale_iond_file_open(iond, "field", SWALE_CREATE, 0644, &mine.file));
  must(swale_job_open(&comm, NULL, &own));
  expect(swale_job_rank(own) == comm.rank && swale_job_size(own) == comm.size, "a job without the servers");
  must(swale_dir_open(own, directory, SWALE_CREATE, "imd.memory=8M", &dir));
  pthread_t thread;
  expect(pthread_create(&thread, NULL, write_blocks, &mine) == 0, "a thread");
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int i = 0; i < 100; ++i) {
      const int key = i * comm.size + comm.rank;
      must(swale_dir_append(dir, &key, sizeof key, &epoch, sizeof epoch));
    }
    must(swale_dir_epoch_end(dir, epoch, epoch));
  }
  must(swale_dir_close(dir));
  must(swale_job_close(own));
  __atomic_store_n(&mine.stop, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  for (int i = 0; i < mine.blocks; ++i) {
    size_t got = 0;
    must(swale_iond_read(mine.file, ((uint64_t)i * comm.size + comm.rank) * kBlock, read, sizeof read, &got));
    expect(got == sizeof read && read[0] == 'a' + comm.rank && read[kBlock - 1] == 'a' + comm.rank,
           "what was written beside the epochs");
  }
  must(swale_iond_file_close(mine.file));
  must(swale_iond_close(iond));
  must(swale_job_close(job));
  if (comm.rank == 0) printf("%d ranks ended %d epochs\n", comm.size, kEpochs);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "write") == 0 || strcmp(what, "fail") == 0) {
    write_and_read(what[0] == 'f');
  } else if (strcmp(what, "beside") == 0) {
    write_beside_epochs(argv[2]);
  } else if (strcmp(what, "words") == 0) {
    for (int i = 2; i < argc; ++i) printf("<%s>\n", argv[i]);
  }
  MPI_Finalize();
  return 0;
}
