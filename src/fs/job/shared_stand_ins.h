// SharedStandIns: plain files of this node that stand in for files of a tree which is mounted nowhere, and
// which other nodes have, too (docs/design/preload.md, "Without a mount"; StandIns is the same of one node).
//
// Write to open: an open begins with all that had been written on any node: it first has the others take in
// what they have. Else that is committed when nobody of a node has the file open any more, at fsync, before
// a rename that replaces, and at the end. A stand-in that somebody has open gets what others have committed
// with the next open on its node, or fsync.
//
// *A copy* has the file's bytes at their places. Beside it stands what the tree had of them (the base), from
// when somebody may write it: only bytes that differ come into the tree, so nodes write one file at once.
// *A tail* is for those that append and do not read: only what is behind its beginning is theirs, and comes
// to a place that the file's root reserves. The bytes before are a hole.
//
//   FOLDER (0700) := (ID, ID.base?)*, (ID.tail, ID.tail.at)*, NAME.new: is being made;
//                    boot: as StandIns has it
//   ID: the file's id, "HHHHHHHHHHHHHHHH-LLLLLLLLLLLLLLLL", mode 01600, as is ID.tail
//   ID.base: as long as the tree's; none: nobody could write the copy
//   ID.tail.at: taken u64, until u64, place u64: what is before `taken` is in the tree; what is before
//               `until` comes to `place`
//
// A killed server leaves them: the next one takes in what differs from the base, and goes on at ID.tail.at.
//
// Threads: thread-safe; one of its own, which takes in what nobody has open. A stand-in's mutex is held while
// nodes are asked, but not while they are to take something in: two nodes may ask that of each other.
// Invariants: (1) A file has at most one copy and one tail. (2) Either goes when nobody has it open, and the
// tree has all of it. (3) Only changed bytes are written to the tree; or short pieces between them, too: if
// no other node writes the file, and nothing was committed since the base was made; or, as the tree has them,
// if changes are many, in a turn that is this node's alone. (4) A program's write to a copy is never undone
// by bytes of other nodes.
// Errors: errnos. What cannot be taken in stays, and is tried again; take_all() says why.
// Limits: a byte that is written as it was before is no change, and does not come over what another node has
// committed there since. A program that cuts a stand-in past the C library may end the server by SIGBUS.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "fs/job/job_fs.h"
#include "fs/job/stand_in_files.h"
#include "fs/job/stand_in_locks.h"
#include "fs/job/stand_in_roots.h"

namespace swale::fs {

// Decisions that tests replace, to show that they would notice.
struct SharedStandInRules {
  bool takes_changes = true;   // whole files come into the tree
  bool asks_others = true;     // an open does not wait for what others have closed
  bool reserves = true;        // appended bytes come behind what this node knows
  bool merges_by_word = true;  // other nodes' bytes are copied over those of programs
  bool takes_turns = true;     // what is between a node's changes may be older than another node's
};

class SharedStandIns final : public StandInFiles {
 public:
  // Finds what a killed server has left in `folder`, which it makes. `fs`, of several nodes, must outlive it.
  static Result<std::unique_ptr<SharedStandIns>> open(JobFs& fs, const std::string& folder,
                                                      size_t descriptors,
                                                      const SharedStandInRules& rules = {});
  ~SharedStandIns() override;

  int open_file(Node& node, int flags, const Caller& caller, io::Descriptor* out) override;
  int open_made(Node& node, std::unique_ptr<OpenFile> writer, int flags, const Caller& caller,
                io::Descriptor* out) override;
  int describe(Node& node, struct stat* found) override;
  bool is_there(Node& node) override;
  // Also what is open, here and on other nodes.
  int take_in(Node& node) override;
  int sync(Node& node) override;
  int end(Node& node) override;
  int truncate(Node& node, uint64_t size, const Caller& caller) override;
  int set_times(Node& node, const timespec times[2]) override;
  // What unlocks takes in what was written, what locks sees what others have: of the whole file.
  int lock(Node& node, ino_t inode, const FileLock& wanted) override;
  int find_lock(Node& node, const FileLock& wanted, FileLock* in_the_way) override;
  Node* find(ino_t inode) override;
  Status take_all() noexcept override;
  Status take_all_everywhere() noexcept override;
  void rest() noexcept override;
  size_t count() override;

