#include <cstdio>
#include <memory>

#include "imd/check/verify.h"
#include "tools/manual.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

struct VerifyCommand {
  Common common;
  size_t problems_max = 100;

  int run() const;
};

int VerifyCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::VerifyReport report;
  {
    ProgressBar bar;
    imd::VerifyProgressFn progress;
    if (!common.json && ProgressBar::wanted()) {
      progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
        bar.update(done_bytes, total_bytes, "MiB", kMiB);
      };
    }
    report = imd::verify_directory(*(*directory)->reader, problems_max, progress);
  }
  if (common.json) {
    Json problems = Json::array();
    for (const Status& problem : report.problems) {
      problems.push_back({{"code", code_name(problem.code())}, {"message", problem.message()}});
    }
    print_json({{"path", common.path},
                {"ok", report.problems.empty()},
                {"epochs", report.epochs},
                {"partitions", report.partitions},
                {"records", report.records},
                {"bytes_checked", report.bytes_checked},
                {"problems", problems}});
  } else {
    for (const Status& problem : report.problems) fmt::print(stderr, "swale: {}\n", problem.to_string());
    print(fmt::format("{}: {} ({} epochs, {} partitions, {} records, {} bytes checked)\n", common.path,
                      report.problems.empty()
                          ? "all good"
                          : fmt::format("{} problems{}", report.problems.size(),
                                        report.problems.size() == problems_max ? " or more" : ""),
                      report.epochs, report.partitions, report.records, report.bytes_checked));
  }
  return finish_output(report.problems.empty() ? kExitOk : kExitNotFound);
}

}  // namespace

void add_verify(CLI::App& app, Run* run) {
  auto command = std::make_shared<VerifyCommand>();
  CLI::App* const sub = add_command(
      app, "verify", "reads everything and checks everything that can be checked",
      {
          .description =
              "Checksums of all blocks and slices, that the index names every record at its place, and "
              "counts "
              "and digests of every epoch against the epoch log. Not, whether a partitioner of the user's "
              "own "
              "would "
              "put a record where it is. Problems go to the standard error output. If "
              "neither swale.json nor its copy can be read the exit status is 3.",
          .examples = {{"swale verify out/particles", ""},
                       {"swale verify out/particles --json | jq -r '.problems[].message'",
                        "what is wrong, for scripts"}},
          .exit_1 = "there are problems",
      });
  command->common.add_path(*sub);
  sub->add_option("--problems", command->problems_max, "stop after so many problems (default 100)")
      ->check(at_least(1))
      ->type_name("N");
  command->common.add_json(*sub);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
