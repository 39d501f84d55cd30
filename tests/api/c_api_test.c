/* The C interface from plain C11: one rank creates a massive directory, writes epochs, reopens it and
 * appends more, reads everything back; then every kind of mistake. Usage: c_api_test SCRATCH_DIRECTORY
 * (which does not exist yet) */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "swale/swale.h"

enum { kKeys = 500, kEpochs = 3 };

static void key_of(uint64_t number, char key[8]) { memcpy(key, &number, 8); }

static size_t value_of(int epoch, uint64_t number, char value[64]) {
  return (size_t)snprintf(value, 64, "epoch %d of %" PRIu64, epoch, number * number);
}

/* Epoch 0 describes the directory, epoch 1 itself, and epoch 2 the directory anew. */
static void set_attributes(swale_dir* dir, int epoch) {
  static char large[SWALE_ATTRIBUTES_BYTES_MAX + 2];
  if (epoch != 1) {
    CHECK_OK(swale_dir_set_attributes(dir, SWALE_DESCRIBED_DIRECTORY,
                                      epoch == 0 ? "{\"units\":\n\"lj\"}" : "{\"units\":\"si\"}"));
  } else {
    CHECK_OK(swale_dir_set_attributes(dir, SWALE_DESCRIBED_EPOCH, "{\"box\":[1,2]}"));
  }
  memset(large, ' ', sizeof large - 1);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "at most 65536", swale_dir_set_attributes(dir, 0, large));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "no JSON object", swale_dir_set_attributes(dir, 0, "[]"));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "json\" is NULL", swale_dir_set_attributes(dir, 0, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "what 2", swale_dir_set_attributes(dir, 2, "{}"));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir\" is NULL", swale_dir_set_attributes(NULL, 0, "{}"));
}

static void read_attributes(swale_reader* reader) {
  char json[SWALE_ATTRIBUTES_BYTES_MAX + 1];
  size_t needed = 0;
  CHECK_OK(swale_reader_attributes(reader, SWALE_DESCRIBED_DIRECTORY, SWALE_ALL_EPOCHS, json, sizeof json,
                                   &needed));
  CHECK(strcmp(json, "{\"units\":\"si\"}") == 0 && needed == strlen(json) + 1);
  CHECK_OK(swale_reader_attributes(reader, SWALE_DESCRIBED_DIRECTORY, 1, json, sizeof json, NULL));
  CHECK(strcmp(json, "{\"units\": \"lj\"}") == 0);
  CHECK_OK(swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, 1, json, sizeof json, &needed));
  CHECK(strcmp(json, "{\"box\":[1,2]}") == 0);
  CHECK_OK(swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, 0, json, sizeof json, &needed));
  CHECK(strcmp(json, "{}") == 0 && needed == 3);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "take 14 bytes",
              swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, 1, json, 13, &needed));
  CHECK(needed == 14);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "take 14 bytes",
              swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, 1, NULL, 0, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "of one epoch",
              swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, SWALE_ALL_EPOCHS, json, 3, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch",
              swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, kEpochs, json, 3, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "what -1", swale_reader_attributes(reader, -1, 0, json, 3, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "json\" is NULL", swale_reader_attributes(reader, 0, 0, NULL, 3, NULL));
}

static void write_epoch(swale_dir* dir, int epoch) {
  for (uint64_t number = 0; number < kKeys; ++number) {
    char key[8];
    char value[64];
    key_of(number, key);
    const size_t bytes = value_of(epoch, number, value);
    if (swale_dir_append(dir, key, sizeof key, value, bytes) != SWALE_OK) CHECK(!"append");
  }
  CHECK_OK(swale_dir_append(dir, "empty", 5, NULL, 0));
  set_attributes(dir, epoch);
  CHECK_OK(swale_dir_epoch_end(dir, epoch * 100, epoch * 0.5));
}

