// KeyStage: the application's end of the shuffle in a directory of the lossy format whose keys go by three
// hops: gathers hashes of keys for all homes, and makes messages (source/key_message.h) of them when it is
// full.
//
// A frame for each home, as KeyBatcher has, would grow with the ranks. Here all hashes share one memory:
// sorted, they lie home by home, each home's in the order that its message needs, since the home is the top
// of the hash. Ranks begin with different homes, so that not all send to one at a time.
//
//   push ... full ─ make_room: sorted, and put into the frame ─► false: exchange the frame, and call again ─►
//   true: empty
//
// Threads: none of its own; the owner serialises calls. Memory: Params::bytes, taken by the constructor.
// Format of a frame: docs of Batcher (Frames::kOneForAll).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/numbers.h"
#include "net/talk/frame_pool.h"

namespace swale::imd {

// What one (hash, source) pair adds to the sum that must be equal for those that were sent and those that
// came.
uint64_t key_digest(PartitionNumber home, uint32_t source, uint64_t kept_hash);

class KeyStage {
 public:
  struct Params {
    uint32_t ranks = 1;
    PartitionNumber own = {};
    size_t bytes = 0;              // at least kBytesMin
    size_t message_bytes_max = 0;  // at least 64
  };
  static constexpr size_t kBytesMin = 64 * kKiB;
  static constexpr size_t kBytesMax = 4 * kMiB;  // sorted in some 5 ms, within one append

  explicit KeyStage(const Params& params);

  bool has_room() const { return !sending_ && used_ < hashes_.size(); }
  // Requires room. `hash`: of the key, whole.
  void push(Hash hash) { hashes_[used_++] = hash; }

  // Puts what is there into the frame if the stage is full, or goes on with that. False: needs another frame.
  bool make_room();
  // The same however little is there: for an epoch's end. The last frame is still to be taken.
  bool finish();
  // Takes the frame (data == nullptr: there was none) and lends another.
  net::Frame exchange(net::Frame next);

  // Sum of key_digest over what was put into frames since the last call.
  uint64_t take_digest();

 private:
  void sort();
  bool put_all();
  bool put_next();

  const Params params_;
  size_t keys_max_;  // of a message
  std::vector<uint64_t> hashes_;
  std::vector<uint64_t> scratch_;
  size_t used_ = 0;
  size_t at_ = 0;    // the next one, while sending; after the last one comes the first
  size_t left_ = 0;  // not sent yet
  bool sending_ = false;
  net::Frame frame_;
  uint64_t digest_ = 0;
  std::vector<uint64_t> kept_;  // of one message
  std::string message_;
};

}  // namespace swale::imd
