// ranks: a C++ program with MPI that needs nothing but find_package(swale COMPONENTS mpi) and swale::mpi.
#include <mpi.h>
#include <swale/swale.h>
#include <swale/swale_mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm world = MPI_COMM_WORLD;
  swale_comm comm = swale_comm_from_mpi(&world);
  swale_job* job = nullptr;
  const int opened = swale_job_open(&comm, nullptr, &job);
  if (opened != SWALE_OK) std::fprintf(stderr, "ranks: %s\n", swale_last_error());
  if (opened == SWALE_OK && swale_job_rank(job) == 0) std::printf("%d ranks\n", swale_job_size(job));
  const int closed = opened == SWALE_OK ? swale_job_close(job) : opened;
  MPI_Finalize();
  return closed == SWALE_OK ? 0 : 1;
}