static void write_all(const char* path) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK(swale_job_rank(job) == 0 && swale_job_size(job) == 1);
  CHECK_OK(swale_dir_open(job, path, SWALE_CREATE | SWALE_EXCLUSIVE, "imd.memory=8M", &dir));
  for (int epoch = 0; epoch < kEpochs - 1; ++epoch) write_epoch(dir, epoch);
  CHECK_OK(swale_dir_close(dir));
  CHECK_OK(swale_job_close(job));
  /* A later job goes on. */
  CHECK_OK(swale_job_open(NULL, "", &job));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, path,
              swale_dir_open(job, path, SWALE_CREATE | SWALE_EXCLUSIVE, NULL, &dir));
  CHECK_OK(swale_dir_open(job, path, 0, NULL, &dir));
  write_epoch(dir, kEpochs - 1);
  /* What comes after the last epoch end is dropped, and said. */
  CHECK_OK(swale_dir_append(dir, "late", 4, "x", 1));
  CHECK_FAILS(SWALE_ABORTED, "1 record", swale_dir_close(dir));
  CHECK_OK(swale_job_close(job));
}

struct tally {
  uint64_t records;
  uint64_t wrong;
  uint64_t limit;
};

static int tally_record(void* context, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                        size_t value_bytes) {
  struct tally* tally = context;
  ++tally->records;
  if (key_bytes == 8) {
    uint64_t number;
    char expected[64];
    memcpy(&number, key, 8);
    const size_t bytes = value_of((int)epoch, number, expected);
    if (bytes != value_bytes || memcmp(expected, value, bytes) != 0) ++tally->wrong;
  } else if (value_bytes != 0) {
    ++tally->wrong;
  }
  return tally->records == tally->limit;
}

static void check_trajectory(swale_reader* reader, uint64_t number) {
  char key[8];
  swale_values* values = NULL;
  key_of(number, key);
  CHECK_OK(swale_reader_get(reader, key, sizeof key, SWALE_ALL_EPOCHS, &values));
  CHECK(swale_values_count(values) == kEpochs);
  for (size_t i = 0; i < swale_values_count(values); ++i) {
    char expected[64];
    int64_t epoch = -1;
    const void* value = NULL;
    size_t bytes = 0;
    CHECK_OK(swale_values_at(values, i, &epoch, &value, &bytes));
    CHECK(epoch == (int64_t)i && bytes == value_of((int)i, number, expected) &&
          memcmp(value, expected, bytes) == 0);
  }
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "index", swale_values_at(values, kEpochs, NULL, NULL, NULL));
  swale_values_free(values);
}

static void read_points(swale_reader* reader) {
  swale_epoch_info info;
  uint64_t records = 0;
  info.struct_bytes = sizeof info;
  CHECK(swale_reader_epoch_count(reader) == kEpochs);
  CHECK_OK(swale_reader_epoch_info(reader, 2, &info));
  CHECK(info.epoch == 2 && info.step == 200 && info.time == 1.0 && info.records == kKeys + 1);
  CHECK_OK(swale_reader_count(reader, SWALE_ALL_EPOCHS, &records));
  CHECK(records == kEpochs * (kKeys + 1));
  for (uint64_t number = 0; number < kKeys; number += 7) check_trajectory(reader, number);

  swale_values* values = NULL;
  CHECK_OK(swale_reader_get(reader, "empty", 5, 1, &values));
  CHECK(swale_values_count(values) == 1);
  size_t bytes = 1;
  CHECK_OK(swale_values_at(values, 0, NULL, NULL, &bytes));
  CHECK(bytes == 0);
  swale_values_free(values);
  values = NULL;
  CHECK_FAILS(SWALE_NOT_FOUND, "no value", swale_reader_get(reader, "absent", 6, SWALE_ALL_EPOCHS, &values));
  CHECK_FAILS(SWALE_NOT_FOUND, "no value", swale_reader_get(reader, "late", 4, SWALE_ALL_EPOCHS, &values));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch", swale_reader_get(reader, "empty", 5, kEpochs, &values));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "epoch -2", swale_reader_get(reader, "empty", 5, -2, &values));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch", swale_reader_epoch_info(reader, kEpochs, &info));
  CHECK(values == NULL);
}

static uint64_t counted(swale_reader* reader, const char* name) {
  swale_stats* stats = NULL;
  swale_stat stat;
  stat.struct_bytes = sizeof stat;
  stat.sum = 0;
  CHECK_OK(swale_reader_stats(reader, &stats));
  CHECK_OK(swale_stats_find(stats, name, &stat));
  swale_stats_free(stats);
  return stat.sum;
}

