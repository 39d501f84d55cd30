/* mpi_hdf5 DIR ROWS COLUMNS: ranks of one program write DIR/field.h5 by parallel HDF5, ROWS x COLUMNS
 * each, and read it back: a contiguous dataset by collective and one by independent transfers, a chunked
 * one whose columns the ranks have in turn and that grows by a step, attributes. Without times, so that
 * the file is always the same. Exit status 0: every number is right. */
#include "mpi_io.h"

#include <hdf5.h>

static hsize_t rows, columns;

static hid_t good(hid_t id, const char* what) {
  if (id < 0) fail(what, "HDF5 says no");
  return id;
}

static double number_at(int step, hsize_t row, hsize_t column) {
  return step * 1e6 + (double)(row * 1009 + column);
}

static hid_t transfer(H5FD_mpio_xfer_t how) {
  const hid_t list = good(H5Pcreate(H5P_DATASET_XFER), "transfer list");
  good(H5Pset_dxpl_mpio(list, how), "transfer mode");
  return list;
}

static hid_t make_dataset(hid_t file, const char* name, hsize_t rows_max, int chunked) {
  const hsize_t size[] = {rows * (hsize_t)ranks, columns}, most[] = {rows_max, columns};
  const hsize_t chunk[] = {rows / 2 + 1, columns / 3 + 1};
  const hid_t space = good(H5Screate_simple(2, size, most), "dataspace");
  const hid_t list = good(H5Pcreate(H5P_DATASET_CREATE), "creation list");
  good(H5Pset_obj_track_times(list, 0), "no times");
  if (chunked) good(H5Pset_chunk(list, 2, chunk), "chunks");
  const hid_t made =
      good(H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT), name);
  H5Pclose(list);
  H5Sclose(space);
  return made;
}

/* Which numbers of a step this rank has: a block of rows, or every `ranks`th column. */
typedef struct {
  hsize_t start[2], stride[2], count[2];
} Share;
static Share block_of_rows(void) {
  const Share share = {{rows * (hsize_t)rank, 0}, {1, 1}, {rows, columns}};
  return share;
}
static Share columns_in_turn(int step) {
  const hsize_t all = rows * (hsize_t)ranks;
  const Share share = {{(hsize_t)step * all, (hsize_t)rank},
                       {1, (hsize_t)ranks},
                       {all, (columns - (hsize_t)rank - 1) / (hsize_t)ranks + 1}};
  return share;
}

enum Direction { kWrite, kRead };
static void move_share(hid_t dataset, const Share* share, int step, enum Direction direction,
                       H5FD_mpio_xfer_t how) {
  const hsize_t bytes = share->count[0] * share->count[1];
  double* const numbers = allocate((size_t)bytes * sizeof(double));
  const hid_t there = good(H5Dget_space(dataset), "dataspace"),
              here = good(H5Screate_simple(2, share->count, NULL), "memory");
  const hid_t list = transfer(how);
  good(H5Sselect_hyperslab(there, H5S_SELECT_SET, share->start, share->stride, share->count, NULL),
       "selection");
  for (hsize_t i = 0; i < bytes; ++i) {
    const hsize_t row = share->start[0] + i / share->count[1],
                  column = share->start[1] + i % share->count[1] * share->stride[1];
    numbers[i] = direction == kWrite ? number_at(step, row, column) : -1;
  }
  if (direction == kWrite) good(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, here, there, list, numbers), "write");
  if (direction == kRead) good(H5Dread(dataset, H5T_NATIVE_DOUBLE, here, there, list, numbers), "read");
  for (hsize_t i = 0; i < bytes; ++i) {
    const hsize_t row = share->start[0] + i / share->count[1],
                  column = share->start[1] + i % share->count[1] * share->stride[1];
    if (numbers[i] != number_at(step, row, column)) fail("read", "another number than was written");
  }
  H5Pclose(list);
  H5Sclose(here);
  H5Sclose(there);
  free(numbers);
}

static void write_all(hid_t file) {
  const Share mine = block_of_rows();
  const hsize_t grown[] = {2 * rows * (hsize_t)ranks, columns};
  hid_t dataset = make_dataset(file, "together", rows * (hsize_t)ranks, 0);
  move_share(dataset, &mine, 0, kWrite, H5FD_MPIO_COLLECTIVE);
  H5Dclose(dataset);
  dataset = make_dataset(file, "alone", rows * (hsize_t)ranks, 0);
  move_share(dataset, &mine, 0, kWrite, H5FD_MPIO_INDEPENDENT);
  H5Dclose(dataset);
  dataset = make_dataset(file, "in-turn", H5S_UNLIMITED, 1);
  for (int step = 0; step < 2; ++step) {
    const Share turn = columns_in_turn(step);
    if (step > 0) good(H5Dset_extent(dataset, grown), "a second step");
    move_share(dataset, &turn, step, kWrite, H5FD_MPIO_COLLECTIVE);
    good(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush");
  }
  const hid_t scalar = good(H5Screate(H5S_SCALAR), "scalar");
  const hid_t attribute =
      good(H5Acreate2(dataset, "ranks", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT), "attribute");
  good(H5Awrite(attribute, H5T_NATIVE_INT, &ranks), "attribute");
  H5Aclose(attribute);
  H5Sclose(scalar);
  H5Dclose(dataset);
}

/* What another rank has written, and in another way than it was written. */
static void check_all(hid_t file) {
  const Share mine = block_of_rows();
  hid_t dataset = good(H5Dopen2(file, "together", H5P_DEFAULT), "open");
  const Share turn = columns_in_turn(0);
  move_share(dataset, &turn, 0, kRead, H5FD_MPIO_COLLECTIVE);
  H5Dclose(dataset);
  dataset = good(H5Dopen2(file, "alone", H5P_DEFAULT), "open");
  move_share(dataset, &turn, 0, kRead, H5FD_MPIO_INDEPENDENT);
  H5Dclose(dataset);
  dataset = good(H5Dopen2(file, "in-turn", H5P_DEFAULT), "open");
  move_share(dataset, &mine, 0, kRead, H5FD_MPIO_COLLECTIVE);
  H5Dclose(dataset);
}

int main(int argc, char** argv) {
  char path[kPathMax];
  join(argc, argv, 4);
  rows = (hsize_t)atoi(argv[2]);
  columns = (hsize_t)atoi(argv[3]);
  now = "field.h5";
  if (rows < 1 || columns < (hsize_t)ranks) fail("usage", "a row, and a column for each rank");
  snprintf(path, sizeof path, "%s/field.h5", directory);
  const hid_t access = good(H5Pcreate(H5P_FILE_ACCESS), "access list");
  good(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, hints), "access by MPI-IO");
  hid_t file = good(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access), "create");
  write_all(file);
  good(H5Fclose(file), "close");
  file = good(H5Fopen(path, H5F_ACC_RDONLY, access), "open");
  check_all(file);
  good(H5Fclose(file), "close");
  H5Pclose(access);
  if (rank == 0) printf("field.h5\n");
  leave();
  return 0;
}
