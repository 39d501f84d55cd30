/* mpi_io DIR BLOCK COUNT [atomic] [unordered] [nodes] [HINT=VALUE ...]: ranks of one program write and read
 * shared files in DIR by MPI-IO, and check each byte. A line for each case; the files are the same for every
 * implementation of MPI, on every file system. With atomic, also atomic mode, which some implementations
 * do not have; unordered: no ordered writes by the shared pointer, which ROMIO gets wrong without
 * collective buffers; nodes: ranks are on several nodes, which see what a sync has published. BLOCK bytes,
 * COUNT blocks: of each rank in each case. Built by the wrapper of each MPI (CMakeLists.txt); mpi_io_test.py
 * and nodes_mpi_test.py run it. Exit status 0: every byte is right. */
#include "mpi_io.h"

enum { kGap = 8, kRecordBytes = 96 };
static const unsigned char kUntouched = 0xEE;

static int block, count, several_nodes;

static MPI_File begin(const char* name) {
  now = name;
  return open_file(name, MPI_MODE_CREATE | MPI_MODE_RDWR);
}

static void end(MPI_File file) {
  must(MPI_File_close(&file), "close");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%s\n", now), fflush(stdout);
}

/* What was written is visible to all ranks. */
static void publish(MPI_File file) {
  must(MPI_File_sync(file), "sync");
  MPI_Barrier(MPI_COMM_WORLD);
  must(MPI_File_sync(file), "sync");
}

static void expect_size(MPI_File file, MPI_Offset expected) {
  char why[100];
  MPI_Offset size = 0;
  must(MPI_File_get_size(file, &size), "size");
  snprintf(why, sizeof why, "%lld, expected %lld", (long long)size, (long long)expected);
  if (size != expected) fail("size", why);
  MPI_Barrier(MPI_COMM_WORLD); /* before another rank changes it */
}

