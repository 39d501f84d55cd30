/* net_mpi_ports: under an MPI that has sockets of its own, opening and using a Swale job adds none. Each
 * rank compares what it has open before the job and in it; the status is 0 if nothing was added, 1 if
 * something was, 2 if the program cannot run. With an argument it opens a port itself, for the canary. */
#include <arpa/inet.h>
#include <mpi.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "swale/swale.h"
#include "swale/swale_mpi.h"

enum { DESCRIPTORS = 4096 };

static int is_port(int fd) {
  int listens = 0, kind = 0;
  struct sockaddr_storage address;
  socklen_t bytes = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0) return 0;
  if (listens) return 1;
  bytes = sizeof kind;
  getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &bytes);
  bytes = sizeof address;
  if (getsockname(fd, (struct sockaddr*)&address, &bytes) != 0) return 0;
  return kind == SOCK_DGRAM && (address.ss_family == AF_INET || address.ss_family == AF_INET6);
}

static int ports(void) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS; fd++) count += is_port(fd);
  return count;
}

/* That this process has made: MPI maps those of its peers whenever it first talks to one. */
static int segments(void) {
  char line[512];
  int count = 0, maker;
  FILE* table = fopen("/proc/sysvipc/shm", "r");
  if (table == NULL) return -1;
  while (fgets(line, sizeof line, table) != NULL)
    count += sscanf(line, "%*s %*s %*s %*s %d", &maker) == 1 && maker == (int)getpid();
  fclose(table);
  return count;
}

int main(int argc, char** argv) {
  swale_job* job = NULL;
  swale_dir* dir = NULL;
  MPI_Comm world = MPI_COMM_WORLD;
  if (MPI_Init(&argc, &argv) != MPI_SUCCESS || argc < 2) return 2;
  int rank;
  MPI_Comm_rank(world, &rank);
  const int ports_before = ports(), segments_before = segments();
  swale_comm comm = swale_comm_from_mpi(&world);
  int canary = -1;
  if (argc > 2) {
    struct sockaddr_in address = {0};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    canary = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(canary, (struct sockaddr*)&address, sizeof address) != 0 || listen(canary, 1) != 0) return 2;
  }
  int failed = swale_job_open(&comm, NULL, &job) != SWALE_OK ||
               swale_dir_open(job, argv[1], SWALE_CREATE, NULL, &dir) != SWALE_OK;
  for (int i = 0; i < 2000 && !failed; i++) {
    const int key = rank * 2000 + i;
    failed = swale_dir_append(dir, &key, sizeof key, "value", 5) != SWALE_OK;
  }
  failed = failed || swale_dir_epoch_end(dir, 0, 0.0) != SWALE_OK;
  const int ports_more = ports() - ports_before, segments_more = segments() - segments_before;
  MPI_Barrier(world);
  failed = failed || swale_dir_close(dir) != SWALE_OK || swale_job_close(job) != SWALE_OK;
  if (failed) fprintf(stderr, "rank %d: %s\n", rank, swale_last_error());
  printf("rank %d: %d ports and %d System V segments more than before the job\n", rank, ports_more,
         segments_more);
  if (canary >= 0) close(canary);
  MPI_Finalize();
  return failed ? 2 : ports_more > 0 || segments_more > 0;
}
