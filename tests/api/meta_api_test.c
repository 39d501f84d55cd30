/* The C interface of the metadata store, from plain C11: one rank makes a store, puts, asks, scans,
 * truncates, seals, removes and relocates; then every kind of mistake; then a second job finds what the
 * first one left. The store stays behind for meta_command_test.py. Usage: meta_api_test STORE (which does
 * not exist yet) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "swale/swale_meta.h"

enum { kSegments = 100, kBytes = 1000, kStride = 4000 };

static swale_meta_segment segment(uint64_t number, uint32_t log) {
  const swale_meta_segment made = {number * kStride, kBytes, number * kBytes, log, 0};
  return made;
}

static uint64_t size_of(swale_meta* store, const char* name) {
  swale_attributes attributes;
  attributes.struct_bytes = sizeof attributes;
  CHECK_OK(swale_meta_stat(store, name, &attributes));
  return attributes.size;
}

/* The log that has the first byte of segment `number`, or -1. */
static int64_t log_of(swale_meta_file* file, uint64_t number) {
  const swale_meta_range range = {number * kStride, kBytes};
  swale_meta_found* found = NULL;
  const swale_meta_segment* segments = NULL;
  size_t count = 0;
  CHECK_OK(swale_meta_get(file, &range, 1, &found));
  CHECK_OK(swale_meta_found_at(found, 0, &segments, &count));
  const int64_t log = count == 0 ? -1 : (int64_t)segments[0].log;
  if (count != 0) CHECK(segments[0].offset == range.offset);
  swale_meta_found_free(found);
  return log;
}

/* Some of the segments, none of which the border of a range cuts, asked for as a run: all in log 7, but
 * number 10. */
static void ask_for_runs(swale_meta_file* file) {
  enum { kAsked = 48 };
  swale_meta_run query;
  memset(&query, 0, sizeof query);
  query.length = kBytes;
  query.levels = 1;
  query.level[0].count = kAsked;
  query.level[0].stride = kStride;
  swale_meta_found_runs* found = NULL;
  const swale_meta_run* runs = NULL;
  size_t count = 0;
  uint64_t blocks[2] = {0, 0};
  CHECK_OK(swale_meta_get_runs(file, &query, 1, &found));
  CHECK_OK(swale_meta_found_runs_at(found, 0, &runs, &count));
  for (size_t i = 0; i < count; ++i) {
    CHECK(runs[i].length == kBytes && runs[i].levels <= 1 && (runs[i].log == 7 || runs[i].log == 8));
    blocks[runs[i].log == 8] += runs[i].levels == 0 ? 1 : runs[i].level[0].count;
    if (runs[i].levels == 1) CHECK(runs[i].level[0].address_stride * 4 == runs[i].level[0].stride);
    CHECK(runs[i].address * 4 == runs[i].offset);
  }
  CHECK(blocks[0] == kAsked - 1 && blocks[1] == 1);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "run 1", swale_meta_found_runs_at(found, 1, &runs, &count));
  swale_meta_found_runs_free(found);
  swale_meta_found_runs_free(NULL);
  query.level[0].stride = kBytes - 1;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "overlaps itself", swale_meta_get_runs(file, &query, 1, &found));
  query.levels = SWALE_META_LEVELS + 1;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "levels", swale_meta_get_runs(file, &query, 1, &found));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "queries", swale_meta_get_runs(file, NULL, 1, &found));
}

static int count_segment(void* context, const swale_meta_segment* each) {
  uint64_t* counts = context;
  ++counts[0];
  counts[1] += each->length;
  return counts[0] == counts[2];
}

static void write_files(swale_meta* store) {
  swale_meta_file* file = NULL;
  CHECK_OK(swale_meta_file_open(store, "data", SWALE_CREATE | SWALE_EXCLUSIVE, 0640, &file));
  swale_meta_segment all[kSegments];
  for (uint64_t i = 0; i < kSegments; ++i) all[i] = segment(i, 7);
  CHECK_OK(swale_meta_put(file, all, kSegments));
  CHECK_OK(swale_meta_put(file, NULL, 0));
  const swale_meta_segment later = segment(10, 8);
  CHECK_OK(swale_meta_put(file, &later, 1));
  CHECK(log_of(file, 9) == 7 && log_of(file, 10) == 8 && log_of(file, kSegments) == -1);
  ask_for_runs(file);
  CHECK_OK(swale_meta_file_close(file));
  CHECK(size_of(store, "data") == (kSegments - 1) * kStride + kBytes);

  CHECK_OK(swale_meta_file_open(store, "data", 0, 0, &file));
  uint64_t counts[3] = {0, 0, 0}, some[3] = {0, 0, 5};
  CHECK_OK(swale_meta_scan(file, 0, count_segment, counts));
  CHECK(counts[0] == kSegments && counts[1] == (uint64_t)kSegments * kBytes);
  swale_meta_scan(file, 0, count_segment, some);
  CHECK(some[0] == 5);
  CHECK_OK(swale_meta_truncate(file, 50 * kStride));
  CHECK(log_of(file, 49) == 7 && log_of(file, 50) == -1 && size_of(store, "data") == 50 * kStride);
  CHECK_OK(swale_meta_relocate(store, 8, 0, 1000000, 9, 500));
  CHECK(log_of(file, 10) == 9);
  CHECK_OK(swale_meta_file_close(file));

  CHECK_OK(swale_meta_file_open(store, "sealed", SWALE_CREATE, 0600, &file));
  CHECK_OK(swale_meta_put(file, all, kSegments));
  CHECK_OK(swale_meta_file_close(file));
  CHECK_OK(swale_meta_file_open(store, "sealed", 0, 0, &file));
  CHECK_OK(swale_meta_seal(file));
  CHECK(log_of(file, 42) == 7);
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "sealed", swale_meta_put(file, all, 1));
  CHECK_OK(swale_meta_file_close(file));

  CHECK_OK(swale_meta_file_open(store, "removed", SWALE_CREATE | SWALE_EXCLUSIVE, 0600, &file));
  CHECK_OK(swale_meta_file_close(file));
  CHECK_OK(swale_meta_remove(store, "removed"));
}

