#include "tests/forged/imd_fields.h"

#include <cctype>
#include <charconv>
#include <set>

#include "base/coding.h"
#include "base/crc32c.h"
#include "base/sealed_document.h"
#include "run/block.h"
#include "run/packed_block.h"
#include "run/run_cursor.h"
#include "run/value_format.h"
#include "run/value_pages.h"
#include "source/table_format.h"

namespace swale::forged {
namespace {

constexpr size_t kEpochSlotBytes = 256;
constexpr size_t kEpochCopyBytes = 128;

void seal_block(std::string* data, uint64_t block, PartitionNumber partition, uint64_t epoch_id) {
  char* const at = data->data() + block * run::kBlockBytes;
  put_u32(at + run::kBlockBytes - 4,
          crc32c_extend(run::epoch_seed(partition, epoch_id), {at, run::kBlockBytes - 4}));
}

// Pointers to values that lie elsewhere, of the first records of a run that have one and lie within one
// block.
void add_pointers(Fields* fields, const Content& content, PartitionNumber partition, BlockNumber first,
                  const run::RunHeader& header) {
  constexpr int kPointersMax = 2;
  run::RunCursor cursor(partition, first, "forged", header.epoch_id);
  int found = 0;
  const Bytes run_bytes = Bytes(*content).substr(first * run::kBlockBytes, header.blocks * run::kBlockBytes);
  const auto record = [&](const run::ScannedRecord& scanned) {
    const char* const end = scanned.value.data() + scanned.value.size();
    const bool inside = end > content->data() && end <= content->data() + content->size();
    if (!scanned.large || !inside || scanned.block != scanned.end_block) return true;
    const size_t at = static_cast<size_t>(end - content->data()) - run::pointer_bytes(header.values);
    const Reseal reseal = [=, block = uint64_t{scanned.block}, id = header.epoch_id](std::string* data) {
      seal_block(data, block, partition, id);
    };
    const std::vector<Part> parts =
        header.values == run::ValueRule::kPaged
            ? std::vector<Part>{{"place", 0, 8}, {"writer and bytes", 8, 4}}
            : std::vector<Part>{{"offset", 0, 8}, {"value_bytes", 8, 4}, {"writer", 12, 4}};
    add_parts(fields, fmt::format("pointer in block {}", uint64_t{scanned.block}), content, at, parts,
              reseal);
    return ++found < kPointersMax;
  };
  static_cast<void>(cursor.feed(run_bytes, record));
}

void add_block(Fields* fields, const Content& content, PartitionNumber partition, uint64_t block, bool first,
               const run::RunHeader& header) {
  const Reseal reseal = [=, id = header.epoch_id](std::string* data) {
    seal_block(data, block, partition, id);
  };
  const size_t begin = block * run::kBlockBytes;
  const std::string what = fmt::format("block {}", block);
  add_parts(
      fields, what, content, begin,
      {{"first_ordinal", 4080, 4}, {"count", 4084, 2}, {"first_start", 4086, 2}, {"block_number", 4088, 4}},
      reseal);
  if (header.kind == run::RunKind::kUniform) return;
  const bool packed = header.kind == run::RunKind::kPacked;
  if (packed) {
    add_parts(
        fields, what, content, begin,
        {{"stored_bytes", 4072, 2}, {"piece_bytes", 4074, 2}, {"row_bytes", 4076, 2}, {"codec", 4078, 1}},
        reseal);
  }
  const uint32_t starts = run::block_trailer(content->data() + begin).first_start;
  const size_t front = packed ? (first ? sizeof(run::RunHeader) : 0) : starts;
  if (front > 4000) return;
  // Varints of the first record, or the first bytes of what is compressed.
  for (size_t i = 0; i < 4; ++i)
    add_field(fields, fmt::format("{}: stream byte {}", what, i), content, begin + front + i, 1, reseal);
}

}  // namespace

Fields data_log_fields(const Content& content, PartitionNumber partition) {
  constexpr int kRunsMax = 3;
  Fields fields;
  int runs = 0;
  for (uint64_t block = 0; (block + 1) * run::kBlockBytes <= content->size();) {
    const auto header =
        run::decode_run_header(Bytes(*content).substr(block * run::kBlockBytes, run::kBlockBytes), partition,
                               BlockNumber(block), "forged");
    if (!header.ok()) {
      ++block;
      continue;
    }
    const uint64_t end = block + header->blocks;
    if (runs++ < kRunsMax || end * run::kBlockBytes >= content->size()) {
      const Reseal reseal = [partition, block](std::string* data) {
        char* const at = data->data() + block * run::kBlockBytes;
        put_u32(at + 60, crc32c_extend(run::partition_seed(partition), {at, 60}));
        seal_block(data, block, partition, get_fixed<run::RunHeader>(at).epoch_id);
      };
      add_parts(&fields, fmt::format("run in block {}", block), content, block * run::kBlockBytes,
                {{"kind", 4, 1},
                 {"key_bytes", 5, 1},
                 {"way", 6, 2},
                 {"value_bytes", 8, 4},
                 {"epoch", 12, 4},
                 {"epoch_id", 16, 8},
                 {"run", 24, 4},
                 {"records", 28, 4},
                 {"blocks", 32, 4},
                 {"partition", 36, 4},
                 {"data_bytes", 40, 8},
                 {"ranks", 48, 4},
                 {"ways", 52, 2},
                 {"home", 54, 1},
                 {"values", 55, 1},
                 {"codec", 56, 4}},
                reseal);
      for (const uint64_t chosen : std::set<uint64_t>{block, std::min(block + 1, end - 1), end - 1})
        add_block(&fields, content, partition, chosen, chosen == block, *header);
      if (header->kind != run::RunKind::kPacked)
        add_pointers(&fields, content, partition, BlockNumber(block), *header);
    }
    block = end;
  }
  return fields;
}

// Heads follow each other; the first one of an epoch begins at a multiple of 4,096.
Fields value_log_fields(const Content& content, PartitionNumber writer) {
  constexpr uint32_t kMagic = 0x31565753;
  constexpr size_t kHeadBytes = 48;
  constexpr int kHeadsMax = 3;
  Fields fields;
  int heads = 0;
  for (size_t at = 0; at + kHeadBytes <= content->size() && heads < kHeadsMax;) {
    if (get_u32(content->data() + at) != kMagic) {
      at = round_up(at + 1, 4096);
      continue;
    }
    const uint64_t value_bytes = get_u32(content->data() + at + 40);
    const size_t head_bytes =
        kHeadBytes + 4 * ((value_bytes + run::kValuePieceBytes - 1) / run::kValuePieceBytes);
    const Reseal reseal = [=](std::string* log) {
      char* const head = log->data() + at;
      const uint64_t forged = get_u32(head + 40);
      const uint64_t bytes = kHeadBytes + 4 * ((forged + run::kValuePieceBytes - 1) / run::kValuePieceBytes);
      const size_t covered = std::min<uint64_t>(bytes, log->size() - at);
      put_u32(head + 4, crc32c_extend(run::epoch_seed(writer, get_u64(head + 16)), {head + 8, covered - 8}));
    };
    add_parts(&fields, fmt::format("value at {}", at), content, at,
              {{"magic", 0, 4},
               {"offset", 8, 8},
               {"epoch_id", 16, 8},
               {"key_hash", 24, 8},
               {"epoch", 32, 4},
               {"writer", 36, 4},
               {"value_bytes", 40, 4},
               {"piece's checksum", 48, 4}},
              reseal);
    ++heads;
    at += head_bytes + value_bytes;
  }
  return fields;
}

Fields value_page_fields(const Content& content, PartitionNumber writer) {
  Fields fields;
  const uint64_t pages = content->size() / run::kValuePageBytes;
  for (const uint64_t page : std::set<uint64_t>{0, 1, pages - 1}) {
    const size_t begin = page * run::kValuePageBytes;
    const Reseal reseal = [=](std::string* log) {
      char* const at = log->data() + begin;
      put_u32(at + 4092, crc32c_extend(run::partition_seed(writer), {at, 4092}));
    };
    add_parts(&fields, fmt::format("page {}", page), content, begin,
              {{"epoch_id", 4072, 8},
               {"epoch", 4080, 4},
               {"page", 4084, 4},
               {"values", 4088, 2},
               {"first_start", 4090, 2}},
              reseal);
  }
  return fields;
}

namespace {

// One table of a .source file, at [begin, end).
void add_table(Fields* fields, const Content& content, size_t begin, size_t end) {
  const size_t trailer = end - source::kTrailerBytes;
  const uint32_t shards = get_u32(content->data() + trailer + 28);
  const size_t index = trailer - size_t{shards} * 4;
  // As the right table cuts it: only one number is wrong.
  const Reseal reseal = [=, ends = content->substr(index, size_t{shards} * 4)](std::string* log) {
    const uint64_t table_id = get_u64(log->data() + trailer + 32);
    size_t at = begin;
    for (uint32_t i = 0; i < shards; ++i) {
      const size_t shard_end = begin + get_u32(ends.data() + size_t{i} * 4);
      char salt[12];
      put_u64(salt, table_id);
      put_u32(salt + 8, i);
      put_u32(log->data() + at,
              crc32c_extend(crc32c(Bytes(salt, 12)), {log->data() + at + 4, shard_end - at - 4}));
      at = shard_end;
    }
    put_u32(log->data() + trailer + 64,
            source::index_crc(table_id, Bytes(*log).substr(index, size_t{shards} * 4)));
    put_u32(log->data() + trailer + 4, crc32c(Bytes(*log).substr(trailer + 8, source::kTrailerBytes - 8)));
  };
  const std::string what = fmt::format("table at {}", begin);
  add_parts(fields, what, content, trailer,
            {{"version", 8, 2},
             {"features", 10, 2},
             {"scheme", 12, 1},
             {"hash_bits", 13, 1},
             {"fingerprint_bits", 14, 1},
             {"shard_bits", 15, 1},
             {"sources", 16, 4},
             {"runs_per_rank", 20, 4},
             {"epoch", 24, 4},
             {"shard_count", 28, 4},
             {"table_id", 32, 8},
             {"base_id", 40, 8},
             {"keys", 48, 8},
             {"pairs", 56, 8}},
            reseal);
  for (uint32_t i = 0; i < std::min(shards, 3u); ++i) {
    add_field(fields, fmt::format("{}: end of shard {}", what, i), content, index + 4 * size_t{i}, 4, reseal);
    const size_t shard = begin + (i == 0 ? 0 : get_u32(content->data() + index + 4 * size_t{i - 1}));
    add_parts(fields, fmt::format("{}: shard {}", what, i), content, shard,
              {{"kind", 4, 1},
               {"seed", 5, 1},
               {"remainder_bits", 6, 1},
               {"entries", 8, 4},
               {"extras", 12, 4},
               {"rows 1", 16, 4},
               {"rows 2", 20, 4},
               {"rows 3", 24, 4},
               {"bytes", 28, 4},
               {"body 0", 32, 1},
               {"body 5", 37, 1}},
              reseal);
  }
}

}  // namespace

Fields table_fields(const Content& content) {
  Fields fields;
  size_t begin = 0;
  for (size_t at = content->find("SSWT"); at != std::string::npos; at = content->find("SSWT", at + 1)) {
    if (at + source::kTrailerBytes > content->size()) break;
    const Bytes trailer = Bytes(*content).substr(at, source::kTrailerBytes);
    if (!source::decode_trailer(trailer, "forged").ok()) continue;
    add_table(&fields, content, begin, at + source::kTrailerBytes);
    begin = at + source::kTrailerBytes;
  }
  return fields;
}

Fields epoch_log_fields(const Content& content) {
  Fields fields;
  const auto add = [&](size_t slot, const Part& part) {
    const size_t begin = slot * kEpochSlotBytes;
    if (begin + kEpochSlotBytes > content->size()) return;
    // Both copies say the same.
    const Reseal reseal = [=](std::string* log) {
      char* const first = log->data() + begin;
      put_u32(first + kEpochCopyBytes - 4, crc32c({first, kEpochCopyBytes - 4}));
      std::copy(first, first + kEpochCopyBytes, first + kEpochCopyBytes);
    };
    add_field(&fields, fmt::format("slot {}: {}", slot, part.name), content, begin + part.offset, part.bytes,
              reseal);
  };
  for (const Part& part : {Part{"magic", 0, 8}, Part{"version", 8, 4}, Part{"job", 12, 4}}) add(0, part);
  for (size_t slot = 1; slot < content->size() / kEpochSlotBytes; ++slot) {
    for (const Part& part :
         {Part{"magic", 0, 4}, Part{"epoch", 4, 4}, Part{"job", 8, 4}, Part{"recovered", 12, 4},
          Part{"epoch_id", 16, 8}, Part{"step", 24, 8}, Part{"time", 32, 8}, Part{"records", 40, 8},
          Part{"data_bytes", 48, 8}, Part{"digest", 56, 8}, Part{"large_values", 64, 8},
          Part{"large_bytes", 72, 8}, Part{"summary_offset", 80, 8}, Part{"summary_bytes", 88, 4},
          Part{"summary_job", 92, 4}})
      add(slot, part);
  }
  return fields;
}

// Summaries lie one behind the other; one ends where the next magic is, or the file.
Fields summary_fields(const Content& content) {
  Fields fields;
  size_t end = 0;
  for (size_t begin = content->find("SWALETOP"); begin != std::string::npos; begin = end) {
    end = content->find("SWALETOP", begin + 1);
    const size_t bytes = std::min(end, content->size()) - begin;
    const Reseal reseal = [=](std::string* log) {
      char* const at = log->data() + begin;
      put_u32(at + bytes - 4, crc32c({at, bytes - 4}));
    };
    const std::string what = fmt::format("summary at {}", begin);
    add_parts(&fields, what, content, begin,
              {{"magic", 0, 8},
               {"version", 8, 4},
               {"epoch_id", 12, 8},
               {"fields", 20, 1},
               {"nans", 21, 8},
               {"absent", 29, 8},
               {"partitions", 37, 4},
               {"count", 41, 1},
               {"partition", 42, 4},
               {"extremum", 46, 8}},
              reseal);
    if (end == std::string::npos) break;
  }
  return fields;
}

Fields document_fields(const Content& content) {
  Fields fields;
  // A document is one object with line feeds inside; statistics are one object a line.
  const bool lines = is_sealed(Bytes(*content).substr(0, content->find('\n') + 1));
  for (size_t begin = 0; begin < content->size();) {
    const size_t end = lines ? content->find('\n', begin) + 1 : content->size();
    if (end == 0 || end - begin < kSealBytes) break;
    bool in_text = false;
    for (size_t at = begin; at < end - kSealBytes; ++at) {
      if ((*content)[at] == '"') in_text = !in_text;
      if (in_text || std::isdigit(static_cast<unsigned char>((*content)[at])) == 0) continue;
      size_t stop = at;
      while (std::isdigit(static_cast<unsigned char>((*content)[stop])) != 0) ++stop;
      uint64_t now = 0;
      std::from_chars(content->data() + at, content->data() + stop, now);
      const auto forge = [=](uint64_t number) {
        std::string object = content->substr(begin, end - kSealBytes - begin);
        object.replace(at - begin, stop - at, std::to_string(number));
        return content->substr(0, begin) + object + seal_of(object) + content->substr(end);
      };
      fields.push_back({fmt::format("number at {}", at), 8, now, forge});
      at = stop;
    }
    begin = end;
  }
  return fields;
}

Fields fields_of_file(const std::string& path, const Content& content) {
  uint32_t number = 0;
  if (const size_t at = path.rfind("part-"); at != std::string::npos)
    std::from_chars(path.data() + at + 5, path.data() + at + 11, number);
  const PartitionNumber partition(number);
  if (path.ends_with(".data")) return data_log_fields(content, partition);
  if (path.ends_with(".index")) return index_log_fields(content, partition);
  if (path.ends_with(".values")) return value_log_fields(content, partition);
  if (path.ends_with(".pages")) return value_page_fields(content, partition);
  if (path.ends_with(".source")) return table_fields(content);
  if (path.ends_with("/epochs")) return epoch_log_fields(content);
  if (path.ends_with("/extrema")) return summary_fields(content);
  if (path.ends_with(".json") || path.ends_with(".jsonl")) return document_fields(content);
  return {};
}

}  // namespace swale::forged
