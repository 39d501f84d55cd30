// NodeLife: whether a node still has the memory that its server before this one had.
//
//   MEMORY/life := text of 16 hexadecimal digits, drawn when the folder is new
//   STATE/life  := the same, when all roots of files have heard of it
//
// If the two differ, the node has lost its power, or its folder in memory, since. A folder without a life in
// which logs are is that of a build that had none: nothing is lost.
//
// Threads: one. Errors: those of the devices.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "io/device.h"

namespace swale::fs {

class NodeLife {
 public:
  // Before the logs are opened.
  static Result<std::unique_ptr<NodeLife>> find(io::Device& memory, const std::string& memory_folder,
                                                io::Device& storage, const std::string& state_folder);

  bool has_lost_power() const { return known_ != life_; }
  // All roots know. Durable when it returns.
  Status told();

 private:
  NodeLife(io::Device& storage, std::string path) : storage_(storage), path_(std::move(path)) {}

  io::Device& storage_;
  const std::string path_;
  std::string life_, known_;
};

}  // namespace swale::fs
