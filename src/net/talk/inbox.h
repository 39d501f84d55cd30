// Inbox: data that has come to this rank and waits to be read, in order: copies of frames from the wire, and
// frames that this rank sent to itself. Credits bound it to `window` frames per peer, and the pool to its
// frames for this rank.
//
// Threads: none; the owner serialises calls. What front() views stays where it is while others push.
// Errors: push throws std::bad_alloc and has done nothing then.
#pragma once

#include <deque>
#include <iterator>
#include <string>
#include <utility>

#include "net/fabric/transport.h"
#include "net/talk/frame_pool.h"

namespace swale::net {

class Inbox {
 public:
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }

  // A copy of what has come from a peer.
  void push(Rank from, Bytes payload) { items_.push_back({from, std::string(payload), {}, 0}); }
  // A frame of this rank's own.
  void push_own(Rank self, const Frame& frame) { items_.push_back({self, {}, frame, 0}); }
  // Everything of `later`, after what is here.
  void append(Inbox* later) {
    items_.insert(items_.end(), std::make_move_iterator(later->items_.begin()),
                  std::make_move_iterator(later->items_.end()));
    later->items_.clear();
  }

  // The oldest one: who sent it, and what of it is not read yet.
  Rank from() const { return items_.front().from; }
  Bytes front() const { return items_.front().bytes().substr(items_.front().read); }
  void advance(size_t bytes) { items_.front().read += bytes; }  // so many bytes of it have been read
  // Removes it; returns its frame if it is one of this rank's own, else a frame without data.
  Frame pop() {
    const Frame own = items_.front().own;
    items_.pop_front();
    return own;
  }

 private:
  struct Item {
    Rank from;
    std::string copy;  // of a frame from the wire
    Frame own;         // else
    size_t read;

    Bytes bytes() const { return own.data != nullptr ? own.payload() : Bytes(copy); }
  };

  std::deque<Item> items_;
};

}  // namespace swale::net