static void read_many(swale_reader* reader) {
  static char keys[kKeys][8];
  const void* pointers[kKeys + 1];
  size_t bytes[kKeys + 1];
  for (uint64_t number = 0; number < kKeys; ++number) {
    key_of(number, keys[number]);
    pointers[number] = keys[number];
    bytes[number] = 8;
  }
  pointers[kKeys] = "absent";
  bytes[kKeys] = 6;
  struct tally tally = {0, 0, 0};
  size_t found = 0;
  CHECK_OK(swale_reader_get_many(reader, pointers, bytes, kKeys + 1, SWALE_ALL_EPOCHS, tally_record, &tally,
                                 &found));
  CHECK(found == kKeys && tally.records == kKeys * kEpochs && tally.wrong == 0);
  CHECK_OK(swale_reader_get_many(reader, NULL, NULL, 0, 0, tally_record, &tally, &found));
  CHECK(found == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "keys",
              swale_reader_get_many(reader, NULL, bytes, 1, 0, tally_record, &tally, NULL));

  struct tally all = {0, 0, 0};
  CHECK_OK(swale_reader_scan(reader, SWALE_ALL_EPOCHS, tally_record, &all));
  CHECK(all.records == kEpochs * (kKeys + 1) && all.wrong == 0);
  struct tally divided = {0, 0, 0};
  for (uint32_t part = 0; part < 5; ++part) {
    CHECK_OK(swale_reader_scan_part(reader, SWALE_ALL_EPOCHS, part, 5, tally_record, &divided));
  }
  CHECK(divided.records == all.records && divided.wrong == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "part 5 of 5",
              swale_reader_scan_part(reader, 0, 5, 5, tally_record, &divided));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "part 0 of 0",
              swale_reader_scan_part(reader, 0, 0, 0, tally_record, &divided));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "fn\" is NULL", swale_reader_scan_part(reader, 0, 0, 1, NULL, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch",
              swale_reader_scan_part(reader, kEpochs, 0, 1, tally_record, &divided));
  CHECK(divided.records == all.records);
  const int64_t epochs[] = {1, SWALE_ALL_EPOCHS, kEpochs};
  uint64_t warmed = 0;
  CHECK_OK(swale_reader_warm(reader, epochs, 2, &warmed));
  CHECK(warmed > 0 && counted(reader, "cache.bytes") >= warmed);
  CHECK_OK(swale_reader_warm(reader, NULL, 0, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "epochs\" is NULL", swale_reader_warm(reader, NULL, 1, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "reader", swale_reader_warm(NULL, epochs, 1, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch", swale_reader_warm(reader, epochs, 3, NULL));
  struct tally some = {0, 0, 10};
  CHECK_OK(swale_reader_scan(reader, 1, tally_record, &some));
  CHECK(some.records == 10);

  CHECK(counted(reader, "queries") > 0 && counted(reader, "read.requests") > 0 &&
        counted(reader, "read.bytes") > 0);
  CHECK(counted(reader, "read.depth_max") >= 2 && counted(reader, "read.depth_max") <= 4);
}

static void subfiles(const char* path) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  swale_subfile* file = NULL;
  swale_reader* reader = NULL;
  char out[16];
  size_t bytes = 99;
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_OK(swale_dir_make(job, path, NULL));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, path, swale_dir_make(job, path, NULL));
  CHECK_OK(swale_dir_open(job, path, 0, NULL, &dir));
  for (int epoch = 0; epoch < 2; ++epoch) {
    CHECK_OK(swale_subfile_open_write(dir, "particle.7", &file));
    CHECK_OK(swale_subfile_write(file, "abc", 3));
    CHECK_OK(swale_subfile_write(file, epoch == 0 ? "de" : "fg", 2));
    CHECK_FAILS(SWALE_INVALID_ARGUMENT, "writing", swale_subfile_read(file, out, sizeof out, &bytes));
    CHECK_OK(swale_subfile_close(file));
    CHECK_OK(swale_dir_epoch_end(dir, epoch, 0));
  }
  /* The end in two calls, with the background at rest meanwhile. */
  CHECK_OK(swale_dir_append(dir, "overlap", 7, "1", 1));
  CHECK_OK(swale_dir_pause(dir));
  CHECK_OK(swale_dir_epoch_end_begin(dir, 2, 0));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "not waited for", swale_dir_epoch_end_begin(dir, 3, 0));
  CHECK_OK(swale_dir_append(dir, "overlap", 7, "2", 1));
  CHECK_OK(swale_dir_resume(dir));
  CHECK_OK(swale_dir_epoch_end_wait(dir));
  CHECK_OK(swale_dir_epoch_end(dir, 3, 0));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_epoch_end_begin(NULL, 0, 0));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_epoch_end_wait(NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_pause(NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_resume(NULL));

  CHECK_OK(swale_subfile_open_write(dir, "late", &file));
  CHECK_OK(swale_dir_close(dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "closed", swale_subfile_write(file, "x", 1));
  CHECK_OK(swale_subfile_close(file));
  CHECK_OK(swale_job_close(job));

  CHECK_OK(swale_reader_open(path, NULL, &reader));
  CHECK_OK(swale_subfile_open_read(reader, "particle.7", &file));
  CHECK_OK(swale_subfile_read(file, out, 4, &bytes));
  CHECK(bytes == 4 && memcmp(out, "abcd", 4) == 0);
  CHECK_OK(swale_subfile_read(file, out, sizeof out, &bytes));
  CHECK(bytes == 6 && memcmp(out, "eabcfg", 6) == 0);
  CHECK_OK(swale_subfile_read(file, out, sizeof out, &bytes));
  CHECK(bytes == 0);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "reading", swale_subfile_write(file, "x", 1));
  CHECK_OK(swale_subfile_close(file));
  CHECK_FAILS(SWALE_NOT_FOUND, "no value", swale_subfile_open_read(reader, "late", &file));
  swale_reader_close(reader);
}

