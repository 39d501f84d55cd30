! A complete program around Swale in Fortran, for any MPI: every rank owns some particles, moves them and appends their
! positions under the particle's number, an epoch per step. Then rank 0, alone, reads all trajectories back and
! compares them with what they must be.
!
!   mpifort swale.f90 swale_mpi.f90 particles.f90 -lswale -o particles && mpirun -n 4 ./particles OUT_DIR
program particles
  use, intrinsic :: iso_c_binding
  use mpi
  use swale
  use swale_mpi, only: swale_comm_from_mpi
  implicit none

  type, bind(C) :: particle
    real(c_double) :: position(3)
    integer(c_int64_t) :: step
  end type

  integer(c_int64_t), parameter :: count = 2000, steps = 4
  integer, target :: communicator
  integer :: failed, rank, right
  character(len=1024) :: path

  call get_command_argument(1, path)
  if (path == "") error stop "usage: particles OUT_DIR"
  call MPI_Init(failed)
  communicator = MPI_COMM_WORLD
  call MPI_Comm_rank(communicator, rank, failed)
  call write_all(path)
  right = 1
  if (rank == 0) right = read_all(path)
  call MPI_Bcast(right, 1, MPI_INTEGER, 0, communicator, failed)
  call MPI_Finalize(failed)
  if (right == 0) error stop 1

contains

  ! Ends the job, and not only this rank: the others may be waiting for it.
  subroutine check(code, what)
    integer(c_int), intent(in) :: code
    character(len=*), intent(in) :: what
    if (code == SWALE_OK) return
    print '(4a)', "particles: ", what, ": ", swale_last_error()
    call MPI_Abort(communicator, 2, failed)
  end subroutine

  pure type(particle) function state(id, step)
    integer(c_int64_t), intent(in) :: id, step
    state%position = [real(id, c_double), 0.5_c_double*step, -1.0_c_double*id*step]
    state%step = step
  end function

  subroutine write_all(path)
    character(len=*), intent(in) :: path
    type(swale_job) :: job
    type(swale_dir) :: dir
    type(particle) :: atom
    integer(c_int64_t) :: id, step
    call check(swale_job_open(swale_comm_from_mpi(communicator), job=job), "swale_job_open")
    call check(swale_dir_open(job, path, SWALE_CREATE + SWALE_EXCLUSIVE, &
      "imd.schema=position:f8x3;step:i8", dir), "swale_dir_open")
    do step = 0, steps - 1
      ! A particle changes its rank in every step.
      do id = modulo(rank + step, int(swale_job_size(job), c_int64_t)), count - 1, swale_job_size(job)
        atom = state(id, step)
        call check(swale_dir_append(dir, id, c_sizeof(id), atom, c_sizeof(atom)), "swale_dir_append")
      end do
      call check(swale_dir_epoch_end(dir, 10*step, 0.1_c_double*step), "swale_dir_epoch_end")
    end do
    call check(swale_dir_close(dir), "swale_dir_close")
    call check(swale_job_close(job), "swale_job_close")
  end subroutine

  ! 1 if every trajectory is what it must be.
  integer function read_all(path) result(all_right)
    character(len=*), intent(in) :: path
    type(swale_reader) :: reader
    type(swale_values) :: values
    integer(c_int64_t) :: id, good
    call check(swale_reader_open(path, reader=reader), "swale_reader_open")
    good = 0
    do id = 0, count - 1
      call check(swale_reader_get(reader, id, c_sizeof(id), SWALE_ALL_EPOCHS, values), "swale_reader_get")
      if (is_right(values, id)) good = good + 1
      call swale_values_free(values)
    end do
    call swale_reader_close(reader)
    print '(i0,a,i0,a)', good, " of ", count, " trajectories are right"
    all_right = merge(1, 0, good == count)
  end function

  logical function is_right(values, id)
    type(swale_values), intent(in) :: values
    integer(c_int64_t), intent(in) :: id
    type(particle), pointer :: found
    type(particle) :: expected
    integer(c_int64_t) :: epoch, step
    integer(c_size_t) :: bytes
    type(c_ptr) :: value
    is_right = swale_values_count(values) == steps
    if (.not. is_right) return
    do step = 0, steps - 1
      call check(swale_values_at(values, int(step, c_size_t), epoch, value, bytes), "swale_values_at")
      call c_f_pointer(value, found)
      expected = state(id, step)
      is_right = is_right .and. epoch == step .and. bytes == c_sizeof(expected) .and. found%step == step &
        .and. all(abs(found%position - expected%position) <= 0)
    end do
  end function

end program particles
