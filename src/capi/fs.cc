#include <fcntl.h>

#include <memory>
#include <utility>
#include <vector>

#include "capi/boundary.h"
#include "capi/structs.h"
#include "fs/client/client_file.h"
#include "fs/client/client_names.h"
#include "fs/client/client_seal.h"

struct swale_fs_file {
  std::unique_ptr<swale::fs::ClientFile> file;
};

namespace {

using swale::Status;
using swale::capi::guarded;
using swale::capi::null_argument;
using swale::fs::ClientFile;

swale::Result<mode_t> mode_of(const char* call, uint32_t mode) {
  if ((mode & ~uint32_t{07777}) == 0) return static_cast<mode_t>(mode);
  return swale::invalid_argument("{}: mode {:#o}: expected permission bits", call, mode);
}

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
  ClientFile::Options options;
  options.flags = (has(SWALE_READ_ONLY) ? O_RDONLY : O_RDWR) | (has(SWALE_CREATE) ? O_CREAT : 0) |
                  (has(SWALE_EXCLUSIVE) ? O_EXCL : 0) | (has(SWALE_FS_EMPTY) ? O_TRUNC : 0) |
                  (has(SWALE_FS_APPEND) ? O_APPEND : 0);
  SWALE_ASSIGN_OR_RETURN(options.mode, mode_of("swale_fs_open", mode));
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

// Calls `body` with a path.
template <class Body>
int with_path(const char* call, const char* path, Body&& body) {
  return guarded([&]() -> Status {
    if (path == nullptr) return null_argument(call, "path");
    return body(path);
  });
}

void fill_attributes(swale_attributes* attributes, const struct stat& found, bool sealed) {
  swale::capi::fill_struct(attributes,
                           {.struct_bytes = 0,
                            .size = static_cast<uint64_t>(found.st_size),
                            .generation = 0,
                            .mode = found.st_mode & (07777 | (S_ISDIR(found.st_mode) ? S_IFDIR : 0)),
                            .sealed = sealed ? 1u : 0u,
                            .created_ns = 0,
                            .modified_ns = found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec});
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

int swale_fs_preadv(swale_fs_file* file, uint64_t offset, const swale_fs_space* parts, size_t count,
                    size_t* got) {
  return with_file("swale_fs_preadv", file, [&](ClientFile& in) -> Status {
    if (parts == nullptr && count != 0) return null_argument("swale_fs_preadv", "parts");
    if (got == nullptr) return null_argument("swale_fs_preadv", "got");
    for (size_t i = 0; i < count; ++i)
      if (parts[i].data == nullptr && parts[i].bytes != 0)
        return swale::invalid_argument("swale_fs_preadv: parts[{}].data is NULL", i);
    *got = 0;
    for (size_t i = 0; i < count; ++i) {
      SWALE_ASSIGN_OR_RETURN(const size_t read,
                             in.read(offset + *got, {static_cast<char*>(parts[i].data), parts[i].bytes}));
      *got += read;
      if (read < parts[i].bytes) break;
    }
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
    fill_attributes(attributes, found, sealed);
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
  return with_path("swale_fs_seal", path, [](const char* of) { return swale::fs::seal_file(of); });
}

int swale_fs_unseal(const char* path) {
  return with_path("swale_fs_unseal", path, [](const char* of) { return swale::fs::unseal_file(of); });
}

int swale_fs_stat_path(const char* path, swale_attributes* attributes) {
  return with_path("swale_fs_stat_path", path, [&](const char* of) -> Status {
    SWALE_RETURN_IF_ERROR(swale::capi::check_struct("swale_fs_stat_path", "attributes", attributes));
    SWALE_ASSIGN_OR_RETURN(const swale::fs::NameAttributes name, swale::fs::name_attributes(of));
    fill_attributes(attributes, name.found, name.sealed);
    return {};
  });
}

int swale_fs_mkdir(const char* path, uint32_t mode) {
  return with_path("swale_fs_mkdir", path, [&](const char* of) -> Status {
    SWALE_ASSIGN_OR_RETURN(const mode_t bits, mode_of("swale_fs_mkdir", mode));
    return swale::fs::make_directory(of, bits);
  });
}

int swale_fs_rmdir(const char* path) {
  return with_path("swale_fs_rmdir", path, [](const char* of) { return swale::fs::remove_directory(of); });
}

int swale_fs_remove(const char* path) {
  return with_path("swale_fs_remove", path, [](const char* of) { return swale::fs::remove_name(of); });
}

int swale_fs_rename(const char* from, const char* to) {
  return guarded([&]() -> Status {
    if (from == nullptr) return null_argument("swale_fs_rename", "from");
    if (to == nullptr) return null_argument("swale_fs_rename", "to");
    return swale::fs::rename_path(from, to);
  });
}

int swale_fs_list(const char* path, swale_fs_entry_fn fn, void* context) {
  return with_path("swale_fs_list", path, [&](const char* of) -> Status {
    if (fn == nullptr) return null_argument("swale_fs_list", "fn");
    return swale::fs::list_directory(of, [&](const char* name, swale::fs::NameKind kind) {
      return fn(context, name, static_cast<int>(kind)) == 0;
    });
  });
}

}  // extern "C"
