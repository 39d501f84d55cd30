// Participant: a passive machine that talks in a Conversation: the writer of a massive directory, Rpc, a
// benchmark's shuffle. A ConversationDriver or the simulation feeds it events and posts what its conversation
// has to say.
//
// Threads: none; the driver serialises calls. Errors: a call may throw for want of memory; the driver then
// calls fail.
#pragma once

#include "net/talk/conversation.h"

namespace swale::net {

class Participant {
 public:
  virtual ~Participant() = default;

  virtual Conversation& conversation() = 0;
  // A frame of the channel. As it stands here, data waits in the conversation's inbox; to read it at once,
  // override this and call Conversation::on_frame first.
  virtual void on_frame(Rank from, const FrameHeader& header, Bytes payload) {
    const Conversation::Came came = conversation().on_frame(from, header, payload);
    if (came == Conversation::Came::kData) conversation().keep(from, payload);
    if (came == Conversation::Came::kControl) on_control(from, payload);
  }
  virtual void on_control(Rank from, Bytes message) = 0;
  virtual void on_down(Rank peer, const Status& why) {
    conversation().on_down(peer, why);
    fail(why);
  }
  virtual void fail(const Status& why) { conversation().fail(why); }
  // Before posts are taken from the conversation: a participant that fills frames as late as can be does so
  // now.
  virtual void before_posts() {}
  // About once a second.
  virtual void tick() { conversation().probe(); }
};

}  // namespace swale::net
