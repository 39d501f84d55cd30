// `swale tier stats`: how the tiered write buffer under a running mount or I/O server stands.
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "fs/tier_fs.h"
#include "iond/stats_socket.h"
#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_engine.h"

namespace swale::tools {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr double kPpmOfPercent = 10'000;
constexpr size_t kTextBytesMax = 65'536;  // of an extended attribute
constexpr Nanos kPatience = seconds(30);  // with an I/O server

struct TierStatsCommand {
  std::string path;
  bool json = false;
  bool live = false;
  double every_s = 1;
  uint64_t rounds = 0;

  int run() const;
};

// Of the one rank that counts.
double number(const Json& stats, const char* name) {
  const Json& counters = stats.at("stats");
  const auto found = counters.find(name);
  return found == counters.end() ? 0 : found->value("sum", 0.0);
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string_view flush_state(const Json& stats) {
  if (number(stats, "log.failed") > 0) return "the log has failed";
  if (number(stats, "flush.active") > 0) return "flushing";
  return number(stats, "log.dirty") > 0 ? "waiting" : "nothing to flush";
}

}  // namespace

Result<Json> ask_tier(const std::string& path) {
  std::string text(kTextBytesMax, '\0');
  const ssize_t bytes = ::getxattr(path.c_str(), fs::kStatsAttribute, text.data(), text.size());
  if (bytes < 0 && errno != ENODATA && errno != EOPNOTSUPP) return errno_status(errno, path);
  if (bytes >= 0) {
    text.resize(static_cast<size_t>(bytes));
  } else {
    auto told = iond::ask_stats_socket(path, kPatience);
    if (told.status().code() == Code::kNotFound)
      return invalid_argument(
          "{}: is not the mountpoint of a tiered write buffer (swale tier mount), nor the SSD directory of "
          "an I/O server that runs (swale iond)",
          path);
    if (!told.ok()) return told.status();
    text = *std::move(told);
  }
  Json found = Json::parse(text, nullptr, false);
  if (!found.is_object() || !found.value("stats", Json()).is_object())
    return corruption("{}: who serves it answers no JSON object with counters", path);
  return found;
}

std::string tier_stats_table(const Json& stats) {
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  const double capacity = number(stats, "log.capacity");
  line("SSD log",
       fmt::format("{:.1f} of {:.1f} MiB used, {:.1f} MiB not yet on the backing device",
                   number(stats, "log.used") / kMib, capacity / kMib, number(stats, "log.dirty") / kMib));
  line("written", fmt::format("{:.1f} MiB in {:.0f} writes, {:.1f} % of it to the SSD",
                              number(stats, "write.bytes") / kMib, number(stats, "write.requests"),
                              percent(number(stats, "ssd.bytes"), number(stats, "write.bytes"))));
  line("flushed", fmt::format("{:.1f} MiB, {:.1f} of them in passing", number(stats, "flush.bytes") / kMib,
                              number(stats, "flush.gap_bytes") / kMib));
  line("flush", std::string(flush_state(stats)));
  line("random percentage",
       fmt::format("{:.1f} % now, {:.1f} % on average, threshold {:.1f} %",
                   number(stats, "random.now") / kPpmOfPercent, number(stats, "random.mean") / kPpmOfPercent,
                   number(stats, "random.threshold") / kPpmOfPercent));
  line("queue", fmt::format("{:.0f} for the backing device, {:.0f} requests under way",
                            number(stats, "queue.depth"), number(stats, "requests.open")));
  line("waits",
       fmt::format("{:.0f} for the log, {:.0f} for the queue, {:.0f} for overlapping writes",
                   number(stats, "wait.log"), number(stats, "wait.queue"), number(stats, "wait.overlap")));
  line("pauses", fmt::format("flush {:.3f} s, writers {:.3f} s", number(stats, "flush.paused") / 1e9,
                             number(stats, "wait.log_time") / 1e9));
  const double failed =
      number(stats, "error.append") + number(stats, "error.flush") + number(stats, "error.direct");
  line("failures", fmt::format("{:.0f}; {:.0f} bytes are lost", failed, number(stats, "lost.bytes")));
  line("memory", fmt::format("{:.1f} MiB reserved", number(stats, "memory.reserved") / kMib));
  if (stats.at("stats").contains("clients"))
    line("clients",
         fmt::format("{:.0f} ranks with {:.0f} open files; {:.0f} requests wait", number(stats, "clients"),
                     number(stats, "files.open"), number(stats, "requests.waiting")));
  return text;
}

namespace {

// One line, rewritten: what has changed since the last one, a second.
std::string live_line(const Json& before, const Json& now, double seconds) {
  const auto rate = [&](const char* name) { return (number(now, name) - number(before, name)) / seconds; };
  constexpr int kColumns = 20;
  const double share = percent(number(now, "log.used"), number(now, "log.capacity"));
  const int columns = static_cast<int>(share / 100 * kColumns);
  return fmt::format(
      "SSD [{:=<{}}{:{}}] {:5.1f} %  write {:7.1f} MiB/s, {:5.1f} % to SSD  random {:5.1f} %  threshold "
      "{:5.1f} %  flush {:7.1f} MiB/s, {}",
      "", columns, "", kColumns - columns, share, rate("write.bytes") / kMib,
      percent(rate("ssd.bytes"), rate("write.bytes")), number(now, "random.now") / kPpmOfPercent,
      number(now, "random.threshold") / kPpmOfPercent, rate("flush.bytes") / kMib, flush_state(now));
}

int TierStatsCommand::run() const {
  auto now = ask_tier(path);
  if (!now.ok()) return fail(now.status());
  if (!live) {
    json ? print_json(*now) : print(tier_stats_table(*now));
    return finish_output(kExitOk);
  }
  const bool rewrites = ::isatty(STDOUT_FILENO) == 1;
  for (uint64_t round = 0; rounds == 0 || round < rounds; ++round) {
    ::usleep(static_cast<useconds_t>(every_s * 1e6));
    const Json before = *now;
    now = ask_tier(path);
    if (!now.ok()) return fail(now.status());  // it has ended
    if (json) {
      print_json(*now);
    } else {
      if (rewrites) print_bytes("\r\x1b[K");
      print(live_line(before, *now, every_s) + (rewrites ? "" : "\n"));
    }
    if (const int failed = finish_output(kExitOk); failed != kExitOk) return failed;
  }
  if (rewrites && !json) print("\n");
  return finish_output(kExitOk);
}

}  // namespace

void add_tier_stats(CLI::App& app, Run* run) {
  auto command = std::make_shared<TierStatsCommand>();
  OptionSet sub = add_command(
      app, "tier-stats", "how the tiered write buffer under a running mount or I/O server stands",
      {
          .description =
              "Asks the process that serves the mount, or the I/O server whose SSD directory is named: how "
              "full the SSD log is, which share of the writes went there, the random percentage that the "
              "detector sees and its threshold, what was flushed, and what waited; of an I/O server also "
              "its clients. With --live, a line each second until it has ended. `swale tier stats` is the "
              "same as `swale tier-stats`.",
          .examples = {{"mkdir -p slow mnt && swale tier mount --ssd ssd --backing slow --size 16M mnt && "
                        "swale tier stats mnt && "
                        "fusermount3 -u mnt",
                        "how a fresh mount stands"}},
      });
  sub.add_option("PATH", command->path,
                 "the mountpoint of a swale tier mount, or the SSD directory of a swale iond")
      .required();
  sub.add_flag("--json", command->json, "print JSON, one object for each look");
  sub.add_flag("--live", command->live, "look again and again");
  sub.add_option("--every", command->every_s, "with --live: seconds between looks; by default 1")
      .between(0.01, 3600.0)
      .type_name("SECONDS");
  sub.add_option("--rounds", command->rounds, "with --live: how many looks; by default, until it has ended")
      .type_name("N");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
