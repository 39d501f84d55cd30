#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/epoch_choice.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

constexpr size_t kKeysFileBytesMax = size_t{1} << 30;

struct GetCommand {
  Common common;
  EpochChoice choice;
  std::vector<std::string> keys;
  std::string keys_file;

  int run();
  Status read_keys_file();
  void print_missing(imd::Reader& reader, const std::vector<uint32_t>& epochs, size_t key, Bytes bytes) const;
};

// Adds a key for each nonempty line.
Status GetCommand::read_keys_file() {
  std::ifstream file;
  if (keys_file != "-") file.open(keys_file);
  std::istream& in = keys_file == "-" ? std::cin : file;
  std::string line;
  for (size_t bytes = 0; std::getline(in, line); bytes += line.size()) {
    if (bytes > kKeysFileBytesMax) return invalid_argument("{}: more than 1 GiB of keys", keys_file);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (in.eof() && !in.bad()) return {};
  return error(Code::kNotFound, Scope::kFile, "{}: the file of keys cannot be read: {}", keys_file,
               std::strerror(errno));
}

// The usual cause is a key in another notation than the writer's.
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

void GetCommand::print_missing(imd::Reader& reader, const std::vector<uint32_t>& epochs, size_t key,
                               Bytes bytes) const {
  const bool told = reader.manifest().schema.key.has_value();
  complain("{}: not found in {}{}", keys[key], choice.text(),
           epochs.empty() || told ? "" : hint_for(reader, epochs.back(), keys[key], bytes));
}

// The key's values in the epochs; kNotFound if there is none.
Result<std::vector<imd::Value>> values_in(imd::Reader& reader, const std::vector<uint32_t>& epochs,
                                          Bytes key) {
  // One query over all epochs reads them in parallel: single queries pay only for few epochs.
  const size_t all = reader.manifest().epochs.size();
  if (epochs.size() * 2 >= all && all > 1) {
    Result<std::vector<imd::Value>> values = reader.get(key, imd::Reader::kAllEpochs);
    if (values.ok()) {
      std::erase_if(*values, [&](const imd::Value& value) {
        return !std::binary_search(epochs.begin(), epochs.end(), value.epoch);
      });
      if (!values->empty()) return values;
    } else if (epochs.size() == all || values.status().code() == Code::kNotFound) {
      return values.status();
    }  // else an epoch may be damaged that nobody has asked for
  }
  std::vector<imd::Value> values;
  for (const uint32_t epoch : epochs) {
    Result<std::vector<imd::Value>> found = reader.get(key, epoch);
    if (found.status().code() == Code::kNotFound) continue;
    SWALE_RETURN_IF_ERROR(found.status());
    std::move(found->begin(), found->end(), std::back_inserter(values));
  }
  if (!values.empty()) return values;
  return error(Code::kNotFound, Scope::kOperation, "no value");
}

int GetCommand::run() {
  if (!keys_file.empty()) {
    if (const Status read = read_keys_file(); !read.ok()) return fail(read);
  } else if (keys.empty()) {
    return fail(invalid_argument("give keys, or a file of them (--keys FILE)"));
  }
  const auto layout = common.layout();
  if (!layout.ok()) return fail(layout.status());
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  imd::Reader& reader = *(*directory)->reader;
  const imd::Manifest& manifest = reader.manifest();
  std::vector<std::string> bytes;
  for (const std::string& text : keys) {
    Result<std::string> key = parse_key(text, manifest.schema.key);
    if (!key.ok()) return fail(key.status());
    bytes.push_back(std::move(*key));
  }
  const auto epochs = choice.choose(manifest, common.path);
  if (!epochs.ok()) return fail(epochs.status());
  const bool values_alone = *layout == Layout::kRaw && common.fields.empty();
  const auto format = RecordFormat::make({.layout = *layout,
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
    const auto values = values_in(reader, *epochs, bytes[i]);
    if (values.status().code() == Code::kNotFound) {
      ++missing;
      print_missing(reader, *epochs, i, bytes[i]);
      continue;
    }
    if (!values.ok()) return fail(values.status());
    for (const imd::Value& value : *values) {
      if (values_alone) {
        print_bytes(value.bytes);  // without a copy, as it may be large
        continue;
      }
      const imd::EpochEntry& epoch = manifest.epochs[value.epoch];
      line.clear();
      if (!format->append({value.epoch, epoch.step, epoch.time, bytes[i], value.bytes}, &line)) ++left_out;
      print_records(*layout, line);
    }
  }
  if (left_out != 0) {
    complain("{} values were left out: they are too short for the fields", left_out);
  }
  return finish_output(missing == 0 ? kExitOk : kExitNotFound);
}

}  // namespace

void add_get(CLI::App& app, Run* run) {
  auto command = std::make_shared<GetCommand>();
  OptionSet sub = add_command(
      app, "get", "prints the values of keys, at one epoch or at all (their trajectories)",
      {
          .description = "Prints key, epoch and value, separated by tabs; with --json one object per line. "
                         "Keys are text, 0x and hex digits, or u64: or u32: and a number (8 or 4 bytes, "
                         "little-endian). If the directory says what its keys are (imd.key), numbers are "
                         "written plainly, 4711, and text stands for itself. A key that starts with a dash "
                         "follows a lone --. --step and --time choose epochs by the simulation's step and "
                         "time.\n\nRaw output (--raw) is the bytes of the values; with --fields also those "
                         "of key, epoch (4 bytes), step (8 bytes) and time (a double), little-endian, "
                         "nothing between them.",
          .examples = {{"swale get out/particles atom-17", "a trajectory: one line per epoch"},
                       {"swale get out/particles u64:17 u64:18 --epoch 3 --hex",
                        "two particles at one epoch"},
                       {"swale get out/particles u64:17 --step 100:300", "a part of a trajectory"},
                       {"swale get out/particles u64:17 --raw > trajectory.bin",
                        "the bytes of all values, one after the other"},
                       {"swale get out/particles u64:17 --fields step,time,energy --raw > table.bin",
                        "for numpy.fromfile(\"table.bin\", \"<i8,<f8,<f4\")"},
                       {"swale get out/particles u64:17 --fields step,time,position --format csv",
                        "a table for a plot"},
                       {"swale keys out/particles --sample 5 | swale get out/particles --keys - --epoch 0",
                        "the keys of a file, or of another command"},
                       {"swale get out/particles -- -odd-key-with-a-dash", ""}},
          .exit_1 = "a key is missing; the others are printed",
      });
  command->common.add_path(sub);
  sub.add_option("KEY", command->keys, "text, 0x (hex), u64: or u32: (little-endian numbers)")
      .type_name("KEY");
  sub.add_option("--keys", command->keys_file,
                 "also the keys of this file, one per line; -: the standard input")
      .type_name("FILE");
  command->choice.add(sub, "all");
  command->common.add_output(sub);
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
