// Auxiliary tables: whatever an edited table answers, no read goes beyond its bytes, and no answer names a
// source that does not exist. Input: 9-byte edits (offset u32, value u32, how u8) of a valid table; checksums
// are made right again if the first byte is odd, so that the checks behind them are reached.
#include <string>

#include "base/coding.h"
#include "base/crc32c.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/memory_device.h"
#include "source/table_builder.h"

namespace swale::source::source_table_fuzz {
namespace {

using fuzz::require;

constexpr uint64_t kTableId = 77;

std::string make_table(Scheme scheme) {
  Rng rng(1);
  TableParams params;
  params.scheme = scheme;
  params.sources = 67;
  params.table_id = kTableId;
  PairStore store = PairStore::create({EpochNumber(0), 67, PairStore::kMemoryMin, nullptr}).value();
  std::vector<Pair> scratch(200);
  for (uint32_t source = 0; source < 12; ++source) {
    std::vector<Pair> pairs;
    for (int i = 0; i < 120; ++i) pairs.push_back(make_pair(rng.below(kHashEnd), 0));
    std::string batch;
    encode_batch(EpochNumber(0), source, pairs, scratch, &batch);
    require(store.add(batch).ok());
  }
  std::string table;
  const ByteSink sink = [&](Bytes bytes) { return table += bytes, ok_status(); };
  require(build_table(&store, params, sink, 1000).ok());
  return table;
}

const std::string& table_of(uint8_t kind) {
  static const std::string tables[] = {make_table(Scheme::kRibbon), make_table(Scheme::kMaplet),
                                       make_table(Scheme::kCuckoo)};
  return tables[kind % 3];
}

// Seals shards as the index cuts them, then the index, then the trailer.
void reseal(std::string* table, uint32_t shards) {
  const size_t trailer = table->size() - kTrailerBytes;
  const size_t index = trailer - size_t{shards} * 4;
  size_t begin = 0;
  for (uint32_t i = 0; i < shards; ++i) {
    const size_t end = get_u32(table->data() + index + 4 * size_t{i});
    if (end < begin + kShardHeaderBytes || end > index) break;
    char* const at = table->data() + begin;
    char salt[12];
    put_u64(salt, kTableId);
    put_u32(salt + 8, i);
    put_u32(at + 28, static_cast<uint32_t>(end - begin));
    put_u32(at, crc32c_extend(crc32c(Bytes(salt, 12)), Bytes(at + 4, end - begin - 4)));
    begin = end;
  }
  put_u32(table->data() + trailer + 64, index_crc(kTableId, Bytes(*table).substr(index, size_t{shards} * 4)));
  put_u32(table->data() + trailer + 4, crc32c(Bytes(*table).substr(trailer + 8)));
}

void ask(const std::string& table) {
  io::MemoryDevice device;
  auto file = device.open("/t", io::OpenMode::kCreate);
  require(file.ok() && (*file)->pwrite(0, table).ok());
  const auto reader = TableReader::open(**file, 0, table.size());
  if (!reader.ok()) return;
  static_cast<void>(reader->verify());
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<uint32_t> found;
    if (!reader->candidates(rng.below(kHashEnd), &found).ok()) {
      require(found.empty());
      continue;
    }
    for (const uint32_t source : found) require(source < reader->trailer().params.sources);
  }
}

void run(Bytes input) {
  if (input.empty()) return;
  const auto how = static_cast<uint8_t>(input[0]);
  std::string table = table_of(how >> 1);
  const uint32_t shards = get_u32(table.data() + table.size() - kTrailerBytes + 28);
  for (size_t at = 1; at + 9 <= input.size(); at += 9) {
    const size_t where = get_u32(input.data() + at) % (table.size() - 4);
    const size_t trailer = table.size() - kTrailerBytes;
    const size_t target = (input[at + 8] & 1) != 0 ? where : trailer - 64 + where % 140;  // the end is small
    put_u32(table.data() + target, get_u32(input.data() + at + 4));
  }
  if ((how & 1) != 0) reseal(&table, shards);
  ask(table);
  ask(table.substr(input.size() % table.size()));
}

}  // namespace

SWALE_FUZZ_TARGET(source_table_fuzz) {
  run(swale::fuzz::as_bytes(data, size));
  return 0;
}

}  // namespace swale::source::source_table_fuzz
