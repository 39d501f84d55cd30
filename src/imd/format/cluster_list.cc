#include "imd/format/cluster_list.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "base/sealed_document.h"
#include "imd/format/epoch_log.h"
#include "imd/format/log_names.h"
#include "run/format.h"

namespace swale::imd {
namespace {

// A cluster may have several partitions. Without it, each has one.
constexpr std::string_view kRanksFeature = "ranks";
// Series of a cluster may have columns.
constexpr std::string_view kColumnsFeature = "columns";
// A cluster may have its logs beside its folder.
constexpr std::string_view kBesideFeature = "beside";
constexpr std::string_view kListFeatures[] = {kRanksFeature, kColumnsFeature, kBesideFeature};
constexpr DocumentFormat kListFormat{.name = "swale-clusters", .version = 1, .features = kListFeatures};
constexpr size_t kDigitsOfId = 16;

// Epochs that follow each other are one span.
void encode_epochs(std::span<const ClusterEntry::Epoch> epochs, JsonWriter* json) {
  json->name("epochs").array();
  for (size_t begin = 0; begin < epochs.size();) {
    size_t end = begin;
    std::string ids;
    for (; end < epochs.size() && epochs[end].epoch - epochs[begin].epoch == end - begin; ++end)
      ids += hex16(epochs[end].epoch_id);
    json->object().member("first", epochs[begin].epoch.value()).member("ids", ids).end();
    begin = end;
  }
  json->end();
}

Status decode_span(const DocumentObject& object, std::vector<ClusterEntry::Epoch>* epochs) {
  const uint64_t first_min = epochs->empty() ? 0 : uint64_t{epochs->back().epoch} + 1;
  SWALE_ASSIGN_OR_RETURN(const uint64_t first, object.number("first", first_min, kEpochsMax - 1));
  SWALE_ASSIGN_OR_RETURN(const std::string ids, object.text("ids"));
  const size_t count = ids.size() / kDigitsOfId;
  if (count == 0 || ids.size() % kDigitsOfId != 0 || count > kEpochsMax - first)
    return object.problem("ids", "16 digits for each epoch");
  for (size_t i = 0; i < count; ++i) {
    const char* const begin = ids.data() + i * kDigitsOfId;
    uint64_t id = 0;
    const auto [stop, failure] = std::from_chars(begin, begin + kDigitsOfId, id, 16);
    if (failure != std::errc() || stop != begin + kDigitsOfId)
      return object.problem("ids", "hexadecimal digits");
    epochs->push_back({EpochNumber(static_cast<uint32_t>(first + i)), id});
  }
  return {};
}

struct Features {
  bool ranks = false;
  bool columns = false;
  bool beside = false;
};

bool is_beside(const ClusterEntry& cluster) { return cluster.log_place == LogPlace::kBeside; }

Result<ClusterEntry> decode_cluster(const DocumentObject& object, const Features& features,
                                    uint32_t number_min, uint32_t generation) {
  ClusterEntry cluster;
  SWALE_ASSIGN_OR_RETURN(const uint64_t number, object.number("number", number_min, generation));
  cluster.number = static_cast<uint32_t>(number);
  SWALE_ASSIGN_OR_RETURN(cluster.epoch_id, object.hex("epoch_id"));
  if (features.ranks) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t ranks, object.number("ranks", 1, run::kRanksMax));
    cluster.ranks = static_cast<uint32_t>(ranks);
  }
  if (features.columns) {
    SWALE_ASSIGN_OR_RETURN(cluster.columns, object.flag("columns"));
  }
  if (features.beside) {
    SWALE_ASSIGN_OR_RETURN(const bool beside, object.flag("beside"));
    if (beside) cluster.log_place = LogPlace::kBeside;
  }
  SWALE_ASSIGN_OR_RETURN(cluster.series, object.number("series", 0, UINT64_MAX));
  SWALE_ASSIGN_OR_RETURN(cluster.bytes, object.number("bytes", 0, UINT64_MAX));
  SWALE_ASSIGN_OR_RETURN(const JsonValue spans, object.array("epochs"));
  for (const JsonValue span : spans)
    SWALE_RETURN_IF_ERROR(decode_span(object.below(span, "epochs"), &cluster.epochs));
  if (cluster.epochs.empty()) return object.problem("epochs", "at least one epoch");
  return cluster;
}

Result<ClusterList> read_list(io::Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::string json, io::read_file(device, path, kManifestBytesMax));
  return ClusterList::decode(json, path);
}

}  // namespace

