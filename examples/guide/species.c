/* species DIR [read]: particles of three species, each species in a partition of its own. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <swale/swale.h>

struct key {
  char species; /* 0, 1, 2 */
  char id[8];
};

static uint32_t partition_of(void* context, const void* key, size_t key_bytes, uint32_t partitions) {
  (void)context;
  return key_bytes == sizeof(struct key) ? (uint32_t)((const struct key*)key)->species % partitions : 0;
}

static int count(void* context, int64_t epoch, const void* key, size_t key_bytes, const void* value,
                 size_t value_bytes) {
  (void)epoch, (void)key_bytes, (void)value, (void)value_bytes;
  ((uint64_t*)context)[(int)((const struct key*)key)->species]++;
  return 0;
}

static int failed(void) {
  fprintf(stderr, "species: %s\n", swale_last_error());
  return 1;
}

static int write_particles(const char* path) {
  swale_job* job;
  swale_dir* dir;
  if (swale_job_open(NULL, NULL, &job) != SWALE_OK) return failed(); /* rank and size: from mpirun */
  if (swale_dir_open_partitioned(job, path, SWALE_CREATE, "imd.partitioner=species-1", partition_of, NULL,
                                 &dir) != SWALE_OK)
    return failed();
  for (uint64_t id = (uint64_t)swale_job_rank(job); id < 3000; id += (uint64_t)swale_job_size(job)) {
    struct key key = {(char)(id % 3), {0}};
    memcpy(key.id, &id, sizeof id);
    if (swale_dir_append(dir, &key, sizeof key, "value", 5) != SWALE_OK) return failed();
  }
  if (swale_dir_epoch_end(dir, 0, 0.0) != SWALE_OK || swale_dir_close(dir) != SWALE_OK) return failed();
  return swale_job_close(job) == SWALE_OK ? 0 : failed();
}

static int read_particles(const char* path) {
  swale_reader* reader;
  uint64_t species[3] = {0, 0, 0};
  if (swale_reader_open(path, NULL, &reader) != SWALE_OK) return failed();
  if (swale_reader_set_partitioner(reader, "species-1", partition_of, NULL) != SWALE_OK) return failed();
  /* Three ranks wrote, so part 1 of 3 is what rank 1 stored. */
  if (swale_reader_scan_part(reader, 0, 1, 3, count, species) != SWALE_OK) return failed();
  printf("partition 1 has %d, %d and %d of the species\n", (int)species[0], (int)species[1], (int)species[2]);
  swale_reader_close(reader);
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return argc > 2 ? read_particles(argv[1]) : write_particles(argv[1]);
}
