// MemoryDevice: a file system in memory that knows what a real disk would still hold after a loss of power.
//
// Fault model. A crash keeps what was made durable, and may do this to the rest:
//
// (1) File content: only sync() makes it durable. Each 4 KiB page written since is dropped (it has its
// content of the last sync; zeros where there was none) or kept; one page per file may be torn between two
// 512-byte sectors. The size is the synced one, the current one, or, for a file that grew, a page boundary
// between. Where an unsynced truncate had cut bytes off, they may come back, also as zeros.
//
// (2) Names: only sync_directory() makes creations, renames and removals durable; syncing a file does not
// sync its name. Of the operations on one directory since its last sync, the first few are kept and the later
// ones dropped, each whole; directories differ, so that a file renamed between two may be in both, or in
// neither. A file whose name is gone is gone.
//
// (3) kReorder instead: any subset of the writes and truncations of a file since its sync, and any subset of the
// operations on a directory, each whole and in their order: a later one may survive an earlier one.
//
// Not modelled: in the first two modes, pages written twice since a sync hold their old or their newest content, never
// one between; no bit rot and no failing calls (that is FaultDevice).
//
// Paths: "/a/b" and "a/b" are the same file; there is no "..". Removed and renamed files stay open.
// Devices that are anchored to a directory share everything with the first one; after a crash they fail as files do.
// Threads: as Device says, under one mutex.
// Limits: kFileBytesMax per file (kIoError beyond): a wild offset is an error, not a lack of memory.
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
  kTearPages,  // each unsynced page and operation is lost or kept, as the fault model says, by lot
  kReorder,    // each unsynced write and operation is lost or kept, by lot, whatever came before it
};

class MemoryDevice : public Device {
 public:
  static constexpr size_t kPageBytes = 4 * kKiB;
  static constexpr size_t kSectorBytes = 512;
  static constexpr uint64_t kFileBytesMax = 4 * kGiB;

  MemoryDevice();
  ~MemoryDevice() override;

  // Loses power and comes back. Files opened before fail with kIoError from now on; what survived is durable.
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
