#include "fuse/session_bytes.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/contain.h"
#include "fs/log/log_format.h"
#include "fuse/request.h"
#include "fuse/session_locks.h"

namespace swale::fuse {
namespace {

using fs::OpenFile;

constexpr size_t kInPlaceMin = 64 << 10;  // of less, blocks are checked for the sake of a few bytes

// One buffer a thread, as large as the largest read so far; from where the kernel copies fast
// (fs::skip_before).
MutableBytes read_buffer(size_t bytes) {
  thread_local Buffer buffer;
  if (buffer.size() < bytes + fs::kSkipBytes) {
    auto larger = Buffer::allocate(bytes + fs::kSkipBytes);
    if (!larger.ok()) return {};
    buffer = std::move(*larger);
  }
  return buffer.span().subspan(fs::kSkipBytes, bytes);
}

// The kernel copies from where the bytes stand: one copy in the place of two.
bool answer_in_place(fuse_req_t request, size_t size, off_t offset, fuse_file_info* info) {
  if (size < kInPlaceMin) return false;
  return fs_of(request).read_in_place(
      file_of(info), static_cast<uint64_t>(offset), size, [request](std::span<const Bytes> parts) {
        std::vector<iovec> places;
        places.reserve(parts.size());
        for (const Bytes part : parts) places.push_back({const_cast<char*>(part.data()), part.size()});
        fuse_reply_iov(request, places.data(), static_cast<int>(places.size()));
      });
}

void read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, fuse_file_info* info) {
  guarded(request, number, [&] {
    // Reads of programs say whose they are.
    if (info->lock_owner == 0 && file_of(info).direct) fs_of(request).note_page_read(file_of(info));
    if (answer_in_place(request, size, offset, info)) return kAnswered;
    const MutableBytes out = read_buffer(size);
    if (out.size() < size) return ENOMEM;
    size_t got = 0;
    const int failed = fs_of(request).read(file_of(info), static_cast<uint64_t>(offset), out, &got);
    if (failed != 0) return failed;
    fuse_reply_buf(request, out.data(), got);
    return kAnswered;
  });
}

// The bytes go from the kernel's pipe to their place in the store's queue.
Status take(fuse_bufvec* from, MutableBytes out) {
  while (!out.empty()) {
    fuse_bufvec to = {};
    to.count = 1;
    to.buf[0].size = out.size();
    to.buf[0].mem = out.data();
    to.buf[0].fd = -1;
    const ssize_t got = fuse_buf_copy(&to, from, static_cast<fuse_buf_copy_flags>(0));
    if (got <= 0)
      return errno_status(got < 0 ? static_cast<int>(-got) : EIO, "a write request of the kernel");
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

// Before the write is answered; of files of which the kernel asks for attributes before it tells any.
void tell_end(fuse_req_t request, fuse_ino_t number, const OpenFile& file, uint64_t end) {
  Served& served = served_of(request);
  const bool maps = served.maps_direct_files.load(std::memory_order_relaxed);
  if (!file.direct || !maps || served.fs.kernel_use().keep_seconds != 0) return;
  if (const auto ahead = served.ends.next(number, &file, end)) served.pages->show_end(number, *ahead);
}

// Pages of a mapping make no file longer. What is behind its end is left out.
int cut_page(fuse_req_t request, fuse_ino_t number, const fuse_file_info* info, uint64_t at, size_t* length) {
  if (info->writepage == 0 || !served_of(request).ends.has_told(number)) return 0;
  struct stat now;
  if (const int failed = fs_of(request).attributes(node_of(request, number), &now); failed != 0)
    return failed;
  const auto end = static_cast<uint64_t>(now.st_size);
  *length = at < end ? std::min<uint64_t>(*length, end - at) : 0;
  return 0;
}

// A write of O_SYNC, O_DSYNC (one of its bits) or RWF_DSYNC. Where the kernel keeps pages it asks for a sync
// once the write is answered; where it keeps none, for nothing. (It hands a long write over in pieces of
// kRequestBytesMax, waits for each one's answer, and says of none that it is the last: each is synced.)
bool must_sync(const OpenFile& file, const fuse_file_info* info) {
  return file.direct && (info->flags & O_DSYNC) != 0;
}

// As fsync, and then the answer, of a write or a copy.
void sync_written(fuse_req_t request, fuse_ino_t number, const fuse_file_info& written, size_t length) {
  run_or_aside(request, number, [=] {
    const auto body = [&] {
      const int failed = fs_of(request).sync(file_of(&written));
      if (failed == 0) fuse_reply_write(request, length);
      return failed;
    };
    guarded(request, number, body, "a synchronous write");
  });
}

void write_buf(fuse_req_t request, fuse_ino_t number, fuse_bufvec* from, off_t offset, fuse_file_info* info) {
  const size_t length = fuse_buf_size(from);
  const auto at = static_cast<uint64_t>(offset);
  bool answered = false;
  fs::Caller caller = caller_of(request);
  caller.appends = (info->flags & O_APPEND) != 0;
  const auto answer = [&](int failed) {
    if (failed != 0) trace_refusal(request, number, "write", failed);
    if (failed == 0 && !*caller.appends && info->writepage == 0)
      tell_end(request, number, file_of(info), at + length);
    if (failed == 0 && must_sync(file_of(info), info)) {
      sync_written(request, number, *info, length);
      answered = true;  // or it has thrown before
      return;
    }
    answered = true;
    failed != 0 ? fuse_reply_err(request, failed) : fuse_reply_write(request, length);
  };
  const bool in_memory = from->count == 1 && (from->buf[0].flags & FUSE_BUF_IS_FD) == 0;
  const Status status = contain([&] {
    OpenFile& file = file_of(info);
    size_t within = length;
    if (const int failed = cut_page(request, number, info, at, &within); failed != 0 || within == 0)
      return answer(failed);
    if (in_memory)
      fs_of(request).write_bytes(file, at, Bytes(static_cast<const char*>(from->buf[0].mem), within), caller,
                                 answer);
    else
      fs_of(request).write(
          file, at, within, caller, [from](MutableBytes out) { return take(from, out); }, answer);
  });
  if (!answered) answer(status.posix_error());
}

void flush(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  run_or_aside(request, number, [=, info = *info] {
    const auto body = [&] {
      const int lost = fs_of(request).flush(file_of(&info));
      const int locked = end_locks_of_closer(request, &info);
      return lost != 0 ? lost : locked;
    };
    done_or_failed(request, number, body, "flush");
  });
}

void fsync(fuse_req_t request, fuse_ino_t number, int, fuse_file_info* info) {
  run_or_aside(request, number, [=, info = *info] {
    done_or_failed(
        request, number, [&] { return fs_of(request).sync(file_of(&info)); }, "fsync");
  });
}

void fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t length,
               fuse_file_info* info) {
  run_or_aside(request, number, [=, info = *info] {
    const auto body = [&] {
      OpenFile& file = file_of(&info);
      const int failed = fs_of(request).allocate(file, mode, static_cast<uint64_t>(offset),
                                                 static_cast<uint64_t>(length), caller_of(request));
      return failed != 0 ? failed : sync_changed(request, file);
    };
    done_or_failed(request, number, body, "fallocate");
  });
}

void lseek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence, fuse_file_info* info) {
  guarded(request, number, [&] {
    uint64_t found = 0;
    const int failed = fs_of(request).seek(file_of(info), static_cast<uint64_t>(offset), whence, &found);
    if (failed != 0) return failed;
    fuse_reply_lseek(request, static_cast<off_t>(found));
    return kAnswered;
  });
}

void ioctl(fuse_req_t request, fuse_ino_t number, unsigned command, void*, fuse_file_info* info,
           unsigned flags, const void* in, size_t in_bytes, size_t out_bytes_max) {
  run_or_aside(request, number, [=, info = *info, in = std::string(static_cast<const char*>(in), in_bytes)] {
    const auto body = [&] {
      if ((flags & FUSE_IOCTL_DIR) != 0) return ENOTTY;
      std::string out;
      const int failed = fs_of(request).command(file_of(&info), command, in, &out);
      if (failed != 0) return failed;
      if (out.size() > out_bytes_max) return EINVAL;
      fuse_reply_ioctl(request, 0, out.data(), out.size());
      return kAnswered;
    };
    guarded(request, number, body, "ioctl");
  });
}

void copy_file_range(fuse_req_t request, fuse_ino_t number, off_t from_offset, fuse_file_info* from,
                     fuse_ino_t to_number, off_t to_offset, fuse_file_info* to, size_t length, int) {
  guarded(request, number, [&] {
    uint64_t copied = 0;
    const int failed =
        fs_of(request).copy(file_of(from), static_cast<uint64_t>(from_offset), file_of(to),
                            static_cast<uint64_t>(to_offset), length, caller_of(request), &copied);
    if (failed != 0) return failed;
    if (copied > 0 && file_of(to).synchronous)
      sync_written(request, to_number, *to, copied);
    else
      fuse_reply_write(request, copied);
    return kAnswered;
  });
}

}  // namespace

void add_byte_operations(fuse_lowlevel_ops* table) {
  table->read = read;
  table->write_buf = write_buf;
  table->flush = flush;
  table->fsync = fsync;
  table->fallocate = fallocate;
  table->lseek = lseek;
  table->ioctl = ioctl;
  table->copy_file_range = copy_file_range;
}

}  // namespace swale::fuse
