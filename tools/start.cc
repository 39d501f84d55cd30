// `swale start`, `swale stop`, `swale status`: a tree for the steps of a batch job, one after the other.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>

#include "capi/options.h"
#include "net/meeting/topology.h"
#include "tools/child.h"
#include "tools/drain_time.h"
#include "tools/node_keeper.h"
#include "tools/options.h"
#include "tools/started.h"
#include "tools/tree.h"
#include "tools/tree_engine.h"

namespace swale::tools {
namespace {

constexpr uint32_t kNodesMax = 1u << 20;
constexpr uint64_t kDeadlineMax = 7 * 24 * 3600;
constexpr char kThere[] = "mounted", kWithoutMount[] = "without a mount";  // states

std::optional<int64_t> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int64_t value = 0;
  const std::string_view whole(text);
  const auto [end, failed] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (failed != std::errc() || end != whole.data() + whole.size()) return std::nullopt;
  return value;
}

// Of the Slurm job that this is in. Older releases set no variable.
std::optional<int64_t> find_job_end() {
  if (const auto end = number_of("SLURM_JOB_END_TIME")) return end;
  const auto job = number_of("SLURM_JOB_ID");
  if (!job) return std::nullopt;
  const std::string command = fmt::format("squeue --noheader --jobs={} --format=%e", *job);
  const std::unique_ptr<FILE, int (*)(FILE*)> said(::popen(command.c_str(), "re"), ::pclose);
  char line[64] = "";
  if (!said || std::fgets(line, sizeof(line), said.get()) == nullptr) return std::nullopt;
  return parse_local_time(std::string(line, std::strcspn(line, "\n")));
}

struct StartCommand {
  TreeChoices tree;
  std::string backing;
  std::string at_end = "drain";
  std::string launcher;
  std::string drain_at;
  uint32_t nodes = 0;
  uint64_t deadline_s = 300;
  bool fallback = false;
  bool no_mount = false;
  bool json = false;

  int run() const {
    const Fallback without(fallback, whole_path(backing));
    const auto options = start_options();
    if (!options.ok()) return fail(options.status());
    std::string cause;
    const Status started = start_tree(*options, &cause);
    if (started.ok()) {
      const std::string& mountpoint = tree.at.empty() ? backing : tree.at;
      json ? print_json({{"mountpoint", whole_path(mountpoint)}, {"backing", whole_path(backing)}})
           : print_line(fmt::format("{}: its tree is {} until swale stop {}", mountpoint,
                                    no_mount ? "there, for swale run --no-mount," : "mounted", mountpoint));
      return finish_output(kExitOk);
    }
    const int failed = fail(started);
    if (!fallback || started.code() == Code::kBusy) return failed;  // one was started there before
    return fall_back(without, *options, cause.empty() ? std::string(started.message()) : cause);
  }

 private:
  // `swale stop` and `swale status` are to know.
  int fall_back(const Fallback& without, const StartOptions& options, const std::string& why) const {
    Status may = without.expect_free();
    if (may.ok()) may = note_fallback(options, why);
    if (!may.ok()) return fail(may);
    complain("NO BUFFER: programs write to {} itself (--fallback)", backing);
    if (json) print_json({{"mountpoint", options.mountpoint}, {"backing", backing}, {"state", "fallback"}});
    return finish_output(kExitOk);
  }

