// DiskPreset: a Testbed as a file, so that a model can take a disk that was measured (disk_measure.h) in the
// place of the presets that are built in.
//
// Format: a sealed document (base/sealed_document.h), docs/formats/disk-preset.md.
// Threads: free functions. Errors: kCorruption names the file, the member and its place; kUnsupported: of a
// newer Swale.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "io/device.h"
#include "io/disk_model.h"

namespace swale::io {

struct DiskPreset {
  std::string name;    // results show it
  std::string source;  // where the numbers come from
  Testbed bed = {};    // its models have no names of their own
};

std::string encode_disk_preset(const DiskPreset& preset);
// `path` names the document in messages.
Result<DiskPreset> decode_disk_preset(Bytes text, const std::string& path);
Result<DiskPreset> read_disk_preset(Device& device, const std::string& path);

}  // namespace swale::io