/* Values of more than 16,384 bytes: whole, in a list with small ones, and as a file that is read piece by
 * piece. */
static void large_values(const char* path) {
  enum { kLarge = 200000 };
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  swale_subfile* file = NULL;
  swale_reader* reader = NULL;
  swale_values* values = NULL;
  static char large[kLarge];
  static char out[kLarge];
  for (size_t i = 0; i < sizeof large; ++i) large[i] = (char)(i * 2654435761u >> 13);
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_OK(swale_dir_open(job, path, SWALE_CREATE, "imd.memory=8M", &dir));
  CHECK_OK(swale_dir_append(dir, "k", 1, "small", 5));
  CHECK_OK(swale_dir_append(dir, "k", 1, large, sizeof large));
  CHECK_OK(swale_dir_append(dir, "k", 1, large, 16385));
  CHECK_OK(swale_dir_append(dir, "k", 1, "last", 4));
  CHECK_OK(swale_dir_epoch_end(dir, 0, 0));
  CHECK_OK(swale_dir_close(dir));
  CHECK_OK(swale_job_close(job));
  CHECK_OK(swale_reader_open(path, NULL, &reader));
  CHECK_OK(swale_reader_get(reader, "k", 1, 0, &values));
  const size_t expected[] = {5, sizeof large, 16385, 4};
  CHECK(swale_values_count(values) == 4);
  for (size_t i = 0; i < 4; ++i) {
    int64_t epoch = -1;
    const void* value = NULL;
    size_t bytes = 0;
    CHECK_OK(swale_values_at(values, i, &epoch, &value, &bytes));
    CHECK(bytes == expected[i] && (bytes < 16385 || memcmp(value, large, bytes) == 0));
  }
  swale_values_free(values);
  CHECK_OK(swale_subfile_open_read(reader, "k", &file));
  swale_reader_close(reader);
  size_t total = 0;
  size_t bytes = 1;
  while (bytes != 0 && total < 5 + sizeof large) { /* steps that fit no piece */
    const size_t left = 5 + sizeof large - total;
    CHECK_OK(swale_subfile_read(file, out, left < 40961 ? left : 40961, &bytes));
    const size_t head = total < 5 ? 5 - total : 0;
    CHECK(memcmp(out + head, large + (total + head - 5), bytes - head) == 0);
    total += bytes;
  }
  CHECK(total == 5 + sizeof large);
  CHECK_OK(swale_subfile_read(file, out, sizeof out, &bytes));
  CHECK(bytes == 16385 + 4 && memcmp(out + 16385, "last", 4) == 0);
  CHECK_OK(swale_subfile_close(file));
}

