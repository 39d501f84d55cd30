! engines DIR: a tiered write buffer and a metadata store in DIR. engines --servers: files behind I/O servers.
! In Fortran.
! A callback stands in a module: an internal procedure would need an executable stack.
module engines_callbacks
  use, intrinsic :: iso_c_binding
  use swale, only: SWALE_IOND_FILE_ENTRY
  implicit none

contains

  integer(c_int) function note_loss(context, what) bind(C)
    type(c_ptr), value :: context
    type(c_ptr), value :: what
    integer, pointer :: counted
    call c_f_pointer(context, counted)
    if (c_associated(what)) counted = counted + 1
    note_loss = 0
  end function

  integer(c_int) function count_entry(context, name, kind) bind(C)
    type(c_ptr), value :: context
    type(c_ptr), value :: name
    integer(c_int), value :: kind
    integer, pointer :: counted
    call c_f_pointer(context, counted)
    if (c_associated(name) .and. kind == SWALE_IOND_FILE_ENTRY) counted = counted + 1
    count_entry = 0
  end function

end module engines_callbacks

program engines
  use, intrinsic :: iso_c_binding
  use swale
  use engines_callbacks
  implicit none

  character(len=1024) :: path
  integer, target :: losses = 0

  call get_command_argument(1, path)
  if (path == "--servers") then
    call use_servers()
  else
    call use_buffer(trim(path))
    call use_store(trim(path))
  end if
  print '(a)', "all engines from Fortran"

