// EpochChoice: selects the epochs of a command by number, step or time: one, or a range.
//
//   range = A | A ":" B | A ":" | ":" B | ":"        both ends are included
//
// An epoch whose step or time is unknown (`swale repair` put it there) is in no range of steps or times.
// Threads: one. Errors: kInvalidArgument for a malformed range, and for a range without an epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "imd/format/manifest.h"
#include "tools/command_line.h"

namespace swale::tools {

struct EpochChoice {
  std::string epochs = {};
  std::string steps = {};
  std::string times = {};

  // Adds --epoch, --step and --time, of which one may be given. `by_default` names the epochs if none is
  // given.
  void add(OptionSet command, const std::string& by_default);
  bool given() const { return !epochs.empty() || !steps.empty() || !times.empty(); }

  // The numbers of the chosen epochs, ascending; of all epochs if nothing is given.
  Result<std::vector<uint32_t>> choose(const imd::Manifest& manifest, const std::string& directory) const;
  // The choice in words, for messages: "epoch 3", "steps 10:20", "any epoch".
  std::string text() const;
};

}  // namespace swale::tools
