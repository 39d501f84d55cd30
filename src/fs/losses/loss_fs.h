// LossFs: the tree of a job as the nodes that are left know it, before its losses are accepted. It is
// read-only: nothing on the backing or in the nodes' folders changes.
//
//   name ─► LossNames ─► a file of the plan ─► its bytes: nodes that are left, and the backing below them
//                    └─► all else ─► the backing
//
// What is not known is EIO, never old bytes: a range that lost nodes alone had; a file whose root is lost; a
// name whose server is lost; a new file that a lost node had open; a file of the backing that the job knows
// under another name. The first EIO of each is logged, with the reason and what to do.
//
// Threads: as FileSystem says. Errors: errnos; the cause is in the log of the program.
// Invariants: (1) A read that touches a lost byte is EIO as a whole: what the kernel asks for a mapping has
// no shorter answer. (2) Bytes of the backing are given if the job has not changed them, or if it has brought
// them there.
// Memory: a node for each name that was looked up, 300 bytes and its path.
// Limits: files that no known name leads to are in the report alone (loss_report.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/losses/loss_names.h"
#include "fs/losses/loss_plan.h"
#include "fs/node/shared_files.h"
#include "fs/read_only.h"
#include "io/descriptor.h"
#include "io/device.h"

namespace swale::fs {

struct LossNode;

// Decisions that tests leave out, to show that they would notice.
struct LossFsRules {
  bool fails_lost = true;      // false: lost ranges show what is below them
  bool asks_partition = true;  // false: a name that a left node does not have is none
  bool guards_inodes = true;   // false: files of the backing are not looked for in the plan
};

struct LossFsOptions {
  int root = -1;           // of the backing directory; outlives this
  std::string backing;     // its path, below which `device` finds it
  std::string job_folder;  // where drains have left their marks
  LossFsRules rules = {};
};

class LossFs final : public ReadOnlyFileSystem {
 public:
  using Wanted = SharePeers::Wanted;
  // Bytes that a node has of a file.
  using Fetch = std::function<Status(NodeId node, const meta::FileId& file, std::span<const Wanted> wanted)>;

  // `surveys` and `details`: of the nodes that are left, in the same order. `plan` and `device` outlive this.
  LossFs(const LossPlan& plan, std::span<const NodeSurvey> surveys, std::vector<LeftDetails> details,
         io::Device& device, Fetch fetch, LossFsOptions options);
  ~LossFs() override;

  std::string name_of(Node& node) const override;
  KernelUse kernel_use() const override { return {.keep_seconds = 0, .checks_acls = false}; }
  size_t nodes_known() const override;

  int lookup(Node& parent, const char* name, Entry* entry) override;
  void forget(Node*, uint64_t) override {}  // nodes live as long as this
  int read_symlink(Node& node, std::string* target) override;
  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) override;
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add) override;
  int attributes(Node& node, struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value) override;
  int list_attributes(Node& node, const Caller& caller, std::string* names) override;

  // Bytes (loss_fs_bytes.cc).
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) override;
  Pages pages(const OpenFile&, bool) const override { return Pages::kNone; }
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;

 private:
  // What a name leads to.
  struct Place {
    mode_t type = 0;  // S_IFMT
    meta::FileId id = {};
    const FileLoss* loss = nullptr;              // null: the backing has all of it
    const LeftDetails::File* details = nullptr;  // of a loss
  };
  int find(const LossNode& above, const std::string& name, const std::string& path, Place* place);
  int find_entry(const meta::DirEntry& entry, const std::string& path, Place* place);
  int find_there(const std::string& path, Place* place);
  LossNode* enter(const LossNode* above, const std::string& path, const Place& place);
  int fill(const LossNode& node, struct stat* attributes);
  // O_PATH, of what the backing has there.
  int open_there(const std::string& path, int flags, io::Descriptor* there) const;
  // EIO: nobody knows it. The first time for `path` it is logged.
  int refuse(const std::string& path, const std::string& why);
  // The same of what is known, and cannot be had now: also ENOMEM.
  int fail(const std::string& path, const Status& why);
  bool tells(const std::string& path);
  int list(const LossNode& node, std::vector<DirectoryEntry>* entries);
  Status expect_known(const LossNode& node, bool has_base, const Span& span) const;
  static RangeMap<char> below(const LossNode& node, const Span& span);
  Status read_parts(const LossNode& node, io::File* base, uint64_t offset, MutableBytes out);
  int guard(const struct stat& found, const std::string& path);
  std::string remedy() const;

  const LossPlan& plan_;
  const std::vector<LeftDetails> details_;
  const LossNames names_;
  io::Device& device_;
  const Fetch fetch_;
  const LossFsOptions options_;
  std::unordered_map<meta::FileId, const FileLoss*, meta::FileIdHash> losses_;
  std::unordered_map<uint64_t, const FileLoss*> by_inode_;  // of what the backing has of them
  std::set<meta::FileId> known_files_;                      // with a node at a server that is left

  mutable Mutex mutex_;
  std::map<std::pair<std::string, mode_t>, std::unique_ptr<LossNode>> nodes_ GUARDED_BY(mutex_);
  std::set<std::string> told_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
