/* swale_comm from an MPI communicator. A header of inline functions that the *caller* compiles against its
 * own MPI: the library itself is built without MPI and works with every implementation and threading
 * level.
 *
 *   #include <mpi.h>
 *   #include <swale/swale_mpi.h>
 *   swale_comm comm = swale_comm_from_mpi(&communicator);   // the MPI_Comm must outlive the job
 *   swale_job_open(&comm, NULL, &job);
 */
#ifndef SWALE_SWALE_MPI_H_
#define SWALE_SWALE_MPI_H_

#include <mpi.h>

#include "swale/swale.h"

static inline int swale_mpi_allgather(void* context, const void* send, void* receive, size_t bytes) {
  if (bytes > 0x7fffffff) return 1;
  return MPI_Allgather(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, *(MPI_Comm*)context) !=
         MPI_SUCCESS;
}

static inline swale_comm swale_comm_from_mpi(MPI_Comm* communicator) {
  swale_comm comm;
  comm.struct_bytes = sizeof comm;
  MPI_Comm_rank(*communicator, &comm.rank);
  MPI_Comm_size(*communicator, &comm.size);
  comm.context = communicator;
  comm.allgather = swale_mpi_allgather;
  return comm;
}

#endif /* SWALE_SWALE_MPI_H_ */
