#include "fs/job/undrained_elsewhere.h"

#include <numeric>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"

namespace swale::fs {
namespace {

constexpr Nanos kPatience = seconds(1);

}  // namespace

std::string UndrainedElsewhere::answer(uint64_t bytes) {
  std::string text;
  append_u64(&text, bytes);
  return text;
}

uint64_t UndrainedElsewhere::bytes() {
  MutexLock lock(mutex_);
  if (!asking_ && system_clock().now() >= good_until_) {
    asking_ = true;
    lock.unlock();
    const Status asked = contain([this] { ask(); });
    if (!asked.ok()) log_debug("{}", asked.message());
    lock.lock();
    good_until_ = system_clock().now() + age_;
    asking_ = false;
  }
  return std::accumulate(bytes_.begin(), bytes_.end(), uint64_t{0});
}

void UndrainedElsewhere::ask() {
  std::vector<NodeId> others;
  for (NodeId node = 0; node < peers_.nodes(); ++node)
    if (node != peers_.own()) others.push_back(node);
  const auto told = peers_.call_all(others, PeerMethod::kUndrained, "", kSmallAnswer,
                                    "how much is not on the backing", kPatience);
  const MutexLock lock(mutex_);
  bytes_.resize(peers_.nodes());
  for (size_t i = 0; i < told.size(); ++i) {
    if (!told[i].ok()) {
      log_debug("{}", told[i].status().message());
      continue;
    }
    Decoder in(*told[i]);
    const uint64_t bytes = in.u64();
    if (in.ok()) bytes_[others[i]] = bytes;
  }
}

}  // namespace swale::fs
