// `swale stage`: copies files to where a job runs, and back, and checks every byte.
#include "stage/stage.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>

#include "base/processors.h"
#include "capi/options.h"
#include "io/posix_device.h"
#include "net/meeting/topology.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

constexpr size_t kFailuresShown = 20;
constexpr int kTicksALine = 40;  // of ten seconds
constexpr size_t kStatusBytesMax = 16 * kMiB;
constexpr uint32_t kThreadsMin = 8, kThreadsMax = 256;  // a disk wants many requests at once

std::atomic<bool> stop_flag{false};

// The first SIGINT or SIGTERM ends the stage at its next chunk, a second one at once. A file that grows
// beyond the limit of this process is an error of that file, not a signal.
void listen_to_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_flag.store(true); };
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);
}

struct StageCommand {
  std::string action;
  std::string path;  // a manifest, or a status file
  std::string from, to, status, way_back;
  bool no_read_back = false;
  bool no_attributes = false;
  bool clean = false;
  bool json = false;
  uint32_t threads = 0;

  int run() const {
    if (action == "status") {
      if (path.empty()) return fail(invalid_argument("stage status needs the FILE of a stage"));
      return show_status(path);
    }
    const Result<stage::StageOptions> options = chosen();
    if (!options.ok()) return fail(options.status());
    if (clean) {
      const Status cleaned = stage::Stage::clean(*options);
      return cleaned.ok() ? kExitOk : fail(cleaned);
    }
    ::umask(S_IRWXG | S_IRWXO);  // until a file is whole, it is its user's alone
    listen_to_signals();
    auto opened = stage::Stage::open(*options, stop_flag);
    if (!opened.ok()) return fail(opened.status());
    return work(**opened, *options);
  }

 private:
  Result<stage::StageOptions> chosen() const {
    stage::StageOptions options;
    options.direction = action == "in" ? stage::Direction::kIn : stage::Direction::kOut;
    if (path.empty() == (from.empty() && to.empty()))
      return invalid_argument("stage {} needs either a MANIFEST or --from DIR and --to DIR", action);
    if (path.empty() && (from.empty() || to.empty()))
      return invalid_argument("--from and --to belong together");
    options.manifest = whole_path(path);
    options.from = whole_path(from);
    options.to = whole_path(to);
    if (options.from == "/" || options.to == "/")
      return invalid_argument("the root folder cannot be staged, nor replaced");
    options.status =
        whole_path(!status.empty() ? status : (path.empty() ? options.to : path) + ".status.json");
    options.way_back = whole_path(way_back);
    if (no_read_back) options.read_back = stage::ReadBack::kNo;
    if (no_attributes) options.attributes = stage::Attributes::kNoUser;
    options.threads = threads != 0 ? threads : std::clamp(2 * usable_processors(), kThreadsMin, kThreadsMax);
    SWALE_ASSIGN_OR_RETURN(const net::LaunchEnvironment launch,
                           net::detect_launch(capi::process_environment));
    if (launch.size == 1) return options;
    options.rank = static_cast<uint32_t>(launch.rank);
    options.ranks = static_cast<uint32_t>(launch.size);
    options.status += fmt::format(".{}", launch.rank);
    if (!options.way_back.empty()) options.way_back += fmt::format(".{}", launch.rank);
    return options;
  }

  int work(stage::Stage& stage, const stage::StageOptions& options) const {
    const stage::StageReport report = [&] {
      ProgressBar bar;
      int ticks = 0;
      return stage.run([&](const stage::StageCounts& counts) {
        const uint64_t done = counts.bytes_copied + counts.bytes_before;
        if (ProgressBar::wanted())
          bar.update(std::min<uint64_t>(done, counts.bytes), counts.bytes, "MiB", kMiB);
        else if (++ticks % kTicksALine == 0)
          complain("{} of {} MiB are copied", done / kMiB, counts.bytes / kMiB);
      });
    }();
    for (const std::string& remark : report.remarks) complain("{}", remark);
    for (size_t i = 0; i < std::min(report.failures.size(), kFailuresShown); ++i)
      complain("{}", report.failures[i].what);
    const uint64_t failed = stage.counts().files_failed;
    if (failed > 0) complain("{} failed; {} has the first {}", failed, options.status, stage::kFailuresTold);
    const int shown = show_status(options.status);
    switch (report.state) {
      case stage::StageState::kDone:
        return shown;
      case stage::StageState::kStopped:
        complain("stopped; the same command goes on where it was");
        return kExitNotFound;
      default:
        return kExitFailure;
    }
  }

