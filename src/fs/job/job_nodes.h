// JobNodes: the nodes of a job's tree that the kernel knows by number, and where in the tree each file and
// directory is that this server has met.
//
// A node is one id of the tree, whatever its name is; it lives while the kernel's count of lookups of it is
// not zero. A place outlives the node: a drain must find the name of a file that nobody looks at any more.
//
// Threads: thread-safe; calls nobody. A node is valid for whoever has a lookup of it.
// Memory: a place for each directory and file that was met, about 150 bytes, until its name goes.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "fs/file_system.h"
#include "io/descriptor.h"
#include "meta/names/tree.h"

namespace swale::fs {

struct JobNode final : Node {
  static JobNode& of(Node& node) { return static_cast<JobNode&>(node); }

  meta::FileId id;
  meta::NodeType type = meta::NodeType::kFile;
  io::Descriptor directory;  // O_PATH, of a directory: it is on the backing
  // What is not yet said to the names: 0, or the time of the last change of the content.
  std::atomic<int64_t> modified_ns = 0;
  std::atomic<int64_t> kept_modified_ns = 0;  // what the node's journal has
  std::atomic<bool> may_be_set_id = true;     // its mode may have set-id bits
  // Numbers of JobFs: not 0: this node knows that it is sealed; commits drop pages (job_fs_pages.cc).
  std::atomic<uint64_t> sealed_at = 0;
  std::atomic<uint64_t> pages_left_at = 0;
  std::atomic<uint64_t> pages_gone_at = 0;  // the mark of then means nothing any more
  // Opens without pages by which the kernel has read some for all that. Changes under the mutex.
  std::atomic<uint32_t> opens_mapped = 0;
  std::atomic<bool> may_have_pages = false;  // of opens since the last grant
  std::atomic<bool> drops_pages = false;     // the next write by a log does so
  bool shows_logs() const { return opens_mapped.load() > 0 || drops_pages.load(); }

  // The table's.
  uint64_t lookups = 0;
  std::list<JobNode*>::iterator place;  // in the order of lookups

  // Guarded by the mutex of JobFs.
  uint32_t opens = 0;
  uint32_t opens_with_pages = 0;     // of them: the kernel may keep pages
  uint32_t opens_that_may_map = 0;   // by which the kernel may get pages to write
  uint32_t opens_unheld = 0;         // of them: that the names do not know of
  bool held_for_unheld = false;      // but for these the file is held, as its name has gone or goes
  uint64_t reserved_end = 0;         // appends have places before it
  uint32_t cuts_past_kernel = 0;     // under way: no open may keep pages
  bool was_cut_past_kernel = false;  // the kernel's size may be older
  bool in_logs = false;              // NodeFiles has it open: it is read through the logs
  bool unlinked = false;             // no name leads to it
  std::vector<pid_t> writers;        // of each open that may change its bytes: whose it is
  bool seals_at_close = false;       // their last close seals it
  uint32_t sealed_opens = 0;         // read through the kernel's pages
  bool pages_are_fresh = false;      // the kernel has none from before the seal
};

class JobNodes {
 public:
  struct Place {
    meta::FileId parent;
    std::string name;
    meta::NodeType type = meta::NodeType::kFile;
  };

  // The node of an id, with one lookup more; `directory` is taken if the node is new.
  JobNode* enter(const meta::FileId& id, meta::NodeType type, io::Descriptor* directory);
  // The node, if the kernel does not know it any more.
  std::unique_ptr<JobNode> forget(JobNode* node, uint64_t count);
  // With one lookup more, or null.
  JobNode* find(const meta::FileId& id);
  // Directories whose time the names and the backing have not heard, each with one lookup more.
  std::vector<JobNode*> changed_directories();

  // A question to the names that is under way: its answer may be older than a change that comes meanwhile.
  class LookUp {
   public:
    explicit LookUp(JobNodes& nodes) : nodes_(nodes), began_(nodes.begin_look_up()) {}
    ~LookUp() { nodes_.end_look_up(began_); }
    LookUp(const LookUp&) = delete;
    LookUp& operator=(const LookUp&) = delete;

   private:
    friend JobNodes;
    JobNodes& nodes_;
    const uint64_t began_;
  };
  // A look-up has found the entry. What has changed since it began stays; false: no entry leads to the id.
  bool put_found(const LookUp& by, const meta::FileId& id, const Place& place);

  // The names have changed: this entry leads to the id now, or none does.
  void put(const meta::FileId& id, const Place& place);
  void put_if_met(const meta::FileId& id, const Place& place);
  void remove(const meta::FileId& id);
  std::optional<Place> place_of(const meta::FileId& id) const;
  // The names that lead to the id, from below the root: "a/b". None: none does.
  std::optional<std::string> path_of(const meta::FileId& id) const;
  // One of these is the id, or a directory on the way to it. (None of them is the root.)
  bool is_beneath(const meta::FileId& id, std::span<const meta::FileId> these) const;
  // No name on the way to the id has changed since the look-up began.
  bool is_unchanged(const LookUp& by, const meta::FileId& id) const;
  std::vector<std::pair<meta::FileId, Place>> all_places() const;
  // Files that are open, and that no name leads to any more.
  void add_nameless(const meta::FileId& id);
  void remove_nameless(const meta::FileId& id);
  bool is_nameless(const meta::FileId& id) const;

  size_t size() const;
  void call_above(size_t nodes, std::function<void()> crowded);
  // Files that were looked up longest ago and that nobody has open. They count as looked up now.
  std::vector<IdleName> take_idle(size_t count);

 private:
  struct Change {
    uint64_t number = 0;
    std::optional<Place> place;
  };

  // From the id up to the root, as far as it is known; until `stop` says so: true.
  template <class Stop>
  bool climb(const meta::FileId& id, const Stop& stop) const REQUIRES(mutex_);
  uint64_t begin_look_up();
  void end_look_up(uint64_t began) noexcept;
  void note_change(const meta::FileId& id, std::optional<Place> place) REQUIRES(mutex_);
  void note_looked_up(JobNode* node) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<meta::FileId, std::unique_ptr<JobNode>, meta::FileIdHash> nodes_ GUARDED_BY(mutex_);
  std::unordered_map<meta::FileId, Place, meta::FileIdHash> places_ GUARDED_BY(mutex_);
  uint64_t changes_ GUARDED_BY(mutex_) = 0;
  std::multiset<uint64_t> look_ups_ GUARDED_BY(mutex_);  // how many changes there were when each began
  // Since the oldest of them began.
  std::unordered_map<meta::FileId, Change, meta::FileIdHash> changed_ GUARDED_BY(mutex_);
  std::set<meta::FileId> nameless_ GUARDED_BY(mutex_);
  std::list<JobNode*> by_lookup_ GUARDED_BY(mutex_);
  size_t crowd_ GUARDED_BY(mutex_) = 0;
  std::function<void()> crowded_ GUARDED_BY(mutex_);
};

}  // namespace swale::fs
