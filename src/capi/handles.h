// What the opaque handles of swale.h point to. Handles share ownership of what lies under them, so that closing them
// in the wrong order is an error and not a crash.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "capi/boundary.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "net/job.h"

namespace swale::capi {

struct JobState {
  std::unique_ptr<net::Job> job;
  std::atomic<int> open_directories{0};
};

struct DirectoryState {
  std::shared_ptr<JobState> job;            // outlives the writer, as does
  std::shared_ptr<io::PosixDevice> device;  // of all open directories with the same options
  std::unique_ptr<imd::Writer> writer;      // none once closed
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

// imd says kInvalidArgument for every epoch that does not exist; the C interface tells nonsense from "not yet".
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
  size_t value = 0;                                        // the next one, and
  uint64_t offset = 0;                                     // how much of it has been read
};
