#include <cstdint>
#include <memory>

#include "tools/options.h"

namespace swale::tools {
namespace {

struct ScanCommand {
  Common common;
  uint64_t limit = 0;

  int run() const;
};

int ScanCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  const Notation notation = common.notation();
  uint64_t records = 0;
  const Status status =
      (*directory)
          ->reader->scan(
              common.epoch.value_or(imd::Reader::kAllEpochs), [&](uint32_t epoch, Bytes key, Bytes value) {
                if (notation == Notation::kRaw) {
                  print(value);
                } else if (common.json) {
                  print_json({{"epoch", epoch},
                              {"key", show(key, notation)},
                              {"bytes", value.size()},
                              {"value", show(value, notation)}});
                } else {
                  print(fmt::format("{}\t{}\t{}\n", epoch, show(key, notation), show(value, notation)));
                }
                return ++records != limit && std::ferror(stdout) == 0;
              });
  return status.ok() ? finish_output(kExitOk) : fail(status);
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
      print_json({{"key", show(key, notation)}});
    } else {
      print(show(key, notation) + "\n");
    }
    return std::ferror(stdout) == 0;
  };
  const Status status =
      sample ? reader.sample(epoch, *sample, seed, print_key) : reader.keys(epoch, print_key);
  if (!status.ok()) return fail(status);
  return finish_output(kExitOk);
}

}  // namespace

void add_scan(CLI::App& app, Run* run) {
  auto command = std::make_shared<ScanCommand>();
  CLI::App* sub = app.add_subcommand("scan", "every record, in storage order");
  command->common.add_path(*sub);
  command->common.add_epoch(*sub, "only this epoch, numbered from 0");
  sub->add_option("-n,--limit", command->limit, "stop after so many records (0: all)")
      ->check(CLI::NonNegativeNumber);
  command->common.add_json(*sub);
  command->common.add_notation(*sub, /*with_raw=*/true);
  sub->footer(
      "Prints epoch, key and value, separated by tabs; with --json one object a line.\n\n"
      "Examples:\n"
      "  swale scan out/particles --epoch 99 --limit 10\n"
      "  swale scan out/particles --json | jq -r .key | sort -u | wc -l");
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

void add_keys(CLI::App& app, Run* run) {
  auto command = std::make_shared<KeysCommand>();
  CLI::App* sub = app.add_subcommand("keys", "the distinct keys of one epoch");
  command->common.add_path(*sub);
  command->common.add_epoch(*sub, "this epoch, numbered from 0; by default the last");
  sub->add_option("--sample", command->sample,
                  "only so many of them, drawn at random, each as likely as any other")
      ->check(CLI::Range(size_t{0}, imd::Reader::kSampleMax));
  sub->add_option("--seed", command->seed, "the same seed draws the same keys (default 1)");
  command->common.add_json(*sub);
  command->common.add_notation(*sub, /*with_raw=*/false);
  sub->footer(
      "Prints one key a line, as `swale get` takes it. Needs memory for the keys of one partition.\n\n"
      "Examples:\n"
      "  swale keys out/particles --epoch 0 --u64 | head\n"
      "  swale keys out/particles --sample 100 --seed 7\n"
      "  swale keys out/particles | xargs swale get out/particles --epoch 0");
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
