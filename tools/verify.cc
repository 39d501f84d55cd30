#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

struct VerifyCommand {
  Common common;
  size_t problems_max = 100;

  int run() const;
  void print_text(const VerifyReport& report) const;
};

// The message without the advice to run `swale verify`.
std::string without_advice(std::string_view message) {
  constexpr std::string_view kAdvice = "; run `swale verify`";
  std::string text(message);
  const size_t at = text.find(kAdvice);
  return at == std::string::npos ? text : text.erase(at, kAdvice.size());
}

Json as_json(const std::string& path, const VerifyReport& report) {
  Json problems = Json::array();
  for (const Status& problem : report.problems) {
    problems.push_back({{"code", code_name(problem.code())}, {"message", without_advice(problem.message())}});
  }
  Json json = {{"path", path}, {"ok", report.problems.empty()}};
  for (const Count& count : report.checked) json[std::string(count.name)] = count.value;
  json["problems"] = problems;
  return json;
}

void VerifyCommand::print_text(const VerifyReport& report) const {
  for (const Status& problem : report.problems) complain("{}", without_advice(problem.to_string()));
  std::string counts;
  for (const Count& count : report.checked) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count.value, count.words);
  }
  const std::string verdict = report.problems.empty()
                                  ? "all good"
                                  : fmt::format("{} {}{}", report.problems.size(),
                                                report.problems.size() == 1 ? "problem" : "problems",
                                                report.problems.size() == problems_max ? " or more" : "");
  print_line(fmt::format("{}: {} ({})", common.path, verdict, counts));
}

int VerifyCommand::run() const {
  const auto engine = common.engine();
  if (!engine.ok()) return fail(engine.status());
  const Result<VerifyReport> report = [&] {
    ProgressBar bar;
    VerifyRequest request{.problems_max = problems_max, .progress = {}};
    if (!common.json && ProgressBar::wanted()) {
      request.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
        bar.update(done_bytes, total_bytes, "MiB", kMiB);
      };
    }
    return (*engine)->verify(common.path, request);
  }();
  if (!report.ok()) return fail(report.status());
  if (const Status own = own_limit_among(report->problems); !own.ok()) return fail(own);
  if (common.json) {
    print_json(as_json(common.path, *report));
  } else {
    print_text(*report);
  }
  return finish_output(report->problems.empty() ? kExitOk : kExitNotFound);
}

}  // namespace

void add_verify(CLI::App& app, Run* run) {
  auto command = std::make_shared<VerifyCommand>();
  OptionSet sub = add_command(
      app, "verify", "reads and checks all data",
      {
          .description =
              "Checks the checksums of all blocks and slices, that the index names every record at its "
              "place, and the counts and digests of every epoch against the epoch log. Does not check that a "
              "user-defined partitioner would place each record in its partition. Problems go to the "
              "standard "
              "error output. If neither swale.json nor its copy can be read, the exit status is 3.\n\n"
              "Of the SSD directory of a tiered write buffer: every checksum of the log; exit status 3 "
              "while a process has it open. Of its backing directory: what is lost, as the buffer has "
              "listed it.",
          .examples = {{"swale verify out/particles", ""},
                       {"swale verify out/particles --json | jq -r '.problems[].message'",
                        "what is wrong, for scripts"}},
          .exit_1 = "there are problems",
      });
  command->common.add_path(sub);
  sub.add_option("--problems", command->problems_max, "stop after N problems (default 100)")
      .at_least(1)
      .type_name("N");
  command->common.add_json(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
