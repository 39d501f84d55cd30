/* failing_calls.so, preloaded into a writer: its n-th call that writes or syncs storage goes wrong, be it
 * a call of its own or one that it hands to an io_uring.
 *   FAULT_AT      n, from 1 (0 or unset: none); calls are counted over all threads
 *   FAULT_RANK    only in the process of this SWALE_JOB_RANK; unset: in all
 *   FAULT_KIND    eio | enospc | eintr (not in a ring) | short (a write of half the bytes)
 *   FAULT_COUNT   FAULT_COUNT.RANK is given the number of calls at exit
 * Only files below the folder FAULT_UNDER count: descriptors of pipes, sockets and shared memory are left
 * alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int is_ours(int descriptor) {
  char link[64], path[4096];
  const char* under = getenv("FAULT_UNDER");
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (under == NULL || length < 0) return 0;
  path[length] = '\0';
  return strncmp(path, under, strlen(under)) == 0;
}

/* The errno to fail with, -1 for a short write, 0 for nothing. */
static int fault(int descriptor) {
  const char* at = getenv("FAULT_AT");
  const char* kind = getenv("FAULT_KIND");
  const char* only = getenv("FAULT_RANK");
  const char* rank = getenv("SWALE_JOB_RANK");
  if (!is_ours(descriptor)) return 0;
  if (only != NULL && (rank == NULL || strcmp(only, rank) != 0)) return 0;
  const long number = atomic_fetch_add(&calls, 1) + 1;
  if (at == NULL || kind == NULL || number != atol(at)) return 0;
  if (strcmp(kind, "short") == 0) return -1;
  return strcmp(kind, "eio") == 0 ? EIO : strcmp(kind, "enospc") == 0 ? ENOSPC : EINTR;
}

static int failed(int what) {
  errno = what;
  return -1;
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  static ssize_t (*real)(int, const void*, size_t, off64_t);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "pwrite64");
  const int what = fault(descriptor);
  if (what > 0) return failed(what);
  /* Half in whole blocks, as the kernel would cut a direct write. */
  if (what < 0 && bytes > 1) bytes = bytes >= 8192 ? bytes / 2 / 4096 * 4096 : bytes / 2;
  return real(descriptor, data, bytes, offset);
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return pwrite64(descriptor, data, bytes, offset);
}

static int sync_call(const char* name, int descriptor) {
  int (*real)(int);
  *(void**)&real = dlsym(RTLD_NEXT, name);
  const int what = fault(descriptor);
  return what > 0 ? failed(what) : real(descriptor);
}

int fsync(int descriptor) { return sync_call("fsync", descriptor); }
int fdatasync(int descriptor) { return sync_call("fdatasync", descriptor); }

int ftruncate64(int descriptor, off64_t size) {
  int (*real)(int, off64_t);
  *(void**)&real = dlsym(RTLD_NEXT, "ftruncate64");
  const int what = fault(descriptor);
  return what > 0 ? failed(what) : real(descriptor, size);
}

/* An operation of the ring becomes one that the kernel itself refuses so: a full device, or an address
 * that is not there. Returns the descriptor to close once the kernel has the operation, or -1. */
static int change_operation(struct io_uring_sqe* entry, int what) {
  static const char byte;
  const uint64_t tag = entry->user_data;
  if (what < 0) {
    const unsigned half = entry->len / 2;
    if (entry->opcode == IORING_OP_WRITE && half > 0) entry->len = half >= 4096 ? half / 4096 * 4096 : half;
    return -1;
  }
  /* The flags of a sync mean something else to a write, and new versions of liburing leave them there. */
  memset(entry, 0, sizeof *entry);
  const char* refuses = what == ENOSPC ? "/dev/full" : "/proc/self/mem";
  io_uring_prep_write(entry, open(refuses, O_WRONLY | O_CLOEXEC), &byte, 1, 0);
  entry->user_data = tag;
  return entry->fd;
}

int io_uring_submit_and_wait(struct io_uring* ring, unsigned wait) {
  static int (*real)(struct io_uring*, unsigned);
  if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
  int refusing = -1;
  for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; ++at) {
    struct io_uring_sqe* entry = &ring->sq.sqes[at & *ring->sq.kring_mask];
    if (entry->opcode != IORING_OP_WRITE && entry->opcode != IORING_OP_FSYNC) continue;
    const int what = fault(entry->fd);
    if (what != 0) refusing = change_operation(entry, what);
  }
  const int result = real(ring, wait);
  if (refusing >= 0) close(refusing);
  return result;
}

int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("FAULT_COUNT");
  const char* rank = getenv("SWALE_JOB_RANK");
  char own[4096];
  if (path == NULL) return;
  snprintf(own, sizeof own, "%s.%s", path, rank == NULL ? "0" : rank);
  FILE* file = fopen(own, "w");
  if (file == NULL) return;
  fprintf(file, "%ld\n", atomic_load(&calls));
  fclose(file);
}
