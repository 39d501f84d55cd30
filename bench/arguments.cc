#include "bench/arguments.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

namespace swale::bench {

void die(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, message);
  std::fflush(stderr);
  ::_exit(1);
}

Arguments::Arguments(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (!name.starts_with("--") || i + 1 == argc) die(fmt::format("'{}': expected --name value", name));
    pairs_[name.substr(2)] = argv[i + 1];
  }
}

std::string Arguments::text(const std::string& name) {
  if (!given(name)) die(fmt::format("--{} is missing", name));
  asked_.insert(name);
  return pairs_.at(name);
}

std::string Arguments::text(const std::string& name, const std::string& otherwise) {
  asked_.insert(name);
  return given(name) ? pairs_.at(name) : otherwise;
}

uint64_t Arguments::number(const std::string& name, uint64_t otherwise) {
  asked_.insert(name);
  if (!given(name)) return otherwise;
  const std::string& text = pairs_.at(name);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    die(fmt::format("--{} {}: no number", name, text));
  return value;
}

size_t Arguments::choice(const std::string& name, std::span<const char* const> choices) {
  const std::string wanted = text(name, choices[0]);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (wanted == choices[i]) return i;
  }
  die(fmt::format("--{} {}: choose from {}", name, wanted, fmt::join(choices, " ")));
}

void Arguments::expect_no_more() const {
  for (const auto& [name, value] : pairs_) {
    if (!asked_.contains(name)) die(fmt::format("--{} is unknown", name));
  }
}

}  // namespace swale::bench
