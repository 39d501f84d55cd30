#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "capi/handles.h"
#include "capi/options.h"
#include "imd/write/writer_open.h"
#include "net/job/opening.h"

namespace swale::capi {
namespace {

constexpr int kFlags = SWALE_CREATE | SWALE_EXCLUSIVE;

struct OpenRequest {
  std::string path;
  imd::Writer::Create create = imd::Writer::Create::kNever;
  imd::WriterOptions options;
  io::PosixOptions storage;
};

Result<OpenRequest> open_request(const char* path, int flags, const char* options) {
  if (path == nullptr || *path == '\0')
    return invalid_argument("swale_dir_open: argument \"path\" is NULL or empty");
  if ((flags & ~kFlags) != 0 || flags == SWALE_EXCLUSIVE) {
    return invalid_argument(
        "swale_dir_open: flags {:#x}: expected 0, SWALE_CREATE or SWALE_CREATE + SWALE_EXCLUSIVE", flags);
  }
  OpenRequest request;
  request.path = path;
  request.create = flags == kFlags         ? imd::Writer::Create::kExclusive
                   : flags == SWALE_CREATE ? imd::Writer::Create::kIfMissing
                                           : imd::Writer::Create::kNever;
  SWALE_RETURN_IF_ERROR(check_process_variables());
  SWALE_ASSIGN_OR_RETURN(request.options, writer_options(text_or_empty(options), process_environment));
  SWALE_ASSIGN_OR_RETURN(request.storage,
                         storage_options(Call::kWrite, text_or_empty(options), process_environment));
  return request;
}

Status open_dir(swale_job* job, const char* path, int flags, const char* options, swale_dir** dir,
                swale_partition_fn partition_fn = nullptr, void* context = nullptr) {
  const std::shared_ptr<JobState> state = job->state;
  OpenRequest request;
  auto handle = std::make_unique<swale_dir>();
  // An exception here is reported to the other ranks like any other failure.
  const Status mine = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(request, open_request(path, flags, options));
    request.options.partitioner.function = partition_fn;
    request.options.partitioner.context = context;
    handle->state = std::make_shared<DirectoryState>();
    handle->state->job = state;
    handle->state->device = io::PosixDevice::of_this_process(request.storage);
    return {};
  });
  SWALE_RETURN_IF_ERROR(
      net::begin_collective(*state->job, net::CallKind::kOpenDirectory, request.path, mine));
  DirectoryState& directory = *handle->state;
  SWALE_ASSIGN_OR_RETURN(directory.writer, imd::Writer::open(*state->job, *directory.device, request.path,
                                                             request.create, request.options));
  *dir = handle.release();
  ++state->open_directories;
  return {};
}

Status make_dir(net::Job& job, const char* path, const char* options) {
  OpenRequest request;
  const Status mine = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(request, open_request(path, SWALE_CREATE, options));
    return {};
  });
  SWALE_RETURN_IF_ERROR(net::begin_collective(job, net::CallKind::kMakeDirectory, request.path, mine));
  io::PosixDevice device(request.storage, request.path);
  Status status =
      contain([&] { return imd::make_massive_directory(job, device, request.path, request.options); });
  // Only rank 0 makes it; the others wait for its result. A rank that has thrown could neither send nor
  // receive it.
  if (status.code() == Code::kResourceExhausted || status.code() == Code::kInternal) job.give_up(status);
  return status;
}

// A rank with a wrong argument fails together with the others, not before them.
Status set_attributes(imd::Writer& writer, int what, const char* json) {
  const char* const call = "swale_dir_set_attributes";
  Status wrong;
  if (json == nullptr) wrong = null_argument(call, "json");
  if (what != SWALE_DESCRIBED_DIRECTORY && what != SWALE_DESCRIBED_EPOCH)
    wrong = invalid_argument("{}: what {}: expected a swale_described, 0 or 1", call, what);
  const auto described =
      what == SWALE_DESCRIBED_EPOCH ? imd::Writer::Described::kEpoch : imd::Writer::Described::kDirectory;
  return writer.set_attributes(described, text_or_empty(json), wrong);
}

