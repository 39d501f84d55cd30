/* light_steps NAME DIRECTORY [COUNT]: files that are opened past the kernel (SWALE_FS_DESCRIPTORS=light), and
 * what is done with their descriptors. What calls return goes to standard output: it must be the same in a
 * plain directory and in a job's tree.
 *
 *   errors     opens of each kind that make a file, or are refused; modes bind root, too
 *   opens      files that are there, in each way (light_opens.c); COUNT 1: modes bind the process
 *   data       files are written and read (light_data.c); COUNT 1: says how many were placeholders to the end
 *   forks      threads write while another one forks
 *   looks      stat and access of many paths (light_looks.c); COUNT 1: modes bind the process
 *   calls      each call of the C library that takes a descriptor (light_calls.c)
 *   names      prints the names of the functions that `calls` calls
 *   others     fork, exec, dup2, mmap, a socket, and others reach the file that was opened, whatever its
 *              name is
 *   numbers    descriptors are closed in all ways, and numbers are used again
 *   limit      no number is free, and a descriptor is written
 *   exclusive  processes make the same files with O_EXCL
 *   many       so many files are open at a time
 *   threads    make, write and close files at the same time
 *   waits      makes a file, tells so, and waits; then uses the descriptor
 */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "light_steps.h"

static int wait_for(pid_t process) {
  int status = 0;
  need(waitpid(process, &status, 0) == process, "waitpid");
  return status;
}

/* ---- errors ---- */

struct Open {
  const char* path;
  int flags;
  int mode;
};

void drop_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  need(syscall(SYS_capset, &header, none) == 0, "capset");
}

static void try_open(const struct Open* each, int at, const char* prefix) {
  char path[8192];
  snprintf(path, sizeof(path), "%s%s", prefix, each->path);
  const int fd = openat(at, path, each->flags | O_CLOEXEC, each->mode);
  printf("%.80s %x %o: %s", each->path, each->flags, each->mode, fd < 0 ? strerrorname_np(errno) : "open");
  struct stat found;
  if (fd >= 0) {
    const int failed = fstat(fd, &found);
    printf(" %d mode %o links %d size %ld flags %x", failed, found.st_mode, (int)found.st_nlink,
           (long)found.st_size, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_PATH));
    close(fd);
  }
  printf("\n");
  if (fd >= 0 && (each->flags & O_TMPFILE) != O_TMPFILE && S_ISREG(found.st_mode) &&
      strncmp(each->path, "kept", 4) != 0)
    unlinkat(at, path, 0);
}

static char long_name[300], long_path[5000], deep_path[1200];

