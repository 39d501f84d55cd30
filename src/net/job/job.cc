#include "net/job/job.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/contain.h"
#include "base/log.h"
#include "base/patience.h"
#include "net/fabric/liveness.h"
#include "net/meeting/exchange.h"

namespace swale::net {
namespace {

constexpr int kCookieBits = 32;
constexpr uint64_t kCookieMask = (uint64_t{1} << kCookieBits) - 1;
constexpr uint32_t kOwnChannel = 0;
constexpr Nanos kCollectiveDeadlinePerRank = milliseconds(10);
constexpr Nanos kPatienceInMismatch = seconds(1);  // so that the goodbye arrives, which tells the peers
// channel and cookie share 64 bits, and kNoCookie is none of them
constexpr uint32_t kChannelMax = 0xfffffffe;

}  // namespace

Job::Job(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options)
    : options_(options), bootstrap_(std::move(bootstrap)), calls_(bootstrap_->rank()) {}

// ---- opening

Status Job::start_transport() {
  SWALE_ASSIGN_OR_RETURN(JoinedTransport joined, make_transport(*bootstrap_, options_, meeting_));
  Liveness::Params params;
  params.rank = rank();
  params.size = size();
  params.host_of = [book = joined.book](Rank peer) { return book->host_of(peer); };
  params.heartbeat_interval = options_.heartbeat_interval;
  params.silence_deadline = options_.silence_deadline;
  liveness_ = std::make_unique<Liveness>(std::move(params));
  make_exchange();
  transport_ = std::move(joined.transport);
  return transport_->start(std::move(joined.book), this);
}

void Job::make_exchange() {
  exchange_ = std::make_unique<Exchange>(
      rank(), size(), options_.collective_deadline + size() * kCollectiveDeadlinePerRank,
      Exchange::Fabric{.post =
                           [this](Rank to, Bytes message, uint64_t cookie) {
                             liveness_->note_sent(to);
                             return post_own(to, FrameKind::kExchange, message, cookie);
                           },
                       .watch =
                           [this](Rank peer) {
                             liveness_->note_sent(peer);
                             post_own(peer, FrameKind::kHeartbeat);
                           }});
}

Status Job::start() {
  if (options_.heartbeat_interval <= 0 || options_.silence_deadline < 2 * options_.heartbeat_interval) {
    return invalid_argument(
        "net.silence_deadline_s = {:g} with net.heartbeat_interval_s = {:g}: it must be at least twice as "
        "long",
        to_seconds(options_.silence_deadline), to_seconds(options_.heartbeat_interval));
  }
  SWALE_ASSIGN_OR_RETURN(meeting_, meet(*bootstrap_, options_));
  return size() == 1 ? ok_status() : start_transport();
}

Result<std::vector<std::string>> Job::allgather(Bytes mine) {
  if (size() == 1) return std::vector<std::string>{std::string(mine)};
  if (closed_) return error(Code::kAborted, Scope::kFatal, "rank {} has closed this job", rank());
  return exchange_->allgather(mine);
}

Result<std::string> Job::least(Bytes mine) {
  if (size() == 1) return std::string(mine);
  if (closed_) return error(Code::kAborted, Scope::kFatal, "rank {} has closed this job", rank());
  return exchange_->least(mine);
}

Result<std::map<Rank, std::string>> Job::given(Bytes mine) {
  if (size() > 1 && closed_)
    return error(Code::kAborted, Scope::kFatal, "rank {} has closed this job", rank());
  if (size() > 1) return exchange_->given(mine);
  return mine.empty() ? std::map<Rank, std::string>() : std::map<Rank, std::string>{{0, std::string(mine)}};
}

// ---- the order of calls, and the end of all conversations

Status Job::begin_call(CallKind kind, std::string_view path) {
  if (size() == 1) return {};
  if (failed_.load()) return failure();
  Status status = calls_.begin(kind, path);
  if (!status.ok()) give_up(status);
  return status;
}

Status Job::begin_call(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path,
                       CallStamp* stamp) {
  if (size() == 1) return {};
  if (failed_.load()) return failure();
  Status status = calls_.begin(channel, kind, epoch, path, stamp);
  if (!status.ok()) give_up(status);
  return status;
}

void Job::heard_call(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch, const CallStamp& stamp) {
  if (const Status status = calls_.heard(peer, channel, kind, epoch, stamp); !status.ok()) give_up(status);
}

// The progress thread tells the conversations: the caller may hold any lock.
void Job::give_up(const Status& why) noexcept {
  {
    const MutexLock lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
  }
  failed_.store(true);
  parted_.notify_all();
  wake();
}

Status Job::failure() {
  const MutexLock lock(failure_mutex_);
  return failure_;
}

void Job::tell_failure() {
  const Status why = failure();
  for (auto& [number, channel] : channels_) {
    if (channel.events == nullptr || std::exchange(channel.failure_told, true)) continue;
    channel.events->on_failure(why);
  }
}

// Frames of the job's own carry the sender's last call of the job, where those of a channel carry sequence
// number and credits.
void Job::hear_call_of(Rank from, const FrameHeader& header) {
  const Status status = calls_.heard(from, header.sequence, static_cast<CallKind>(header.credits));
  if (!status.ok()) give_up(status);
}

// ---- channels

Result<uint32_t> Job::open_channel(ChannelEvents* events, uint32_t numbers) {
  const MutexLock lock(events_mutex_);
  if (next_channel_ > kChannelMax - numbers + 1) {
    return error(Code::kResourceExhausted, Scope::kFatal,
                 "rank {}: this job has opened {} directories, and can open no more; start another job",
                 rank(), kChannelMax);
  }
  const uint32_t number = std::exchange(next_channel_, next_channel_ + numbers);
  calls_.add_channel(number);
  Channel& channel = channels_[number];  // may be there already, with early frames
  channel.events = events;
  channel.numbers = numbers;
  if (const Status status = contain([&]() REQUIRES(events_mutex_) { collect_early(number, &channel); });
      !status.ok()) {
    channels_.erase(number);  // the caller's events may end now
    calls_.forget(number);
    return status;
  }
  wake();
  return number;
}

void Job::collect_early(uint32_t number, Channel* channel) {
  // What came early for its other numbers: their order among each other does not matter.
  for (uint32_t other = number + 1; other < number + channel->numbers; ++other) {
    const auto early = channels_.find(other);
    if (early == channels_.end()) continue;
    for (EarlyFrame& frame : early->second.early) channel->early.push_back(std::move(frame));
    channels_.erase(early);
  }
  const MutexLock states_lock(states_mutex_);
  for (const Rank peer : states_.met()) {
    if (state(peer).down) channel->downs.emplace_back(peer, state(peer).why);
  }
}

void Job::close_channel(uint32_t channel) {
  const MutexLock lock(events_mutex_);
  channels_.erase(channel);
  calls_.forget(channel);
}

bool Job::post(uint32_t channel, const Post& post) {
  assert(channel >= 1 && transport_ != nullptr);
  assert(post.cookie == kNoCookie || post.cookie <= kCookieMask);
  const uint64_t cookie =
      post.cookie == kNoCookie ? kNoCookie : uint64_t{channel} << kCookieBits | post.cookie;
  liveness_->note_sent(post.to);
  return transport_->post(post.to, Bytes(post.header.data(), post.header.size()), post.payload, cookie);
}

bool Job::drive(const std::function<bool()>& done, Nanos until) {
  return transport_ != nullptr && transport_->drive(done, until);
}

void Job::expect_frame() {
  if (transport_) transport_->expect_frame();
}

void Job::wake() {
  if (transport_) transport_->wake();
}

// ---- events of the transport

void Job::on_frame(Rank from, Bytes bytes, Bytes payload) {
  const Result<FrameHeader> header = FrameHeader::decode(bytes, payload, secret());
  if (!header.ok()) {
    if (header.status().scope() != Scope::kOperation) {
      return give_up(error(Code::kCorruption, Scope::kFatal, "rank {}: from rank {}: {}", rank(), from,
                           header.status().message()));
    }
    // A stranger's: nothing in it is believed, so it is no reason to end anything.
    if (refused_frames_.fetch_add(1, std::memory_order_relaxed) == 0) {
      log_warn("rank {}: dropped a frame that claims to come from rank {}: {}", rank(), from,
               header.status().message());
    }
    return;
  }
  if (const Status status = contain([&] { take_frame(from, *header, payload); }); !status.ok()) {
    give_up(error(status.code(), Scope::kFatal, "rank {}: a frame of rank {} was lost: {}", rank(), from,
                  status.message()));
  }
}

void Job::take_frame(Rank from, const FrameHeader& header, Bytes payload) {
  liveness_->note_heard(from);
  if (header.kind == FrameKind::kHeartbeat) return;
  if (header.kind == FrameKind::kGoodbye) {
    liveness_->on_goodbye(from);  // first, as what follows may lack memory
    hear_call_of(from, header);
    if (failed_.load()) exchange_->give_up(failure());  // says more than that the peer has left
    return on_goodbye(from);
  }
  if (header.kind != FrameKind::kExchange) return dispatch(from, header, payload);
  hear_call_of(from, header);
  exchange_->on_message(from, payload);
  if (const Status why = exchange_->failure(); is_mismatch(why)) give_up(why);
}

void Job::dispatch(Rank from, const FrameHeader& header, Bytes payload) {
  const MutexLock lock(events_mutex_);
  if (header.channel >= next_channel_) return keep_early(from, header, payload);
  Channel* const channel = find_channel(header.channel);
  if (channel == nullptr) return;
  deliver_early(channel);
  channel->events->on_frame(from, header, payload);
}

// Of those that are open.
Job::Channel* Job::find_channel(uint32_t number) {
  auto found = channels_.upper_bound(number);
  if (found == channels_.begin()) return nullptr;
  --found;
  return number - found->first < found->second.numbers ? &found->second : nullptr;
}

// Credits bound this to a window per peer and channel; the limit stands for peers that break them.
void Job::keep_early(Rank from, const FrameHeader& header, Bytes payload) {
  if (early_bytes_ + payload.size() + sizeof(EarlyFrame) > kEarlyBytesMax) {
    transport_->drop(
        from, error(Code::kResourceExhausted, Scope::kPeer,
                    "rank {} sends on channel {}, of which rank {} has opened {} only, and {} bytes wait "
                    "there already (limit {})",
                    from, header.channel, rank(), next_channel_ - 1, early_bytes_, kEarlyBytesMax));
    return;
  }
  early_bytes_ += payload.size() + sizeof(EarlyFrame);
  channels_[header.channel].early.push_back({from, header, std::string(payload)});
}

void Job::deliver_early(Channel* channel) {
  if (channel->early.empty() && channel->downs.empty()) return;
  while (!channel->early.empty()) {
    const EarlyFrame frame = std::move(channel->early.front());
    channel->early.pop_front();
    early_bytes_ -= frame.payload.size() + sizeof(EarlyFrame);
    channel->events->on_frame(frame.from, frame.header, frame.payload);
  }
  for (const auto& [peer, why] : std::exchange(channel->downs, {})) channel->events->on_down(peer, why);
}

void Job::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  if (cookie >> kCookieBits == kOwnChannel) return exchange_->on_sent(cookie);
  const MutexLock lock(events_mutex_);
  const auto found = channels_.find(static_cast<uint32_t>(cookie >> kCookieBits));
  if (found != channels_.end() && found->second.events != nullptr)
    found->second.events->on_sent(cookie & kCookieMask);
}

