#include "bench/shuffle.h"

#include <optional>
#include <utility>
#include <variant>

#include "bench/writer_job.h"
#include "imd/format/messages.h"

namespace swale::bench {
namespace {

constexpr uint64_t kControlCookieFirst = uint64_t{1} << 32;

}  // namespace

Shuffle::Shuffle(net::Job& job, Sink sink)
    : job_(job),
      sink_(std::move(sink)),
      batcher_(job.size()),
      pool_(take(imd::FramePool::create(job.size(), 1 + kWindow, kFrameBytes))),
      router_({job.rank(), job.size(), 0, job.secret(), kWindow}),
      next_control_(kControlCookieFirst) {
  channel_ = job_.open_channel(this);
  {
    const std::lock_guard lock(mutex_);
    router_ = net::Router({job.rank(), job.size(), channel_, job.secret(), kWindow});
  }
  thread_ = std::thread([this] { deliver(); });
}

Shuffle::~Shuffle() {
  {
    Lock lock(mutex_);
    changed_.wait(lock, [this] { return router_.idle() && lent_ == 0; });
  }
  job_.close_channel(channel_);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Shuffle::append(Bytes key, Bytes value) {
  for (;;) {
    const net::Rank full = batcher_.append(key, value);
    if (full == imd::Batcher::kAccepted) return;
    replace_frame(full);
  }
}

void Shuffle::replace_frame(net::Rank destination) {
  {
    const std::lock_guard lock(mutex_);
    submit(destination, batcher_.exchange(destination, {}));
  }
  send_ready();
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return pool_.available(destination); });
  batcher_.exchange(destination, pool_.take(destination));
}

void Shuffle::submit(net::Rank destination, const imd::Frame& frame) {
  if (frame.data == nullptr) return;
  if (frame.bytes == 0) return pool_.give_back(frame.index);
  if (destination == job_.rank()) {
    queue_.push_back({destination, {}, frame});
    changed_.notify_all();
  } else {
    router_.submit(destination, net::FrameKind::kData, {frame.data, frame.bytes}, frame.index);
  }
}

void Shuffle::end_epoch() {
  {
    const std::lock_guard lock(mutex_);
    for (net::Rank to = 0; to < job_.size(); ++to) {
      submit(to, batcher_.exchange(to, {}));
      const uint64_t records = batcher_.records_per_rank()[static_cast<size_t>(to)];
      if (to == job_.rank()) {
        expected_ += records;
        continue;
      }
      const uint64_t cookie = next_control_++;
      const std::string& payload =
          control_.emplace(cookie, imd::encode(imd::EndMessage{0, records})).first->second;
      router_.submit(to, net::FrameKind::kControl, payload, cookie);
    }
    router_.flush_credits();
  }
  send_ready();
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return ends_ == job_.size() - 1 && delivered_ == expected_; });
  ends_ = 0;
  delivered_ = expected_ = 0;
  batcher_.begin_epoch();
}

void Shuffle::on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) {
  {
    const std::lock_guard lock(mutex_);
    check(router_.on_frame(from, header));
    if (header.kind == net::FrameKind::kData) {
      queue_.push_back({from, std::string(payload), {}});
    } else if (header.kind == net::FrameKind::kControl) {
      const imd::Message message = take(imd::decode_message(payload, from));
      const auto* end = std::get_if<imd::EndMessage>(&message);
      if (end == nullptr) die("an unexpected message");
      expected_ += end->records;
      ++ends_;
    }
  }
  changed_.notify_all();
}

void Shuffle::deliver() {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Delivery next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const bool mine = next.from == job_.rank();
    const uint64_t records = sink_(mine ? Bytes(next.own.data, next.own.bytes) : Bytes(next.bytes));
    lock.lock();
    delivered_ += records;
    if (mine) {
      pool_.give_back(next.own.index);
    } else {
      router_.consumed(next.from);
    }
    changed_.notify_all();
    lock.unlock();
    send_ready();
    lock.lock();
  }
}

void Shuffle::release(uint64_t cookie) {
  if (cookie == net::kNoCookie) return;
  --lent_;
  if (cookie < kControlCookieFirst) {
    pool_.give_back(static_cast<uint32_t>(cookie));
  } else {
    control_.erase(cookie);
  }
}

void Shuffle::on_sent(uint64_t cookie) {
  {
    const std::lock_guard lock(mutex_);
    release(cookie);
  }
  changed_.notify_all();
}

void Shuffle::on_down(net::Rank peer, const Status& why) {
  die("rank " + std::to_string(peer) + " is down: " + why.to_string());
}

void Shuffle::on_failure(const Status& why) { die(why.to_string()); }

Nanos Shuffle::on_progress(Nanos now) {
  post_ready();
  return now + seconds(1);
}

void Shuffle::send_ready() {
  if (job_.size() == 1) return;
  if (job_.posts_directly()) {
    post_ready();
  } else {
    job_.wake();
  }
}

void Shuffle::post_ready() {
  post_turns_.take([this] { return post_some(); });
}

bool Shuffle::post_some() {
  std::optional<net::Post> post;
  {
    const std::lock_guard lock(mutex_);
    post = router_.next_post();
    if (!post) return false;
    if (post->cookie != net::kNoCookie) ++lent_;
  }
  if (job_.post(channel_, *post)) {
    {
      const std::lock_guard lock(mutex_);
      release(post->cookie);
    }
    changed_.notify_all();
  }
  return true;
}

}  // namespace swale::bench
