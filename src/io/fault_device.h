// FaultDevice: wraps a Device and makes its n-th call go wrong. It counts every call, so that a test can loop
// over all of them: "fail the i-th call, for every i, until the code passes".
//
// Threads: thread-safe. The thread that makes the call runs the hook, with no lock held: it may wait (a slow
// disk), look, or crash the device below. Do not use files after the device below is destroyed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/device.h"

namespace swale::io {

enum class CallKind : int {
  kOpen,
  kRead,  // read_many: one for each request
  kWrite,
  kSync,
  kTruncate,
  kRename,
  kRemove,
  kSyncDirectory,
  kMakeDirectory,
  kQuery,  // size, list, exists
};
inline constexpr size_t kCallKinds = 10;

std::string_view call_kind_name(CallKind kind);

struct Call {
  CallKind kind;
  const std::string& path;  // of the file; the old name of a rename
  uint64_t offset = 0;      // reads and writes
  uint64_t bytes = 0;       // reads and writes; the new size of a truncate
};

enum class FaultAction {
  kFail,  // returns `status` and does nothing
  kTear,  // a write: writes the first `position` bytes, then as kFail. Other calls: as kFail
  kFlip,  // a read: succeeds with bit `position` (modulo the bits read) flipped. Other calls: no fault
  kDrop,  // returns OK and does nothing: a lie that a checker must catch. Opens, reads, queries: no fault
};

struct Fault {
  FaultAction action = FaultAction::kFail;
  std::optional<CallKind> kind = std::nullopt;  // none: calls of any kind
  std::string path_part = {};                   // only calls whose path contains this
  uint64_t nth = 1;                             // of the matching calls since inject, from 1
  bool from_then_on = false;                    // and all matching calls after it
  Status status = {};                           // OK means kIoError
  uint64_t position = 0;
};

class FaultDevice : public Device {
 public:
  using Hook = std::function<Status(const Call&)>;

  explicit FaultDevice(Device& device);

  void inject(Fault fault);  // several may be pending; if two match one call, the one injected first acts
  void clear();              // forgets faults and hook, and sets the counters to zero
  // For users of File::descriptor(), which is -1 otherwise: what they do by it is neither counted nor fails.
  void show_descriptors();
  void set_hook(Hook hook);  // runs before every call; if it fails, the call returns its failure

  uint64_t calls(CallKind kind) const;
  uint64_t calls() const;   // of all kinds
  uint64_t faults() const;  // calls that a fault changed

  // Shares counters and faults with this device. anchored() itself is not counted.
  Result<std::unique_ptr<Device>> anchored(const std::string& directory) override;
  Result<std::unique_ptr<Device>> anchored_private(const std::string& directory) override;
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Status make_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;

 private:
  friend class FaultFile;
  class Plan;

  FaultDevice(std::unique_ptr<Device> owned, std::shared_ptr<Plan> plan);

  const std::unique_ptr<Device> owned_;  // of an anchored device
  Device& device_;
  const std::shared_ptr<Plan> plan_;
};

}  // namespace swale::io