void Job::on_down(Rank peer, const Status& why) {
  if (const Status status = contain([&] { note_down(peer, why); }); !status.ok()) give_up(status);
}

void Job::note_down(Rank peer, const Status& why) {
  liveness_->on_down(peer);
  exchange_->on_gone(peer, why);
  const MutexLock lock(events_mutex_);
  Status told = why;
  {
    const MutexLock states_lock(states_mutex_);
    PeerState& gone = state(peer);
    if (liveness_->left(peer))
      told = error(Code::kUnavailable, Scope::kPeer, "rank {} has left the job", peer);
    gone.down = true;
    gone.why = told;
    parted_.notify_all();
  }
  for (auto& [number, channel] : channels_) {
    if (channel.events == nullptr) continue;
    deliver_early(&channel);
    channel.events->on_down(peer, told);
  }
}

Nanos Job::on_progress(Nanos now) {
  Nanos next = now + options_.heartbeat_interval;
  if (const Status status = contain([&] { next = progress(now); }); !status.ok()) give_up(status);
  return next;
}

Nanos Job::progress(Nanos now) {
  const bool failed = failed_.load();
  exchange_->retry();
  if (failed) {
    exchange_->give_up(failure());
    const MutexLock lock(events_mutex_);
    tell_failure();
  }
  Liveness::Due due = liveness_->poll(now);
  for (const Rank peer : due.heartbeats) post_own(peer, FrameKind::kHeartbeat);
  for (const Liveness::Silent& each : due.silent) transport_->drop(each.peer, each.why);
  Nanos next = due.next;
  const MutexLock lock(events_mutex_);
  for (auto& [number, channel] : channels_) {
    if (channel.events == nullptr) continue;
    deliver_early(&channel);
    next = std::min(next, channel.events->on_progress(now));
  }
  if (failed && !failure_told_.exchange(true)) parted_.notify_all();
  return next;
}

