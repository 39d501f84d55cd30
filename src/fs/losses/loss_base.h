// find_base: the backing's file under the bytes that a job's logs have of it.
//
// Threads: any. Errors: the device's; kCorruption of a mark that a drain has left.
#pragma once

#include <memory>
#include <string>

#include "fs/losses/loss_plan.h"
#include "io/device.h"

namespace swale::fs {

struct LossBase {
  std::unique_ptr<io::File> file;  // null: the backing has none
  // It is not what the job has seen there, nor what the job has begun to make of it.
  bool changed = false;
};

// `path`: of the backing's file; "": none is known. `job_folder`: where drains leave their marks.
Result<LossBase> find_base(io::Device& backing, const std::string& path, const std::string& job_folder,
                           const FileLoss& loss);

}  // namespace swale::fs
