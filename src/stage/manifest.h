// Manifest: a text that says which files to stage, and what checksum their content must have.
//
//   manifest := (line LF)*
//   line     := blanks (SOURCE blanks DESTINATION (blanks CHECKSUM)?)? (blanks "#" any text)?
//   SOURCE, DESTINATION := bytes without blank, tab, '"' and line feed, not beginning with "#"
//                        | '"' (any byte but '"', '\' and line feed | escape)+ '"'
//   escape   := '\' ('"' | '\' | 'n' | 'r' | 't' | 'x' two hexadecimal digits)
//   CHECKSUM := "crc32c:" eight hexadecimal digits        base/crc32c.h, of the content, holes read as zeros
//
// UnifyFS's manifests are of this form, without checksums.
// Threads: free functions.
// Errors: kInvalidArgument names the line and what was expected there.
// Limits: kManifestBytesMax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace swale::stage {

inline constexpr size_t kManifestBytesMax = kGiB;

struct ManifestLine {
  std::string source;
  std::string destination;
  std::optional<uint32_t> crc = {};
  uint64_t line = 0;  // from 1
};

// `name`: of the manifest, for messages.
Result<std::vector<ManifestLine>> parse_manifest(Bytes text, const std::string& name);

// A line with its line feed.
std::string manifest_line(std::string_view source, std::string_view destination, std::optional<uint32_t> crc);

// "crc32c:e3069283"
std::string checksum_text(uint32_t crc);

}  // namespace swale::stage