static void write_with_schema(swale_job* job, const char* path) {
  swale_dir* dir = NULL;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "unknown type",
              swale_dir_open(job, path, SWALE_CREATE, "imd.schema=x:f16", &dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "no field \"y\"",
              swale_dir_open(job, path, SWALE_CREATE, "imd.schema=x:f8,imd.extrema=y", &dir));
  CHECK_OK(swale_dir_make(job, path, "imd.schema=id:u4;x:f8:m;_:*,imd.extrema=x,imd.key=bytes"));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "cannot be changed",
              swale_dir_open(job, path, 0, "imd.schema=id:u4", &dir));
  CHECK_OK(swale_dir_open(job, path, 0, "imd.memory=8M", &dir));
  for (uint32_t id = 0; id < 100; ++id) {
    char value[12];
    const double x = id == 50 ? NAN : id * 0.25;
    memcpy(value, &id, 4);
    memcpy(value + 4, &x, 8);
    CHECK_OK(swale_dir_append(dir, &id, sizeof id, value, id == 51 ? 11 : 12));
  }
  CHECK_OK(swale_dir_epoch_end(dir, 0, 0));
  CHECK_OK(swale_dir_close(dir));
}

/* The compiler's padding is no part of a schema that does not name it: it was read as numbers. */
static void values_of_other_lengths(swale_job* job, const char* path) {
  struct particle {
    int32_t type;
    double energy;
  } particle;
  const char* const schemas[] = {"imd.memory=8M,imd.schema=type:i4;energy:f8,imd.extrema=energy",
                                 "imd.memory=8M,imd.schema=type:i4;_:4;energy:f8,imd.extrema=energy"};
  char folder[4096];
  memset(&particle, 0, sizeof particle);
  for (int padded = 0; padded < 2; ++padded) {
    swale_dir* dir = NULL;
    swale_reader* reader = NULL;
    swale_top* top = NULL;
    swale_top_record record;
    snprintf(folder, sizeof folder, "%s-%d", path, padded);
    CHECK_OK(swale_dir_open(job, folder, SWALE_CREATE, schemas[padded], &dir));
    for (uint64_t key = 0; key < 10; ++key) {
      particle.energy = (double)key;
      if (padded) {
        CHECK_OK(swale_dir_append(dir, &key, sizeof key, &particle, sizeof particle));
      } else {
        CHECK_FAILS(SWALE_INVALID_ARGUMENT,
                    "a value of 16 bytes, but the schema \"type:i4;energy:f8\" describes 12",
                    swale_dir_append(dir, &key, sizeof key, &particle, sizeof particle));
      }
    }
    CHECK_OK(swale_dir_epoch_end(dir, 0, 0)); /* a refused value changes nothing */
    CHECK_OK(swale_dir_close(dir));
    if (!padded) continue;
    record.struct_bytes = sizeof record;
    CHECK_OK(swale_reader_open(folder, NULL, &reader));
    CHECK_OK(swale_reader_top(reader, "energy", 0, 1, SWALE_TOP_LARGEST, &top));
    CHECK_OK(swale_top_at(top, 0, &record));
    CHECK(record.number == 9.0);
    swale_top_free(top);
    swale_reader_close(reader);
  }
}

