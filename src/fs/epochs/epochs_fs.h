// EpochsFs: a massive directory as files, for programs that know nothing of it: a folder for each committed
// epoch, named by its number, and in it a file for each key (key_name.h). A file's bytes are the key's values
// in this epoch, one behind the other, as they were appended.
//
// Nothing can be changed: EROFS. Epochs that are committed later appear within kRefreshEvery. A file of an
// epoch that was dropped since gives ESTALE, never the bytes of another epoch with its number. All times are
// that of the directory's manifest: what has been copied once need not be copied again.
// Attributes of an epoch's folder: user.swale.step, .time, .records, and .attributes (a JSON document).
//
// Threads: as FileSystem says. Errors: errnos; the cause is in the log of the program: EIO for damage.
// Memory: 200 bytes a file that the kernel knows; a listing that is open takes the epoch's names and 8 bytes
// each, and what Reader::keys takes.
// Limits: keys whose names would have more than 255 bytes are not shown; their number is logged once.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "fs/read_only.h"
#include "imd/read/reader.h"

namespace swale::fs {

struct EpochsNode;

class EpochsFs final : public ReadOnlyFileSystem {
 public:
  static constexpr Nanos kRefreshEvery = seconds(1);

  // `reader` must outlive it. `modified`: what all files have as their times.
  EpochsFs(imd::Reader& reader, const timespec& modified, const Clock& clock = system_clock());
  ~EpochsFs() override;

  KernelUse kernel_use() const override { return {.keep_seconds = 1, .checks_acls = false}; }
  size_t nodes_known() const override;

  int lookup(Node& parent, const char* name, Entry* entry) override;
  void forget(Node* node, uint64_t count) override;
  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) override;
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add) override;
  int attributes(Node& node, struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value) override;
  int list_attributes(Node& node, const Caller& caller, std::string* names) override;
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) override;
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;

 private:
  int answer(const Status& status) const;
  void look_again();
  int expect_alive(const EpochsNode& node) const;  // 0, or ESTALE: its epoch was dropped
  Result<std::vector<imd::FoundValue>> find(const EpochsNode& node, Bytes key) const;
  EpochsNode* enter(const EpochsNode& wanted);
  void fill(const EpochsNode& node, struct stat* attributes) const;
  int list_keys(const EpochsNode& node, std::string* names, std::vector<uint64_t>* ends);

  imd::Reader& reader_;
  const timespec modified_;
  const Clock& clock_;
  std::atomic<Nanos> looked_at_;
  std::atomic<bool> told_nameless_ = false;

  mutable Mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<EpochsNode>> nodes_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
