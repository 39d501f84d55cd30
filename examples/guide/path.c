/* path DIR ID: where a particle was. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swale/swale.h>

struct particle {
  double x, y;
  double energy;
};

int main(int argc, char** argv) {
  swale_reader* reader;
  swale_values* values;
  if (argc != 3) return 2;
  const uint64_t id = strtoull(argv[2], NULL, 10);
  if (swale_reader_open(argv[1], NULL, &reader) != SWALE_OK ||
      swale_reader_get(reader, &id, sizeof id, SWALE_ALL_EPOCHS, &values) != SWALE_OK) {
    fprintf(stderr, "path: %s\n", swale_last_error());
    return 1;
  }
  for (size_t i = 0; i < swale_values_count(values); i++) {
    int64_t epoch;
    const void* bytes;
    size_t length;
    swale_epoch_info info;
    info.struct_bytes = sizeof info;
    struct particle p;
    swale_values_at(values, i, &epoch, &bytes, &length);
    swale_reader_epoch_info(reader, epoch, &info);
    if (length != sizeof p) return 1;
    memcpy(&p, bytes, sizeof p); /* a value has no alignment */
    printf("step %3lld  time %.1f  x %7.4f  y %7.4f\n", (long long)info.step, info.time, p.x, p.y);
  }
  swale_values_free(values);
  swale_reader_close(reader);
  return 0;
}
