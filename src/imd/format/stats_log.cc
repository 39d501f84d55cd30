#include "imd/format/stats_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/sealed_document.h"

namespace swale::imd {
namespace {

// A line begins with these and sixteen hex digits, so that lines are found without being parsed.
constexpr std::string_view kLineHead = "{\"epoch_id\":\"";
constexpr size_t kIdDigits = 16;
constexpr size_t kStatsChunkBytes = kMiB;
static_assert(kStatsChunkBytes > kStatsLineBytesMax);

std::optional<uint64_t> epoch_id_of(Bytes line) {
  if (!line.starts_with(kLineHead) || line.size() < kLineHead.size() + kIdDigits) return std::nullopt;
  uint64_t id = 0;
  const char* const begin = line.data() + kLineHead.size();
  const auto [stop, failure] = std::from_chars(begin, begin + kIdDigits, id, 16);
  if (failure != std::errc() || stop != begin + kIdDigits) return std::nullopt;
  return id;
}

std::optional<net::Rank> rank_of(JsonValue value) {
  const std::optional<uint64_t> rank = value.unsigned_number();
  if (!rank || *rank > INT32_MAX) return std::nullopt;
  return static_cast<net::Rank>(*rank);
}

// Of one rank a number; of several the sum, the least, its rank, the largest, its rank.
std::optional<MergedStat> merged_stat(JsonValue value) {
  if (const std::optional<uint64_t> only = value.unsigned_number())
    return MergedStat{*only, *only, *only, 0, 0};
  if (!value.is_array() || value.size() != 5) return std::nullopt;
  std::array<JsonValue, 5> parts;
  std::copy(value.begin(), value.end(), parts.begin());
  const auto sum = parts[0].unsigned_number(), min = parts[1].unsigned_number(),
             max = parts[3].unsigned_number();
  const auto min_rank = rank_of(parts[2]), max_rank = rank_of(parts[4]);
  if (!sum || !min || !max || !min_rank || !max_rank) return std::nullopt;
  return MergedStat{.sum = *sum, .min = *min, .max = *max, .min_rank = *min_rank, .max_rank = *max_rank};
}

}  // namespace

std::string encode_stats_line(uint64_t epoch_id, EpochNumber epoch, const EpochStats& stats) {
  JsonWriter json;
  json.object()
      .member("epoch_id", hex16(epoch_id))
      .member("epoch", epoch.value())
      .member("ranks", stats.ranks);
  json.name("stats").object();
  for (const StatRow& row : stat_rows()) {
    const MergedStat& value = stats.at(row.stat);
    if (value.max == 0) continue;
    json.name(row.name);
    if (stats.ranks == 1) {
      json.value(value.sum);
    } else {
      json.array().value(value.sum).value(value.min).value(value.min_rank);
      json.value(value.max).value(value.max_rank).end();
    }
  }
  json.end();
  return take_sealed(&json);
}

Result<EpochStats> decode_stats_line(Bytes line, const std::string& path, uint64_t offset) {
  const auto damaged = [&](std::string_view what) {
    return corruption(
        "{}: offset {}: {}; the statistics of this epoch are lost, its records are not touched by that", path,
        offset, what);
  };
  if (!is_sealed(line)) return damaged("the line does not match its checksum");
  const Result<JsonTree> json = JsonTree::parse(line);
  if (!json.ok()) return damaged(json.status().message());
  const JsonValue counters = json->root().find("stats");
  EpochStats stats;
  stats.ranks = static_cast<uint32_t>(rank_of(json->root().find("ranks")).value_or(0));
  if (stats.ranks == 0 || !counters.is_object())
    return damaged("expected an object with \"ranks\" and \"stats\"");
  for (const JsonValue counter : counters) {
    const StatRow* const row = stat_row(counter.name());
    if (row == nullptr) continue;  // of a newer build
    const std::optional<MergedStat> value = merged_stat(counter);
    if (!value) return damaged(fmt::format("counter \"{}\": expected a number or five", row->name));
    stats.at(row->stat) = *value;
  }
  return stats;
}

void StatsLog::append(uint64_t epoch_id, EpochNumber epoch, const EpochStats& stats) {
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
  const MutexLock lock(mutex_);
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
  SWALE_ASSIGN_OR_RETURN(const uint64_t end, file_->size());
  std::vector<char> chunk(std::min<uint64_t>(end - std::min(scanned_, end), kStatsChunkBytes));
  for (;;) {
    SWALE_ASSIGN_OR_RETURN(const size_t got, file_->pread(scanned_, {chunk.data(), chunk.size()}));
    size_t taken = take_lines({chunk.data(), got});
    // No end of a line in so many bytes is damage: it is passed over. In fewer it is a line that is being
    // written.
    if (taken == 0 && got == kStatsChunkBytes) taken = got;
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
