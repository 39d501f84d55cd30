// Command: a subcommand of `swale` and its manual. A Command's options and Manual are the only source of
// `--help`, the man pages (man_pages.h) and the shells' completions (completion.h). The tests run its
// examples.
//
// Threads: one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/command_line.h"

namespace swale::tools {

class Command : public CLI::App {
 public:
  Command(const std::string& name, const std::string& summary, Manual manual);

  const Manual& manual() const { return manual_; }

 private:
  Manual manual_;
};

// The commands that are not hidden, in the order in which they were added.
std::vector<const Command*> commands_of(const CLI::App& app);

// One option, flag or positional argument, as manuals and shells see it.
struct OptionText {
  enum class Completes { kNothing, kChoices, kDirectories, kFiles };

  std::vector<std::string> short_names;  // "e"
  std::vector<std::string> long_names;   // "epoch"
  std::string positional;                // "PATH"; else ""
  std::string argument;                  // "N"; "" for a flag
  std::string help;
  std::vector<std::string> choices;
  Completes completes = Completes::kNothing;
  bool required = false;
  bool repeated = false;  // takes several values
};

// Positional arguments first, then all others, including --help and those of option groups.
std::vector<OptionText> options_of(const CLI::App& command);

inline constexpr std::string_view kExitStatusText =
    "0: fine. 1: a key is not there, verify found problems, repair could not save all, or a lock looks "
    "alive. 2: usage, also a field or an epoch that does not exist. 3: input/output error or damage.";

}  // namespace swale::tools
