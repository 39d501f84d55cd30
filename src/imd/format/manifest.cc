#include "imd/format/manifest.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/sealed_document.h"
#include "imd/format/partitioner.h"
#include "run/format.h"
#include "run/record.h"

namespace swale::imd {
namespace {

constexpr char kDigestName[] = "mum-row-sum";
constexpr std::string_view kLayoutFeature = "layout";
constexpr std::string_view kFormatFeature = "format";
// Builds that do not know it would leave attributes out of the epoch log that they continue.
constexpr std::string_view kAttributesFeature = "attributes";
// Builds that do not know it would look for logs that are gone.
constexpr std::string_view kClustersFeature = "clusters";
// The logs lie beside the directory.
constexpr std::string_view kLogsBesideFeature = "beside";
constexpr std::string_view kFeatures[] = {kLayoutFeature, kFormatFeature, kAttributesFeature,
                                          kClustersFeature, kLogsBesideFeature};
constexpr DocumentFormat kFormat{.name = "swale-imd", .version = 1, .features = kFeatures};
// In "schema": every value is as long as its fields. Directories of earlier builds do not say so, and values
// of any length are right there.
constexpr char kExactLengths[] = "exact";
constexpr char kWholeName[] = "whole";
constexpr char kPartialName[] = "partial";
constexpr uint64_t kWaysMax = 65'535;
constexpr uint64_t kEpochsPromisedMax = uint64_t{1} << 24;

Status check_algorithms(const DocumentObject& root) {
  for (const auto& [name, ours] : {std::pair{"hash", kHashName}, std::pair{"digest", kDigestName}}) {
    SWALE_ASSIGN_OR_RETURN(const std::string theirs, root.text(name));
    if (theirs != ours)
      return root.unsupported(fmt::format("uses the {} \"{}\", this build knows \"{}\"", name, theirs, ours));
  }
  return {};
}

Result<JobEntry> decode_job(const DocumentObject& object, uint32_t number_min) {
  JobEntry job;
  SWALE_ASSIGN_OR_RETURN(const uint64_t number, object.number("number", number_min, kJobNumberMax));
  job.number = static_cast<uint32_t>(number);
  SWALE_RETURN_IF_ERROR(object.hex("id").status());
  SWALE_ASSIGN_OR_RETURN(job.id, object.text("id"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t ranks, object.number("ranks", 1, run::kRanksMax));
  job.ranks = static_cast<uint32_t>(ranks);
  SWALE_ASSIGN_OR_RETURN(const uint64_t ways, object.number("ways", 1, kWaysMax));
  job.ways = static_cast<uint32_t>(ways);
  SWALE_ASSIGN_OR_RETURN(job.partitioner, object.text("partitioner"));
  if (!is_partitioner_name(job.partitioner)) return object.problem("partitioner", kPartitionerNameRule);
  return job;
}

Result<LostPart> decode_lost(const DocumentObject& object) {
  LostPart lost;
  SWALE_ASSIGN_OR_RETURN(lost.epoch_id, object.hex("epoch_id"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t partition, object.number("partition", 0, run::kRanksMax - 1));
  lost.partition = PartitionNumber(static_cast<uint32_t>(partition));
  SWALE_ASSIGN_OR_RETURN(lost.what, object.text("what"));
  return lost;
}

Result<run::Schema> decode_schema(const DocumentObject& object) {
  run::Schema schema;
  SWALE_ASSIGN_OR_RETURN(const JsonValue fields, object.array("fields"));
  for (const JsonValue value : fields) {
    const DocumentObject field = object.below(value, fmt::format("field {}", schema.fields.size()));
    SWALE_ASSIGN_OR_RETURN(const std::string type, field.text("type"));
    const std::optional<run::FieldType> known = run::field_type(type);
    if (!known)
      return object.unsupported(fmt::format("a field has the type \"{}\", which this build lacks", type));
    run::Field decoded;
    decoded.type = *known;
    SWALE_ASSIGN_OR_RETURN(decoded.name, field.text("name"));
    SWALE_ASSIGN_OR_RETURN(const uint64_t count, field.number("count", 1, run::kValueBytesMax));
    decoded.count = static_cast<uint32_t>(count);
    SWALE_ASSIGN_OR_RETURN(decoded.unit, field.text("unit"));
    if (const Status added = schema.add(std::move(decoded)); !added.ok()) {
      return corruption("{}: {} ({}); restore the file from a copy", object.where(), added.message(),
                        field.place("name"));
    }
  }
  SWALE_ASSIGN_OR_RETURN(const JsonValue extrema, object.array("extrema"));
  for (const JsonValue value : extrema) {
    const std::optional<std::string> name = value.string();
    if (!name) return object.problem("extrema", "names of fields");
    if (const Status indexed = schema.index(*name); !indexed.ok())
      return corruption("{}: {}; restore the file from a copy", object.where(), indexed.message());
  }
  schema.any_length = !object.find("lengths").exists();
  if (!schema.any_length) {
    SWALE_ASSIGN_OR_RETURN(const std::string lengths, object.text("lengths"));
    if (lengths != kExactLengths)
      return object.unsupported(
          fmt::format("values have lengths by a rule \"{}\", unknown to this build", lengths));
  }
  return schema;
}

Result<run::Layout> decode_layout(const DocumentObject& object) {
  run::Layout layout;
  SWALE_ASSIGN_OR_RETURN(const std::string compression, object.text("compression"));
  SWALE_ASSIGN_OR_RETURN(const std::string index, object.text("index"));
  const std::optional<Codec> codec = codec_named(compression);
  const std::optional<run::IndexKind> kind = run::index_named(index);
  if (!codec)
    return object.unsupported(fmt::format("the compression \"{}\" is unknown to this build", compression));
  if (!kind) return object.unsupported(fmt::format("the index \"{}\" is unknown to this build", index));
  layout.compression = *codec;
  layout.index = *kind;
  if (layout.filtered()) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t bits, object.number("bloom_bits", 0, run::kBloomBitsMax));
    layout.bloom_bits = static_cast<uint32_t>(bits);
  }
  return layout;
}

Result<run::ShuffleFormat> decode_format(const DocumentObject& root) {
  SWALE_ASSIGN_OR_RETURN(const std::string name, root.text("shuffle"));
  const std::optional<run::ShuffleFormat> format = run::format_named(name);
  if (!format) return root.unsupported(fmt::format("the format \"{}\" is unknown to this build", name));
  return *format;
}

// Builds that do not know them must not read the directory.
std::vector<std::string_view> features_of(const Manifest& manifest) {
  const run::Layout& layout = manifest.layout;
  std::vector<std::string_view> features;
  if (!layout.standard()) features.push_back(kLayoutFeature);
  if (layout.format != run::ShuffleFormat::kBase) features.push_back(kFormatFeature);
  if (manifest.has_attributes) features.push_back(kAttributesFeature);
  if (manifest.has_moved) features.push_back(kClustersFeature);
  if (manifest.log_place == LogPlace::kBeside) features.push_back(kLogsBesideFeature);
  return features;
}

void encode_layout(const run::Layout& layout, JsonWriter* json) {
  json->object().member("compression", codec_name(layout.compression));
  json->member("index", run::index_name(layout.index));
  if (layout.filtered()) json->member("bloom_bits", layout.bloom_bits);
  json->end();
}

void encode_schema(const run::Schema& schema, JsonWriter* json) {
  json->object().name("fields").array();
  for (const run::Field& field : schema.fields) {
    json->object().member("name", field.name).member("type", run::type_name(field.type));
    json->member("count", field.count).member("unit", field.unit).end();
  }
  json->end().name("extrema").array();
  for (const run::FieldPlace& place : schema.indexed) json->value(place.name);
  json->end();
  if (!schema.any_length) json->member("lengths", kExactLengths);
  json->end();
}

Status decode_generation(const DocumentObject& root, Manifest* manifest) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t generation, root.number("generation", 0, kJobNumberMax));
  manifest->generation = static_cast<uint32_t>(generation);
  SWALE_ASSIGN_OR_RETURN(const uint64_t continues, root.number("continues", 0, generation));
  manifest->continues = static_cast<uint32_t>(continues);
  SWALE_ASSIGN_OR_RETURN(manifest->closed, root.flag("closed"));
  SWALE_ASSIGN_OR_RETURN(manifest->epochs_promised, root.number("epochs", 0, kEpochsPromisedMax));
  return {};
}

