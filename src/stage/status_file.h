// The status file of a stage: a JSON object that anybody may poll. It is replaced as a whole, about once a
// second and at the end, so that a reader never sees half of one.
//
// Threads: one at a time writes a file.
#pragma once

#include <string>
#include <vector>

#include "base/process_identity.h"
#include "io/device.h"
#include "stage/outcomes.h"

namespace swale::stage {

enum class StageState { kRunning, kDone, kFailed, kStopped };
const char* state_name(StageState state);  // "running"

struct StatusText {
  StageState state = StageState::kRunning;
  double seconds = 0;  // since the beginning
  std::string since;   // UTC
  std::vector<Failure> failures;
  std::vector<std::string> remarks;
};

inline constexpr size_t kFailuresTold = 100;  // in a status file; files_failed counts all

std::string status_json(const StageOptions& options, const ProcessIdentity& process,
                        const StageCounts& counts, const StatusText& text);
// Durable if it is the last one.
enum class StatusKind { kPassing, kLast };
Status write_status(io::Device& device, const std::string& path, const std::string& json, StatusKind kind);

}  // namespace swale::stage