// ---- parting

bool Job::post_own(Rank to, FrameKind kind, Bytes payload, uint64_t cookie) {
  FrameHeader header;
  header.secret = secret();
  header.kind = kind;
  header.credits = static_cast<uint16_t>(calls_.last(&header.sequence));
  const auto bytes = header.encode(payload);
  return transport_->post(to, Bytes(bytes.data(), bytes.size()), payload, cookie);
}

void Job::on_goodbye(Rank from) {
  exchange_->on_gone(from, error(Code::kUnavailable, Scope::kPeer, "rank {} has left the job", from));
  const MutexLock lock(states_mutex_);
  parted_.notify_all();
}

// Nothing is expected of a peer that has never answered.
bool Job::parted(Rank peer) {
  return peer == rank() || !liveness_->has_answered(peer) || liveness_->left(peer) || state(peer).down;
}

// Says the goodbyes that are left to say, also to who was met only now. True: all peers have left, too.
bool Job::part() {
  bool all = true;
  for (const Rank peer : liveness_->met_peers()) {
    if (peer == rank()) continue;
    PeerState& known = state(peer);
    if (!known.down && !known.goodbye_said) {
      post_own(peer, FrameKind::kGoodbye);
      known.goodbye_said = true;
    }
    all &= parted(peer);
  }
  return all;
}

