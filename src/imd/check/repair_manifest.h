// How repair finds the manifest: from the intact ones of swale.json, the generations in jobs/NNNN and their
// epoch logs; what they lack, it finds in the partitions' logs.
//
// The newest generation that provably existed is the truth (generation.h). Its document has two copies.
// Epochs that its epoch log lacks come from the log of the generation that it continues, or are rebuilt from
// index logs: such epochs are Recovered::kWhole, and their steps and times are unknown.
// Threads: one. Errors: kUnsupported for anything of a newer format; kNotFound if nothing of a massive
// directory is there; those of the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"
#include "io/device.h"

namespace swale::imd {

struct FoundManifest {
  // The newest generation, with its epochs. Its `lost` includes parts of epochs that no log accounts for.
  Manifest manifest;
  std::vector<std::string> found;  // what is damaged or missing
  std::vector<std::string> lost;
  bool keep_damaged = false;  // swale.json exists and is damaged
  bool rebuilt = false;       // some of it was rebuilt from the logs
};

// Takes from `logs` what is not of the job whose name the log has (repair_owners.h).
Result<FoundManifest> find_manifest(io::Device& device, const std::string& directory, Logs* logs);

}  // namespace swale::imd
