// Arguments: the "--name value" pairs of a benchmark program. A name that nobody asked for ends the program.
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

namespace swale::bench {

// Prints "PROGRAM: message" to stderr and ends the process with status 1, without running destructors: a
// failed benchmark has no figures.
[[noreturn]] void die(const std::string& message);

class Arguments {
 public:
  Arguments(int argc, char** argv);

  std::string text(const std::string& name);  // must be given
  std::string text(const std::string& name, const std::string& otherwise);
  uint64_t number(const std::string& name, uint64_t otherwise);
  // The place of the text in `choices`, the first of which is meant if nothing is given. Another text ends
  // the program.
  size_t choice(const std::string& name, std::span<const char* const> choices);
  bool given(const std::string& name) const { return pairs_.contains(name); }
  // Call it when everything has been asked for.
  void expect_no_more() const;

 private:
  std::map<std::string, std::string> pairs_;
  std::set<std::string> asked_;
};

}  // namespace swale::bench
