// Shuffle: the library's route from those who append to the keys' home ranks (Batcher, frames, Router, window) with
// something else behind it than a Partition: a delivery queue and a thread that feeds a sink. For stores that have no
// shuffle of their own (deltafs-scaling-2018, Fig. 8: "ldb+sh").
//
// Threads: append and end_epoch by one thread; the sink is called by the delivery thread, one frame at a time. The
// caller must see to it (a barrier) that no rank appends before all have made theirs, and none to the next epoch before
// end_epoch has returned on all.
// Errors: die().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "imd/write/batcher.h"
#include "imd/write/frame_pool.h"
#include "net/job.h"
#include "net/post_turns.h"
#include "net/router.h"

namespace swale::bench {

class Shuffle final : public net::ChannelEvents {
 public:
  static constexpr size_t kFrameBytes = 32 * kKiB;
  static constexpr uint16_t kWindow = 4;
  // What it holds at most, of `ranks` ranks: frames being filled and on their way, and the delivery queue.
  static size_t memory_bytes(int ranks) {
    return static_cast<size_t>(ranks) * kFrameBytes * (1 + 2 * kWindow);
  }

  // Whole encoded records (run/record.h). Returns how many.
  using Sink = std::function<uint64_t(Bytes records)>;
  Shuffle(net::Job& job, Sink sink);
  ~Shuffle() override;

  void append(Bytes key, Bytes value);
  // Returns when the sink has had all records of the epoch whose home is this rank.
  void end_epoch();

  void on_frame(net::Rank from, const net::FrameHeader& header, Bytes payload) override;
  void on_sent(uint64_t cookie) override;
  void on_down(net::Rank peer, const Status& why) override;
  void on_failure(const Status& why) override;
  Nanos on_progress(Nanos now) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Delivery {
    net::Rank from;
    std::string bytes;  // of a frame from the wire
    imd::Frame own;     // of this rank
  };

  void replace_frame(net::Rank destination);
  void submit(net::Rank destination, const imd::Frame& frame);
  void post_ready();
  bool post_some();
  void send_ready();
  void deliver();
  void release(uint64_t cookie);

  net::Job& job_;
  const Sink sink_;
  imd::Batcher batcher_;
  uint32_t channel_ = 0;

  net::PostTurns post_turns_;  // before mutex_
  std::mutex mutex_;           // guards what follows
  std::condition_variable changed_;
  imd::FramePool pool_;
  net::Router router_;
  std::deque<Delivery> queue_;
  std::map<uint64_t, std::string> control_;  // by cookie, until sent
  uint64_t next_control_;
  uint64_t lent_ = 0;  // posts whose memory the transport has
  uint64_t delivered_ = 0;
  uint64_t expected_ = 0;
  int ends_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace swale::bench