static void make_mistakes(swale_meta* store) {
  swale_meta_file* file = NULL;
  swale_meta_found* found = NULL;
  swale_attributes attributes;
  CHECK_FAILS(SWALE_ALREADY_EXISTS, "data",
              swale_meta_file_open(store, "data", SWALE_CREATE | SWALE_EXCLUSIVE, 0600, &file));
  CHECK_FAILS(SWALE_NOT_FOUND, "removed", swale_meta_file_open(store, "removed", 0, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_meta_file_open(store, "x", SWALE_EXCLUSIVE, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "name", swale_meta_file_open(store, NULL, 0, 0, &file));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "meta", swale_meta_file_open(NULL, "x", 0, 0, &file));
  attributes.struct_bytes = 0;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "struct_bytes", swale_meta_stat(store, "data", &attributes));
  CHECK_OK(swale_meta_file_open(store, "data", 0, 0, &file));
  swale_meta_segment wrong = segment(1, 1);
  wrong.length = 0;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "0 bytes", swale_meta_put(file, &wrong, 1));
  wrong.length = UINT64_MAX;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "2^63", swale_meta_put(file, &wrong, 1));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "segments", swale_meta_put(file, NULL, 1));
  const swale_meta_range range = {1, 0};
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "0 bytes", swale_meta_get(file, &range, 1, &found));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "fn", swale_meta_scan(file, 0, NULL, NULL));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "ascending", swale_meta_relocate(store, 1, 5, 4, 2, 0));
  CHECK_OK(swale_meta_file_close(file));
  CHECK_OK(swale_meta_file_close(NULL));
  swale_meta_found_free(NULL);
  swale_stats* stats = NULL;
  swale_stat stat;
  stat.struct_bytes = sizeof stat;
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "\"stats\"", swale_meta_stats(store, NULL));
  CHECK_OK(swale_meta_stats(store, &stats));
  CHECK(swale_stats_ranks(stats) == 1 &&
        strstr(swale_stats_json(stats), "\"put.requests\":{\"unit\":\"\",") != NULL);
  CHECK_OK(swale_stats_find(stats, "put.requests", &stat));
  CHECK(stat.sum >= 3 && stat.min_rank == 0 && strlen(stat.help) > 3);
  CHECK_OK(swale_stats_find(stats, "failed", &stat));
  CHECK(stat.sum == 0);
  swale_stats_free(stats);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  swale_job* job = NULL;
  swale_meta* store = NULL;
  swale_meta_file* file = NULL;
  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "meta.rang",
              swale_meta_open(job, argv[1], SWALE_CREATE, "meta.rang=64K", &store));
  CHECK_FAILS(SWALE_NOT_FOUND, "is the path right", swale_meta_open(job, argv[1], 0, NULL, &store));
  CHECK_FAILS(SWALE_NOT_FOUND, argv[1], swale_meta_open(job, argv[1], SWALE_READ_ONLY, NULL, &store));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags", swale_meta_open(job, argv[1], SWALE_EXCLUSIVE, NULL, &store));
  CHECK_FAILS(SWALE_INVALID_ARGUMENT, "flags",
              swale_meta_open(job, argv[1], SWALE_CREATE | SWALE_READ_ONLY, NULL, &store));
  CHECK_OK(swale_meta_open(job, argv[1], SWALE_CREATE | SWALE_EXCLUSIVE, "meta.range=64K", &store));
  if (store == NULL) return 1;
  write_files(store);
  make_mistakes(store);
  CHECK_OK(swale_meta_close(store));
  CHECK_OK(swale_job_close(job));

  CHECK_OK(swale_job_open(NULL, NULL, &job));
  CHECK_FAILS(SWALE_ALREADY_EXISTS, "already",
              swale_meta_open(job, argv[1], SWALE_CREATE | SWALE_EXCLUSIVE, NULL, &store));
  CHECK_OK(swale_meta_open(job, argv[1], SWALE_READ_ONLY, NULL, &store));
  CHECK_OK(swale_meta_file_open(store, "data", 0, 0, &file));
  CHECK(log_of(file, 10) == 9 && log_of(file, 49) == 7 && log_of(file, 50) == -1);
  CHECK_OK(swale_meta_file_close(file));
  CHECK_OK(swale_meta_close(store));
  CHECK_OK(swale_job_close(job));
  printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
