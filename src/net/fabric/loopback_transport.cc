#include "net/fabric/loopback_transport.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <thread>

#include "base/contain.h"
#include "base/start_thread.h"
#include "net/fabric/address_book.h"
#include "net/fabric/per_rank.h"

namespace swale::net {
namespace {

struct LoopbackRegistry {
  Mutex mutex;
  uint64_t last_id GUARDED_BY(mutex) = 0;
  std::map<uint64_t, std::weak_ptr<LoopbackFabric>> fabrics GUARDED_BY(mutex);
};

LoopbackRegistry& loopback_registry() {
  static LoopbackRegistry all;
  return all;
}

}  // namespace

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackFabric> fabric, Rank rank, Posting posting)
      : fabric_(std::move(fabric)),
        port_(fabric_->port(rank)),
        rank_(rank),
        direct_(posting == Posting::kDirect),
        down_(fabric_->size()) {}
  ~LoopbackTransport() override { static_cast<void>(close(Deadline{0})); }

  std::string address() const override { return fmt::format("loopback:{}:{}", fabric_->id(), rank_); }

  Status start(std::shared_ptr<const AddressBook> book, TransportEvents* events) override {
    if (book->ranks() != down_.ranks()) {
      return invalid_argument("loopback: {} addresses for {} ranks", book->ranks(), down_.ranks());
    }
    events_ = events;
    return start_thread(&thread_, "the progress thread", [this] { run(); });
  }

  bool post(Rank to, Bytes header, Bytes payload, uint64_t cookie) override {
    assert(to != rank_ && header.size() <= kHeaderBytesMax);
    if (!fabric_->cut_flag(rank_, to).load(std::memory_order_relaxed)) {
      fabric_->deliver(to, {Item::What::kFrame, rank_, 0, std::string(header), std::string(payload), {}});
    }
    if (direct_) return true;
    // The payload was copied: without memory for the news it is free all the same.
    return !contain([&] { fabric_->deliver(rank_, {Item::What::kSent, to, cookie, {}, {}, {}}); }).ok();
  }

  void wake() override {
    const MutexLock lock(port_.mutex);
    port_.woken = true;
    port_.changed.notify_one();
  }

  void drop(Rank peer, const Status& why) override {
    fabric_->deliver(rank_, {Item::What::kDown, peer, 0, {}, {}, why});
  }

  // Frames posted to us stand in our inbox already, and ours in the inboxes of others: nothing to wait for.
  Status close(Deadline) override {
    {
      const MutexLock lock(port_.mutex);
      port_.closed = true;
      port_.changed.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    return ok_status();
  }

 private:
  using Item = LoopbackFabric::Item;

  void run() {
    Nanos next = 0;
    bool open = true;
    while (open) {
      const Status status = contain([&] { open = turn(&next); });
      if (!status.ok()) events_->on_failure(status);
    }
  }

  // False: the last one.
  bool turn(Nanos* next) {
    const bool open = wait(*next);
    while (!taken_.empty()) {
      const Item item = std::move(taken_.front());
      taken_.pop_front();
      handle(item);
    }
    if (open) *next = events_->on_progress(system_clock().now());
    return open;
  }

  // Takes what has arrived, waiting for it until `next` at most. False once the port is closed or dead.
  bool wait(Nanos next) {
    const MutexLock lock(port_.mutex);
    const auto something = [&]() REQUIRES(port_.mutex) {
      return !port_.inbox.empty() || port_.woken || port_.closed || port_.dead;
    };
    if (next == kForever) {
      port_.changed.wait(lock, something);
    } else {
      port_.changed.wait_for(lock, std::max<Nanos>(0, next - system_clock().now()), something);
    }
    port_.woken = false;
    if (port_.dead) return false;
    taken_.swap(port_.inbox);
    return !port_.closed;
  }

  void handle(const Item& item) {
    switch (item.what) {
      case Item::What::kFrame:
        if (!down_[item.peer]) events_->on_frame(item.peer, item.header, item.payload);
        break;
      case Item::What::kSent:
        events_->on_sent(item.cookie);
        break;
      case Item::What::kDown:
        if (down_[item.peer]) break;
        down_[item.peer] = true;
        events_->on_down(item.peer, item.why);
        break;
    }
  }

  const std::shared_ptr<LoopbackFabric> fabric_;
  LoopbackFabric::Port& port_;
  const Rank rank_;
  const bool direct_;
  TransportEvents* events_ = nullptr;
  std::thread thread_;
  std::deque<Item> taken_;  // progress thread only
  PerRank<bool> down_;      // progress thread only
};

LoopbackFabric::LoopbackFabric(int32_t size, uint64_t id)
    : size_(size),
      id_(id),
      ports_(static_cast<size_t>(size)),
      cut_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

std::shared_ptr<LoopbackFabric> LoopbackFabric::create(int32_t size) {
  LoopbackRegistry& all = loopback_registry();
  const MutexLock lock(all.mutex);
  std::shared_ptr<LoopbackFabric> fabric(new LoopbackFabric(size, ++all.last_id));
  all.fabrics[fabric->id()] = fabric;
  return fabric;
}

std::shared_ptr<LoopbackFabric> LoopbackFabric::find(uint64_t id) {
  LoopbackRegistry& all = loopback_registry();
  const MutexLock lock(all.mutex);
  const auto found = all.fabrics.find(id);
  return found == all.fabrics.end() ? nullptr : found->second.lock();
}

LoopbackFabric::~LoopbackFabric() {
  LoopbackRegistry& all = loopback_registry();
  const MutexLock lock(all.mutex);
  all.fabrics.erase(id_);
}

std::unique_ptr<Transport> LoopbackFabric::transport(Rank rank, Posting posting) {
  assert(rank >= 0 && rank < size_);
  return std::make_unique<LoopbackTransport>(shared_from_this(), rank, posting);
}

void LoopbackFabric::deliver(Rank to, Item item) {
  Port& target = port(to);
  const MutexLock lock(target.mutex);
  if (target.dead || target.closed) return;
  target.inbox.push_back(std::move(item));
  target.changed.notify_one();
}

void LoopbackFabric::kill(Rank rank) {
  {
    const MutexLock lock(port(rank).mutex);
    port(rank).dead = true;
    port(rank).changed.notify_one();
  }
  for (Rank each = 0; each < size_; ++each) {
    if (each == rank) continue;
    deliver(each, {Item::What::kDown,
                   rank,
                   0,
                   {},
                   {},
                   error(Code::kUnavailable, Scope::kPeer, "rank {} is gone (loopback: killed)", rank)});
  }
}

void LoopbackFabric::cut(Rank a, Rank b) {
  cut_flag(a, b).store(true, std::memory_order_relaxed);
  cut_flag(b, a).store(true, std::memory_order_relaxed);
}

}  // namespace swale::net
