#include "imd/format/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/crc32c.h"
#include "imd/format/json_place.h"
#include "imd/format/json_seal.h"
#include "imd/format/json_tree.h"
#include "imd/format/partitioner.h"
#include "run/record.h"

namespace swale::imd {
namespace {

using Json = nlohmann::json;                 // what is read (json_tree.h)
using OrderedJson = nlohmann::ordered_json;  // what is written

constexpr char kFormatName[] = "swale-imd";
constexpr char kDigestName[] = "mum-row-sum";
constexpr char kLayoutFeature[] = "layout";
constexpr char kWholeName[] = "whole";
constexpr char kPartialName[] = "partial";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kRanksMax = uint64_t{1} << 24;
constexpr uint64_t kWaysMax = 65'535;
constexpr uint64_t kEpochsPromisedMax = uint64_t{1} << 24;

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> parse_hex16(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value, 16);
  const bool lower = std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (text.size() != 16 || failure != std::errc() || stop != end || !lower) return std::nullopt;
  return value;
}

// Where an object of the manifest stands, for messages.
struct Where {
  Bytes json;                    // the file
  std::string text;              // its path, and in words what the object is
  std::vector<std::string> way;  // to the object (json_place.h)

  Where below(std::string_view words, std::vector<std::string> steps) const {
    Where there{json, fmt::format("{}: {}", text, words), way};
    there.way.insert(there.way.end(), steps.begin(), steps.end());
    return there;
  }
};

// One object of the manifest.
class Member {
 public:
  Member(const Json& object, Where where) : object_(object), where_(std::move(where)) {}

  Status problem(std::string_view name, std::string_view expected) const {
    const auto it = object_.is_object() ? object_.find(name) : object_.end();
    std::string found = "nothing";
    if (object_.is_object() && it != object_.end()) {
      found = it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
    }
    return corruption("{}: member \"{}\" ({}): expected {}, found {}; restore the file from a copy",
                      where_.text, name, place(name).text(), expected, found);
  }

  JsonPlace place(std::string_view name) const {
    return find_in_json(where_.json, where_.below(name, {std::string(name)}).way);
  }
  const Where& where() const { return where_; }

  const Json* find(std::string_view name) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }

  Result<uint64_t> number(std::string_view name, uint64_t min, uint64_t max) const {
    const Json* json = find(name);
    if (json == nullptr || !json->is_number_unsigned() || json->get<uint64_t>() < min ||
        json->get<uint64_t>() > max) {
      return problem(name, fmt::format("an integer from {} to {}", min, max));
    }
    return json->get<uint64_t>();
  }

  Result<bool> flag(std::string_view name) const {
    const Json* json = find(name);
    if (json == nullptr || !json->is_boolean()) return problem(name, "true or false");
    return json->get<bool>();
  }

  Result<std::string> text(std::string_view name) const {
    const Json* json = find(name);
    if (json == nullptr || !json->is_string()) return problem(name, "a string");
    return json->get<std::string>();
  }

  Result<uint64_t> hex(std::string_view name) const {
    const Json* json = find(name);
    const auto value = json != nullptr && json->is_string() ? parse_hex16(json->get_ref<const std::string&>())
                                                            : std::nullopt;
    if (!value) return problem(name, "a string of 16 lower-case hex digits");
    return *value;
  }

  Result<const Json*> array(std::string_view name) const {
    const Json* json = find(name);
    if (json == nullptr || !json->is_array()) return problem(name, "an array");
    return json;
  }

 private:
  const Json& object_;
  const Where where_;
};

Status unsupported(const std::string& path, std::string_view what) {
  return error(Code::kUnsupported, Scope::kFile, "{}: {}; read it with a newer swale", path, what);
}

Status check_seal(Bytes json, const std::string& path) {
  if (json.size() < kSealBytes) {
    return corruption("{}: has {} bytes, too few for a manifest; restore the file from a copy", path,
                      json.size());
  }
  const Bytes covered = json.substr(0, json.size() - kSealBytes);
  if (is_sealed(json)) return {};
  if (!json.ends_with(kSealTail) || json.substr(covered.size(), kSealHead.size()) != kSealHead) {
    return corruption(
        "{}: does not end with its checksum at offset {}: it was cut off or edited; restore it from a copy",
        path, covered.size());
  }
  return corruption(
      "{}: offset {}: checksum {} is recorded, the bytes before it have {:08x}: it was damaged or edited; "
      "restore it from a copy",
      path, covered.size(), json.substr(covered.size() + kSealHead.size(), 8), crc32c(covered));
}

