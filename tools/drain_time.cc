#include "tools/drain_time.h"

#include <algorithm>
#include <charconv>
#include <ctime>

namespace swale::tools {
namespace {

constexpr int64_t kMinute = 60, kHour = 3600;
constexpr int64_t kDurationMax = 366 * 24 * kHour;
constexpr int64_t kDrainEvery = 10;

Status not_a_time(const std::string& text) {
  return invalid_argument(
      "--drain-at {}: expected +10m (from now), -10m (before the end of a Slurm job), or a local time as "
      "2026-11-28T14:30",
      text);
}

// "10m" without its sign.
std::optional<int64_t> parse_duration(std::string_view text) {
  int64_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int64_t each = unit == "s" ? 1 : unit == "m" ? kMinute : unit == "h" ? kHour : 0;
  if (failed != std::errc() || each == 0 || count < 0 || count > kDurationMax / each) return std::nullopt;
  return count * each;
}

}  // namespace

std::optional<int64_t> parse_local_time(const std::string& text) {
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"}) {
    std::tm time = {};
    const char* const end = ::strptime(text.c_str(), form, &time);
    if (end == nullptr || *end != '\0') continue;
    time.tm_isdst = -1;
    const std::time_t found = ::mktime(&time);
    if (found >= 0) return found;
  }
  return std::nullopt;
}

Result<int64_t> parse_drain_time(const std::string& text, int64_t now, std::optional<int64_t> job_end) {
  std::optional<int64_t> at;
  if (text.starts_with('+') || text.starts_with('-')) {
    const auto duration = parse_duration(std::string_view(text).substr(1));
    if (!duration) return not_a_time(text);
    if (text.front() == '-' && !job_end)
      return invalid_argument(
          "--drain-at {}: nothing says when this job ends (neither SLURM_JOB_END_TIME nor squeue): "
          "give a time from now, as +50m",
          text);
    at = text.front() == '+' ? now + *duration : *job_end - *duration;
  } else {
    at = parse_local_time(text);
  }
  if (!at) return not_a_time(text);
  if (*at < now) return invalid_argument("--drain-at {}: this was {} s ago", text, now - *at);
  return *at;
}

bool DrainTurns::begins(int64_t now) {
  if (under_way_ || !next_ || now < *next_) return false;
  next_ = now + kDrainEvery;
  return under_way_ = true;
}

std::optional<int64_t> DrainTurns::wait(int64_t now) const {
  if (under_way_ || !next_) return std::nullopt;
  return std::max<int64_t>(*next_ - now, 0);
}

}  // namespace swale::tools
