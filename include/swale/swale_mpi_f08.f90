! A swale_comm from an MPI communicator, for Fortran with `use mpi_f08` (swale_mpi.f90 is for `use mpi`). Compiled, like
! swale_mpi.h, by the caller against its own MPI:
!
!   mpifort -c swale.f90 swale_mpi_f08.f90
!
!   type(MPI_Comm), target :: communicator     ! must outlive the job
!   communicator = MPI_COMM_WORLD
!   comm = swale_comm_from_mpi(communicator)
!   if (swale_job_open(comm, job=job) /= SWALE_OK) error stop swale_last_error()
module swale_mpi_f08
  use, intrinsic :: iso_c_binding, only: c_char, c_f_pointer, c_funloc, c_int, c_loc, c_ptr, c_size_t
  use mpi_f08
  use swale, only: swale_comm
  implicit none
  private
  public :: swale_comm_from_mpi

contains

  type(swale_comm) function swale_comm_from_mpi(communicator) result(comm)
    type(MPI_Comm), intent(in), target :: communicator
    integer :: rank, ranks, failed
    call MPI_Comm_rank(communicator, rank, failed)
    call MPI_Comm_size(communicator, ranks, failed)
    comm%rank = rank
    comm%size = ranks
    comm%context = c_loc(communicator)
    comm%allgather = c_funloc(swale_mpi_f08_allgather)
  end function

  integer(c_int) function swale_mpi_f08_allgather(context, send, receive, bytes) bind(C)
    type(c_ptr), value :: context, send, receive
    integer(c_size_t), value :: bytes
    type(MPI_Comm), pointer :: communicator
    character(kind=c_char), pointer, contiguous :: mine(:), all(:)
    integer :: ranks, failed
    swale_mpi_f08_allgather = 1
    if (bytes > huge(ranks)) return
    call c_f_pointer(context, communicator)
    call MPI_Comm_size(communicator, ranks, failed)
    if (failed /= MPI_SUCCESS) return
    call c_f_pointer(send, mine, [bytes])
    call c_f_pointer(receive, all, [bytes*ranks])
    call MPI_Allgather(mine, int(bytes), MPI_BYTE, all, int(bytes), MPI_BYTE, communicator, failed)
    if (failed == MPI_SUCCESS) swale_mpi_f08_allgather = 0
  end function

end module swale_mpi_f08
