/* handler_steps DIRECTORY [outside]: a signal handler writes to the file that the thread is writing, until
 * enough signals came inside a write. What the file has goes to standard output: it must be the same in a
 * plain directory, and in a job's tree with libswale_preload.so. SIGNALS_INSIDE: a file for "INSIDE of ALL
 * signals".
 *
 * Inside: the thread was in a call of write, and, where the library is loaded, in the library's own code.
 * outside: signals wait for the end of each write. This must be noticed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { INSIDE = 20, SIGNALS = 100, RECORD = 3000, RECORDS = 4000, ROUNDS = 1000, ROUNDS_OUTSIDE = 5 };

static int file;
static uintptr_t library_begin, library_end;
static volatile sig_atomic_t writing, handled, inside, all;
static char data[60000];

static void need(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static int note_library(struct dl_phdr_info* info, size_t size, void* nothing) {
  (void)size, (void)nothing;
  if (strstr(info->dlpi_name, "libswale_preload") == NULL) return 0;
  library_begin = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (begin < library_begin) library_begin = begin;
    if (begin + part->p_memsz > library_end) library_end = begin + part->p_memsz;
  }
  return 1;
}

static uintptr_t place_in(const ucontext_t* context) {
#if defined(__x86_64__)
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
  return (uintptr_t)context->uc_mcontext.pc;
#endif
}

static void handle(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const int kept = errno;
  const uintptr_t at = place_in(context);
  if (write(file, "H", 1) == 1) ++handled;
  ++all;
  if (writing && (library_end == 0 || (at >= library_begin && at < library_end))) ++inside;
  errno = kept;
}

static void set_timer(int micros) {
  const struct itimerval often = {{0, micros}, {0, micros}};
  need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
}

/* Whether the file has all that was written, and the offset is its end. */
static int is_whole(long records) {
  struct stat found;
  long counts[256] = {0};
  ssize_t got;
  need(fstat(file, &found) == 0, "fstat");
  const int size = found.st_size == records * RECORD + handled;
  const int offset = lseek(file, 0, SEEK_CUR) == found.st_size;
  need(lseek(file, 0, SEEK_SET) == 0, "lseek");
  while ((got = read(file, data, sizeof(data))) > 0)
    for (ssize_t i = 0; i < got; ++i) ++counts[(unsigned char)data[i]];
  return size && offset && counts['w'] == records * RECORD && counts['H'] == handled;
}

static int round_of_writes(const sigset_t* waiting) {
  need(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0, "ftruncate");
  memset(data, 'w', RECORD);
  handled = 0;
  set_timer(500);
  for (int i = 0; i < RECORDS; ++i) {
    if (waiting != NULL) sigprocmask(SIG_BLOCK, waiting, NULL);
    writing = 1;
    const ssize_t done = write(file, data, RECORD);
    writing = 0;
    if (waiting != NULL) sigprocmask(SIG_UNBLOCK, waiting, NULL);
    need(done == RECORD, "write");
  }
  set_timer(0);
  return is_whole(RECORDS);
}

int main(int count, char** words) {
  if (count < 2 || chdir(words[1]) != 0) {
    fprintf(stderr, "handler_steps DIRECTORY [outside]\n");
    return 2;
  }
  const int outside = count > 2 && strcmp(words[2], "outside") == 0;
  dl_iterate_phdr(note_library, NULL);
  file = open("handled", O_RDWR | O_CREAT | O_TRUNC, 0644);
  need(file >= 0, "handled");
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_RESTART | SA_SIGINFO};
  sigset_t waiting;
  sigemptyset(&waiting);
  sigaddset(&waiting, SIGALRM);
  sigaction(SIGALRM, &action, NULL);
  int whole = 1;
  for (int i = 0; i < (outside ? ROUNDS_OUTSIDE : ROUNDS) && (inside < INSIDE || all < SIGNALS); ++i)
    whole &= round_of_writes(outside ? &waiting : NULL);
  printf("whole: %d\n", whole);
  FILE* const counts = getenv("SIGNALS_INSIDE") == NULL ? NULL : fopen(getenv("SIGNALS_INSIDE"), "w");
  if (counts != NULL) {
    fprintf(counts, "%d of %d signals\n", (int)inside, (int)all);
    need(fclose(counts) == 0, "SIGNALS_INSIDE");
  }
  close(file);
  unlink("handled");
  return 0;
}