  Result<StartOptions> start_options() const {
    SWALE_ASSIGN_OR_RETURN(const net::LaunchEnvironment launch,
                           net::detect_launch(capi::process_environment));
    if (launch.size > 1)
      return invalid_argument(
          "swale start is called once, beside the steps of a job, and starts the servers of all nodes "
          "itself; "
          "this is rank {} of {}: use swale run, or swale serve",
          launch.rank, launch.size);
    StartOptions options;
    options.mountpoint = whole_path(tree.at.empty() ? backing : tree.at);
    options.patience_s = static_cast<int64_t>(deadline_s);
    SWALE_ASSIGN_OR_RETURN(options.command, find_launcher(&options.nodes));
    options.document = {{"backing", whole_path(backing)}, {"nodes", options.nodes}};
    if (no_mount) options.document["no_mount"] = true;
    add_run_words(&options.command);
    if (!drain_at.empty()) {
      SWALE_ASSIGN_OR_RETURN(const int64_t at,
                             parse_drain_time(drain_at, std::time(nullptr), find_job_end()));
      options.drain_at = at;
      options.document["drain_at"] = at;
    }
    return options;
  }

  // None: this node alone.
  Result<std::vector<std::string>> find_launcher(uint32_t* count) const {
    std::vector<std::string> words;
    if (!launcher.empty()) {
      if (nodes == 0)
        return invalid_argument("--launcher {}: say by --nodes how many nodes it starts", launcher);
      *count = nodes;
      std::istringstream stream(launcher);
      for (std::string word; stream >> word;) words.push_back(word);
      return words;
    }
    const int64_t slurms = number_of("SLURM_JOB_NUM_NODES").value_or(1);
    *count = nodes != 0 ? nodes : static_cast<uint32_t>(std::clamp<int64_t>(slurms, 1, kNodesMax));
    if (*count == 1) return words;
    if (slurms < *count)
      return invalid_argument(
          "--nodes {}: this is no Slurm job of so many: say by --launcher what starts them", *count);
    const std::string number = std::to_string(*count);
    for (const std::string& word :
         {std::string("srun"), std::string("--overlap"), "--nodes=" + number, "--ntasks=" + number,
          std::string("--ntasks-per-node=1"), std::string("--kill-on-bad-exit=1")})
      words.push_back(word);
    return words;
  }

  void add_run_words(std::vector<std::string>* words) const {
    for (const std::string& word :
         {own_program().empty() ? "swale" : own_program(), std::string("run"), std::string("--backing"),
          whole_path(backing), std::string("--memory"), std::to_string(tree.memory), std::string("--fsync"),
          tree.fsync, std::string("--at-end"), at_end})
      words->push_back(word);
    if (no_mount) words->emplace_back("--no-mount");
    if (!tree.at.empty()) words->insert(words->end(), {"--at", whole_path(tree.at)});
    if (!tree.buffer.empty()) words->insert(words->end(), {"--buffer", whole_path(tree.buffer)});
  }
};

struct StopCommand {
  std::string path;
  bool json = false;

  int run() const {
    const auto tree = find_started(whole_path(path));
    if (!tree.ok()) return fail(tree.status());
    const std::string backing = tree->document.value("backing", path);
    if (tree->is_fallback()) return stop_fallback(*tree, backing);
    if (!tree->lives) {
      forget_started(*tree);
      complain("{}: its keeper has ended before, {}: swale fs recover {} brings what is missing", path,
               tree->document.contains("exit_code") ? "because a drain or a server failed" : "by a kill",
               backing);
      return kExitFailure;
    }
    // While it is mounted one can see how far it is. What it puts aside then, the end does not tell again.
    const Status synced = sync_tree(whole_path(path));
    const auto connection = connect_to_keeper(tree->folder);
    if (!connection.ok()) return fail(connection.status());
    // The server's words, before an end without a failure takes them away.
    const std::vector<std::string> said = last_lines(tree->document.value("log", ""));
    const int ended = end_at_keeper(*connection);
    if (ended == kExitOk && synced.ok()) {
      json ? print_json({{"mountpoint", whole_path(path)}, {"backing", backing}})
           : print_line(fmt::format("{}: its tree has ended, and all is there", path));
      return finish_output(kExitOk);
    }
    for (const std::string& line : ended == kExitOk ? said : last_lines(tree->document.value("log", "")))
      repeat_complaint(line);
    if (ended == kExitOk) return fail(synced);
    complain("{}: its tree has ended with exit status {}; swale fs recover {} repeats the end", path, ended,
             backing);
    return ended;
  }

