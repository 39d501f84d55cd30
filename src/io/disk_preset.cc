#include "io/disk_preset.h"

#include <cmath>

#include "base/json_writer.h"
#include "base/sealed_document.h"

namespace swale::io {
namespace {

constexpr DocumentFormat kFormat = {.name = "swale-disk-preset"};
constexpr size_t kBytesMax = 64 * kKiB;
constexpr uint64_t kRateMax = 1'000'000'000'000;            // bytes a second
constexpr uint64_t kNanosMax = 1'000'000'000'000;           // 1,000 s
constexpr uint64_t kCapacityMax = (uint64_t{1} << 53) - 1;  // numbers of JSON
constexpr uint64_t kChannelsMax = 1024;
constexpr uint64_t kSlotsMax = 65536;
constexpr size_t kPresetTextBytesMax = 4096;

struct Duration {
  const char* name;
  Nanos DiskModel::*member;
};
constexpr Duration kDurations[] = {
    {"read_latency_ns", &DiskModel::read_latency},
    {"write_latency_ns", &DiskModel::write_latency},
    {"sync_latency_ns", &DiskModel::sync_latency},
    {"discard_latency_ns", &DiskModel::discard_latency},
    {"fixed_ns", &DiskModel::fixed},
    {"settle_ns", &DiskModel::settle},
    {"stroke_ns", &DiskModel::stroke},
    {"rotation_ns", &DiskModel::rotation},
    {"wait_max_ns", &DiskModel::wait_max},
};

void encode_model(std::string_view name, const DiskModel& model, JsonWriter* json) {
  json->line()
      .name(name)
      .object()
      .member("read_bytes_per_s", std::llround(model.read_bytes_per_s))
      .member("write_bytes_per_s", std::llround(model.write_bytes_per_s));
  for (const Duration& duration : kDurations) json->member(duration.name, model.*duration.member);
  json->member("channels", model.channels)
      .member("capacity_bytes", model.capacity_bytes)
      .member("order", model.order == DiskModel::Order::kElevator ? "elevator" : "arrival")
      .member("write_done", model.write_done == DiskModel::WriteDone::kAdmitted ? "admitted" : "served")
      .member("slots", model.slots)
      .member("merge_bytes_max", model.merge_bytes_max)
      .end();
}

// Whether the member is `yes`; it must be one of the two.
Result<bool> either(const DocumentObject& object, std::string_view name, std::string_view no,
                    std::string_view yes) {
  SWALE_ASSIGN_OR_RETURN(const std::string text, object.text(name));
  if (text != no && text != yes) return object.problem(name, fmt::format("{} or {}", no, yes));
  return text == yes;
}

Result<DiskModel> decode_model(const DocumentObject& root, std::string_view name) {
  const JsonValue value = root.find(name);
  if (!value.is_object()) return root.problem(name, "an object");
  const DocumentObject object = root.below(value, name);
  DiskModel model;
  SWALE_ASSIGN_OR_RETURN(const uint64_t read_rate, object.number("read_bytes_per_s", 1, kRateMax));
  SWALE_ASSIGN_OR_RETURN(const uint64_t write_rate, object.number("write_bytes_per_s", 1, kRateMax));
  model.read_bytes_per_s = static_cast<double>(read_rate);
  model.write_bytes_per_s = static_cast<double>(write_rate);
  for (const Duration& duration : kDurations) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t nanos, object.number(duration.name, 0, kNanosMax));
    model.*duration.member = static_cast<Nanos>(nanos);
  }
  SWALE_ASSIGN_OR_RETURN(const uint64_t channels, object.number("channels", 1, kChannelsMax));
  SWALE_ASSIGN_OR_RETURN(model.capacity_bytes, object.number("capacity_bytes", 0, kCapacityMax));
  SWALE_ASSIGN_OR_RETURN(const bool elevator, either(object, "order", "arrival", "elevator"));
  SWALE_ASSIGN_OR_RETURN(const bool admitted, either(object, "write_done", "served", "admitted"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t slots, object.number("slots", 1, kSlotsMax));
  SWALE_ASSIGN_OR_RETURN(model.merge_bytes_max, object.number("merge_bytes_max", 0, kGiB));
  model.channels = static_cast<uint32_t>(channels);
  model.slots = static_cast<uint32_t>(slots);
  model.order = elevator ? DiskModel::Order::kElevator : DiskModel::Order::kArrival;
  model.write_done = admitted ? DiskModel::WriteDone::kAdmitted : DiskModel::WriteDone::kServed;
  return model;
}

Result<std::string> short_text(const DocumentObject& object, std::string_view name) {
  SWALE_ASSIGN_OR_RETURN(std::string text, object.text(name));
  if (text.size() > kPresetTextBytesMax) return object.problem(name, "at most 4096 bytes");
  return text;
}

}  // namespace

std::string encode_disk_preset(const DiskPreset& preset) {
  JsonWriter json;
  begin_document(kFormat, {}, &json);
  json.line()
      .member("name", preset.name)
      .member("source", preset.source)
      .member("network_bytes_per_s", std::llround(preset.bed.network_bytes_per_s));
  encode_model("disk", preset.bed.disk, &json);
  encode_model("flash", preset.bed.flash, &json);
  json.line();
  return take_sealed(&json);
}

Result<DiskPreset> decode_disk_preset(Bytes text, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const SealedDocument document, SealedDocument::parse(text, path));
  SWALE_RETURN_IF_ERROR(document.check_header(kFormat));
  const DocumentObject root = document.root();
  DiskPreset preset;
  SWALE_ASSIGN_OR_RETURN(preset.name, short_text(root, "name"));
  SWALE_ASSIGN_OR_RETURN(preset.source, short_text(root, "source"));
  SWALE_ASSIGN_OR_RETURN(const uint64_t network, root.number("network_bytes_per_s", 1, kRateMax));
  preset.bed.network_bytes_per_s = static_cast<double>(network);
  SWALE_ASSIGN_OR_RETURN(preset.bed.disk, decode_model(root, "disk"));
  SWALE_ASSIGN_OR_RETURN(preset.bed.flash, decode_model(root, "flash"));
  return preset;
}

Result<DiskPreset> read_disk_preset(Device& device, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::string text, read_file(device, path, kBytesMax));
  return decode_disk_preset(text, path);
}

}  // namespace swale::io