 private:
  enum class Kind { kCopy, kTail };
  struct Place {  // of a tail's bytes
    uint64_t taken = 0, until = 0, place = 0;
  };
  struct StandIn {
    StandIn(const meta::FileId& of, Kind as) : id(of), kind(as) {}

    const meta::FileId id;
    const Kind kind;
    Mutex asking;  // other nodes, for opens here; it is taken before `mutex`
    uint64_t asked_number GUARDED_BY(asking) = 0;
    std::atomic<uint64_t> asks = 0;   // that have begun: one serves all opens that had come before
    std::atomic<uint64_t> takes = 0;  // the same of taking in, for other nodes
    Mutex mutex;
    bool over GUARDED_BY(mutex) = false;     // look again
    Node* node GUARDED_BY(mutex) = nullptr;  // with a lookup
    std::unique_ptr<OpenFile> reader GUARDED_BY(mutex), writer GUARDED_BY(mutex);
    io::Descriptor own GUARDED_BY(mutex);   // to read and write
    io::Descriptor base GUARDED_BY(mutex);  // a tail's: .at
    ino_t inode GUARDED_BY(mutex) = 0;
    uint8_t uses GUARDED_BY(mutex) = 0;             // of which the file's root knows
    uint64_t number GUARDED_BY(mutex) = 0;          // of the root's, when the base was the tree's
    bool may_be_written GUARDED_BY(mutex) = false;  // somebody has had it open to write since it was taken in
    struct stat taken GUARDED_BY(mutex) = {};       // as the tree has it
    Place place GUARDED_BY(mutex);
    Caller by GUARDED_BY(mutex);  // who wrote
  };
  using Stand = std::shared_ptr<StandIn>;
  // Pieces of a file: as programs see it, of its base, of the tree.
  struct Windows {
    Buffer now, before, tree;
    Status allocate(uint64_t file_bytes);
  };

  SharedStandIns(JobFs& fs, std::string folder, size_t most, const SharedStandInRules& rules)
      : fs_(fs), folder_(std::move(folder)), most_(most), rules_(rules), locks_(fs) {}

  // The table, and what nodes ask each other (shared_stand_ins.cc).
  Status recover();
  Status recover_one(const std::string& name);
  Stand find_or_add(const meta::FileId& id, Kind kind);
  Stand find_by_id(const meta::FileId& id, Kind kind);
  std::vector<Stand> all();
  int open_stand_in(StandIn& stand, Node& node, int flags, const Caller& caller, uint64_t number,
                    io::Descriptor* out) REQUIRES(stand.mutex);
  int pass_backings(Node& node, const Caller& caller, io::Descriptor* out);
  int begin(StandIn& stand, Node& node, bool copies, const Caller& caller) REQUIRES(stand.mutex);
  int begin_writes(StandIn& stand, const Caller& caller) REQUIRES(stand.mutex);
  int begin_writer(StandIn& stand, const Caller& caller) REQUIRES(stand.mutex);
  bool is_nobodys(StandIn& stand) REQUIRES(stand.mutex);
  void end(StandIn& stand, bool keeps_file) REQUIRES(stand.mutex);
  int end_if_nobodys(StandIn& stand) REQUIRES(stand.mutex);  // errno of taking it in
  int take_in_locked(StandIn& stand) REQUIRES(stand.mutex);
  int take_in_of(const meta::FileId& id, Kind kind);
  int take_in_own(const meta::FileId& id);
  int refresh_own(const meta::FileId& id);
  Result<TakeInAnswer> answer(const TakeInWish& wish);
  Status take_in_for_others(StandIn& stand);
  Result<StandInAnswer> ask(const StandInStep& step);
  int ask_until_granted(const StandInStep& step, StandInAnswer* out);
  int say(const meta::FileId& id, uint8_t uses, uint64_t* number);
  int in_turn(const meta::FileId& id, bool alone, const std::function<int()>& change);
  int bring(const meta::FileId& id, uint64_t* number);
  int bring_once(StandIn& stand, uint64_t* number);
  int look_elsewhere(const meta::FileId& id, struct stat* found);
  void log_failure(const StandIn& stand, int failed);
  void sweep();
  void keep() noexcept;
  std::string name_of(const StandIn& stand) const;

