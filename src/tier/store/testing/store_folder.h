// StoreFolder: a folder for the store of a test, which goes with the test, and the options of a small store.
//
// Threads: one at a time. Errors: std::system_error if the folder cannot be made.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "tier/store/store.h"

namespace swale::tier {

class StoreFolder {
 protected:
  // Beside the program: /tmp may be without extended attributes.
  explicit StoreFolder(const std::string& name)
      : root_((std::filesystem::current_path() / (name + "-XXXXXX")).string()) {
    if (::mkdtemp(root_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), root_);
    backing_ = root_ + "/backing";
    std::filesystem::create_directory(backing_);
  }
  ~StoreFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  std::string ssd() const { return root_ + "/ssd"; }
  std::string backing(const std::string& name = "") const { return root_ + "/backing/" + name; }
  // Everything goes to the log.
  StoreOptions small_options(uint64_t segment_bytes = 256 * kKiB) const {
    StoreOptions options;
    options.ssd_directory = ssd();
    options.backing_directory = backing_;
    options.engine.policy = Policy::kSsdBlocking;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = segment_bytes;
    options.queue_slots = 8;
    options.slot_bytes = 16 * kKiB;
    return options;
  }

  std::string root_;
  std::string backing_;  // that small_options() names
};

}  // namespace swale::tier