Status Job::await_goodbyes() {
  const MutexLock lock(states_mutex_);
  // Without memory for a goodbye it is said later: peers that never hear it wait for all of their deadline.
  const auto all_parted = [&]() REQUIRES(states_mutex_) {
    bool all = false;
    static_cast<void>(contain([&]() REQUIRES(states_mutex_) { all = part(); }));
    return all || (failure_told_.load() && is_mismatch(failure()));  // some will never come
  };
  const bool in_time = wait_patiently(parted_, lock, options_.close_deadline, all_parted);
  if (const Status why = failure(); is_mismatch(why)) return why;
  std::string late;
  for (const Rank peer : liveness_->met_peers()) {
    const PeerState& known = state(peer);
    if (known.goodbye_said && known.down && !liveness_->left(peer))
      return known.why.with_context("closing the job");
    if (!parted(peer)) late += fmt::format(" {}", peer);
  }
  if (in_time) return ok_status();
  return error(Code::kDeadlineExceeded, Scope::kPeer,
               "rank {}: closing the job: waited {:g} s (net.close_deadline_s) for ranks{} to close it too",
               rank(), to_seconds(options_.close_deadline), late);
}

Status Job::close() {
  if (std::exchange(closed_, true) || transport_ == nullptr) return ok_status();
  Status status = begin_call(CallKind::kCloseJob, "");
  // Before the goodbye: a neighbour that waits in an allgather hears why, and not only that this rank has
  // left.
  if (failed_.load()) exchange_->give_up(failure());
  if (const Status parted = contain([&] { return await_goodbyes(); }); status.ok()) status = parted;
  // What is left takes milliseconds with peers that have said goodbye, and cannot be waited for with others.
  const Nanos patience = status.ok()           ? options_.close_deadline
                         : is_mismatch(status) ? std::min(options_.close_deadline, kPatienceInMismatch)
                                               : 0;
  Status parting = transport_->close(Deadline::in(system_clock(), patience));
  return status.ok() ? parting : status;
}

Job::~Job() {
  if (closed_ || transport_ == nullptr) return;
  static_cast<void>(transport_->close(Deadline{0}));
}

Result<std::unique_ptr<Job>> Job::open(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options) {
  std::unique_ptr<Job> job(new Job(std::move(bootstrap), options));
  SWALE_RETURN_IF_ERROR(job->start().with_context("opening the job"));
  return job;
}

}  // namespace swale::net
