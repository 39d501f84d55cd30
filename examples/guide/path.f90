! path DIR ID: where a particle was, in Fortran.
program path
  use, intrinsic :: iso_c_binding
  use swale
  implicit none

  type, bind(C) :: particle
    real(c_double) :: x, y, energy
  end type

  type(swale_reader) :: reader
  type(swale_values) :: values
  type(swale_epoch_info) :: info
  type(particle), pointer :: p
  type(c_ptr) :: found
  integer(c_int64_t) :: id, epoch
  integer(c_size_t) :: i
  character(len=1024) :: directory, number

  call get_command_argument(1, directory)
  call get_command_argument(2, number)
  read (number, *) id
  if (swale_reader_open(directory, reader=reader) /= SWALE_OK) error stop swale_last_error()
  if (swale_reader_get(reader, id, c_sizeof(id), SWALE_ALL_EPOCHS, values) /= SWALE_OK) error stop swale_last_error()
  do i = 0, swale_values_count(values) - 1                    ! indices are those of C
    if (swale_values_at(values, i, epoch, found) /= SWALE_OK) error stop swale_last_error()
    if (swale_reader_epoch_info(reader, epoch, info) /= SWALE_OK) error stop swale_last_error()
    call c_f_pointer(found, p)
    print '(a,f3.1,a,f7.4,a,f7.4)', "time ", info%time, "  x ", p%x, "  y ", p%y
  end do
  call swale_values_free(values)
  call swale_reader_close(reader)
end program path
