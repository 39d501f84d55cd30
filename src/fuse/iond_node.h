// What an IondFs knows of a file, and of an open of it. For the files of IondFs alone.
// Threads: IondFs's.
#pragma once

#include <optional>

#include "fuse/iond_fs.h"

namespace swale::fuse {

struct IondNode final : fs::Node {
  static IondNode& of(fs::Node& node) { return static_cast<IondNode&>(node); }
  static const IondNode& of(const fs::Node& node) { return static_cast<const IondNode&>(node); }

  uint64_t inode = 0;
  int64_t created_ns = 0;
  iond::FileKind kind = iond::FileKind::kFile;
  uint64_t lookups = 0;             // IondFs::mutex_ guards it, and
  std::optional<std::string> path;  // none: what had it was removed, or replaced

  mutable Mutex mutex;
  std::weak_ptr<IondFs::Opened> opened GUARDED_BY(mutex);
  Mutex append_mutex;  // one append of this mount at a time
};

struct IondFs::Opened {
  Opened(iond::Iond& of, iond::IondFile opened) : servers(of), file(std::move(opened)) {}
  ~Opened();
  Opened(const Opened&) = delete;
  iond::Iond& servers;
  iond::IondFile file;
};

struct IondOpenFile final : fs::OpenFile {
  IondOpenFile(IondNode& of_node, std::shared_ptr<IondFs::Opened> of, int how)
      : node(of_node), opened(std::move(of)), flags(how) {}
  static IondOpenFile& of(fs::OpenFile& file) { return static_cast<IondOpenFile&>(file); }
  const iond::IondFile& file() const { return opened->file; }

  IondNode& node;
  const std::shared_ptr<IondFs::Opened> opened;
  const int flags;
};

void fill_attributes(const iond::FileAttributes& found, struct stat* attributes);

}  // namespace swale::fuse
