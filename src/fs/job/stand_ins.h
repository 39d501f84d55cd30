// StandIns: plain files of this node that stand in for files of a tree which is mounted nowhere, and which no
// other node has (docs/design/preload.md, "Without a mount"). Of several nodes: shared_stand_ins.h.
//
// Whoever opens a file of the tree gets a descriptor of its stand-in, one for all processes of the node: so
// their reads, writes, mappings and locks are the kernel's own, and a child, an exec or a dup needs no help.
// While it stands, its bytes, size and times are the file's. They are taken into the tree when nobody has it
// open any more, at fsync, before a rename that replaces, and at the end. A file that is on the backing, and
// is opened to read, needs none: its opener gets the backing's.
//
//   FOLDER (0700) := FILE* ; FILE: the file's id, "HHHHHHHHHHHHHHHH-LLLLLLLLLLLLLLLL", mode 01600
//                    FILE.new: is being copied; one that has nothing of the tree begins as FILE
//                    spare-N: is empty, and becomes a FILE; or was one that the tree has
//                    boot: the start of the machine that they are of, as the kernel names it
//
// A killed server leaves them: the next one finds them there, and loses nothing that was written, also by
// programs that went on meanwhile. After a restart of the machine they go: the tree has what was synced.
//
// Threads: thread-safe; one of its own, which takes in what nobody has open.
// Invariants: (1) A file has at most one stand-in. (2) A stand-in goes when nobody has it open, and the tree
// has all of it. (3) FILE is whole.
// Errors: errnos. What cannot be taken in stays, and is tried again; take_all() says why.
// Limits: whole files are copied, in and out, where they are not written from their beginning.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "fs/job/job_fs.h"
#include "fs/job/stand_in_files.h"
#include "io/descriptor.h"

namespace swale::fs {

class StandIns final : public StandInFiles {
 public:
  // Finds what a killed server has left in `folder`, which it makes. `fs` must outlive it.
  static Result<std::unique_ptr<StandIns>> open(JobFs& fs, const std::string& folder, size_t descriptors);
  ~StandIns() override;

  int open_file(Node& node, int flags, const Caller& caller, io::Descriptor* out) override;
  int open_made(Node& node, std::unique_ptr<OpenFile> writer, int flags, const Caller& caller,
                io::Descriptor* out) override;
  int describe(Node& node, struct stat* found) override;
  bool is_there(Node& node) override;
  int take_in(Node& node) override;
  int sync(Node& node) override;
  int sync_part(Node& node, uint64_t offset, uint64_t bytes) override;
  int end(Node& node) override;
  int truncate(Node& node, uint64_t size, const Caller& caller) override;
  int set_times(Node& node, const timespec times[2]) override;
  Node* find(ino_t inode) override;
  Status take_all() noexcept override;
  void rest() noexcept override;
  size_t count() override;

 private:
  struct StandIn {
    explicit StandIn(const meta::FileId& of) : id(of) {}

    const meta::FileId id;
    Mutex mutex;
    bool over GUARDED_BY(mutex) = false;     // look again
    Node* node GUARDED_BY(mutex) = nullptr;  // with a lookup
    // One of them keeps the file in the names; what is only written has no reader.
    std::unique_ptr<OpenFile> reader GUARDED_BY(mutex), writer GUARDED_BY(mutex);
    io::Descriptor own GUARDED_BY(mutex);            // to read and write
    bool may_lease GUARDED_BY(mutex) = false;        // its signal is one that is ignored
    std::optional<uint64_t> size GUARDED_BY(mutex);  // in the tree, if that is known
    ino_t inode GUARDED_BY(mutex) = 0;
    bool may_be_written GUARDED_BY(mutex) = false;  // somebody has had it open to write since it was taken in
    struct stat taken GUARDED_BY(mutex) = {};       // as the tree has it
    Caller by GUARDED_BY(mutex);                    // who wrote
  };
  enum class Copy { kNothing, kAll };
  enum class Then { kStays, kGoes, kIsSpare };  // a stand-in's file; the last: nobody has it open
  struct Spare {
    io::Descriptor file;  // empty
    std::string name;
  };

  static constexpr std::string_view kBeingCopied = ".new", kSpare = "spare-";

  StandIns(JobFs& fs, std::string folder, size_t most)
      : fs_(fs), folder_(std::move(folder)), most_(most), sweep_at_(most) {}
  Status recover();
  Status recover_one(const std::string& name);
  std::shared_ptr<StandIn> find_or_add(const meta::FileId& id);
  std::shared_ptr<StandIn> find_by_id(const meta::FileId& id);
  std::vector<std::shared_ptr<StandIn>> all();
  int open_locked(StandIn& stand, Node& node, int flags, const Caller& caller, io::Descriptor* out)
      REQUIRES(stand.mutex);
  int begin(StandIn& stand, Node& node, Copy copy, const Caller& caller) REQUIRES(stand.mutex);
  int make(StandIn& stand, Copy copy, io::Descriptor* out) REQUIRES(stand.mutex);
  int pass(StandIn& stand, int flags, const Caller& caller, io::Descriptor* out) REQUIRES(stand.mutex);
  int copy_from_tree(StandIn& stand, const io::Descriptor& to) REQUIRES(stand.mutex);
  int begin_writer(StandIn& stand, const Caller& caller) REQUIRES(stand.mutex);
  int take_in_locked(StandIn& stand) REQUIRES(stand.mutex);
  int take_in_locked(StandIn& stand, bool nobodys) REQUIRES(stand.mutex);
  int copy_to_tree(StandIn& stand, const struct stat& now) REQUIRES(stand.mutex);
  int copy_part(StandIn& stand, uint64_t offset, uint64_t bytes) REQUIRES(stand.mutex);
  int sync_tree(Node& node);
  int write_part(StandIn& stand, uint64_t offset, uint64_t end, bool zeros) REQUIRES(stand.mutex);
  bool has_changed(StandIn& stand, struct stat* now) REQUIRES(stand.mutex);
  static bool is_as_made(const StandIn& stand, const struct stat& now) REQUIRES(stand.mutex);
  bool is_nobodys(StandIn& stand) REQUIRES(stand.mutex);
  void end(StandIn& stand, Then then) REQUIRES(stand.mutex);
  io::Descriptor take_spare(std::string* name);
  bool keep_as_spare(StandIn& stand) REQUIRES(stand.mutex);
  int end_if_nobodys(StandIn& stand) REQUIRES(stand.mutex);  // errno of taking it in
  void sweep();
  void sweep_if_crowded();
  void keep() noexcept;

  JobFs& fs_;
  const std::string folder_;
  const size_t most_;             // at a time, before an open takes some in itself
  std::atomic<size_t> sweep_at_;  // so many are too many now: as many as that may be open
  io::Descriptor directory_;
  Mutex mutex_;  // the last that is taken
  CondVar changed_;
  std::map<meta::FileId, std::shared_ptr<StandIn>> by_id_ GUARDED_BY(mutex_);
  std::map<ino_t, std::shared_ptr<StandIn>> by_inode_ GUARDED_BY(mutex_);
  std::vector<Spare> spares_ GUARDED_BY(mutex_);
  uint64_t spares_made_ GUARDED_BY(mutex_) = 0;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_leases_ = true;
  std::atomic<bool> has_failed_ = false;  // that was said
  std::thread keeper_;
};

}  // namespace swale::fs
