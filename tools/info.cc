#include <memory>

#include "imd/manifest.h"
#include "tools/manual.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct Sizes {
  uint64_t data_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t values_bytes = 0;  // of value logs
  uint32_t files = 0;
};

struct InfoCommand {
  Common common;

  int run() const;
  static Result<Sizes> measure(OpenDirectory& directory, const std::string& path);
  static Json as_json(const imd::Manifest& manifest, const Sizes& sizes, const std::string& path);
  static std::string as_text(const imd::Manifest& manifest, const Sizes& sizes, const std::string& path);
};

// The logs as they are on disk, tails of uncommitted epochs included.
Result<Sizes> InfoCommand::measure(OpenDirectory& directory, const std::string& path) {
  Sizes sizes;
  int32_t partitions = 0;
  const imd::Manifest& manifest = directory.reader->manifest();
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    partitions = std::max(partitions, manifest.jobs[epoch.job].ranks);
  }
  for (int32_t p = 0; p < partitions; ++p) {
    const auto partition = static_cast<uint32_t>(p);
    for (const auto& [name, sum] : {std::pair{imd::data_log_path(path, partition), &sizes.data_bytes},
                                    std::pair{imd::index_log_path(path, partition), &sizes.index_bytes}}) {
      SWALE_ASSIGN_OR_RETURN(const auto file, directory.device.open(name, io::OpenMode::kRead));
      SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, file->size());
      *sum += bytes;
      ++sizes.files;
    }
    const auto values = directory.device.open(imd::value_log_path(path, partition), io::OpenMode::kRead);
    if (values.status().code() == Code::kNotFound) continue;
    SWALE_RETURN_IF_ERROR(values.status());
    SWALE_ASSIGN_OR_RETURN(const uint64_t bytes, (*values)->size());
    sizes.values_bytes += bytes;
    ++sizes.files;
  }
  return sizes;
}

Json InfoCommand::as_json(const imd::Manifest& manifest, const Sizes& sizes, const std::string& path) {
  Json jobs = Json::array();
  for (const imd::JobEntry& job : manifest.jobs) {
    jobs.push_back(
        {{"id", job.id}, {"ranks", job.ranks}, {"ways", job.ways}, {"partitioner", job.partitioner}});
  }
  Json epochs = Json::array();
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    const char* const recovered = imd::recovered_name(epoch.recovered);
    epochs.push_back({{"epoch", epoch.epoch},
                      {"job", epoch.job},
                      {"step", epoch.step},
                      {"time", epoch.time},
                      {"records", epoch.records},
                      {"data_bytes", epoch.data_bytes}});
    if (epoch.large.values > 0) {
      epochs.back()["large_values"] = epoch.large.values;
      epochs.back()["large_bytes"] = epoch.large.bytes;
    }
    if (*recovered != '\0') epochs.back()["recovered"] = recovered;
  }
  Json fields = Json::array();
  for (const run::Field& field : manifest.schema.fields) {
    fields.push_back({{"name", field.name},
                      {"type", run::type_name(field.type)},
                      {"count", field.count},
                      {"unit", field.unit},
                      {"offset", field.offset}});
  }
  Json extrema = Json::array();
  for (const run::FieldPlace& place : manifest.schema.indexed) extrema.push_back(place.name);
  Json layout = {{"compression", codec_name(manifest.layout.compression)},
                 {"index", run::index_name(manifest.layout.index)}};
  if (manifest.layout.filtered()) layout["bloom_bits"] = manifest.layout.bloom_bits;
  return {{"path", path},
          {"schema", fields},
          {"extrema", extrema},
          {"layout", layout},
          {"jobs", jobs},
          {"epochs", epochs},
          {"disk",
           {{"files", sizes.files},
            {"data_bytes", sizes.data_bytes},
            {"index_bytes", sizes.index_bytes},
            {"values_bytes", sizes.values_bytes}}}};
}

