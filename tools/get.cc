#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "tools/manual.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct GetCommand {
  Common common;
  std::vector<std::string> keys;

  int run() const;
  void print_missing(imd::Reader& reader, size_t key, Bytes bytes) const;
};

// Most often the key has been given in another notation than the writer's.
std::string hint_for(imd::Reader& reader, int64_t epoch, const std::string& text, Bytes bytes) {
  constexpr size_t kSample = 16;
  constexpr uint64_t kSeed = 1;
  std::map<size_t, size_t> keys_of_length;
  size_t drawn = 0;
  const Status sampled = reader.sample(epoch, kSample, kSeed, [&](Bytes key) {
    ++keys_of_length[key.size()];
    ++drawn;
    return true;
  });
  if (!sampled.ok()) return {};
  for (const auto& [length, count] : keys_of_length) {
    if (count * 4 < drawn * 3 || length == bytes.size()) continue;
    const bool number = text.find_first_not_of("0123456789") == std::string::npos;
    const std::string known =
        fmt::format("; {}keys here have {} bytes", count < drawn ? "most " : "", length);
    if (number && (length == 8 || length == 4)) return fmt::format("{}: u{}:{}?", known, length * 8, text);
    return fmt::format("{}, this one has {}", known, bytes.size());
  }
  return {};
}

void GetCommand::print_missing(imd::Reader& reader, size_t key, Bytes bytes) const {
  const auto last = static_cast<int64_t>(reader.manifest().epochs.size()) - 1;
  fmt::print(stderr, "swale: {}: not found in {}{}\n", keys[key],
             common.epoch ? fmt::format("epoch {}", *common.epoch) : "any epoch",
             last < 0 ? "" : hint_for(reader, common.epoch.value_or(last), keys[key], bytes));
}

int GetCommand::run() const {
  std::vector<std::string> bytes;
  for (const std::string& text : keys) {
    Result<std::string> key = parse_key(text);
    if (!key.ok()) return fail(key.status());
    bytes.push_back(std::move(*key));
  }
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  const imd::Manifest& manifest = (*directory)->reader->manifest();
  const bool values_alone = common.layout() == Layout::kRaw && common.fields.empty();
  const auto format = RecordFormat::make({.layout = common.layout(),
                                          .notation = common.notation(),
                                          .typed = common.typed,
                                          .fields = common.fields,
                                          .default_text = {"key", "epoch", "value"},
                                          .default_json = {"key", "epoch", "bytes", "value"}},
                                         manifest.schema);
  if (!format.ok()) return fail(format.status());
  print(format->header());
  int missing = 0;
  uint64_t left_out = 0;
  std::string line;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto values = (*directory)->reader->get(bytes[i], common.epoch.value_or(imd::Reader::kAllEpochs));
    if (values.status().code() == Code::kNotFound) {
      ++missing;
      print_missing(*(*directory)->reader, i, bytes[i]);
      continue;
    }
    if (!values.ok()) return fail(values.status());
    for (const imd::Value& value : *values) {
      if (values_alone) {
        print(value.bytes);  // as it is, without a copy: it may be large
        continue;
      }
      const imd::EpochEntry& epoch = manifest.epochs[value.epoch];
      line.clear();
      if (!format->append({value.epoch, epoch.step, epoch.time, bytes[i], value.bytes}, &line)) ++left_out;
      print(line);
    }
  }
  if (left_out != 0) {
    fmt::print(stderr, "swale: {} values were left out: they are too short for the fields\n", left_out);
  }
  return finish_output(missing == 0 ? kExitOk : kExitNotFound);
}

}  // namespace

void add_get(CLI::App& app, Run* run) {
  auto command = std::make_shared<GetCommand>();
  CLI::App* const sub = add_command(
      app, "get", "prints the values of keys, at one epoch or at all (their trajectories)",
      {
          .description =
              "Prints key, epoch and value, separated by tabs; with --json one object a line. Keys are "
              "text, 0x and hex digits, or u64: or u32: and a number (8 or 4 bytes, little-endian). A key "
              "that starts with a dash follows a lone --.",
          .examples = {{"swale get out/particles atom-17", "a trajectory: one line an epoch"},
                       {"swale get out/particles u64:17 u64:18 --epoch 3 --hex",
                        "two particles at one epoch"},
                       {"swale get out/particles u64:17 --raw > trajectory.bin",
                        "the bytes of all values, one after the other"},
                       {"swale get out/particles u64:17 --fields step,time,position --format csv",
                        "a table for a plot"},
                       {"swale get out/particles -- -odd-key-with-a-dash", ""}},
          .exit_1 = "a key is not there; the others are printed",
      });
  command->common.add_path(*sub);
  sub->add_option("KEY", command->keys, "text, 0x (hex), u64: or u32: (little-endian numbers)")
      ->required()
      ->type_name("KEY");
  command->common.add_epoch(*sub, "only this epoch, numbered from 0");
  command->common.add_output(*sub);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
