#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/processors.h"
#include "query/expression.h"
#include "query/filter.h"
#include "tools/command_line.h"
#include "tools/epoch_choice.h"
#include "tools/options.h"
#include "tools/parallel_scan.h"
#include "tools/progress.h"
#include "tools/reading_bar.h"

namespace swale::tools {
namespace {

constexpr unsigned kThreadsMax = 256;

struct ScanCommand {
  Common common;
  EpochChoice choice;
  bool keep_going = false;
  std::string where;
  uint64_t limit = 0;
  unsigned threads = 0;

  int run() const;
};

void tell_damage(uint64_t places, uint64_t unread) {
  complain("{} skipped, and at least {} not read",
           places == 1 ? "1 damaged place was" : fmt::format("{} damaged places were", places),
           unread == 1 ? "1 record was" : fmt::format("{} records were", unread));
}

int ScanCommand::run() const {
  const auto layout = common.layout();
  if (!layout.ok()) return fail(layout.status());
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const run::Schema& schema = reader.manifest().schema;
  const auto format = RecordFormat::make({.layout = *layout,
                                          .notation = common.notation(),
                                          .typed = common.typed,
                                          .fields = common.fields,
                                          .default_text = {"epoch", "key", "value"},
                                          .default_json = {"epoch", "key", "bytes", "value"}},
                                         schema);
  if (!format.ok()) return fail(format.status());
  std::optional<query::Filter> condition;
  if (!where.empty()) {
    Result<query::Expression> parsed = query::Expression::parse_condition(where, schema);
    if (!parsed.ok()) return fail(parsed.status().with_context("--where"));
    condition.emplace(std::move(*parsed));
  }
  const auto epochs = choice.choose(reader.manifest(), common.path);
  if (!epochs.ok()) return fail(epochs.status());
  std::atomic<uint64_t> left_out = 0;
  uint64_t damaged_places = 0;
  uint64_t unread = 0;
  ProgressBar bar;
  ScanJob job;
  job.epochs = *epochs;
  job.threads = threads != 0 ? threads : std::min(usable_processors(), kThreadsMax);
  job.limit = limit;
  job.format = [&](const query::RecordView& record, std::string* out) {
    if (condition && !condition->holds(record)) return false;
    if (format->append(record, out)) return true;
    left_out.fetch_add(1, std::memory_order_relaxed);
    return false;
  };
  job.write = [&](Bytes records) {
    print_records(*layout, records);
    return std::ferror(stdout) == 0;
  };
  if (keep_going) {
    job.blocks_min = 1;  // single runs: a lost header is known before the run is read
    job.damaged = [&](const Status& cause, uint64_t records) {
      ++damaged_places;
      unread += records;
      complain("passed: {}", cause.message());
    };
  }
  if (ProgressBar::wanted_beside_output())
    job.progress = [&](uint64_t done, uint64_t total) { bar.update(done, total, "records"); };
  print(format->header());
  const Result<uint64_t> written = parallel_scan(reader, job);
  if (!written.ok()) return fail(written.status());
  if (left_out != 0) {
    complain("{} records were left out: their values are too short for the fields", left_out.load());
  }
  if (damaged_places != 0) tell_damage(damaged_places, unread);
  return finish_output(damaged_places == 0 ? kExitOk : kExitFailure);
}

struct KeysCommand {
  Common common;
  std::optional<size_t> sample;
  uint64_t seed = 1;

  int run() const;
};

int KeysCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const imd::Manifest& manifest = reader.manifest();
  if (manifest.epochs.empty() && !common.epoch) return kExitOk;
  const int64_t epoch = common.epoch.value_or(static_cast<int64_t>(manifest.epochs.size()) - 1);
  if (const auto known = reader.count(epoch); !known.ok()) return fail(known.status());
  const Notation notation = common.notation();
  const auto print_key = [&](Bytes key) {
    if (common.json) {
      print_json({{"key", key_json(key, notation, manifest.schema.key)}});
    } else {
      print_line(show_key(key, notation, manifest.schema.key));
    }
    return std::ferror(stdout) == 0;
  };
  const ReadingBar bar(reader, sample ? 0 : bytes_of_epochs(manifest, epoch),
                       ProgressBar::wanted_beside_output());
  const Status status =
      sample ? reader.sample(epoch, *sample, seed, print_key) : reader.keys(epoch, print_key);
  if (!status.ok()) return fail(status);
  return finish_output(kExitOk);
}

}  // namespace

