#include <memory>

#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

struct RepairCommand {
  Common common;
  bool dry_run = false;

  int run() const;
  void print_text(const RepairReport& report) const;
};

void RepairCommand::print_text(const RepairReport& report) const {
  print_line(fmt::format("{}: {}", common.path, report.headline));
  for (const std::string& line : report.found) print_line(fmt::format("found: {}", line));
  for (const std::string& line : report.done) {
    print_line(fmt::format("{}: {}", dry_run ? "would have" : "done", line));
  }
  for (const std::string& line : report.lost) print_line(fmt::format("lost: {}", line));
  if (!report.remark.empty()) print(report.remark + "\n");
  if (report.found.empty() && report.done.empty() && report.lost.empty()) print("nothing to repair\n");
}

int RepairCommand::run() const {
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage, common.path);
  const auto engine = engine_of(device, common.path);
  if (!engine.ok()) return fail(engine.status());
  const Result<RepairReport> report = [&] {
    ProgressBar bar;
    RepairRequest request{.dry_run = dry_run, .progress = {}};
    if (ProgressBar::wanted()) {
      request.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
        bar.update(done_bytes, total_bytes, "MiB", kMiB);
      };
    }
    return (*engine)->repair(device, common.path, request);
  }();
  if (!report.ok()) return fail(report.status());
  if (common.json) {
    Json json = {{"path", common.path}, {"dry_run", dry_run}};
    json.update(report->counts);
    json.update({{"found", report->found}, {"done", report->done}, {"lost", report->lost}});
    print_json(json);
  } else {
    print_text(*report);
  }
  return finish_output(report->lost.empty() ? kExitOk : kExitNotFound);
}

}  // namespace

void add_repair(CLI::App& app, Run* run) {
  auto command = std::make_shared<RepairCommand>();
  OptionSet sub = add_command(
      app, "repair", "recovers what can be recovered after a crash or damage",
      {
          .description =
              "Committed epochs need no repair after a crash. This command recovers the whole runs "
              "of an epoch that was never ended, rebuilds damaged index logs from the data "
              "logs, and restores the manifest if copies of it are lost (a damaged swale.json is "
              "kept as swale.json.damaged). It records losses in the directory: queries that need "
              "lost data end with an error that names epoch and partition, and info and verify "
              "list the losses; after you restore the files from a copy, run repair again. Files "
              "of other jobs are never written; an index log is replaced as a whole. No job may "
              "be writing.",
          .examples = {{"swale repair out/particles --dry-run", "what would be done"},
                       {"swale repair out/particles --json | jq .lost", "repair, and print what is lost"}},
          .exit_1 = "something is lost, now or before",
      });
  command->common.add_path(sub);
  sub.add_flag("-n,--dry-run", command->dry_run, "print what would be done, and do nothing");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
