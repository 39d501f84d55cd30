#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale_tier.h>

static void must(int code) {
  if (code == SWALE_OK) return;
  fprintf(stderr, "buffered: %s\n", swale_last_error());
  exit(1);
}

int main(void) {
  static char block[65536];
  swale_tier* tier;
  swale_tier_file* file;
  swale_stats* stats;
  swale_stat stat = {sizeof stat};
  must(swale_tier_open("results", "fast", SWALE_CREATE, "tier.size=64M,tier.dirty_age_s=60", &tier));
  must(swale_tier_file_open(tier, "field", SWALE_CREATE, 0644, &file));
  memset(block, 'x', sizeof block);
  for (int i = 0; i < 100; ++i) /* in any order: the log takes what the disk would seek for */
    must(swale_tier_write(file, (uint64_t)(i * 37 % 100) * sizeof block, block, sizeof block));
  must(swale_tier_sync(file)); /* survives a power cut from here on */
  must(swale_tier_file_close(file));
  must(swale_tier_drain(tier)); /* results/field is complete */
  must(swale_tier_stats(tier, &stats));
  must(swale_stats_find(stats, "write.bytes", &stat));
  printf("%llu bytes\n", (unsigned long long)stat.sum);
  swale_stats_free(stats);
  must(swale_tier_close(tier));
  return 0;
}