  // The exit code says what the status file does.
  int show_status(const std::string& file) const {
    io::PosixDevice device;
    const Result<std::string> text = io::read_file(device, file, kStatusBytesMax);
    if (!text.ok()) return fail(text.status());
    Json found = Json::parse(*text, nullptr, false);
    if (!found.is_object() || found.value("swale_stage", 0) != 1 || !found.contains("state"))
      return fail(corruption("{}: is no status of a stage of this version", file));
    try {
      mark_dead(&found);
      if (json)
        print_json(found);
      else
        print_line(line_of(found));
      const std::string state = found.at("state");
      const bool open = state == "running" || state == "stopped";
      return finish_output(state == "done" ? kExitOk : open ? kExitNotFound : kExitFailure);
    } catch (const Json::exception& failure) {
      return fail(corruption("{}: is no status of a stage: {}", file, failure.what()));
    }
  }

  // A stage that was killed has not said so.
  static void mark_dead(Json* found) {
    if (found->at("state") != "running") return;
    const ProcessIdentity process{found->at("host"), found->at("boot"), found->at("pid_namespace"),
                                  found->at("pid"), found->at("start_time")};
    const ProcessReport report = look_for(process);
    if (report.state == ProcessState::kGone) (*found)["state"] = "killed";
  }

  static std::string line_of(const Json& found) {
    const auto number = [&](const char* name) { return found.at(name).get<uint64_t>(); };
    const double rate = found.at("bytes_per_second").get<double>() / static_cast<double>(kMiB);
    std::string line =
        fmt::format("{} {}: {} of {} files, {} of {} MiB, {:.1f} s, {:.0f} MiB/s",
                    found.at("direction").get<std::string>(), found.at("state").get<std::string>(),
                    number("files_done"), number("files"), number("bytes_done") / kMiB,
                    number("bytes") / kMiB, found.at("seconds").get<double>(), rate);
    if (number("files_before") > 0)
      line += fmt::format("; {} files by an earlier run", number("files_before"));
    if (number("files_failed") > 0) line += fmt::format("; {} failed", number("files_failed"));
    return line + (found.at("read_back").get<bool>() ? "; read back" : "; not read back");
  }
};

}  // namespace

void add_stage(CLI::App& app, Run* run) {
  auto command = std::make_shared<StageCommand>();
  OptionSet sub = add_command(
      app, "stage", "copies files to where a job runs, and back; checks every byte, and goes on after a kill",
      {
          .description =
              "out brings files to where they stay: \"done\" means that each has its name, that its "
              "bytes were read back from storage and are those that were read from the source, and that "
              "it is durable. in brings files to where the job runs, and does not sync them.\n\n"
              "A MANIFEST has a line SOURCE DESTINATION for each file, paths with blanks in double "
              "quotes, comments after #. A third word crc32c:HEX demands this checksum of the content. "
              "--from and --to stage a whole tree: regular files, folders, symbolic links as links, "
              "modes, times, attributes user., holes. Hard links become files; sockets, devices and "
              "FIFOs are refused by name.\n\n"
              "A file is written as .NAME.swale-part beside its destination, and renamed when it is "
              "whole. The failure of one does not stop the others. A source that changes meanwhile has "
              "failed. The same command goes on where a kill or a signal has ended it; FILE.journal "
              "beside the status file remembers. status shows a status file, from any machine that sees "
              "it.\n\n"
              "Under a launcher (srun, mpirun) the processes divide the files, and each has a status "
              "FILE.RANK; folders then keep the times of the copy.",
          .examples = {{"swale stage out --from out/particles --to staged --write-manifest back",
                        "a copy, and a manifest that leads back"},
                       {"swale stage out --from out/particles --to staged --write-manifest back && "
                        "swale stage in back",
                        "brings it back, and checks that it is what went out"},
                       {"swale stage out --from out/particles --to staged; "
                        "swale stage status staged.status.json --json | jq .state",
                        "running, done, failed, stopped or killed"}},
          .exit_1 = "it was stopped; status: it is not at its end",
      });
  sub.add_option("ACTION", command->action, "in, out or status").required().one_of({"in", "out", "status"});
  sub.add_option("FILE", command->path, "in, out: a manifest; status: the status file").type_name("FILE");
  sub.add_option("--from", command->from, "a folder: all that is in it").type_name("DIR");
  sub.add_option("--to", command->to, "the folder that gets it; made if it is not there").type_name("DIR");
  sub.add_option("--status", command->status,
                 "the status file; by default MANIFEST.status.json, or --to with .status.json")
      .type_name("FILE");
  sub.add_option("--write-manifest", command->way_back,
                 "a manifest of what was staged, with checksums, from the destinations to the sources")
      .type_name("FILE");
  sub.add_option("--threads", command->threads, "by default two a processor, and at least 8")
      .between(1u, kThreadsMax)
      .type_name("COUNT");
  sub.add_flag("--no-read-back", command->no_read_back, "do not read the copies back; the status says so");
  sub.add_flag("--no-attributes", command->no_attributes, "leave attributes user. out");
  sub.add_flag("--clean", command->clean, "remove what an unfinished stage has left, and stage nothing");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
