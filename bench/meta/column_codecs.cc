#include "bench/meta/column_codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/rng.h"
#include "bench/check_status.h"
#include "bench/measure.h"
#include "meta/index/block.h"
#include "meta/index/codec.h"
#include "meta/index/zigzag.h"

namespace swale::bench {
namespace {

using meta::unzigzag;
using meta::zigzag;

constexpr size_t kMatchMin = 3;
constexpr size_t kSlots = 1024;
size_t slot_of(uint64_t value, uint64_t next) {
  return ((value * 0x9e3779b97f4a7c15) ^ (next * 0xd1b54a32d192ed03)) >> 54;
}

void append_literals(std::span<const uint64_t> literals, std::string* out) {
  if (literals.empty()) return;
  append_varint(out, literals.size() * 2);
  for (const uint64_t literal : literals) append_varint(out, zigzag(literal));
}

using Columns = std::array<std::vector<uint64_t>, 4>;  // offset, length, log, address

struct ColumnCodec {
  const char* name;
  void (*append)(std::span<const uint64_t>, std::string*);
  bool (*read)(Decoder*, std::span<uint64_t>);
  bool lz4;
};
constexpr ColumnCodec kCodecs[] = {
    {"dod", meta::append_second_differences, meta::read_second_differences, false},
    {"lz4", append_differences, read_differences, true},
    {"lz77", append_lz77, read_lz77, false}};

struct CodedBlock {
  uint64_t first = 0;  // offset
  size_t rows = 0, raw_bytes = 0;
  std::string bytes;
};

CodedBlock code(const ColumnCodec& codec, Compressor* lz4, std::span<const meta::Entry> entries) {
  Columns columns;
  for (const meta::Entry& each : entries) {
    const uint64_t row[] = {each.offset, each.length, each.log, each.address};
    for (size_t c = 0; c < columns.size(); ++c) columns[c].push_back(row[c]);
  }
  std::string raw;
  for (const auto& column : columns) codec.append(column, &raw);
  CodedBlock block{entries.front().offset, entries.size(), raw.size(), {}};
  if (!codec.lz4) {
    block.bytes = std::move(raw);
    return block;
  }
  block.bytes.resize(raw.size() + raw.size() / 128 + 64);
  block.bytes.resize(lz4->compress(raw, block.bytes));
  return block;
}

// As many rows as fit, by what the block before had.
std::vector<CodedBlock> cut(const ColumnCodec& codec, Compressor* lz4, std::span<const meta::Entry> entries) {
  std::vector<CodedBlock> blocks;
  size_t guess = 512;
  for (size_t at = 0; at < entries.size();) {
    size_t rows = std::min({guess, entries.size() - at, meta::kBlockRowsMax});
    CodedBlock block = code(codec, lz4, entries.subspan(at, rows));
    while (block.bytes.size() > meta::kBlockBytes && rows > 1) {
      rows = std::max<size_t>(1, std::min(rows - 1, rows * meta::kBlockBytes / block.bytes.size()));
      block = code(codec, lz4, entries.subspan(at, rows));
    }
    guess = std::max<size_t>(16, rows * (meta::kBlockBytes - 64) / std::max<size_t>(1, block.bytes.size()));
    at += rows;
    blocks.push_back(std::move(block));
  }
  return blocks;
}

meta::Place find(const ColumnCodec& codec, const CodedBlock& block, uint64_t offset) {
  std::string unpacked;
  Bytes raw = block.bytes;
  if (codec.lz4) {
    unpacked.resize(block.raw_bytes);
    if (!decompress(Codec::kLz4, raw, unpacked)) die("a block does not decompress");
    raw = unpacked;
  }
  Decoder decoder(raw);
  Columns columns;
  for (auto& column : columns) {
    column.resize(block.rows);
    if (!codec.read(&decoder, column)) die("a block does not decode");
  }
  const auto row = std::upper_bound(columns[0].begin(), columns[0].end(), offset) - columns[0].begin() - 1;
  const auto i = static_cast<size_t>(row);
  return {static_cast<meta::LogId>(columns[2][i]), columns[3][i] + offset - columns[0][i]};
}

}  // namespace

void append_differences(std::span<const uint64_t> values, std::string* out) {
  uint64_t before = 0;
  for (const uint64_t value : values) append_u64(out, value - std::exchange(before, value));
}

bool read_differences(Decoder* decoder, std::span<uint64_t> out) {
  uint64_t value = 0;
  for (uint64_t& to : out) to = value += decoder->u64();
  return decoder->ok();
}

void append_lz77(std::span<const uint64_t> values, std::string* out) {
  std::vector<uint64_t> words(values.size());
  for (size_t i = 0; i < values.size(); ++i) words[i] = values[i] - (i == 0 ? 0 : values[i - 1]);
  std::array<uint32_t, kSlots> last{};  // position + 1 of the pair that hashed here
  const std::span<const uint64_t> all(words);
  size_t at = 0, literals = 0;
  while (at < words.size()) {
    size_t length = 0, distance = 0;
    if (at + 1 < words.size()) {
      uint32_t& slot = last[slot_of(words[at], words[at + 1])];
      if (slot != 0) {
        const size_t from = slot - 1;
        distance = at - from;
        while (at + length < words.size() && words[from + length] == words[at + length]) ++length;
      }
      slot = static_cast<uint32_t>(at + 1);
    }
    if (length >= kMatchMin) {
      append_literals(all.subspan(literals, at - literals), out);
      append_varint(out, length * 2 + 1);
      append_varint(out, distance);
      at += length;
      literals = at;
    } else {
      ++at;
    }
  }
  append_literals(all.subspan(literals), out);
}

bool read_lz77(Decoder* decoder, std::span<uint64_t> out) {
  size_t at = 0;
  while (at < out.size()) {
    const uint64_t token = decoder->varint64();
    const uint64_t count = token / 2;
    if (!decoder->ok() || count == 0 || count > out.size() - at) return false;
    if (token % 2 == 0) {
      for (uint64_t i = 0; i < count; ++i) out[at++] = unzigzag(decoder->varint64());
    } else {
      const uint64_t distance = decoder->varint64();
      if (distance == 0 || distance > at) return false;
      for (uint64_t i = 0; i < count; ++i, ++at) out[at] = out[at - distance];
    }
  }
  uint64_t value = 0;
  for (uint64_t& word : out) word = value += word;
  return decoder->ok();
}

nlohmann::json column_codecs(std::span<const meta::Entry> entries) {
  constexpr size_t kGets = 2000;
  Compressor lz4 = take(Compressor::create(Codec::kLz4));
  const auto count = static_cast<double>(entries.size());
  nlohmann::json json = nlohmann::json::object();
  for (const ColumnCodec& codec : kCodecs) {
    Stopwatch watch;
    const std::vector<CodedBlock> blocks = cut(codec, &lz4, entries);
    const double put_s = watch.cpu().total_s();
    size_t bytes = 0;
    for (const CodedBlock& block : blocks) bytes += block.bytes.size();
    Rng rng(7);
    watch = Stopwatch();
    for (size_t i = 0; i < kGets; ++i) {
      const meta::Entry& wanted = entries[rng.below(entries.size())];
      const auto after =
          std::upper_bound(blocks.begin(), blocks.end(), wanted.offset,
                           [](uint64_t offset, const CodedBlock& block) { return offset < block.first; });
      if (find(codec, *std::prev(after), wanted.offset) != meta::Place{wanted.log, wanted.address})
        die(fmt::format("WRONG ANSWER: codec {}, offset {}", codec.name, wanted.offset));
    }
    const std::string name = codec.name;
    json[name + "_bytes_per_entry"] = static_cast<double>(bytes) / count;
    json[name + "_put_ns"] = put_s / count * 1e9;
    json[name + "_get_ns"] = watch.cpu().total_s() / kGets * 1e9;
  }
  return json;
}

}  // namespace swale::bench