/* Which version each byte of the whole file has. All ranks read it, each its share, without a view. */
typedef int Version(MPI_Offset offset);
static void check_file(MPI_File file, MPI_Offset size, Version* version) {
  const MPI_Offset share = (size + ranks - 1) / ranks, from = rank * share;
  const MPI_Offset to = from + share < size ? from + share : size;
  publish(file);
  expect_size(file, size);
  if (from < to) {
    unsigned char* const bytes = allocate((size_t)(to - from));
    must(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view of all");
    must(MPI_File_read_at(file, from, bytes, (int)(to - from), MPI_BYTE, MPI_STATUS_IGNORE), "read of all");
    for (MPI_Offset at = from; at < to; ++at)
      expect_byte(bytes[at - from], byte_at(version(at), at), at, "read of all");
    free(bytes);
  } else {
    must(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view of all");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank's part of a file: equal regions, one after the other in its view, and how they lie in memory. */
typedef struct {
  MPI_Offset begin; /* of the view */
  MPI_Datatype view;
  int regions, region_bytes;
  MPI_Offset* offset; /* in the file, by region */
} Part;

static Part make_part(MPI_Offset first, MPI_Datatype view, int regions, int region_bytes) {
  Part part = {first, view, regions, region_bytes, allocate((size_t)regions * sizeof(MPI_Offset))};
  must(MPI_Type_commit(&part.view), "type of a view");
  return part;
}

static void free_part(Part* part) {
  free(part->offset);
  MPI_Type_free(&part->view);
}

/* Region i of rank r is the (i * ranks + r)th of the file, `stride` bytes after the one before. */
static Part strided(int regions, int region_bytes, int stride) {
  MPI_Datatype view;
  must(MPI_Type_vector(regions, region_bytes, ranks * stride, MPI_BYTE, &view), "vector");
  Part part = make_part((MPI_Offset)rank * stride, view, regions, region_bytes);
  for (int i = 0; i < regions; ++i) part.offset[i] = ((MPI_Offset)i * ranks + rank) * stride;
  return part;
}

/* A tile of a matrix of 4-byte elements, which the ranks divide: two rows of tiles if their number is
 * even. */
static int tile_rows(void) { return ranks % 2 == 0 ? 2 : 1; }
static Part tile(int rows, int columns) {
  const int down = tile_rows(), across = ranks / down;
  const int sizes[] = {rows * down, columns * across}, own[] = {rows, columns};
  const int starts[] = {rank / across * rows, rank % across * columns};
  MPI_Datatype view;
  must(MPI_Type_create_subarray(2, sizes, own, starts, MPI_ORDER_C, MPI_INT, &view), "subarray");
  Part part = make_part(0, view, rows, 4 * columns);
  for (int i = 0; i < rows; ++i) part.offset[i] = 4 * ((MPI_Offset)(starts[0] + i) * sizes[1] + starts[1]);
  return part;
}

enum Call { kAlone, kTogether };

/* In memory the regions lie `gap` bytes apart; nothing touches what lies between. */
static unsigned char* memory_of(const Part* part, int version, int gap) {
  const size_t step = (size_t)(part->region_bytes + gap);
  unsigned char* const bytes = allocate(step * (size_t)part->regions);
  memset(bytes, kUntouched, step * (size_t)part->regions);
  for (int i = 0; version != 0 && i < part->regions; ++i)
    for (int at = 0; at < part->region_bytes; ++at)
      bytes[(size_t)i * step + (size_t)at] = byte_at(version, part->offset[i] + at);
  return bytes;
}

static MPI_Datatype memory_type(const Part* part, int gap) {
  MPI_Datatype type;
  must(MPI_Type_vector(part->regions, part->region_bytes, part->region_bytes + gap, MPI_BYTE, &type),
       "type of memory");
  must(MPI_Type_commit(&type), "type of memory");
  return type;
}

static void set_view(MPI_File file, const Part* part) {
  must(MPI_File_set_view(file, part->begin, MPI_BYTE, part->view, "native", MPI_INFO_NULL), "view");
}

static void write_part(MPI_File file, const Part* part, int version, enum Call call, int gap) {
  MPI_Datatype type = memory_type(part, gap);
  unsigned char* const bytes = memory_of(part, version, gap);
  set_view(file, part);
  must(call == kTogether ? MPI_File_write_all(file, bytes, 1, type, MPI_STATUS_IGNORE)
                         : MPI_File_write(file, bytes, 1, type, MPI_STATUS_IGNORE),
       "write");
  MPI_Type_free(&type);
  free(bytes);
}

static void check_part(MPI_File file, const Part* part, int version, enum Call call, int gap) {
  const size_t step = (size_t)(part->region_bytes + gap);
  MPI_Datatype type = memory_type(part, gap);
  unsigned char* const bytes = memory_of(part, 0, gap);
  publish(file);
  set_view(file, part);
  must(call == kTogether ? MPI_File_read_all(file, bytes, 1, type, MPI_STATUS_IGNORE)
                         : MPI_File_read(file, bytes, 1, type, MPI_STATUS_IGNORE),
       "read");
  for (int i = 0; i < part->regions; ++i) {
    for (int at = 0; at < part->region_bytes; ++at)
      expect_byte(bytes[(size_t)i * step + (size_t)at], byte_at(version, part->offset[i] + at),
                  part->offset[i] + at, "read");
    for (int at = 0; at < gap && i + 1 < part->regions; ++at)
      expect_byte(bytes[(size_t)i * step + (size_t)(part->region_bytes + at)], kUntouched, part->offset[i],
                  "memory between");
  }
  MPI_Type_free(&type);
  free(bytes);
}

static int all_one(MPI_Offset offset) { return (void)offset, 1; }
static MPI_Offset whole(void) { return (MPI_Offset)ranks * count * block; }

/* Each rank a segment of its own, request by request; odd ranks go backwards. */
static void segments(const char* name, enum Call call) {
  MPI_File file = begin(name);
  unsigned char* const bytes = allocate((size_t)block);
  for (int i = 0; i < count; ++i) {
    const int which = rank % 2 == 0 || call == kTogether ? i : count - 1 - i;
    const MPI_Offset at = ((MPI_Offset)rank * count + which) * block;
    fill(bytes, 1, at, block);
    must(call == kTogether ? MPI_File_write_at_all(file, at, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE)
                           : MPI_File_write_at(file, at, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE),
         "write");
  }
  free(bytes);
  check_file(file, whole(), all_one);
  end(file);
}

/* The blocks of all ranks in turn. An implementation that sieves reads, changes and writes bytes of other
 * ranks, too, under a lock. */
static void interleaved(const char* name, enum Call call) {
  MPI_File file = begin(name);
  Part part = strided(count, block, block);
  write_part(file, &part, 1, call, 0);
  check_part(file, &part, 1, call == kAlone ? kTogether : kAlone, 0);
  check_file(file, whole(), all_one);
  free_part(&part);
  end(file);
}

static void tiles(void) {
  MPI_File file = begin("tiles");
  const int columns = block / 4;
  Part part = tile(count, columns);
  write_part(file, &part, 1, kTogether, 0);
  check_part(file, &part, 1, kAlone, 0);
  check_part(file, &part, 1, kTogether, kGap);
  check_file(file, whole(), all_one);
  free_part(&part);
  end(file);
}

/* As HPIO does: small regions with space between them, in the file and in memory; the space keeps its
 * bytes. */
static int region_bytes(void) { return block / 4; }
static int region_stride(void) { return region_bytes() + region_bytes() / 2; }
static int regions_version(MPI_Offset offset) { return offset % region_stride() < region_bytes() ? 1 : 9; }
static void regions(const char* name, enum Call call) {
  MPI_File file = begin(name);
  const MPI_Offset size = (MPI_Offset)ranks * count * region_stride();
  if (rank == 0) {
    unsigned char* const bytes = allocate((size_t)size);
    fill(bytes, 9, 0, (int)size);
    must(MPI_File_write_at(file, 0, bytes, (int)size, MPI_BYTE, MPI_STATUS_IGNORE), "write before");
    free(bytes);
  }
  publish(file);
  Part part = strided(count, region_bytes(), region_stride());
  write_part(file, &part, 1, call, kGap);
  check_part(file, &part, 1, call, kGap);
  check_file(file, size, regions_version);
  free_part(&part);
  end(file);
}

/* Blocks in turn; then each rank writes over the segment of the next rank, all but the first and the last
 * block of the file. */
static int overwritten_version(MPI_Offset offset) {
  return offset < block || offset >= whole() - block ? 1 : 2;
}
static void overwrite(void) {
  MPI_File file = begin("overwrite");
  Part part = strided(count, block, block);
  write_part(file, &part, 1, kTogether, 0);
  publish(file);
  must(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view of all");
  const int next = (rank + 1) % ranks, all = count * block;
  MPI_Offset from = (MPI_Offset)next * all, to = from + all;
  if (next == 0) from += block;
  if (next == ranks - 1) to -= block;
  unsigned char* const bytes = allocate((size_t)all);
  fill(bytes, 2, from, (int)(to - from));
  must(MPI_File_write_at(file, from, bytes, (int)(to - from), MPI_BYTE, MPI_STATUS_IGNORE), "overwrite");
  free(bytes);
  check_file(file, whole(), overwritten_version);
  free_part(&part);
  end(file);
}

/* Preallocated, written in the middle, cut and extended again: what was cut off reads as zeros. */
static int sized_version(MPI_Offset offset) { return offset >= block && offset < 2 * block ? 1 : 0; }
static void sizes(void) {
  MPI_File file = begin("sizes");
  unsigned char* const bytes = allocate((size_t)block);
  must(MPI_File_preallocate(file, whole()), "preallocate");
  /* ROMIO's rank 0 writes. To the standard that is a write: "Consistency and Semantics", "File Size". */
  if (several_nodes) publish(file);
  expect_size(file, whole());
  for (int i = 1; i <= 2; ++i) {
    fill(bytes, 1, (MPI_Offset)i * block, block);
    if (rank == i % ranks)
      must(MPI_File_write_at(file, (MPI_Offset)i * block, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE),
           "write");
  }
  publish(file);
  must(MPI_File_set_size(file, 2 * (MPI_Offset)block), "cut");
  expect_size(file, 2 * (MPI_Offset)block);
  must(MPI_File_set_size(file, 3 * (MPI_Offset)block), "extend");
  check_file(file, 3 * (MPI_Offset)block, sized_version);
  free(bytes);
  end(file);
}

/* Each round, each rank writes its block and reads that of the rank before, which a sync has made visible. */
static int last_round(MPI_Offset offset) { return (void)offset, 3; }
static void visible_after_sync(void) {
  MPI_File file = begin("visible-after-sync");
  unsigned char* const bytes = allocate((size_t)block);
  const MPI_Offset mine = (MPI_Offset)rank * block, other = (MPI_Offset)((rank + ranks - 1) % ranks) * block;
  for (int round = 1; round <= 3; ++round) {
    fill(bytes, round, mine, block);
    must(MPI_File_write_at(file, mine, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    publish(file);
    must(MPI_File_read_at(file, other, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE), "read of another rank's");
    for (int at = 0; at < block; ++at)
      expect_byte(bytes[at], byte_at(round, other + at), other + at, "another rank's");
    publish(file);
  }
  free(bytes);
  check_file(file, (MPI_Offset)ranks * block, last_round);
  end(file);
}

static void nonblocking(void) {
  MPI_File file = begin("nonblocking");
  unsigned char* const bytes = allocate((size_t)count * (size_t)block);
  MPI_Request* const requests = allocate((size_t)count * sizeof(MPI_Request));
  const MPI_Offset begins = (MPI_Offset)rank * count * block;
  fill(bytes, 1, begins, count * block);
  for (int i = 0; i < count; ++i)
    must(MPI_File_iwrite_at(file, begins + (MPI_Offset)i * block, bytes + (size_t)i * (size_t)block, block,
                            MPI_BYTE, &requests[i]),
         "iwrite");
  must(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), "wait for writes");
  memset(bytes, 0, (size_t)count * (size_t)block);
  for (int i = 0; i < count; ++i)
    must(MPI_File_iread_at(file, begins + (MPI_Offset)i * block, bytes + (size_t)i * (size_t)block, block,
                           MPI_BYTE, &requests[i]),
         "iread");
  must(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), "wait for reads");
  for (int at = 0; at < count * block; ++at)
    expect_byte(bytes[at], byte_at(1, begins + at), begins + at, "iread");
  /* ROMIO's sync leaves out ranks whose writes were all nonblocking (MPICH 4.0: dirty_write). */
  if (several_nodes)
    must(MPI_File_write_at(file, begins, bytes, block, MPI_BYTE, MPI_STATUS_IGNORE), "write once more");
  free(requests);
  free(bytes);
  check_file(file, whole(), all_one);
  end(file);
}

/* By the shared pointer, in the order of the ranks: what each writes has another length. */
static void shared_in_order(void) {
  MPI_File file = begin("shared-in-order");
  const int mine = block + 8 * rank;
  MPI_Offset size = 0, before = 0;
  for (int other = 0; other < ranks; ++other) size += block + 8 * other;
  for (int other = 0; other < rank; ++other) before += block + 8 * other;
  unsigned char* const bytes = allocate((size_t)mine);
  for (int round = 0; round < 3; ++round) {
    fill(bytes, 1, round * size + before, mine);
    must(MPI_File_write_ordered(file, bytes, mine, MPI_BYTE, MPI_STATUS_IGNORE), "write in order");
  }
  free(bytes);
  check_file(file, 3 * size, all_one);
  end(file);
}

static int by_content(const void* a, const void* b) { return memcmp(a, b, kRecordBytes); }

/* Appended by the shared pointer as each rank likes: every record is there once. Then sorted, so that the
 * file is always the same. */
static void shared(void) {
  MPI_File file = begin("shared");
  char record[kRecordBytes];
  const int each = count < 40 ? count : 40, all = each * ranks;
  for (int i = 0; i < each; ++i) {
    memset(record, 'x', sizeof record);
    snprintf(record, sizeof record, "rank %5d record %5d", rank, i);
    must(MPI_File_write_shared(file, record, kRecordBytes, MPI_BYTE, MPI_STATUS_IGNORE), "append");
  }
  publish(file);
  expect_size(file, (MPI_Offset)all * kRecordBytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    char* const records = allocate((size_t)all * kRecordBytes);
    must(MPI_File_read_at(file, 0, records, all * kRecordBytes, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    qsort(records, (size_t)all, kRecordBytes, by_content);
    for (int i = 0; i < all; ++i) {
      memset(record, 'x', sizeof record);
      snprintf(record, sizeof record, "rank %5d record %5d", i / each, i % each);
      if (memcmp(record, records + (size_t)i * kRecordBytes, kRecordBytes) != 0)
        fail("a record is missing or twice", record);
    }
    must(MPI_File_write_at(file, 0, records, all * kRecordBytes, MPI_BYTE, MPI_STATUS_IGNORE),
         "write sorted");
    free(records);
  }
  end(file);
}

/* Atomic mode: writes of one range by all ranks do not mix, which needs locks of the file system. */
static void atomic(void) {
  MPI_File file = begin("atomic");
  const int all = count * block;
  unsigned char* const bytes = allocate((size_t)all);
  must(MPI_File_set_atomicity(file, 1), "atomic mode");
  Part part = strided(count, block, 2 * block); /* of this rank; all ranks take the view of rank 0 */
  for (int round = 0; round < 3; ++round) {
    must(MPI_File_set_view(file, 0, MPI_BYTE, part.view, "native", MPI_INFO_NULL), "view");
    memset(bytes, 1 + rank, (size_t)all);
    must(MPI_File_write_at(file, 0, bytes, all, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    MPI_Barrier(MPI_COMM_WORLD);
    must(MPI_File_read_at(file, 0, bytes, all, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    for (int at = 1; at < all; ++at) expect_byte(bytes[at], bytes[0], at, "writes of two ranks are mixed");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  memset(bytes, 77, (size_t)all);
  if (rank == 0) must(MPI_File_write_at(file, 0, bytes, all, MPI_BYTE, MPI_STATUS_IGNORE), "write");
  free(bytes);
  free_part(&part);
  end(file);
}

static void expect_class(int code, int expected, const char* what) {
  char why[100];
  int found = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &found);
  snprintf(why, sizeof why, "error class %d, expected %d", found, expected);
  if (found != expected) fail(what, why);
}

static void names(void) {
  char path[kPathMax];
  MPI_File file = begin("names");
  end(file);
  snprintf(path, sizeof path, "%s/names", directory);
  expect_class(
      MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, hints, &file),
      MPI_ERR_FILE_EXISTS, "a file that is there is made again");
  if (rank == 0) must(MPI_File_delete(path, MPI_INFO_NULL), "delete");
  MPI_Barrier(MPI_COMM_WORLD);
  expect_class(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, hints, &file), MPI_ERR_NO_SUCH_FILE,
               "a deleted file is opened");
}

static void cases(int with_atomic, int in_order) {
  segments("segments-alone", kAlone);
  segments("segments-together", kTogether);
  interleaved("interleaved-alone", kAlone);
  interleaved("interleaved-together", kTogether);
  tiles();
  regions("regions-alone", kAlone);
  regions("regions-together", kTogether);
  overwrite();
  sizes();
  visible_after_sync();
  nonblocking();
  if (in_order) shared_in_order();
  shared();
  if (with_atomic) atomic();
  names();
}

int main(int argc, char** argv) {
  int with_atomic = 0, in_order = 1;
  join(argc, argv, 4);
  block = atoi(argv[2]);
  count = atoi(argv[3]);
  for (int i = 4; i < argc; ++i) {
    char* const equals = strchr(argv[i], '=');
    if (strcmp(argv[i], "atomic") == 0) with_atomic = 1;
    if (strcmp(argv[i], "unordered") == 0) in_order = 0;
    if (strcmp(argv[i], "nodes") == 0) several_nodes = 1;
    if (equals == NULL) continue;
    *equals = '\0';
    MPI_Info_set(hints, argv[i], equals + 1);
  }
  if (block < 16 || block % 16 != 0 || count < 4) fail("usage", "BLOCK is a multiple of 16, COUNT 4 or more");
  cases(with_atomic, in_order);
  leave();
  return 0;
}
