// Shuffle: the library's route from those who append to the keys' home ranks (Batcher, Conversation) with
// something else behind it than a Partition: a thread that feeds a sink from the conversation's inbox. For
// stores that have no shuffle of their own (deltafs-scaling-2018, Fig. 8: "ldb+sh").
//
// Threads: append and end_epoch by one thread; the sink is called by the delivery thread, one frame at a
// time. The caller must see to it (a barrier) that no rank appends before all have made theirs, and none to
// the next epoch before end_epoch has returned on all.
// Errors: die().
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "bench/writer_job.h"
#include "imd/write/batcher.h"
#include "net/talk/conversation_driver.h"

namespace swale::bench {

class Shuffle final : private net::ConversationDriver, private net::Participant {
 public:
  // What it holds at most, of `ranks` ranks: frames being filled and on their way, and the inbox.
  static size_t memory_bytes(int ranks) {
    const net::Conversation::Params usual;
    return static_cast<size_t>(ranks) * usual.frame_bytes * (usual.frames_per_rank + usual.window);
  }

  // Whole encoded records (run/record.h). Returns how many.
  using Sink = std::function<uint64_t(Bytes records)>;
  Shuffle(net::Job& job, Sink sink);
  ~Shuffle() override;

  void append(Bytes key, Bytes value);
  // Returns when the sink has had all records of the epoch whose home is this rank.
  void end_epoch();

 private:
  net::Conversation& conversation() override { return *conversation_; }
  void on_control(net::Rank from, Bytes message) override;
  void on_failed(const Status& why) override { die(why.to_string()); }
  void deliver();

  const Sink sink_;
  imd::Batcher batcher_;
  std::optional<net::Conversation> conversation_;
  // records promised to this rank, less those delivered; wraps while promises are late
  uint64_t awaited_ = 0;
  int ends_ = 0;  // peers whose promise is in
  std::thread thread_;
};

}  // namespace swale::bench
