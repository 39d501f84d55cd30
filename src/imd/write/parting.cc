#include "imd/write/parting.h"

#include "imd/write/epoch_protocol.h"

namespace swale::imd {

Parting::Parting(net::Rank rank, int32_t size, Words words)
    : tree_{rank, size, EpochProtocol::kRoutedChildrenMax}, words_(words) {
  if (words == Words::kByTree) {
    for (const net::Rank each : tree_.neighbours()) peers_.meet(each);
    return;
  }
  for (net::Rank each = 0; each < size; ++each) {
    if (each != rank) peers_.meet(each);
  }
}

void Parting::tell(net::Rank to, CloseWord word, const net::CallStamp& call) {
  outgoing_.emplace_back(to, encode(CloseMessage{call, word}));
}

void Parting::begin(const net::CallStamp& call) {
  begun_ = true;
  ++came_;
  for (const net::Rank to : peers_.met()) tell(to, CloseWord::kComes, call);
  advance();
}

void Parting::advance() {
  if (over_ || !begun_) return;
  if (words_ == Words::kEachToEach) {
    over_ = came_ == expected();
    return;
  }
  if (subtrees_ < tree_.child_count()) return;
  if (tree_.is_root()) {
    over_ = true;
    for (const net::Rank child : tree_.children()) tell(child, CloseWord::kEverybody);
  } else if (!std::exchange(told_parent_, true)) {
    tell(tree_.parent(), CloseWord::kAllBelow);
  }
}

Status Parting::on_message(net::Rank from, const CloseMessage& message) {
  Peer* const peer = peers_.find(from);
  bool taken = false;
  if (peer != nullptr && message.word == CloseWord::kComes) {
    taken = !std::exchange(peer->came, true);
    if (taken) ++came_;
  } else if (peer != nullptr && words_ == Words::kByTree && message.word == CloseWord::kAllBelow) {
    taken = tree_.is_child(from) && peer->came && !std::exchange(peer->all_below, true);
    if (taken) ++subtrees_;
  } else if (peer != nullptr && words_ == Words::kByTree) {
    taken = told_parent_ && !over_ && !tree_.is_root() && from == tree_.parent();
    if (taken) {
      over_ = true;
      for (const net::Rank child : tree_.children()) tell(child, CloseWord::kEverybody);
    }
  }
  if (!taken) {
    return error(Code::kCorruption, Scope::kPeer,
                 "rank {} closed twice, or told rank {} of others what it cannot know", from, tree_.rank);
  }
  advance();
  return {};
}

std::string Parting::waiting_for() const {
  for (const net::Rank each : peers_.met()) {
    if (!peers_.find(each)->came)
      return fmt::format("rank {} to close the directory ({} of {} ranks that tell it have)", each, came_ - 1,
                         expected() - 1);
  }
  for (const net::Rank child : tree_.children()) {
    if (!over_ && !peers_.find(child)->all_below)
      return fmt::format("ranks below rank {} to close the directory", child);
  }
  return "ranks further away to close the directory";
}

}  // namespace swale::imd
