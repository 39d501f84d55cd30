// Attachment: this process's log at the server of a tree (fs/log/attach_format.h), and the right to write a
// file with it. There is at most one a tree in a process, for all its files; it lasts until the process ends.
//
// A child of fork has none: its files ask anew at their first write there. (A child of vfork shares its
// parent's.)
//
// Threads: any. One mutex for all of a process, which fork holds, so that a child never finds it locked.
// Errors: of find_tree: what to do, for a path that is on no tree. Else what the server has answered.
// Nothing waits for the server for longer than kAnswerSeconds, but for the mount as the system's calls do.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "fs/log/attach_client.h"
#include "fs/log/log_writer.h"
#include "fs/log/map_reader.h"
#include "io/descriptor.h"

namespace swale::fs {

// Whose tree it is.
struct TreePlace {
  std::string node;
  std::string socket;
};
// Of a directory. kNotFound: of none.
Result<TreePlace> find_tree(const std::string& directory, const std::string& path);
// Of an open file.
Result<TreePlace> find_tree(int fd, const std::string& path);

// The folder of a path, as find_tree wants it.
std::string directory_of(const std::string& path);
// What a call of the system has said of `path`, and what to do if the server of the node is gone.
Status tree_failure(const TreePlace& tree, const std::string& path, int error_number, const char* what);

// The reader of the server that has answered, which all files of this process share as long as one of them
// has it; or null.
std::shared_ptr<MapReader> map_reader(const MapRequest& answer);

struct Attachment {
  static Result<std::shared_ptr<Attachment>> open(const TreePlace& tree);
  ~Attachment() { writer.detach(); }

  LogWriter writer;
  AttachToken token;
  io::Descriptor connection;
};

// Whether a file is written by way of a log.
class WriteRight {
 public:
  // Null: it is not, or this is a child of fork: ask().
  Attachment* log() const {
    Attachment* const found = log_.load(std::memory_order_acquire);
    return found != nullptr && found->writer.attached() ? found : nullptr;
  }
  const meta::FileId& file() const { return file_; }
  // Asks for it, if this process has not got it yet. kBusy: somebody has opened the file so that the kernel
  // keeps pages; it may be asked again later.
  Status ask(const TreePlace& tree, int fd);
  bool had() const { return log_.load(std::memory_order_relaxed) != nullptr; }

 private:
  Status ask_with(const std::shared_ptr<Attachment>& attachment, int fd);

  std::atomic<Attachment*> log_ = nullptr;
  meta::FileId file_;                              // does not change after the first answer
  std::vector<std::shared_ptr<Attachment>> kept_;  // another thread may still write; guarded by the mutex
};

}  // namespace swale::fs
