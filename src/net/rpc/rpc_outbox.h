// RpcOutbox: what an RpcCore has to send, by peer: calls (requests, offers, cancellations) and served
// requests (responses, grants) in the order in which they take turns. An entry knows itself what of it is to
// be sent.
//
// Threads: none; the owner serialises calls. No call but the constructor needs memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "net/fabric/per_rank.h"
#include "net/fabric/transport.h"
#include "net/rpc/rpc_format.h"
#include "net/rpc/rpc_slots.h"

namespace swale::net {

struct RpcOutgoing {
  bool is_call = false;  // an RpcCalls::Call, else an RpcServed::Entry
  Rank peer = -1;
  ListLink<RpcOutgoing> out;
};

class RpcOutbox {
 public:
  explicit RpcOutbox(int32_t size) : peers_(size), ready_(static_cast<size_t>(size)) {}

  // Appends the entry unless it waits already.
  void push(RpcOutgoing* entry) {
    Peer& to = peers_[entry->peer];
    if (!List::listed(*entry)) to.waiting.push_back(entry);
    if (to.ready) return;
    to.ready = true;
    ready_[(first_ + count_++) % ready_.size()] = entry->peer;
  }
  void remove(RpcOutgoing* entry) {
    if (List::listed(*entry)) peers_[entry->peer].waiting.remove(entry);
  }
  RpcOutgoing* front(Rank peer) const { return peers_[peer].waiting.front(); }

  // The peers that may have something to send, each once, in turn: call next_ready so many times.
  size_t ready_count() const { return count_; }
  // The next one, which stands last from now on; -1: that one has nothing.
  Rank next_ready() {
    const Rank peer = ready_[first_];
    first_ = (first_ + 1) % ready_.size();
    --count_;
    Peer& to = peers_[peer];
    if (to.waiting.empty()) {
      to.ready = false;
      return -1;
    }
    ready_[(first_ + count_++) % ready_.size()] = peer;
    return peer;
  }

 private:
  using List = LinkedList<RpcOutgoing, &RpcOutgoing::out>;
  struct Peer {
    List waiting;
    bool ready = false;  // stands in ready_
  };

  PerRank<Peer> peers_;
  std::vector<Rank> ready_;  // a ring
  size_t first_ = 0;
  size_t count_ = 0;
};

// Writes pieces into a frame.
class RpcFrameWriter {
 public:
  explicit RpcFrameWriter(MutableBytes frame) : frame_(frame) {}

  size_t used() const { return used_; }

  // How many of the `left` bytes of a message go into this frame now. A message is cut only if no frame holds
  // the rest of it. -1: none, the frame is full.
  int64_t share(size_t left) const {
    const size_t space = frame_.size() - used_;
    if (space < PieceHeader::kBytes) return -1;
    if (left <= space - PieceHeader::kBytes) return static_cast<int64_t>(left);
    if (left <= frame_.size() - PieceHeader::kBytes) return -1;
    if (space < PieceHeader::kBytes + kShareMin) return -1;
    return static_cast<int64_t>(space - PieceHeader::kBytes);
  }

  // Requires that share has granted it.
  void write(const PieceHeader& header, Bytes body) {
    header.encode(frame_.data() + used_);
    used_ += PieceHeader::kBytes;
    if (!body.empty()) std::memcpy(frame_.data() + used_, body.data(), body.size());
    used_ += body.size();
  }

 private:
  static constexpr size_t kShareMin = 256;  // of a message that is cut
  MutableBytes frame_;
  size_t used_ = 0;
};

}  // namespace swale::net
