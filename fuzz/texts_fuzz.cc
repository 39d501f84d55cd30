// Texts that users and launchers give: option strings and their environment variables, schemas, the
// environment of a launcher. Input: a line of options, a line of fields, a line of extrema, then lines
// NAME=value.
#include <map>

#include "capi/options.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "net/meeting/topology.h"
#include "run/schema.h"

namespace swale::texts_fuzz {

SWALE_FUZZ_TARGET(texts_fuzz) {
  Bytes input = fuzz::as_bytes(data, size);
  const std::string options = fuzz::take_line(&input);
  const std::string fields = fuzz::take_line(&input);
  const std::string extrema = fuzz::take_line(&input);
  std::map<std::string, std::string> variables;
  while (!input.empty()) {
    const std::string line = fuzz::take_line(&input);
    const size_t equals = std::min(line.find('='), line.size());
    variables[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
  }
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };

  const auto job = capi::job_settings(options, environment);
  static_cast<void>(capi::writer_options(options, environment));
  static_cast<void>(capi::reader_options(options, environment));
  static_cast<void>(capi::storage_options(capi::Call::kWrite, options, environment));
  if (const auto schema = run::Schema::parse(fields, extrema); schema.ok()) {
    const auto again = run::Schema::parse(schema->fields_text(), schema->indexed_text());
    fuzz::require(again.ok() && *again == *schema);
  }
  if (const auto launch = net::detect_launch(environment); launch.ok()) {
    fuzz::require(launch->rank >= 0 && launch->rank < launch->size);
    if (job.ok() && launch->size > 1) static_cast<void>(net::rendezvous_options(*job, *launch, environment));
  }
  return 0;
}

}  // namespace swale::texts_fuzz
