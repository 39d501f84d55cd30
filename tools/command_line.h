// How a subcommand of `swale` says what it takes: its manual, options, flags and positional arguments. CLI11
// parses them; it stands behind these functions because each file that sees its header takes six seconds more
// to compile.
//
// Option and OptionSet are references into the application to which they were added, and live as long as it
// does.
// Threads: one.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

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

// Where the value of an option goes.
template <class T>
concept OptionValue = std::same_as<T, std::string> || std::same_as<T, std::vector<std::string>> ||
                      std::same_as<T, double> || std::same_as<T, uint32_t> || std::same_as<T, uint64_t> ||
                      std::same_as<T, std::optional<int64_t>> || std::same_as<T, std::optional<uint64_t>>;

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  // An empty value is refused otherwise: it usually is a variable that the shell does not know.
  Option may_be_empty();
  // What stands for the value in help texts: DIR and FILE also tell a shell how to complete it.
  Option type_name(const std::string& name);
  Option one_of(const std::vector<std::string>& choices);
  Option between(double least, double most);
  Option between(std::integral auto least, std::integral auto most) {
    return between_integers(static_cast<int64_t>(least), static_cast<int64_t>(most));
  }
  Option at_least(int64_t least);
  // Also with K, M or G, of 1,024.
  Option size_between(uint64_t least, uint64_t most);
  Option excludes(const std::string& other);
  size_t count() const;  // how often it was given

 private:
  Option between_integers(int64_t least, int64_t most);

  CLI::Option* option_;
};

// A command's, or a group's within it.
class OptionSet {
 public:
  explicit OptionSet(CLI::App* app) : app_(app) {}

  // `value` outlives the application.
  template <OptionValue T>
  Option add_option(const std::string& names, T& value, const std::string& help);
  Option add_flag(const std::string& names, bool& value, const std::string& help);
  // A program, after "--"; the words after it are in program_words().
  void add_program(const std::string& name, std::string& program, const std::string& help,
                   bool required = true);
  // Options of which at most one may be given.
  OptionSet add_choice(const std::string& name, const std::string& help);
  // Called if the command is the one that was given, after its options have their values.
  void callback(std::function<void()> action);

 private:
  CLI::App* app_;
};

// The program of add_program and the words after it, as they are: CLI11 would look for options among them,
// and divide a word such as "[1,2]".
std::vector<std::string> program_words(const std::string& program);
// Keeps these words for it, and takes them from those of the command line, if that is of a command that has
// add_program.
void take_program_arguments(std::vector<std::string>* words);

OptionSet add_command(CLI::App& app, const std::string& name, const std::string& summary, Manual manual);

}  // namespace swale::tools
