// What bench-meta measures: an index of segments behind one server, ours or a rival.
// Threads: one. Errors: die().
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "meta/index/types.h"

namespace swale::bench {

inline constexpr meta::FileId kBenchFile{0x0123456789abcdef, 0xfedcba9876543210};

class IndexStore {
 public:
  virtual ~IndexStore() = default;

  virtual void open(const std::string& path, bool cold) = 0;
  // One message of a client; end_batch makes all messages since the last one durable with one sync.
  virtual void put(std::span<const meta::Extent> message) = 0;
  virtual void end_batch() = 0;
  virtual void drain() = 0;  // until nothing is left to do in the background
  // Where each of the segments stands: messages of several clients that wait at the server together. The
  // places in them are not looked at.
  using Messages = std::span<const std::vector<meta::Extent>>;
  virtual void get(Messages messages, std::vector<meta::Place>* out) = 0;
  virtual nlohmann::json about() { return nlohmann::json::object(); }
  // Sorted parts (tables, trees, buffers, layers of runs) whose ranges may hold one key: what a get may have
  // to ask. 0: the store has none.
  virtual uint64_t overlap() { return 0; }
  virtual void close() = 0;
};

std::unique_ptr<IndexStore> make_swale_index(const std::string& name);  // swale, swale-no-runs, ...; or null
std::unique_ptr<IndexStore> make_rival_index(const std::string& name);

// The key and the value that rivals store: 16 bytes of file id and the offset (big-endian); log, address,
// length.
inline constexpr size_t kIndexKeyBytes = 24;
inline constexpr size_t kIndexValueBytes = 20;
struct IndexRecord {
  char key[kIndexKeyBytes];
  char value[kIndexValueBytes];
};
void encode_index_key(uint64_t offset, char* out);
void encode_index_value(const meta::Extent& extent, char* out);
meta::Place decode_index_value(const char* value);

}  // namespace swale::bench
