// The options of each call of the C interface. Their rows are next to the code that they configure
// (net/job/job_settings.h, io/posix_settings.h, imd/write/writer_settings.h, imd/read/reader_settings.h,
// meta/store/settings.h, iond/iond_settings.h, tier/store/serving_options.h).
//
// A name that a call does not know is an error, even if another call knows it; the message then names that
// call.
// Threads: free functions.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/status.h"
#include "imd/read/reader.h"
#include "imd/write/writer_options.h"
#include "io/posix_device.h"
#include "net/job/job_settings.h"

namespace swale::capi {

// The calls that take options.
enum class Call { kJob, kWrite, kRead, kMeta, kIond, kTier };
inline constexpr std::array kCalls = {Call::kJob,  Call::kWrite, Call::kRead,
                                      Call::kMeta, Call::kIond,  Call::kTier};
std::string_view call_name(Call call);  // "swale_job_open"

std::span<const OptionRow> rows_of(Call call);

using Environment = Config::GetEnvironment;
const char* process_environment(const char* name);  // getenv

// kInvalidArgument for a variable of an option section (SWALE_JOB_..., SWALE_IMD_...) that belongs to no
// option: otherwise the library would silently ignore a mistyped variable. `variables` is like environ.
Status check_variables(const char* const* variables);
Status check_process_variables();

// The options of one call.
Result<Config> config_of(Call call, std::string_view text, const Environment& environment);
// Of several, in one string: for a command that makes them all.
Result<Config> config_of(std::span<const Call> calls, std::string_view text, const Environment& environment);

Result<net::JobSettings> job_settings(std::string_view text, const Environment& environment);
Result<imd::WriterOptions> writer_options(std::string_view text, const Environment& environment);
Result<imd::ReaderOptions> reader_options(std::string_view text, const Environment& environment);
// The storage options of a call that opens a directory.
Result<io::PosixOptions> storage_options(Call call, std::string_view text, const Environment& environment);

}  // namespace swale::capi
