// How repair finds the manifest: in whatever is whole of swale.json, the generations in jobs/NNNN and their epoch logs;
// and what all of these lack, in the logs.
//
// The newest generation that can be shown to have existed is the truth (generation.h). Its document has two copies. What
// its epoch log lacks is in the log of the generation that it continues, or is put together from index logs: such epochs
// are Recovered::kWhole, their steps and times are unknown.
// Threads: one. Errors: kUnsupported for anything of a newer format; kNotFound if nothing of a massive directory is
// there; those of the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imd/check/repair_facts.h"
#include "imd/format/manifest.h"
#include "io/device.h"

namespace swale::imd {

struct FoundManifest {
  // The newest generation, with its epochs. `lost`: also parts of epochs that no log accounts for.
  Manifest manifest;
  std::vector<std::string> found;  // what is damaged or missing
  std::vector<std::string> lost;
  bool keep_damaged = false;  // swale.json is there and damaged
  bool rebuilt = false;       // something was put together from the logs
};

Result<FoundManifest> find_manifest(io::Device& device, const std::string& directory, const Logs& logs);

}  // namespace swale::imd
