/* make_particles PATH [PARTICLES]: the massive directory of the examples in manuals (out/particles), with
 * a schema.
 *   4 epochs (steps 0, 100, 200, 300; times 0, 0.5, ...); in each, PARTICLES (1,000) keys u64:0.. with values
 *   of 36 bytes
 *     id u8 = n; position f4x3 = n, epoch, 0.5; velocity f4x3 = -n, 2 n, n % 10; energy f4 = n + epoch / 4
 *   of which energy is NaN for n = 13, and the texts "atom-17" and "-odd-key-with-a-dash" as keys with values
 *   "text E", which are too short for any field.
 * Started as one of several ranks, it writes its share of the same content. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swale/swale.h"

#define EPOCHS 4

static int fails(int code) {
  if (code != SWALE_OK)
    fprintf(stderr, "make_particles: %s: %s\n", swale_code_name(code), swale_last_error());
  return code != SWALE_OK;
}

static int write_epoch(swale_job* job, swale_dir* dir, int epoch, uint64_t particles) {
  char value[36];
  const uint64_t ranks = (uint64_t)swale_job_size(job);
  for (uint64_t n = (uint64_t)swale_job_rank(job); n < particles; n += ranks) {
    const float numbers[7] = {(float)n,
                              (float)epoch,
                              0.5F,
                              -(float)n,
                              2 * (float)n,
                              (float)(n % 10),
                              n == 13 ? NAN : (float)n + 0.25F * (float)epoch};
    memcpy(value, &n, sizeof n);
    memcpy(value + sizeof n, numbers, sizeof numbers);
    if (fails(swale_dir_append(dir, &n, sizeof n, value, sizeof value))) return 1;
  }
  if (swale_job_rank(job) == 0) {
    const char* const names[] = {"atom-17", "-odd-key-with-a-dash"};
    const int bytes = snprintf(value, sizeof value, "text %d", epoch);
    for (int i = 0; i < 2; ++i) {
      if (fails(swale_dir_append(dir, names[i], strlen(names[i]), value, (size_t)bytes))) return 1;
    }
  }
  return fails(swale_dir_epoch_end(dir, epoch * 100, epoch * 0.5));
}

int main(int argc, char** argv) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: make_particles PATH [PARTICLES]\n");
    return 2;
  }
  const uint64_t particles = argc == 3 ? strtoull(argv[2], NULL, 10) : 1000;
  if (fails(swale_job_open(NULL, NULL, &job))) return 1;
  if (fails(swale_dir_open(job, argv[1], SWALE_CREATE,
                           "imd.memory=8M,imd.schema=id:u8;position:f4x3:m;velocity:f4x3:m/s;"
                           "energy:f4:J;_:*,imd.extrema=energy",
                           &dir)))
    return 1;
  for (int epoch = 0; epoch < EPOCHS; ++epoch) {
    if (write_epoch(job, dir, epoch, particles)) return 1;
  }
  return fails(swale_dir_close(dir)) || fails(swale_job_close(job));
}