Status decode_jobs(const DocumentObject& root, std::vector<JobEntry>* jobs) {
  SWALE_ASSIGN_OR_RETURN(const JsonValue values, root.array("jobs"));
  if (values.size() > kJobNumberMax)
    return root.problem("jobs", fmt::format("at most {} entries", kJobNumberMax));
  for (const JsonValue value : values) {
    const uint32_t number_min = jobs->empty() ? 0 : jobs->back().number + 1;
    const DocumentObject object = root.below(value, fmt::format("job {}", jobs->size()));
    SWALE_ASSIGN_OR_RETURN(JobEntry job, decode_job(object, number_min));
    jobs->push_back(std::move(job));
  }
  return {};
}

Status decode_losses(const DocumentObject& root, std::vector<LostPart>* lost) {
  if (!root.find("lost").exists()) return {};
  SWALE_ASSIGN_OR_RETURN(const JsonValue values, root.array("lost"));
  for (const JsonValue value : values) {
    SWALE_ASSIGN_OR_RETURN(LostPart part,
                           decode_lost(root.below(value, fmt::format("lost part {}", lost->size()))));
    lost->push_back(std::move(part));
  }
  return {};
}

}  // namespace

std::string Manifest::encode() const {
  JsonWriter json;
  begin_document(kFormat, features_of(*this), &json);
  json.member("hash", kHashName).member("digest", kDigestName).line();
  json.member("generation", generation).member("continues", continues).member("closed", closed);
  json.member("epochs", epochs_promised).line();
  if (layout.format != run::ShuffleFormat::kBase)
    json.member("shuffle", run::format_name(layout.format)).line();
  if (!layout.standard()) encode_layout(layout, &json.name("layout")), json.line();
  if (schema.key) json.member("key", run::key_text(schema.key)).line();
  if (!schema.empty()) encode_schema(schema, &json.name("schema")), json.line();
  json.name("jobs").array();
  for (const JobEntry& job : jobs) {
    json.line().object().member("number", job.number).member("id", job.id).member("ranks", job.ranks);
    json.member("ways", job.ways).member("partitioner", job.partitioner).end().line();
  }
  json.end().line();
  if (!lost.empty()) {
    json.name("lost").array();
    for (const LostPart& part : lost) {
      json.line().object().member("epoch_id", hex16(part.epoch_id));
      json.member("partition", part.partition.value()).member("what", part.what).end().line();
    }
    json.end().line();
  }
  return take_sealed(&json);
}

