/* Another preload library, as tools have that count calls: it wraps some of the functions that
 * libswale_preload.so takes, and when the program ends it writes their number to the file that COUNTED_CALLS
 * names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_long calls;

ssize_t write(int fd, const void* data, size_t bytes) {
  ssize_t (*next)(int, const void*, size_t) = dlsym(RTLD_NEXT, "write");
  atomic_fetch_add(&calls, 1);
  return next(fd, data, bytes);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  ssize_t (*next)(int, const void*, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
  atomic_fetch_add(&calls, 1);
  return next(fd, data, bytes, offset);
}

int close(int fd) {
  int (*next)(int) = dlsym(RTLD_NEXT, "close");
  atomic_fetch_add(&calls, 1);
  return next(fd);
}

__attribute__((destructor)) static void tell(void) {
  const char* const path = getenv("COUNTED_CALLS");
  FILE* const file = path == NULL ? NULL : fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "%ld\n", atomic_load(&calls));
  fclose(file);
}