  // Bytes of copies (shared_stand_ins_copies.cc).
  int copy_from_tree(StandIn& stand, const io::Descriptor& to) REQUIRES(stand.mutex);
  int make_base(StandIn& stand) REQUIRES(stand.mutex);
  int take_in_copy(StandIn& stand, bool nobodys) REQUIRES(stand.mutex);
  int begin_taking(StandIn& stand, bool* alone) REQUIRES(stand.mutex);
  int end_taking(StandIn& stand, bool alone, bool changed) REQUIRES(stand.mutex);
  struct Part {  // of a copy, that comes into the tree
    uint64_t size = 0;
    bool alone = false;
    bool keeps_base = true;  // the copy lives on
    bool changed = false;
  };
  int copy_to_tree(StandIn& stand, Part* part) REQUIRES(stand.mutex);
  int write_changes(StandIn& stand, uint64_t offset, Bytes now, Bytes before, MutableBytes tree, Part* part)
      REQUIRES(stand.mutex);
  int put_changes(StandIn& stand, uint64_t offset, Bytes bytes, Bytes now, Bytes before, size_t bridge)
      REQUIRES(stand.mutex);
  int read_between(StandIn& stand, uint64_t offset, Bytes now, Bytes before, MutableBytes out)
      REQUIRES(stand.mutex);
  int end_alike(StandIn& stand, uint64_t base_size, Part* part) REQUIRES(stand.mutex);
  int refresh(StandIn& stand, uint64_t number) REQUIRES(stand.mutex);
  int merge_window(StandIn& stand, uint64_t offset, Bytes tree, Bytes before) REQUIRES(stand.mutex);
  int shorten(StandIn& stand, uint64_t size, Windows& windows) REQUIRES(stand.mutex);
  int cut(StandIn& stand, uint64_t size, const Caller& caller) REQUIRES(stand.mutex);
  int cut_elsewhere(Node& node, uint64_t size, const Caller& caller);

  // Tails (shared_stand_ins_tails.cc).
  int begin_tail(StandIn& stand, uint64_t size) REQUIRES(stand.mutex);
  int take_in_tail(StandIn& stand) REQUIRES(stand.mutex);
  int copy_tail(StandIn& stand, MutableBytes space) REQUIRES(stand.mutex);
  int put_place(StandIn& stand) REQUIRES(stand.mutex);
  int recover_tail(StandIn& stand) REQUIRES(stand.mutex);
  int cut_tail(const meta::FileId& id, uint64_t size);

  JobFs& fs_;
  const std::string folder_;
  const size_t most_;  // at a time, before an open takes some in itself
  const SharedStandInRules rules_;
  StandInLocks locks_;
  io::Descriptor directory_;
  Mutex mutex_;  // the last that is taken
  CondVar changed_;
  std::map<std::pair<meta::FileId, Kind>, Stand> by_id_ GUARDED_BY(mutex_);
  std::map<ino_t, Stand> by_inode_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_leases_ = true;
  std::atomic<bool> has_failed_ = false;  // that was said
  std::thread keeper_;
};

}  // namespace swale::fs
