// LossNode: a file, directory or link that the kernel knows of a LossFs.
// Threads: constant after it was entered.
#pragma once

#include <string>

#include "fs/file_system.h"
#include "fs/losses/left_details.h"
#include "fs/losses/loss_plan.h"

namespace swale::fs {

struct LossNode final : Node {
  static LossNode& of(Node& node) { return static_cast<LossNode&>(node); }

  std::string path;  // below the root; "": the root
  uint64_t inode = 0, above = 0;
  mode_t type = 0;       // S_IFMT
  meta::FileId id = {};  // none: the tree has not looked at it
  const FileLoss* loss = nullptr;
  const LeftDetails::File* details = nullptr;
};

inline std::string path_below(const std::string& above, const std::string& name) {
  return above.empty() ? name : above + "/" + name;
}

}  // namespace swale::fs
