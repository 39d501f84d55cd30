// Partitioner: which rank of a job a key belongs to: the hash of the key, or a function of the caller's,
// whose name stands in the manifest. docs/design/partitioners.md has the rules.
//
// Threads: a caller's function is called by any thread that appends or queries, several at once if they are;
// it must depend on its arguments alone. Partitioners (the registry of a Reader) is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/numbers.h"
#include "base/status.h"

namespace swale::imd {

inline constexpr char kHashPartitioner[] = "hash";

// Of a function's name, when it is given and when it is read from a manifest.
inline constexpr std::string_view kPartitionerNameRule = "1 to 64 letters, digits, '_', '.', '-' or ':'";
bool is_partitioner_name(std::string_view name);

struct Partitioner {
  // The partition, 0 <= partition < partitions. Anything else is an error of the function.
  using Function = uint32_t (*)(void* context, const void* key, size_t key_bytes, uint32_t partitions);

  std::string name = kHashPartitioner;
  Function function = nullptr;  // none: the hash
  void* context = nullptr;

  bool by_hash() const { return function == nullptr; }
  PartitionNumber ask(Bytes key, uint32_t partitions) const {
    return PartitionNumber(function(context, key.data(), key.size(), partitions));
  }
  bool has_home(Bytes key, uint32_t partitions) const {
    return by_hash() || ask(key, partitions) < partitions;
  }
  Status out_of_range(PartitionNumber partition, uint32_t partitions) const {
    return invalid_argument(
        "the partitioner \"{}\" answered {} for a key: there are {} partitions, numbered from 0", name,
        partition, partitions);
  }
  // kInvalidArgument unless name and function go together.
  Status check() const;
};

// Those that a Reader knows, by name.
class Partitioners {
 public:
  // In place of an earlier one of that name.
  Status set(const Partitioner& partitioner);
  // by_hash() if the name is not known.
  Partitioner find(const std::string& name) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, Partitioner> known_ GUARDED_BY(mutex_);
};

}  // namespace swale::imd
