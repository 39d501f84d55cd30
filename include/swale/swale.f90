! Swale for Fortran: the C interface of swale.h, swale_meta.h, swale_iond.h, swale_tier.h and swale_fs.h as a module.
! Compile it with your own compiler, before your program:
!
!   gfortran -c $(pkg-config --variable=fortrandir swale)/swale.f90
!   gfortran program.f90 swale.o $(pkg-config --libs swale)
!
! Names, arguments and their order are those of these headers, which document them; so are indices, which
! start at 0. What differs:
!   Text        Paths, options, names and fields are ordinary characters; blanks at their end do not count. `options` may
!               be left out. Functions that return text return an allocatable character.
!   Bytes       Keys, values and data are anything: a number, an array, a derived type (make it bind(C) or sequence),
!               with its length in bytes, c_sizeof(x). A section of an array that is not contiguous is copied.
!   Left out    Output arguments for which swale.h allows NULL, and `comm` of swale_job_open, are optional; name the
!               arguments after them: swale_job_open(job=job).
!   Found bytes Are type(c_ptr): call c_f_pointer(value, x). They live as long as swale.h says.
!   Callbacks   Are bind(C) functions with the arguments of swale.h, given as c_funloc(fn), and a context, c_loc(x).
!   Structs     struct_bytes has the right value from the start; programs never set it.
!
! swale_mpi.f90 (for `use mpi`) and swale_mpi_f08.f90 (for `use mpi_f08`) make a swale_comm from an MPI communicator. A
! handle is a derived type with one pointer in it; every ABI that we know passes it as it passes the pointer alone.
module swale
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_f_pointer, c_funptr, c_int, c_int32_t, c_int64_t, c_loc, &
    c_null_char, c_null_funptr, c_null_ptr, c_ptr, c_size_t, c_associated
  implicit none
  private

  ! ---- Numbers -----------------------------------------------------------------------------------------------------

  integer(c_int), parameter, public :: SWALE_OK = 0
  integer(c_int), parameter, public :: SWALE_INVALID_ARGUMENT = 1
  integer(c_int), parameter, public :: SWALE_NOT_FOUND = 2
  integer(c_int), parameter, public :: SWALE_ALREADY_EXISTS = 3
  integer(c_int), parameter, public :: SWALE_CORRUPTION = 4
  integer(c_int), parameter, public :: SWALE_IO_ERROR = 5
  integer(c_int), parameter, public :: SWALE_NO_SPACE = 6
  integer(c_int), parameter, public :: SWALE_RESOURCE_EXHAUSTED = 7
  integer(c_int), parameter, public :: SWALE_UNAVAILABLE = 8
  integer(c_int), parameter, public :: SWALE_DEADLINE_EXCEEDED = 9
  integer(c_int), parameter, public :: SWALE_BUSY = 10
  integer(c_int), parameter, public :: SWALE_UNSUPPORTED = 11
  integer(c_int), parameter, public :: SWALE_ABORTED = 12
  integer(c_int), parameter, public :: SWALE_INTERNAL = 13

  integer(c_size_t), parameter, public :: SWALE_KEY_BYTES_MAX = 255
  integer(c_size_t), parameter, public :: SWALE_VALUE_BYTES_MAX = 1073741824
  integer(c_int64_t), parameter, public :: SWALE_ALL_EPOCHS = -1

  integer(c_int), parameter, public :: SWALE_CREATE = 1
  integer(c_int), parameter, public :: SWALE_EXCLUSIVE = 2
  integer(c_int), parameter, public :: SWALE_READ_ONLY = 4
  integer(c_int), parameter, public :: SWALE_ACCEPT_LOSS = 8
  integer(c_int), parameter, public :: SWALE_FS_EMPTY = 16
  integer(c_int), parameter, public :: SWALE_FS_APPEND = 32
  integer(c_int), parameter, public :: SWALE_FS_BY_MOUNT = 64
  integer(c_int), parameter, public :: SWALE_FS_BY_LOG = 128
  integer(c_int), parameter, public :: SWALE_FS_DIRECTORY = 16384
  integer(c_int), parameter, public :: SWALE_FS_FILE_ENTRY = 1
  integer(c_int), parameter, public :: SWALE_FS_DIRECTORY_ENTRY = 2
  integer(c_int), parameter, public :: SWALE_FS_OTHER_ENTRY = 3
  integer(c_int), parameter, public :: SWALE_IOND_DIRECTORY = 16384
  integer(c_int), parameter, public :: SWALE_IOND_FILE_ENTRY = 1
  integer(c_int), parameter, public :: SWALE_IOND_DIRECTORY_ENTRY = 2
  integer(c_int), parameter, public :: SWALE_IOND_OTHER_ENTRY = 3
  integer(c_int), parameter, public :: SWALE_META_LEVELS = 3
  integer(c_int), parameter, public :: SWALE_TOP_LARGEST = 0
  integer(c_int), parameter, public :: SWALE_TOP_SMALLEST = 1
  integer(c_int), parameter, public :: SWALE_DESCRIBED_DIRECTORY = 0
  integer(c_int), parameter, public :: SWALE_DESCRIBED_EPOCH = 1
  integer(c_size_t), parameter, public :: SWALE_ATTRIBUTES_BYTES_MAX = 65536
  integer(c_int), parameter, public :: SWALE_REFRESH_ADDED = 1
  integer(c_int), parameter, public :: SWALE_REFRESH_DROPPED = 2

  ! ---- Handles and structures --------------------------------------------------------------------------------------

  type, bind(C), public :: swale_job
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_dir
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_reader
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_values
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_top
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_subfile
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_stats
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_meta
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_meta_file
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_meta_found
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_meta_found_runs
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_iond
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_iond_file
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_tier
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_tier_file
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: swale_fs_file
    type(c_ptr) :: handle = c_null_ptr
  end type

  type, bind(C), public :: swale_comm
    integer(c_size_t) :: struct_bytes = 32
    integer(c_int) :: rank = 0
    integer(c_int) :: size = 1
    type(c_ptr) :: context = c_null_ptr
    type(c_funptr) :: allgather = c_null_funptr
  end type

  type, bind(C), public :: swale_epoch_info
    integer(c_size_t) :: struct_bytes = 40
    integer(c_int64_t) :: epoch = 0
    integer(c_int64_t) :: step = 0
    real(c_double) :: time = 0
    integer(c_int64_t) :: records = 0
  end type

  type, bind(C), public :: swale_top_record
    integer(c_size_t) :: struct_bytes = 64
    type(c_ptr) :: key = c_null_ptr
    integer(c_size_t) :: key_bytes = 0
    type(c_ptr) :: value = c_null_ptr
    integer(c_size_t) :: value_bytes = 0
    type(c_ptr) :: field = c_null_ptr
    integer(c_size_t) :: field_bytes = 0
    real(c_double) :: number = 0
  end type

  type, bind(C), public :: swale_top_stats
    integer(c_size_t) :: struct_bytes = 56
    integer(c_int64_t) :: nans = 0
    integer(c_int64_t) :: absent = 0
    integer(c_int64_t) :: bytes_read = 0
    integer(c_int64_t) :: reads = 0
    integer(c_int64_t) :: blocks_read = 0
    integer(c_int64_t) :: partitions_scanned = 0
  end type

  type, bind(C), public :: swale_stat
    integer(c_size_t) :: struct_bytes = 64
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: unit = c_null_ptr
    type(c_ptr) :: help = c_null_ptr
    integer(c_int64_t) :: sum = 0
    integer(c_int64_t) :: min = 0
    integer(c_int64_t) :: max = 0
    integer(c_int) :: min_rank = 0
    integer(c_int) :: max_rank = 0
  end type

  type, bind(C), public :: swale_attributes
    integer(c_size_t) :: struct_bytes = 48
    integer(c_int64_t) :: size = 0
    integer(c_int64_t) :: generation = 0
    integer(c_int32_t) :: mode = 0
    integer(c_int32_t) :: sealed = 0
    integer(c_int64_t) :: created_ns = 0
    integer(c_int64_t) :: modified_ns = 0
  end type

  ! Elements of arrays: log and levels are as in swale_meta.h.
  type, bind(C), public :: swale_meta_segment
    integer(c_int64_t) :: offset = 0
    integer(c_int64_t) :: length = 0
    integer(c_int64_t) :: address = 0
    integer(c_int32_t) :: log = 0
    integer(c_int32_t) :: reserved = 0
  end type

  type, bind(C), public :: swale_meta_range
    integer(c_int64_t) :: offset = 0
    integer(c_int64_t) :: length = 0
  end type

  type, bind(C), public :: swale_fs_part
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: bytes = 0
  end type

  type, bind(C), public :: swale_fs_space
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: bytes = 0
  end type

  type, bind(C), public :: swale_meta_level
    integer(c_int64_t) :: count = 0
    integer(c_int64_t) :: stride = 0
    integer(c_int64_t) :: address_stride = 0
  end type

  type, bind(C), public :: swale_meta_run
    integer(c_int64_t) :: offset = 0
    integer(c_int64_t) :: length = 0
    integer(c_int64_t) :: address = 0
    integer(c_int32_t) :: log = 0
    integer(c_int32_t) :: levels = 0
    type(swale_meta_level) :: level(SWALE_META_LEVELS) = swale_meta_level()
  end type

  ! ---- Calls that are the C function itself ------------------------------------------------------------------------

  interface
    integer(c_int) function swale_job_rank(job) bind(C, name="swale_job_rank")
      import :: c_int, swale_job
      type(swale_job), value :: job
    end function
    integer(c_int) function swale_job_size(job) bind(C, name="swale_job_size")
      import :: c_int, swale_job
      type(swale_job), value :: job
    end function
    integer(c_int) function swale_job_close(job) bind(C, name="swale_job_close")
      import :: c_int, swale_job
      type(swale_job), value :: job
    end function

    integer(c_int) function swale_dir_epoch_end(dir, step, time) bind(C, name="swale_dir_epoch_end")
      import :: c_double, c_int, c_int64_t, swale_dir
      type(swale_dir), value :: dir
      integer(c_int64_t), value :: step
      real(c_double), value :: time
    end function
    integer(c_int) function swale_dir_epoch_end_begin(dir, step, time) bind(C, name="swale_dir_epoch_end_begin")
      import :: c_double, c_int, c_int64_t, swale_dir
      type(swale_dir), value :: dir
      integer(c_int64_t), value :: step
      real(c_double), value :: time
    end function
    integer(c_int) function swale_dir_epoch_end_wait(dir) bind(C, name="swale_dir_epoch_end_wait")
      import :: c_int, swale_dir
      type(swale_dir), value :: dir
    end function
    integer(c_int) function swale_dir_pause(dir) bind(C, name="swale_dir_pause")
      import :: c_int, swale_dir
      type(swale_dir), value :: dir
    end function
    integer(c_int) function swale_dir_resume(dir) bind(C, name="swale_dir_resume")
      import :: c_int, swale_dir
      type(swale_dir), value :: dir
    end function
    integer(c_int) function swale_dir_close(dir) bind(C, name="swale_dir_close")
      import :: c_int, swale_dir
      type(swale_dir), value :: dir
    end function

    subroutine swale_reader_close(reader) bind(C, name="swale_reader_close")
      import :: swale_reader
      type(swale_reader), value :: reader
    end subroutine
    integer(c_int64_t) function swale_reader_epoch_count(reader) bind(C, name="swale_reader_epoch_count")
      import :: c_int64_t, swale_reader
      type(swale_reader), value :: reader
    end function
    integer(c_int) function swale_reader_epoch_info(reader, epoch, info) bind(C, name="swale_reader_epoch_info")
      import :: c_int, c_int64_t, swale_epoch_info, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      type(swale_epoch_info), intent(inout) :: info
    end function
    integer(c_size_t) function swale_values_count(values) bind(C, name="swale_values_count")
      import :: c_size_t, swale_values
      type(swale_values), value :: values
    end function
    integer(c_int) function swale_values_at(values, index, epoch, value, value_bytes) bind(C, name="swale_values_at")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_values
      type(swale_values), value :: values
      integer(c_size_t), value :: index
      integer(c_int64_t), intent(out), optional :: epoch
      type(c_ptr), intent(out), optional :: value
      integer(c_size_t), intent(out), optional :: value_bytes
    end function
    subroutine swale_values_free(values) bind(C, name="swale_values_free")
      import :: swale_values
      type(swale_values), value :: values
    end subroutine
    ! keys: addresses (c_loc) of the keys' first bytes.
    integer(c_int) function swale_reader_get_many(reader, keys, key_bytes, count, epoch, fn, context, found) &
        bind(C, name="swale_reader_get_many")
      import :: c_funptr, c_int, c_int64_t, c_ptr, c_size_t, swale_reader
      type(swale_reader), value :: reader
      type(c_ptr), intent(in) :: keys(*)
      integer(c_size_t), intent(in) :: key_bytes(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), value :: epoch
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
      integer(c_size_t), intent(out), optional :: found
    end function
    integer(c_int) function swale_reader_scan(reader, epoch, fn, context) bind(C, name="swale_reader_scan")
      import :: c_funptr, c_int, c_int64_t, c_ptr, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_reader_scan_part(reader, epoch, part, parts, fn, context) &
        bind(C, name="swale_reader_scan_part")
      import :: c_funptr, c_int, c_int32_t, c_int64_t, c_ptr, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      integer(c_int32_t), value :: part
      integer(c_int32_t), value :: parts
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_reader_keys(reader, epoch, fn, context) bind(C, name="swale_reader_keys")
      import :: c_funptr, c_int, c_int64_t, c_ptr, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_reader_warm(reader, epochs, count, bytes) bind(C, name="swale_reader_warm")
      import :: c_int, c_int64_t, c_size_t, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), intent(in) :: epochs(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function swale_reader_count(reader, epoch, records) bind(C, name="swale_reader_count")
      import :: c_int, c_int64_t, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      integer(c_int64_t), intent(out) :: records
    end function
    integer(c_int) function swale_reader_stats(reader, stats) bind(C, name="swale_reader_stats")
      import :: c_int, swale_reader, swale_stats
      type(swale_reader), value :: reader
      type(swale_stats), intent(out) :: stats
    end function
    integer(c_int) function swale_reader_refresh(reader, changed) bind(C, name="swale_reader_refresh")
      import :: c_int, swale_reader
      type(swale_reader), value :: reader
      integer(c_int), intent(out) :: changed
    end function
    integer(c_int) function swale_reader_sample(reader, epoch, n, seed, fn, context) bind(C, name="swale_reader_sample")
      import :: c_funptr, c_int, c_int64_t, c_ptr, c_size_t, swale_reader
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      integer(c_size_t), value :: n
      integer(c_int64_t), value :: seed
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_reader_epoch_stats(reader, epoch, stats) bind(C, name="swale_reader_epoch_stats")
      import :: c_int, c_int64_t, swale_reader, swale_stats
      type(swale_reader), value :: reader
      integer(c_int64_t), value :: epoch
      type(swale_stats), intent(out) :: stats
    end function

    integer(c_int) function swale_dir_stats(dir, stats) bind(C, name="swale_dir_stats")
      import :: c_int, swale_dir, swale_stats
      type(swale_dir), value :: dir
      type(swale_stats), intent(out) :: stats
    end function
    integer(c_size_t) function swale_stats_count(stats) bind(C, name="swale_stats_count")
      import :: c_size_t, swale_stats
      type(swale_stats), value :: stats
    end function
    integer(c_int) function swale_stats_at(stats, index, stat) bind(C, name="swale_stats_at")
      import :: c_int, c_size_t, swale_stat, swale_stats
      type(swale_stats), value :: stats
      integer(c_size_t), value :: index
      type(swale_stat), intent(inout) :: stat
    end function
    integer(c_int) function swale_stats_ranks(stats) bind(C, name="swale_stats_ranks")
      import :: c_int, swale_stats
      type(swale_stats), value :: stats
    end function
    subroutine swale_stats_free(stats) bind(C, name="swale_stats_free")
      import :: swale_stats
      type(swale_stats), value :: stats
    end subroutine

    integer(c_size_t) function swale_top_count(top) bind(C, name="swale_top_count")
      import :: c_size_t, swale_top
      type(swale_top), value :: top
    end function
    integer(c_int) function swale_top_at(top, index, record) bind(C, name="swale_top_at")
      import :: c_int, c_size_t, swale_top, swale_top_record
      type(swale_top), value :: top
      integer(c_size_t), value :: index
      type(swale_top_record), intent(inout) :: record
    end function
    integer(c_int) function swale_top_get_stats(top, stats) bind(C, name="swale_top_get_stats")
      import :: c_int, swale_top, swale_top_stats
      type(swale_top), value :: top
      type(swale_top_stats), intent(inout) :: stats
    end function
    subroutine swale_top_free(top) bind(C, name="swale_top_free")
      import :: swale_top
      type(swale_top), value :: top
    end subroutine

    integer(c_int) function swale_subfile_close(file) bind(C, name="swale_subfile_close")
      import :: c_int, swale_subfile
      type(swale_subfile), value :: file
    end function

    integer(c_int) function swale_meta_close(meta) bind(C, name="swale_meta_close")
      import :: c_int, swale_meta
      type(swale_meta), value :: meta
    end function
    integer(c_int) function swale_meta_file_close(file) bind(C, name="swale_meta_file_close")
      import :: c_int, swale_meta_file
      type(swale_meta_file), value :: file
    end function
    integer(c_int) function swale_meta_put(file, segments, count) bind(C, name="swale_meta_put")
      import :: c_int, c_size_t, swale_meta_file, swale_meta_segment
      type(swale_meta_file), value :: file
      type(swale_meta_segment), intent(in) :: segments(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function swale_meta_get(file, ranges, count, found) bind(C, name="swale_meta_get")
      import :: c_int, c_size_t, swale_meta_file, swale_meta_found, swale_meta_range
      type(swale_meta_file), value :: file
      type(swale_meta_range), intent(in) :: ranges(*)
      integer(c_size_t), value :: count
      type(swale_meta_found), intent(out) :: found
    end function
    integer(c_int) function swale_meta_found_at(found, index, segments, count) &
        bind(C, name="swale_meta_found_at")
      import :: c_int, c_ptr, c_size_t, swale_meta_found
      type(swale_meta_found), value :: found
      integer(c_size_t), value :: index
      type(c_ptr), intent(out) :: segments
      integer(c_size_t), intent(out) :: count
    end function
    subroutine swale_meta_found_free(found) bind(C, name="swale_meta_found_free")
      import :: swale_meta_found
      type(swale_meta_found), value :: found
    end subroutine
    integer(c_int) function swale_meta_get_runs(file, queries, count, found) &
        bind(C, name="swale_meta_get_runs")
      import :: c_int, c_size_t, swale_meta_file, swale_meta_found_runs, swale_meta_run
      type(swale_meta_file), value :: file
      type(swale_meta_run), intent(in) :: queries(*)
      integer(c_size_t), value :: count
      type(swale_meta_found_runs), intent(out) :: found
    end function
    integer(c_int) function swale_meta_found_runs_at(found, index, runs, count) &
        bind(C, name="swale_meta_found_runs_at")
      import :: c_int, c_ptr, c_size_t, swale_meta_found_runs
      type(swale_meta_found_runs), value :: found
      integer(c_size_t), value :: index
      type(c_ptr), intent(out) :: runs
      integer(c_size_t), intent(out) :: count
    end function
    subroutine swale_meta_found_runs_free(found) bind(C, name="swale_meta_found_runs_free")
      import :: swale_meta_found_runs
      type(swale_meta_found_runs), value :: found
    end subroutine
    integer(c_int) function swale_meta_scan(file, offset, fn, context) bind(C, name="swale_meta_scan")
      import :: c_funptr, c_int, c_int64_t, c_ptr, swale_meta_file
      type(swale_meta_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_meta_truncate(file, size) bind(C, name="swale_meta_truncate")
      import :: c_int, c_int64_t, swale_meta_file
      type(swale_meta_file), value :: file
      integer(c_int64_t), value :: size
    end function
    integer(c_int) function swale_meta_seal(file) bind(C, name="swale_meta_seal")
      import :: c_int, swale_meta_file
      type(swale_meta_file), value :: file
    end function
    integer(c_int) function swale_meta_relocate(meta, from, first, last, to, address) &
        bind(C, name="swale_meta_relocate")
      import :: c_int, c_int32_t, c_int64_t, swale_meta
      type(swale_meta), value :: meta
      integer(c_int32_t), value :: from
      integer(c_int64_t), value :: first
      integer(c_int64_t), value :: last
      integer(c_int32_t), value :: to
      integer(c_int64_t), value :: address
    end function
    integer(c_int) function swale_meta_stats(meta, stats) bind(C, name="swale_meta_stats")
      import :: c_int, swale_meta, swale_stats
      type(swale_meta), value :: meta
      type(swale_stats), intent(out) :: stats
    end function
    integer(c_int) function swale_iond_close(iond) bind(C, name="swale_iond_close")
      import :: c_int, swale_iond
      type(swale_iond), value :: iond
    end function
    integer(c_int) function swale_iond_file_close(file) bind(C, name="swale_iond_file_close")
      import :: c_int, swale_iond_file
      type(swale_iond_file), value :: file
    end function
    integer(c_int) function swale_iond_truncate(file, size) bind(C, name="swale_iond_truncate")
      import :: c_int, c_int64_t, swale_iond_file
      type(swale_iond_file), value :: file
      integer(c_int64_t), value :: size
    end function
    integer(c_int) function swale_iond_sync(file) bind(C, name="swale_iond_sync")
      import :: c_int, swale_iond_file
      type(swale_iond_file), value :: file
    end function
    integer(c_int) function swale_iond_file_stat(file, attributes) bind(C, name="swale_iond_file_stat")
      import :: c_int, swale_attributes, swale_iond_file
      type(swale_iond_file), value :: file
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function swale_iond_drain(iond) bind(C, name="swale_iond_drain")
      import :: c_int, swale_iond
      type(swale_iond), value :: iond
    end function
    integer(c_int) function swale_iond_stats(iond, stats) bind(C, name="swale_iond_stats")
      import :: c_int, swale_iond, swale_stats
      type(swale_iond), value :: iond
      type(swale_stats), intent(out) :: stats
    end function
    integer(c_int) function swale_tier_close(tier) bind(C, name="swale_tier_close")
      import :: c_int, swale_tier
      type(swale_tier), value :: tier
    end function
    integer(c_int) function swale_tier_file_close(file) bind(C, name="swale_tier_file_close")
      import :: c_int, swale_tier_file
      type(swale_tier_file), value :: file
    end function
    integer(c_int) function swale_tier_truncate(file, size) bind(C, name="swale_tier_truncate")
      import :: c_int, c_int64_t, swale_tier_file
      type(swale_tier_file), value :: file
      integer(c_int64_t), value :: size
    end function
    integer(c_int) function swale_tier_sync(file) bind(C, name="swale_tier_sync")
      import :: c_int, swale_tier_file
      type(swale_tier_file), value :: file
    end function
    integer(c_int) function swale_tier_file_stat(file, attributes) bind(C, name="swale_tier_file_stat")
      import :: c_int, swale_attributes, swale_tier_file
      type(swale_tier_file), value :: file
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function swale_tier_drain(tier) bind(C, name="swale_tier_drain")
      import :: c_int, swale_tier
      type(swale_tier), value :: tier
    end function
    integer(c_int) function swale_tier_stats(tier, stats) bind(C, name="swale_tier_stats")
      import :: c_int, swale_stats, swale_tier
      type(swale_tier), value :: tier
      type(swale_stats), intent(out) :: stats
    end function
    integer(c_int) function swale_tier_losses(tier, fn, context) bind(C, name="swale_tier_losses")
      import :: c_funptr, c_int, c_ptr, swale_tier
      type(swale_tier), value :: tier
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function swale_fs_close(file) bind(C, name="swale_fs_close")
      import :: c_int, swale_fs_file
      type(swale_fs_file), value :: file
    end function
    integer(c_int) function swale_fs_pwritev(file, offset, parts, count) bind(C, name="swale_fs_pwritev")
      import :: c_int, c_int64_t, c_size_t, swale_fs_file, swale_fs_part
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: offset
      type(swale_fs_part), intent(in) :: parts(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function swale_fs_preadv(file, offset, parts, count, got) bind(C, name="swale_fs_preadv")
      import :: c_int, c_int64_t, c_size_t, swale_fs_file, swale_fs_space
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: offset
      type(swale_fs_space), intent(in) :: parts(*)
      integer(c_size_t), value :: count
      integer(c_size_t), intent(out) :: got
    end function
    integer(c_int) function swale_fs_commit(file) bind(C, name="swale_fs_commit")
      import :: c_int, swale_fs_file
      type(swale_fs_file), value :: file
    end function
    integer(c_int) function swale_fs_sync(file) bind(C, name="swale_fs_sync")
      import :: c_int, swale_fs_file
      type(swale_fs_file), value :: file
    end function
    integer(c_int) function swale_fs_truncate(file, size) bind(C, name="swale_fs_truncate")
      import :: c_int, c_int64_t, swale_fs_file
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: size
    end function
    integer(c_int) function swale_fs_stat(file, attributes) bind(C, name="swale_fs_stat")
      import :: c_int, swale_attributes, swale_fs_file
      type(swale_fs_file), value :: file
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function swale_fs_writes_by_log(file, by_log) bind(C, name="swale_fs_writes_by_log")
      import :: c_int, swale_fs_file
      type(swale_fs_file), value :: file
      integer(c_int), intent(out) :: by_log
    end function
  end interface

  public :: swale_job_rank, swale_job_size, swale_job_close, swale_dir_epoch_end, swale_dir_epoch_end_begin, &
    swale_dir_epoch_end_wait, swale_dir_pause, swale_dir_resume, swale_dir_close, swale_reader_close, &
    swale_reader_epoch_count, swale_reader_epoch_info, swale_values_count, swale_values_at, swale_values_free, &
    swale_reader_get_many, swale_reader_scan, swale_reader_scan_part, swale_reader_keys, swale_reader_count, &
    swale_reader_warm, swale_reader_stats, &
    swale_reader_refresh, swale_reader_sample, swale_reader_epoch_stats, swale_dir_stats, swale_stats_count, &
    swale_stats_at, swale_stats_ranks, swale_stats_free, swale_top_count, swale_top_at, swale_top_get_stats, &
    swale_top_free, swale_subfile_close

  public :: swale_meta_close, swale_meta_file_close, swale_meta_put, swale_meta_get, swale_meta_found_at, &
    swale_meta_found_free, swale_meta_get_runs, swale_meta_found_runs_at, swale_meta_found_runs_free, &
    swale_meta_scan, swale_meta_truncate, swale_meta_seal, swale_meta_relocate, swale_meta_stats, &
    swale_iond_close, swale_iond_file_close, swale_iond_truncate, swale_iond_sync, swale_iond_file_stat, &
    swale_iond_drain, swale_iond_stats, swale_tier_close, swale_tier_file_close, swale_tier_truncate, &
    swale_tier_sync, swale_tier_file_stat, swale_tier_drain, swale_tier_stats, swale_tier_losses, &
    swale_fs_close, swale_fs_pwritev, swale_fs_preadv, swale_fs_commit, swale_fs_sync, swale_fs_truncate, swale_fs_stat, &
    swale_fs_writes_by_log

  ! ---- Calls with text or any bytes: below are the C functions; after `contains` follows what Fortran calls -----------

  interface
    type(c_ptr) function c_version() bind(C, name="swale_version")
      import :: c_ptr
    end function
    type(c_ptr) function c_code_name(code) bind(C, name="swale_code_name")
      import :: c_int, c_ptr
      integer(c_int), value :: code
    end function
    type(c_ptr) function c_last_error() bind(C, name="swale_last_error")
      import :: c_ptr
    end function
    type(c_ptr) function c_reader_schema(reader) bind(C, name="swale_reader_schema")
      import :: c_ptr, swale_reader
      type(swale_reader), value :: reader
    end function
    type(c_ptr) function c_reader_key_type(reader) bind(C, name="swale_reader_key_type")
      import :: c_ptr, swale_reader
      type(swale_reader), value :: reader
    end function
    type(c_ptr) function c_stats_json(stats) bind(C, name="swale_stats_json")
      import :: c_ptr, swale_stats
      type(swale_stats), value :: stats
    end function
    integer(c_int) function c_job_open(comm, options, job) bind(C, name="swale_job_open")
      import :: c_char, c_int, swale_comm, swale_job
      type(swale_comm), intent(in), optional :: comm
      character(kind=c_char), intent(in) :: options(*)
      type(swale_job), intent(out) :: job
    end function
    integer(c_int) function c_dir_open(job, path, flags, options, dir) bind(C, name="swale_dir_open")
      import :: c_char, c_int, swale_dir, swale_job
      type(swale_job), value :: job
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      character(kind=c_char), intent(in) :: options(*)
      type(swale_dir), intent(out) :: dir
    end function
    integer(c_int) function c_dir_open_partitioned(job, path, flags, options, fn, context, dir) &
        bind(C, name="swale_dir_open_partitioned")
      import :: c_char, c_funptr, c_int, c_ptr, swale_dir, swale_job
      type(swale_job), value :: job
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      character(kind=c_char), intent(in) :: options(*)
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
      type(swale_dir), intent(out) :: dir
    end function
    integer(c_int) function c_dir_set_attributes(dir, what, json) bind(C, name="swale_dir_set_attributes")
      import :: c_char, c_int, swale_dir
      type(swale_dir), value :: dir
      integer(c_int), value :: what
      character(kind=c_char), intent(in) :: json(*)
    end function
    integer(c_int) function c_reader_attributes(reader, what, epoch, json, json_bytes, needed) &
        bind(C, name="swale_reader_attributes")
      import :: c_char, c_int, c_int64_t, c_size_t, swale_reader
      type(swale_reader), value :: reader
      integer(c_int), value :: what
      integer(c_int64_t), value :: epoch
      character(kind=c_char), intent(out) :: json(*)
      integer(c_size_t), value :: json_bytes
      integer(c_size_t), intent(out) :: needed
    end function
    integer(c_int) function c_reader_set_partitioner(reader, name, fn, context) &
        bind(C, name="swale_reader_set_partitioner")
      import :: c_char, c_funptr, c_int, c_ptr, swale_reader
      type(swale_reader), value :: reader
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function c_stats_find(stats, name, stat) bind(C, name="swale_stats_find")
      import :: c_char, c_int, swale_stat, swale_stats
      type(swale_stats), value :: stats
      character(kind=c_char), intent(in) :: name(*)
      type(swale_stat), intent(inout) :: stat
    end function
    integer(c_int) function c_dir_append(dir, key, key_bytes, value, value_bytes) bind(C, name="swale_dir_append")
      import :: c_int, c_ptr, c_size_t, swale_dir
      type(swale_dir), value :: dir
      type(c_ptr), value :: key
      integer(c_size_t), value :: key_bytes
      type(c_ptr), value :: value
      integer(c_size_t), value :: value_bytes
    end function
    integer(c_int) function c_reader_open(path, options, reader) bind(C, name="swale_reader_open")
      import :: c_char, c_int, swale_reader
      character(kind=c_char), intent(in) :: path(*)
      character(kind=c_char), intent(in) :: options(*)
      type(swale_reader), intent(out) :: reader
    end function
    integer(c_int) function c_reader_get(reader, key, key_bytes, epoch, values) bind(C, name="swale_reader_get")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_reader, swale_values
      type(swale_reader), value :: reader
      type(c_ptr), value :: key
      integer(c_size_t), value :: key_bytes
      integer(c_int64_t), value :: epoch
      type(swale_values), intent(out) :: values
    end function
    integer(c_int) function c_reader_top(reader, field, epoch, k, which, top) bind(C, name="swale_reader_top")
      import :: c_char, c_int, c_int64_t, c_size_t, swale_reader, swale_top
      type(swale_reader), value :: reader
      character(kind=c_char), intent(in) :: field(*)
      integer(c_int64_t), value :: epoch
      integer(c_size_t), value :: k
      integer(c_int), value :: which
      type(swale_top), intent(out) :: top
    end function
    integer(c_int) function c_dir_make(job, path, options) bind(C, name="swale_dir_make")
      import :: c_char, c_int, swale_job
      type(swale_job), value :: job
      character(kind=c_char), intent(in) :: path(*)
      character(kind=c_char), intent(in) :: options(*)
    end function
    integer(c_int) function c_subfile_open_write(dir, name, file) bind(C, name="swale_subfile_open_write")
      import :: c_char, c_int, swale_dir, swale_subfile
      type(swale_dir), value :: dir
      character(kind=c_char), intent(in) :: name(*)
      type(swale_subfile), intent(out) :: file
    end function
    integer(c_int) function c_subfile_open_read(reader, name, file) bind(C, name="swale_subfile_open_read")
      import :: c_char, c_int, swale_subfile, swale_reader
      type(swale_reader), value :: reader
      character(kind=c_char), intent(in) :: name(*)
      type(swale_subfile), intent(out) :: file
    end function
    integer(c_int) function c_subfile_write(file, data, bytes) bind(C, name="swale_subfile_write")
      import :: c_int, c_ptr, c_size_t, swale_subfile
      type(swale_subfile), value :: file
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_subfile_read(file, data, bytes, bytes_read) bind(C, name="swale_subfile_read")
      import :: c_int, c_ptr, c_size_t, swale_subfile
      type(swale_subfile), value :: file
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_size_t), intent(out) :: bytes_read
    end function
    integer(c_int) function c_meta_open(job, path, flags, options, meta) bind(C, name="swale_meta_open")
      import :: c_char, c_int, swale_job, swale_meta
      type(swale_job), value :: job
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      character(kind=c_char), intent(in) :: options(*)
      type(swale_meta), intent(out) :: meta
    end function
    integer(c_int) function c_meta_file_open(meta, name, flags, mode, file) &
        bind(C, name="swale_meta_file_open")
      import :: c_char, c_int, c_int32_t, swale_meta, swale_meta_file
      type(swale_meta), value :: meta
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: flags
      integer(c_int32_t), value :: mode
      type(swale_meta_file), intent(out) :: file
    end function
    integer(c_int) function c_meta_stat(meta, name, attributes) bind(C, name="swale_meta_stat")
      import :: c_char, c_int, swale_attributes, swale_meta
      type(swale_meta), value :: meta
      character(kind=c_char), intent(in) :: name(*)
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function c_meta_remove(meta, name) bind(C, name="swale_meta_remove")
      import :: c_char, c_int, swale_meta
      type(swale_meta), value :: meta
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_iond_open(job, flags, options, iond) bind(C, name="swale_iond_open")
      import :: c_char, c_int, swale_iond, swale_job
      type(swale_job), value :: job
      integer(c_int), value :: flags
      character(kind=c_char), intent(in) :: options(*)
      type(swale_iond), intent(out) :: iond
    end function
    integer(c_int) function c_iond_file_open(iond, name, flags, mode, file) &
        bind(C, name="swale_iond_file_open")
      import :: c_char, c_int, c_int32_t, swale_iond, swale_iond_file
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: flags
      integer(c_int32_t), value :: mode
      type(swale_iond_file), intent(out) :: file
    end function
    integer(c_int) function c_iond_write(file, offset, data, bytes) bind(C, name="swale_iond_write")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_iond_file
      type(swale_iond_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_iond_read(file, offset, data, bytes, got) bind(C, name="swale_iond_read")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_iond_file
      type(swale_iond_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_size_t), intent(out) :: got
    end function
    integer(c_int) function c_iond_stat(iond, name, attributes) bind(C, name="swale_iond_stat")
      import :: c_char, c_int, swale_attributes, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function c_iond_remove(iond, name) bind(C, name="swale_iond_remove")
      import :: c_char, c_int, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_iond_rename(iond, from, to) bind(C, name="swale_iond_rename")
      import :: c_char, c_int, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: from(*)
      character(kind=c_char), intent(in) :: to(*)
    end function
    integer(c_int) function c_iond_mkdir(iond, name, mode) bind(C, name="swale_iond_mkdir")
      import :: c_char, c_int, c_int32_t, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: mode
    end function
    integer(c_int) function c_iond_rmdir(iond, name) bind(C, name="swale_iond_rmdir")
      import :: c_char, c_int, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_iond_list(iond, name, fn, context) bind(C, name="swale_iond_list")
      import :: c_char, c_funptr, c_int, c_ptr, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function c_iond_set_mode(iond, name, mode) bind(C, name="swale_iond_set_mode")
      import :: c_char, c_int, c_int32_t, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int32_t), value :: mode
    end function
    integer(c_int) function c_iond_set_modified(iond, name, modified_ns) &
        bind(C, name="swale_iond_set_modified")
      import :: c_char, c_int, c_int64_t, swale_iond
      type(swale_iond), value :: iond
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: modified_ns
    end function
    integer(c_int) function c_tier_open(backing, ssd, flags, options, tier) bind(C, name="swale_tier_open")
      import :: c_char, c_int, swale_tier
      character(kind=c_char), intent(in) :: backing(*)
      character(kind=c_char), intent(in) :: ssd(*)
      integer(c_int), value :: flags
      character(kind=c_char), intent(in) :: options(*)
      type(swale_tier), intent(out) :: tier
    end function
    integer(c_int) function c_tier_file_open(tier, name, flags, mode, file) &
        bind(C, name="swale_tier_file_open")
      import :: c_char, c_int, c_int32_t, swale_tier, swale_tier_file
      type(swale_tier), value :: tier
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: flags
      integer(c_int32_t), value :: mode
      type(swale_tier_file), intent(out) :: file
    end function
    integer(c_int) function c_tier_write(file, offset, data, bytes) bind(C, name="swale_tier_write")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_tier_file
      type(swale_tier_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_tier_read(file, offset, data, bytes, got) bind(C, name="swale_tier_read")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_tier_file
      type(swale_tier_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_size_t), intent(out) :: got
    end function
    integer(c_int) function c_tier_stat(tier, name, attributes) bind(C, name="swale_tier_stat")
      import :: c_char, c_int, swale_attributes, swale_tier
      type(swale_tier), value :: tier
      character(kind=c_char), intent(in) :: name(*)
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function c_tier_remove(tier, name) bind(C, name="swale_tier_remove")
      import :: c_char, c_int, swale_tier
      type(swale_tier), value :: tier
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_tier_rename(tier, from, to) bind(C, name="swale_tier_rename")
      import :: c_char, c_int, swale_tier
      type(swale_tier), value :: tier
      character(kind=c_char), intent(in) :: from(*)
      character(kind=c_char), intent(in) :: to(*)
    end function
    integer(c_int) function c_fs_open(path, flags, mode, file) bind(C, name="swale_fs_open")
      import :: c_char, c_int, c_int32_t, swale_fs_file
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      integer(c_int32_t), value :: mode
      type(swale_fs_file), intent(out) :: file
    end function
    integer(c_int) function c_fs_seal(path) bind(C, name="swale_fs_seal")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function c_fs_unseal(path) bind(C, name="swale_fs_unseal")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function c_fs_stat_path(path, attributes) bind(C, name="swale_fs_stat_path")
      import :: c_char, c_int, swale_attributes
      character(kind=c_char), intent(in) :: path(*)
      type(swale_attributes), intent(inout) :: attributes
    end function
    integer(c_int) function c_fs_mkdir(path, mode) bind(C, name="swale_fs_mkdir")
      import :: c_char, c_int, c_int32_t
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: mode
    end function
    integer(c_int) function c_fs_rmdir(path) bind(C, name="swale_fs_rmdir")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function c_fs_remove(path) bind(C, name="swale_fs_remove")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function c_fs_rename(from, to) bind(C, name="swale_fs_rename")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: from(*)
      character(kind=c_char), intent(in) :: to(*)
    end function
    integer(c_int) function c_fs_list(path, fn, context) bind(C, name="swale_fs_list")
      import :: c_char, c_funptr, c_int, c_ptr
      character(kind=c_char), intent(in) :: path(*)
      type(c_funptr), value :: fn
      type(c_ptr), value :: context
    end function
    integer(c_int) function c_fs_pwrite(file, offset, data, bytes) bind(C, name="swale_fs_pwrite")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_fs_file
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_fs_write_many(file, offset, stride, data, record_bytes, count) &
        bind(C, name="swale_fs_write_many")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_fs_file
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: offset
      integer(c_int64_t), value :: stride
      type(c_ptr), value :: data
      integer(c_size_t), value :: record_bytes
      integer(c_size_t), value :: count
    end function
    integer(c_int) function c_fs_write(file, data, bytes) bind(C, name="swale_fs_write")
      import :: c_int, c_ptr, c_size_t, swale_fs_file
      type(swale_fs_file), value :: file
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function c_fs_pread(file, offset, data, bytes, got) bind(C, name="swale_fs_pread")
      import :: c_int, c_int64_t, c_ptr, c_size_t, swale_fs_file
      type(swale_fs_file), value :: file
      integer(c_int64_t), value :: offset
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_size_t), intent(out) :: got
    end function

    integer(c_size_t) function c_length(text) bind(C, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

  public :: swale_version, swale_code_name, swale_last_error, swale_reader_schema, swale_reader_key_type, &
    swale_job_open, swale_dir_open, &
    swale_dir_append, swale_reader_open, swale_reader_get, swale_reader_top, swale_dir_make, &
    swale_subfile_open_write, swale_subfile_open_read, swale_subfile_write, swale_subfile_read, &
    swale_dir_open_partitioned, swale_reader_set_partitioner, swale_stats_find, swale_stats_json, &
    swale_dir_set_attributes, swale_reader_attributes
  public :: swale_meta_open, swale_meta_file_open, swale_meta_stat, swale_meta_remove, swale_iond_open, &
    swale_iond_file_open, swale_iond_write, swale_iond_read, swale_iond_stat, swale_iond_remove, &
    swale_iond_rename, swale_iond_mkdir, swale_iond_rmdir, swale_iond_list, swale_iond_set_mode, &
    swale_iond_set_modified, swale_tier_open, swale_tier_file_open, swale_tier_write, swale_tier_read, &
    swale_tier_stat, swale_tier_remove, swale_tier_rename, swale_fs_open, swale_fs_pwrite, &
    swale_fs_write_many, swale_fs_write, swale_fs_pread, swale_fs_seal, swale_fs_unseal, &
    swale_fs_stat_path, swale_fs_mkdir, swale_fs_rmdir, swale_fs_remove, swale_fs_rename, swale_fs_list

contains

  ! A C string.
  function as_c(text) result(string)
    character(len=*), intent(in), optional :: text
    character(len=:, kind=c_char), allocatable :: string
    string = c_null_char
    if (present(text)) string = trim(text)//c_null_char
  end function

  function from_c(string) result(text)
    type(c_ptr), intent(in) :: string
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    text = ""
    if (.not. c_associated(string)) return
    call c_f_pointer(string, letters, [c_length(string)])
    text = repeat(" ", size(letters))
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  function swale_version() result(text)
    character(len=:), allocatable :: text
    text = from_c(c_version())
  end function

  function swale_code_name(code) result(text)
    integer(c_int), intent(in) :: code
    character(len=:), allocatable :: text
    text = from_c(c_code_name(code))
  end function

  function swale_last_error() result(text)
    character(len=:), allocatable :: text
    text = from_c(c_last_error())
  end function

  function swale_reader_schema(reader) result(text)
    type(swale_reader), intent(in) :: reader
    character(len=:), allocatable :: text
    text = from_c(c_reader_schema(reader))
  end function

  ! Empty if memory is short.
  function swale_stats_json(stats) result(text)
    type(swale_stats), intent(in) :: stats
    character(len=:), allocatable :: text
    text = from_c(c_stats_json(stats))
  end function

  function swale_reader_key_type(reader) result(text)
    type(swale_reader), intent(in) :: reader
    character(len=:), allocatable :: text
    text = from_c(c_reader_key_type(reader))
  end function

  integer(c_int) function swale_job_open(comm, options, job) result(code)
    type(swale_comm), intent(in), optional :: comm
    character(len=*), intent(in), optional :: options
    type(swale_job), intent(inout) :: job
    code = c_job_open(comm, as_c(options), job)
  end function

  integer(c_int) function swale_dir_open(job, path, flags, options, dir) result(code)
    type(swale_job), intent(in) :: job
    character(len=*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    character(len=*), intent(in), optional :: options
    type(swale_dir), intent(inout) :: dir
    code = c_dir_open(job, as_c(path), flags, as_c(options), dir)
  end function

  integer(c_int) function swale_dir_open_partitioned(job, path, flags, options, fn, context, dir) result(code)
    type(swale_job), intent(in) :: job
    character(len=*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    character(len=*), intent(in) :: options
    type(c_funptr), intent(in) :: fn
    type(c_ptr), intent(in) :: context
    type(swale_dir), intent(inout) :: dir
    code = c_dir_open_partitioned(job, as_c(path), flags, as_c(options), fn, context, dir)
  end function

  integer(c_int) function swale_dir_set_attributes(dir, what, json) result(code)
    type(swale_dir), intent(in) :: dir
    integer(c_int), intent(in) :: what
    character(len=*), intent(in) :: json
    code = c_dir_set_attributes(dir, what, as_c(json))
  end function

  ! `json` gets the length that it needs.
  integer(c_int) function swale_reader_attributes(reader, what, epoch, json) result(code)
    type(swale_reader), intent(in) :: reader
    integer(c_int), intent(in) :: what
    integer(c_int64_t), intent(in) :: epoch
    character(len=:), allocatable, intent(inout) :: json
    character(len=:), allocatable :: text
    integer(c_size_t) :: needed
    allocate(character(len=SWALE_ATTRIBUTES_BYTES_MAX + 1) :: text)
    code = c_reader_attributes(reader, what, epoch, text, len(text, c_size_t), needed)
    if (code == SWALE_OK) json = text(1:needed - 1)
  end function

  integer(c_int) function swale_reader_set_partitioner(reader, name, fn, context) result(code)
    type(swale_reader), intent(in) :: reader
    character(len=*), intent(in) :: name
    type(c_funptr), intent(in) :: fn
    type(c_ptr), intent(in) :: context
    code = c_reader_set_partitioner(reader, as_c(name), fn, context)
  end function

  integer(c_int) function swale_stats_find(stats, name, stat) result(code)
    type(swale_stats), intent(in) :: stats
    character(len=*), intent(in) :: name
    type(swale_stat), intent(inout) :: stat
    code = c_stats_find(stats, as_c(name), stat)
  end function

  integer(c_int) function swale_dir_append(dir, key, key_bytes, value, value_bytes) result(code)
    type(swale_dir), intent(in) :: dir
    type(*), dimension(..), intent(in), target, contiguous :: key
    integer(c_size_t), intent(in) :: key_bytes
    type(*), dimension(..), intent(in), target, contiguous :: value
    integer(c_size_t), intent(in) :: value_bytes
    code = c_dir_append(dir, c_loc(key), key_bytes, c_loc(value), value_bytes)
  end function

  integer(c_int) function swale_reader_open(path, options, reader) result(code)
    character(len=*), intent(in) :: path
    character(len=*), intent(in), optional :: options
    type(swale_reader), intent(inout) :: reader
    code = c_reader_open(as_c(path), as_c(options), reader)
  end function

  integer(c_int) function swale_reader_get(reader, key, key_bytes, epoch, values) result(code)
    type(swale_reader), intent(in) :: reader
    type(*), dimension(..), intent(in), target, contiguous :: key
    integer(c_size_t), intent(in) :: key_bytes
    integer(c_int64_t), intent(in) :: epoch
    type(swale_values), intent(inout) :: values
    code = c_reader_get(reader, c_loc(key), key_bytes, epoch, values)
  end function

  integer(c_int) function swale_reader_top(reader, field, epoch, k, which, top) result(code)
    type(swale_reader), intent(in) :: reader
    character(len=*), intent(in) :: field
    integer(c_int64_t), intent(in) :: epoch
    integer(c_size_t), intent(in) :: k
    integer(c_int), intent(in) :: which
    type(swale_top), intent(inout) :: top
    code = c_reader_top(reader, as_c(field), epoch, k, which, top)
  end function

  integer(c_int) function swale_dir_make(job, path, options) result(code)
    type(swale_job), intent(in) :: job
    character(len=*), intent(in) :: path
    character(len=*), intent(in), optional :: options
    code = c_dir_make(job, as_c(path), as_c(options))
  end function

  integer(c_int) function swale_subfile_open_write(dir, name, file) result(code)
    type(swale_dir), intent(in) :: dir
    character(len=*), intent(in) :: name
    type(swale_subfile), intent(inout) :: file
    code = c_subfile_open_write(dir, as_c(name), file)
  end function

  integer(c_int) function swale_subfile_open_read(reader, name, file) result(code)
    type(swale_reader), intent(in) :: reader
    character(len=*), intent(in) :: name
    type(swale_subfile), intent(inout) :: file
    code = c_subfile_open_read(reader, as_c(name), file)
  end function

  integer(c_int) function swale_subfile_write(file, data, bytes) result(code)
    type(swale_subfile), intent(in) :: file
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    code = c_subfile_write(file, c_loc(data), bytes)
  end function

  integer(c_int) function swale_subfile_read(file, data, bytes, bytes_read) result(code)
    type(swale_subfile), intent(in) :: file
    type(*), dimension(..), intent(inout), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    integer(c_size_t), intent(out) :: bytes_read
    code = c_subfile_read(file, c_loc(data), bytes, bytes_read)
  end function

  integer(c_int) function swale_meta_open(job, path, flags, options, meta) result(code)
    type(swale_job), intent(in) :: job
    character(len=*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    character(len=*), intent(in), optional :: options
    type(swale_meta), intent(inout) :: meta
    code = c_meta_open(job, as_c(path), flags, as_c(options), meta)
  end function

  integer(c_int) function swale_meta_file_open(meta, name, flags, mode, file) result(code)
    type(swale_meta), intent(in) :: meta
    character(len=*), intent(in) :: name
    integer(c_int), intent(in) :: flags
    integer(c_int32_t), intent(in) :: mode
    type(swale_meta_file), intent(inout) :: file
    code = c_meta_file_open(meta, as_c(name), flags, mode, file)
  end function

  integer(c_int) function swale_meta_stat(meta, name, attributes) result(code)
    type(swale_meta), intent(in) :: meta
    character(len=*), intent(in) :: name
    type(swale_attributes), intent(inout) :: attributes
    code = c_meta_stat(meta, as_c(name), attributes)
  end function

  integer(c_int) function swale_meta_remove(meta, name) result(code)
    type(swale_meta), intent(in) :: meta
    character(len=*), intent(in) :: name
    code = c_meta_remove(meta, as_c(name))
  end function

  integer(c_int) function swale_iond_open(job, flags, options, iond) result(code)
    type(swale_job), intent(in) :: job
    integer(c_int), intent(in) :: flags
    character(len=*), intent(in), optional :: options
    type(swale_iond), intent(inout) :: iond
    code = c_iond_open(job, flags, as_c(options), iond)
  end function

  integer(c_int) function swale_iond_file_open(iond, name, flags, mode, file) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    integer(c_int), intent(in) :: flags
    integer(c_int32_t), intent(in) :: mode
    type(swale_iond_file), intent(inout) :: file
    code = c_iond_file_open(iond, as_c(name), flags, mode, file)
  end function

  integer(c_int) function swale_iond_write(file, offset, data, bytes) result(code)
    type(swale_iond_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    code = c_iond_write(file, offset, c_loc(data), bytes)
  end function

  integer(c_int) function swale_iond_read(file, offset, data, bytes, got) result(code)
    type(swale_iond_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(inout), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    integer(c_size_t), intent(out) :: got
    code = c_iond_read(file, offset, c_loc(data), bytes, got)
  end function

  integer(c_int) function swale_iond_stat(iond, name, attributes) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    type(swale_attributes), intent(inout) :: attributes
    code = c_iond_stat(iond, as_c(name), attributes)
  end function

  integer(c_int) function swale_iond_remove(iond, name) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    code = c_iond_remove(iond, as_c(name))
  end function

  integer(c_int) function swale_iond_rename(iond, from, to) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: from
    character(len=*), intent(in) :: to
    code = c_iond_rename(iond, as_c(from), as_c(to))
  end function

  integer(c_int) function swale_iond_mkdir(iond, name, mode) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    integer(c_int32_t), intent(in) :: mode
    code = c_iond_mkdir(iond, as_c(name), mode)
  end function

  integer(c_int) function swale_iond_rmdir(iond, name) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    code = c_iond_rmdir(iond, as_c(name))
  end function

  integer(c_int) function swale_iond_list(iond, name, fn, context) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    type(c_funptr), intent(in) :: fn
    type(c_ptr), intent(in) :: context
    code = c_iond_list(iond, as_c(name), fn, context)
  end function

  integer(c_int) function swale_iond_set_mode(iond, name, mode) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    integer(c_int32_t), intent(in) :: mode
    code = c_iond_set_mode(iond, as_c(name), mode)
  end function

  integer(c_int) function swale_iond_set_modified(iond, name, modified_ns) result(code)
    type(swale_iond), intent(in) :: iond
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: modified_ns
    code = c_iond_set_modified(iond, as_c(name), modified_ns)
  end function

  integer(c_int) function swale_tier_open(backing, ssd, flags, options, tier) result(code)
    character(len=*), intent(in) :: backing
    character(len=*), intent(in) :: ssd
    integer(c_int), intent(in) :: flags
    character(len=*), intent(in), optional :: options
    type(swale_tier), intent(inout) :: tier
    code = c_tier_open(as_c(backing), as_c(ssd), flags, as_c(options), tier)
  end function

  integer(c_int) function swale_tier_file_open(tier, name, flags, mode, file) result(code)
    type(swale_tier), intent(in) :: tier
    character(len=*), intent(in) :: name
    integer(c_int), intent(in) :: flags
    integer(c_int32_t), intent(in) :: mode
    type(swale_tier_file), intent(inout) :: file
    code = c_tier_file_open(tier, as_c(name), flags, mode, file)
  end function

  integer(c_int) function swale_tier_write(file, offset, data, bytes) result(code)
    type(swale_tier_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    code = c_tier_write(file, offset, c_loc(data), bytes)
  end function

  integer(c_int) function swale_tier_read(file, offset, data, bytes, got) result(code)
    type(swale_tier_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(inout), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    integer(c_size_t), intent(out) :: got
    code = c_tier_read(file, offset, c_loc(data), bytes, got)
  end function

  integer(c_int) function swale_tier_stat(tier, name, attributes) result(code)
    type(swale_tier), intent(in) :: tier
    character(len=*), intent(in) :: name
    type(swale_attributes), intent(inout) :: attributes
    code = c_tier_stat(tier, as_c(name), attributes)
  end function

  integer(c_int) function swale_tier_remove(tier, name) result(code)
    type(swale_tier), intent(in) :: tier
    character(len=*), intent(in) :: name
    code = c_tier_remove(tier, as_c(name))
  end function

  integer(c_int) function swale_tier_rename(tier, from, to) result(code)
    type(swale_tier), intent(in) :: tier
    character(len=*), intent(in) :: from
    character(len=*), intent(in) :: to
    code = c_tier_rename(tier, as_c(from), as_c(to))
  end function

  integer(c_int) function swale_fs_open(path, flags, mode, file) result(code)
    character(len=*), intent(in) :: path
    integer(c_int), intent(in) :: flags
    integer(c_int32_t), intent(in) :: mode
    type(swale_fs_file), intent(inout) :: file
    code = c_fs_open(as_c(path), flags, mode, file)
  end function

  integer(c_int) function swale_fs_pwrite(file, offset, data, bytes) result(code)
    type(swale_fs_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    code = c_fs_pwrite(file, offset, c_loc(data), bytes)
  end function

  integer(c_int) function swale_fs_write_many(file, offset, stride, data, record_bytes, count) result(code)
    type(swale_fs_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    integer(c_int64_t), intent(in) :: stride
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: record_bytes
    integer(c_size_t), intent(in) :: count
    code = c_fs_write_many(file, offset, stride, c_loc(data), record_bytes, count)
  end function

  integer(c_int) function swale_fs_write(file, data, bytes) result(code)
    type(swale_fs_file), intent(in) :: file
    type(*), dimension(..), intent(in), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    code = c_fs_write(file, c_loc(data), bytes)
  end function

  integer(c_int) function swale_fs_pread(file, offset, data, bytes, got) result(code)
    type(swale_fs_file), intent(in) :: file
    integer(c_int64_t), intent(in) :: offset
    type(*), dimension(..), intent(inout), target, contiguous :: data
    integer(c_size_t), intent(in) :: bytes
    integer(c_size_t), intent(out) :: got
    code = c_fs_pread(file, offset, c_loc(data), bytes, got)
  end function

  integer(c_int) function swale_fs_seal(path) result(code)
    character(len=*), intent(in) :: path
    code = c_fs_seal(as_c(path))
  end function

  integer(c_int) function swale_fs_unseal(path) result(code)
    character(len=*), intent(in) :: path
    code = c_fs_unseal(as_c(path))
  end function

  integer(c_int) function swale_fs_stat_path(path, attributes) result(code)
    character(len=*), intent(in) :: path
    type(swale_attributes), intent(inout) :: attributes
    code = c_fs_stat_path(as_c(path), attributes)
  end function

  integer(c_int) function swale_fs_mkdir(path, mode) result(code)
    character(len=*), intent(in) :: path
    integer(c_int32_t), intent(in) :: mode
    code = c_fs_mkdir(as_c(path), mode)
  end function

  integer(c_int) function swale_fs_rmdir(path) result(code)
    character(len=*), intent(in) :: path
    code = c_fs_rmdir(as_c(path))
  end function

  integer(c_int) function swale_fs_remove(path) result(code)
    character(len=*), intent(in) :: path
    code = c_fs_remove(as_c(path))
  end function

  integer(c_int) function swale_fs_rename(from, to) result(code)
    character(len=*), intent(in) :: from
    character(len=*), intent(in) :: to
    code = c_fs_rename(as_c(from), as_c(to))
  end function

  integer(c_int) function swale_fs_list(path, fn, context) result(code)
    character(len=*), intent(in) :: path
    type(c_funptr), intent(in) :: fn
    type(c_ptr), intent(in) :: context
    code = c_fs_list(as_c(path), fn, context)
  end function

end module swale