void add_scan(CLI::App& app, Run* run) {
  auto command = std::make_shared<ScanCommand>();
  OptionSet sub = add_command(
      app, "scan", "prints every record, or those that meet a condition, in storage order",
      {.description =
           "Prints epoch, key and value, separated by tabs; with --json one object per line; with --format "
           "csv the numbers of the schema under their names; with --raw bytes as they are. Several threads "
           "read and "
           "compute; the order of the output does not depend on them.\n\n"
           "Conditions (--where) and columns (--fields) consist of fields of the schema (energy, "
           "position[2]), epoch, step, time, key, value, bytes (the value's length), numbers, text in quotes "
           "(compared with key: a key as swale-get(1) takes it; with value: text, or 0x and hex digits), + - "
           "* / %, == != < <= > >=, && || ! (or: and, or, not) and parentheses. key ~ "
           "\"atom-*\" "
           "compares with a pattern of the shell. u64(key), u32(key), i64(key) and i32(key) are the numbers "
           "that "
           "keys of 8 or 4 bytes are; where the directory says that keys are numbers (imd.key), key is one: "
           "key == "
           "13. Functions are abs(), sqrt() and has(field). A field with an unusual name "
           "stands "
           "in brackets: [x-y].\n\n"
           "Integers are compared exactly. A comparison with a missing number (the value is too short) is "
           "false; so is one with NaN. --raw leaves out records that lack one of its fields. --raw prints "
           "fields, key and value as they are stored, epoch as 4 bytes, step as 8 bytes and time as a "
           "double, little-endian.\n\nWithout --keep-going damage ends the scan with an error. With it, the "
           "scan leaves out the records in or across a damaged block of 4 KiB; if the header of a run (some "
           "MiB) is lost, it leaves out the records of the run.",
       .examples = {
           {"swale scan out/particles --epoch 3 --limit 10 --u64", "ten records of an epoch"},
           {"swale scan out/particles --where 'energy > 998.5 && id < 1000' --fields "
            "'step,u64(key),energy,position' --format csv",
            "matching records as a table"},
           {"swale scan out/particles -e 3 --where 'velocity[0]*velocity[0] + velocity[1]*velocity[1] < 9' "
            "--json",
            "conditions may compute"},
           {"swale scan out/particles -e 3 --fields id,energy --raw 2> /dev/null > table.bin",
            "for numpy.fromfile(\"table.bin\", \"<u8,<f4\")"},
           {"swale scan out/particles --where 'key ~ \"atom-*\"'", "keys by a pattern"}}});
  command->common.add_path(sub);
  command->choice.add(sub, "all");
  sub.add_option("-w,--where", command->where, "only records for which this is true").type_name("CONDITION");
  sub.add_option("-n,--limit", command->limit, "stop after N records (0: all)").at_least(0).type_name("N");
  sub.add_option("-j,--jobs", command->threads,
                 "number of threads (default: one for each processor that the process may use)")
      .between(1U, kThreadsMax)
      .type_name("N");
  sub.add_flag(
      "--keep-going", command->keep_going,
      "skip damage: print the records that can be read, report at the end what could not, exit with 3");
  command->common.add_output(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

void add_keys(CLI::App& app, Run* run) {
  auto command = std::make_shared<KeysCommand>();
  OptionSet sub = add_command(
      app, "keys", "lists the distinct keys of one epoch",
      {
          .description = "Prints one key per line, as swale-get(1) takes it, in storage order. Needs memory "
                         "for the keys of one partition.",
          .examples =
              {{"swale keys out/particles --epoch 0 --u64 | head", "some keys"},
               {"swale keys out/particles --epoch 0 --sample 100 --seed 7", "a hundred random keys"},
               {"swale keys out/particles | head -n 5 | xargs -d '\\n' swale get out/particles --epoch 0 --",
                "and their values"}},
      });
  command->common.add_path(sub);
  command->common.add_epoch(sub, "this epoch, numbered from 0; by default the last");
  sub.add_option("--sample", command->sample, "only N random keys; all keys are equally likely")
      .between(size_t{0}, imd::Reader::kSampleMax);
  sub.add_option("--seed", command->seed, "the same seed draws the same keys (default 1)");
  command->common.add_json(sub);
  command->common.add_notation(sub, /*with_raw=*/false);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