 private:
  int stop_fallback(const StartedTree& tree, const std::string& backing) const {
    forget_started(tree);
    complain("{}: there was NO BUFFER (start --fallback): programs have written to {} itself", path, backing);
    if (json) print_json({{"mountpoint", whole_path(path)}, {"backing", backing}, {"state", "fallback"}});
    return finish_output(kExitOk);
  }

  static std::vector<std::string> last_lines(const std::string& file) {
    constexpr size_t kLinesMax = 20;
    std::vector<std::string> lines;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line); lines.push_back(line))
      if (lines.size() == kLinesMax) lines.erase(lines.begin());
    return lines;
  }
};

struct StatusCommand {
  std::string path;
  bool json = false;

  int run() const {
    std::vector<StartedTree> trees;
    if (path.empty()) {
      auto all = find_started();
      if (!all.ok()) return fail(all.status());
      trees = *std::move(all);
    } else {
      auto one = find_started(whole_path(path));
      if (!one.ok() && one.status().code() != Code::kNotFound) return fail(one.status());
      if (one.ok()) trees.push_back(*std::move(one));
    }
    Json list = Json::array();
    bool good = path.empty() || !trees.empty();
    for (const StartedTree& each : trees) {
      list.push_back(describe(each));
      good &= list.back()["state"] == kThere || list.back()["state"] == kWithoutMount;
    }
    if (json)
      print_json(list);
    else
      for (const Json& each : list) print_line(line_of(each));
    if (trees.empty() && !json)
      print_line(path.empty() ? "no tree was started" : path + ": no tree was started there");
    return finish_output(good ? kExitOk : kExitNotFound);
  }

 private:
  static Json describe(const StartedTree& tree) {
    Json json = tree.document;
    if (tree.is_fallback()) return json;
    json["state"] = tree.lives ? kThere : json.contains("exit_code") ? "failed" : "killed";
    if (tree.lives && json.value("no_mount", false)) json["state"] = kWithoutMount;
    if (!tree.lives) return json;
    const auto stats = ask_tree(json.value("mountpoint", ""));
    if (stats.ok())
      for (const char* name : {"undrained_files", "undrained_bytes", "failed_drains"})
        json[name] = stats->value(name, uint64_t{0});
    else
      json["state"] = "not answering";
    return json;
  }

