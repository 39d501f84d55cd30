#include "tools/commands.h"

#include "tools/man_pages.h"
#include "tools/manual.h"

namespace swale::tools {

void add_commands(CLI::App& app, Run* run) {
  app.name("swale");
  app.description(
      "Looks into massive directories, where every particle of a simulation has a file of its own.");
  app.require_subcommand(1);
  app.set_version_flag("--version", "swale " + swale_version_text());
  app.footer(fmt::format(
      "Exit status: {}\nWith the Python package: example, plot, histogram, export, import, report. "
      "`swale COMMAND --help` has examples; so have the man pages.",
      kExitStatusText));
  add_info(app, run);
  add_ls(app, run);
  add_get(app, run);
  add_scan(app, run);
  add_keys(app, run);
  add_top(app, run);
  add_stats(app, run);
  add_verify(app, run);
  add_optimize(app, run);
  add_repair(app, run);
  add_unlock(app, run);
  add_mkdir(app, run);
  add_mount(app, run);
  add_tier(app, run);
  add_tier_mount(app, run);
  add_tier_stats(app, run);
  add_tier_measure(app, run);
  add_tier_trace(app, run);
  add_iond(app, run);
  add_iond_mount(app, run);
  add_run(app, run);
  add_check(app, run);
  add_serve(app, run);
  add_start(app, run);
  add_fs(app, run);
  add_stage(app, run);
  add_dump(app, run);
  add_config(app, run);
  add_completion(app, run);
}

}  // namespace swale::tools