Result<Manifest> Manifest::decode(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  const DocumentObject root = document.root();
  SWALE_RETURN_IF_ERROR(check_algorithms(root));
  Manifest manifest;
  if (const JsonValue schema = root.find("schema"); schema.exists()) {
    SWALE_ASSIGN_OR_RETURN(manifest.schema, decode_schema(root.below(schema, "schema")));
  }
  if (root.find("key").exists()) {
    SWALE_ASSIGN_OR_RETURN(const std::string key, root.text("key"));
    manifest.schema.key = run::key_type_named(key);
    if (!manifest.schema.key)
      return root.unsupported(fmt::format("has keys of the type \"{}\", which this build lacks", key));
  }
  if (document.has_feature(kLayoutFeature)) {
    const JsonValue layout = root.find("layout");
    if (!layout.exists()) return root.problem("layout", "an object");
    SWALE_ASSIGN_OR_RETURN(manifest.layout, decode_layout(root.below(layout, "layout")));
  }
  if (document.has_feature(kFormatFeature)) {
    SWALE_ASSIGN_OR_RETURN(manifest.layout.format, decode_format(root));
  }
  manifest.has_attributes = document.has_feature(kAttributesFeature);
  manifest.has_moved = document.has_feature(kClustersFeature);
  if (document.has_feature(kLogsBesideFeature)) manifest.log_place = LogPlace::kBeside;
  SWALE_RETURN_IF_ERROR(decode_generation(root, &manifest));
  SWALE_RETURN_IF_ERROR(decode_jobs(root, &manifest.jobs));
  SWALE_RETURN_IF_ERROR(decode_losses(root, &manifest.lost));
  return manifest;
}

