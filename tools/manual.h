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

namespace swale::tools {

// A shell line that works with the out/particles of the tests (tests/api/make_particles.c).
struct Example {
  std::string_view command;
  std::string_view what;  // what it prints or does
};

struct Manual {
  std::string_view description;  // ASCII; paragraphs are separated by empty lines
  std::vector<Example> examples;
  std::string_view exit_1 = {};  // what exit status 1 means; "": never
};

class Command : public CLI::App {
 public:
  Command(const std::string& name, const std::string& summary, Manual manual);

  const Manual& manual() const { return manual_; }

 private:
  Manual manual_;
};

Command* add_command(CLI::App& app, const std::string& name, const std::string& summary, Manual manual);

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

// Wraps the text to lines of at most `width` characters; keeps paragraphs apart.
std::string wrap(std::string_view text, size_t width, std::string_view indent = {});

inline constexpr std::string_view kExitStatusText =
    "0: fine. 1: a key is not there, verify found problems, repair could not save all, or a lock looks "
    "alive. 2: usage, also a field or an epoch that does not exist. 3: input/output error or damage.";

}  // namespace swale::tools
