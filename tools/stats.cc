#include <memory>

#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct StatsCommand {
  Common common;
  bool plot = false;

  int run() const;
};

int StatsCommand::run() const {
  const auto engine = common.engine();
  if (!engine.ok()) return fail(engine.status());
  using Show = StatsRequest::Show;
  const Show show = common.json ? Show::kJson : plot ? Show::kPlot : Show::kTable;
  const Result<StatsReport> report = (*engine)->stats(common.path, {.epoch = common.epoch, .show = show});
  if (!report.ok()) return fail(report.status());
  for (const Json& line : report->lines) print_json(line);
  print(report->text);
  return finish_output(kExitOk);
}

}  // namespace

void add_stats(CLI::App& app, Run* run) {
  auto command = std::make_shared<StatsCommand>();
  OptionSet sub = add_command(
      app, "stats", "shows what writing each epoch cost: bytes, times and waits of every stage",
      {
          .description =
              "Counted by the writers on all ranks and kept in jobs/NNNN/stats.jsonl. With --json "
              "one object per epoch, times in nanoseconds.\n\n"
              "Of a metadata store: one line per server. Of the mountpoint of a tiered write buffer: as "
              "swale-tier-stats(1).",
          .examples = {{"swale stats out/particles", "a table, one line per epoch"},
                       {"swale stats out/particles --epoch 0", "every counter of an epoch"},
                       {"swale stats out/particles --plot", "bars for the terminal"},
                       {"swale stats out/particles --json", "for scripts, and for swale-stats-plot"}},
      });
  command->common.add_path(sub);
  command->common.add_epoch(sub,
                            "every counter of this epoch, with the ranks that had the least and the most");
  command->common.add_json(sub);
  sub.add_flag("--plot", command->plot,
               "bars for the terminal; swale-stats-plot draws a picture from the output of --json");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
