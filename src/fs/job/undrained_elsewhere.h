// UndrainedElsewhere: how many bytes the other nodes have that the backing has not, as each has said last.
//
// Threads: any; one asks, others take what is known. Limits: a node that does not answer within a second
// counts as before.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "fs/peers/node_peers.h"

namespace swale::fs {

class UndrainedElsewhere {
 public:
  // `age`: how long an answer is good enough.
  UndrainedElsewhere(NodePeers& peers, Nanos age) : peers_(peers), age_(age) {}

  uint64_t bytes();
  static std::string answer(uint64_t bytes);  // of a node: kUndrained

 private:
  void ask();

  NodePeers& peers_;
  const Nanos age_;
  Mutex mutex_;
  bool asking_ GUARDED_BY(mutex_) = false;
  Nanos good_until_ GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> bytes_ GUARDED_BY(mutex_);  // by node
};

}  // namespace swale::fs
