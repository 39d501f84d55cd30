// swale: looks into massive directories. One command, one subcommand for each question.
#include <CLI/CLI.hpp>
#include <exception>

#include "swale/swale.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

std::string version_text() {
  return fmt::format("swale {}.{}.{}", SWALE_VERSION_MAJOR, SWALE_VERSION_MINOR, SWALE_VERSION_PATCH);
}

int run_command(int argc, char** argv) {
  CLI::App app(
      "swale: looks into massive directories, where every particle of a simulation has a file of its own");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.footer(
      "Exit status: 0 fine; 1 a key is not there, verify found problems, or repair "
      "could not save all; 2 usage; 3 input/output error or "
      "damage.\n"
      "`swale SUBCOMMAND --help` has examples.");
  Run run;
  add_info(app, &run);
  add_get(app, &run);
  add_scan(app, &run);
  add_keys(app, &run);
  add_top(app, &run);
  add_stats(app, &run);
  add_verify(app, &run);
  add_repair(app, &run);
  add_dump(app, &run);
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
