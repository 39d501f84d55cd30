/* mpi_pnetcdf DIR ROWS COLUMNS: ranks of one program write DIR/field.nc by PnetCDF, ROWS x COLUMNS each,
 * and read back what others have written: a variable of rows by collective calls, one by independent ones,
 * one whose columns the ranks have in turn by nonblocking ones, and one that grows by a record a step. The
 * file is always the same. Exit status 0: every number is right. */
#include "mpi_io.h"

#include <pnetcdf.h>

enum { kRecords = 3 };
static MPI_Offset rows, columns;

static void good(int code, const char* what) {
  if (code != NC_NOERR) fail(what, ncmpi_strerror(code));
}

static double number_at(int variable, MPI_Offset row, MPI_Offset column) {
  return variable * 1e6 + (double)(row * 1009 + column);
}

/* Which numbers of a variable a rank has. */
typedef struct {
  MPI_Offset start[2], count[2], stride[2];
} Share;
static Share block_of_rows(int of) {
  const Share share = {{rows * of, 0}, {rows, columns}, {1, 1}};
  return share;
}
static Share columns_in_turn(int of) {
  const Share share = {{0, of}, {rows * ranks, (columns - of - 1) / ranks + 1}, {1, ranks}};
  return share;
}
static MPI_Offset numbers_of(const Share* share) { return share->count[0] * share->count[1]; }

static double expected_at(int variable, const Share* share, MPI_Offset i) {
  return number_at(variable, share->start[0] + i / share->count[1],
                   share->start[1] + i % share->count[1] * share->stride[1]);
}
static double* numbers(int variable, const Share* share) {
  double* const made = allocate((size_t)numbers_of(share) * sizeof(double));
  for (MPI_Offset i = 0; i < numbers_of(share); ++i) made[i] = expected_at(variable, share, i);
  return made;
}

static void define(int file, int* variables) {
  static const char* const kNames[] = {"together", "alone", "in-turn", "steps"};
  int sides[2], record[2];
  good(ncmpi_def_dim(file, "row", rows * ranks, &sides[0]), "dimension");
  good(ncmpi_def_dim(file, "column", columns, &sides[1]), "dimension");
  good(ncmpi_def_dim(file, "step", NC_UNLIMITED, &record[0]), "dimension");
  record[1] = sides[1];
  for (int i = 0; i < 4; ++i)
    good(ncmpi_def_var(file, kNames[i], NC_DOUBLE, 2, i == 3 ? record : sides, &variables[i]), "variable");
  good(ncmpi_put_att_int(file, NC_GLOBAL, "ranks", NC_INT, 1, &ranks), "attribute");
  good(ncmpi_enddef(file), "end of definitions");
}

static void write_all(int file, const int* variables) {
  const Share mine = block_of_rows(rank), turn = columns_in_turn(rank);
  double* bytes = numbers(0, &mine);
  good(ncmpi_put_vara_double_all(file, variables[0], mine.start, mine.count, bytes), "collective write");
  free(bytes);
  bytes = numbers(1, &mine);
  good(ncmpi_begin_indep_data(file), "independent calls");
  good(ncmpi_put_vara_double(file, variables[1], mine.start, mine.count, bytes), "independent write");
  good(ncmpi_end_indep_data(file), "independent calls");
  free(bytes);
  int request = NC_REQ_NULL, status = NC_NOERR;
  bytes = numbers(2, &turn);
  good(ncmpi_iput_vars_double(file, variables[2], turn.start, turn.count, turn.stride, bytes, &request),
       "nonblocking write");
  good(ncmpi_wait_all(file, 1, &request, &status), "wait");
  good(status, "nonblocking write");
  free(bytes);
  for (int step = 0; step < kRecords; ++step) {
    const Share part = {{step, rank * (columns / ranks)}, {1, columns / ranks}, {1, 1}};
    bytes = numbers(3, &part);
    good(ncmpi_put_vara_double_all(file, variables[3], part.start, part.count, bytes), "write of a record");
    good(ncmpi_sync(file), "sync");
    free(bytes);
  }
}

static void check(int file, int variable, const Share* share) {
  double* const bytes = allocate((size_t)numbers_of(share) * sizeof(double));
  good(ncmpi_get_vars_double_all(file, variable, share->start, share->count, share->stride, bytes), "read");
  for (MPI_Offset i = 0; i < numbers_of(share); ++i)
    if (bytes[i] != expected_at(variable, share, i)) fail("read", "another number than was written");
  free(bytes);
}

int main(int argc, char** argv) {
  char path[kPathMax];
  int file, variables[4];
  join(argc, argv, 4);
  rows = atoi(argv[2]);
  columns = atoi(argv[3]);
  now = "field.nc";
  if (rows < 1 || columns < ranks || columns % ranks != 0)
    fail("usage", "COLUMNS is a multiple of the ranks");
  snprintf(path, sizeof path, "%s/field.nc", directory);
  good(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, hints, &file), "create");
  define(file, variables);
  write_all(file, variables);
  good(ncmpi_close(file), "close");
  good(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, hints, &file), "open");
  const Share rows_of_next = block_of_rows((rank + 1) % ranks), turn = columns_in_turn(rank);
  const Share records = {{0, 0}, {kRecords, columns}, {1, 1}};
  check(file, variables[0], &turn);
  check(file, variables[1], &turn);
  check(file, variables[2], &rows_of_next);
  check(file, variables[3], &records);
  good(ncmpi_close(file), "close");
  if (rank == 0) printf("field.nc\n");
  leave();
  return 0;
}
