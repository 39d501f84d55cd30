/* make_directory PATH [FIRST EPOCHS [KEYS | large | attributes]]: a small massive directory of known content,
 * for the tests of the `swale` command.
 *   3 epochs (steps 0, 10, 20; times 0, 0.5, 1), or EPOCHS from number FIRST on; in each, 20 keys u64:0..19
 *   (or KEYS) with the 8-byte value epoch * 100 + key, "name" with two values "first N" and "second N", and
 *   "empty" with an empty value in epoch 1 only
 * The schema says that values are a number, u8; of "first N" and of the empty value it is absent.
 * With `large`, every rank also appends to "large R", R its rank: 16385 + R bytes, byte i of which is the
 * lower part of epoch + R + i / 64 (so the number of all of them is one of the records), and behind it
 * "after". With `attributes`, the directory is given {"units":"lj"} in epoch 0, and every even epoch N
 * {"box":[N,1,1]}. Started as one of several ranks, it writes its share of the same content. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swale/swale.h"

static int fails(int code) {
  if (code != SWALE_OK)
    fprintf(stderr, "make_directory: %s: %s\n", swale_code_name(code), swale_last_error());
  return code != SWALE_OK;
}

static int write_large(swale_job* job, swale_dir* dir, int epoch) {
  static char value[16385 + 1024];
  char key[32];
  const int rank = swale_job_rank(job);
  const size_t bytes = 16385 + (size_t)rank;
  for (size_t i = 0; i < bytes; ++i) value[i] = (char)((size_t)epoch + (size_t)rank + i / 64);
  snprintf(key, sizeof key, "large %d", rank);
  return fails(swale_dir_append(dir, key, strlen(key), value, bytes)) ||
         fails(swale_dir_append(dir, key, strlen(key), "after", 5));
}

static int set_attributes(swale_dir* dir, int epoch) {
  char json[32];
  snprintf(json, sizeof json, "{\"box\":[%d,1,1]}", epoch);
  return (epoch == 0 &&
          fails(swale_dir_set_attributes(dir, SWALE_DESCRIBED_DIRECTORY, "{\"units\":\"lj\"}"))) ||
         (epoch % 2 == 0 && fails(swale_dir_set_attributes(dir, SWALE_DESCRIBED_EPOCH, json)));
}

static int write_epoch(swale_job* job, swale_dir* dir, int epoch, uint64_t keys, int large) {
  char text[32];
  const uint64_t ranks = (uint64_t)swale_job_size(job);
  for (uint64_t key = (uint64_t)swale_job_rank(job); key < keys; key += ranks) {
    const uint64_t value = (uint64_t)epoch * 100 + key;
    if (fails(swale_dir_append(dir, &key, sizeof key, &value, sizeof value))) return 1;
  }
  if (swale_job_rank(job) == 0) {
    snprintf(text, sizeof text, "first %d", epoch);
    if (fails(swale_dir_append(dir, "name", 4, text, strlen(text)))) return 1;
    snprintf(text, sizeof text, "second %d", epoch);
    if (fails(swale_dir_append(dir, "name", 4, text, strlen(text)))) return 1;
    if (epoch == 1 && fails(swale_dir_append(dir, "empty", 5, "", 0))) return 1;
  }
  if (large && write_large(job, dir, epoch)) return 1;
  return fails(swale_dir_epoch_end(dir, epoch * 10, epoch * 0.5));
}

int main(int argc, char** argv) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  const int first = argc >= 4 ? atoi(argv[2]) : 0;
  const int end = first + (argc >= 4 ? atoi(argv[3]) : 3);
  const int large = argc == 5 && strcmp(argv[4], "large") == 0;
  const int attributes = argc == 5 && strcmp(argv[4], "attributes") == 0;
  const int keys = argc == 5 && !large && !attributes ? atoi(argv[4]) : 20;
  if ((argc != 2 && argc != 4 && argc != 5) || keys <= 0) {
    fprintf(stderr, "usage: make_directory PATH [FIRST EPOCHS [KEYS | large | attributes]]\n");
    return 2;
  }
  if (fails(swale_job_open(NULL, NULL, &job))) return 1;
  if (fails(swale_dir_open(job, argv[1], SWALE_CREATE,
                           "imd.memory=16M,imd.schema=number:u8:apples;_:*,imd.extrema=number", &dir)))
    return 1;
  for (int epoch = first; epoch < end; ++epoch) {
    if (attributes && set_attributes(dir, epoch)) return 1;
    if (write_epoch(job, dir, epoch, (uint64_t)keys, large)) return 1;
  }
  return fails(swale_dir_close(dir)) || fails(swale_job_close(job));
}
