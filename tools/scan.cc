#include <cstdint>
#include <memory>

#include "tools/manual.h"
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
  const Status status = reader.keys(epoch, [&](Bytes key) {
    if (common.json) {
      print_json({{"key", show(key, notation)}});
    } else {
      print(show(key, notation) + "\n");
    }
    return std::ferror(stdout) == 0;
  });
  if (!status.ok()) return fail(status);
  return finish_output(kExitOk);
}

}  // namespace

void add_scan(CLI::App& app, Run* run) {
  auto command = std::make_shared<ScanCommand>();
  CLI::App* const sub = add_command(
      app, "scan", "prints every record, in storage order",
      {
          .description = "Prints epoch, key and value, separated by tabs; with --json one object a line.",
          .examples = {{"swale scan out/particles --epoch 3 --limit 10", "ten records of an epoch"},
                       {"swale scan out/particles --json | jq -r .key | sort -u | wc -l",
                        "how many keys there are"}},
      });
  command->common.add_path(*sub);
  command->common.add_epoch(*sub, "only this epoch, numbered from 0");
  sub->add_option("-n,--limit", command->limit, "stop after so many records (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->common.add_json(*sub);
  command->common.add_notation(*sub, /*with_raw=*/true);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

void add_keys(CLI::App& app, Run* run) {
  auto command = std::make_shared<KeysCommand>();
  CLI::App* const sub = add_command(
      app, "keys", "lists the distinct keys of one epoch",
      {
          .description = "Prints one key a line, as swale-get(1) takes it, in storage order. Needs memory "
                         "for the keys of one partition.",
          .examples =
              {{"swale keys out/particles --epoch 0 --u64 | head", "some keys"},
               {"swale keys out/particles | head -n 5 | xargs -d '\\n' swale get out/particles --epoch 0 --",
                "and their values"}},
      });
  command->common.add_path(*sub);
  command->common.add_epoch(*sub, "this epoch, numbered from 0; by default the last");
  command->common.add_json(*sub);
  command->common.add_notation(*sub, /*with_raw=*/false);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
