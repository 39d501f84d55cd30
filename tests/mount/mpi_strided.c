/* bench_fs_preload_mpi TREE PLAIN MIB RECORD: ranks write one file by MPI-IO, strided: record i of a rank is
 * the (i * ranks + rank)-th of the file. In TREE and in PLAIN by turns, until all is written, not synced.
 * Rank 0 prints, as JSON, the median of the plain file's time over that of the tree's.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 3, PATH_MAX_BYTES = 4096 };
static int rank, ranks;

static void need(int error, const char* what) {
  if (error == MPI_SUCCESS) return;
  fprintf(stderr, "%s has failed\n", what);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static double seconds(const char* folder, MPI_Offset records, int bytes, const char* record) {
  char path[PATH_MAX_BYTES];
  snprintf(path, sizeof path, "%s/swale-bench-strided", folder);
  MPI_File file;
  need(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), "open");
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (MPI_Offset i = 0; i < records; ++i)
    need(MPI_File_write_at(file, (i * ranks + rank) * bytes, record, bytes, MPI_BYTE, MPI_STATUS_IGNORE),
         "write");
  MPI_Barrier(MPI_COMM_WORLD);
  const double took = MPI_Wtime() - began;
  need(MPI_File_close(&file), "close");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) remove(path);
  MPI_Barrier(MPI_COMM_WORLD);
  return took;
}

static int by_size(const void* one, const void* other) {
  const double left = *(const double*)one, right = *(const double*)other;
  return (left > right) - (left < right);
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int bytes = count == 5 ? atoi(words[4]) : 0;
  if (bytes <= 0) need(MPI_ERR_ARG, "bench_fs_preload_mpi TREE PLAIN MIB RECORD");
  MPI_Offset records = ((MPI_Offset)atoi(words[3]) << 20) / bytes / ranks;
  if (records < 1) records = 1;
  char* const record = malloc((size_t)bytes);
  memset(record, 'a' + rank, (size_t)bytes);
  double ratios[TURNS];
  for (int turn = 0; turn < TURNS; ++turn) {
    const double first = turn % 2 == 0 ? seconds(words[2], records, bytes, record) : 0;
    const double ours = seconds(words[1], records, bytes, record);
    ratios[turn] = (turn % 2 == 0 ? first : seconds(words[2], records, bytes, record)) / ours;
  }
  qsort(ratios, TURNS, sizeof ratios[0], by_size);
  if (rank == 0) printf("{\"n1_write_over_direct\": %.6f, \"ranks\": %d}\n", ratios[TURNS / 2], ranks);
  free(record);
  MPI_Finalize();
  return 0;
}
