#include "tier/log/file_table_format.h"

#include <algorithm>
#include <optional>

#include "base/crc32c.h"

namespace swale::tier {
namespace {

constexpr size_t kTableCrcFrom = 8;
constexpr size_t kEntryHeadBytes = 32;
constexpr size_t kEntryBytesMax = 8192;  // of the longest path and handle
static_assert(kEntryHeadBytes + kKnownPathBytesMax + kHandleBytesMax + 64 < kEntryBytesMax);

size_t round_to_unit(size_t bytes) { return (bytes + kFileTableUnit - 1) / kFileTableUnit * kFileTableUnit; }

uint32_t entry_crc(Bytes entry, uint64_t log_id) {
  char id[8];
  put_u64(id, log_id);
  return crc32c_extend(crc32c(Bytes(id, sizeof(id))), entry.substr(kTableCrcFrom));
}

// The entry at `at`; *size: its bytes.
std::optional<FileEntry> entry_at(Bytes bytes, size_t at, const std::vector<uint64_t>& ids, size_t* size) {
  const Bytes rest = bytes.substr(at);
  if (rest.size() < kEntryHeadBytes || get_u32(rest.data()) != kFileEntryMagic) return std::nullopt;
  *size = get_u32(rest.data() + 8);
  if (*size < kFileTableUnit || *size % kFileTableUnit != 0 || *size > std::min(rest.size(), kEntryBytesMax))
    return std::nullopt;
  const Bytes whole = rest.substr(0, *size);
  const uint32_t crc = get_u32(whole.data() + 4);
  if (std::none_of(ids.begin(), ids.end(), [&](uint64_t id) { return entry_crc(whole, id) == crc; }))
    return std::nullopt;
  Decoder in(whole.substr(12));
  FileEntry entry;
  const uint8_t kind = in.u8();
  in.bytes(3);
  const uint64_t address = in.u64();
  entry.kind = static_cast<FileEntryKind>(kind);
  entry.file = in.u64();
  entry.identity = read_identity(&in);
  const bool known = kind >= static_cast<uint8_t>(FileEntryKind::kFile) &&
                     kind <= static_cast<uint8_t>(FileEntryKind::kGivenUp);
  if (!in.ok() || !known || address != at) return std::nullopt;
  return entry;
}

}  // namespace

void append_identity(std::string* out, const FileIdentity& identity) {
  append_varint(out, identity.root_inode);
  append_i64(out, identity.root_born_ns);
  append_varint(out, identity.inode);
  append_i64(out, identity.born_ns);
  append_u32(out, static_cast<uint32_t>(identity.handle_type));
  append_sized(out, Bytes(identity.handle).substr(0, kHandleBytesMax));
  append_sized(out, Bytes(identity.path).substr(0, kKnownPathBytesMax));
}

FileIdentity read_identity(Decoder* in) {
  FileIdentity identity;
  identity.root_inode = in->varint64();
  identity.root_born_ns = in->i64();
  identity.inode = in->varint64();
  identity.born_ns = in->i64();
  identity.handle_type = static_cast<int32_t>(in->u32());
  identity.handle = std::string(in->sized().substr(0, kHandleBytesMax));
  identity.path = std::string(in->sized().substr(0, kKnownPathBytesMax));
  return identity;
}

std::string encode_file_entry(const FileEntry& entry, uint64_t log_id, uint64_t address) {
  std::string out;
  append_u32(&out, kFileEntryMagic);
  append_u32(&out, 0);
  append_u32(&out, 0);
  append_u32(&out, static_cast<uint8_t>(entry.kind));
  append_u64(&out, address);
  append_u64(&out, entry.file);
  append_identity(&out, entry.identity);
  out.resize(round_to_unit(out.size()), '\0');
  put_u32(out.data() + 8, static_cast<uint32_t>(out.size()));
  put_u32(out.data() + 4, entry_crc(out, log_id));
  return out;
}

std::string encode_file_table(const std::vector<FileEntry>& entries, uint64_t log_id) {
  std::string out(kFileTableHeadBytes, '\0');
  for (const FileEntry& entry : entries) out += encode_file_entry(entry, log_id, out.size());
  put_u32(out.data(), kFileTableMagic);
  put_u16(out.data() + 8, kFileTableVersion);
  put_u32(out.data() + 12, static_cast<uint32_t>(entries.size()));
  put_u64(out.data() + 16, log_id);
  put_u64(out.data() + 24, out.size());
  put_u32(out.data() + 4, crc32c(Bytes(out).substr(kTableCrcFrom, kFileTableHeadBytes - kTableCrcFrom)));
  return out;
}

FileTableScan decode_file_table(Bytes bytes, const std::vector<uint64_t>& ids, const std::string& path) {
  FileTableScan scan;
  const Bytes head = bytes.substr(0, kFileTableHeadBytes);
  uint64_t written = 0;  // with the head: that much is there, or something was cut off
  if (head.size() == kFileTableHeadBytes && get_u32(head.data()) == kFileTableMagic &&
      get_u32(head.data() + 4) == crc32c(head.substr(kTableCrcFrom))) {
    if (const uint16_t version = get_u16(head.data() + 8); version != kFileTableVersion) {
      scan.problems.push_back(error(Code::kUnsupported, Scope::kFile,
                                    "{}: offset 8: is of version {}, this build knows version {}", path,
                                    version, kFileTableVersion));
      return scan;
    }
    if (std::find(ids.begin(), ids.end(), get_u64(head.data() + 16)) == ids.end()) return scan;
    written = get_u64(head.data() + 24);
  } else {
    scan.problems.push_back(
        corruption("{}: offset 0: the head of the table of files is damaged or missing", path));
  }
  size_t damaged_from = 0;
  const auto told = [&](size_t to) {
    if (damaged_from != 0)
      scan.problems.push_back(corruption(
          "{}: offset {}: {} bytes of the table of files are damaged; recovery finds their files by name "
          "and id only",
          path, damaged_from, to - damaged_from));
    damaged_from = 0;
  };
  size_t at = kFileTableHeadBytes;
  while (at < bytes.size()) {
    size_t size = 0;
    if (auto entry = entry_at(bytes, at, ids, &size)) {
      told(at);
      scan.entries.push_back(*std::move(entry));
      scan.places.push_back(at);
      at += size;
      continue;
    }
    if (damaged_from == 0) damaged_from = at;
    at += kFileTableUnit;
  }
  // What is not whole at the end was torn when it was written, unless it stood there with the head.
  if (damaged_from < written) told(bytes.size());
  if (bytes.size() < written)
    scan.problems.push_back(corruption("{}: offset {}: {} bytes of the table of files are cut off", path,
                                       bytes.size(), written - bytes.size()));
  return scan;
}

}  // namespace swale::tier
