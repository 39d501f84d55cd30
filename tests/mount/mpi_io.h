/* What the MPI programs of the mount's tests share: ranks, failures, and the bytes that files consist of.
 * Each is one source. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPathMax = 4096 };

static int rank, ranks;
static const char* directory;
static const char* now = "start"; /* the case that runs */
static MPI_Info hints;

static inline void fail(const char* what, const char* why) {
  fprintf(stderr, "mpi_io: rank %d: %s: %s: %s\n", rank, now, what, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static inline void must(int code, const char* what) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code == MPI_SUCCESS) return;
  MPI_Error_string(code, text, &length);
  fail(what, text);
}

static inline void* allocate(size_t bytes) {
  void* const memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) fail("memory", "none");
  return memory;
}

/* What a byte of a file is, by who wrote it last: never 0, which is what holes read as: version 0. */
static inline unsigned char byte_at(int version, MPI_Offset offset) {
  const unsigned long long mixed = ((unsigned long long)offset + (unsigned)version * 7919ull) * 2654435761ull;
  return version == 0 ? 0 : (unsigned char)(1 + (mixed >> 16) % 255);
}

static inline MPI_File open_file(const char* name, int mode) {
  char path[kPathMax];
  MPI_File file;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  must(MPI_File_open(MPI_COMM_WORLD, path, mode, hints, &file), "open");
  return file;
}

static inline void expect_byte(unsigned char found, unsigned char expected, MPI_Offset offset,
                               const char* what) {
  char why[100];
  if (found == expected) return;
  snprintf(why, sizeof why, "offset %lld: found %d, expected %d", (long long)offset, found, expected);
  fail(what, why);
}

static inline void fill(unsigned char* bytes, int version, MPI_Offset offset, int length) {
  for (int at = 0; at < length; ++at) bytes[at] = byte_at(version, offset + at);
}

static inline void join(int argc, char** argv, int words) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Info_create(&hints);
  if (argc < words) fail("usage", "see the head of the source");
  directory = argv[1];
}

static inline void leave(void) {
  MPI_Info_free(&hints);
  MPI_Finalize();
}
