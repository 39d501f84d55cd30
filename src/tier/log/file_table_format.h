// The table of files: what the SSD directory says of each file that the log's records name, so that recovery
// finds the file again whatever its name and its mode are, and knows which files were removed. Full
// description: docs/formats/tier-log.md.
//
//   files    := head entry*                 each entry begins and ends at a multiple of 64 bytes
//   head     := magic "STwF" | crc u32 | version u16 = 1 | 0 u16 | entries u32 | log_id u64 | bytes u64 |
//               zeros, 64 bytes in all
//   entry    := magic "STwN" | crc u32 | size u32 | kind u8 | 0 u24 | address u64 | file u64 | identity |
//               zeros
//   identity := varint root_inode | root_born i64 | varint inode | born i64 | handle_type u32 |
//               sized handle | sized path
// Of the head: entries and bytes are those that were written with it, more may follow; crc is the CRC-32C of
// its bytes 8 to 63. Of an entry: crc is the CRC-32C of the log's id and of the entry from byte 8 on; size is
// at most 8,192; address is its place in the table. The last entry of a file counts.
//
// Threads: pure functions. Errors: damage is named by file and offset, and costs what it hits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/coding.h"
#include "base/status.h"

namespace swale::tier {

inline constexpr uint32_t kFileTableMagic = 0x46775453;  // "STwF"
inline constexpr uint32_t kFileEntryMagic = 0x4e775453;  // "STwN"
inline constexpr uint16_t kFileTableVersion = 1;
inline constexpr size_t kFileTableHeadBytes = 64;
inline constexpr size_t kFileTableUnit = 64;
inline constexpr size_t kHandleBytesMax = 128;  // the kernel's MAX_HANDLE_SZ
inline constexpr size_t kKnownPathBytesMax = 4096;
inline constexpr size_t kFileTableBytesMax = size_t{1} << 30;

// By what a file is found again and known.
struct FileIdentity {
  // Of the backing directory. Of another one, as a copy of it is, the rest tells of no file in it: it finds
  // the original.
  uint64_t root_inode = 0;
  int64_t root_born_ns = 0;
  uint64_t inode = 0;
  int64_t born_ns = 0;      // when it was made, in ns since 1970; 0: the file system does not tell
  int32_t handle_type = 0;  // of the kernel's handle for it
  std::string handle = {};  // empty: there is none
  // the last known one, below the backing directory; else with a '/' before it, or empty
  std::string path = {};
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
void append_identity(std::string* out, const FileIdentity& identity);
FileIdentity read_identity(Decoder* in);  // a failure is the decoder's

// DO NOT CHANGE THESE VALUES: they stand in tables.
enum class FileEntryKind : uint8_t {
  kFile = 1,  // records of this id are of this file
  // The file's last name was removed through the tier: records of it mean nothing, if it is not there.
  kRemoved = 2,
  // The user gave up what the log has of it: records of this id mean nothing, whether it is there or not.
  kGivenUp = 3,
};

struct FileEntry {
  FileEntryKind kind = FileEntryKind::kFile;
  uint64_t file = 0;  // the file's persistent id
  FileIdentity identity;
  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

std::string encode_file_entry(const FileEntry& entry, uint64_t log_id, uint64_t address);
std::string encode_file_table(const std::vector<FileEntry>& entries, uint64_t log_id);

struct FileTableScan {
  std::vector<FileEntry> entries;  // those that are whole, in their order
  std::vector<uint64_t> places;    // of the entries
  std::vector<Status> problems;    // what is damaged or missing; not: an entry that was torn at the end
};
// A table of one of the logs `ids`; of another log, no entries and no problem.
FileTableScan decode_file_table(Bytes bytes, const std::vector<uint64_t>& ids, const std::string& path);

}  // namespace swale::tier
