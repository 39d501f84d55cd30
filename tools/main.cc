// swale: looks into massive directories. One command, one subcommand for each question.
#include <CLI/CLI.hpp>
#include <exception>

#include "tools/commands.h"

namespace swale::tools {
namespace {

int run_command(int argc, char** argv) {
  CLI::App app;
  Run run;
  add_commands(app, &run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;  // --help comes this way, too
  }
  return run();
}

}  // namespace
}  // namespace swale::tools

int main(int argc, char** argv) {
  try {
    return swale::tools::run_command(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "swale: %s\n", exception.what());
    return swale::tools::kExitFailure;
  }
}
