// Config: the options of one handle, from a table of rows, the environment and a string; the string wins.
//
// A row is the only place that defines an option: name, type, default, limits, help.
// The string is "imd.ways=2,imd.memory=64MiB" (commas or white space between; the last of two wins).
// The variable of "imd.ways" is SWALE_IMD_WAYS; the environment is read once, at construction.
//
// Values: integers; bytes with an optional K, M, G (or KiB, MiB, GiB, KB...: all powers of 1024); seconds
// with fractions and an optional s, ms, us, min, h; booleans yes/no, true/false, on/off, 1/0; strings without
// commas and white space; one of the choices.
//
// Threads: immutable once made.
// Limits: 64 KiB of option string.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace swale {

enum class OptionType { kInt, kBytes, kSeconds, kBool, kString, kEnum };

struct OptionRow {
  std::string_view name;  // "imd.ways"
  OptionType type = OptionType::kString;
  std::string_view default_value = {};  // as a user would write it
  double min = 0;                       // kInt, kBytes, kSeconds: inclusive limits; exact up to 2^53
  double max = 0;
  std::string_view choices = {};  // kEnum: "direct|three_hop"
  std::string_view help = {};
};

class Config {
 public:
  static constexpr size_t kTextBytesMax = 64 * 1024;

  using GetEnvironment = std::function<const char*(const char* name)>;  // as getenv

  // Copies the rows; the text of their string_views must outlive the Config (literals do).
  // kInvalidArgument names the key, the value, the limits and, for an unknown key, the nearest known one.
  static Result<Config> make(std::span<const OptionRow> rows, std::string_view text,
                             const GetEnvironment& environment);
  static Result<Config> make(std::span<const OptionRow> rows,
                             std::string_view text);  // the process's environment

  // The name and type must be those of a row: anything else is a mistake of ours and fails an
  // assertion.
  int64_t get_int(std::string_view name) const;
  uint64_t get_bytes(std::string_view name) const;
  Nanos get_nanos(std::string_view name) const;  // kSeconds
  bool get_bool(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;  // kString and kEnum

  // The value as it was written, of any type, and its origin.
  enum class Origin { kDefault, kEnvironment, kText };
  const std::string& text(std::string_view name) const;
  Origin origin(std::string_view name) const;

  // Describes the values that the row allows: "an integer from 1 to 16".
  static std::string expectation(const OptionRow& row);

  static std::string environment_name(std::string_view name);  // "imd.ways" -> "SWALE_IMD_WAYS"

 private:
  struct Entry {
    OptionRow row;
    double number = 0;  // all types except kString and kEnum
    std::string text;
    Origin origin = Origin::kDefault;
  };

  Status set(std::string_view name, std::string_view value, Origin origin);
  const Entry& entry(std::string_view name) const;
  const Entry& entry(std::string_view name, OptionType type) const;

  std::vector<Entry> entries_;
};

}  // namespace swale
