/* mpi_hammer DIR ACKS COUNT: ranks write blocks of one file by MPI-IO until something fails, COUNT at most;
 * ACKS/RANK says how many were acknowledged. Exit status 3.
 * mpi_hammer DIR ACKS: checks that they are there. Exit status 0: all of them. */
#include "mpi_io.h"

enum { kBlockBytes = 4096 };

/* The acknowledged blocks of this rank are told to a file that outlives a kill of the mount. */
static FILE* acks(const char* folder, const char* mode) {
  char path[kPathMax];
  snprintf(path, sizeof path, "%s/%d", folder, rank);
  FILE* const told = fopen(path, mode);
  if (told == NULL) fail(path, "cannot be opened");
  return told;
}

static MPI_Offset place_of(int number) { return ((MPI_Offset)number * ranks + rank) * kBlockBytes; }

/* Some implementations tell a failure by a count that is too small. */
static int write_block(MPI_File file, int number) {
  unsigned char bytes[kBlockBytes];
  MPI_Status status;
  int written = 0;
  fill(bytes, 1, place_of(number), kBlockBytes);
  if (MPI_File_write_at(file, place_of(number), bytes, kBlockBytes, MPI_BYTE, &status) != MPI_SUCCESS)
    return 0;
  return MPI_Get_count(&status, MPI_BYTE, &written) == MPI_SUCCESS && written == kBlockBytes;
}

static void hammer(const char* folder, int count) {
  FILE* const told = acks(folder, "w");
  MPI_File file = open_file("hammered", MPI_MODE_CREATE | MPI_MODE_RDWR);
  for (int i = 0; i < count && write_block(file, i); ++i) {
    rewind(told);
    fprintf(told, "%10d\n", i + 1);
    fflush(told);
  }
  exit(3); /* without MPI_Finalize: the mount is gone, or should be */
}

static void check(const char* folder) {
  unsigned char bytes[kBlockBytes];
  int acknowledged = 0;
  FILE* const told = acks(folder, "r");
  if (fscanf(told, "%d", &acknowledged) != 1 || acknowledged == 0) fail(folder, "nothing was acknowledged");
  fclose(told);
  MPI_File file = open_file("hammered", MPI_MODE_RDONLY);
  for (int i = 0; i < acknowledged; ++i) {
    must(MPI_File_read_at(file, place_of(i), bytes, kBlockBytes, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    for (int at = 0; at < kBlockBytes; ++at)
      expect_byte(bytes[at], byte_at(1, place_of(i) + at), place_of(i) + at, "acknowledged, then killed");
  }
  must(MPI_File_close(&file), "close");
}

int main(int argc, char** argv) {
  join(argc, argv, 3);
  now = "hammered";
  if (argc > 3)
    hammer(argv[2], atoi(argv[3]));
  else
    check(argv[2]);
  leave();
  return 0;
}
