#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/schema.h"
#include "tools/command_line.h"
#include "tools/epoch_choice.h"
#include "tools/options.h"
#include "tools/outside_command.h"
#include "tools/progress.h"
#include "tools/reading_bar.h"

namespace swale::tools {
namespace {

constexpr size_t kDrawnMax = 1000;

struct TopCommand {
  Common common;
  EpochChoice choice;
  std::string field;
  size_t k = 10;
  bool smallest = false;
  bool trajectories = false;
  std::string plot;

  int run() const;
  Status expect_field(const run::Schema& schema) const;
  Result<RecordFormat> format(const run::Schema& schema) const;
  int print_trajectories(imd::Reader& reader, const RecordFormat& lines, Layout layout,
                         const std::vector<std::string>& keys) const;
  int draw(const std::string& program, const std::vector<std::string>& keys,
           std::optional<run::KeyType> type) const;
  static void print_remarks(const imd::TopResult& top);
};

// One of the best records of its epoch.
struct Best {
  uint32_t epoch = 0;
  imd::TopResult::Record record;
};

// The keys of the best records, each once.
std::vector<std::string> keys_of(const std::vector<Best>& best) {
  std::vector<std::string> keys;
  for (const Best& each : best) {
    if (std::find(keys.begin(), keys.end(), each.record.key) == keys.end()) keys.push_back(each.record.key);
  }
  return keys;
}

Status TopCommand::expect_field(const run::Schema& schema) const {
  if (schema.empty())
    return invalid_argument("{}: no field \"{}\": the directory was made without a schema (imd.schema)",
                            common.path, field);
  const auto place = schema.find(field);
  return place.ok() ? Status() : place.status().with_context(common.path);
}

// The columns: number, key and value; the number is the requested field.
Result<RecordFormat> TopCommand::format(const run::Schema& schema) const {
  SWALE_ASSIGN_OR_RETURN(const Layout layout, common.layout());
  const size_t bracket = field.find('[');  // an element: [velocity][0]
  const std::string number =
      bracket == std::string::npos
          ? fmt::format("number=[{}]", field)
          : fmt::format("number=[{}]{}", field.substr(0, bracket), field.substr(bracket));
  return RecordFormat::make(
      {.layout = layout,
       .notation = common.notation(),
       .typed = common.typed,
       .fields = common.fields,
       .default_text = trajectories ? std::vector<std::string>{"key", "epoch", number, "value"}
                                    : std::vector<std::string>{number, "key", "value"},
       .default_json = {"key", number, "epoch", "bytes", "value"}},
      schema);
}

// Prints to stderr what the result does not show.
void TopCommand::print_remarks(const imd::TopResult& top) {
  if (top.partitions_scanned != 0) {
    complain("{} has no extrema: {} partitions were scanned, {} bytes read", top.field.name,
             top.partitions_scanned, top.bytes_read);
  }
  if (top.nans != 0 || top.absent != 0) {
    complain("left out: {} records with NaN, {} whose value is too short", top.nans, top.absent);
  }
}

// Merges the results of several epochs to the best k; equal numbers are in the order of epochs.
void keep_best(size_t k, run::Extreme which, std::vector<Best>* best) {
  std::stable_sort(best->begin(), best->end(), [&](const Best& a, const Best& b) {
    return which == run::Extreme::kLargest ? a.record.number > b.record.number
                                           : a.record.number < b.record.number;
  });
  if (best->size() > k) best->resize(k);
}

// All records of each key, in the order of the keys.
int TopCommand::print_trajectories(imd::Reader& reader, const RecordFormat& lines, Layout layout,
                                   const std::vector<std::string>& keys) const {
  std::string line;
  for (const std::string& key : keys) {
    const auto values = reader.get(key, imd::Reader::kAllEpochs);
    if (!values.ok()) return fail(values.status());
    for (const imd::Value& value : *values) {
      const imd::EpochEntry& epoch = reader.manifest().epochs[value.epoch];
      line.clear();
      lines.append({value.epoch, epoch.step, epoch.time, key, value.bytes}, &line);
      print_records(layout, line);
    }
  }
  return finish_output(kExitOk);
}

// By the Python package's program.
int TopCommand::draw(const std::string& program, const std::vector<std::string>& keys,
                     std::optional<run::KeyType> type) const {
  std::vector<std::string> words = {"--output=" + plot, "--fields=" + field, "--", common.path};
  for (const std::string& key : keys) words.push_back(show_key(key, Notation::kAuto, type));
  return become_outside_command(program, words);
}

int TopCommand::run() const {
  if (!plot.empty() && k > kDrawnMax)
    return fail(invalid_argument("--plot: {} trajectories; a picture shows {} at most", k, kDrawnMax));
  const auto plotter = plot.empty() ? std::nullopt : find_outside_command("plot");
  if (!plot.empty() && !plotter) {
    complain("{}", package_hint("plot"));
    return kExitFailure;
  }
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const imd::Manifest& manifest = reader.manifest();
  // Before a search that may take minutes.
  if (const Status known = expect_field(manifest.schema); !known.ok()) return fail(known);
  const auto lines = format(manifest.schema);
  if (!lines.ok()) return fail(lines.status());
  if (manifest.epochs.empty() && !choice.given()) return kExitOk;
  auto epochs = choice.choose(manifest, common.path);
  if (!epochs.ok()) return fail(epochs.status());
  if (!choice.given()) epochs->erase(epochs->begin(), epochs->end() - 1);
  const auto which = smallest ? run::Extreme::kSmallest : run::Extreme::kLargest;
  imd::TopResult total;
  std::vector<Best> best;
  for (const uint32_t epoch : *epochs) {
    auto top = [&] {
      const ReadingBar bar(reader, 0, ProgressBar::wanted());  // fields without extrema need a scan
      return reader.top(epoch, field, k, which);
    }();
    if (!top.ok()) return fail(top.status());
    for (imd::TopResult::Record& record : top->records) best.push_back({epoch, std::move(record)});
    if (epochs->size() > 1) keep_best(k, which, &best);
    total.field = top->field;
    total.nans += top->nans;
    total.absent += top->absent;
    total.partitions_scanned += top->partitions_scanned;
    total.bytes_read += top->bytes_read;
  }
  if (plotter && !best.empty()) {
    print_remarks(total);
    return draw(*plotter, keys_of(best), manifest.schema.key);
  }
  print(lines->header());
  const auto layout = common.layout();
  if (!layout.ok()) return fail(layout.status());
  if (trajectories) {
    print_remarks(total);
    return print_trajectories(reader, *lines, *layout, keys_of(best));
  }
  std::string line;
  for (const auto& [number, record] : best) {
    const imd::EpochEntry& epoch = manifest.epochs[number];
    line.clear();
    lines->append({number, epoch.step, epoch.time, record.key, record.value}, &line);
    print_records(*layout, line);
  }
  print_remarks(total);
  return finish_output(kExitOk);
}

}  // namespace

void add_top(CLI::App& app, Run* run) {
  auto command = std::make_shared<TopCommand>();
  OptionSet sub = add_command(
      app, "top", "finds the records with the largest or smallest numbers in a field",
      {
          .description =
              "Prints number, key and value, separated by tabs, the best first; with --json one "
              "object per line. Searches the last epoch, or all epochs that --epoch, --step or "
              "--time select. Columns and formats are those of swale-scan(1). "
              "Reads about one block for each record if the directory was made with extrema of "
              "the field (imd.extrema), else whole epochs.\n\n--trajectories prints key, epoch, number "
              "and value of the found keys in all epochs. --plot draws them, by swale-plot of the "
              "Python package.",
          .examples =
              {{"swale top out/particles energy", "the ten most energetic of the last epoch"},
               {"swale top out/particles energy --epochs : --fields 'step,u64(key),energy' --format csv",
                "the ten of all epochs, as a table"},
               {"swale top out/particles energy -k 3 --trajectories",
                "where the three best were all the time"},
               {"swale top out/particles 'velocity[2]' -k 100 --smallest --epoch 3 --u64",
                "any element of an array can be asked for"}},
      });
  command->common.add_path(sub);
  sub.add_option("FIELD", command->field,
                 "a field of the schema (see `swale info`), or an element: velocity[0]")
      .required()
      .type_name("FIELD");
  sub.add_option("-k", command->k, "how many (default 10)").at_least(1).type_name("K");
  sub.add_flag("--smallest", command->smallest, "the smallest instead of the largest");
  sub.add_flag("--trajectories", command->trajectories, "print the records of the found keys in all epochs");
  sub.add_option("--plot", command->plot,
                 "draw the trajectories of the found keys into this file: .png, .pdf or .svg")
      .type_name("FILE");
  command->choice.add(sub, "the last");
  command->common.add_output(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
