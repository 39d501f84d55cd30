! Files of a job's tree from Fortran. Usage: fs_fortran_test TREE (a directory of a tree)
module fs_entries
  use, intrinsic :: iso_c_binding
  implicit none
contains
  integer(c_int) function count_entry(context, name, kind) bind(C)
    type(c_ptr), value :: context, name
    integer(c_int), value :: kind
    integer(c_int), pointer :: sum
    call c_f_pointer(context, sum)
    if (c_associated(name)) sum = sum + kind
    count_entry = 0
  end function
end module

program fs_fortran_test
  use, intrinsic :: iso_c_binding
  use fs_entries
  use swale
  implicit none
  character(len=4096) :: tree
  type(swale_fs_file) :: file
  type(swale_attributes) :: attributes
  type(swale_fs_part) :: parts(2)
  type(swale_fs_space) :: places(2)
  integer(c_int), target :: numbers(4) = [1, 2, 3, 4], back(4) = 0
  integer(c_int), target :: entries = 0
  integer(c_int) :: by_log
  integer(c_size_t) :: got

  call get_command_argument(1, tree)
  call must(swale_fs_open(trim(tree)//"/fortran", SWALE_CREATE + SWALE_FS_BY_LOG, int(o'644', c_int32_t), &
    file))
  call must(swale_fs_writes_by_log(file, by_log))
  if (by_log /= 1) error stop "not by the log"
  call must(swale_fs_write_many(file, 0_c_int64_t, 8_c_int64_t, numbers, 4_c_size_t, 2_c_size_t))
  call must(swale_fs_pwrite(file, 4_c_int64_t, numbers(3), 4_c_size_t))
  parts(1) = swale_fs_part(c_loc(numbers(4)), 4_c_size_t)
  parts(2) = swale_fs_part(c_loc(numbers(1)), 4_c_size_t)
  call must(swale_fs_pwritev(file, 12_c_int64_t, parts, 2_c_size_t))
  call must(swale_fs_truncate(file, 16_c_int64_t))
  call must(swale_fs_commit(file))
  call must(swale_fs_sync(file))
  call must(swale_fs_stat(file, attributes))
  if (attributes%size /= 16) error stop "its size"
  call must(swale_fs_pread(file, 0_c_int64_t, back, c_sizeof(back), got))
  if (got /= 16 .or. any(back /= [1, 3, 2, 4])) error stop "its bytes"
  places(1) = swale_fs_space(c_loc(back(3)), 4_c_size_t)
  places(2) = swale_fs_space(c_loc(back(1)), 8_c_size_t)
  call must(swale_fs_preadv(file, 4_c_int64_t, places, 2_c_size_t, got))
  if (got /= 12 .or. any(back(1:3) /= [2, 4, 3])) error stop "its bytes in places"
  call must(swale_fs_write(file, numbers, 4_c_size_t))
  call must(swale_fs_close(file))
  call must(swale_fs_seal(trim(tree)//"/fortran"))
  if (swale_fs_open(trim(tree)//"/fortran", 0, 0_c_int32_t, file) == SWALE_OK) error stop "not sealed"
  call must(swale_fs_open(trim(tree)//"/fortran", SWALE_READ_ONLY, 0_c_int32_t, file))
  call must(swale_fs_stat(file, attributes))
  if (attributes%sealed /= 1) error stop "its seal"
  call must(swale_fs_unseal(trim(tree)//"/fortran"))
  call must(swale_fs_stat(file, attributes))
  if (attributes%sealed /= 0) error stop "its seal is not gone"
  call must(swale_fs_close(file))
  call must(swale_fs_mkdir(trim(tree)//"/names", int(o'700', c_int32_t)))
  call must(swale_fs_rename(trim(tree)//"/fortran", trim(tree)//"/names/fortran"))
  call must(swale_fs_stat_path(trim(tree)//"/names/fortran", attributes))
  if (attributes%size /= 16) error stop "its size by its name"
  call must(swale_fs_list(trim(tree)//"/names", c_funloc(count_entry), c_loc(entries)))
  if (entries /= SWALE_FS_FILE_ENTRY) error stop "its folder's entries"
  call must(swale_fs_rename(trim(tree)//"/names/fortran", trim(tree)//"/fortran"))
  call must(swale_fs_open(trim(tree)//"/names/gone", SWALE_CREATE, int(o'600', c_int32_t), file))
  call must(swale_fs_close(file))
  call must(swale_fs_remove(trim(tree)//"/names/gone"))
  call must(swale_fs_rmdir(trim(tree)//"/names"))
contains
  subroutine must(code)
    integer(c_int), intent(in) :: code
    if (code == SWALE_OK) return
    print "(a)", swale_last_error()
    error stop 1
  end subroutine
end program
