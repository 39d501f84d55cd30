// ContainerFs: a container as files, for programs that know nothing of it: a metadata store, and the logs
// that have its files' bytes (docs/guide/shared-files.md). Names are paths: "/run7/checkpoint" is a file in a
// folder. A file has the size, mode and time of the store's attributes, its bytes from the logs, and zeros
// where nothing was put.
//
// Nothing can be changed: EROFS. It shows the store as it was when it was opened to be read; of files that
// were removed since, reads fail.
//
// Threads: as FileSystem says; the store's client serves one at a time. Errors: errnos; the cause is in the
// log of the program: EIO for a log that is missing or too short.
// Memory: a node for each file and folder, 300 bytes and its name.
// Limits: names that no path can have, or that are files and folders at once, are not shown; their number is
// logged.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "fs/containers/log_files.h"
#include "fs/read_only.h"
#include "meta/client/client.h"

namespace swale::fs {

struct ContainerNode;

class ContainerFs final : public ReadOnlyFileSystem {
 public:
  // `files`: of the store that `client` asks. `client` and `logs` must outlive it.
  ContainerFs(meta::Client& client, LogFiles& logs, std::vector<meta::Attributes> files);
  ~ContainerFs() override;

  size_t files_shown() const { return shown_; }

  KernelUse kernel_use() const override { return {.checks_acls = false}; }
  size_t nodes_known() const override { return nodes_.size(); }

  int lookup(Node& parent, const char* name, Entry* entry) override;
  void forget(Node*, uint64_t) override {}  // nodes live as long as this
  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) override;
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add) override;
  int attributes(Node& node, struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(Node&, const char*, const Caller&, std::string*) override { return ENODATA; }
  int list_attributes(Node&, const Caller&, std::string* names) override {
    names->clear();
    return 0;
  }
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) override;
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;

 private:
  ContainerNode* make_known();
  bool enter(meta::Attributes attributes);
  Status read_pieces(const meta::File& file, uint64_t offset, MutableBytes out);

  LogFiles& logs_;
  std::vector<std::unique_ptr<ContainerNode>> nodes_;  // by inode - 1
  size_t shown_ = 0;
  Mutex mutex_;
  meta::Client& client_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
