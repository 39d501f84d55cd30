// EpochChoice: which epochs a command is about, said by their numbers, steps or times: one, or a range.
//
//   range = A | A ":" B | A ":" | ":" B | ":"        both ends belong to it
//
// Threads: one. Errors: kInvalidArgument for what is no range, and for one that no epoch is in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/format/manifest.h"

namespace CLI {
class App;
}

namespace swale::tools {

struct EpochChoice {
  std::string epochs;
  std::string steps;
  std::string times;

  // --epoch, --step and --time, of which one may be given. `by_default`: which epochs these are if none is.
  void add(CLI::App& command, const std::string& by_default);
  bool given() const { return !epochs.empty() || !steps.empty() || !times.empty(); }

  // The numbers of the chosen epochs, ascending; of all epochs if nothing is given.
  Result<std::vector<uint32_t>> choose(const imd::Manifest& manifest, const std::string& directory) const;
  // What was asked for, as messages name it: "epoch 3", "steps 10:20", "any epoch".
  std::string text() const;
};

}  // namespace swale::tools
