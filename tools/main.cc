// swale: inspects massive directories. One command with one subcommand for each question.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/nearest.h"
#include "base/plain_text.h"
#include "tools/commands.h"
#include "tools/outside_command.h"

namespace swale::tools {
namespace {

// `swale help get` is `swale get --help`.
std::vector<std::string> without_help_word(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.resize(std::min<size_t>(words.size(), 1));
  words.push_back("--help");
  return words;
}

// `swale meta stats DIR` is `swale stats DIR`: the directory's format says which engine answers.
std::vector<std::string> without_engine_word(std::vector<std::string> words) {
  if (words.size() > 1 && words.front() == "meta") words.erase(words.begin());
  return words;
}

// `swale tier mount`, `swale iond mount` and so on are the commands tier-mount and so on, which have options
// of their own. Elsewhere "tier" may be a directory.
std::vector<std::string> with_two_words(std::vector<std::string> words) {
  const auto first = words.begin() + (!words.empty() && words.front() == "help" ? 1 : 0);
  constexpr std::string_view kOwn[] = {"tier-mount", "tier-stats", "tier-measure", "tier-trace",
                                       "iond-mount"};
  if (words.end() - first < 2) return words;
  const std::string both = *first + "-" + first[1];
  if (std::find(std::begin(kOwn), std::end(kOwn), both) == std::end(kOwn)) return words;
  *first = both;
  words.erase(first + 1);
  return words;
}

// Runs a command that is not one of ours: a program of its own, or a mistake. None if the command is ours.
std::optional<int> run_other_command(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words.front().starts_with('-')) return std::nullopt;
  const std::string& word = words.front();
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  if (std::find(commands.begin(), commands.end(), word) != commands.end()) return std::nullopt;
  if (const auto program = find_outside_command(word))
    return become_outside_command(*program, {words.begin() + 1, words.end()});
  if (is_package_command(word)) {
    complain("{}", package_hint(word));
    return kExitFailure;
  }
  const std::vector<std::string_view> known(commands.begin(), commands.end());
  complain("no command \"{}\"; the nearest is {} (`swale --help` has them all)", word, nearest(word, known));
  return kExitUsage;
}

int run_command(int argc, char** argv) {
  CLI::App app;
  Run run;
  add_commands(app, &run);
  std::vector<std::string> words =
      without_engine_word(without_help_word(with_two_words({argv + 1, argv + argc})));
  take_program_arguments(&words);
  if (const std::optional<int> code = run_other_command(app, words)) return *code;
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 has it
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, complaint;
    if (app.exit(error, out, complaint) == 0) {  // --help comes this way, too
      print(out.str());
      return finish_output(kExitOk);
    }
    fmt::print(stderr, "swale: {}", plain_text(complaint.str(), TextUse::kPage));
    return kExitUsage;
  }
  return run();
}

// A caller may have closed a standard stream. Its number would go to the next file that is opened, and what
// is printed would go into that file. What is opened here fails as a closed one does.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) == -1)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

// Prints the failure without allocating memory.
int fail_with(const std::exception_ptr& exception) {
  try {
    if (exception) std::rethrow_exception(exception);
    std::fputs("swale: unexpected failure\n", stderr);
  } catch (const std::bad_alloc&) {
    std::fputs("swale: out of memory\n", stderr);
  } catch (const std::exception& known) {
    std::fputs("swale: ", stderr);
    // Not plain_text, which allocates: only what is ASCII and no control character.
    for (const char* at = known.what(); *at != '\0'; ++at)
      std::fputc(*at >= ' ' && *at <= '~' ? *at : '?', stderr);
    std::fputc('\n', stderr);
  } catch (...) {
    std::fputs("swale: unexpected failure\n", stderr);
  }
  std::fflush(stderr);
  return kExitFailure;
}

// A destructor that allocates (nlohmann::json's does) ends a process without memory: make that a failure, not
// a crash.
[[noreturn]] void terminate() { ::_exit(fail_with(std::current_exception())); }

}  // namespace
}  // namespace swale::tools

int main(int argc, char** argv) {
  swale::tools::hold_standard_streams();
  std::set_terminate(swale::tools::terminate);
  try {
    return swale::tools::run_command(argc, argv);
  } catch (...) {
    return swale::tools::fail_with(std::current_exception());
  }
}
