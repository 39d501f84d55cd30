#include "meta/names/tree.h"

#include "base/hash.h"

namespace swale::meta {
namespace {

constexpr uint64_t kNameSeed = 0x6e616d6573;  // "names"; stands in no other hash of ours

}  // namespace

// DO NOT CHANGE THE HASH: it says at which server an entry is, and its logs are on disk.
EntryKey::EntryKey(const FileId& in, Bytes entry_name) : directory(in), name(entry_name) {
  const uint64_t seed = kNameSeed + in.high * 0x9e3779b97f4a7c15 + in.low * 0xbf58476d1ce4e5b9;
  hash = hash_bytes_seeded(entry_name, seed);
}

uint32_t server_of(const EntryKey& key, uint32_t servers) {
  return key.directory.none() ? 0 : choose(key.hash, servers).index;
}

}  // namespace swale::meta