std::string ClusterList::encode() const {
  JsonWriter json;
  const Features has{
      .ranks = std::ranges::any_of(clusters, [](const ClusterEntry& cluster) { return cluster.ranks > 1; }),
      .columns = std::ranges::any_of(clusters, &ClusterEntry::columns),
      .beside = std::ranges::any_of(clusters, is_beside)};
  std::vector<std::string_view> features;
  if (has.ranks) features.push_back(kRanksFeature);
  if (has.columns) features.push_back(kColumnsFeature);
  if (has.beside) features.push_back(kBesideFeature);
  begin_document(kListFormat, features, &json);
  json.line().member("generation", generation).name("clusters").array();
  for (const ClusterEntry& cluster : clusters) {
    json.line().object().member("number", cluster.number).member("epoch_id", hex16(cluster.epoch_id));
    if (has.ranks) json.member("ranks", cluster.ranks);
    if (has.columns) json.member("columns", cluster.columns);
    if (has.beside) json.member("beside", is_beside(cluster));
    json.member("series", cluster.series).member("bytes", cluster.bytes);
    encode_epochs(cluster.epochs, &json);
    json.end().line();
  }
  json.end().line();
  return take_sealed(&json);
}

Result<ClusterList> ClusterList::decode(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kListFormat));
  const DocumentObject root = document.root();
  const Features features{.ranks = document.has_feature(kRanksFeature),
                          .columns = document.has_feature(kColumnsFeature),
                          .beside = document.has_feature(kBesideFeature)};
  ClusterList list;
  SWALE_ASSIGN_OR_RETURN(const uint64_t generation, root.number("generation", 1, kJobNumberMax));
  list.generation = static_cast<uint32_t>(generation);
  SWALE_ASSIGN_OR_RETURN(const JsonValue clusters, root.array("clusters"));
  for (const JsonValue value : clusters) {
    const uint32_t number_min = list.clusters.empty() ? 1 : list.clusters.back().number + 1;
    const DocumentObject object = root.below(value, fmt::format("cluster {}", list.clusters.size()));
    SWALE_ASSIGN_OR_RETURN(ClusterEntry cluster,
                           decode_cluster(object, features, number_min, list.generation));
    list.clusters.push_back(std::move(cluster));
  }
  return list;
}

std::string cluster_folder(const std::string& directory, uint32_t number) {
  return fmt::format("{}/{:04}", clusters_folder(directory), number);
}

std::string cluster_list_path(const std::string& directory, uint32_t number) {
  return cluster_folder(directory, number) + "/manifest.json";
}

std::string cluster_list_copy_path(const std::string& directory) {
  return clusters_folder(directory) + "/manifest.json";
}

store::ClaimNames cluster_claims(const std::string& directory) {
  return {.folder = clusters_folder(directory),
          .directory = directory,
          .path = [directory](uint32_t number) { return cluster_folder(directory, number); },
          .number = parse_job_folder,
          .kind = store::ClaimNames::Kind::kFolder,
          .number_min = 1,
          .number_max = kJobNumberMax};
}

Result<ClusterList> load_clusters(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                         store::list_jobs(device, cluster_claims(directory)));
  if (numbers.empty()) return ClusterList();
  Result<ClusterList> copy = read_list(device, cluster_list_copy_path(directory));
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number) {
    if (copy.ok() && copy->generation == *number) return copy;
    const std::string path = cluster_list_path(directory, *number);
    Result<ClusterList> list = read_list(device, path);
    if (list.status().code() == Code::kNotFound) continue;  // a pass that was killed, or works now
    if (!list.ok() || list->generation == *number) return list;
    return corruption("{}: is the list of pass {}, not {}; run `swale optimize`", path, list->generation,
                      *number);
  }
  return ClusterList();
}

Status check_cluster_lists(io::Device& device, const std::string& directory, const ClusterList& list) {
  if (list.generation == 0) return {};
  const auto check = [&](const std::string& path, const Result<ClusterList>& found) -> Status {
    if (!found.ok()) return found.status();
    if (*found == list) return {};
    return corruption("{}: is not the list of pass {}; `swale optimize --full` makes one anew", path,
                      list.generation);
  };
  const std::string path = cluster_list_path(directory, list.generation);
  SWALE_RETURN_IF_ERROR(check(path, read_list(device, path)));
  const std::string copy_path = cluster_list_copy_path(directory);
  const Result<ClusterList> copy = read_list(device, copy_path);
  // An older build makes none; a pass may have been killed before it made it.
  const bool none = copy.status().code() == Code::kNotFound;
  if (none || (copy.ok() && copy->generation < list.generation)) return {};
  return check(copy_path, copy);
}

Status refuse_cluster(io::Device& device, const std::string& directory) {
  const std::string path = directory + "/manifest.json";
  const Result<std::string> json = io::read_file(device, path, kManifestBytesMax);
  if (!json.ok() || !ClusterList::decode(*json, path).ok()) return {};
  return invalid_argument(
      "{}: is a cluster of a massive directory, that `swale optimize` has made; name that directory, two "
      "folders above",
      directory);
}

}  // namespace swale::imd