static const struct Open kOpens[] = {
    {"new", O_CREAT | O_WRONLY, 0644},
    {"new", O_CREAT | O_RDWR | O_EXCL, 0},
    {"new", O_CREAT | O_RDONLY, 0444},
    {"new", O_CREAT | O_WRONLY | O_APPEND, 0666},
    {"new", O_CREAT | O_WRONLY | O_TRUNC, 0777},
    {"new", O_CREAT | O_WRONLY, 04755},
    {"new", O_CREAT | O_WRONLY | O_NOFOLLOW | O_NOCTTY, 0600},
    {"new", O_CREAT | O_RDWR | O_SYNC, 0600},
    {"new", O_CREAT | O_RDWR | O_NONBLOCK, 0600},
    {"new", O_CREAT | O_RDWR | O_DIRECTORY, 0600},
    {"new", O_CREAT | O_ACCMODE, 0600},
    {"", O_CREAT | O_WRONLY, 0600},
    {".", O_CREAT | O_WRONLY, 0600},
    {"..", O_CREAT | O_WRONLY, 0600},
    {"new/", O_CREAT | O_WRONLY, 0600},
    {"kept", O_CREAT | O_WRONLY, 0600},
    {"kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"kept/", O_CREAT | O_WRONLY, 0600},
    {"kept/new", O_CREAT | O_WRONLY, 0600},
    {"kept-unreadable", O_CREAT | O_RDWR, 0600},
    {"kept-unreadable", O_CREAT | O_RDWR | O_TRUNC, 0600},
    {"free", O_CREAT | O_WRONLY, 0600},
    {"free", O_CREAT | O_RDONLY, 0600},
    {"free", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"free/new", O_CREAT | O_WRONLY, 0600},
    {"free//new", O_CREAT | O_WRONLY, 0600},
    {"free/./new", O_CREAT | O_WRONLY, 0600},
    {"free/../new", O_CREAT | O_WRONLY, 0600},
    {"free/missing/new", O_CREAT | O_WRONLY, 0600},
    {"missing/new", O_CREAT | O_WRONLY, 0600},
    {"read-only/new", O_CREAT | O_WRONLY, 0600},
    {"read-only/kept", O_CREAT | O_WRONLY, 0600},
    {"read-only/kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"read-only/below/new", O_CREAT | O_WRONLY, 0600},
    {"no-search/new", O_CREAT | O_WRONLY, 0600},
    {"no-search/kept", O_CREAT | O_WRONLY, 0600},
    {"no-search/below/new", O_CREAT | O_WRONLY, 0600},
    {"closed/new", O_CREAT | O_WRONLY, 0600},
    {"closed/below/new", O_CREAT | O_WRONLY, 0600},
    {"write-only/new", O_CREAT | O_WRONLY, 0600},
    {"sticky/new", O_CREAT | O_WRONLY, 0600},
    {"set-group/new", O_CREAT | O_WRONLY, 0660},
    {"link-to-kept", O_CREAT | O_WRONLY, 0600},
    {"link-to-kept", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"link-to-kept", O_CREAT | O_WRONLY | O_NOFOLLOW, 0600},
    {"link-to-free/new", O_CREAT | O_WRONLY, 0600},
    {"link-to-closed/new", O_CREAT | O_WRONLY, 0600},
    {"link-outside/light-new", O_CREAT | O_WRONLY, 0600},
    {"link-to-nothing", O_CREAT | O_WRONLY | O_EXCL, 0600},
    {"link-to-itself", O_CREAT | O_WRONLY, 0600},
    {"link-to-itself/new", O_CREAT | O_WRONLY, 0600},
    {long_name, O_CREAT | O_WRONLY, 0600},
    {long_path, O_CREAT | O_WRONLY, 0600},
    {deep_path, O_CREAT | O_WRONLY, 0600},
};

static void make_them(void) {
  static const struct {
    const char* name;
    int mode;
  } kFolders[] = {{"free", 0755},       {"read-only", 0555}, {"no-search", 0655}, {"closed", 0},
                  {"write-only", 0333}, {"sticky", 01777},   {"set-group", 02775}};
  char path[64];
  for (size_t i = 0; i < sizeof(kFolders) / sizeof(kFolders[0]); ++i) {
    need(mkdir(kFolders[i].name, 0755) == 0, "mkdir");
    snprintf(path, sizeof(path), "%s/below", kFolders[i].name);
    need(mkdir(path, 0755) == 0, "mkdir");
    snprintf(path, sizeof(path), "%s/kept", kFolders[i].name);
    close(open(path, O_WRONLY | O_CREAT, 0644));
  }
  close(open("kept", O_WRONLY | O_CREAT, 0644));
  close(open("kept-unreadable", O_WRONLY | O_CREAT, 0));
  need(symlink("kept", "link-to-kept") == 0 && symlink("free", "link-to-free") == 0 &&
           symlink("closed", "link-to-closed") == 0 && symlink("/tmp", "link-outside") == 0 &&
           symlink("nothing", "link-to-nothing") == 0 && symlink("link-to-itself", "link-to-itself") == 0,
       "symlink");
  for (size_t i = 0; i < sizeof(kFolders) / sizeof(kFolders[0]); ++i)
    need(chmod(kFolders[i].name, (mode_t)kFolders[i].mode) == 0, "chmod");
}

/* By a child: who meets the server keeps the rights that it has then, or goes through the kernel. */
void make_places(void) {
  memset(long_name, 'n', sizeof(long_name) - 1);
  memset(long_path, '/', sizeof(long_path) - 1);
  strcpy(deep_path, "free");
  for (size_t i = 0; i < 500; ++i) strcat(deep_path, "/.");
  strcat(deep_path, "/new");
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    make_them();
    _exit(0);
  }
  need(wait_for(child) == 0, "a child");
}

static void open_them_all(void) {
  char here[4096], prefix[4200];
  need(getcwd(here, sizeof(here)) != NULL, "getcwd");
  snprintf(prefix, sizeof(prefix), "%s/", here);
  const int at = open(".", O_RDONLY | O_DIRECTORY);
  static const int kUmasks[] = {022, 0, 0777};
  for (size_t i = 0; i < sizeof(kOpens) / sizeof(kOpens[0]); ++i) {
    umask(kUmasks[i % 3]);
    try_open(&kOpens[i], AT_FDCWD, "");
    try_open(&kOpens[i], AT_FDCWD, prefix);
    try_open(&kOpens[i], at, "");
  }
  umask(022);
  const int file = make("no-folder");
  const struct Open below = {"new", O_CREAT | O_WRONLY, 0600};
  try_open(&below, file, "");
  try_open(&below, 999, "");
  say("fchdir", fchdir(file));
  say("creat", creat("kept-creat", 0640) >= 0);
  say("creat", creat("kept-creat/x", 0640));
  close(file);
}

static void errors(const char* directory) {
  need(chdir(directory) == 0, directory);
  make_places();
  drop_capabilities();
  begin(".");
  open_them_all();
  for (const char* const* name =
           (const char* const[]){"read-only", "no-search", "closed", "write-only", NULL};
       *name != NULL; ++name)
    need(chmod(*name, 0755) == 0, "chmod");
}

/* ---- others ---- */

static void put(int fd, const char* text) {
  need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void by_fork(const char* name) {
  const int fd = make(name);
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child == 0) {
    put(fd, "child ");
    _exit(0);
  }
  say("child", wait_for(child));
  put(fd, "parent");
  close(fd);
  say_content(name);
}

static void by_exec(const char* name) {
  const int fd = open(name, O_WRONLY | O_CREAT, 0644);
  char command[64];
  need(fd >= 0, name);
  snprintf(command, sizeof(command), "echo by a shell >&%d", fd);
  say("system", system(command));
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command, NULL);
    _exit(1);
  }
  say("child", wait_for(child));
  put(fd, "then\n");
  close(fd);
  say_content(name);
}

