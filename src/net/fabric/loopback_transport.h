// Loopback: a Transport between threads of one process, with faults on demand. The fabric of tests and of the
// "loopback" option; it keeps the promises of transport.h, so what runs on it runs on UCX.
//
// Frames are copied at post, as an eager fabric does: a sender without credits fills the receiver's memory
// here too. Threads: LoopbackFabric's calls by any thread. Limits: one process.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/fabric/transport.h"

namespace swale::net {

class LoopbackFabric : public std::enable_shared_from_this<LoopbackFabric> {
 public:
  static std::shared_ptr<LoopbackFabric> create(int32_t size);
  // A living fabric by its number: how the ranks of a "loopback" job find the one that rank 0 made.
  static std::shared_ptr<LoopbackFabric> find(uint64_t id);

  ~LoopbackFabric();
  uint64_t id() const { return id_; }
  int32_t size() const { return size_; }

  // Once per rank. With kDirect, payloads are free when post returns; they are copied in either case.
  std::unique_ptr<Transport> transport(Rank rank, Posting posting = Posting::kQueue);

  // The rank stops dead: it makes no event any more, frames to it vanish, all others get on_down.
  void kill(Rank rank);
  // Frames between the two vanish, in both directions, and nobody is told.
  void cut(Rank a, Rank b);
  // A frame that `from` has not sent reaches `to`: somebody else's, or one that the way has changed.
  void inject(Rank from, Rank to, std::string header, std::string payload) {
    deliver(to, {Item::What::kFrame, from, 0, std::move(header), std::move(payload), {}});
  }

 private:
  friend class LoopbackTransport;
  struct Item {
    enum class What { kFrame, kSent, kDown } what;
    Rank peer = -1;
    uint64_t cookie = 0;
    std::string header;
    std::string payload;
    Status why;
  };
  struct Port {
    Mutex mutex;
    CondVar changed;
    std::deque<Item> inbox GUARDED_BY(mutex);
    bool woken GUARDED_BY(mutex) = false;
    bool closed GUARDED_BY(mutex) = false;
    bool dead GUARDED_BY(mutex) = false;
  };

  LoopbackFabric(int32_t size, uint64_t id);
  void deliver(Rank to, Item item);
  std::atomic<bool>& cut_flag(Rank a, Rank b) {
    return cut_[static_cast<size_t>(a) * static_cast<size_t>(size_) + static_cast<size_t>(b)];
  }
  Port& port(Rank rank) { return ports_[static_cast<size_t>(rank)]; }

  const int32_t size_;
  const uint64_t id_;
  std::deque<Port> ports_;
  std::deque<std::atomic<bool>> cut_;
};

}  // namespace swale::net
