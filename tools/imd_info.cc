#include <algorithm>
#include <map>
#include <memory>

#include "imd/format/attributes.h"
#include "imd/format/cluster_list.h"
#include "imd/format/manifest.h"
#include "run/footer.h"
#include "run/value_format.h"
#include "tools/imd_engine.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

struct Sizes {
  // The content of committed epochs.
  uint64_t data_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t values_bytes = 0;  // in value logs or value pages
  uint64_t tables_bytes = 0;  // auxiliary tables
  // All other bytes of the logs: space reserved ahead of writing, and epochs that were dropped or never
  // committed.
  uint64_t uncommitted_bytes = 0;
  uint32_t files = 0;
  uint32_t unreadable_logs = 0;  // index damaged or missing; all their bytes are in uncommitted_bytes

  uint64_t committed() const { return data_bytes + index_bytes + values_bytes + tables_bytes; }
};

// Adds the committed content of one job's part of a partition.
Status add_committed(io::Device& device, const std::string& path, imd::LogId log,
                     const imd::Manifest& manifest, Sizes* sizes) {
  SWALE_ASSIGN_OR_RETURN(const auto index, device.open(imd::index_log_path(path, log), io::OpenMode::kRead));
  SWALE_ASSIGN_OR_RETURN(const run::Footer footer, run::read_footer(*index, log.partition));
  std::map<uint32_t, uint32_t> blocks;  // per epoch; each of its segments may raise the number
  uint64_t dropped_bytes = 0;
  for (const run::SegmentRecord& segment : footer.segments) {
    const bool table = run::is_table_segment(segment);
    const bool values = table || run::is_values_segment(segment);
    if (manifest.find_epoch(segment.epoch, segment.epoch_id) == nullptr) {
      if (!values) dropped_bytes += run::segment_bytes(segment);
    } else if (values) {
      (table ? sizes->tables_bytes : sizes->values_bytes) += run::range_of(segment).bytes;
    } else if (!run::is_auxiliary(segment)) {
      uint32_t& count = blocks[segment.epoch];
      count = std::max(count, segment.data_blocks);
    }
  }
  sizes->index_bytes += footer.end_offset - std::min(footer.end_offset, dropped_bytes);
  for (const auto& [epoch, count] : blocks) sizes->data_bytes += count * run::kBlockBytes;
  return {};
}

// The bytes and the number of all logs, including those of jobs that committed nothing.
Status add_files(io::Device& device, const std::string& path, uint64_t* bytes, uint32_t* files) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, device.list(path));
  for (const std::string& folder : folders) {
    if (folder.front() != 'p') continue;
    const Result<std::vector<std::string>> names = device.list(fmt::format("{}/{}", path, folder));
    if (!names.ok()) continue;  // not Swale's file
    for (const std::string& name : *names) {
      if (!imd::parse_log_name(name)) continue;
      const auto file = device.open(fmt::format("{}/{}/{}", path, folder, name), io::OpenMode::kRead);
      if (file.status().code() == Code::kNotFound) continue;  // a job that failed to open has removed it
      SWALE_RETURN_IF_ERROR(file.status());
      SWALE_ASSIGN_OR_RETURN(const uint64_t size, (*file)->size());
      *bytes += size;
      ++*files;
    }
  }
  return {};
}

Result<Sizes> measure(OpenDirectory& directory, const std::string& path) {
  Sizes sizes;
  const imd::Manifest& manifest = directory.reader->manifest();
  for (const imd::LogId log : manifest.logs()) {
    if (!add_committed(directory.device, path, log, manifest, &sizes).ok()) ++sizes.unreadable_logs;
  }
  // Of these no index log knows any more.
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    if (epoch.origin != 0) sizes.values_bytes += epoch.large.bytes;
  }
  uint64_t bytes = 0;
  SWALE_RETURN_IF_ERROR(add_files(directory.device, path, &bytes, &sizes.files));
  // A job that is writing may have committed since.
  sizes.uncommitted_bytes = bytes - std::min(bytes, sizes.committed());
  return sizes;
}

// The documents that users gave, as text.
struct Described {
  std::string directory{imd::kNoAttributes};
  std::map<uint32_t, std::string> epochs;  // that have one of their own
  std::vector<Status> problems = {};
};

Described described(OpenDirectory& directory) {
  Described found;
  const auto take = [&](const Result<std::string>& document) {
    if (document.ok()) return *document;
    found.problems.push_back(document.status());
    return std::string(imd::kNoAttributes);
  };
  found.directory = take(directory.reader->directory_attributes());
  for (const imd::EpochEntry& epoch : directory.reader->manifest().epochs) {
    if (epoch.attributes.bytes == 0) continue;
    std::string document = take(directory.reader->epoch_attributes(epoch.epoch));
    if (document != imd::kNoAttributes) found.epochs.emplace(epoch.epoch.value(), std::move(document));
  }
  return found;
}

