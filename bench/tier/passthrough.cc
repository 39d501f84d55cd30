#include "bench/tier/passthrough.h"

#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "bench/arguments.h"

namespace swale::bench {
namespace {

constexpr double kKeepSeconds = 3600;

struct Passed {
  int directory = -1;
  bool splice = false;
};

// Node numbers are O_PATH descriptors, which stay open: the benchmark has few files.
Passed& of(fuse_req_t request) { return *static_cast<Passed*>(fuse_req_userdata(request)); }
int descriptor_of(fuse_req_t request, fuse_ino_t number) {
  return number == FUSE_ROOT_ID ? of(request).directory : static_cast<int>(number);
}
std::string path_of(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

void init(void* data, fuse_conn_info* connection) {
  connection->want &= ~(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_SPLICE_READ);
  if (static_cast<const Passed*>(data)->splice)
    connection->want |=
        connection->capable & (FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  connection->max_background = 64;
}

bool entry_of(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_entry_param* entry) {
  *entry = {};
  entry->attr_timeout = entry->entry_timeout = kKeepSeconds;
  const int path = ::openat(descriptor_of(request, parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (path < 0) return false;
  entry->ino = static_cast<fuse_ino_t>(path);
  return ::fstat(path, &entry->attr) == 0;
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_entry_param entry;
  if (entry_of(request, parent, name, &entry)) {
    fuse_reply_entry(request, &entry);
  } else {
    fuse_reply_err(request, errno);
  }
}

void getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  struct stat attributes;
  if (::fstat(descriptor_of(request, number), &attributes) == 0) {
    fuse_reply_attr(request, &attributes, kKeepSeconds);
  } else {
    fuse_reply_err(request, errno);
  }
}

void setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int to_set, fuse_file_info*) {
  const int path = descriptor_of(request, number);
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0 && ::truncate(path_of(path).c_str(), wanted->st_size) != 0) {
    fuse_reply_err(request, errno);
    return;
  }
  getattr(request, number, nullptr);
}

void open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  const int file =
      ::open(path_of(descriptor_of(request, number)).c_str(), (info->flags & ~O_NOFOLLOW) | O_CLOEXEC);
  if (file < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = static_cast<uint64_t>(file);
  info->keep_cache = 1;
  fuse_reply_open(request, info);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
  const int file =
      ::openat(descriptor_of(request, parent), name, (info->flags | O_CREAT | O_CLOEXEC) & ~O_NOFOLLOW, mode);
  fuse_entry_param entry;
  if (file < 0 || !entry_of(request, parent, name, &entry)) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = static_cast<uint64_t>(file);
  info->keep_cache = 1;
  fuse_reply_create(request, &entry, info);
}

void release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  ::close(static_cast<int>(info->fh));
  fuse_reply_err(request, 0);
}

void read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  fuse_bufvec from = {};
  from.count = 1;
  from.buf[0].size = size;
  from.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  from.buf[0].fd = static_cast<int>(info->fh);
  from.buf[0].pos = offset;
  fuse_reply_data(request, &from, FUSE_BUF_SPLICE_MOVE);
}

void write_buf(fuse_req_t request, fuse_ino_t, fuse_bufvec* from, off_t offset, fuse_file_info* info) {
  fuse_bufvec to = {};
  to.count = 1;
  to.buf[0].size = fuse_buf_size(from);
  to.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  to.buf[0].fd = static_cast<int>(info->fh);
  to.buf[0].pos = offset;
  const ssize_t done = fuse_buf_copy(&to, from, FUSE_BUF_SPLICE_MOVE);
  if (done < 0) {
    fuse_reply_err(request, static_cast<int>(-done));
  } else {
    fuse_reply_write(request, static_cast<size_t>(done));
  }
}

void fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) {
  fuse_reply_err(request, ::fdatasync(static_cast<int>(info->fh)) == 0 ? 0 : errno);
}

void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_reply_err(request, ::unlinkat(descriptor_of(request, parent), name, 0) == 0 ? 0 : errno);
}

}  // namespace

void run_passthrough(const std::string& directory, const std::string& mountpoint, unsigned threads,
                     bool splice, const std::function<void()>& ready) {
  Passed passed{::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC), splice};
  fuse_lowlevel_ops operations = {};
  operations.init = init;
  operations.lookup = lookup;
  operations.getattr = getattr;
  operations.setattr = setattr;
  operations.open = open;
  operations.create = create;
  operations.release = release;
  operations.read = read;
  operations.write_buf = write_buf;
  operations.fsync = fsync;
  operations.unlink = unlink;
  std::string words[] = {"passthrough", "-o", "fsname=passthrough"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data()};
  fuse_args arguments = FUSE_ARGS_INIT(3, argv);
  fuse_session* const session = fuse_session_new(&arguments, &operations, sizeof(operations), &passed);
  if (session == nullptr || fuse_session_mount(session, mountpoint.c_str()) != 0)
    die("mounting the pass-through failed");
  fuse_loop_config* const config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(config, threads);
  fuse_loop_cfg_set_idle_threads(config, threads);
  ready();
  fuse_session_loop_mt(session, config);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  fuse_loop_cfg_destroy(config);
  fuse_opt_free_args(&arguments);
  ::close(passed.directory);
}

}  // namespace swale::bench
