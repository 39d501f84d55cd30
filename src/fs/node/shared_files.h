// SharedFiles: the files of a node whose bytes other nodes have, too: what its processes have written
// (NodeFiles), what of it the roots of the files know (NodeShare), and the other nodes (SharePeers).
//
//   processes ─► NodeFiles ─wrote()─► NodeShare ─► SharePeers::ask ─► FileRoots at the file's root
//   read() ◄─ own bytes, others' (SharePeers::fetch, once a node), the backing's, zeros
//
// Threads: any; a call that asks a peer lets others go on meanwhile. `mutex` is the one of NodeFiles: the
// caller's, who locks it for what he does there himself, and for nothing here. A peer's question is answered
// by serve().
// Invariants: those of the table of visibility (docs/design/node-files.md).
// Errors: those of the peers; kUnavailable if nodes that should have bytes have cut them again and again.
// After a commit or truncate that fails at its peer nobody knows whether the root obeyed it: the next one
// tells the root all that this one would have.
//
// Maps: publish_map() tells programs of this node where its logs have bytes of the file (NodeFiles), and the
// file's root that they read so (kHold). The root answers a change of another node with those that do. That
// node has them let go before its call returns: so no read that begins later finds an older map.
//
// A sealed file does not change: keep_table() says so, until drop_table(). Its root is asked once, for who
// has which range of it.
//
// A drain, which the root leads (fs/peers): fix() commits what this node has, and keeps these bytes readable
// for write_out() until published() or give_up().
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/mutex.h"
#include "fs/node/node_files.h"
#include "fs/share/node_share.h"

namespace swale::fs {

class SharePeers {
 public:
  virtual ~SharePeers() = default;
  // The file's root; repeats until its deadline.
  virtual Result<ShareAnswer> ask(const ShareRequest& request) = 0;
  struct Wanted {
    Span span;
    MutableBytes to;  // of its length
  };
  // The newest bytes of these spans at a node: its serve(). If it fails, the places have anything.
  virtual Status fetch(NodeId node, const meta::FileId& file, std::span<const Wanted> wanted) = 0;
  // These nodes let go of what they tell their programs of the file (SharedFiles::let_go), and its root knows
  // that they have.
  virtual Status take_back(const meta::FileId& file, const std::vector<ShareHold>& holds) = 0;
  // These nodes commit what they have of the file (SharedFiles::commit).
  virtual Status commit_at(const meta::FileId& file, const std::vector<ShareHold>& nodes) = 0;
};

class SharedFiles final : public WriteWatcher {
 public:
  SharedFiles(NodeId node, SharePeers& peers, Mutex& mutex, const ShareRules& rules = {})
      : node_(node), peers_(peers), mutex_(mutex), rules_(rules), share_(node, rules) {}

  // `files` was opened with this as its watcher, and has the files open that are used here.
  void start(NodeFiles* files) {
    const MutexLock lock(mutex_);
    files_ = files;
  }

