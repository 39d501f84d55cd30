// The objects behind the opaque handles of swale.h. Handles share ownership of the objects that they use, so that closing
// handles in the wrong order is an error and not a crash.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "net/job/job.h"

namespace swale::capi {

struct JobState {
  std::unique_ptr<net::Job> job;
  std::atomic<int> open_directories{0};
};

struct DirectoryState {
  std::shared_ptr<JobState> job;  // outlives the writer
  std::shared_ptr<io::PosixDevice>
      device;                           // outlives the writer; shared by directories with the same options
  std::unique_ptr<imd::Writer> writer;  // null after close
};

struct ReaderState {
  explicit ReaderState(io::PosixOptions storage) : device(storage) {}

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
  struct Counter {
    std::string name;
    std::string unit;
    std::string help;
    swale::imd::MergedStat value;
  };
  std::vector<Counter> counters;
  uint32_t ranks = 1;
};

struct swale_top {
  swale::imd::TopResult result;
};

namespace swale::capi {

// For every epoch that does not exist imd returns kInvalidArgument; the C interface returns SWALE_NOT_FOUND beyond the last.
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