  static std::string line_of(const Json& tree) {
    const std::time_t since = tree.value("since", int64_t{0});
    std::tm local = {};
    char text[32] = "";
    if (::localtime_r(&since, &local) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
    std::string line = fmt::format("{}: {} since {} on {} node(s)", tree.value("mountpoint", ""),
                                   tree.value("state", ""), text, tree.value("nodes", 1));
    if (tree.contains("why"))
      return line + fmt::format("; NO BUFFER: programs write to {} itself: {}", tree.value("backing", ""),
                                tree.value("why", ""));
    if (tree.contains("undrained_files"))
      return line + fmt::format("; {} files with {} MiB are not in {} yet", tree.value("undrained_files", 0),
                                tree.value("undrained_bytes", uint64_t{0}) / kMiB, tree.value("backing", ""));
    return line +
           fmt::format("; see {}, and swale fs recover {}", tree.value("log", ""), tree.value("backing", ""));
  }
};

void add_stop(CLI::App& app, Run* run) {
  auto command = std::make_shared<StopCommand>();
  OptionSet sub = add_command(
      app, "stop", "ends a tree that swale start has started",
      {
          .description =
              "Brings all to the backing directory, unmounts the tree on all nodes, and returns when that "
              "is done: "
              "exit status 0 only if everything is there. It shows how far it is. Programs should have "
              "closed "
              "their files; files that are open fail then. Where swale start has fallen back there was no "
              "tree: it says so, and all is there.",
          .examples = {{"mkdir -p results && swale start results && date > results/now && swale stop results",
                        "results/now is a plain file then"}},
      });
  sub.add_option("DIR", command->path, "where the tree is mounted").required().type_name("DIR");
  sub.add_flag("--json", command->json, "print JSON when all is there");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

void add_status(CLI::App& app, Run* run) {
  auto command = std::make_shared<StatusCommand>();
  OptionSet sub = add_command(
      app, "status", "shows the trees that swale start has started",
      {
          .description =
              "Of this user, on this node: where, since when, on how many nodes, and what is not on the "
              "backing directory yet; and where swale start --fallback has found none to start.",
          .examples = {{"swale status | head -n 1", "a line a tree"}},
          .exit_1 =
              "there is none at DIR, or one has fallen back, has failed, was killed, or does not answer",
      });
  sub.add_option("DIR", command->path, "this one alone").type_name("DIR");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace

void add_start(CLI::App& app, Run* run) {
  auto command = std::make_shared<StartCommand>();
  OptionSet sub = add_command(
      app, "start", "mounts the tree of a job, for programs that are started later",
      {
          .description =
              "Mounts the tree of DIR as `swale run --backing DIR` does, and returns. It stays, whatever "
              "programs "
              "come and go, until `swale stop DIR`: for the steps of a batch job, or at a prompt. Call it "
              "once: in a "
              "Slurm job of several nodes it starts a server on each, as a step of its own beside the "
              "others (srun "
              "--overlap); other launchers are named by --launcher, and start one process a node.\n\n"
              "A server that is killed is started again. What a killed job has left in the buffer comes to "
              "DIR first. Programs write past the kernel, too, by `srun swale run --preload -- program`. "
              "SIGTERM to the keeper (`swale status --json` says which process) ends all as swale stop "
              "does; so end "
              "what Slurm would kill by `#SBATCH --signal=B:TERM@600` and a trap, or let --drain-at bring "
              "all to DIR "
              "before the time limit: then little is left to lose, and the programs go on.",
          .examples =
              {{"mkdir -p results && swale start results && date > results/now && swale status results && "
                "swale stop "
                "results",
                "a tree, a file in it, and the end"}},
      });
  sub.add_option("DIR", command->backing, "the backing directory; must be there").required().type_name("DIR");
  command->tree.add_to(sub);
  sub.add_option("--at-end", command->at_end, "what becomes of what is not on DIR yet; by default drain")
      .one_of({"drain", "keep", "discard"});
  sub.add_option(
         "--launcher", command->launcher,
         "what starts a process on each node, as \"mpirun --map-by ppr:1:node\"; by default srun in a Slurm "
         "job of several nodes")
      .type_name("WORDS");
  sub.add_option("--nodes", command->nodes,
                 "how many nodes it starts; by default those of the Slurm job, or 1")
      .between(1u, kNodesMax)
      .type_name("N");
  sub.add_option(
         "--drain-at", command->drain_at,
         "from then on bring all to DIR every 10 s: +50m (from now), -10m (before the end of the Slurm job), "
         "or a local time as 2026-11-28T14:30")
      .type_name("WHEN");
  sub.add_option("--deadline", command->deadline_s, "seconds until all nodes have mounted it; by default 300")
      .between(uint64_t{1}, kDeadlineMax)
      .type_name("S");
  sub.add_flag(
         "--fallback", command->fallback,
         "where it cannot be mounted: exit status 0 all the same, and say so, as swale status and stop do; "
         "programs then write to DIR itself. Not where a job has not brought all to DIR (swale fs recover), "
         "nor with --at, where the programs' paths lead")
      .excludes("--at");
  sub.add_flag("--no-mount", command->no_mount,
               "where nothing can be mounted: programs come to the tree by `swale run --no-mount -- program`")
      .excludes("--at")
      .excludes("--fallback");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
  add_stop(app, run);
  add_status(app, run);
}

}  // namespace swale::tools
