/* writes DIR: two epochs of a hundred keys; then prints which of Swale's files this process has mapped. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <swale/swale.h>
#include <swale/swale_meta.h>

static int failed(const char* what) {
  fprintf(stderr, "writes: %s: %s\n", what, swale_last_error());
  return 1;
}

static void show_loaded(void) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    const char* path = strchr(line, '/');
    if (path != NULL && strstr(path, "libswale") != NULL && strstr(line, "r-xp") != NULL)
      printf("loaded %s", path);
  }
  if (maps != NULL) fclose(maps);
}

int main(int argc, char** argv) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  if (argc != 2) return 2;
  if (swale_job_open(NULL, NULL, &job) != SWALE_OK) return failed("swale_job_open");
  swale_meta_found_free(NULL); /* the metadata store is in the same library */
  if (swale_dir_open(job, argv[1], SWALE_CREATE, "imd.schema=square:f8,imd.extrema=square", &dir) != SWALE_OK)
    return failed("swale_dir_open");
  for (int64_t epoch = 0; epoch < 2; epoch++) {
    for (int64_t key = swale_job_rank(job); key < 100; key += swale_job_size(job)) {
      const double square = (double)(key * key + epoch);
      if (swale_dir_append(dir, &key, sizeof key, &square, sizeof square) != SWALE_OK)
        return failed("append");
    }
    if (swale_dir_set_attributes(dir, SWALE_DESCRIBED_DIRECTORY, "{\"units\":\"lj\"}") != SWALE_OK ||
        swale_dir_set_attributes(dir, SWALE_DESCRIBED_EPOCH, "{\"box\":[1,2,3]}") != SWALE_OK)
      return failed("swale_dir_set_attributes");
    if (swale_dir_epoch_end(dir, 10 * epoch, 0.5 * (double)epoch) != SWALE_OK)
      return failed("swale_dir_epoch_end");
  }
  if (swale_dir_close(dir) != SWALE_OK) return failed("swale_dir_close");
  if (swale_job_rank(job) == 0) show_loaded();
  if (swale_job_close(job) != SWALE_OK) return failed("swale_job_close");
  return 0;
}