static void by_redirection(const char* name) {
  const int fd = make(name), kept = dup(1);
  fflush(stdout);
  need(dup2(fd, 1) == 1, "dup2");
  need(system("echo redirected") == 0, "system");
  printf("and printed\n");
  fflush(stdout);
  need(dup2(kept, 1) == 1, "dup2");
  close(kept);
  close(fd);
  say_content(name);
  const int replaced = make("replaced"), by = make("replaces");
  need(dup2(by, replaced) == replaced, "dup2");
  put(replaced, "by another number");
  close(replaced);
  close(by);
  say_content("replaced");
  say_content("replaces");
}

static void by_map(const char* name) {
  const int fd = make(name);
  need(ftruncate(fd, 4096) == 0, "ftruncate");
  char* const map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  need(map != MAP_FAILED, "mmap");
  strcpy(map, "mapped");
  need(msync(map, 4096, MS_SYNC) == 0 && munmap(map, 4096) == 0 && ftruncate(fd, 6) == 0, "msync");
  close(fd);
  say_content(name);
}

static void by_socket(const char* name) {
  const int fd = make(name);
  int ends[2];
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  char control[CMSG_SPACE(sizeof(int))] = {0};
  char byte = 'x';
  struct iovec one = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fd, sizeof(fd));
  need(sendmsg(ends[0], &message, 0) == 1, "sendmsg");
  close(fd);
  need(recvmsg(ends[1], &message, 0) == 1, "recvmsg");
  int got = -1;
  memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(got));
  put(got, "by a socket");
  close(got);
  close(ends[0]);
  close(ends[1]);
  say_content(name);
}

