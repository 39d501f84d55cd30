// SharedDrain: the source of a Drain for files that several nodes write: the root of a file leads
// (docs/design/node-files.md).
//
//   prepare() ─► each node that has changed the file fixes what it has ─► the root says whose is what
//   Drain     ─► the root's node writes its own pieces; write_others(): the others theirs, at their places,
//                and sync; ─► announce(), drained(): in the log of the root
//   end()     ─► each node forgets what it had, or keeps it
//
// Threads: one drain at a time; prepare(), write_others() and end() ask other nodes: without the mutex of
// NodeFiles, which the others need. Invariants: a range is written by the node that has it last, and by no
// other; no node forgets bytes before the root has, durably.
// Errors: as NodePeers: a node that is down fails the drains of files of which it has bytes; the message
// lists its ranges.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fs/node/drain.h"
#include "fs/node/kept_roots.h"
#include "fs/node/shared_files.h"
#include "fs/peers/node_peers.h"
#include "fs/peers/peer_messages.h"
#include "fs/peers/remote_peers.h"

namespace swale::fs {

class SharedDrain final : public DrainSource {
 public:
  SharedDrain(NodePeers& peers, KeptRoots& roots, SharedFiles& shared, NodeFiles& files, Backing& backing,
              const DrainRules& rules, RemotePeers& remote)
      : peers_(peers),
        remote_(remote),
        roots_(roots),
        shared_(shared),
        files_(files),
        backing_(backing),
        rules_(rules) {}

  // `asks`: the node that wants it, `seen`: what it has seen on the backing. False: all is there.
  Result<bool> prepare(const meta::FileId& file, NodeId asks, const SeenBacking& seen) noexcept;
  // After prepare(): whether the file on the backing is what the root knows, or has announced.
  bool is_known(const Stamp& now) const;
  // After prepare(), whatever has become of it. `published`: the backing has all.
  void end(const meta::FileId& file, bool published, const TouchedDirectory& touched = {}) noexcept;
  // Of another node's drain: kFix, kWriteOut, kBrought.
  Result<std::string> answer(PeerMethod method, Bytes payload);

  Result<Fixed> fix(const meta::FileId& file) noexcept override;
  Status read_piece(const FileExtents::Piece& piece, uint64_t from, MutableBytes out) noexcept override;
  Status write_others(const meta::FileId& file, io::File& out) noexcept override;
  Status announce(std::span<const std::pair<meta::FileId, Stamp>> ours) noexcept override;
  Status drained(std::span<const Done> files) noexcept override;
  void give_up(const meta::FileId&) noexcept override {}  // end() does it

 private:
  Status fix_all(const meta::FileId& file, NodeId asks);
  Status write_out(const DrainStep& step);
  Status keep_left(const meta::FileId& file);

  NodePeers& peers_;
  RemotePeers& remote_;
  KeptRoots& roots_;
  SharedFiles& shared_;
  NodeFiles& files_;
  Backing& backing_;
  const DrainRules rules_;
  FileRoots::Drain drain_;
  std::vector<NodeId> asked_;  // to fix
  FileRoots::Plan plan_;
  std::map<NodeId, std::vector<Span>> spans_;
  SeenBacking now_;
};

}  // namespace swale::fs