static void top_records(const char* path) {
  swale_job* job = NULL;
  swale_reader* reader = NULL;
  swale_top* top = NULL;
  swale_top_record record;
  swale_top_stats stats;
  double x = 0;
  record.struct_bytes = sizeof record;
  stats.struct_bytes = sizeof stats;
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  write_with_schema(job, path);
  values_of_other_lengths(job, path);
  CHECK_OK(swale_job_close(job));
  CHECK_OK(swale_reader_open(path, NULL, &reader));
  CHECK(strcmp(swale_reader_key_type(reader), "bytes") == 0 && strcmp(swale_reader_key_type(NULL), "") == 0);
  CHECK(strcmp(swale_reader_schema(reader), "id:u4;x:f8:m;_:*") == 0 &&
        strcmp(swale_reader_schema(NULL), "") == 0);
  CHECK_OK(swale_reader_top(reader, "x", 0, 3, SWALE_TOP_LARGEST, &top));
  CHECK(swale_top_count(top) == 3 && swale_top_count(NULL) == 0);
  CHECK_OK(swale_top_at(top, 0, &record));
  CHECK(record.number == 99 * 0.25 && record.key_bytes == 4 && record.value_bytes == 12 &&
        record.field_bytes == 8);
  memcpy(&x, record.field, sizeof x);
  CHECK(x == record.number && (const char*)record.field == (const char*)record.value + 4);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "3 records", swale_top_at(top, 3, &record));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "record", swale_top_at(top, 0, NULL));
  CHECK_OK(swale_top_get_stats(top, &stats));
  CHECK(stats.nans == 1 && stats.absent == 1 && stats.partitions_scanned == 0 && stats.blocks_read >= 1);
  CHECK(stats.bytes_read > 4096 && stats.reads > 1);
  swale_top_free(top);
  CHECK_OK(swale_reader_top(reader, "id", 0, 200, SWALE_TOP_SMALLEST, &top));
  CHECK(swale_top_count(top) == 100);
  CHECK_OK(swale_top_get_stats(top, &stats));
  CHECK(stats.partitions_scanned == 1);
  swale_top_free(top);
  swale_top_free(NULL);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "the schema has id, x", swale_reader_top(reader, "y", 0, 1, 0, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "end 2", swale_reader_top(reader, "x", 0, 1, 2, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "one epoch",
              swale_reader_top(reader, "x", SWALE_ALL_EPOCHS, 1, 0, &top));
  CHECK_FAILS(SWALE_NOT_FOUND, "no epoch 1", swale_reader_top(reader, "x", 1, 1, 0, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "expected 1 to", swale_reader_top(reader, "x", 0, 0, 0, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "field", swale_reader_top(reader, NULL, 0, 1, 0, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "top", swale_reader_top(reader, "x", 0, 1, 0, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "reader", swale_reader_top(NULL, "x", 0, 1, 0, &top));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "top", swale_top_get_stats(NULL, &stats));
  swale_reader_close(reader);
}

/* Callers of other versions: an older one has shorter structs, a newer one has longer ones. */
static void struct_sizes(const char* path) {
  swale_reader* reader = NULL;
  struct {
    swale_epoch_info info;
    char newer[64];
  } call;
  CHECK_OK(swale_reader_open(path, NULL, &reader));
  memset(&call, 0x55, sizeof call);
  call.info.struct_bytes = sizeof call;
  CHECK_OK(swale_reader_epoch_info(reader, 2, &call.info));
  CHECK(call.info.struct_bytes == sizeof call.info && call.info.step == 200);
  for (size_t i = 0; i < sizeof call.newer; ++i) CHECK(call.newer[i] == 0x55);
  CHECK_OK(swale_reader_epoch_info(reader, 1, &call.info)); /* again, without setting it anew */
  CHECK(call.info.step == 100);
  call.info.struct_bytes = sizeof call.info - 1;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "struct_bytes", swale_reader_epoch_info(reader, 0, &call.info));
  CHECK(call.info.step == 100);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"stats\"", swale_reader_stats(reader, NULL));
  swale_reader_close(reader);
  const swale_comm unset = {0, 0, 1, NULL, NULL};
  swale_job* job = NULL;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "comm->struct_bytes", swale_job_open(&unset, NULL, &job));
}