/* The file that was opened, whatever its name leads to now. */
static void behind_its_name(void) {
  int fd = make("before");
  need(rename("before", "after") == 0, "rename");
  const int other = make("before");
  put(other, "another one");
  put(fd, "renamed");
  close(other);
  close(fd);
  say_content("before");
  say_content("after");
  fd = make("gone");
  need(unlink("gone") == 0, "unlink");
  struct stat found;
  need(fstat(fd, &found) == 0, "fstat");
  say("links", (long)found.st_nlink);
  put(fd, "without a name");
  char text[32] = "";
  say("pread", pread(fd, text, sizeof(text), 0));
  printf("%s\n", text);
  close(fd);
  say("again", open("gone", O_RDONLY));
  fd = open("bound", O_WRONLY | O_CREAT | O_EXCL, 0); /* its mode does not bind who has made it */
  put(fd, "written all the same");
  need(fchmod(fd, 0600) == 0, "fchmod");
  close(fd);
  say_content("bound");
  need(mkdir("moved", 0755) == 0, "mkdir");
  fd = make("moved/file");
  need(rename("moved", "elsewhere") == 0, "rename");
  put(fd, "in a folder that has moved");
  close(fd);
  say_content("elsewhere/file");
  need(chdir("elsewhere") == 0, "chdir");
  fd = make("below");
  put(fd, "relative");
  close(fd);
  say_content("below");
  need(chdir("..") == 0, "chdir");
  fd = open("appended", O_WRONLY | O_CREAT | O_APPEND, 0644);
  const int beside = open("appended", O_WRONLY);
  put(beside, "first ");
  put(fd, "second ");
  close(beside);
  close(fd);
  say_content("appended");
  fd = open("only-read", O_RDONLY | O_CREAT, 0644);
  say("read", read(fd, text, 1));
  say("write", write(fd, text, 1));
  say("lseek", lseek(fd, 7, SEEK_SET));
  close(fd);
}

static void others(void) {
  by_fork("fork");
  by_exec("exec");
  by_redirection("redirection");
  by_map("map");
  by_socket("socket");
  behind_its_name();
}

/* ---- numbers ---- */

static void numbers(void) {
  int fds[20];
  char name[32];
  for (int i = 0; i < 20; ++i) {
    snprintf(name, sizeof(name), "number%d", i);
    fds[i] = make(name);
    say(name, fds[i]);
  }
  close(fds[3]);
  say("again", close(fds[3]));
  say("close_range", close_range((unsigned)fds[5], (unsigned)fds[9], 0));
  syscall(SYS_close, fds[11]);
  for (int i = 20; i < 27; ++i) {
    snprintf(name, sizeof(name), "number%d", i);
    const int fd = make(name);
    say(name, fd);
    put(fd, name);
  }
  for (int i = 0; i < 20; ++i) {
    struct stat found;
    say("fstat", fstat(fds[i], &found));
  }
  for (int i = 3; i < 1024; ++i) close(i);
  say("lowest", make("lowest"));
  put(3, "the lowest number");
  closefrom(3);
  say("write", write(3, "x", 1));
  close(0);
  const int zero = make("zero");
  say("zero", zero);
  put(zero, "standard input");
  say_content("zero");
}

static void limit(void) {
  struct rlimit few = {64, 64};
  need(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
  int fds[64], count = 0;
  char name[32];
  for (;; ++count) {
    snprintf(name, sizeof(name), "limit%d", count);
    fds[count] = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fds[count] < 0) break;
  }
  printf("%s\n", strerrorname_np(errno));
  for (int i = 0; i < count; i += 7) put(fds[i], "at the limit");
  for (int i = 0; i < count; ++i) close(fds[i]);
  say_content("limit0");
  say_content("limit7");
}

