#include "tools/man_pages.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "swale/swale.h"
#include "tools/manual.h"
#include "tools/option_table.h"
#include "tools/roff.h"
#include "tools/wrap.h"

namespace swale::tools {
namespace {

constexpr std::string_view kDirectoryText =
    "A massive directory is an ordinary directory. Each job that writes to it has a number and its own "
    "files. The epoch log of the newest job says which epochs exist; a commit appends one record to it. "
    "Copy, move or archive the directory as a whole, while no job writes to it. The "
    "formats are specified byte by byte in docs/formats of the sources.";

struct DirectoryEntry {
  std::string_view name;
  std::string_view what;
};
constexpr DirectoryEntry kDirectoryEntries[] = {
    {"swale.json", "the manifest: schema, layout and jobs; a copy of the newest jobs/NNNN/manifest.json"},
    {"swale.lock", "names the job that is writing, which renews it; swale-unlock(1) shows it"},
    {"swale.json.damaged", "the damaged swale.json that swale-repair(1) replaced"},
    {"jobs/0001/manifest.json", "the manifest of job 1"},
    {"jobs/0001/epochs", "its epoch log: all committed epochs with their steps, times and counts"},
    {"jobs/0001/extrema", "which partitions have the largest and smallest numbers of each of its epochs"},
    {"jobs/0001/attributes.jsonl", "attributes that each of its epochs was given, or gave to the directory"},
    {"jobs/0001/stats.jsonl", "statistics of each of its epochs"},
    {"p000/part-000000.j0001.data",
     "the records of job 1 in partition 0, in blocks of 4 KiB with a checksum each"},
    {"p000/part-000000.j0001.index", "its index: sketches by slices of hash space, extrema, a footer"},
    {"p000/part-000000.j0001.values", "its values of more than 16,384 bytes, if there are any"},
    {"p000/part-000000.j0001.source",
     "in a directory of the lossy format, which ranks have the keys whose home it is"},
    {"p000/part-000000.j0001.pages",
     "in a directory of the indirect format, its values of 12 bytes and more"},
    {"p001/part-001024.j0001.data", "1,024 partitions per folder; rank p of a job wrote its partition p"},
};

using roff::header;
using roff::paragraphs;
using roff::plain;

std::string sentence(std::string_view words) {
  std::string text = fmt::format("{}.", words);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string entry(const std::string& term, std::string_view text) {
  return fmt::format(".TP\n{}\n{}", term, plain(wrap(text, 78)));
}

std::string option_term(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.short_names) names.push_back(fmt::format("\\fB\\-{}\\fR", name));
  for (const std::string& name : option.long_names)
    names.push_back(fmt::format("\\fB\\-\\-{}\\fR", plain(name)));
  std::string term = option.positional.empty() ? fmt::format("{}", fmt::join(names, ", "))
                                               : fmt::format("\\fI{}\\fR", plain(option.positional));
  if (option.positional.empty() && !option.argument.empty())
    term += fmt::format(" \\fI{}\\fR", plain(option.argument));
  return term;
}

std::string synopsis(const Command& command, const std::vector<OptionText>& options) {
  std::string text = fmt::format(".B swale {}\n[\\fIOPTION\\fR...]", plain(command.get_name()));
  for (const OptionText& option : options) {
    if (option.positional.empty()) continue;
    const std::string name =
        fmt::format("\\fI{}\\fR{}", plain(option.positional), option.repeated ? "..." : "");
    text += option.required ? " " + name : fmt::format(" [{}]", name);
  }
  return text + "\n";
}

std::string command_page(const Command& command, const std::string& date) {
  const std::vector<OptionText> options = options_of(command);
  const Manual& manual = command.manual();
  std::string page = header("swale-" + command.get_name(), 1, date);
  page += fmt::format(".SH NAME\nswale\\-{} \\- {}\n", plain(command.get_name()),
                      plain(command.get_description()));
  page += ".SH SYNOPSIS\n" + synopsis(command, options);
  page += ".SH DESCRIPTION\n" + paragraphs(manual.description);
  page += ".SH OPTIONS\n";
  for (const OptionText& option : options) {
    std::string help = option.help;
    if (!option.choices.empty()) help += fmt::format(" (one of {})", fmt::join(option.choices, ", "));
    page += entry(option_term(option), help);
  }
  page += ".SH EXIT STATUS\n.TP\n0\nFine.\n";
  if (!manual.exit_1.empty()) page += entry("1", sentence(manual.exit_1));
  page += ".TP\n2\nUsage.\n.TP\n3\nInput/output error or damage.\n.SH EXAMPLES\n";
  for (const Example& example : manual.examples) {
    if (&example != manual.examples.data()) page += ".PP\n";
    page += fmt::format(".nf\n.RS 4\n{}\n.RE\n.fi\n", plain(example.command));
    if (!example.what.empty()) page += plain(wrap(example.what, 78));
  }
  page += ".SH SEE ALSO\n.BR swale (1),\n.BR swale\\-options (7)\n";
  return page;
}

std::string main_page(const CLI::App& app, const std::string& date) {
  std::string page = header("swale", 1, date);
  page += ".SH NAME\nswale \\- looks into massive directories, metadata stores and tiered write buffers\n";
  page += ".SH SYNOPSIS\n.B swale\n\\fICOMMAND\\fR [\\fIOPTION\\fR...] \\fIPATH\\fR [\\fIARGUMENT\\fR...]\n";
  page += ".SH DESCRIPTION\n" + plain(wrap(app.get_description(), 78)) + ".SH COMMANDS\n";
  for (const Command* command : commands_of(app)) {
    page += entry(fmt::format(".BR swale\\-{} (1)", plain(command->get_name())), command->get_description());
  }
  page += ".SH ENVIRONMENT\n" +
          plain(wrap("Each option of swale-options(7) has a variable: imd.map is SWALE_IMD_MAP. The command "
                     "obeys the variables of the options of swale_reader_open.",
                     78));
  page += ".SH EXIT STATUS\n" + plain(wrap(kExitStatusText, 78));
  page += ".SH EXAMPLES\n";
  std::string examples;
  for (const Command* command : commands_of(app)) {
    for (const Example& example : command->manual().examples) {
      if (!example.command.starts_with("swale ") || example.command.find('|') != std::string_view::npos)
        continue;
      examples += plain(example.command) + "\n";
      break;
    }
  }
  page += fmt::format(".nf\n{}.fi\n", examples);
  page += ".SH SEE ALSO\n.BR swale\\-options (7),\n.BR swale\\-directory (5)\n";
  return page;
}

std::string options_page(const std::string& date) {
  std::string page = header("swale-options", 7, date);
  page += ".SH NAME\nswale\\-options \\- options of the Swale library\n.SH DESCRIPTION\n";
  page += paragraphs(
      "Calls that open something take a string of options: \"imd.ways=2,io.direct=never\". An option that "
      "is not in the string has the value of its environment variable, or else its default. An unknown name "
      "or a value beyond its limits is an error, whose message says what is possible.\n\nBytes take "
      "K, M, G and T, all powers of 1024; seconds take ms, us, min and h. swale-config(1) shows what is in "
      "force, and checks a string.");
  page += ".SH OPTIONS\n";
  for (const TableRow& row : option_table()) {
    page += entry(fmt::format("\\fB{}\\fR=\\fI{}\\fR", plain(row.row.name), plain(row.row.default_value)),
                  row.row.help);
    page += fmt::format(".br\n{}",
                        plain(wrap(fmt::format("Takes {}; {}; {}.", Config::expectation(row.row),
                                               Config::environment_name(row.row.name), calls_text(row)),
                                   78)));
  }
  page += ".SH SEE ALSO\n.BR swale (1),\n.BR swale\\-config (1)\n";
  return page;
}

std::string directory_page(const std::string& date) {
  std::string page = header("swale-directory", 5, date);
  page += ".SH NAME\nswale\\-directory \\- the files of a massive directory\n";
  page += ".SH DESCRIPTION\n" + plain(wrap(kDirectoryText, 78)) + ".SH FILES\n";
  for (const DirectoryEntry& file : kDirectoryEntries) {
    page += entry(fmt::format("\\fI{}\\fR", plain(file.name)), file.what);
  }
  page += ".SH SEE ALSO\n.BR swale\\-info (1),\n.BR swale\\-dump (1),\n.BR swale\\-verify (1)\n";
  return page;
}

}  // namespace

std::string swale_version_text() {
  return fmt::format("{}.{}.{}", SWALE_VERSION_MAJOR, SWALE_VERSION_MINOR, SWALE_VERSION_PATCH);
}

std::vector<ManPage> man_pages(const CLI::App& app, const std::string& date) {
  std::vector<ManPage> pages = {{"swale.1", main_page(app, date)},
                                {"swale-options.7", options_page(date)},
                                {"swale-directory.5", directory_page(date)}};
  for (const Command* command : commands_of(app)) {
    pages.push_back({fmt::format("swale-{}.1", command->get_name()), command_page(*command, date)});
  }
  return pages;
}

}  // namespace swale::tools
