#include <algorithm>
#include <memory>
#include <vector>

#include "base/nearest.h"
#include "tools/command_line.h"
#include "tools/option_table.h"
#include "tools/options.h"
#include "tools/wrap.h"

namespace swale::tools {
namespace {

const char* type_text(OptionType type) {
  switch (type) {
    case OptionType::kInt:
      return "integer";
    case OptionType::kBytes:
      return "bytes";
    case OptionType::kSeconds:
      return "seconds";
    case OptionType::kBool:
      return "boolean";
    case OptionType::kString:
      return "text";
    case OptionType::kEnum:
      return "choice";
  }
  return "";
}

Json choices_of(const OptionRow& row) {
  Json choices = Json::array();
  for (std::string_view rest = row.choices; !rest.empty();) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    choices.push_back(std::string(rest.substr(0, bar)));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return choices;
}

struct ConfigCommand {
  Common common;
  std::vector<std::string> names;
  std::string check;
  std::string call;
  std::optional<Option> checks;

  int run() const;
  int run_check(const std::vector<TableRow>& table) const;
  bool wanted(const TableRow& row) const;
  Status unknown_name(const std::vector<TableRow>& table) const;
};

// The part of an option string that `call` takes: each call refuses the others' options.
std::string part_for(capi::Call call, std::string_view text, const std::vector<TableRow>& table) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::string part;
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) return part;
    const std::string_view item = text.substr(0, text.find_first_of(kSeparators));
    text.remove_prefix(item.size());
    const std::string_view name = item.substr(0, item.find('='));
    for (const TableRow& row : table) {
      if (row.row.name == name && std::count(row.calls.begin(), row.calls.end(), call) != 0)
        part += fmt::format("{},", item);
    }
  }
}

// Checks as the call itself does, including limits between options, which no single row has.
Status check_for(capi::Call call, const std::string& text) {
  if (call == capi::Call::kJob) return capi::job_settings(text, capi::process_environment).status();
  if (call == capi::Call::kWrite) return capi::writer_options(text, capi::process_environment).status();
  if (call == capi::Call::kRead) return capi::reader_options(text, capi::process_environment).status();
  return capi::config_of(call, text, capi::process_environment).status();
}

// Parses a word of --for.
capi::Call call_named(std::string_view word) {
  for (const capi::Call call : capi::kCalls) {
    if (short_name(call) == word) return call;
  }
  return capi::Call::kJob;
}

int ConfigCommand::run_check(const std::vector<TableRow>& table) const {
  Status status;
  if (call.empty()) {
    status = Config::make(option_rows(table), check).status();
    for (const capi::Call each : capi::kCalls) {
      if (status.ok()) status = check_for(each, part_for(each, check, table));
    }
  } else {
    status = check_for(call_named(call), check);
  }
  if (common.json) {
    Json answer = {{"check", check}, {"ok", status.ok()}};
    if (!status.ok()) answer["problem"] = std::string(status.message());
    print_json(answer);
  } else if (status.ok()) {
    print("fine\n");
  }
  return status.ok() ? finish_output(kExitOk) : fail(status);
}

bool ConfigCommand::wanted(const TableRow& row) const {
  if (!call.empty() && std::count(row.calls.begin(), row.calls.end(), call_named(call)) == 0) return false;
  if (names.empty()) return true;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return row.row.name == name || row.row.name.starts_with(name + ".");
  });
}

// Only if no name is known, so the first one speaks for all.
Status ConfigCommand::unknown_name(const std::vector<TableRow>& table) const {
  const std::string& name = names.front();
  if (name.find('=') != std::string::npos) {
    return invalid_argument("{}: is a string of options; to check it: swale config --check '{}'", name, name);
  }
  if (!call.empty())
    return invalid_argument("{}: calls of this kind take no such option or group of options", name);
  std::vector<std::string_view> known;
  for (const TableRow& each : table) known.push_back(each.row.name);
  return invalid_argument(
      "{}: no option or group of options has this name; the nearest is {} (`swale config` lists all)", name,
      nearest(name, known));
}

int ConfigCommand::run() const {
  const std::vector<TableRow> table = option_table();
  if (checks->count() != 0) return run_check(table);
  const auto config = Config::make(option_rows(table), "");
  if (!config.ok()) return fail(config.status());
  size_t shown = 0;
  for (const TableRow& each : table) {
    if (!wanted(each)) continue;
    ++shown;
    const OptionRow& row = each.row;
    const std::string variable = Config::environment_name(row.name);
    const bool set = config->origin(row.name) != Config::Origin::kDefault;
    if (common.json) {
      Json line = {{"name", row.name},
                   {"type", type_text(row.type)},
                   {"default", row.default_value},
                   {"value", config->text(row.name)},
                   {"origin", set ? "environment" : "default"},
                   {"environment", variable},
                   {"calls", short_calls(each)}};
      if (row.min < row.max) line.update({{"min", row.min}, {"max", row.max}});
      if (!row.choices.empty()) line["choices"] = choices_of(row);
      line["help"] = row.help;
      print_json(line);
      continue;
    }
    print(fmt::format("{}={}{}\n", row.name, config->text(row.name),
                      set ? fmt::format("   (from {}; default {})", variable,
                                        row.default_value.empty() ? "nothing" : row.default_value)
                          : ""));
    print(wrap(row.help, 96, "    "));
    print(fmt::format("    [{}; {}; {}]\n", Config::expectation(row), variable, calls_text(each)));
  }
  if (shown == 0) return fail(unknown_name(table));
  return finish_output(kExitOk);
}

}  // namespace

void add_config(CLI::App& app, Run* run) {
  auto command = std::make_shared<ConfigCommand>();
  OptionSet sub = add_command(
      app, "config", "prints the options of the library with their values, or checks an option string",
      {.description =
           "Prints each option with its value, help, allowed values, environment variable and the calls that "
           "take it. The value is the environment's, or the default: the option strings of programs are not "
           "known here. An invalid option in the environment is an error, as it would be for a "
           "program.",
       .examples = {
           {"swale config", "all options"},
           {"SWALE_IMD_WAYS=2 swale config imd", "the options of a group, one set by the environment"},
           {"swale config --json | jq -r 'select(.origin == \"environment\").name'", "what is set"},
           {"swale config --check 'imd.memory=32M,imd.schema=id:u8;energy:f8,imd.extrema=energy'",
            "whether a program may use this string"}}});
  sub.add_option("NAME", command->names, "options, or groups of them: imd.ways, io").type_name("NAME");
  command->checks = sub.add_option("--check", command->check, "check this string of options instead")
                        .type_name("TEXT")
                        .may_be_empty();
  sub.add_option(
         "--for", command->call,
         "only the options of this kind of call: job, write (a directory), read, meta (a store), iond (I/O "
         "servers), or tier (a tiered write buffer)")
      .one_of({"job", "write", "read", "meta", "iond", "tier"})
      .type_name("CALL");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