// As text where it is no JSON to this library: numbers beyond a double's range.
Json document_json(const std::string& document) {
  Json json = Json::parse(document, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json(document) : json;
}

// How many of its epochs the directory has.
size_t answered(const imd::ClusterEntry& cluster, const imd::Manifest& manifest) {
  return static_cast<size_t>(std::ranges::count_if(cluster.epochs, [&](const auto& epoch) {
    return manifest.find_epoch(epoch.epoch, epoch.epoch_id) != nullptr;
  }));
}

Json clusters_json(const imd::ClusterList& list, const imd::Manifest& manifest) {
  Json clusters = Json::array();
  for (const imd::ClusterEntry& cluster : list.clusters) {
    clusters.push_back({{"number", cluster.number},
                        {"epochs", answered(cluster, manifest)},
                        {"epochs_dropped", cluster.epochs.size() - answered(cluster, manifest)},
                        {"columns", cluster.columns},
                        {"series", cluster.series},
                        {"bytes", cluster.bytes}});
  }
  return clusters;
}

std::string clusters_text(const imd::ClusterList& list, const imd::Manifest& manifest) {
  std::string text;
  for (const imd::ClusterEntry& cluster : list.clusters) {
    text += fmt::format("\n  cluster {:04}: {} epochs by key, {} series, {} bytes{}", cluster.number,
                        answered(cluster, manifest), cluster.series, cluster.bytes,
                        cluster.columns ? ", in columns" : "");
  }
  return text;
}

Json lost_json(const imd::Manifest& manifest) {
  Json lost = Json::array();
  for (const imd::LostPart& part : manifest.lost) {
    const imd::EpochEntry* const epoch = manifest.find_epoch(part);
    if (epoch == nullptr) continue;  // dropped since
    lost.push_back(
        {{"epoch", epoch->epoch.value()}, {"partition", part.partition.value()}, {"what", part.what}});
  }
  return lost;
}

Json info_json(const imd::Manifest& manifest, const imd::ClusterList& clusters, const Sizes& sizes,
               const Described& attributes, const std::string& path) {
  Json jobs = Json::array();
  for (const imd::JobEntry& job : manifest.jobs) {
    jobs.push_back({{"number", job.number},
                    {"id", job.id},
                    {"ranks", job.ranks},
                    {"ways", job.ways},
                    {"partitioner", job.partitioner}});
  }
  Json epochs = Json::array();
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    const char* const recovered = imd::recovered_name(epoch.recovered);
    epochs.push_back({{"epoch", epoch.epoch.value()},
                      {"job", manifest.job_of(epoch).number},
                      {"step", step_json(epoch)},
                      {"time", epoch.time},
                      {"records", epoch.records},
                      {"data_bytes", epoch.data_bytes}});
    if (epoch.large.values > 0) {
      epochs.back()["large_values"] = epoch.large.values;
      epochs.back()["large_bytes"] = epoch.large.bytes;
    }
    if (const auto own = attributes.epochs.find(epoch.epoch); own != attributes.epochs.end())
      epochs.back()["attributes"] = document_json(own->second);
    if (*recovered != '\0') epochs.back()["recovered"] = recovered;
    if (epoch.freed) epochs.back()["freed"] = true;
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
  Json layout = {{"format", run::format_name(manifest.layout.format)},
                 {"compression", codec_name(manifest.layout.compression)},
                 {"index", run::index_name(manifest.layout.index)}};
  if (manifest.layout.filtered()) layout["bloom_bits"] = manifest.layout.bloom_bits;
  return {{"path", path},
          {"key", manifest.schema.key ? Json(run::key_text(manifest.schema.key)) : Json()},
          {"schema", fields},
          {"any_length", manifest.schema.exact_bytes() == std::nullopt},
          {"extrema", extrema},
          {"layout", layout},
          {"attributes", document_json(attributes.directory)},
          {"generation", manifest.generation},
          {"closed", manifest.closed},
          {"jobs", jobs},
          {"epochs", epochs},
          {"lost", lost_json(manifest)},
          {"clusters", clusters_json(clusters, manifest)},
          {"disk",
           {{"files", sizes.files},
            {"data_bytes", sizes.data_bytes},
            {"index_bytes", sizes.index_bytes},
            {"values_bytes", sizes.values_bytes},
            {"tables_bytes", sizes.tables_bytes},
            {"uncommitted_bytes", sizes.uncommitted_bytes},
            {"unreadable_logs", sizes.unreadable_logs}}}};
}

// Keys and values, without pointers in the indirect format.
uint64_t content_bytes(const imd::Manifest& manifest, const imd::EpochEntry& epoch) {
  const bool paged = manifest.layout.values() == run::ValueRule::kPaged;
  return epoch.data_bytes + epoch.large.bytes - (paged ? epoch.large.values * run::kPagePointerBytes : 0);
}

std::string layout_text(const run::Layout& layout) {
  std::string text = fmt::format("compression: {}, index: {}", codec_name(layout.compression),
                                 run::index_name(layout.index));
  if (layout.filtered()) text += fmt::format(" of {} bits (for comparison only)", layout.bloom_bits);
  return text;
}

std::string info_text(const imd::Manifest& manifest, const imd::ClusterList& clusters, const Sizes& sizes,
                      const Described& attributes, const std::string& path) {
  uint64_t records = 0;
  uint64_t bytes = 0;
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    records += epoch.records;
    bytes += content_bytes(manifest, epoch);
  }
  std::string text =
      fmt::format("massive directory {}\n  {} epochs, {} records, {} bytes of keys and values\n", path,
                  manifest.epochs.size(), records, bytes);
  text += fmt::format("  on disk: {} files, {} bytes of data, {} bytes of index", sizes.files,
                      sizes.data_bytes, sizes.index_bytes);
  if (sizes.values_bytes > 0)
    text += fmt::format(", {} bytes of values beside the records", sizes.values_bytes);
  if (sizes.tables_bytes > 0) text += fmt::format(", {} bytes of tables", sizes.tables_bytes);
  if (bytes > 0) {
    text += fmt::format(" ({:.3f} of the keys and values)",
                        static_cast<double>(sizes.committed()) / static_cast<double>(bytes));
  }
  if (sizes.uncommitted_bytes > 0)
    text += fmt::format("\n  reserved or uncommitted: {} bytes", sizes.uncommitted_bytes);
  if (sizes.unreadable_logs > 0) {
    text +=
        fmt::format("\n  {} index logs cannot be read, and their data are not counted: run `swale verify`",
                    sizes.unreadable_logs);
  }
  text += clusters_text(clusters, manifest);
  if (manifest.schema.key) text += fmt::format("\n  keys: {}", run::key_text(manifest.schema.key));
  if (!manifest.schema.empty()) {
    text += fmt::format("\n  values: {}\n  extrema: {}", manifest.schema.fields_text(),
                        manifest.schema.indexed.empty() ? "of no field" : manifest.schema.indexed_text());
  }
  if (manifest.layout.format != run::ShuffleFormat::kBase)
    text += fmt::format("\n  format: {}", run::format_name(manifest.layout.format));
  if (!manifest.layout.standard()) text += "\n  " + layout_text(manifest.layout);
  if (attributes.directory != imd::kNoAttributes)
    text += fmt::format("\n  attributes: {}", attributes.directory);
  if (!attributes.epochs.empty())
    text += fmt::format("\n  {} epochs have attributes of their own (--json)", attributes.epochs.size());
  text +=
      fmt::format("\n  generation {}{}", manifest.generation,
                  manifest.closed ? "" : ": its job has not closed the directory (it writes, or was killed)");
  text += fmt::format("\n\n  {:>5}  {:<16}  {:>8}  {:>4}  partitioner\n", "job", "id", "ranks", "ways");
  for (const imd::JobEntry& job : manifest.jobs) {
    text += fmt::format("  {:>5}  {:<16}  {:>8}  {:>4}  {}\n", job.number, job.id, job.ranks, job.ways,
                        job.partitioner);
  }
  text += fmt::format("\n  {:>5}  {:>5}  {:>12}  {:>20}  {:>14}  {:>16}\n", "epoch", "job", "step", "time",
                      "records", "bytes");
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    text += fmt::format("  {:>5}  {:>5}  {:>12}  {:>20}  {:>14}  {:>16}", epoch.epoch,
                        manifest.job_of(epoch).number, step_text(epoch), epoch.time, epoch.records,
                        content_bytes(manifest, epoch));
    if (epoch.recovered != imd::Recovered::kNo)
      text += fmt::format("  recovered ({})", imd::recovered_name(epoch.recovered));
    text += epoch.freed ? "  only in a cluster\n" : "\n";
  }
  const Json lost = lost_json(manifest);
  if (!lost.empty()) text += "\n  lost, as `swale repair` recorded it:\n";
  for (const Json& part : lost) {
    text += fmt::format("  epoch {}, partition {}: {}\n", part["epoch"].get<uint32_t>(),
                        part["partition"].get<uint32_t>(), part["what"].get<std::string>());
  }
  return text;
}

}  // namespace

Result<InfoReport> imd_info(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const auto directory, open_imd(path));
  SWALE_ASSIGN_OR_RETURN(const Sizes sizes, measure(*directory, path));
  const imd::Manifest& manifest = directory->reader->manifest();
  Described attributes = described(*directory);
  imd::ClusterList clusters;
  if (auto list = imd::load_clusters(directory->device, path); list.ok()) {
    clusters = std::move(*list);
  } else {
    attributes.problems.push_back(list.status());
  }
  return InfoReport{info_json(manifest, clusters, sizes, attributes, path),
                    info_text(manifest, clusters, sizes, attributes, path), attributes.problems};
}

}  // namespace swale::tools
