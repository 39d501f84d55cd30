#include <memory>

#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct InfoCommand {
  Common common;

  int run() const;
};

int InfoCommand::run() const {
  const auto engine = common.engine();
  if (!engine.ok()) return fail(engine.status());
  const Result<InfoReport> report = (*engine)->info(common.path);
  if (!report.ok()) return fail(report.status());
  if (common.json) {
    print_json(report->json);
  } else {
    print(report->text);
  }
  int exit = kExitOk;
  for (const Status& problem : report->problems) exit = fail(problem);
  const int shown = finish_output(kExitOk);
  return exit == kExitOk ? shown : exit;
}

}  // namespace

void add_info(CLI::App& app, Run* run) {
  auto command = std::make_shared<InfoCommand>();
  OptionSet sub = add_command(
      app, "info", "shows the content of a massive directory: jobs, epochs, sizes",
      {
          .description =
              "The schema of the values, the attributes that users gave, the jobs that wrote, every "
              "committed epoch with its step, time, records and bytes, whether the last job has closed "
              "the directory, what was lost, and how much of the logs on disk committed epochs hold. "
              "Reads manifests and the footers of index logs "
              "only.\n\n"
              "Of other engines' directories: how many servers, files and extents a metadata store has; "
              "what a directory is to a tiered write buffer (its SSD directory, its backing directory, or "
              "the mountpoint), and what is in the log, which is read whole; the same of a job's file system "
              "(its mountpoint, the buffer of a node, its backing directory), and what is not drained.",
          .examples = {{"swale info out/particles", "a table for people"},
                       {"swale info out/particles --json | jq '.epochs[-1].step'",
                        "the last committed step"}},
      });
  command->common.add_path(sub);
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
