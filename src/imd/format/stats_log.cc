#include "imd/format/stats_log.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "imd/format/json_place.h"
#include "imd/format/json_seal.h"
#include "imd/format/json_tree.h"

namespace swale::imd {
namespace {

using Json = nlohmann::json;

// A line begins with these and sixteen hex digits, so that lines are found without being parsed.
constexpr std::string_view kLineHead = "{\"epoch_id\":\"";
constexpr size_t kIdDigits = 16;
constexpr size_t kChunkBytes = kMiB;
static_assert(kChunkBytes > kStatsLineBytesMax);

std::optional<uint64_t> epoch_id_of(Bytes line) {
  if (!line.starts_with(kLineHead) || line.size() < kLineHead.size() + kIdDigits) return std::nullopt;
  uint64_t id = 0;
  const char* const begin = line.data() + kLineHead.size();
  const auto [stop, failure] = std::from_chars(begin, begin + kIdDigits, id, 16);
  if (failure != std::errc() || stop != begin + kIdDigits) return std::nullopt;
  return id;
}

bool is_rank(const Json& json) { return json.is_number_unsigned() && json.get<uint64_t>() <= INT32_MAX; }

std::optional<MergedStat> merged_stat(const Json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    return MergedStat{value, value, value, 0, 0};
  }
  const bool fits = json.is_array() && json.size() == 5 && json[0].is_number_unsigned() &&
                    json[1].is_number_unsigned() && is_rank(json[2]) && json[3].is_number_unsigned() &&
                    is_rank(json[4]);
  if (!fits) return std::nullopt;
  return MergedStat{.sum = json[0].get<uint64_t>(),
                    .min = json[1].get<uint64_t>(),
                    .max = json[3].get<uint64_t>(),
                    .min_rank = json[2].get<net::Rank>(),
                    .max_rank = json[4].get<net::Rank>()};
}

}  // namespace

std::string encode_stats_line(uint64_t epoch_id, uint32_t epoch, const EpochStats& stats) {
  std::string line = fmt::format("{}{:016x}\",\"epoch\":{},\"ranks\":{},\"stats\":{{", kLineHead, epoch_id,
                                 epoch, stats.ranks);
  const char* comma = "";
  for (const StatRow& row : stat_rows()) {
    const MergedStat& value = stats.at(row.stat);
    if (value.max == 0) continue;
    line += fmt::format("{}\"{}\":", std::exchange(comma, ","), row.name);
    line += stats.ranks == 1 ? fmt::format("{}", value.sum)
                             : fmt::format("[{},{},{},{},{}]", value.sum, value.min, value.min_rank,
                                           value.max, value.max_rank);
  }
  line += "},";
  return line + seal_of(line);
}

Result<EpochStats> decode_stats_line(Bytes line, const std::string& path, uint64_t offset) {
  const auto damaged = [&](std::string_view what) {
    return corruption(
        "{}: offset {}: {}; the statistics of this epoch are lost, its records are not touched by that", path,
        offset, what);
  };
  if (!is_sealed(line)) return damaged("the line does not match its checksum");
  const JsonTree tree(line);
  const Json& document = tree.root();
  if (!document.is_object() || !document.contains("ranks") || !is_rank(document["ranks"]) ||
      document["ranks"] == 0 || !document.contains("stats") || !document["stats"].is_object()) {
    return damaged("expected an object with \"ranks\" and \"stats\"");
  }
  EpochStats stats;
  stats.ranks = document["ranks"].get<uint32_t>();
  for (const auto& [name, json] : document["stats"].items()) {
    const StatRow* const row = stat_row(name);
    if (row == nullptr) continue;  // of a newer build
    const std::optional<MergedStat> value = merged_stat(json);
    if (!value) return damaged(fmt::format("counter \"{}\": expected a number or five", row->name));
    stats.at(row->stat) = *value;
  }
  return stats;
}

void StatsLog::append(uint64_t epoch_id, uint32_t epoch, const EpochStats& stats) {
  if (given_up_ || stats.empty()) return;
  Status status;
  if (!file_) {
    Result<std::unique_ptr<io::File>> file = device_.open(path_, io::OpenMode::kCreate);
    status = file.status();
    if (file.ok()) file_ = std::move(*file);
  }
  const std::string line = encode_stats_line(epoch_id, epoch, stats);
  if (status.ok()) status = file_->pwrite(end_, line);
  if (status.ok()) {
    end_ += line.size();
    return;
  }
  given_up_ = true;
  log_warn("{}; no more statistics are kept by this job. Its epochs are not touched by that",
           status.message());
  if (file_) static_cast<void>(file_->truncate(end_));  // if it fails, readers pass over what is there
}

void StatsLog::sync() {
  if (!file_ || given_up_) return;
  if (const Status synced = file_->sync(); !synced.ok()) log_warn("{}", synced.message());
}

Result<EpochStats> StatsReader::get(uint64_t epoch_id) {
  const std::lock_guard lock(mutex_);
  auto found = lines_.find(epoch_id);
  if (found == lines_.end()) {
    SWALE_RETURN_IF_ERROR(catch_up());
    found = lines_.find(epoch_id);
  }
  if (found != lines_.end()) return read(found->second);
  return error(
      Code::kNotFound, Scope::kOperation,
      "{}: has no statistics of epoch_id {:016x}: either the epoch was written by a swale that kept none, or "
      "they were lost in a crash",
      path_, epoch_id);
}

Status StatsReader::catch_up() {
  if (!file_) {
    Result<std::unique_ptr<io::File>> file = device_.open(path_, io::OpenMode::kRead);
    if (file.status().code() == Code::kNotFound) return {};
    SWALE_RETURN_IF_ERROR(file.status());
    file_ = std::move(*file);
  }
  std::vector<char> chunk(kChunkBytes);
  for (;;) {
    SWALE_ASSIGN_OR_RETURN(const size_t got, file_->pread(scanned_, {chunk.data(), chunk.size()}));
    size_t taken = take_lines({chunk.data(), got});
    // No end of a line in so many bytes is damage: it is passed over.
    if (taken == 0 && got == chunk.size()) taken = got;
    if (taken == 0) return {};
    scanned_ += taken;
  }
}

// Returns how many bytes the whole lines at the front of the chunk have.
size_t StatsReader::take_lines(Bytes chunk) {
  size_t at = 0;
  for (size_t feed; (feed = chunk.find('\n', at)) != Bytes::npos; at = feed + 1) {
    const Bytes line = chunk.substr(at, feed + 1 - at);
    const std::optional<uint64_t> id = epoch_id_of(line);
    if (id && line.size() <= kStatsLineBytesMax) {
      lines_[*id] = {scanned_ + at, static_cast<uint32_t>(line.size())};
    }
  }
  return at;
}

Result<EpochStats> StatsReader::read(const Place& place) const {
  std::string line(place.bytes, '\0');
  SWALE_RETURN_IF_ERROR(io::read_exactly(*file_, place.offset, {line.data(), line.size()}));
  return decode_stats_line(line, path_, place.offset);
}

}  // namespace swale::imd
