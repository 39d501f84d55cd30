// `swale tier trace`: what a mount's requests were (swale tier mount --trace).
#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>

#include "base/log.h"
#include "tier/trace/trace_format.h"
#include "tools/command_line.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

using Kind = tier::TraceRecord::Kind;

struct TierTraceCommand {
  std::string path;
  bool records = false;
  uint64_t lines_max = ~uint64_t{0};
  bool json = false;

  int run() const;

 private:
  void show(const tier::TraceRecord& record) const;
};

// Sums over a trace; memory: 16 bytes a file.
struct Sums {
  std::array<uint64_t, tier::TraceRecord::kKinds> requests = {};
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t writes_in_order = 0;  // that begin where the write of this file before ended
  Nanos last = 0;
  std::unordered_map<uint64_t, uint64_t> ends;  // of the last write, by file

  uint64_t of(Kind kind) const { return requests[static_cast<size_t>(kind) - 1]; }
  void add(const tier::TraceRecord& record) {
    ++requests[static_cast<size_t>(record.kind) - 1];
    last = record.time;
    const auto [end, first] = ends.try_emplace(record.file, 0);
    if (record.kind == Kind::kRead) read_bytes += record.length;
    if (record.kind != Kind::kWrite) return;
    written_bytes += record.length;
    writes_in_order += end->second == record.offset;
    end->second = record.offset + record.length;
  }
};

void TierTraceCommand::show(const tier::TraceRecord& record) const {
  const auto name = trace_kind_name(record.kind);
  if (json) {
    print_json(Json{{"time_ns", record.time},
                    {"kind", name},
                    {"file", record.file},
                    {"offset", record.offset},
                    {"length", record.length}});
  } else {
    print(fmt::format("{:>14.6f} {:<8} {:>12} {:>16} {:>9}\n", to_seconds(record.time), name, record.file,
                      record.offset, record.length));
  }
}

Json json_of(const tier::TraceSummary& summary, const Sums& sums) {
  Json requests = Json::object();
  for (uint8_t kind = 1; kind <= tier::TraceRecord::kKinds; ++kind)
    requests[std::string(trace_kind_name(static_cast<Kind>(kind)))] = sums.of(static_cast<Kind>(kind));
  return {{"begun_ns", summary.begun_ns},        {"seconds", to_seconds(sums.last)},
          {"records", summary.records},          {"requests", std::move(requests)},
          {"files", sums.ends.size()},           {"read_bytes", sums.read_bytes},
          {"written_bytes", sums.written_bytes}, {"writes_in_order", sums.writes_in_order},
          {"dropped", summary.dropped},          {"complete", summary.complete},
          {"torn_bytes", summary.torn_bytes}};
}

std::string text_of(const std::string& path, const tier::TraceSummary& summary, const Sums& sums) {
  std::string text = fmt::format("{}: {} requests in {:.3f} s to {} files\n", path, summary.records,
                                 to_seconds(sums.last), sums.ends.size());
  for (uint8_t kind = 1; kind <= tier::TraceRecord::kKinds; ++kind) {
    const auto what = static_cast<Kind>(kind);
    text += fmt::format("{:<22}{}", trace_kind_name(what), sums.of(what));
    if (what == Kind::kRead) text += fmt::format(", {} bytes", sums.read_bytes);
    if (what == Kind::kWrite)
      text += fmt::format(", {} bytes, {:.1f} % where the one before ended", sums.written_bytes,
                          100.0 * static_cast<double>(sums.writes_in_order) /
                              static_cast<double>(std::max<uint64_t>(1, sums.of(what))));
    text += '\n';
  }
  if (summary.dropped > 0)
    text +=
        fmt::format("{} requests are missing: the trace could not be written as quickly\n", summary.dropped);
  if (!summary.complete)
    text += fmt::format(
        "it ends early: the mount was killed, is running, or could not write on; {} bytes are torn\n",
        summary.torn_bytes);
  return text;
}

int TierTraceCommand::run() const {
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage);
  const auto file = device.open(path, io::OpenMode::kRead);
  if (!file.ok()) return fail(file.status());
  Sums sums;
  uint64_t shown = 0;
  const auto summary = tier::read_trace(**file, [&](const tier::TraceRecord& record) {
    if (records && shown++ < lines_max) show(record);
    sums.add(record);
  });
  if (!summary.ok()) return fail(summary.status());
  if (!records) json ? print_json(json_of(*summary, sums)) : print(text_of(path, *summary, sums));
  return finish_output(summary->complete && summary->dropped == 0 ? kExitOk : kExitNotFound);
}

}  // namespace

void add_tier_trace(CLI::App& app, Run* run) {
  auto command = std::make_shared<TierTraceCommand>();
  OptionSet sub = add_command(
      app, "tier-trace", "what the requests of a mount of the tiered write buffer were",
      {
          .description =
              "Reads a trace that `swale tier mount --trace FILE` has recorded: how many requests of each "
              "kind, bytes, files, and the share of writes that go on where the write before ended. "
              "--records prints each request: seconds since the beginning, kind, file (its inode number), "
              "offset, length; of a truncate the new size, of an unlink how many names are left. A trace "
              "has no names of files and none of their bytes. `bench_tier --trace FILE` of the sources "
              "replays it under each policy. `swale tier trace` is the same as `swale tier-trace`.",
          .examples = {{"mkdir -p slow mnt && swale tier mount --foreground --ssd ssd --backing slow --size "
                        "16M --trace t.trace "
                        "mnt > /dev/null & until mountpoint -q mnt; do sleep 0.02; done; date > mnt/now; "
                        "fusermount3 -u mnt; wait; swale tier trace t.trace",
                        "mounts and records; when the mount has ended, shows what was asked"}},
          .exit_1 = "the trace ends early, or requests are missing",
      });
  sub.add_option("FILE", command->path, "the trace").required().type_name("FILE");
  sub.add_flag("-r,--records", command->records, "print each request");
  sub.add_option("-n,--limit", command->lines_max, "with --records: at most N").at_least(0).type_name("N");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