Status check_header(const Member& root, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::string format, root.text("format"));
  if (format != kFormatName) return root.problem("format", fmt::format("\"{}\"", kFormatName));
  SWALE_ASSIGN_OR_RETURN(const uint64_t version, root.number("version", 1, UINT32_MAX));
  if (version > kVersion) {
    return unsupported(path,
                       fmt::format("is of format version {}, this build knows up to {}", version, kVersion));
  }
  SWALE_ASSIGN_OR_RETURN(const Json* features, root.array("incompatible_features"));
  const bool known = std::all_of(features->begin(), features->end(),
                                 [](const Json& feature) { return is_text(feature, kLayoutFeature); });
  if (!known) {
    return unsupported(path, fmt::format("uses features that this build lacks: {}",
                                         features->dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  for (const auto& [name, ours] : {std::pair{"hash", kHashName}, std::pair{"digest", kDigestName}}) {
    SWALE_ASSIGN_OR_RETURN(const std::string theirs, root.text(name));
    if (theirs != ours) {
      return unsupported(path,
                         fmt::format("uses the {} \"{}\", this build knows \"{}\"", name, theirs, ours));
    }
  }
  return {};
}

Result<JobEntry> decode_job(const Member& object, uint32_t number_min) {
  JobEntry job;
  SWALE_ASSIGN_OR_RETURN(const uint64_t number, object.number("number", number_min, kJobNumberMax));
  job.number = static_cast<uint32_t>(number);
  SWALE_RETURN_IF_ERROR(object.hex("id").status());
  SWALE_ASSIGN_OR_RETURN(job.id, object.text("id"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t ranks, object.number("ranks", 1, kRanksMax));
  job.ranks = static_cast<int32_t>(ranks);
  SWALE_ASSIGN_OR_RETURN(const uint64_t ways, object.number("ways", 1, kWaysMax));
  job.ways = static_cast<uint32_t>(ways);
  SWALE_ASSIGN_OR_RETURN(job.partitioner, object.text("partitioner"));
  if (!is_partitioner_name(job.partitioner)) return object.problem("partitioner", kPartitionerNameRule);
  return job;
}

Result<LostPart> decode_lost(const Member& object) {
  LostPart lost;
  SWALE_ASSIGN_OR_RETURN(lost.epoch_id, object.hex("epoch_id"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t partition, object.number("partition", 0, kRanksMax - 1));
  lost.partition = static_cast<uint32_t>(partition);
  SWALE_ASSIGN_OR_RETURN(lost.what, object.text("what"));
  return lost;
}

Result<run::Schema> decode_schema(const Member& object) {
  const std::string& where = object.where().text;
  run::Schema schema;
  SWALE_ASSIGN_OR_RETURN(const Json* fields, object.array("fields"));
  for (const Json& member : *fields) {
    const std::string number = std::to_string(schema.fields.size());
    const Member field(member, object.where().below("field " + number, {"fields", number}));
    SWALE_ASSIGN_OR_RETURN(const std::string type, field.text("type"));
    const std::optional<run::FieldType> known = run::field_type(type);
    if (!known)
      return unsupported(where, fmt::format("a field has the type \"{}\", which this build lacks", type));
    run::Field decoded;
    decoded.type = *known;
    SWALE_ASSIGN_OR_RETURN(decoded.name, field.text("name"));
    SWALE_ASSIGN_OR_RETURN(const uint64_t count, field.number("count", 1, run::kValueBytesMax));
    decoded.count = static_cast<uint32_t>(count);
    SWALE_ASSIGN_OR_RETURN(decoded.unit, field.text("unit"));
    if (const Status added = schema.add(std::move(decoded)); !added.ok()) {
      return corruption("{}: {} ({}); restore the file from a copy", where, added.message(),
                        field.place("name").text());
    }
  }
  SWALE_ASSIGN_OR_RETURN(const Json* extrema, object.array("extrema"));
  for (const Json& name : *extrema) {
    const Status indexed = name.is_string() ? schema.index(name.get<std::string>())
                                            : object.problem("extrema", "names of fields");
    if (!indexed.ok()) return corruption("{}: {}; restore the file from a copy", where, indexed.message());
  }
  return schema;
}

Result<run::Layout> decode_layout(const Member& object) {
  const std::string& where = object.where().text;
  run::Layout layout;
  SWALE_ASSIGN_OR_RETURN(const std::string compression, object.text("compression"));
  SWALE_ASSIGN_OR_RETURN(const std::string index, object.text("index"));
  const std::optional<Codec> codec = codec_named(compression);
  const std::optional<run::IndexKind> kind = run::index_named(index);
  if (!codec)
    return unsupported(where, fmt::format("the compression \"{}\" is unknown to this build", compression));
  if (!kind) return unsupported(where, fmt::format("the index \"{}\" is unknown to this build", index));
  layout.compression = *codec;
  layout.index = *kind;
  if (layout.filtered()) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t bits, object.number("bloom_bits", 0, run::kBloomBitsMax));
    layout.bloom_bits = static_cast<uint32_t>(bits);
  }
  return layout;
}

std::string encode_layout(const run::Layout& layout) {
  OrderedJson json = {{"compression", codec_name(layout.compression)},
                      {"index", run::index_name(layout.index)}};
  if (layout.filtered()) json["bloom_bits"] = layout.bloom_bits;
  return json.dump();
}

std::string encode_schema(const run::Schema& schema) {
  OrderedJson fields = OrderedJson::array();
  for (const run::Field& field : schema.fields) {
    fields.push_back({{"name", field.name},
                      {"type", run::type_name(field.type)},
                      {"count", field.count},
                      {"unit", field.unit}});
  }
  OrderedJson extrema = OrderedJson::array();
  for (const run::FieldPlace& place : schema.indexed) extrema.push_back(place.name);
  return OrderedJson({{"fields", fields}, {"extrema", extrema}}).dump();
}

Status decode_generation(const Member& root, Manifest* manifest) {
  SWALE_ASSIGN_OR_RETURN(const uint64_t generation, root.number("generation", 0, kJobNumberMax));
  manifest->generation = static_cast<uint32_t>(generation);
  SWALE_ASSIGN_OR_RETURN(const uint64_t continues, root.number("continues", 0, generation));
  manifest->continues = static_cast<uint32_t>(continues);
  SWALE_ASSIGN_OR_RETURN(manifest->closed, root.flag("closed"));
  SWALE_ASSIGN_OR_RETURN(manifest->epochs_promised, root.number("epochs", 0, kEpochsPromisedMax));
  return {};
}

void append_lines(const char* name, const std::vector<std::string>& lines, std::string* out) {
  *out += fmt::format("\"{}\":[", name);
  for (size_t i = 0; i < lines.size(); ++i) *out += (i == 0 ? "\n" : ",\n") + lines[i];
  *out += lines.empty() ? "],\n" : "\n],\n";
}

}  // namespace

std::string Manifest::encode() const {
  OrderedJson features = OrderedJson::array();
  if (!layout.standard()) features.push_back(kLayoutFeature);
  std::string out = fmt::format(
      "{{\"format\":\"{}\",\"version\":{},\"incompatible_features\":{},\"hash\":\"{}\",\"digest\":\"{}\",\n",
      kFormatName, kVersion, features.dump(), kHashName, kDigestName);
  out += fmt::format("\"generation\":{},\"continues\":{},\"closed\":{},\"epochs\":{},\n", generation,
                     continues, closed, epochs_promised);
  if (!layout.standard()) out += fmt::format("\"layout\":{},\n", encode_layout(layout));
  if (schema.key) out += fmt::format("\"key\":\"{}\",\n", run::key_text(schema.key));
  if (!schema.empty()) out += fmt::format("\"schema\":{},\n", encode_schema(schema));
  std::vector<std::string> lines;
  for (const JobEntry& job : jobs) {
    const OrderedJson line = {{"number", job.number},
                              {"id", job.id},
                              {"ranks", job.ranks},
                              {"ways", job.ways},
                              {"partitioner", job.partitioner}};
    lines.push_back(line.dump());
  }
  append_lines("jobs", lines, &out);
  lines.clear();
  for (const LostPart& part : lost) {
    const OrderedJson line = {
        {"epoch_id", hex16(part.epoch_id)}, {"partition", part.partition}, {"what", part.what}};
    lines.push_back(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }
  if (!lost.empty()) append_lines("lost", lines, &out);
  return out + seal_of(out);
}

Result<Manifest> Manifest::decode(Bytes json, const std::string& path) {
  SWALE_RETURN_IF_ERROR(check_seal(json, path));
  const JsonTree tree(json);
  const Json& document = tree.root();
  if (document.is_discarded() || !document.is_object()) {
    const std::optional<JsonPlace> mistake = json_mistake(json);
    return corruption(
        "{}: {}: is not a JSON object nested at most {} deep, though its checksum is right; restore the file "
        "from a "
        "copy",
        path, mistake.value_or(JsonPlace()).text(), kJsonDepthMax);
  }
  const Member root(document, {json, path, {}});
  SWALE_RETURN_IF_ERROR(check_header(root, path));
  Manifest manifest;
  if (const Json* schema = root.find("schema"); schema != nullptr) {
    SWALE_ASSIGN_OR_RETURN(manifest.schema,
                           decode_schema({*schema, root.where().below("schema", {"schema"})}));
  }
  if (root.find("key") != nullptr) {
    SWALE_ASSIGN_OR_RETURN(const std::string key, root.text("key"));
    manifest.schema.key = run::key_type_named(key);
    if (!manifest.schema.key)
      return unsupported(path, fmt::format("has keys of the type \"{}\", which this build lacks", key));
  }
  const Json& features = *root.find("incompatible_features");
  if (std::any_of(features.begin(), features.end(),
                  [](const Json& one) { return is_text(one, kLayoutFeature); })) {
    const Json* layout = root.find("layout");
    if (layout == nullptr) return root.problem("layout", "an object");
    SWALE_ASSIGN_OR_RETURN(manifest.layout,
                           decode_layout({*layout, root.where().below("layout", {"layout"})}));
  }
  SWALE_RETURN_IF_ERROR(decode_generation(root, &manifest));
  SWALE_ASSIGN_OR_RETURN(const Json* jobs, root.array("jobs"));
  if (jobs->size() > kJobNumberMax)
    return root.problem("jobs", fmt::format("at most {} entries", kJobNumberMax));
  for (const Json& object : *jobs) {
    const std::string index = std::to_string(manifest.jobs.size());
    const uint32_t number_min = manifest.jobs.empty() ? 0 : manifest.jobs.back().number + 1;
    SWALE_ASSIGN_OR_RETURN(
        JobEntry job, decode_job({object, root.where().below("job " + index, {"jobs", index})}, number_min));
    manifest.jobs.push_back(std::move(job));
  }
  if (root.find("lost") == nullptr) return manifest;
  SWALE_ASSIGN_OR_RETURN(const Json* lost, root.array("lost"));
  for (const Json& object : *lost) {
    const std::string index = std::to_string(manifest.lost.size());
    SWALE_ASSIGN_OR_RETURN(LostPart part,
                           decode_lost({object, root.where().below("lost part " + index, {"lost", index})}));
    manifest.lost.push_back(std::move(part));
  }
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
  for (const EpochEntry& epoch : epochs) wrote[epoch.job] = true;
  std::vector<LogId> logs;
  for (size_t job = 0; job < jobs.size(); ++job) {
    if (!wrote[job]) continue;
    for (uint32_t partition = 0; partition < static_cast<uint32_t>(jobs[job].ranks); ++partition)
      logs.push_back({jobs[job].number, partition});
  }
  return logs;
}

const LostPart* Manifest::lost_part(const EpochEntry& epoch, uint32_t partition) const {
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
  size_t keep = 0;
  for (; keep < epochs.size(); ++keep) {
    const EpochEntry& epoch = epochs[keep];
    if (epoch.recovered == Recovered::kPartial || epoch.step > step) break;
    if (epoch.recovered == Recovered::kWhole) {
      return invalid_argument(
          "epoch {} has lost its step with an earlier {}, so that nobody can tell whether it lies after step "
          "{}; "
          "open without resume_after",
          epoch.epoch, kManifestName, step);
    }
  }
  const size_t count = epochs.size() - keep;
  epochs.resize(keep);
  return count;
}

const char* recovered_name(Recovered recovered) {
  if (recovered == Recovered::kNo) return "";
  return recovered == Recovered::kWhole ? kWholeName : kPartialName;
}

}  // namespace swale::imd
