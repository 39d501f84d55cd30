#include "net/conversation.h"

#include <algorithm>
#include <utility>

#include "net/status_codec.h"

namespace swale::net {
namespace {

// Cookies: frames of the pool by their index, then messages by their place, then the news of a failure.
constexpr uint64_t kMessageCookieFirst = uint64_t{1} << 31;
constexpr uint64_t kNewsCookie = kMessageCookieFirst + (uint64_t{1} << 30);

// The sender's mistake in calling stays one for everybody; of anything else this rank is only a victim.
Status news_of(Rank from, const Status& theirs) {
  const Code code = theirs.code() == Code::kInvalidArgument ? Code::kInvalidArgument : Code::kAborted;
  return error(code, Scope::kFatal, "rank {} failed: {}", from, theirs.message());
}

}  // namespace

Result<Conversation> Conversation::create(const Params& params) {
  SWALE_ASSIGN_OR_RETURN(FramePool pool,
                         FramePool::create(params.size, params.frames_per_rank, params.frame_bytes));
  return Conversation(params, std::move(pool));
}

Conversation::Conversation(const Params& params, FramePool pool)
    : params_(params),
      pool_(std::move(pool)),
      router_({params.rank, params.size, params.channel, params.secret, params.window}),
      news_next_(params.size) {}

void Conversation::send(Rank to, const Frame& frame) {
  if (frame.bytes == 0) {
    if (frame.data != nullptr) pool_.give_back(frame.index);
  } else if (to == params_.rank) {
    inbox_.push_own(to, frame);
  } else {
    router_.submit(to, FrameKind::kData, frame.payload(), frame.index);
  }
}

void Conversation::finish_front() {
  const Rank from = inbox_.from();
  const Frame own = inbox_.pop();
  own.data != nullptr ? pool_.give_back(own.index) : consumed(from);
}

void Conversation::send_control(Rank to, std::string message) {
  const uint32_t place = messages_.add(std::move(message));
  try {
    router_.submit(to, FrameKind::kControl, messages_.bytes(place), kMessageCookieFirst + place);
  } catch (...) {
    messages_.release(place);
    throw;
  }
}

std::optional<Post> Conversation::next_post() {
  if (!failure_.ok()) tell_failure();
  std::optional<Post> post = router_.next_post();
  if (post && post->cookie != kNoCookie) frames_lent_max_ = std::max(frames_lent_max_, ++frames_lent_);
  return post;
}

void Conversation::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  --frames_lent_;
  release(cookie);
}

void Conversation::release(uint64_t cookie) {
  if (cookie < kMessageCookieFirst) {
    pool_.give_back(static_cast<uint32_t>(cookie));
  } else if (cookie < kNewsCookie) {
    messages_.release(static_cast<uint32_t>(cookie - kMessageCookieFirst));
  }
}

void Conversation::release(const std::vector<uint64_t>& cookies) {
  for (const uint64_t cookie : cookies) release(cookie);
}

Conversation::Came Conversation::on_frame(Rank from, const FrameHeader& header, Bytes payload) {
  if (const Status status = router_.on_frame(from, header); !status.ok()) {
    fail(status);
    return Came::kNothing;
  }
  if (!failure_.ok()) return Came::kNothing;  // peers have been told, or will be
  switch (header.kind) {
    case FrameKind::kData:
      return Came::kData;
    case FrameKind::kControl:
      return Came::kControl;
    case FrameKind::kAbort:
      hear_news(from, payload);
      break;
    default:
      break;
  }
  return Came::kNothing;
}

void Conversation::hear_news(Rank from, Bytes news) {
  Status theirs;
  if (const Status read = decode_status(news, &theirs); !read.ok() || theirs.ok())
    return fail(error(Code::kCorruption, Scope::kPeer, "rank {} sent malformed news of a failure ({} bytes)",
                      from, news.size()));
  failure_ = news_of(from, theirs);
}

void Conversation::on_down(Rank peer) {
  std::vector<uint64_t> dropped;
  router_.on_down(peer, &dropped);
  release(dropped);
}

void Conversation::fail(const Status& why) noexcept {
  if (!failure_.ok() || why.ok()) return;
  failure_ = why;
  news_next_ = params_.rank == 0 ? 1 : 0;
}

// Goes straight to everybody: where a protocol above sends along a tree, the failed rank may be a part of it.
void Conversation::tell_failure() {
  if (!data_abandoned_) {
    std::vector<uint64_t> dropped;
    router_.abandon_data(&dropped);
    data_abandoned_ = true;
    release(dropped);
  }
  if (owes_news() && news_.empty()) news_ = encode_status(failure_);
  for (; owes_news(); ++news_next_) {
    if (news_next_ != params_.rank) router_.submit(news_next_, FrameKind::kAbort, news_, kNewsCookie);
  }
}

uint64_t Conversation::take_frames_lent_max() { return std::exchange(frames_lent_max_, frames_lent_); }

}  // namespace swale::net
