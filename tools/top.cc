#include <cstdint>
#include <memory>

#include "run/schema.h"
#include "tools/manual.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/reading_bar.h"

namespace swale::tools {
namespace {

struct TopCommand {
  Common common;
  std::string field;
  size_t k = 10;
  bool smallest = false;

  int run() const;
  void print_record(const run::Schema& schema, const imd::TopResult& top,
                    const imd::TopResult::Record& record) const;
  static void print_remarks(const imd::TopResult& top);
};

void TopCommand::print_record(const run::Schema& schema, const imd::TopResult& top,
                              const imd::TopResult::Record& record) const {
  const Notation notation = common.notation();
  const std::string number = run::text_of(top.field.type, record.number);
  const auto value = [&](bool as_json) {
    return common.typed ? typed_value(record.value, schema, as_json) : show(record.value, notation);
  };
  if (common.json) {
    print_json({{"key", show(record.key, notation)},
                {"number", number},
                {"bytes", record.value.size()},
                {"value", common.typed ? Json::parse(value(true)) : Json(value(false))}});
  } else {
    print(fmt::format("{}\t{}\t{}\n", number, show(record.key, notation), value(false)));
  }
}

// To stderr: what the answer does not show.
void TopCommand::print_remarks(const imd::TopResult& top) {
  if (top.partitions_scanned != 0) {
    fmt::print(stderr, "swale: {} has no extrema: {} partitions were scanned, {} bytes read\n",
               top.field.name, top.partitions_scanned, top.bytes_read);
  }
  if (top.nans != 0 || top.absent != 0) {
    fmt::print(stderr, "swale: not among them: {} records with NaN, {} whose value is too short\n", top.nans,
               top.absent);
  }
}

int TopCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const int64_t epoch = common.epoch.value_or(static_cast<int64_t>(reader.manifest().epochs.size()) - 1);
  if (epoch < 0) return kExitOk;  // no epoch has been committed
  const auto which = smallest ? run::Extreme::kSmallest : run::Extreme::kLargest;
  const auto top = [&] {
    const ReadingBar bar(reader, 0, ProgressBar::wanted());  // of fields without extrema: a scan
    return reader.top(epoch, field, k, which);
  }();
  if (!top.ok()) return fail(top.status());
  for (const imd::TopResult::Record& record : top->records)
    print_record(reader.manifest().schema, *top, record);
  print_remarks(*top);
  return finish_output(kExitOk);
}

}  // namespace

void add_top(CLI::App& app, Run* run) {
  auto command = std::make_shared<TopCommand>();
  CLI::App* const sub = add_command(
      app, "top", "finds the records of one epoch with the largest or smallest numbers in a field",
      {
          .description =
              "Prints number, key and value, separated by tabs, the best first; with --json one object a "
              "line. "
              "Reads about one block for each record if the directory was made with extrema of the field "
              "(imd.extrema), else the whole epoch.",
          .examples = {{"swale top out/particles energy", "the ten most energetic of the last epoch"},
                       {"swale top out/particles 'velocity[2]' -k 100 --smallest --epoch 3 --u64",
                        "any element of an array can be asked for"}},
      });
  command->common.add_path(*sub);
  sub->add_option("FIELD", command->field,
                  "a field of the schema (see `swale info`), or an element: velocity[0]")
      ->required()
      ->type_name("FIELD");
  sub->add_option("-k", command->k, "how many (default 10)")->check(at_least(1))->type_name("K");
  sub->add_flag("--smallest", command->smallest, "the smallest instead of the largest");
  command->common.add_epoch(*sub, "this epoch, numbered from 0; by default the last");
  command->common.add_json(*sub);
  command->common.add_typed(*sub);
  command->common.add_notation(*sub, /*with_raw=*/false);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
