#include "tests/forged/tier_fields.h"

#include <cctype>

#include "base/coding.h"
#include "base/crc32c.h"
#include "tests/forged/imd_fields.h"
#include "tests/forged/meta_fields.h"
#include "tier/log/log_format.h"
#include "tier/log/log_seal.h"

namespace swale::forged {
namespace {

using tier::kRecordHeaderBytes;
using tier::kSegmentHeaderBytes;

constexpr size_t kTierRowsMax = 3;

const std::vector<Part> kSegmentParts = {
    {"version", 8, 2},   {"alignment_log2", 10, 1}, {"zero", 11, 1},       {"index", 12, 4},
    {"log_id", 16, 8},   {"segment_size", 24, 8},   {"generation", 32, 4}, {"segment_count", 36, 4},
    {"sequence", 40, 8}, {"settled", 48, 8},        {"zeros", 56, 8}};
const std::vector<Part> kRecordParts = {
    {"type", 8, 4},  {"segment", 12, 4}, {"generation", 16, 4}, {"check", 20, 4},     {"sequence", 24, 8},
    {"file", 32, 8}, {"offset", 40, 8},  {"length", 48, 4},     {"unsettled", 52, 4}, {"address", 56, 8}};

// The checksum of a header of 64 bytes, which begins with a number.
void seal_header(std::string* file, size_t at, uint64_t begins_with) {
  if (at + 64 > file->size()) return;
  char seed[8];
  put_u64(seed, begins_with);
  put_u32(file->data() + at + 4, crc32c_extend(crc32c(Bytes(seed, 8)), {file->data() + at + 8, 56}));
}

// Two copies of a header: each of its numbers in the first one, in the second one, and in both.
void add_copies(Fields* fields, const std::string& what, const Content& content, size_t first, size_t second,
                const std::vector<Part>& parts, uint64_t begins_with) {
  const auto seal = [=](size_t at) { return [=](std::string* file) { seal_header(file, at, begins_with); }; };
  add_parts(fields, what + ", first copy", content, first, parts, seal(first));
  add_parts(fields, what + ", second copy", content, second, parts, seal(second));
  for (const Part& part : parts) {
    add_field(fields, fmt::format("{}, both copies: {}", what, part.name), content, first + part.offset,
              part.bytes, [=](std::string* file) {
                put_number(file, second + part.offset, part.bytes,
                           number_at(*file, first + part.offset, part.bytes));
                seal_header(file, first, begins_with);
                seal_header(file, second, begins_with);
              });
  }
}

}  // namespace

Fields tier_log_fields(const Content& content, uint64_t segment_bytes, uint64_t log_id) {
  Fields fields;
  for (size_t begin = 0; begin + segment_bytes <= content->size(); begin += segment_bytes) {
    const std::string where = fmt::format("segment {}", begin / segment_bytes);
    const Bytes segment = Bytes(*content).substr(begin, segment_bytes);
    const auto header = tier::decode_segment_header(segment);
    if (!header.ok()) return {};
    const size_t second = begin + segment_bytes - tier::align_up(kSegmentHeaderBytes, header->alignment);
    if (begin == 0 || begin + segment_bytes == content->size())
      add_copies(&fields, where, content, begin, second, kSegmentParts, 0);
    const auto scan = tier::scan_segment(segment, *header);
    if (!scan.ok()) return {};
    std::vector<uint8_t> seen(16);
    for (const tier::RecordHeader& record : scan->records) {
      // Some of each type.
      if (seen[static_cast<size_t>(record.type) % seen.size()]++ >= kTierRowsMax) continue;
      const size_t at = record.address;
      const size_t end = at + record.space(header->alignment) - kRecordHeaderBytes;
      const std::string what = fmt::format("record at {}, type {}", at, static_cast<int>(record.type));
      add_copies(&fields, what, content, at, end, kRecordParts, log_id);
      const uint32_t checks = record.checks_bytes();
      if (checks == 0) continue;
      const auto both = [=](std::string* file) {
        for (const size_t copy : {at, end}) {
          put_u32(file->data() + copy + 20, crc32c(Bytes(*file).substr(at + kRecordHeaderBytes, checks)));
          seal_header(file, copy, log_id);
        }
      };
      for (const uint32_t check : {0u, checks / 4 - 1})
        add_field(&fields, fmt::format("{}: check {}", what, check), content,
                  at + kRecordHeaderBytes + 4 * size_t{check}, 4, both);
    }
  }
  return fields;
}

Fields tier_seal_fields(const Content& content) {
  Fields fields;
  const Reseal reseal = [](std::string* file) { put_u32(file->data() + 4, crc32c(Bytes(*file).substr(8))); };
  add_parts(&fields, "seal", content, 0,
            {{"magic", 0, 4},
             {"version", 8, 2},
             {"closed", 10, 1},
             {"zero", 11, 1},
             {"segments", 12, 4},
             {"log_id", 16, 8},
             {"generation", 24, 8}},
            reseal);
  add_bytes(&fields, "seal", content, tier::kSealHeadBytes, content->size(), 60, reseal);
  return fields;
}

Fields tier_queue_fields(const Content& content, uint64_t log_id) {
  Fields fields;
  size_t records = 0;
  for (size_t at = 0; at + kRecordHeaderBytes <= content->size() && records < kTierRowsMax; at += 4096) {
    const auto record = tier::decode_record_header(Bytes(*content).substr(at, kRecordHeaderBytes), log_id);
    if (!record.ok() || record->type != tier::RecordType::kQueued) continue;
    add_parts(&fields, fmt::format("slot at {}", at), content, at, kRecordParts,
              [=](std::string* file) { seal_header(file, at, log_id); });
    ++records;
  }
  return fields;
}

Fields tier_mark_fields(const Content& content) {
  Fields fields;
  for (size_t at = 0; at < content->size();) {
    size_t end = at;
    while (end < content->size() && std::isspace(static_cast<unsigned char>((*content)[end])) == 0) ++end;
    const std::string word = content->substr(at, end - at);
    const bool hex = word.size() == 16 && word.find_first_not_of("0123456789abcdef") == std::string::npos;
    const bool decimal = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    if (hex || decimal) {
      fields.push_back({fmt::format("number at {}", at), 8, std::stoull(word, nullptr, hex ? 16 : 10),
                        [=](uint64_t number) {
                          std::string file = *content;
                          file.replace(at, word.size(),
                                       hex ? fmt::format("{:016x}", number) : std::to_string(number));
                          return file;
                        }});
    }
    at = end + 1;
  }
  return fields;
}

Fields tier_losses_fields(const Content& content) {
  Fields fields = document_fields(content);
  for (ForgedField& each : hex_fields(content)) fields.push_back(std::move(each));
  return fields;
}

Fields tier_trace_fields(const Content& content) {
  constexpr size_t kHeadBytes = 32;
  Fields fields;
  add_parts(&fields, "head", content, 0,
            {{"magic", 0, 4}, {"version", 8, 2}, {"zeros", 10, 2}, {"begun", 16, 8}, {"zeros", 24, 8}},
            [](std::string* file) { put_u32(file->data() + 4, crc32c(Bytes(*file).substr(8, 24))); });
  for (size_t at = kHeadBytes; at + kHeadBytes <= content->size();) {
    const size_t end = at + kHeadBytes + get_u32(content->data() + at + 8);
    const Reseal reseal = [at](std::string* file) {
      put_u32(file->data() + at + 4,
              crc32c(Bytes(*file).substr(at + 8, 24 + get_u32(file->data() + at + 8))));
    };
    const std::string what = fmt::format("block at {}", at);
    add_parts(
        &fields, what, content, at,
        {{"magic", 0, 4}, {"payload_bytes", 8, 4}, {"records", 12, 4}, {"time", 16, 8}, {"dropped", 24, 8}},
        reseal);
    add_bytes(&fields, what, content, at + kHeadBytes, end, 40, reseal);
    at = end;
  }
  return fields;
}

}  // namespace swale::forged
