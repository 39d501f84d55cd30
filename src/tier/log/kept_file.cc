#include "tier/log/kept_file.h"

#include "base/coding.h"
#include "base/crc32c.h"
#include "tier/policy/options.h"

namespace swale::tier {
namespace {

constexpr size_t kKeptCrcFrom = 8;
constexpr uint64_t kOffsetMax = uint64_t{1} << 48;

uint32_t kept_crc(Bytes head, Bytes document) {
  return crc32c_extend(crc32c(head.substr(kKeptCrcFrom, kKeptHeadBytes - kKeptCrcFrom)), document);
}

Status bad_kept(const std::string& path, uint64_t offset, std::string_view what) {
  return corruption(
      "{}: offset {}: {}; restore it from a copy, or accept the loss of what it keeps: swale tier recover "
      "--accept-loss",
      path, offset, what);
}

bool read_ranges(Decoder* in, KeptFile* kept) {
  uint64_t end = 0;
  const uint64_t ranges = in->varint64();
  for (uint64_t i = 0; i < ranges && in->ok(); ++i) {
    KeptRange range;
    range.offset = in->varint64();
    range.length = in->varint64();
    range.at = in->varint64();
    range.crc = in->u32();
    if (range.offset < end || range.offset > kOffsetMax || range.length == 0 ||
        range.length > kWriteBytesMax || range.at < kKeptHeadBytes)
      return false;
    end = range.offset + range.length;
    kept->ranges.push_back(range);
  }
  end = 0;
  const uint64_t lost = in->varint64();
  for (uint64_t i = 0; i < lost && in->ok(); ++i) {
    KeptHole hole;
    hole.offset = in->varint64();
    hole.length = in->varint64();
    const uint8_t reason = in->u8();
    if (hole.offset < end || hole.offset > kOffsetMax || hole.length == 0 || hole.length > kWriteBytesMax ||
        reason > static_cast<uint8_t>(LossReason::kTwoFiles))
      return false;
    hole.reason = static_cast<LossReason>(reason);
    end = hole.offset + hole.length;
    kept->lost.push_back(hole);
  }
  return in->finished();
}

}  // namespace

uint64_t KeptFile::bytes() const {
  uint64_t all = 0;
  for (const KeptRange& range : ranges) all += range.length;
  return all;
}

std::string encode_kept_document(const KeptFile& kept) {
  std::string out;
  append_identity(&out, kept.identity);
  append_u8(&out, kept.truncate.has_value());
  append_varint(&out, kept.truncate.value_or(0));
  append_varint(&out, kept.ranges.size());
  for (const KeptRange& range : kept.ranges) {
    append_varint(&out, range.offset);
    append_varint(&out, range.length);
    append_varint(&out, range.at);
    append_u32(&out, range.crc);
  }
  append_varint(&out, kept.lost.size());
  for (const KeptHole& hole : kept.lost) {
    append_varint(&out, hole.offset);
    append_varint(&out, hole.length);
    append_u8(&out, static_cast<uint8_t>(hole.reason));
  }
  return out;
}

std::string encode_kept_head(const KeptFile& kept, Bytes document, uint64_t document_at) {
  std::string out(kKeptHeadBytes, '\0');
  put_u32(out.data(), kKeptMagic);
  put_u16(out.data() + 8, kKeptVersion);
  put_u32(out.data() + 12, static_cast<uint32_t>(document.size()));
  put_u64(out.data() + 16, document_at);
  put_u64(out.data() + 24, kept.file);
  put_u32(out.data() + 4, kept_crc(out, document));
  return out;
}

Result<KeptHead> decode_kept_head(Bytes bytes, const std::string& path) {
  if (bytes.size() < kKeptHeadBytes || get_u32(bytes.data()) != kKeptMagic)
    return bad_kept(path, 0, "is no kept file of a tier");
  if (const uint16_t version = get_u16(bytes.data() + 8); version != kKeptVersion)
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: offset 8: is of version {}, this build knows version {}; use a newer swale", path,
                 version, kKeptVersion);
  const KeptHead head{get_u32(bytes.data() + 4), get_u32(bytes.data() + 12), get_u64(bytes.data() + 16),
                      get_u64(bytes.data() + 24)};
  if (head.document_bytes > kKeptDocumentBytesMax || head.document_at < kKeptHeadBytes)
    return bad_kept(path, 12, "its document has no such place");
  return head;
}

Result<KeptFile> decode_kept(Bytes head, Bytes document, const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const KeptHead from, decode_kept_head(head, path));
  if (document.size() != from.document_bytes || kept_crc(head, document) != from.crc)
    return bad_kept(path, from.document_at, "its document fails its checksum");
  Decoder in(document);
  KeptFile kept;
  kept.file = from.file;
  kept.identity = read_identity(&in);
  const bool truncates = in.u8() != 0;
  const uint64_t truncate = in.varint64();
  if (truncates) kept.truncate = truncate;
  if (!read_ranges(&in, &kept) || truncate > kOffsetMax)
    return bad_kept(path, from.document_at, "its document is malformed");
  return kept;
}

}  // namespace swale::tier