static void mistakes(const char* root, const char* path) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  swale_dir* second = NULL;
  swale_subfile* file = NULL;
  swale_reader* reader = NULL;
  static char large[20000];
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "job", swale_job_open(NULL, NULL, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "job.colour", swale_job_open(NULL, "job.colour=red", &job));
  const swale_comm odd = {sizeof odd, 3, 2, NULL, NULL};
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "rank 3", swale_job_open(&odd, NULL, &job));
  CHECK(job == NULL && swale_job_rank(NULL) == -1 && swale_job_size(NULL) == -1);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "job", swale_dir_open(NULL, path, 0, NULL, &dir));

  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_dir_open(job, NULL, 0, NULL, &dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_open(job, path, 0, NULL, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_dir_open(job, path, 8, NULL, &dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_dir_open(job, path, SWALE_EXCLUSIVE, NULL, &dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "imd.ways", swale_dir_open(job, path, 0, "imd.ways=0", &dir));
  CHECK_FAILS(SWALE_NOT_FOUND, "none", swale_dir_open(job, "none/such", 0, NULL, &dir));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, root, swale_dir_open(job, root, SWALE_CREATE, NULL, &dir));
  CHECK(dir == NULL);

  CHECK_OK(swale_dir_open(job, path, 0, NULL, &dir));
  CHECK_FAILS(SWALE_BUSY, "swale.lock", swale_dir_open(job, path, 0, NULL, &second));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "key", swale_dir_append(dir, NULL, 1, "v", 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "value", swale_dir_append(dir, "k", 1, NULL, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "key of 0", swale_dir_append(dir, "", 0, "v", 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "256", swale_dir_append(dir, large, 256, "v", 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "1073741825",
              swale_dir_append(dir, "k", 1, large, (size_t)SWALE_VALUE_BYTES_MAX + 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_append(NULL, "k", 1, "v", 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "dir", swale_dir_epoch_end(NULL, 0, 0));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "name", swale_subfile_open_write(dir, NULL, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "name", swale_subfile_open_write(dir, "", &file));
  CHECK_OK(swale_dir_append(dir, large, 255, large, 16384));
  /* A step that is not greater than the last one is refused; the epoch stays open, and may be ended with
   * another. */
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "imd.resume_after", swale_dir_epoch_end(dir, -1, -1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "imd.steps=any", swale_dir_epoch_end_begin(dir, 200, 0));
  CHECK_OK(swale_dir_epoch_end_wait(dir));
  CHECK_OK(swale_dir_append(dir, "more", 4, "v", 1));
  CHECK_OK(swale_dir_epoch_end(dir, 201, -1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "has step 201", swale_dir_epoch_end(dir, 201, -1));
  CHECK_OK(swale_dir_close(dir));
  CHECK_OK(swale_dir_open(job, path, 0, "imd.steps=any", &dir));
  CHECK_OK(swale_dir_epoch_end(dir, -1, -1));
  CHECK_OK(swale_dir_close(dir));
  CHECK_OK(swale_dir_close(NULL));
  CHECK_OK(swale_job_close(job));
  CHECK_OK(swale_job_close(NULL));
  CHECK_OK(swale_subfile_close(NULL));

  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "path", swale_reader_open(NULL, NULL, &reader));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "reader", swale_reader_open(path, NULL, NULL));
  CHECK_FAILS(SWALE_NOT_FOUND, "none", swale_reader_open("none/such", NULL, &reader));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT,
              "swale_reader_open takes no option imd.ways: it is one of swale_dir_open",
              swale_reader_open(path, "imd.ways=1", &reader));
  CHECK(reader == NULL && swale_reader_epoch_count(NULL) == -1 && swale_values_count(NULL) == 0);
  swale_reader_close(NULL);
  swale_values_free(NULL);

  /* Handles in the wrong order: an error, and nothing crashes. */
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_OK(swale_dir_open(job, path, 0, NULL, &dir));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "still open", swale_job_close(job));
  CHECK_OK(swale_dir_close(dir));
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: c_api_test SCRATCH_DIRECTORY\n");
    return 2;
  }
  char path[1024];
  char papers[1024];
  char typed[1024];
  char large[1024];
  snprintf(large, sizeof large, "%s/large", argv[1]);
  snprintf(path, sizeof path, "%s/directory", argv[1]);
  snprintf(papers, sizeof papers, "%s/papers", argv[1]);
  snprintf(typed, sizeof typed, "%s/typed", argv[1]);
  CHECK(strcmp(swale_version(), "0.1.0") == 0);
  CHECK(strcmp(swale_code_name(SWALE_CORRUPTION), "corruption") == 0 && swale_code_name(-7) != NULL);
  CHECK(strcmp(swale_last_error(), "") == 0);
  write_all(path);
  swale_reader* reader = NULL;
  CHECK_OK(swale_reader_open(path, "imd.reads_in_flight=8", &reader));
  if (reader != NULL) {
    read_points(reader);
    read_attributes(reader);
    read_many(reader);
  }
  swale_reader_close(reader);
  struct_sizes(path);
  subfiles(papers);
  top_records(typed);
  large_values(large);
  mistakes(argv[1], path);
  printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
