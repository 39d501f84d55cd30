! orbits DIR FIRST LAST: the same frames as orbits.c, from Fortran.
program orbits
  use, intrinsic :: iso_c_binding
  use mpi
  use swale
  use swale_mpi
  implicit none

  type, bind(C) :: particle
    real(c_double) :: x, y, energy
  end type

  integer, target :: world                      ! must live as long as the job
  integer :: rank, ranks, failed, frame, first, last
  integer(c_int64_t) :: id
  type(swale_job) :: job
  type(swale_dir) :: dir
  type(particle) :: p
  character(len=1024) :: path, number

  call get_command_argument(1, path)
  call get_command_argument(2, number)
  read (number, *) first
  call get_command_argument(3, number)
  read (number, *) last

  call MPI_Init(failed)
  world = MPI_COMM_WORLD
  call MPI_Comm_rank(world, rank, failed)
  call MPI_Comm_size(world, ranks, failed)

  call must(swale_job_open(swale_comm_from_mpi(world), job=job))
  call must(swale_dir_open(job, path, SWALE_CREATE, "imd.schema=x:f8;y:f8;energy:f8,imd.extrema=energy", dir))
  do frame = first, last
    do id = modulo(rank + frame, ranks), 9999, ranks
      p = compute(id, 0.1_c_double*frame)
      call must(swale_dir_append(dir, id, c_sizeof(id), p, c_sizeof(p)))
    end do
    call must(swale_dir_epoch_end(dir, 10_c_int64_t*frame, 0.1_c_double*frame))
  end do
  call must(swale_dir_close(dir))
  call must(swale_job_close(job))
  call MPI_Finalize(failed)

contains

  subroutine must(code)
    integer(c_int), intent(in) :: code
    if (code == SWALE_OK) return
    print '(2a)', "orbits: ", swale_last_error()
    call MPI_Abort(world, 1, failed)
  end subroutine

  type(particle) function compute(id, time)
    integer(c_int64_t), intent(in) :: id
    real(c_double), intent(in) :: time
    real(c_double) :: radius, angle
    radius = 1 + 0.001_c_double*id
    angle = time/(radius*sqrt(radius))
    compute = particle(radius*cos(angle), radius*sin(angle), 0.5_c_double/radius)
  end function

end program orbits
