#include <fcntl.h>

#include <memory>
#include <utility>
#include <vector>

#include "capi/boundary.h"
#include "capi/structs.h"
#include "fs/client/client_file.h"
#include "fs/client/client_seal.h"

struct swale_fs_file {
  std::unique_ptr<swale::fs::ClientFile> file;
};

namespace {

using swale::Status;
using swale::capi::guarded;
using swale::capi::null_argument;
using swale::fs::ClientFile;

swale::Result<ClientFile::Options> options_of(int flags, uint32_t mode) {
  constexpr int kWriting =
      SWALE_CREATE | SWALE_EXCLUSIVE | SWALE_FS_EMPTY | SWALE_FS_APPEND | SWALE_FS_BY_MOUNT | SWALE_FS_BY_LOG;
  const auto has = [flags](int flag) { return (flags & flag) != 0; };
  const bool known = (flags & ~(kWriting | SWALE_READ_ONLY)) == 0;
  const bool wrong = (has(SWALE_READ_ONLY) && has(kWriting)) ||
                     (has(SWALE_EXCLUSIVE) && !has(SWALE_CREATE)) ||
                     (has(SWALE_FS_BY_LOG) && (has(SWALE_FS_BY_MOUNT) || has(SWALE_FS_APPEND)));
  if (!known || wrong)
    return swale::invalid_argument(
        "swale_fs_open: flags {:#x}: expected SWALE_READ_ONLY alone, or others; SWALE_EXCLUSIVE goes with "
        "SWALE_CREATE, and SWALE_FS_BY_LOG neither with SWALE_FS_BY_MOUNT nor with SWALE_FS_APPEND",
        static_cast<unsigned>(flags));
  if ((mode & ~uint32_t{07777}) != 0)
    return swale::invalid_argument("swale_fs_open: mode {:#o}: expected permission bits", mode);
  ClientFile::Options options;
  options.flags = (has(SWALE_READ_ONLY) ? O_RDONLY : O_RDWR) | (has(SWALE_CREATE) ? O_CREAT : 0) |
                  (has(SWALE_EXCLUSIVE) ? O_EXCL : 0) | (has(SWALE_FS_EMPTY) ? O_TRUNC : 0) |
                  (has(SWALE_FS_APPEND) ? O_APPEND : 0);
  options.mode = mode;
  options.by = has(SWALE_FS_BY_LOG)     ? ClientFile::By::kLogOnly
               : has(SWALE_FS_BY_MOUNT) ? ClientFile::By::kMount
                                        : ClientFile::By::kLog;
  return options;
}

// Calls `body` with the file of a handle.
template <class Body>
int with_file(const char* call, swale_fs_file* handle, Body&& body) {
  return guarded([&]() -> Status {
    if (handle == nullptr) return null_argument(call, "file");
    return body(*handle->file);
  });
}

}  // namespace

extern "C" {

int swale_fs_open(const char* path, int flags, uint32_t mode, swale_fs_file** file) {
  return guarded([&]() -> Status {
    if (path == nullptr) return null_argument("swale_fs_open", "path");
    if (file == nullptr) return null_argument("swale_fs_open", "file");
    SWALE_ASSIGN_OR_RETURN(const ClientFile::Options options, options_of(flags, mode));
    auto handle = std::make_unique<swale_fs_file>();
    SWALE_ASSIGN_OR_RETURN(handle->file, ClientFile::open(path, options));
    *file = handle.release();
    return {};
  });
}

int swale_fs_close(swale_fs_file* file) {
  return guarded([&]() -> Status {
    const std::unique_ptr<swale_fs_file> handle(file);
    return handle == nullptr ? Status() : handle->file->close();
  });
}

int swale_fs_pwrite(swale_fs_file* file, uint64_t offset, const void* data, size_t bytes) {
  return with_file("swale_fs_pwrite", file, [&](ClientFile& out) -> Status {
    SWALE_ASSIGN_OR_RETURN(const swale::Bytes all,
                           swale::capi::bytes_argument("swale_fs_pwrite", "data", data, bytes));
    return out.write(offset, all);
  });
}

int swale_fs_pwritev(swale_fs_file* file, uint64_t offset, const swale_fs_part* parts, size_t count) {
  return with_file("swale_fs_pwritev", file, [&](ClientFile& out) -> Status {
    if (parts == nullptr && count != 0) return null_argument("swale_fs_pwritev", "parts");
    std::vector<swale::Bytes> all;
    all.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      if (parts[i].data == nullptr && parts[i].bytes != 0)
        return swale::invalid_argument("swale_fs_pwritev: parts[{}].data is NULL", i);
      all.emplace_back(static_cast<const char*>(parts[i].data), parts[i].bytes);
    }
    return out.write(offset, all);
  });
}

