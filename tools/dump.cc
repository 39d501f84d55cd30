#include "tools/dump.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "imd/extrema_summary.h"
#include "imd/manifest.h"
#include "imd/writer_lock.h"
#include "tools/manual.h"

namespace swale::tools {
namespace {

constexpr size_t kSmallFileBytesMax = 256 * kMiB;

std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// The number between `prefix` and `suffix`, which are all of the name.
std::optional<uint64_t> number_in(std::string_view name, std::string_view prefix, std::string_view suffix,
                                  int base) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(std::min(suffix.size(), name.size()));
  uint64_t number = 0;
  const auto [stop, failure] = std::from_chars(name.data(), name.data() + name.size(), number, base);
  if (failure != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return number;
}

Status dump_manifest(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::string text, io::read_file(device, path, kSmallFileBytesMax));
  const auto manifest = imd::Manifest::decode(text, path);
  if (!manifest.ok()) out->damage(0, manifest.status());
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    out->line({{"what", "text"}, {"offset", 0}, {"bytes", show(text, Notation::kAuto)}});
  } else if (out->options().json) {
    out->line({{"what", "manifest"}, {"offset", 0}, {"content", json}});
  } else {
    print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return {};
}

Status dump_summary(io::Device& device, const std::string& path, uint64_t epoch_id, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::string bytes, io::read_file(device, path, imd::kSummaryBytesMax));
  const auto summary = imd::ExtremaSummary::decode_file(bytes, epoch_id, path);
  if (!summary.ok()) {
    out->damage(0, summary.status());
    return {};
  }
  for (size_t f = 0; f < summary->fields.size(); ++f) {
    const auto& field = summary->fields[f];
    out->line({{"what", "summary"},
               {"offset", 0},
               {"field", f},
               {"nans", field.nans},
               {"absent", field.absent},
               {"partitions", field.partitions}});
    for (const auto& [name, which] : {std::pair{"maximum", 0}, std::pair{"minimum", 1}}) {
      for (const auto& entry : field.best[which]) {
        out->line({{"what", name},
                   {"field", f},
                   {"partition", entry.partition},
                   {"key", fmt::format("{:016x}", entry.key)}});
      }
    }
  }
  return {};
}

// By its name. kInvalidArgument if it is none of Swale's.
Status dump_file(io::Device& device, const std::string& path, DumpOutput* out) {
  const std::string name = file_name(path);
  out->begin_file(path);
  Status status;
  if (const auto data = number_in(name, "part-", ".data", 10)) {
    status = dump_data_log(device, path, static_cast<uint32_t>(*data), out);
  } else if (const auto index = number_in(name, "part-", ".index", 10)) {
    status = dump_index_log(device, path, static_cast<uint32_t>(*index), out);
  } else if (const auto values = number_in(name, "part-", ".values", 10)) {
    status = dump_value_log(device, path, static_cast<uint32_t>(*values), out);
  } else if (const auto summary = number_in(name, "", ".top", 16)) {
    status = dump_summary(device, path, *summary, out);
  } else if (name.starts_with(imd::kManifestName) || name == imd::kLockName) {
    status = dump_manifest(device, path, out);
  } else {
    status =
        invalid_argument("{}: expected a directory, {}, part-N.data, part-N.index, part-N.values or ID.top",
                         path, imd::kManifestName);
  }
  out->end_file();
  return status;
}

Status dump_directory(io::Device& device, const std::string& path, DumpOutput* out) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, device.list(path));
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    const bool folder = number_in(name, "p", "", 10).has_value() || name == "extrema";
    if (folder) folders.push_back(fmt::format("{}/{}", path, name));
  }
  Status first = dump_file(device, imd::manifest_path(path), out);
  for (const std::string& folder : folders) {
    SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> files, device.list(folder));
    for (const std::string& file : files) {
      if (file.ends_with(".tmp")) continue;
      const Status status = dump_file(device, fmt::format("{}/{}", folder, file), out);
      if (first.ok()) first = status;
    }
  }
  return first;
}

struct DumpCommand {
  Common common;
  DumpOptions options;

  int run() const;
};

int DumpCommand::run() const {
  DumpOptions with = options;
  with.json = common.json;
  with.notation = common.notation();
  io::PosixDevice device;
  DumpOutput out(with);
  const bool directory = device.list(common.path).ok();
  const Status status =
      directory ? dump_directory(device, common.path, &out) : dump_file(device, common.path, &out);
  if (!status.ok()) return fail(status);
  return finish_output(out.damaged() ? kExitNotFound : kExitOk);
}

}  // namespace

void DumpOutput::begin_file(const std::string& path) {
  path_ = path;
  lines_ = 0;
  if (wants_progress_) bar_.emplace();
  if (!options_.json) print(fmt::format("{}\n", path));
}

void DumpOutput::progress(uint64_t offset, uint64_t file_bytes) {
  if (bar_) bar_->update(offset, file_bytes, fmt::format("MiB, {}", file_name(path_)), kMiB);
}

void DumpOutput::end_file() {
  bar_.reset();
  if (lines_ <= options_.lines_max) return;
  const uint64_t left_out = lines_ - options_.lines_max;
  if (options_.json) {
    print_json({{"file", path_}, {"what", "left-out"}, {"lines", left_out}});
  } else {
    print(fmt::format("  ({} more lines)\n", left_out));
  }
}

void DumpOutput::line(const Json& thing) {
  if (++lines_ > options_.lines_max) return;
  if (options_.json) {
    Json whole = {{"file", path_}};
    whole.update(thing);
    print_json(whole);
    return;
  }
  const auto offset = thing.find("offset");
  std::string text = fmt::format("  {:>12}  {:<11}", offset == thing.end() ? "" : offset->dump(),
                                 thing.at("what").get<std::string>());
  for (const auto& [name, value] : thing.items()) {
    if (name == "what" || name == "offset") continue;
    text += fmt::format(" {}={}", name,
                        value.is_string() ? value.get<std::string>()
                                          : value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  print(text + "\n");
}

void DumpOutput::damage(uint64_t offset, const Status& cause) {
  damaged_ = true;
  line({{"what", "DAMAGE"}, {"offset", offset}, {"cause", std::string(cause.message())}});
}

void add_dump(CLI::App& app, Run* run) {
  auto command = std::make_shared<DumpCommand>();
  CLI::App* const sub = add_command(
      app, "dump", "shows what stands in a file, place by place, for people",
      {
          .description =
              "Each line: the offset in the file, what is there, and its fields, as docs/formats of the "
              "sources "
              "has them. What belongs to no epoch of swale.json is shown, too. Damage is shown at its place, "
              "with its cause, and does not end the walk.",
          .examples = {{"swale dump out/particles --limit 20", "the first things of every file"},
                       {"swale dump out/particles/p000/part-000000.data -v", "every record of a log"},
                       {"swale dump out/particles --json | jq 'select(.what == \"run\")'", "all runs"}},
          .exit_1 = "something is damaged",
      });
  sub->add_option("PATH", command->common.path,
                  "a massive directory, or a file of one: swale.json, part-N.data, part-N.index, "
                  "part-N.values, ID.top")
      ->required()
      ->type_name("FILE");
  sub->add_flag("-v,--records", command->options.records, "of data logs, the records, too");
  sub->add_option("-n,--limit", command->options.lines_max, "at most so many lines of each file")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->common.add_json(*sub);
  command->common.add_notation(*sub, /*with_raw=*/false);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
