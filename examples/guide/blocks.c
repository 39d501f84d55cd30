/* blocks write STORE COUNT: every rank writes COUNT blocks of the file "/checkpoint", each into its own log.
 * blocks read STORE:        one process puts the file together again and prints it. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_meta.h>
#include <swale/swale_mpi.h>

enum { kBlock = 4096 };

static void must(int code) {
  if (code == SWALE_OK) return;
  fprintf(stderr, "blocks: %s\n", swale_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static FILE* log_of(uint32_t rank, const char* mode) {
  char name[32];
  snprintf(name, sizeof name, "log-%u", rank);
  FILE* log = fopen(name, mode);
  if (log == NULL) {
    perror(name);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return log;
}

static void write_blocks(swale_meta* meta, int rank, int ranks, size_t count) {
  swale_meta_file* file;
  must(swale_meta_file_open(meta, "/checkpoint", SWALE_CREATE, 0644, &file));
  swale_meta_segment* segments = calloc(count, sizeof *segments);
  FILE* log = log_of((uint32_t)rank, "w");
  for (size_t i = 0; i < count; i++) {
    const uint64_t number = i * (uint64_t)ranks + (uint64_t)rank; /* of the block in the file */
    char block[kBlock];
    memset(block, '.', sizeof block);
    snprintf(block, sizeof block, "block %llu, written by rank %d", (unsigned long long)number, rank);
    block[kBlock - 1] = '\n';
    fwrite(block, 1, sizeof block, log);
    segments[i].offset = number * kBlock; /* in the file */
    segments[i].length = kBlock;
    segments[i].log = (uint32_t)rank;
    segments[i].address = i * kBlock; /* in the log */
  }
  fclose(log);                                 /* 1. first the data, */
  must(swale_meta_put(file, segments, count)); /* 2. then where it is: durable when the call returns */
  must(swale_meta_file_close(file));           /* 3. tells how far this rank has written */
  free(segments);
}

static void print_file(swale_meta* meta) {
  swale_meta_file* file;
  swale_attributes attributes;
  swale_meta_found* found;
  const swale_meta_segment* pieces;
  size_t count;
  attributes.struct_bytes = sizeof attributes;
  must(swale_meta_stat(meta, "/checkpoint", &attributes));
  must(swale_meta_file_open(meta, "/checkpoint", 0, 0, &file));
  const swale_meta_range all = {0, attributes.size};
  must(swale_meta_get(file, &all, 1, &found)); /* any range, any number of ranges */
  must(swale_meta_found_at(found, 0, &pieces, &count));
  for (size_t i = 0; i < count; i++) {
    char* bytes = malloc(pieces[i].length);
    FILE* log = log_of(pieces[i].log, "r");
    fseek(log, (long)pieces[i].address, SEEK_SET);
    fwrite(bytes, 1, fread(bytes, 1, pieces[i].length, log), stdout);
    fclose(log);
    free(bytes);
  }
  swale_meta_found_free(found);
  must(swale_meta_file_close(file));
}

int main(int argc, char** argv) {
  MPI_Comm world = MPI_COMM_WORLD;
  swale_job* job;
  swale_meta* meta;
  MPI_Init(&argc, &argv);
  const int writes = argc == 4 && strcmp(argv[1], "write") == 0;
  if (!writes && !(argc == 3 && strcmp(argv[1], "read") == 0)) {
    fprintf(stderr, "usage: blocks write STORE COUNT | blocks read STORE\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  swale_comm comm = swale_comm_from_mpi(&world);
  must(swale_job_open(&comm, NULL, &job));
  const int flags = writes ? SWALE_CREATE : SWALE_READ_ONLY;
  must(swale_meta_open(job, argv[2], flags, NULL, &meta)); /* all ranks together, as swale_meta_close */
  if (writes)
    write_blocks(meta, swale_job_rank(job), swale_job_size(job), strtoull(argv[3], NULL, 10));
  else
    print_file(meta);
  must(swale_meta_close(meta));
  must(swale_job_close(job));
  MPI_Finalize();
  return 0;
}
