#include "base/config.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/bytes.h"
#include "base/nearest.h"

namespace swale {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;
};
constexpr Unit kByteUnits[] = {
    {"", 1},
    {"B", 1},
    {"K", kKiB},
    {"KB", kKiB},
    {"KiB", kKiB},
    {"M", kMiB},
    {"MB", kMiB},
    {"MiB", kMiB},
    {"G", kGiB},
    {"GB", kGiB},
    {"GiB", kGiB},
    {"T", 1024.0 * kGiB},
    {"TB", 1024.0 * kGiB},
    {"TiB", 1024.0 * kGiB},
};
constexpr Unit kTimeUnits[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60}, {"h", 3600}};

std::optional<double> parse_number(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [after, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::general);
  if (failure != std::errc() || !std::isfinite(number)) return std::nullopt;
  const std::string_view suffix(after, static_cast<size_t>(text.data() + text.size() - after));
  for (const Unit& unit : units) {
    if (unit.suffix == suffix) return number * unit.factor;
  }
  return std::nullopt;
}

std::optional<double> parse_bool(std::string_view text) {
  for (const std::string_view yes : {"1", "yes", "true", "on"})
    if (text == yes) return 1;
  for (const std::string_view no : {"0", "no", "false", "off"})
    if (text == no) return 0;
  return std::nullopt;
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == text) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

std::string show_bytes(double bytes) {
  for (const Unit& unit : {Unit{"GiB", kGiB}, Unit{"MiB", kMiB}, Unit{"KiB", kKiB}}) {
    if (bytes >= unit.factor && std::fmod(bytes, unit.factor) == 0)
      return fmt::format("{}{}", bytes / unit.factor, unit.suffix);
  }
  return fmt::format("{}", bytes);
}

// The value as a number (0 for text), or nothing if the row does not allow it.
std::optional<double> parse_value(const OptionRow& row, std::string_view text) {
  std::optional<double> number;
  switch (row.type) {
    case OptionType::kString:
      return 0;
    case OptionType::kEnum:
      return is_choice(row.choices, text) ? std::optional<double>(0) : std::nullopt;
    case OptionType::kBool:
      return parse_bool(text);
    case OptionType::kInt:
      number = parse_number(text, {kTimeUnits, 1});  // no suffix
      break;
    case OptionType::kBytes:
      number = parse_number(text, kByteUnits);
      break;
    case OptionType::kSeconds:
      number = parse_number(text, kTimeUnits);
      break;
  }
  if (!number || *number < row.min || *number > row.max) return std::nullopt;
  if (row.type != OptionType::kSeconds && std::trunc(*number) != *number) return std::nullopt;
  return number;
}

constexpr std::string_view kSeparators = ", \t\r\n";

// The start of error messages.
std::string origin_text(Config::Origin origin, std::string_view option) {
  if (origin == Config::Origin::kDefault) return "its default";
  if (origin == Config::Origin::kText) return "option string";
  return "environment variable " + Config::environment_name(option);
}

}  // namespace

Result<Config> Config::make(std::span<const OptionRow> rows, std::string_view text,
                            const GetEnvironment& environment) {
  if (text.size() > kTextBytesMax)
    return invalid_argument("option string of {} bytes: at most {} are allowed", text.size(), kTextBytesMax);

  Config config;
  config.entries_.reserve(rows.size());
  for (const OptionRow& row : rows) config.entries_.push_back({row, 0, {}, Origin::kDefault});
  for (const OptionRow& row : rows)
    SWALE_RETURN_IF_ERROR(config.set(row.name, row.default_value, Origin::kDefault));
  for (const OptionRow& row : rows) {
    const std::string variable = environment_name(row.name);
    if (const char* value = environment(variable.c_str()))
      SWALE_RETURN_IF_ERROR(config.set(row.name, value, Origin::kEnvironment));
  }
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) return config;
    const std::string_view item = text.substr(0, text.find_first_of(kSeparators));
    text.remove_prefix(item.size());
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return invalid_argument("option string: '{}': expected name=value", item);
    SWALE_RETURN_IF_ERROR(config.set(item.substr(0, equals), item.substr(equals + 1), Origin::kText));
  }
}

Result<Config> Config::make(std::span<const OptionRow> rows, std::string_view text) {
  return make(rows, text, [](const char* name) -> const char* { return std::getenv(name); });
}

Status Config::set(std::string_view name, std::string_view value, Origin from) {
  const std::string origin = origin_text(from, name);
  std::vector<std::string_view> names;
  for (Entry& entry : entries_) {
    if (entry.row.name != name) {
      names.push_back(entry.row.name);
      continue;
    }
    const std::optional<double> number = parse_value(entry.row, value);
    if (!number)
      return invalid_argument("{}: {}={}: expected {}", origin, name, value, expectation(entry.row));
    entry.number = *number;
    entry.text = value;
    entry.origin = from;
    return {};
  }
  if (names.empty()) return invalid_argument("{}: no option '{}': there are none here", origin, name);
  const Entry& meant = entry(nearest(name, names));
  return invalid_argument("{}: no option '{}'; the nearest is {} ({})", origin, name, meant.row.name,
                          expectation(meant.row));
}

const Config::Entry& Config::entry(std::string_view name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.row.name == name; });
  assert(found != entries_.end() && "no such option row");
  return *found;
}

const Config::Entry& Config::entry(std::string_view name, [[maybe_unused]] OptionType type) const {
  const Entry& found = entry(name);
  assert((found.row.type == type || (found.row.type == OptionType::kEnum && type == OptionType::kString)) &&
         "the option row has another type");
  return found;
}

int64_t Config::get_int(std::string_view name) const {
  return static_cast<int64_t>(entry(name, OptionType::kInt).number);
}
uint64_t Config::get_bytes(std::string_view name) const {
  return static_cast<uint64_t>(entry(name, OptionType::kBytes).number);
}
Nanos Config::get_nanos(std::string_view name) const {
  const double nanos = std::round(entry(name, OptionType::kSeconds).number * 1e9);
  return nanos >= static_cast<double>(kForever) ? kForever : static_cast<Nanos>(nanos);
}
bool Config::get_bool(std::string_view name) const { return entry(name, OptionType::kBool).number != 0; }
const std::string& Config::get_string(std::string_view name) const {
  return entry(name, OptionType::kString).text;
}

const std::string& Config::text(std::string_view name) const { return entry(name).text; }
Config::Origin Config::origin(std::string_view name) const { return entry(name).origin; }

std::string Config::expectation(const OptionRow& row) {
  switch (row.type) {
    case OptionType::kInt:
      return fmt::format("an integer from {} to {}", row.min, row.max);
    case OptionType::kBytes:
      return fmt::format("bytes (K, M, G allowed) from {} to {}", show_bytes(row.min), show_bytes(row.max));
    case OptionType::kSeconds:
      return fmt::format("seconds (ms, us, min, h allowed) from {} to {}", row.min, row.max);
    case OptionType::kBool:
      return "yes or no";
    case OptionType::kString:
      return "text";
    case OptionType::kEnum:
      return fmt::format("one of {}", row.choices);
  }
  return {};
}

std::string Config::environment_name(std::string_view name) {
  std::string variable = "SWALE_";
  for (const char c : name)
    variable += c == '.' ? '_' : 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return variable;
}

}  // namespace swale