std::string layout_text(const run::Layout& layout) {
  std::string text = fmt::format("compression: {}, index: {}", codec_name(layout.compression),
                                 run::index_name(layout.index));
  if (layout.filtered()) text += fmt::format(" of {} bits", layout.bloom_bits);
  return text;
}

std::string InfoCommand::as_text(const imd::Manifest& manifest, const Sizes& sizes, const std::string& path) {
  uint64_t records = 0;
  uint64_t bytes = 0;
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    records += epoch.records;
    bytes += epoch.data_bytes + epoch.large.bytes;
  }
  std::string text =
      fmt::format("massive directory {}\n  {} epochs, {} records, {} bytes of keys and values\n", path,
                  manifest.epochs.size(), records, bytes);
  text += fmt::format("  on disk: {} files, {} bytes of data, {} bytes of index", sizes.files,
                      sizes.data_bytes, sizes.index_bytes);
  if (sizes.values_bytes > 0) text += fmt::format(", {} bytes of large values", sizes.values_bytes);
  if (bytes > 0) {
    const uint64_t on_disk = sizes.data_bytes + sizes.index_bytes + sizes.values_bytes;
    text += fmt::format(" ({:.3f} of the keys and values)",
                        static_cast<double>(on_disk) / static_cast<double>(bytes));
  }
  if (!manifest.schema.empty()) {
    text += fmt::format("\n  values: {}\n  extrema: {}", manifest.schema.fields_text(),
                        manifest.schema.indexed.empty() ? "of no field" : manifest.schema.indexed_text());
  }
  if (!manifest.layout.standard()) text += "\n  " + layout_text(manifest.layout);
  text += fmt::format("\n\n  {:>5}  {:<16}  {:>8}  {:>4}  partitioner\n", "job", "id", "ranks", "ways");
  for (size_t i = 0; i < manifest.jobs.size(); ++i) {
    const imd::JobEntry& job = manifest.jobs[i];
    text +=
        fmt::format("  {:>5}  {:<16}  {:>8}  {:>4}  {}\n", i, job.id, job.ranks, job.ways, job.partitioner);
  }
  text += fmt::format("\n  {:>5}  {:>5}  {:>12}  {:>14}  {:>14}  {:>16}\n", "epoch", "job", "step", "time",
                      "records", "bytes");
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    const std::string step = epoch.step == imd::kStepUnknown ? "unknown" : fmt::format("{}", epoch.step);
    text += fmt::format("  {:>5}  {:>5}  {:>12}  {:>14.8g}  {:>14}  {:>16}", epoch.epoch, epoch.job, step,
                        epoch.time, epoch.records, epoch.data_bytes + epoch.large.bytes);
    text += epoch.recovered == imd::Recovered::kNo
                ? "\n"
                : fmt::format("  recovered ({})\n", imd::recovered_name(epoch.recovered));
  }
  return text;
}

int InfoCommand::run() const {
  const auto directory = common.open();
  if (!directory.ok()) return fail(directory.status());
  const Result<Sizes> sizes = measure(**directory, common.path);
  if (!sizes.ok()) return fail(sizes.status());
  const imd::Manifest& manifest = (*directory)->reader->manifest();
  if (common.json) {
    print_json(as_json(manifest, *sizes, common.path));
  } else {
    print(as_text(manifest, *sizes, common.path));
  }
  return finish_output(kExitOk);
}

}  // namespace

void add_info(CLI::App& app, Run* run) {
  auto command = std::make_shared<InfoCommand>();
  CLI::App* const sub = add_command(
      app, "info", "shows what is in a massive directory: jobs, epochs, sizes",
      {
          .description =
              "The schema of the values, the jobs that wrote, every committed epoch with its step, time, "
              "records and bytes, and what the logs take on disk. Reads swale.json and sizes of files only.",
          .examples = {{"swale info out/particles", "a table for people"},
                       {"swale info out/particles --json | jq '.epochs[-1].step'",
                        "the last committed step"}},
      });
  command->common.add_path(*sub);
  command->common.add_json(*sub);
  sub->callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
