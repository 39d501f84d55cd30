// The objects behind the opaque handles of swale.h. Handles share ownership of the objects that they use, so
// that closing handles in the wrong order is an error and not a crash.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/own_process.h"
#include "capi/boundary.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "net/job/job.h"

namespace swale::capi {

struct JobState {
  std::unique_ptr<net::Job> job;
  std::atomic<int> open_directories{0};
  OwnProcess process;
};

// kInvalidArgument in a child made by fork: every call on a handle of its parent would wait for threads that
// it does not have. `instead`: what the child can do.
inline Status check_process(const char* call, const OwnProcess& opened_by, const char* instead) {
  if (opened_by.is_this()) return {};
  return invalid_argument(
      "{}: the handle belongs to the process that opened it, and a child made by fork has none of its "
      "threads; call it there, or {}",
      call, instead);
}
inline Status check_process(const char* call, const JobState& job) {
  return check_process(call, job.process, "open a job in the child");
}

// Closing in such a child frees nothing: what the handle refers to would wait for its threads.
template <class Handle>
Status check_process_of(const char* call, const JobState& job, std::unique_ptr<Handle>* handle) {
  Status status = check_process(call, job);
  if (!status.ok()) static_cast<void>(handle->release());
  return status;
}

struct DirectoryState {
  std::shared_ptr<JobState> job;  // outlives the writer
  // outlives the writer; shared by directories with the same options
  std::shared_ptr<io::PosixDevice> device;
  std::unique_ptr<imd::Writer> writer;  // null after close
};

struct ReaderState {
  ReaderState(io::PosixOptions storage, const std::string& path) : device(storage, path) {}

  io::PosixDevice device;
  std::unique_ptr<imd::Reader> reader;
};

}  // namespace swale::capi

struct swale_job {
  std::shared_ptr<swale::capi::JobState> state;
};

struct swale_dir {
  std::shared_ptr<swale::capi::DirectoryState> state;
};

struct swale_reader {
  std::shared_ptr<swale::imd::Reader> reader;  // with a ReaderState; files share it
  std::string schema;                          // as text
  const char* key_type = "";                   // static
};

struct swale_stats {
  swale::Counters counters;
  std::string json = {};  // made when it is asked for
};

struct swale_top {
  swale::imd::TopResult result;
};

namespace swale::capi {

// For every epoch that does not exist imd returns kInvalidArgument; the C interface returns SWALE_NOT_FOUND
// beyond the last.
Status check_epoch(const swale_reader* reader, const char* call, int64_t epoch);

}  // namespace swale::capi

struct swale_values {
  std::vector<swale::imd::Value> values;
};

struct swale_subfile {
  std::string key;
  std::shared_ptr<swale::capi::DirectoryState> directory;  // writing
  std::shared_ptr<swale::imd::Reader> reader;              // reading
  std::vector<swale::imd::FoundValue> values;              // not yet read to the end
  size_t value = 0;                                        // the next one to read
  uint64_t offset = 0;                                     // the number of its bytes that were read
};
