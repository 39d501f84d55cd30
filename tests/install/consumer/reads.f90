! reads DIR: what writes.c wrote, through the Fortran module; every kind of argument that the module has is used once.
module tally
  use, intrinsic :: iso_c_binding
  implicit none
contains
  ! A swale_record_fn: adds up the numbers.
  integer(c_int) function add(context, epoch, key, key_bytes, value, value_bytes) bind(C)
    type(c_ptr), value :: context, key, value
    integer(c_int64_t), value :: epoch
    integer(c_size_t), value :: key_bytes, value_bytes
    real(c_double), pointer :: total, square
    call c_f_pointer(context, total)
    call c_f_pointer(value, square)
    if (epoch == 1 .and. key_bytes == 8 .and. value_bytes == 8 .and. c_associated(key)) total = total + square
    add = 0
  end function
end module tally

program reads
  use, intrinsic :: iso_c_binding
  use swale
  use tally
  implicit none
  character(len=1024) :: path
  type(swale_reader) :: reader
  type(swale_values) :: values
  type(swale_top) :: top
  type(swale_top_record) :: best
  type(swale_top_stats) :: top_stats
  type(swale_stats) :: stats
  type(swale_stat) :: stat
  type(swale_epoch_info) :: info
  integer(c_int64_t), target :: keys(3) = [3, 300, 5]
  integer(c_int64_t) :: key, records, epoch
  integer(c_size_t) :: bytes, found
  integer(c_int) :: code
  integer(c_int32_t) :: part
  real(c_double), pointer :: square
  real(c_double), target :: total
  type(c_ptr) :: value
  integer :: right
  character(len=:), allocatable :: json

  call get_command_argument(1, path)
  call expect(swale_reader_open("/nowhere/at all", reader=reader) == SWALE_NOT_FOUND, "a missing directory")
  call expect(index(swale_last_error(), "/nowhere/at all") > 0, "the message names it: "//swale_last_error())
  call expect(swale_reader_open(path, "imd.cache=64K", reader) == SWALE_OK, swale_last_error())
  call expect(swale_reader_schema(reader) == "square:f8", "the schema: "//swale_reader_schema(reader))
  call expect(swale_reader_epoch_info(reader, 1_c_int64_t, info) == SWALE_OK, swale_last_error())
  call expect(info%epoch == 1 .and. info%step == 10 .and. info%time == 0.5_c_double .and. info%records == 100, "the epoch")

  code = swale_reader_attributes(reader, SWALE_DESCRIBED_EPOCH, 1_c_int64_t, json)
  call expect(code == SWALE_OK .and. json == '{"box":[1,2,3]}', "the attributes of epoch 1: "//json)
  code = swale_reader_attributes(reader, SWALE_DESCRIBED_DIRECTORY, SWALE_ALL_EPOCHS, json)
  call expect(code == SWALE_OK .and. json == '{"units":"lj"}', "the directory's attributes: "//json)

  code = swale_reader_warm(reader, [0_c_int64_t, 1_c_int64_t], 2_c_size_t, records)
  call expect(code == SWALE_OK .and. records > 0, "the index is in memory: "//swale_last_error())
  call expect(swale_reader_count(reader, SWALE_ALL_EPOCHS, records) == SWALE_OK, swale_last_error())

  right = 0
  do key = 0, 99
    call expect(swale_reader_get(reader, key, c_sizeof(key), 1_c_int64_t, values) == SWALE_OK, swale_last_error())
    call expect(swale_values_at(values, 0_c_size_t, epoch, value, bytes) == SWALE_OK, swale_last_error())
    call expect(swale_values_at(values, 0_c_size_t, value_bytes=bytes) == SWALE_OK, swale_last_error())
    call c_f_pointer(value, square)
    if (epoch == 1 .and. bytes == 8 .and. nint(square) == key*key + 1) right = right + 1
    call swale_values_free(values)
  end do

  total = 0
  code = swale_reader_get_many(reader, [c_loc(keys(1)), c_loc(keys(2)), c_loc(keys(3))], [8_c_size_t, 8_c_size_t, &
    8_c_size_t], 3_c_size_t, 1_c_int64_t, c_funloc(add), c_loc(total), found)
  call expect(code == SWALE_OK .and. found == 2 .and. nint(total) == 9 + 25 + 2, "get_many")
  total = 0
  call expect(swale_reader_scan(reader, 1_c_int64_t, c_funloc(add), c_loc(total)) == SWALE_OK, swale_last_error())
  call expect(nint(total) == 328350 + 100, "the scan's sum")

  total = 0
  do part = 0, 2
    code = swale_reader_scan_part(reader, 1_c_int64_t, part, 3_c_int32_t, c_funloc(add), c_loc(total))
    call expect(code == SWALE_OK, swale_last_error())
  end do
  call expect(nint(total) == 328350 + 100, "the sum of three parts")

  call expect(swale_reader_top(reader, "square", 1_c_int64_t, 1_c_size_t, SWALE_TOP_SMALLEST, top) == SWALE_OK, &
    swale_last_error())
  call expect(swale_top_count(top) == 1 .and. swale_top_at(top, 0_c_size_t, best) == SWALE_OK, "top")
  call expect(swale_top_get_stats(top, top_stats) == SWALE_OK .and. top_stats%partitions_scanned == 0, "top's stats")
  call expect(nint(best%number) == 1 .and. best%key_bytes == 8 .and. best%field_bytes == 8, "the smallest")
  call swale_top_free(top)
  call expect(swale_reader_stats(reader, stats) == SWALE_OK, swale_last_error())
  call expect(swale_stats_find(stats, "queries", stat) == SWALE_OK .and. stat%sum > 100, "stats")
  call expect(index(swale_stats_json(stats), '"queries":{"unit":""') > 0, "the same as text")
  call swale_stats_free(stats)
  call swale_reader_close(reader)
  call files_of_a_directory(trim(path)//".files")
  print '(2a,i0,a,i0,a)', swale_version(), ": ", right, " right, ", records, " records"

contains

  subroutine expect(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    print '(2a)', "reads: ", what
    error stop 1
  end subroutine

  ! The papers' calls: a key is a file.
  subroutine files_of_a_directory(path)
    character(len=*), intent(in) :: path
    type(swale_job) :: job
    type(swale_dir) :: dir
    type(swale_subfile) :: file
    integer(c_int32_t) :: table(4, 2), row(2), back(2)
    table = reshape([1, 2, 3, 4, 5, 6, 7, 8], [4, 2])
    call expect(swale_job_open(job=job) == SWALE_OK, swale_last_error())
    call expect(swale_job_rank(job) == 0 .and. swale_job_size(job) == 1, "alone")
    call expect(swale_dir_make(job, path) == SWALE_OK, swale_last_error())
    call expect(swale_dir_open(job, path, 0, dir=dir) == SWALE_OK, swale_last_error())
    call expect(swale_subfile_open_write(dir, "row   ", file) == SWALE_OK, swale_last_error())
    row = table(3, :)
    call expect(swale_subfile_write(file, table(3, :), c_sizeof(row)) == SWALE_OK, swale_last_error())  ! a section: copied
    call expect(swale_subfile_close(file) == SWALE_OK, swale_last_error())
    call expect(swale_dir_pause(dir) == SWALE_OK .and. swale_dir_resume(dir) == SWALE_OK, swale_last_error())
    call expect(swale_dir_epoch_end_begin(dir, 1_c_int64_t, 0.0_c_double) == SWALE_OK, swale_last_error())
    call expect(swale_dir_epoch_end_wait(dir) == SWALE_OK, swale_last_error())
    call expect(swale_dir_close(dir) == SWALE_OK .and. swale_job_close(job) == SWALE_OK, swale_last_error())
    call expect(swale_reader_open(path, reader=reader) == SWALE_OK, swale_last_error())
    call expect(swale_subfile_open_read(reader, "row", file) == SWALE_OK, swale_last_error())
    call expect(swale_subfile_read(file, back, c_sizeof(back), bytes) == SWALE_OK .and. bytes == 8, swale_last_error())
    call expect(all(back == [3, 7]), "the row")
    call expect(swale_subfile_close(file) == SWALE_OK, swale_last_error())
    call expect(swale_reader_epoch_count(reader) == 1, "one epoch")
    call expect(swale_code_name(SWALE_BUSY) == "busy", swale_code_name(SWALE_BUSY))
    call swale_reader_close(reader)
  end subroutine

end program reads