// The slow path of swale_dir_append: everything that it cannot take at once.
[[gnu::noinline]] int append(swale_dir* dir, const void* key, size_t key_bytes, const void* value,
                             size_t value_bytes) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return null_argument("swale_dir_append", "dir");
    SWALE_RETURN_IF_ERROR(check_process("swale_dir_append", *dir->state->job));
    SWALE_ASSIGN_OR_RETURN(const Bytes key_view, bytes_argument("swale_dir_append", "key", key, key_bytes));
    SWALE_ASSIGN_OR_RETURN(const Bytes value_view,
                           bytes_argument("swale_dir_append", "value", value, value_bytes));
    return dir->state->writer->append(key_view, value_view);
  });
}

Status closed_directory(const char* call) {
  return invalid_argument("{}: the directory of this subfile has been closed", call);
}

Status read_some(swale_subfile* file, char* out, size_t bytes, size_t* bytes_read) {
  size_t done = 0;
  while (done < bytes && file->value < file->values.size()) {
    const imd::FoundValue& value = file->values[file->value];
    const auto part = static_cast<size_t>(std::min<uint64_t>(bytes - done, value.bytes - file->offset));
    const Status read = file->reader->read(file->key, value, file->offset, {out + done, part});
    if (!read.ok() && done == 0) return read;
    if (!read.ok()) break;  // the caller gets what was read, and the failure with the next call
    done += part;
    file->offset += part;
    if (file->offset == value.bytes) {
      ++file->value;
      file->offset = 0;
    }
  }
  *bytes_read = done;
  return {};
}

}  // namespace
}  // namespace swale::capi

using swale::Bytes;
using swale::Status;
using swale::capi::guarded;

extern "C" {

int swale_dir_open(swale_job* job, const char* path, int flags, const char* options, swale_dir** dir) {
  return guarded([&]() -> Status {
    if (job == nullptr) return swale::capi::null_argument("swale_dir_open", "job");
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_open", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_open", *job->state));
    return swale::capi::open_dir(job, path, flags, options, dir);
  });
}

int swale_dir_open_partitioned(swale_job* job, const char* path, int flags, const char* options,
                               swale_partition_fn fn, void* context, swale_dir** dir) {
  return guarded([&]() -> Status {
    if (job == nullptr) return swale::capi::null_argument("swale_dir_open_partitioned", "job");
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_open_partitioned", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_open_partitioned", *job->state));
    // A rank without a function fails together with the others, not before them.
    return swale::capi::open_dir(job, path, flags, options, dir, fn, context);
  });
}

int swale_dir_append(swale_dir* dir, const void* key, size_t key_bytes, const void* value,
                     size_t value_bytes) {
  const auto slowly = [&] { return swale::capi::append(dir, key, key_bytes, value, value_bytes); };
  // One condition each, or gcc computes with the answers.
  if (dir == nullptr) [[unlikely]]
    return slowly();
  if (key == nullptr) [[unlikely]]
    return slowly();
  if (value == nullptr) [[unlikely]]
    return slowly();
  const bool appended = dir->state->writer->append_quickly({static_cast<const char*>(key), key_bytes},
                                                           {static_cast<const char*>(value), value_bytes});
  return appended ? SWALE_OK : slowly();
}

int swale_dir_epoch_end(swale_dir* dir, int64_t step, double time) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_epoch_end", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_epoch_end", *dir->state->job));
    return dir->state->writer->epoch_end(step, time);
  });
}

int swale_dir_epoch_end_begin(swale_dir* dir, int64_t step, double time) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_epoch_end_begin", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_epoch_end_begin", *dir->state->job));
    return dir->state->writer->epoch_end_begin(step, time);
  });
}

int swale_dir_epoch_end_wait(swale_dir* dir) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_epoch_end_wait", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_epoch_end_wait", *dir->state->job));
    return dir->state->writer->epoch_end_wait();
  });
}

int swale_dir_set_attributes(swale_dir* dir, int what, const char* json) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_set_attributes", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_set_attributes", *dir->state->job));
    return swale::capi::set_attributes(*dir->state->writer, what, json);
  });
}

