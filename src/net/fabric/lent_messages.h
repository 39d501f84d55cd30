// LentMessages: messages whose memory is lent to a transport until it says that they are sent. A message's
// place is its cookie. Places are used again, so cookies stay small, and a message never moves while it is
// lent.
//
// Threads: none; the owner serialises calls. Errors: add throws std::bad_alloc, and has not moved the message
// then.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace swale::net {

class LentMessages {
 public:
  // Keeps the message and returns its place.
  uint32_t add(std::string&& message) {
    if (free_.empty()) {
      if (free_.capacity() <= messages_.size())
        free_.reserve(2 * messages_.size() + 8);  // release needs no memory
      messages_.push_back(std::move(message));
      return static_cast<uint32_t>(messages_.size() - 1);
    }
    const uint32_t place = free_.back();
    free_.pop_back();
    messages_[place] = std::move(message);
    return place;
  }

  Bytes bytes(uint32_t place) const { return messages_[place]; }

  // Frees the message. Returns it, for a caller that could not send it after all.
  std::string release(uint32_t place) noexcept {
    assert(place < messages_.size() && free_.size() < free_.capacity());
    std::string message = std::move(messages_[place]);
    messages_[place] = {};
    free_.push_back(place);
    return message;
  }

 private:
  std::deque<std::string> messages_;  // by place; a deque, because views of short strings must stay good
  std::vector<uint32_t> free_;
};

}  // namespace swale::net
