// Attributes: what users say of a massive directory and of its epochs, as JSON objects: a box, units, which
// field is the position (docs/guide/python.md lists the names that exports know). An epoch's record in the
// epoch log says where its own documents lie (EpochEntry::attributes), and which epoch brought the
// directory's (EpochEntry::described_by): so both are committed with the epoch, and go with it when
// imd.resume_after drops it.
//
// Format: jobs/NNNN/attributes.jsonl, one line an epoch that has any (docs/formats/epochs.md).
// Threads: immutable. Limits: a document has at most kAttributesBytesMax bytes and is nested at most 31 deep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "imd/format/manifest.h"
#include "io/device.h"

namespace swale::imd {

inline constexpr size_t kAttributesBytesMax = 64 * kKiB;
inline constexpr std::string_view kNoAttributes = "{}";
inline constexpr size_t kAttributesLineBytesMax = 2 * kAttributesBytesMax + kKiB;

// What one epoch brings.
struct Attributes {
  std::optional<std::string> directory;  // replaces the directory's document; "{}" takes it away
  std::optional<std::string> epoch;      // of this epoch alone

  bool empty() const { return !directory && !epoch; }
};

// The document as it is kept: on one line; an empty object as kNoAttributes. kInvalidArgument (scope
// operation) if it is no JSON object, or too large.
Result<std::string> check_attributes(Bytes json);

// One line, with its checksum and line feed.
std::string encode_attributes_line(uint64_t epoch_id, EpochNumber epoch, const Attributes& attributes);
struct AttributesLine {
  uint64_t epoch_id = 0;
  Attributes attributes;
};
// kCorruption, naming file and offset.
Result<AttributesLine> decode_attributes_line(Bytes line, const std::string& path, uint64_t offset);

// What this epoch has brought; empty if that is nothing.
Result<Attributes> read_attributes(io::Device& device, const std::string& directory, const EpochEntry& epoch);
// The directory's document as of an epoch of `manifest`: "{}" if there is none.
Result<std::string> read_directory_attributes(io::Device& device, const std::string& directory,
                                              const Manifest& manifest, EpochNumber epoch);

}  // namespace swale::imd