contains

  subroutine expect(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    print '(3a)', what, ": ", swale_last_error()
    error stop 1
  end subroutine

  subroutine must(code)
    integer(c_int), intent(in) :: code
    call expect(code == SWALE_OK, "a call failed")
  end subroutine

  integer(c_int64_t) function sum_of(stats, name)
    type(swale_stats), intent(inout) :: stats
    character(len=*), intent(in) :: name
    type(swale_stat) :: stat
    call must(swale_stats_find(stats, name, stat))
    call expect(index(swale_stats_json(stats), '"'//name//'":{"unit":') > 0, "the counters as text")
    call swale_stats_free(stats)
    sum_of = stat%sum
  end function

  subroutine use_buffer(directory)
    character(len=*), intent(in) :: directory
    type(swale_tier) :: tier
    type(swale_tier_file) :: file
    type(swale_attributes) :: attributes
    type(swale_stats) :: stats
    real(c_double) :: field(1000), back(1000)
    integer(c_size_t) :: got
    integer :: i
    field = [(0.5_c_double*i, i=1, 1000)]
    call must(swale_tier_open(directory//"/slow", directory//"/ssd", SWALE_CREATE, "tier.size=16M", tier))
    call must(swale_tier_file_open(tier, "field", SWALE_CREATE, int(o'644', c_int32_t), file))
    call must(swale_tier_write(file, 4096_c_int64_t, field, c_sizeof(field)))
    call must(swale_tier_sync(file))
    call must(swale_tier_read(file, 4096_c_int64_t, back, c_sizeof(back), got))
    call expect(got == 8000 .and. all(back == field), "what was written to the buffer")
    call must(swale_tier_file_stat(file, attributes))
    call expect(attributes%size == 12096, "the file's size")
    call must(swale_tier_truncate(file, 100_c_int64_t))
    call must(swale_tier_file_close(file))
    call must(swale_tier_rename(tier, "field", "cut"))
    call must(swale_tier_stat(tier, "cut", attributes))
    call expect(attributes%size == 100, "the size after a cut")
    call must(swale_tier_losses(tier, c_funloc(note_loss), c_loc(losses)))
    call expect(losses == 0, "nothing is lost")
    call must(swale_tier_drain(tier))
    call must(swale_tier_stats(tier, stats))
    call expect(sum_of(stats, "write.bytes") == 8000, "the buffer's counters")
    call must(swale_tier_remove(tier, "cut"))
    call expect(swale_tier_stat(tier, "cut", attributes) == SWALE_NOT_FOUND, "a file that was removed")
    call must(swale_tier_close(tier))
  end subroutine

  subroutine use_store(directory)
    character(len=*), intent(in) :: directory
    type(swale_job) :: job
    type(swale_meta) :: store
    type(swale_meta_file) :: file
    type(swale_meta_segment) :: segments(2)
    type(swale_meta_range) :: ranges(1)
    type(swale_meta_run) :: query(1)
    type(swale_meta_found) :: found
    type(swale_meta_found_runs) :: runs
    type(swale_attributes) :: attributes
    type(swale_stats) :: stats
    type(swale_meta_segment), pointer :: pieces(:)
    type(c_ptr) :: place
    integer(c_size_t) :: pieces_count
    segments(1) = swale_meta_segment(offset=0, length=100, address=700, log=3)
    segments(2) = swale_meta_segment(offset=200, length=100, address=800, log=3)
    ranges(1) = swale_meta_range(offset=50, length=200)
    call must(swale_job_open(job=job))
    call must(swale_meta_open(job, directory//"/fortran-meta", SWALE_CREATE, meta=store))
    call must(swale_meta_file_open(store, "f", SWALE_CREATE + SWALE_EXCLUSIVE, int(o'640', c_int32_t), file))
    call must(swale_meta_put(file, segments, 2_c_size_t))
    call must(swale_meta_get(file, ranges, 1_c_size_t, found))
    call must(swale_meta_found_at(found, 0_c_size_t, place, pieces_count))
    call expect(pieces_count == 2, "two pieces and a hole")
    call c_f_pointer(place, pieces, [pieces_count])
    call expect(pieces(1)%address == 750 .and. pieces(2)%length == 50 .and. pieces(2)%log == 3, "where the bytes are")
    call swale_meta_found_free(found)
    query(1)%length = 100
    query(1)%levels = 1
    query(1)%level(1) = swale_meta_level(count=2, stride=200)
    call must(swale_meta_get_runs(file, query, 1_c_size_t, runs))
    call must(swale_meta_found_runs_at(runs, 0_c_size_t, place, pieces_count))
    call expect(pieces_count >= 1, "a run")
    call swale_meta_found_runs_free(runs)
    call must(swale_meta_truncate(file, 150_c_int64_t))
    call must(swale_meta_seal(file))
    call must(swale_meta_file_close(file))
    call must(swale_meta_stat(store, "f", attributes))
    call expect(attributes%size == 150 .and. attributes%sealed == 1, "the file's attributes")
    call must(swale_meta_relocate(store, 3_c_int32_t, 0_c_int64_t, 1000_c_int64_t, 4_c_int32_t, 0_c_int64_t))
    call must(swale_meta_stats(store, stats))
    call expect(sum_of(stats, "put.requests") >= 1, "the store's counters")
    call must(swale_meta_remove(store, "f"))
    call must(swale_meta_close(store))
    call must(swale_job_close(job))
  end subroutine

  subroutine use_servers()
    type(swale_job) :: job
    type(swale_iond) :: servers
    type(swale_iond_file) :: file
    type(swale_attributes) :: attributes
    type(swale_stats) :: stats
    integer(c_int64_t) :: data(5000), back(5000)
    integer(c_size_t) :: got
    integer, target :: entries
    data = 17
    call must(swale_job_open(job=job))
    call must(swale_iond_open(job, 0, iond=servers))
    call must(swale_iond_file_open(servers, "f", SWALE_CREATE, int(o'640', c_int32_t), file))
    call must(swale_iond_write(file, 8_c_int64_t, data, c_sizeof(data)))
    call must(swale_iond_sync(file))
    call must(swale_iond_read(file, 8_c_int64_t, back, c_sizeof(back), got))
    call expect(got == 40000 .and. all(back == data), "what was written to the servers")
    call must(swale_iond_truncate(file, 1000_c_int64_t))
    call must(swale_iond_file_stat(file, attributes))
    call expect(attributes%size == 1000, "the size after a cut")
    call must(swale_iond_file_close(file))
    call must(swale_iond_mkdir(servers, "d", int(o'755', c_int32_t)))
    call must(swale_iond_rename(servers, "f", "d/g"))
    call must(swale_iond_set_mode(servers, "d/g", int(o'600', c_int32_t)))
    call must(swale_iond_set_modified(servers, "d/g", 7000000001_c_int64_t))
    entries = 0
    call must(swale_iond_list(servers, "d", c_funloc(count_entry), c_loc(entries)))
    call expect(entries == 1, "the list of a directory")
    call must(swale_iond_stat(servers, "d/g", attributes))
    call expect(attributes%mode == int(o'600') .and. attributes%modified_ns == 7000000001_c_int64_t, "attributes")
    call must(swale_iond_rename(servers, "d/g", "g"))
    call must(swale_iond_rmdir(servers, "d"))
    call must(swale_iond_stat(servers, "g", attributes))
    call expect(attributes%size == 1000, "a file by its name")
    call must(swale_iond_drain(servers))
    call must(swale_iond_stats(servers, stats))
    call expect(sum_of(stats, "write.bytes") == 40000, "the servers' counters")
    call must(swale_iond_remove(servers, "g"))
    call must(swale_iond_close(servers))
    call must(swale_job_close(job))
  end subroutine

end program engines
