#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "imd/optimize/optimizer.h"
#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

struct OptimizeCommand {
  Common common;
  uint64_t memory_bytes = kGiB;
  bool full = false;

  int run() const;
  Status approve(const imd::OptimizePlan& plan) const;
  void print_text(const imd::OptimizeReport& report) const;
};

// Says what it is going to take, and refuses if there is not so much.
Status OptimizeCommand::approve(const imd::OptimizePlan& plan) const {
  if (plan.epochs == 0) return {};
  if (!common.json) {
    print_line(fmt::format(
        "{}: {} epochs, {} records, {} bytes of keys and values; they stay, and their cluster takes at most "
        "{} bytes more",
        common.path, plan.epochs, plan.records, plan.data_bytes, plan.cluster_bytes_max));
    std::fflush(stdout);
  }
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(common.path, unknown);
  if (unknown || space.available >= plan.cluster_bytes_max) return {};
  return error(
      Code::kNoSpace, Scope::kFile,
      "{}: the cluster takes up to {} bytes, and {} are free; nothing was changed. Make space and run "
      "the command again",
      common.path, plan.cluster_bytes_max, static_cast<uint64_t>(space.available));
}

void OptimizeCommand::print_text(const imd::OptimizeReport& report) const {
  if (report.plan.epochs_lost > 0)
    complain("{}: {} epochs with lost parts are left as they are", common.path, report.plan.epochs_lost);
  if (report.number == 0) {
    print_line(fmt::format("{}: nothing to do: every epoch that is whole is in a cluster", common.path));
    return;
  }
  print_line(fmt::format("{}: cluster {:04} has {} epochs: {} series, {} bytes", common.path, report.number,
                         report.plan.epochs, report.series, report.bytes));
}

int OptimizeCommand::run() const {
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage, common.path);
  const Status right = expect_engine(device, common.path, kImdEngine);
  if (!right.ok()) return fail(right);
  const Result<imd::OptimizeReport> report = [&] {
    ProgressBar bar;
    imd::OptimizeOptions options;
    options.memory_bytes = memory_bytes;
    options.full = full;
    options.approve = [this](const imd::OptimizePlan& plan) { return approve(plan); };
    if (!common.json && ProgressBar::wanted())
      options.progress = [&](uint64_t done, uint64_t records) { bar.update(done, records, "records"); };
    return imd::optimize_directory(device, common.path, options);
  }();
  if (!report.ok()) return fail(report.status());
  if (common.json) {
    print_json({{"path", common.path},
                {"cluster", report->number == 0 ? Json() : Json(report->number)},
                {"epochs", report->plan.epochs},
                {"epochs_lost", report->plan.epochs_lost},
                {"records", report->plan.records},
                {"data_bytes", report->plan.data_bytes},
                {"cluster_bytes_max", report->plan.cluster_bytes_max},
                {"series", report->series},
                {"bytes", report->bytes},
                {"stripes", report->stripes}});
  } else {
    print_text(*report);
  }
  return finish_output(kExitOk);
}

}  // namespace

void add_optimize(CLI::App& app, Run* run) {
  auto command = std::make_shared<OptimizeCommand>();
  OptionSet sub = add_command(
      app, "optimize", "copies epochs by key, so that trajectories take two reads",
      {
          .description =
              "Makes a cluster: a copy of all epochs that no cluster has, in which the values of a key lie "
              "side by side. Queries of these epochs then read the cluster: two reads for a trajectory, "
              "however many epochs it has. It pays where many trajectories are asked of a directory that is "
              "complete.\n\n"
              "The epochs themselves stay as they are, so the directory takes up to twice its bytes; the "
              "command says first how many. Scans and top read the epochs themselves. A job may write "
              "meanwhile; its later epochs are for the next call. A call that was killed leaves nothing that "
              "answers, and the next one removes its files. A cluster that is damaged is not used. To be rid "
              "of all clusters, remove the folder DIR/clusters.",
          .examples = {{"swale optimize out/particles", "a cluster of all epochs"},
                       {"swale optimize out/particles --full --json | jq .bytes",
                        "one cluster in place of all others"}},
      });
  command->common.add_path(sub);
  sub.add_option("--memory", command->memory_bytes, "memory to sort in (default 1G)")
      .size_between(imd::kOptimizeMemoryMin, uint64_t{1} << 40)
      .type_name("BYTES");
  sub.add_flag("--full", command->full, "one cluster of all epochs, in place of the others");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