int swale_fs_write_many(swale_fs_file* file, uint64_t offset, uint64_t stride, const void* data,
                        size_t record_bytes, size_t count) {
  return with_file("swale_fs_write_many", file, [&](ClientFile& out) -> Status {
    if (data == nullptr && record_bytes != 0 && count != 0)
      return null_argument("swale_fs_write_many", "data");
    if (count > 1 && stride < record_bytes)
      return swale::invalid_argument(
          "swale_fs_write_many: stride {}: expected at least the {} bytes of a record: they do not overlap",
          stride, record_bytes);
    return out.write({offset, stride, record_bytes, count}, static_cast<const char*>(data));
  });
}

int swale_fs_write(swale_fs_file* file, const void* data, size_t bytes) {
  return with_file("swale_fs_write", file, [&](ClientFile& out) -> Status {
    SWALE_ASSIGN_OR_RETURN(const swale::Bytes all,
                           swale::capi::bytes_argument("swale_fs_write", "data", data, bytes));
    return out.write_next(all);
  });
}

int swale_fs_pread(swale_fs_file* file, uint64_t offset, void* data, size_t bytes, size_t* got) {
  return with_file("swale_fs_pread", file, [&](ClientFile& in) -> Status {
    if (data == nullptr && bytes != 0) return null_argument("swale_fs_pread", "data");
    if (got == nullptr) return null_argument("swale_fs_pread", "got");
    SWALE_ASSIGN_OR_RETURN(*got, in.read(offset, {static_cast<char*>(data), bytes}));
    return {};
  });
}

int swale_fs_commit(swale_fs_file* file) {
  return with_file("swale_fs_commit", file, [](ClientFile& of) { return of.commit(); });
}

int swale_fs_sync(swale_fs_file* file) {
  return with_file("swale_fs_sync", file, [](ClientFile& of) { return of.sync(); });
}

int swale_fs_truncate(swale_fs_file* file, uint64_t size) {
  return with_file("swale_fs_truncate", file, [&](ClientFile& of) { return of.truncate(size); });
}

int swale_fs_stat(swale_fs_file* file, swale_attributes* attributes) {
  return with_file("swale_fs_stat", file, [&](ClientFile& of) -> Status {
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_fs_stat", "attributes", attributes));
    SWALE_ASSIGN_OR_RETURN(const struct stat found, of.stat());
    SWALE_ASSIGN_OR_RETURN(const bool sealed, of.sealed());
    swale::capi::fill_struct(attributes,
                             {.struct_bytes = 0,
                              .size = static_cast<uint64_t>(found.st_size),
                              .generation = 0,
                              .mode = found.st_mode & 07777,
                              .sealed = sealed ? 1u : 0u,
                              .created_ns = 0,
                              .modified_ns = found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec});
    return {};
  });
}

int swale_fs_writes_by_log(swale_fs_file* file, int* by_log) {
  return with_file("swale_fs_writes_by_log", file, [&](ClientFile& of) -> Status {
    if (by_log == nullptr) return null_argument("swale_fs_writes_by_log", "by_log");
    *by_log = of.writes_by_log() ? 1 : 0;
    return {};
  });
}

int swale_fs_seal(const char* path) {
  return guarded([&]() -> Status {
    if (path == nullptr) return null_argument("swale_fs_seal", "path");
    return swale::fs::seal_file(path);
  });
}

int swale_fs_unseal(const char* path) {
  return guarded([&]() -> Status {
    if (path == nullptr) return null_argument("swale_fs_unseal", "path");
    return swale::fs::unseal_file(path);
  });
}

}  // extern "C"
