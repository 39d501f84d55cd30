// MemoryDevice: a file system in memory that knows what a real disk would still have after a power loss.
//
// Fault model. A crash keeps everything durable, and may do this to the rest:
//
// (1) File content: only sync() makes it durable. Each 4 KiB page written since the last sync is kept or
//     dropped
// (it gets back its content of that sync; zeros if it had none); one page per file may be torn between two
// 512-byte sectors. The size is the synced one, the current one, or, for a file that grew, a page boundary
// between them. Bytes that an unsynced truncate cut off may come back, also as zeros.
//
// (2) Names: only sync_directory() makes creations, renames and removals durable; syncing a file does not
// sync its name. A crash keeps a prefix of the operations on one directory since its last sync, each of them
// whole. The prefixes of two directories are independent, so a file renamed between them may be in both or in
// neither. A file whose name is gone is lost.
//
// (3) kReorder keeps instead any subset of the writes and truncations of a file since its sync, and any
//     subset of the
// operations on a directory, each whole and in order: a later one may survive when an earlier one does not.
//
// Not modelled: bit rot and failing calls (see FaultDevice). In the first two modes, a page written twice
// since a sync has its old or its newest content, never the one between.
//
// Paths: "/a/b" and "a/b" are the same file; there is no "..". Removed and renamed files stay open.
// Anchored devices share everything with the first one; after a crash they fail as open files do.
// Threads: as Device says, under one mutex.
// Limits: kFileBytesMax per file (kIoError beyond it): a wrong offset is an error and does not exhaust
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "io/anchor.h"
#include "io/device.h"

namespace swale::io {

enum class CrashMode {
  kDropAll,    // everything that is not durable is lost
  kTearPages,  // each unsynced page and operation is lost or kept at random, as the fault model says
  kReorder,    // each unsynced write and operation is lost or kept at random, whatever came before it
};

class MemoryDevice : public Device {
 public:
  static constexpr size_t kPageBytes = 4 * kKiB;
  static constexpr size_t kSectorBytes = 512;
  static constexpr uint64_t kFileBytesMax = 4 * kGiB;

  MemoryDevice();
  ~MemoryDevice() override;

  // Loses power and restarts. Files opened before fail with kIoError from now on; what survived is durable.
  void crash(Rng& rng, CrashMode mode);

  Result<std::unique_ptr<Device>> anchored(const std::string& directory) override;
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;

  struct State;  // shared with the open files

 private:
  struct Held;  // the directory of an anchor
  struct Lookup;

  MemoryDevice(std::shared_ptr<State> state, std::shared_ptr<const Anchor<Held>> anchor);
  Lookup look_up(const std::string& path) const;  // call with the mutex of the state locked

  const std::shared_ptr<State> state_;
  const std::shared_ptr<const Anchor<Held>> anchor_;  // null: none
};

}  // namespace swale::io
