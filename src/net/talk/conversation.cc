#include "net/talk/conversation.h"

#include <algorithm>
#include <utility>

#include "net/fabric/status_codec.h"

namespace swale::net {
namespace {

// Cookies: frames of the pool by their index, then messages by their place, then the news of a failure, then
// the route's.
constexpr uint64_t kMessageCookieFirst = uint64_t{1} << 31;
constexpr uint64_t kNewsCookie = kMessageCookieFirst + (uint64_t{1} << 30);
constexpr uint64_t kRouteCookieFirst = kNewsCookie + 1;

// What others are told of a rank's failure. The rank's mistake in calling stays one for everybody; of
// anything else they are only victims.
Status news_of(Rank from, const Status& failure) {
  const Code code = failure.code() == Code::kInvalidArgument ? Code::kInvalidArgument : Code::kAborted;
  return error(code, Scope::kFatal, "rank {} failed: {}", from, failure.message());
}

}  // namespace

Result<Conversation> Conversation::create(const Params& params) {
  const int32_t destinations = params.hops ? 1 : params.size;
  SWALE_ASSIGN_OR_RETURN(FramePool pool,
                         FramePool::create(destinations, params.frames_per_rank, params.frame_bytes));
  Conversation made(params, std::move(pool));
  if (!params.hops) return made;
  const ThreeHopRouter::Params route{.rank = params.rank,
                                     .nodes = params.nodes,
                                     .channel = params.channel + 1,
                                     .secret = params.secret,
                                     .hops = *params.hops};
  SWALE_ASSIGN_OR_RETURN(made.route_, ThreeHopRouter::create(route, nullptr));
  return made;
}

Conversation::Conversation(const Params& params, FramePool pool)
    : params_(params),
      pool_(std::move(pool)),
      router_({params.rank, params.size, params.channel, params.secret, params.window}) {}

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
  if (!post && route_) {
    post = route_->next_post();
    if (post && post->cookie != kNoCookie) post->cookie += kRouteCookieFirst;
  }
  if (post && post->cookie != kNoCookie) frames_lent_max_ = std::max(frames_lent_max_, ++frames_lent_);
  return post;
}

void Conversation::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  --frames_lent_;
  if (cookie < kRouteCookieFirst) return release(cookie);
  route_->on_sent(cookie - kRouteCookieFirst);
  fail(route_->failure());
}

void Conversation::flush_credits() {
  router_.flush_credits();
  if (route_) route_->flush_credits();
}

void Conversation::probe() {
  router_.probe();
  if (route_) route_->probe();
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
  if (route_ && route_->is_mine(header.channel)) {
    route_->on_frame(from, header, payload);
    fail(route_->failure());
    return Came::kNothing;
  }
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
  failure_ = theirs;
  if (!route_) return;
  route_->fail(failure_);
  owe_news(from);
  news_ = news;  // as it is: it names its origin
}

void Conversation::on_down(Rank peer, const Status& why) {
  std::vector<uint64_t> dropped;
  router_.on_down(peer, &dropped);
  release(dropped);
  if (!route_) return;
  route_->on_down(peer, why);
  fail(route_->failure());
}

void Conversation::fail(const Status& why) noexcept {
  if (!failure_.ok() || why.ok()) return;
  failure_ = why;
  if (route_) route_->fail(why);
  owe_news(-1);
}

void Conversation::owe_news(Rank but) noexcept {
  news_but_ = but;
  news_next_ = !route_ && params_.rank == 0 ? 1 : 0;
  news_end_ = route_ ? static_cast<int32_t>(route_->peers().size()) : params_.size;
}

Rank Conversation::news_peer(int32_t index) const {
  return route_ ? route_->peers()[static_cast<size_t>(index)] : index;
}

uint64_t Conversation::memory_bytes() const {
  return sizeof(*this) + router_.memory_bytes() +
         (route_ ? route_->state_bytes() + route_->buffer_bytes() : 0);
}

// Goes to all peers, directly to all ranks: where a protocol above sends along a tree, the failed rank may be
// a part of it.
void Conversation::tell_failure() {
  if (!data_abandoned_) {
    std::vector<uint64_t> dropped;
    router_.abandon_data(&dropped);
    data_abandoned_ = true;
    release(dropped);
  }
  if (owes_news() && news_.empty()) news_ = encode_status(news_of(params_.rank, failure_));
  for (; owes_news(); ++news_next_) {
    const Rank to = news_peer(news_next_);
    if (to != params_.rank && to != news_but_) router_.submit(to, FrameKind::kAbort, news_, kNewsCookie);
  }
}

uint64_t Conversation::take_frames_lent_max() { return std::exchange(frames_lent_max_, frames_lent_); }

}  // namespace swale::net