int swale_dir_pause(swale_dir* dir) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_pause", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_pause", *dir->state->job));
    dir->state->writer->pause();
    return {};
  });
}

int swale_dir_resume(swale_dir* dir) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_dir_resume", "dir");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_resume", *dir->state->job));
    dir->state->writer->resume();
    return {};
  });
}

int swale_dir_close(swale_dir* dir) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_dir> handle(dir);
    if (dir == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_dir_close", *dir->state->job, &handle));
    swale::capi::DirectoryState& state = *dir->state;
    --state.job->open_directories;
    const std::unique_ptr<swale::imd::Writer> writer = std::move(state.writer);
    return writer->close();
  });
}

int swale_dir_make(swale_job* job, const char* path, const char* options) {
  return guarded([&]() -> Status {
    if (job == nullptr) return swale::capi::null_argument("swale_dir_make", "job");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_dir_make", *job->state));
    return swale::capi::make_dir(*job->state->job, path, options);
  });
}

int swale_subfile_open_write(swale_dir* dir, const char* name, swale_subfile** file) {
  return guarded([&]() -> Status {
    if (dir == nullptr) return swale::capi::null_argument("swale_subfile_open_write", "dir");
    if (name == nullptr) return swale::capi::null_argument("swale_subfile_open_write", "name");
    if (file == nullptr) return swale::capi::null_argument("swale_subfile_open_write", "file");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_subfile_open_write", *dir->state->job));
    auto opened = std::make_unique<swale_subfile>();
    opened->key = name;
    if (opened->key.empty() || opened->key.size() > SWALE_KEY_BYTES_MAX) {
      return swale::invalid_argument("swale_subfile_open_write: a name of {} bytes: names have 1 to {} bytes",
                                     opened->key.size(), SWALE_KEY_BYTES_MAX);
    }
    opened->directory = dir->state;
    *file = opened.release();
    return {};
  });
}

int swale_subfile_open_read(swale_reader* reader, const char* name, swale_subfile** file) {
  return guarded([&]() -> Status {
    if (reader == nullptr) return swale::capi::null_argument("swale_subfile_open_read", "reader");
    if (name == nullptr) return swale::capi::null_argument("swale_subfile_open_read", "name");
    if (file == nullptr) return swale::capi::null_argument("swale_subfile_open_read", "file");
    auto opened = std::make_unique<swale_subfile>();
    opened->key = name;
    SWALE_ASSIGN_OR_RETURN(opened->values, reader->reader->find(opened->key, SWALE_ALL_EPOCHS));
    opened->reader = reader->reader;
    *file = opened.release();
    return {};
  });
}

int swale_subfile_write(swale_subfile* file, const void* data, size_t bytes) {
  return guarded([&]() -> Status {
    if (file == nullptr) return swale::capi::null_argument("swale_subfile_write", "file");
    if (!file->directory)
      return swale::invalid_argument("swale_subfile_write: this subfile was opened for reading");
    SWALE_RETURN_IF_ERROR(swale::capi::check_process("swale_subfile_write", *file->directory->job));
    if (!file->directory->writer) return swale::capi::closed_directory("swale_subfile_write");
    SWALE_ASSIGN_OR_RETURN(const Bytes value,
                           swale::capi::bytes_argument("swale_subfile_write", "data", data, bytes));
    return file->directory->writer->append(file->key, value);
  });
}

int swale_subfile_read(swale_subfile* file, void* data, size_t bytes, size_t* bytes_read) {
  return guarded([&]() -> Status {
    if (file == nullptr) return swale::capi::null_argument("swale_subfile_read", "file");
    if (bytes_read == nullptr) return swale::capi::null_argument("swale_subfile_read", "bytes_read");
    if (file->directory)
      return swale::invalid_argument("swale_subfile_read: this subfile was opened for writing");
    SWALE_RETURN_IF_ERROR(swale::capi::bytes_argument("swale_subfile_read", "data", data, bytes).status());
    return swale::capi::read_some(file, static_cast<char*>(data), bytes, bytes_read);
  });
}

int swale_subfile_close(swale_subfile* file) {
  delete file;
  return SWALE_OK;
}

}  // extern "C"