std::optional<size_t> Manifest::job_index(uint32_t number) const {
  const auto found =
      std::lower_bound(jobs.begin(), jobs.end(), number,
                       [](const JobEntry& job, uint32_t wanted) { return job.number < wanted; });
  if (found == jobs.end() || found->number != number) return std::nullopt;
  return static_cast<size_t>(found - jobs.begin());
}

std::vector<LogId> Manifest::logs() const {
  std::vector<bool> wrote(jobs.size());
  for (const EpochEntry& epoch : epochs) {
    if (!epoch.freed) wrote[epoch.job] = true;
  }
  std::vector<LogId> logs;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (!wrote[job]) continue;
    for (PartitionNumber partition(0); partition < jobs[job].ranks; ++partition)
      logs.push_back({jobs[job].number, partition, log_place});
  }
  return logs;
}

const EpochEntry* Manifest::find_epoch(EpochNumber number, uint64_t epoch_id) const {
  return number < epochs.size() && epochs[number].epoch_id == epoch_id ? &epochs[number] : nullptr;
}

const EpochEntry* Manifest::first_dropped(const Manifest& now) const {
  const auto dropped = std::ranges::find_if(epochs, [&](const EpochEntry& epoch) {
    return now.find_epoch(epoch.epoch, epoch.epoch_id) == nullptr;
  });
  return dropped == epochs.end() ? nullptr : &*dropped;
}

const EpochEntry* Manifest::first_moved(const Manifest& now) const {
  const auto moved = std::ranges::find_if(epochs, [&](const EpochEntry& epoch) {
    const EpochEntry* const same = now.find_epoch(epoch.epoch, epoch.epoch_id);
    return same != nullptr &&
           (same->freed != epoch.freed || now.job_of(*same).number != job_of(epoch).number);
  });
  return moved == epochs.end() ? nullptr : &*moved;
}

const EpochEntry* Manifest::find_epoch(const LostPart& part) const {
  const auto found = std::find_if(epochs.begin(), epochs.end(),
                                  [&](const EpochEntry& epoch) { return epoch.epoch_id == part.epoch_id; });
  return found == epochs.end() ? nullptr : &*found;
}

const LostPart* Manifest::lost_part(const EpochEntry& epoch, PartitionNumber partition) const {
  const auto found = std::find_if(lost.begin(), lost.end(), [&](const LostPart& part) {
    return part.epoch_id == epoch.epoch_id && part.partition == partition;
  });
  return found == lost.end() ? nullptr : &*found;
}

bool Manifest::has_lost(const EpochEntry& epoch) const {
  return std::any_of(lost.begin(), lost.end(),
                     [&](const LostPart& part) { return part.epoch_id == epoch.epoch_id; });
}

Result<size_t> Manifest::drop_after(int64_t step) {
  const auto greater = std::ranges::find_if(
      epochs, [&](const EpochEntry& epoch) { return epoch.step_known() && epoch.step > step; });
  auto keep = static_cast<size_t>(greater - epochs.begin());
  // What was recovered of an unfinished epoch is no part of the checkpoint in front of it.
  while (keep > 0 && epochs[keep - 1].recovered == Recovered::kPartial) --keep;
  for (size_t i = 0; i < keep; ++i) {
    if (epochs[i].recovered != Recovered::kWhole) continue;
    return invalid_argument(
        "epoch {} has lost its step with an earlier {}, so that nobody can tell whether it lies after step "
        "{}; open without resume_after",
        epochs[i].epoch, kManifestName, step);
  }
  const size_t count = epochs.size() - keep;
  epochs.resize(keep);
  return count;
}

std::optional<int64_t> Manifest::last_step() const {
  const auto known = std::find_if(epochs.rbegin(), epochs.rend(), std::mem_fn(&EpochEntry::step_known));
  return known == epochs.rend() ? std::nullopt : std::optional(known->step);
}

const char* recovered_name(Recovered recovered) {
  if (recovered == Recovered::kNo) return "";
  return recovered == Recovered::kWhole ? kWholeName : kPartialName;
}

}  // namespace swale::imd
