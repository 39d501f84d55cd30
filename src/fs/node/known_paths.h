// KnownPaths: what the files that a node has had in its logs are called, as the node has known it last. The
// names themselves stand at their servers, which may be lost (fs/losses): then this says whose bytes are
// whose.
//
//   FOLDER := StateLog "paths-" of kKnownPathsKind
//   record := (high u64, low u64, path sized)*    the first one has all; a later path replaces the earlier
// Fuzzed by fuzz/fs_messages_fuzz.cc; golden file: tests/golden/job-losses-v1.
//
// Threads: one at a time. Errors: as StateLog; after a failure the next change writes all anew.
// Durability: a kill, not the machine. Memory: the paths.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fs/node/state_log.h"
#include "io/device.h"
#include "meta/index/types.h"

namespace swale::fs {

inline constexpr uint16_t kKnownPathsKind = 18;

class KnownPaths {
 public:
  using Paths = std::map<meta::FileId, std::string>;

  static Result<std::unique_ptr<KnownPaths>> open(io::Device& device, const std::string& folder) noexcept;

  const Paths& paths() const { return paths_; }
  bool has(const meta::FileId& file) const { return paths_.contains(file); }
  Status put(const meta::FileId& file, const std::string& path) noexcept;
  // The files whose paths lead through a directory; and new paths of several files, in one record.
  std::vector<meta::FileId> beneath(const std::string& directory) const;
  Status put(const std::vector<std::pair<meta::FileId, std::string>>& changed) noexcept;
  // It goes with the next rewriting.
  void forget(const meta::FileId& file) noexcept { paths_.erase(file); }

 private:
  bool take(Bytes payload);
  Status begin_anew();

  Paths paths_;
  std::unique_ptr<StateLog> log_;
  uint64_t state_bytes_ = 0;  // when the log was begun
  bool behind_ = false;       // the log does not have all
};

}  // namespace swale::fs
