#include "capi/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/nearest.h"
#include "imd/read/reader_settings.h"
#include "imd/write/writer_settings.h"
#include "io/posix_settings.h"
#include "iond/iond_settings.h"
#include "meta/store/settings.h"
#include "tier/store/serving_options.h"

namespace swale::capi {
namespace {

std::vector<OptionRow> with_storage(std::span<const OptionRow> engine) {
  std::vector<OptionRow> rows(io::posix_option_rows().begin(), io::posix_option_rows().end());
  rows.insert(rows.end(), engine.begin(), engine.end());
  return rows;
}

const OptionRow* row_named(Call call, std::string_view name) {
  const std::span<const OptionRow> rows = rows_of(call);
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const OptionRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

// kInvalidArgument for an option that none of `calls` takes but another call does.
Status check_calls(std::span<const Call> calls, std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) return {};
    const std::string_view item = text.substr(0, text.find_first_of(kSeparators));
    text.remove_prefix(item.size());
    const std::string_view name = item.substr(0, item.find('='));
    const auto takes = [&](Call call) { return row_named(call, name) != nullptr; };
    if (std::any_of(calls.begin(), calls.end(), takes)) continue;
    for (const Call other : kCalls) {
      if (!takes(other)) continue;
      return invalid_argument("option string: {} takes no option {}: it is one of {}",
                              call_name(calls.front()), name, call_name(other));
    }
  }
}

}  // namespace

std::string_view call_name(Call call) {
  return call == Call::kJob     ? "swale_job_open"
         : call == Call::kWrite ? "swale_dir_open"
         : call == Call::kRead  ? "swale_reader_open"
         : call == Call::kMeta  ? "swale_meta_open"
         : call == Call::kIond  ? "swale_iond_open"
                                : "swale_tier_open";
}

std::span<const OptionRow> rows_of(Call call) {
  static const std::vector<OptionRow> write = with_storage(imd::writer_option_rows());
  static const std::vector<OptionRow> read = with_storage(imd::reader_option_rows());
  static const std::vector<OptionRow> meta = with_storage(meta::store_option_rows());
  switch (call) {
    case Call::kJob:
      return net::job_option_rows();
    case Call::kWrite:
      return write;
    case Call::kRead:
      return read;
    case Call::kMeta:
      return meta;
    case Call::kIond:
      return iond::iond_option_rows();
    case Call::kTier:
      break;
  }
  return tier::tier_option_rows();
}

namespace {

// Of options, and the beginnings that only options have.
struct OptionVariables {
  // These two replace a launcher (net/meeting/topology.cc).
  std::vector<std::string> names = {"SWALE_JOB_RANK", "SWALE_JOB_SIZE"};
  std::vector<std::string> sections;

  OptionVariables() {
    for (const Call call : kCalls) {
      for (const OptionRow& row : rows_of(call)) {
        names.push_back(Config::environment_name(row.name));
        sections.push_back(Config::environment_name(row.name.substr(0, row.name.find('.') + 1)));
      }
    }
  }
};

}  // namespace

// Nearly always no variable begins like those of options: then their names are not even made.
Status check_variables(const char* const* variables) {
  std::optional<OptionVariables> options;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view variable(*variables);
    if (!variable.starts_with("SWALE_")) continue;
    if (!options) options.emplace();
    const std::string_view name = variable.substr(0, variable.find('='));
    const auto starts = [&](const std::string& section) { return name.starts_with(section); };
    if (std::ranges::none_of(options->sections, starts)) continue;
    if (std::ranges::find(options->names, name) != options->names.end()) continue;
    const std::vector<std::string_view> known(options->names.begin(), options->names.end());
    return invalid_argument(
        "environment variable {}: no option has it; the nearest is {} (unset it, or correct it)", name,
        nearest(name, known));
  }
  return {};
}

Status check_process_variables() { return check_variables(::environ); }

const char* process_environment(const char* name) { return std::getenv(name); }

Result<Config> config_of(Call call, std::string_view text, const Environment& environment) {
  return config_of(std::span(&call, 1), text, environment);
}

Result<Config> config_of(std::span<const Call> calls, std::string_view text, const Environment& environment) {
  SWALE_RETURN_IF_ERROR(check_calls(calls, text));
  std::vector<OptionRow> rows;
  for (const Call call : calls) rows.insert(rows.end(), rows_of(call).begin(), rows_of(call).end());
  return Config::make(rows, text, environment);
}

Result<net::JobSettings> job_settings(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kJob, text, environment));
  return net::job_settings(config);
}

Result<imd::WriterOptions> writer_options(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kWrite, text, environment));
  return imd::writer_options(config);
}

Result<imd::ReaderOptions> reader_options(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, config_of(Call::kRead, text, environment));
  return imd::reader_options(config);
}

Result<io::PosixOptions> storage_options(Call call, std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, config_of(call, text, environment));
  return io::posix_options(config);
}

}  // namespace swale::capi
