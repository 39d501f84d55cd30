// A kept file: acknowledged bytes of a file that recovery could not find or open, as `.swale-tier/kept.ID` of
// the backing directory. An opening that finds the file brings them to it. Full description:
// docs/formats/tier-log.md.
//
//   kept     := head payload* document
//   head     := magic "STwK" | crc u32 | version u16 = 1 | 0 u16 | document_bytes u32 | document_at u64 |
//               file u64 | zeros, 64 bytes in all
//   document := identity | truncates u8 | varint truncate | varint ranges | range{ranges} | varint lost |
//               hole{lost}
//   range    := varint offset | varint length | varint at | crc u32
//   hole     := varint offset | varint length | reason u8
// The head's crc: CRC-32C of its bytes 8 to 63 and of the document. identity: file_table_format.h.
// truncates is 1 if the file gets the size `truncate` after the ranges. A range rises above the one
// before and has at most 1 MiB; its payload begins at byte `at`, and crc is its checksum. A hole is a
// range whose newest bytes are lost: 0 damaged, 1 unreadable, 2 not-written, 3 two-files.
//
// Threads: pure functions. Errors: kCorruption names the file and the offset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "tier/log/file_table_format.h"
#include "tier/log/loss_list.h"

namespace swale::tier {

inline constexpr uint32_t kKeptMagic = 0x4b775453;  // "STwK"
inline constexpr uint16_t kKeptVersion = 1;
inline constexpr size_t kKeptHeadBytes = 64;
inline constexpr uint32_t kKeptDocumentBytesMax = uint32_t{1} << 28;

struct KeptRange {
  uint64_t offset = 0;  // in the file
  uint64_t length = 0;  // at most 1 MiB
  uint64_t at = 0;      // of its payload in the kept file
  uint32_t crc = 0;     // CRC-32C of the payload
  friend bool operator==(const KeptRange&, const KeptRange&) = default;
};

struct KeptHole {
  uint64_t offset = 0;
  uint64_t length = 0;
  LossReason reason = LossReason::kDamaged;
  friend bool operator==(const KeptHole&, const KeptHole&) = default;
};

// Ranges and holes do not overlap, and rise.
struct KeptFile {
  uint64_t file = 0;  // the file's persistent id
  FileIdentity identity;
  std::optional<uint64_t> truncate;  // the file is to have this size: a truncate that may not have reached it
  std::vector<KeptRange> ranges;
  std::vector<KeptHole> lost;

  uint64_t bytes() const;  // of all ranges
  friend bool operator==(const KeptFile&, const KeptFile&) = default;
};

struct KeptHead {
  uint32_t crc = 0;
  uint32_t document_bytes = 0;
  uint64_t document_at = 0;
  uint64_t file = 0;
};

std::string encode_kept_document(const KeptFile& kept);
// `document_at`: where the document stands, after all payload.
std::string encode_kept_head(const KeptFile& kept, Bytes document, uint64_t document_at);
Result<KeptHead> decode_kept_head(Bytes bytes, const std::string& path);
// `head`: the 64 bytes that were decoded.
Result<KeptFile> decode_kept(Bytes head, Bytes document, const std::string& path);

}  // namespace swale::tier
