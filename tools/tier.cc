// `swale tier`: makes the SSD directory of a tiered write buffer, looks into it, recovers it, and drains it.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

#include "tier/store/store.h"
#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_choices.h"
#include "tools/tier_engine.h"

namespace swale::tools {
namespace {

// `swale tier mount` is the command tier-mount (main.cc). Completion and help of ACTION name these words,
// too.
constexpr std::string_view kCommandsOfTheirOwn[] = {"mount", "stats", "measure", "trace"};

struct TierCommand {
  std::string action;
  TierChoices tier;
  bool json = false;
  bool accept_loss = false;

  int run() const;

 private:
  int look(io::PosixDevice& device) const;
  int use(io::PosixDevice& device) const;
};

Json texts(const std::vector<Status>& problems) {
  Json list = Json::array();
  for (const Status& problem : problems) list.push_back(std::string(problem.message()));
  return list;
}

Json lost_ranges(const std::vector<tier::LostBytes>& lost) {
  Json list = Json::array();
  for (const tier::LostBytes& range : lost)
    list.push_back(
        {{"path", range.path}, {"offset", range.offset}, {"length", range.length}, {"what", range.what}});
  return list;
}

std::string line_of(const tier::LostBytes& range) {
  return range.length == 0 ? fmt::format("{}: {}", range.path, range.what)
                           : fmt::format("{}: bytes {} to {} are lost: {}", range.path, range.offset,
                                         range.offset + range.length, range.what);
}

// verify, dump: of a log that nobody has open.
int TierCommand::look(io::PosixDevice& device) const {
  const std::string& ssd = tier.ssd;
  if (const Status unused = expect_unused(device, ssd); !unused.ok()) return fail(unused);
  const auto show = [this](const tier::LogRecord& record) {
    json ? print_json(json_of(record)) : print_line(record.text());
  };
  const bool dumps = action == "dump";
  const auto report =
      tier::Store::inspect(device, ssd, dumps ? show : std::function<void(const tier::LogRecord&)>());
  if (!report.ok()) return fail(report.status());
  if (const Status own = own_limit_among(report->problems); !own.ok()) return fail(own);
  if (json) {
    Json found = json_of(*report);
    found["problems"] = texts(report->problems);
    print_json(found);
  } else {
    for (const Status& problem : report->problems) print_line(problem.message());
    print(fmt::format(
        "{}: log {:016x}, {} of {} segments hold {} records with {} bytes; {} writes in the queue; {}; {}\n",
        ssd, report->log_id, report->live_segments, report->segments, report->records, report->payload_bytes,
        report->queued, report->closed ? "closed cleanly" : "not closed",
        report->problems.empty() ? "all checksums are right"
                                 : fmt::format("{} problems", report->problems.size())));
  }
  return finish_output(report->problems.empty() ? kExitOk : kExitNotFound);
}

// make, recover, drain: as the next program that uses the directories would.
int TierCommand::use(io::PosixDevice& device) const {
  const std::string &ssd = tier.ssd, &backing = tier.backing;
  if (backing.empty()) {
    complain("tier {}: give the backing directory, too", action);
    return kExitUsage;
  }
  auto wanted = tier.store_options(ssd, backing);
  if (!wanted.ok()) return fail(wanted.status());
  tier::StoreOptions& options = *wanted;
  options.accept_loss = accept_loss;
  if (accept_loss && action != "recover") {
    complain("tier {}: --accept-loss belongs to recover", action);
    return kExitUsage;
  }
  // A mistyped path makes no log, and make leaves alone what is there.
  const bool makes = action == "make";
  const auto there = device.exists(ssd + "/log");
  if (!there.ok()) return fail(there.status());
  if (*there == makes && !accept_loss)
    return fail(makes ? error(Code::kAlreadyExists, Scope::kFile, "{}: has a log already", ssd)
                      : error(Code::kNotFound, Scope::kFile, "{}: has no tier's log", ssd));
  if (const Status marked = makes ? Status() : expect_marked(device, backing); !marked.ok())
    return fail(marked);
  auto store = tier::Store::open(device, options);
  if (!store.ok()) return fail(store.status());
  const tier::RecoveryReport& found = (*store)->recovery();
  const Status closed =
      (*store)->close(action == "drain" ? tier::Store::AtClose::kDrain : tier::Store::AtClose::kKeep);
  if (!closed.ok()) return fail(closed);
  const tier::Stats stats = (*store)->stats();
  if (makes && !json) {
    print(fmt::format("{}: made a log of {} bytes for {}\n", ssd,
                      options.engine.segment_count * options.engine.segment_bytes, backing));
  } else if (json) {
    print_json(Json{{"records", found.records},
                    {"queued", found.queued},
                    {"dropped", found.dropped},
                    {"dirty_bytes", found.dirty_bytes},
                    {"truncates", found.truncates},
                    {"damaged", texts(found.damaged)},
                    {"torn", found.torn},
                    {"mended", found.mended},
                    {"lost", lost_ranges(found.lost)},
                    {"kept", json_of(found.kept)},
                    {"brought_bytes", found.brought_bytes},
                    {"accepted", accept_loss},
                    {"left_bytes", stats.dirty_bytes}});
  } else {
    for (const Status& damaged : found.damaged) print_line(damaged.message());
    for (const tier::LostBytes& range : found.lost) print_line(line_of(range));
    for (const tier::KeptBytes& kept : found.kept) print_line(kept.text().message());
    if (found.brought_bytes > 0)
      print(fmt::format("{} bytes that had been kept aside were brought to their files\n",
                        found.brought_bytes));
    if (accept_loss && !found.lost.empty())
      print("these losses are accepted: reads give older bytes there\n");
    print(fmt::format(
        "{}: {} records and {} queued writes, {} of files that were removed; {} bytes were not on "
        "{}, {} are left\n",
        ssd, found.records - found.queued, found.queued, found.dropped, found.dirty_bytes, backing,
        stats.dirty_bytes));
  }
  const bool told = found.damaged.empty() && found.lost.empty() && found.kept.empty();
  return finish_output(told || accept_loss ? kExitOk : kExitNotFound);
}

int TierCommand::run() const {
  if (std::find(std::begin(kCommandsOfTheirOwn), std::end(kCommandsOfTheirOwn), action) !=
      std::end(kCommandsOfTheirOwn)) {
    complain("tier: \"{0}\" comes before its options: swale tier {0} ...", action);
    return kExitUsage;
  }
  io::PosixDevice device;
  return action == "verify" || action == "dump" ? look(device) : use(device);
}

}  // namespace

void add_tier(CLI::App& app, Run* run) {
  auto command = std::make_shared<TierCommand>();
  OptionSet sub = add_command(
      app, "tier", "makes, verifies, shows, recovers or drains the SSD log of a tiered write buffer",
      {
          .description =
              "A tiered write buffer keeps writes in a log on an SSD until they are on slower storage, the "
              "backing directory. make makes an empty log. verify reads the log and checks every checksum; "
              "dump shows its records; both change nothing. recover does what the next program that uses "
              "the directories would do: it takes over the log of a program that was killed. Bytes that a "
              "damaged record has lost are named, and reads of them fail until they are overwritten; with "
              "--accept-loss reads give the older bytes of the backing directory from then on, also if the "
              "whole log is gone. Bytes of a file that is not found, and which nobody removed through the "
              "tier, are kept in BACKING/.swale-tier/kept.ID and named, and the next recover, drain or "
              "mount that finds the file brings them to it; --accept-loss gives them up. drain also writes "
              "everything to the backing directory, whose files are then complete. Two programs never use "
              "one directory at a time. `swale tier mount` mounts them, `swale tier stats` shows how a "
              "mount stands, `swale tier measure` measures the disks, and `swale tier trace` reads a "
              "recording: each has options and a page of its own (swale-tier-mount(1) and so on).",
          .examples = {{"mkdir -p slow && swale tier make ssd slow --size 16M",
                        "a log in ssd for the files in slow"},
                       {"swale tier verify ssd", "checks the log"},
                       {"swale tier dump ssd --json", "its records, a line of JSON each"},
                       {"swale tier recover ssd slow --accept-loss", "goes on without what is lost"},
                       {"swale tier drain ssd slow", "writes all that is left to the backing directory"}},
          .exit_1 =
              "the log is damaged, what is lost is named; or bytes of files that were not found are kept "
              "aside",
      });
  sub.add_option(
         "ACTION", command->action,
         "make, verify, dump, recover or drain; mount, stats, measure or trace: commands of their own")
      .required()
      .one_of({"make", "verify", "dump", "recover", "drain", "mount", "stats", "measure", "trace"});
  sub.add_option("SSD", command->tier.ssd, "the directory of the log").required();
  sub.add_option("BACKING", command->tier.backing, "the directory of the files; for make, recover and drain");
  command->tier.add_size(sub);
  command->tier.add_options(
      sub, "for make, recover and drain: options tier.segments and so on: see swale-options(7)");
  sub.add_flag("--accept-loss", command->accept_loss, "recover: give up what is lost, and go on");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
