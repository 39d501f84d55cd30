#include "net/route/hop_barrier.h"

#include <bit>
#include <cassert>

#include "base/coding.h"

namespace swale::net {

bool TreeBarrier::take_up(int32_t child, uint64_t round) {
  if (!tree_.is_child(child) || round != round_) return false;
  const uint32_t bit = 1u << (child - tree_.children().front());
  if ((children_in_ & bit) != 0) return false;
  children_in_ |= bit;
  return true;
}

bool TreeBarrier::may_release(int32_t parent, uint64_t round) const {
  return !tree_.is_root() && parent == tree_.parent() && round == round_ && gathered_;
}

bool TreeBarrier::gathered() {
  if (!come_ || gathered_ || std::popcount(children_in_) < tree_.child_count()) return false;
  gathered_ = true;
  return true;
}

void TreeBarrier::release() {
  assert(gathered_);
  ++round_;
  children_in_ = 0;
  come_ = gathered_ = false;
}

int32_t TreeBarrier::missing_child() const {
  const std::vector<Rank> children = tree_.children();
  for (size_t i = 0; i < children.size(); ++i) {
    if ((children_in_ >> i & 1) == 0) return children[i];
  }
  return -1;
}

HopBarrier::HopBarrier(const NodeMap* nodes, Rank rank)
    : nodes_(nodes),
      rank_(rank),
      seat_(nodes->seat(rank)),
      node_(FanOut{seat_.local, nodes->ranks_on(seat_.node), kChildrenMax}),
      leaders_(FanOut{seat_.node, nodes->nodes(), kChildrenMax}) {}

Rank HopBarrier::rank_of(Tree tree, int32_t member) const {
  return tree == Tree::kNode ? nodes_->rank_at(seat_.node, member) : nodes_->rank_at(member, 0);
}

int32_t HopBarrier::member_of(Tree tree, Rank rank) const {
  if (rank < 0 || rank >= nodes_->ranks()) return -1;
  const Seat seat = nodes_->seat(rank);
  if (tree == Tree::kNode) return seat.node == seat_.node ? seat.local : -1;
  return seat.local == 0 && seat_.local == 0 ? seat.node : -1;
}

void HopBarrier::tell(Tree tree, int32_t member, Way way, uint64_t round) {
  std::string message;
  append_u8(&message, static_cast<uint8_t>(tree));
  append_u8(&message, static_cast<uint8_t>(way));
  append_varint(&message, round);
  outgoing_.emplace_back(rank_of(tree, member), std::move(message));
}

void HopBarrier::come(int hop) {
  hop_ = hop;
  node_.come();
  advance();
}

void HopBarrier::advance() {
  if (node_.gathered()) {
    if (!node_.tree().is_root()) {
      tell(Tree::kNode, node_.tree().parent(), Way::kUp, node_.round());
    } else if (hop_ == 2) {
      leaders_.come();
    } else {
      release(Tree::kNode);
    }
  }
  if (!leaders_.gathered()) return;
  if (leaders_.tree().is_root()) {
    release(Tree::kLeaders);
  } else {
    tell(Tree::kLeaders, leaders_.tree().parent(), Way::kUp, leaders_.round());
  }
}

void HopBarrier::release(Tree tree) {
  TreeBarrier& released = barrier(tree);
  const uint64_t round = released.round();
  released.release();
  for (const int32_t child : released.tree().children()) tell(tree, child, Way::kDown, round);
  if (tree == Tree::kLeaders) return release(Tree::kNode);
  released_ = true;
}

Status HopBarrier::on_message(Rank from, Bytes message) {
  Decoder in(message);
  const uint8_t tree = in.u8();
  const uint8_t way = in.u8();
  const uint64_t round = in.varint64();
  bool taken = in.finished() && tree <= static_cast<uint8_t>(Tree::kLeaders);
  if (taken) {
    const auto which = static_cast<Tree>(tree);
    const int32_t member = member_of(which, from);
    const bool up = way == static_cast<uint8_t>(Way::kUp);
    if (up) taken = member >= 0 && barrier(which).take_up(member, round);
    if (!up) {
      taken =
          way == static_cast<uint8_t>(Way::kDown) && member >= 0 && barrier(which).may_release(member, round);
      if (taken) release(which);
    }
  }
  if (!taken) {
    return error(Code::kCorruption, Scope::kPeer,
                 "rank {} got a message of {} bytes from rank {} that ends no hop it waits for: do all ranks "
                 "run the same version of Swale, and know the same nodes?",
                 rank_, message.size(), from);
  }
  advance();
  return ok_status();
}

Rank HopBarrier::missing() const {
  if (const int32_t child = node_.missing_child(); child >= 0) return rank_of(Tree::kNode, child);
  if (!node_.tree().is_root()) return rank_of(Tree::kNode, node_.tree().parent());
  if (hop_ != 2) return -1;
  if (const int32_t child = leaders_.missing_child(); child >= 0) return rank_of(Tree::kLeaders, child);
  return leaders_.tree().is_root() ? -1 : rank_of(Tree::kLeaders, leaders_.tree().parent());
}

}  // namespace swale::net
