/* The segment index of a shared file, from MPI ranks: every rank "writes" every n-th block of one file
 * into a log of its own and puts where each block is; then every rank asks for the blocks that its
 * neighbour wrote, and checks the answers. At the end the file is sealed, and read once more without
 * asking a server.
 *
 *   mpirun -n 4 segments STORE_DIR [BLOCKS_PER_RANK]
 *
 * Exits with 0 if every segment is where it was put, 1 if not, 2 if it cannot run. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "swale/swale_meta.h"
#include "swale/swale_mpi.h"

#define BLOCK_BYTES 4096u

typedef struct Counts {
  uint64_t put, found, wrong;
  double put_s, get_s, sealed_s;
} Counts;

static int failed(const char* what) {
  fprintf(stderr, "segments: %s: %s\n", what, swale_last_error());
  return 2;
}

/* Block `i` of `rank`: interleaved in the file, one after the other in the rank's log. */
static uint64_t offset_of(uint64_t i, int rank, int ranks) {
  return (i * (uint64_t)ranks + (uint64_t)rank) * BLOCK_BYTES;
}

static int put_all(swale_meta_file* file, int rank, int ranks, uint64_t blocks, Counts* counts) {
  swale_meta_segment* segments = calloc(blocks, sizeof *segments);
  if (segments == NULL) return failed("out of memory");
  for (uint64_t i = 0; i < blocks; i++) {
    segments[i].offset = offset_of(i, rank, ranks);
    segments[i].length = BLOCK_BYTES;
    segments[i].log = (uint32_t)rank;
    segments[i].address = i * BLOCK_BYTES;
  }
  const double begin = MPI_Wtime();
  const int code = swale_meta_put(file, segments, blocks);
  counts->put_s = MPI_Wtime() - begin;
  counts->put = blocks;
  free(segments);
  return code == SWALE_OK ? 0 : failed("swale_meta_put");
}

/* Asks for all blocks of `writer`, one range each. */
static int get_all(swale_meta_file* file, int writer, int ranks, uint64_t blocks, Counts* counts,
                   double* seconds) {
  swale_meta_range* ranges = calloc(blocks, sizeof *ranges);
  if (ranges == NULL) return failed("out of memory");
  for (uint64_t i = 0; i < blocks; i++) {
    ranges[i].offset = offset_of(i, writer, ranks);
    ranges[i].length = BLOCK_BYTES;
  }
  swale_meta_found* found = NULL;
  const double begin = MPI_Wtime();
  const int code = swale_meta_get(file, ranges, blocks, &found);
  *seconds = MPI_Wtime() - begin;
  free(ranges);
  if (code != SWALE_OK) return failed("swale_meta_get");
  for (uint64_t i = 0; i < blocks; i++) {
    const swale_meta_segment* pieces = NULL;
    size_t count = 0;
    if (swale_meta_found_at(found, i, &pieces, &count) != SWALE_OK) return failed("swale_meta_found_at");
    const int right = count == 1 && pieces->offset == offset_of(i, writer, ranks) &&
                      pieces->length == BLOCK_BYTES && pieces->log == (uint32_t)writer &&
                      pieces->address == i * BLOCK_BYTES;
    right ? counts->found++ : counts->wrong++;
  }
  swale_meta_found_free(found);
  return 0;
}

static int run(swale_meta* meta, int rank, int ranks, uint64_t blocks, Counts* counts) {
  swale_meta_file* file = NULL;
  const int neighbour = (rank + 1) % ranks;
  if (swale_meta_file_open(meta, "/checkpoint", SWALE_CREATE, 0644, &file) != SWALE_OK)
    return failed("swale_meta_file_open");
  if (put_all(file, rank, ranks, blocks, counts) != 0) return 2;
  if (swale_meta_file_close(file) != SWALE_OK) return failed("swale_meta_file_close");
  MPI_Barrier(MPI_COMM_WORLD);

  if (swale_meta_file_open(meta, "/checkpoint", 0, 0, &file) != SWALE_OK)
    return failed("swale_meta_file_open");
  if (get_all(file, neighbour, ranks, blocks, counts, &counts->get_s) != 0) return 2;
  swale_attributes attributes;
  attributes.struct_bytes = sizeof attributes;
  if (swale_meta_stat(meta, "/checkpoint", &attributes) != SWALE_OK) return failed("swale_meta_stat");
  if (attributes.size != blocks * (uint64_t)ranks * BLOCK_BYTES) counts->wrong++;
  MPI_Barrier(MPI_COMM_WORLD);

  if (swale_meta_seal(file) != SWALE_OK) return failed("swale_meta_seal");
  if (get_all(file, neighbour, ranks, blocks, counts, &counts->sealed_s) != 0) return 2;
  if (swale_meta_file_close(file) != SWALE_OK) return failed("swale_meta_file_close");
  MPI_Barrier(MPI_COMM_WORLD);
  return 0;
}

static double most(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

static int report(int rank, int ranks, const Counts* mine) {
  uint64_t sums[3] = {mine->put, mine->found, mine->wrong}, all[3];
  MPI_Allreduce(sums, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  const double put_s = most(mine->put_s), get_s = most(mine->get_s), sealed_s = most(mine->sealed_s);
  if (rank == 0) {
    printf("%d ranks: %llu segments put, %llu of %llu gets are right\n", ranks, (unsigned long long)all[0],
           (unsigned long long)all[1], (unsigned long long)(all[1] + all[2]));
    printf("slowest rank: put %.2f ms, get %.2f ms, get of the sealed file %.2f ms\n", put_s * 1e3,
           get_s * 1e3, sealed_s * 1e3);
  }
  return all[2] == 0 && all[1] == 2 * all[0] ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: segments STORE_DIR [BLOCKS_PER_RANK]\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  const uint64_t blocks = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
  MPI_Comm communicator = MPI_COMM_WORLD;
  swale_comm comm = swale_comm_from_mpi(&communicator);
  swale_job* job = NULL;
  swale_meta* meta = NULL;
  int status = 0;
  Counts counts = {0, 0, 0, 0, 0, 0};
  if (swale_job_open(&comm, NULL, &job) != SWALE_OK) status = failed("swale_job_open");
  if (status == 0 &&
      swale_meta_open(job, argv[1], SWALE_CREATE, "meta.range=1M,meta.servers_per_node=2", &meta) != SWALE_OK)
    status = failed("swale_meta_open");
  if (status == 0) status = run(meta, swale_job_rank(job), swale_job_size(job), blocks, &counts);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  status = report(swale_job_rank(job), swale_job_size(job), &counts);
  if (swale_meta_close(meta) != SWALE_OK || swale_job_close(job) != SWALE_OK) status = failed("close");
  MPI_Finalize();
  return status;
}
