// The options of the C interface: one table of rows per kind of handle, and what they become.
//
// A name that a handle does not know is an error, also if it is another handle's. Threads: free functions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "imd/write/writer.h"
#include "io/posix_device.h"
#include "net/job.h"
#include "net/rendezvous.h"
#include "net/topology.h"

namespace swale::capi {

std::span<const OptionRow> job_rows();
std::span<const OptionRow> write_rows();
std::span<const OptionRow> read_rows();

using Environment = Config::GetEnvironment;
const char* process_environment(const char* name);  // getenv

// kInvalidArgument for a variable of a section that options have (SWALE_JOB_..., SWALE_READ_...) which is none's: a
// mistyped one would be ignored. `variables` is like environ.
Status check_variables(const char* const* variables);
Status check_process_variables();

struct JobSettings {
  net::JobOptions job;
  std::string rendezvous;  // "": the default, if there can be one
  std::string id;          // "": the launcher's
  Nanos join_deadline = seconds(60);
};

Result<JobSettings> job_settings(std::string_view text, const Environment& environment);
Result<imd::WriterOptions> writer_options(std::string_view text, const Environment& environment);
Result<imd::ReaderOptions> reader_options(std::string_view text, const Environment& environment);
// What write_rows() and read_rows() say of storage.
Result<io::PosixOptions> storage_options(std::span<const OptionRow> rows, std::string_view text,
                                         const Environment& environment);

// How the ranks of a launched job meet without a communicator: settings first, then what the launcher says, then, if
// all ranks are surely on one machine, a folder of this user there. kInvalidArgument says what is to be set.
// Requires launch.size > 1.
Result<net::RendezvousOptions> rendezvous_options(const JobSettings& settings,
                                                  const net::LaunchEnvironment& launch,
                                                  const Environment& environment);

}  // namespace swale::capi
