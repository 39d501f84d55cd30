#include "bench/shuffle.h"

#include <string>
#include <utility>

namespace swale::bench {

Shuffle::Shuffle(net::Job& job, Sink sink)
    : ConversationDriver(job), sink_(std::move(sink)), batcher_(job.size()) {
  check(join());
  conversation_ = take(net::Conversation::create(conversation_params()));
  serve(this);
  thread_ = std::thread([this] { deliver(); });
}

Shuffle::~Shuffle() {
  leave(kForever);
  thread_.join();
}

void Shuffle::append(Bytes key, Bytes value) {
  for (;;) {
    const net::Rank full = batcher_.append(key, value);
    if (full == imd::Batcher::kAccepted) return;
    const MutexLock lock(mutex_);
    conversation_->send(full, batcher_.exchange(full, {}));
    after_change();
    wait_until([&] { return conversation_->frame_available(full); });
    batcher_.exchange(full, conversation_->take_frame(full));
  }
}

void Shuffle::end_epoch() {
  const MutexLock lock(mutex_);
  for (net::Rank to = 0; to < job_.size(); ++to) {
    conversation_->send(to, batcher_.exchange(to, {}));
    const uint64_t records = batcher_.records_per_rank()[static_cast<size_t>(to)];
    if (to == job_.rank()) {
      awaited_ += records;
    } else {
      conversation_->send_control(to, std::to_string(records));
    }
  }
  conversation_->flush_credits();
  after_change();
  wait_until([this] { return ends_ == job_.size() - 1 && awaited_ == 0; });
  ends_ = 0;
  batcher_.begin_epoch();
}

void Shuffle::on_control(net::Rank /*from*/, Bytes message) {
  awaited_ += std::stoull(std::string(message));
  ++ends_;
}

void Shuffle::deliver() {
  const MutexLock lock(mutex_);
  for (;;) {
    wait_until([this]() REQUIRES(mutex_) { return !joined() || !conversation_->inbox().empty(); });
    if (!joined()) return;
    const Bytes records = conversation_->inbox().front();
    uint64_t count = 0;
    {
      const MutexUnlock unlocked(mutex_);
      count = sink_(records);
    }
    conversation_->finish_front();
    awaited_ -= count;
    after_change();
  }
}

}  // namespace swale::bench