/* ---- several at once ---- */

static void exclusive(int names) {
  enum { PROCESSES = 8 };
  int* const wins = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int process = 0; process < PROCESSES; ++process) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0) continue;
    begin(".");
    char name[64];
    for (int i = 0; i < names; ++i) {
      snprintf(name, sizeof(name), "exclusive%d", i);
      const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
      if (fd < 0 && errno != EEXIST) need(0, name);
      if (fd >= 0) __atomic_fetch_add(wins, 1, __ATOMIC_SEQ_CST);
      if (fd >= 0) close(fd);
    }
    _exit(0);
  }
  int status = 0;
  while (wait(&status) > 0) need(status == 0, "a child");
  say("wins", *wins);
}

static void many(int count) {
  struct rlimit most;
  need(getrlimit(RLIMIT_NOFILE, &most) == 0, "getrlimit");
  most.rlim_cur = most.rlim_max;
  need(setrlimit(RLIMIT_NOFILE, &most) == 0, "setrlimit");
  int* const fds = malloc((size_t)count * sizeof(int));
  char name[32];
  for (int i = 0; i < count; ++i) {
    snprintf(name, sizeof(name), "many%d", i);
    fds[i] = make(name);
  }
  for (int i = 0; i < count; i += count / 10) put(fds[i], "written");
  for (int i = 0; i < count; ++i) need(close(fds[i]) == 0, "close");
  say_content("many0");
  say("many", count);
}

static void* make_some(void* which) {
  char name[32];
  for (int i = 0; i < 60; ++i) {
    snprintf(name, sizeof(name), "thread%ld-%d", (long)which, i);
    const int fd = make(name);
    if (i % 3 == 0) put(fd, name);
    need(close(fd) == 0, "close");
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  for (long i = 0; i < 4; ++i)
    need(pthread_create(&all[i], NULL, make_some, (void*)i) == 0, "pthread_create");
  for (int i = 0; i < 5; ++i) say("system", system("true"));
  for (int i = 0; i < 4; ++i) pthread_join(all[i], NULL);
}

static void waits(void) {
  const int fd = make("waits");
  char line[8];
  printf("waits\n");
  fflush(stdout);
  need(fgets(line, sizeof(line), stdin) != NULL, "standard input");
  struct stat found;
  say("fstat", fstat(fd, &found));
  say("fcntl", fcntl(fd, F_GETFL));
  say("write", write(fd, "x", 1));
  say("lseek", lseek(fd, 0, SEEK_END));
  say("dup", dup(fd));
  say("open", open("more", O_WRONLY | O_CREAT, 0600));
  say("close", close(fd));
}

int main(int count, char** words) {
  need(count >= 3, "light_steps NAME DIRECTORY [COUNT]");
  const char* const name = words[1];
  const int number = count > 3 ? atoi(words[3]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(name, "errors") == 0) {
    errors(words[2]);
    return 0;
  }
  if (strcmp(name, "opens") == 0) {
    opens(words[2], number);
    return 0;
  }
  if (strcmp(name, "looks") == 0) {
    looks(words[2], number);
    return 0;
  }
  if (strcmp(name, "statx") == 0) {
    looks_by_statx(words[2]);
    return 0;
  }
  if (strcmp(name, "names") == 0) {
    each_call(1);
    return 0;
  }
  begin(words[2]);
  if (strcmp(name, "calls") == 0) each_call(0);
  if (strcmp(name, "data") == 0) data(number);
  if (strcmp(name, "forks") == 0) forks();
  if (strcmp(name, "others") == 0) others();
  if (strcmp(name, "numbers") == 0) numbers();
  if (strcmp(name, "limit") == 0) limit();
  if (strcmp(name, "exclusive") == 0) exclusive(number);
  if (strcmp(name, "many") == 0) many(number);
  if (strcmp(name, "threads") == 0) threads();
  if (strcmp(name, "waits") == 0) waits();
  return 0;
}