  Result<size_t> read(const meta::FileId& file, uint64_t offset, MutableBytes out) noexcept;
  // `seen`: of a file that is not open here.
  Result<uint64_t> size(const meta::FileId& file, const SeenBacking& seen = {}) noexcept;
  // The backing's file, if that has all of it, whatever node has written; inode 0: it lacks something.
  Result<SeenBacking> on_backing_alone(const meta::FileId& file) noexcept;
  // What had been written on this node is seen by each read that begins after this returns.
  Status commit(const meta::FileId& file) noexcept;
  // A commit, after which all that is committed to the file, by whatever node, outlives the power of all
  // nodes. `keep` makes durable on this node what it has of the file; it is called without the mutex, while
  // this node commits nothing of the file. False: it takes a drain.
  Result<bool> sync(const meta::FileId& file, const std::function<Result<bool>()>& keep) noexcept;
  // What a server before this one has had, and its roots have not heard, or have forgotten.
  Status commit_found() noexcept;
  // A commit; then the file ends there. Writes that return during the call are not cut.
  Status truncate(const meta::FileId& file, uint64_t size) noexcept;
  // A place that no other append gets.
  Result<uint64_t> reserve(const meta::FileId& file, uint64_t bytes) noexcept;
  // A map for programs of this node, unless any was withdrawn since there were `withdrawn`. kBusy: try it
  // again later.
  Status publish_map(const meta::FileId& file, MapRequest* map, uint64_t withdrawn) noexcept;
  // With the mutex.
  uint64_t maps_withdrawn() const NO_THREAD_SAFETY_ANALYSIS { return maps_withdrawn_; }
  void withdraw_maps(const meta::FileId& file) noexcept;
  // Another node has changed the file.
  void let_go(const meta::FileId& file) noexcept;
  bool let_go_at_once(const meta::FileId& file) noexcept;  // false: somebody has the mutex
  // All that was written on this node is committed, and is its part of the root's drain of that number.
  Status fix(const meta::FileId& file, uint64_t drain) noexcept;
  // Writes them, as fix() of this drain found them, and reads them again; nothing is synced.
  Status write_out(const meta::FileId& file, uint64_t drain, std::span<const Span> spans,
                   io::File& out) noexcept;
  // The pieces of them that are in these spans, for the node whose drain it is.
  Result<std::vector<FileExtents::Piece>> fixed_pieces(const meta::FileId& file,
                                                       std::span<const Span> spans) noexcept REQUIRES(mutex_);
  // They are on the backing, durably, in a file that is `now`: they leave the logs. Also for a node that has
  // none.
  Status published(const meta::FileId& file, uint64_t drain, const SeenBacking& now) noexcept;
  void give_up(const meta::FileId& file) noexcept;
  // With the mutex.
  void keep_table(const meta::FileId& file);
  void drop_table(const meta::FileId& file) noexcept;
  uint64_t asked() const { return asked_.load(std::memory_order_relaxed); }  // questions to roots
  // These spans, one after the other; `out` has their length. kNotFound: this node does not have all of it
  // any more.
  Status serve(const meta::FileId& file, std::span<const Span> spans, MutableBytes out) noexcept;
  // The same of one span, from where its bytes stand in memory, if nobody has to be waited for. False:
  // serve() is to be called. `give` does not keep them, and calls nothing here.
  using Give = std::function<void(std::span<const Bytes> parts)>;
  bool serve_at_once(const meta::FileId& file, const Span& span, const Give& give) noexcept;

 private:
  using Parts = std::vector<ReadPart>;

  Status wrote(const meta::FileId& file, uint64_t order, const Span& span, When when) override;
  Status learn(const meta::FileId& file) REQUIRES(mutex_);
  Result<ShareAnswer> ask(ShareRequest request) REQUIRES(mutex_);  // gives the mutex up meanwhile
  Result<ShareAnswer> look(ShareRequest request) REQUIRES(mutex_);
  void forget_table(const meta::FileId& file) REQUIRES(mutex_);  // it is asked for again
  Result<size_t> read_once(const meta::FileId& file, const Span& span, MutableBytes out) REQUIRES(mutex_);
  Status read_backing(const NodeShare::Reading& reading, const Parts& parts, uint64_t inode, MutableBytes out)
      REQUIRES(mutex_);
  Status read_parts(const NodeShare::Reading& reading, const Parts& parts, MutableBytes out) REQUIRES(mutex_);
  Status fetch_parts(const NodeShare::Reading& reading, const Parts& parts, MutableBytes out)
      REQUIRES(mutex_);
  // What `begin` makes of an order that `draw` gives, once this node has no change of the file under way.
  template <class Begin>
  std::invoke_result_t<Begin, uint64_t> begin_change(const meta::FileId& file,
                                                     Result<uint64_t> (NodeFiles::*draw)() noexcept,
                                                     const Begin& begin) REQUIRES(mutex_);
  Status change(const meta::FileId& file, const ShareRequest& request) REQUIRES(mutex_);
  Status have_appenders_commit(const meta::FileId& file) REQUIRES(mutex_);
  void give_up_locked(const meta::FileId& file) REQUIRES(mutex_);

  const NodeId node_;
  SharePeers& peers_;
  Mutex& mutex_;
  const ShareRules rules_;
  CondVar changed_;  // a commit or truncate has ended
  NodeShare share_ GUARDED_BY(mutex_);
  NodeFiles* files_ GUARDED_BY(mutex_) = nullptr;
  struct FixedPart {
    uint64_t drain = 0;  // steps of another one are late copies, of one that was given up
    NodeFiles::Fixed fixed;
  };
  std::map<meta::FileId, FixedPart> fixed_ GUARDED_BY(mutex_);
  struct Table {
    std::unique_ptr<const ShareAnswer> whole;  // null: nobody has asked yet
    bool too_large = false;                    // for one answer
  };
  std::map<meta::FileId, Table> tables_ GUARDED_BY(mutex_);  // of sealed files
  std::atomic<uint64_t> asked_ = 0;
  uint64_t tables_dropped_ GUARDED_BY(mutex_) = 0;
  uint64_t maps_withdrawn_ GUARDED_BY(mutex_) = 0;
};

}  // namespace swale::fs
