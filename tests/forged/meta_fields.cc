#include "tests/forged/meta_fields.h"

#include <set>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "tests/forged/imd_fields.h"

namespace swale::forged {
namespace {

constexpr size_t kSortedPageBytes = 4096;
constexpr size_t kMetadataBytes = 32;
constexpr size_t kSortedTrailerBytes = 64;
constexpr size_t kBlockHeadBytes = 20;
constexpr size_t kStoreRowsMax = 3;

const std::vector<Part> kBlockParts = {{"bytes", 4, 4},   {"rows", 8, 2},     {"files", 10, 2},
                                       {"codec", 12, 1},  {"version", 13, 1}, {"zeros", 14, 4},
                                       {"id low", 20, 8}, {"id high", 28, 8}};

void put_checksum(std::string* file, size_t at, size_t begin, size_t end) {
  end = std::min(end, file->size());
  if (at + 4 <= file->size() && begin <= end)
    put_u32(file->data() + at, crc32c(Bytes(*file).substr(begin, end - begin)));
}

// A block at `begin`, whose length may be forged.
void seal_store_block(std::string* file, size_t begin) {
  if (begin + kBlockHeadBytes > file->size()) return;
  put_checksum(file, begin, begin + 4, begin + std::max<uint64_t>(get_u32(file->data() + begin + 4), 4));
}

void seal_sorted(std::string* file, size_t block, size_t blocks) {
  seal_store_block(file, block * kSortedPageBytes);
  const size_t metadata = file->size() - kSortedTrailerBytes - blocks * kMetadataBytes;
  char* const row = file->data() + metadata + block * kMetadataBytes;
  put_u32(row + 24, get_u32(file->data() + block * kSortedPageBytes));
}
void seal_trailer(std::string* file, size_t blocks) {
  const size_t trailer = file->size() - kSortedTrailerBytes;
  put_checksum(file, trailer + 40, trailer - blocks * kMetadataBytes, trailer);
  put_checksum(file, trailer + 4, trailer + 8, file->size());
}

Fields sorted_fields(const Content& content) {
  Fields fields;
  if (content->size() < kSortedTrailerBytes) return fields;
  const size_t trailer = content->size() - kSortedTrailerBytes;
  const size_t blocks = get_u32(content->data() + trailer + 12);
  if (content->size() < kSortedTrailerBytes + blocks * (kSortedPageBytes + kMetadataBytes)) return fields;
  const Reseal trailers = [=](std::string* file) { seal_trailer(file, blocks); };
  const Reseal rest = [=](std::string* file) { put_checksum(file, trailer + 4, trailer + 8, file->size()); };
  add_parts(&fields, "trailer", content, trailer,
            {{"version", 8, 2},
             {"zero", 10, 2},
             {"blocks", 12, 4},
             {"entries", 16, 8},
             {"sequence_min", 24, 8},
             {"sequence_max", 32, 8},
             {"metadata_crc", 40, 4},
             {"owner", 48, 8},
             {"zeros", 56, 8}},
            rest);
  for (const size_t block : std::set<size_t>{0, 1, blocks - 1}) {
    if (block >= blocks) continue;
    const std::string what = fmt::format("block {}", block);
    add_parts(&fields, what + "'s metadata", content, trailer - (blocks - block) * kMetadataBytes,
              {{"low", 0, 8}, {"high", 8, 8}, {"offset", 16, 8}, {"crc", 24, 4}, {"bytes", 28, 4}}, trailers);
    const Reseal all = [=](std::string* file) {
      seal_sorted(file, block, blocks);
      seal_trailer(file, blocks);
    };
    const size_t begin = block * kSortedPageBytes;
    add_parts(&fields, what, content, begin, kBlockParts, all);
    const size_t bytes = get_u32(content->data() + begin + 4);
    const size_t head = kBlockHeadBytes + 16 * size_t{get_u16(content->data() + begin + 10)};
    add_bytes(&fields, what, content, begin + head, begin + bytes, 40, all);
    // The metadata repeat the length; here both are forged.
    fields.push_back({what + ": both lengths", 4, bytes, [=](uint64_t number) {
                        std::string file = *content;
                        put_number(&file, begin + 4, 4, number);
                        put_number(&file, trailer - (blocks - block) * kMetadataBytes + 28, 4, number);
                        all(&file);
                        return file;
                      }});
  }
  return fields;
}

// Blocks among the operations of a record: found by their checksums.
std::vector<size_t> blocks_within(Bytes content, size_t begin, size_t end) {
  std::vector<size_t> found;
  for (size_t at = begin; at + kBlockHeadBytes <= end && found.size() < kStoreRowsMax; ++at) {
    const uint64_t bytes = get_u32(content.data() + at + 4);
    if (bytes < kBlockHeadBytes || bytes > end - at) continue;
    if (get_u32(content.data() + at) == crc32c(content.substr(at + 4, bytes - 4))) found.push_back(at);
  }
  return found;
}

constexpr size_t kLogHeadBytes = 32;
constexpr size_t kLogRecordBytes = 24;

Fields store_log_fields(const Content& content) {
  Fields fields;
  if (content->size() < kLogHeadBytes) return fields;
  const uint32_t seed = get_u32(content->data() + 4);
  add_parts(&fields, "head", content, 0,
            {{"magic", 0, 4},
             {"version", 8, 2},
             {"kind", 10, 2},
             {"part", 12, 4},
             {"owner", 16, 8},
             {"zeros", 24, 8}},
            [](std::string* file) { put_checksum(file, 4, 8, kLogHeadBytes); });
  std::vector<std::pair<size_t, size_t>> records;
  for (size_t at = kLogHeadBytes; at + kLogRecordBytes <= content->size();) {
    const size_t end = at + kLogRecordBytes + get_u32(content->data() + at + 8);
    if (end > content->size() || end < at) break;
    records.emplace_back(at, end);
    at = end;
  }
  for (size_t i = 0; i < records.size(); ++i) {
    if (i >= kStoreRowsMax && i + 1 < records.size()) continue;
    const auto [begin, end] = records[i];
    const Reseal reseal = [begin = begin, seed](std::string* file) {
      const uint64_t payload = get_u32(file->data() + begin + 8);
      const size_t covered = std::min<uint64_t>(payload, file->size() - begin - kLogRecordBytes);
      put_u32(file->data() + begin + 4,
              crc32c_extend(seed, {file->data() + begin + 8, kLogRecordBytes - 8 + covered}));
    };
    const std::string what = fmt::format("record {}", i);
    add_parts(
        &fields, what, content, begin,
        {{"magic", 0, 4}, {"payload_bytes", 8, 4}, {"kind", 12, 2}, {"zero", 14, 2}, {"sequence", 16, 8}},
        reseal);
    add_bytes(&fields, what, content, begin + kLogRecordBytes, end, 40, reseal);
    for (const size_t block : blocks_within(*content, begin + kLogRecordBytes, end)) {
      const Reseal both = [=](std::string* file) {
        seal_store_block(file, block);
        reseal(file);
      };
      add_parts(&fields, fmt::format("{}: block at {}", what, block), content, block, kBlockParts, both);
      const size_t bytes = get_u32(content->data() + block + 4);
      add_bytes(&fields, fmt::format("{}: block at {}", what, block), content, block + kBlockHeadBytes,
                block + bytes, 40, both);
    }
  }
  return fields;
}

Fields snapshot_fields(const Content& content) {
  Fields fields;
  const Reseal reseal = [](std::string* file) { put_checksum(file, 4, 8, file->size()); };
  add_parts(&fields, "head", content, 0,
            {{"magic", 0, 4},
             {"version", 8, 2},
             {"zero", 10, 2},
             {"shard", 12, 4},
             {"owner", 16, 8},
             {"sequence", 24, 8}},
            reseal);
  add_bytes(&fields, "items", content, 32, content->size(), 100, reseal);
  return fields;
}

}  // namespace

void add_bytes(Fields* fields, const std::string& what, const Content& content, size_t begin, size_t end,
               size_t first, const Reseal& reseal) {
  constexpr size_t kOthers = 20;
  if (end > content->size() || begin >= end) return;
  const size_t step = std::max<size_t>(1, (end - begin) / kOthers);
  for (size_t at = begin; at < end; at += at < begin + first ? 1 : step)
    add_field(fields, fmt::format("{}: byte {}", what, at - begin), content, at, 1, reseal);
}

Fields hex_fields(const Content& content) {
  Fields fields;
  if (!is_sealed(*content)) return fields;
  constexpr size_t kDigits = 16;
  const auto is_hex = [&](size_t at) {
    return std::string_view("0123456789abcdef").find((*content)[at]) != std::string::npos;
  };
  for (size_t at = content->find('"'); at + kDigits + 1 < content->size() - kSealBytes;
       at = content->find('"', at + 1)) {
    size_t digits = 0;
    while (digits < kDigits && is_hex(at + 1 + digits)) ++digits;
    if (digits < kDigits || (*content)[at + 1 + kDigits] != '"') continue;
    const uint64_t now = std::stoull(content->substr(at + 1, kDigits), nullptr, 16);
    fields.push_back({fmt::format("hex number at {}", at), 8, now, [=](uint64_t number) {
                        std::string object = content->substr(0, content->size() - kSealBytes);
                        object.replace(at + 1, kDigits, hex16(number));
                        return object + seal_of(object);
                      }});
  }
  return fields;
}

Fields fields_of_store_file(const std::string& path, const Content& content) {
  if (path.ends_with(".json") || path.ends_with(".manifest")) {
    Fields fields = document_fields(content);
    for (ForgedField& each : hex_fields(content)) fields.push_back(std::move(each));
    return fields;
  }
  if (path.find(".sorted-") != std::string::npos) return sorted_fields(content);
  if (path.find(".snapshot-") != std::string::npos) return snapshot_fields(content);
  if (path.find(".log-") != std::string::npos || path.find(".attributes-") != std::string::npos)
    return store_log_fields(content);
  return {};
}

}  // namespace swale::forged
