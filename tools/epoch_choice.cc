#include "tools/epoch_choice.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "tools/imd_engine.h"

namespace swale::tools {
namespace {

template <class T>
struct Range {
  using Limits = std::numeric_limits<T>;
  T first = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  T last = Limits::has_infinity ? Limits::infinity() : Limits::max();
  bool single = false;

  bool has(T value) const { return value >= first && value <= last; }  // false for NaN
};

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return number;
}

template <class T>
Result<Range<T>> parse_range(std::string_view option, std::string_view text) {
  Range<T> range;
  const size_t colon = text.find(':');
  range.single = colon == std::string_view::npos;
  const std::string_view first = text.substr(0, colon);
  const std::string_view last = range.single ? first : text.substr(colon + 1);
  const std::optional<T> from = parse_number<T>(first);
  const std::optional<T> to = parse_number<T>(last);
  const bool wrong_first = !from && (range.single || !first.empty());
  if (wrong_first || (!to && !last.empty())) {
    return invalid_argument("{} {}: expected a number, or a range of numbers A:B", option, text);
  }
  if (from) range.first = *from;
  if (to) range.last = *to;
  if (range.first > range.last) {
    return invalid_argument("{} {}: the range ends before it begins", option, text);
  }
  return range;
}

// What a message names if none is chosen. A person types 0.3, and the program's time was 3 * 0.1.
template <class T>
class Nearest {
 public:
  explicit Nearest(T wanted) : wanted_(wanted) {}
  void look(T value, EpochNumber epoch) {
    // The difference of two integers of 64 bits needs one more.
    const long double distance =
        std::abs(static_cast<long double>(value) - static_cast<long double>(wanted_));
    if (!(distance < distance_)) return;
    distance_ = distance;
    text_ = fmt::format("the nearest is {}, of epoch {}", value, epoch);
  }
  const std::string& text() const { return text_; }

 private:
  const T wanted_;
  long double distance_ = std::numeric_limits<long double>::infinity();
  std::string text_;
};

struct Chosen {
  std::vector<uint32_t> epochs;
  std::string nearest;  // "": for a range, or if there is none
};

// The epochs whose `value_of` is in the range; none: it is unknown.
template <class T, class ValueOf>
Result<Chosen> choose_by(std::string_view option, const std::string& text, const imd::Manifest& manifest,
                         ValueOf value_of) {
  SWALE_ASSIGN_OR_RETURN(const Range<T> range, parse_range<T>(option, text));
  Chosen chosen;
  Nearest<T> nearest(range.first);
  for (const imd::EpochEntry& epoch : manifest.epochs) {
    const std::optional<T> value = value_of(epoch);
    if (value && range.has(*value)) chosen.epochs.push_back(epoch.epoch);
    if (value && range.single) nearest.look(*value, epoch.epoch);
  }
  chosen.nearest = nearest.text();
  return chosen;
}

std::string plural(const char* word, const std::string& text) {
  return fmt::format("{}{} {}", word, text.find(':') == std::string::npos ? "" : "s", text);
}

}  // namespace

void EpochChoice::add(OptionSet command, const std::string& by_default) {
  OptionSet group =
      command.add_choice("epochs", "Which epochs; a range A:B includes both ends; either may be left out");
  group
      .add_option("-e,--epoch,--epochs", epochs,
                  "this epoch, N, numbered from 0, or a range N:M; by default " + by_default)
      .type_name("RANGE");
  group.add_option("--step", steps, "the epochs with this step of the simulation, or with steps in a range")
      .type_name("RANGE");
  group.add_option("--time", times, "the epochs with this time of the simulation, or with times in a range")
      .type_name("RANGE");
}

Result<std::vector<uint32_t>> EpochChoice::choose(const imd::Manifest& manifest,
                                                  const std::string& directory) const {
  const auto number = [](const imd::EpochEntry& epoch) { return static_cast<int64_t>(epoch.epoch); };
  const auto step = [](const imd::EpochEntry& epoch) {
    return epoch.step == imd::kStepUnknown ? std::nullopt : std::optional(epoch.step);
  };
  const auto time = [](const imd::EpochEntry& epoch) { return epoch.time; };
  SWALE_ASSIGN_OR_RETURN(
      const Chosen chosen,
      !steps.empty()   ? choose_by<int64_t>("--step", steps, manifest, step)
      : !times.empty() ? choose_by<double>("--time", times, manifest, time)
                       : choose_by<int64_t>("--epoch", epochs.empty() ? ":" : epochs, manifest, number));
  if (!chosen.epochs.empty() || !given()) return chosen.epochs;
  if (manifest.epochs.empty()) return invalid_argument("{}: no {}: it has no epochs yet", directory, text());
  const imd::EpochEntry& last = manifest.epochs.back();
  const bool by_number = steps.empty() && times.empty();
  return invalid_argument("{}: no {}: it has {} committed epochs, numbered from 0; {}", directory, text(),
                          manifest.epochs.size(),
                          !by_number && !chosen.nearest.empty()
                              ? chosen.nearest
                              : fmt::format("the last has step {} and time {}", step_text(last), last.time));
}

std::string EpochChoice::text() const {
  if (!steps.empty()) return plural("step", steps);
  if (!times.empty()) return plural("time", times);
  return epochs.empty() ? "any epoch" : plural("epoch", epochs);
}

}  // namespace swale::tools
