#include "net/job.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "base/coding.h"
#include "base/contain.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/process_identity.h"
#include "net/exchange.h"
#include "net/fabric_module.h"
#include "net/liveness.h"
#include "net/loopback_transport.h"
#include "net/topology.h"

namespace swale::net {
namespace {

constexpr uint32_t kHandshakeVersion = 4;
constexpr int kCookieBits = 48;
constexpr uint64_t kCookieMask = (uint64_t{1} << kCookieBits) - 1;
constexpr uint32_t kOwnChannel = 0;
constexpr Nanos kCollectiveDeadlinePerRank = milliseconds(10);
constexpr Nanos kPatienceInMismatch = seconds(1);  // so that the goodbye arrives, which tells the peers
constexpr uint32_t kChannelMax = 0xfffe;  // channel and cookie share 64 bits, and kNoCookie is none of them

// Containers of one machine share its kernel and its memory, whatever they call themselves.
std::string own_node(const JobOptions& options) {
  if (!options.node.empty()) return options.node;
  const std::string boot = boot_id();
  return boot.empty() ? host_name() : boot;
}

class JobImpl final : public Job, private TransportEvents {
 public:
  JobImpl(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options)
      : options_(options),
        bootstrap_(std::move(bootstrap)),
        calls_(bootstrap_->rank()),
        states_(static_cast<size_t>(bootstrap_->size())) {}
  ~JobImpl() override;

  Status start();

  Rank rank() const override { return bootstrap_->rank(); }
  int32_t size() const override { return bootstrap_->size(); }
  uint64_t secret() const override { return secret_; }
  int32_t ranks_on_fullest_node() const override { return ranks_on_fullest_node_; }
  Result<std::vector<std::string>> allgather(Bytes mine) override;
  Status begin_call(CallKind kind, std::string_view path) override;
  Status begin_call(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path,
                    CallStamp* stamp) override;
  void heard_call(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch,
                  const CallStamp& stamp) override;
  void forget_calls(uint32_t channel) override { calls_.forget(channel); }
  void give_up(const Status& why) noexcept override;
  uint32_t open_channel(ChannelEvents* events) override;
  void close_channel(uint32_t channel) override;
  bool post(uint32_t channel, const Post& post) override;
  bool posts_directly() const override { return posting_ == Posting::kDirect; }
  void wake() override;
  bool drive(const std::function<bool()>& done, Nanos until) override {
    return transport_ != nullptr && transport_->drive(done, until);
  }
  Status close() override;

 private:
  struct EarlyFrame {
    Rank from;
    FrameHeader header;
    std::string payload;
  };
  struct Channel {
    ChannelEvents* events = nullptr;             // nullptr: not opened here yet
    std::deque<EarlyFrame> early;                // came before it was opened
    std::vector<std::pair<Rank, Status>> downs;  // happened before it was opened
    bool failure_told = false;
  };
  struct PeerState {
    bool goodbye_said = false;
    bool goodbye_heard = false;
    bool down = false;
    Status why;
  };

  void on_frame(Rank from, Bytes header, Bytes payload) override;
  void on_sent(uint64_t cookie) override;
  void on_down(Rank peer, const Status& why) override;
  Nanos on_progress(Nanos now) override;
  void on_failure(const Status& why) override { give_up(why); }

  Status exchange_identity(std::vector<std::string>* hosts);
  Status choose_posting();
  void count_nodes(const std::vector<std::string>& nodes);
  Result<std::unique_ptr<Transport>> make_transport();
  Status start_transport(std::vector<std::string> hosts);
  void make_exchange();
  void take_frame(Rank from, const FrameHeader& header, Bytes payload);
  void note_down(Rank peer, const Status& why);
  Nanos progress(Nanos now);
  void tell_failure();
  Status failure();
  void hear_call_of(Rank from, const FrameHeader& header);
  void dispatch(Rank from, const FrameHeader& header, Bytes payload);
  void keep_early(Rank from, const FrameHeader& header, Bytes payload);
  void deliver_early(Channel* channel);
  void on_goodbye(Rank from);
  bool post_own(Rank to, FrameKind kind, Bytes payload = {}, uint64_t cookie = kNoCookie);
  void say_goodbye(Rank to);
  bool parted(Rank peer) const;
  Status await_goodbyes();
  PeerState& state(Rank peer) { return states_[static_cast<size_t>(peer)]; }

  const JobOptions options_;
  std::unique_ptr<Bootstrap> bootstrap_;
  uint64_t secret_ = 0;
  Posting posting_ = Posting::kQueue;
  int32_t ranks_here_ = 1;
  int32_t ranks_on_fullest_node_ = 1;
  std::unique_ptr<Liveness> liveness_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Transport> transport_;
  bool closed_ = false;
  bool refused_logged_ = false;  // progress thread

  // Held by the progress thread during every event of a channel, so that close_channel waits for a running
  // one.
  std::mutex events_mutex_;
  std::map<uint32_t, Channel> channels_;
  uint32_t next_channel_ = 1;
  size_t early_bytes_ = 0;

  CallOrder calls_;
  std::mutex failure_mutex_;
  Status failure_;  // of the whole job, on this rank
  std::atomic<bool> failed_{false};
  std::atomic<bool> failure_told_{false};  // to all conversations, which have told their peers

  std::mutex states_mutex_;
  std::condition_variable parted_;
  std::vector<PeerState> states_;
  bool closing_ = false;
};

// ---- opening
// ------------------------------------------------------------------------------------------------------

// All ranks tell version, host, machine and a random number; rank 0's number becomes the secret.
Status JobImpl::exchange_identity(std::vector<std::string>* hosts) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return errno_status(errno, "getrandom");
  std::string mine;
  append_u32(&mine, kHandshakeVersion);
  append_u64(&mine, random);
  append_sized(&mine, host_name());
  append_sized(&mine, own_node(options_));
  append_sized(&mine, options_.transport);
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all, bootstrap_->allgather(mine));
  std::vector<std::string> nodes;
  for (size_t i = 0; i < all.size(); ++i) {
    Decoder in(all[i]);
    const uint32_t version = in.u32();
    const uint64_t number = in.u64();
    hosts->emplace_back(in.sized());
    nodes.emplace_back(in.sized());
    const Bytes transport = in.sized();
    if (version != kHandshakeVersion) {
      return error(
          Code::kUnsupported, Scope::kFatal,
          "rank {} speaks handshake {}, this rank {} speaks {}: all ranks need the same version of Swale", i,
          version, rank(), kHandshakeVersion);
    }
    SWALE_RETURN_IF_ERROR(in.finish(fmt::format("identity of rank {}", i)));
    if (transport != options_.transport) {
      return invalid_argument("rank {} was opened with transport \"{}\", rank {} with \"{}\"", i, transport,
                              rank(), options_.transport);
    }
    if (i == 0) secret_ = number;
  }
  count_nodes(nodes);
  return ok_status();
}

void JobImpl::count_nodes(const std::vector<std::string>& nodes) {
  std::map<std::string_view, int32_t> ranks;
  for (const std::string& node : nodes)
    ranks_on_fullest_node_ = std::max(ranks_on_fullest_node_, ++ranks[node]);
  ranks_here_ = ranks[nodes[static_cast<size_t>(rank())]];
}

Status JobImpl::choose_posting() {
  const std::string& wanted = options_.posting;
  if (wanted != "auto" && wanted != "queue" && wanted != "direct") {
    return invalid_argument("net.posting is \"{}\", expected auto, queue or direct", wanted);
  }
  const bool direct = wanted == "direct" || (wanted == "auto" && ranks_here_ > 1);
  posting_ = direct ? Posting::kDirect : Posting::kQueue;
  return ok_status();
}

Result<std::unique_ptr<Transport>> JobImpl::make_transport() {
  if (options_.transport == "auto" || options_.transport == "ucx") {
    SWALE_ASSIGN_OR_RETURN(const FabricModule* ucx, load_fabric("ucx"));
    return ucx->make(rank(), size(), {posting_, {}});
  }
  if (options_.transport != "loopback") {
    return invalid_argument("net.transport is \"{}\", expected auto, ucx or loopback", options_.transport);
  }
  std::shared_ptr<LoopbackFabric> fabric = rank() == 0 ? LoopbackFabric::create(size()) : nullptr;
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         bootstrap_->allgather(fabric ? std::to_string(fabric->id()) : ""));
  if (!fabric) fabric = LoopbackFabric::find(std::strtoull(all[0].c_str(), nullptr, 10));
  if (!fabric)
    return invalid_argument("transport \"loopback\" joins threads of one process, rank 0 is in another");
  return fabric->transport(rank(), posting_);
}

Status JobImpl::start_transport(std::vector<std::string> hosts) {
  Result<std::unique_ptr<Transport>> made = make_transport();
  // The failure of one rank is told to all: a first byte, then the address or the message.
  const std::string mine =
      made.ok() ? fmt::format("A{}", (*made)->address()) : fmt::format("F{}", made.status().message());
  SWALE_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         bootstrap_->allgather(Bytes(mine).substr(0, 4 * kKiB)));
  SWALE_RETURN_IF_ERROR(made.status());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() < 2 || all[i][0] != 'A') {
      return error(Code::kAborted, Scope::kFatal, "rank {} (host {}) could not start its transport: {}", i,
                   hosts[i], all[i].substr(std::min<size_t>(1, all[i].size())));
    }
    all[i].erase(0, 1);
  }
  Liveness::Params params;
  params.rank = rank();
  params.hosts = std::move(hosts);
  params.heartbeat_interval = options_.heartbeat_interval;
  params.silence_deadline = options_.silence_deadline;
  liveness_ = std::make_unique<Liveness>(std::move(params));
  make_exchange();
  transport_ = *std::move(made);
  return transport_->start(std::move(all), this);
}

void JobImpl::make_exchange() {
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

Status JobImpl::start() {
  if (options_.heartbeat_interval <= 0 || options_.silence_deadline < 2 * options_.heartbeat_interval) {
    return invalid_argument(
        "net.silence_deadline_s = {:g} with net.heartbeat_interval_s = {:g}: it must be at least twice as "
        "long",
        to_seconds(options_.silence_deadline), to_seconds(options_.heartbeat_interval));
  }
  std::vector<std::string> hosts;
  SWALE_RETURN_IF_ERROR(exchange_identity(&hosts));
  SWALE_RETURN_IF_ERROR(choose_posting());
  return size() == 1 ? ok_status() : start_transport(std::move(hosts));
}

Result<std::vector<std::string>> JobImpl::allgather(Bytes mine) {
  if (size() == 1) return bootstrap_->allgather(mine);
  if (closed_) return error(Code::kAborted, Scope::kFatal, "rank {} has closed this job", rank());
  return exchange_->allgather(mine);
}

// ---- the order of calls, and the end of all conversations
// ----------------------------------------------------------------------------

Status JobImpl::begin_call(CallKind kind, std::string_view path) {
  if (size() == 1) return {};
  if (failed_.load()) return failure();
  Status status = calls_.begin(kind, path);
  if (!status.ok()) give_up(status);
  return status;
}

Status JobImpl::begin_call(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path,
                           CallStamp* stamp) {
  if (size() == 1) return {};
  if (failed_.load()) return failure();
  Status status = calls_.begin(channel, kind, epoch, path, stamp);
  if (!status.ok()) give_up(status);
  return status;
}

void JobImpl::heard_call(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch, const CallStamp& stamp) {
  if (const Status status = calls_.heard(peer, channel, kind, epoch, stamp); !status.ok()) give_up(status);
}

// The progress thread tells the conversations: the caller may hold any lock.
void JobImpl::give_up(const Status& why) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
  }
  failed_.store(true);
  parted_.notify_all();
  wake();
}

Status JobImpl::failure() {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

// Under events_mutex_.
void JobImpl::tell_failure() {
  const Status why = failure();
  for (auto& [number, channel] : channels_) {
    if (channel.events == nullptr || std::exchange(channel.failure_told, true)) continue;
    channel.events->on_failure(why);
  }
}

// Frames of the job's own carry the sender's last call of the job, where those of a channel carry sequence number and
// credits.
void JobImpl::hear_call_of(Rank from, const FrameHeader& header) {
  const Status status = calls_.heard(from, header.sequence, static_cast<CallKind>(header.credits));
  if (!status.ok()) give_up(status);
}

// ---- channels
// -----------------------------------------------------------------------------------------------------

uint32_t JobImpl::open_channel(ChannelEvents* events) {
  const std::lock_guard lock(events_mutex_);
  const uint32_t number = next_channel_++;
  assert(number <= kChannelMax);
  calls_.add_channel(number);
  Channel& channel = channels_[number];  // may be there already, with early frames
  channel.events = events;               // if what follows throws, no frame of it is lost
  {
    const std::lock_guard states_lock(states_mutex_);
    for (Rank peer = 0; peer < size(); ++peer) {
      if (state(peer).down) channel.downs.emplace_back(peer, state(peer).why);
    }
  }
  wake();
  return number;
}

void JobImpl::close_channel(uint32_t channel) {
  const std::lock_guard lock(events_mutex_);
  channels_.erase(channel);
  calls_.forget(channel);
}

bool JobImpl::post(uint32_t channel, const Post& post) {
  assert(channel >= 1 && transport_ != nullptr);
  assert(post.cookie == kNoCookie || post.cookie <= kCookieMask);
  const uint64_t cookie =
      post.cookie == kNoCookie ? kNoCookie : uint64_t{channel} << kCookieBits | post.cookie;
  liveness_->note_sent(post.to);
  return transport_->post(post.to, Bytes(post.header.data(), post.header.size()), post.payload, cookie);
}

void JobImpl::wake() {
  if (transport_) transport_->wake();
}

// ---- events of the transport
// --------------------------------------------------------------------------------------

void JobImpl::on_frame(Rank from, Bytes bytes, Bytes payload) {
  const Result<FrameHeader> header = FrameHeader::decode(bytes, secret_);
  if (!header.ok()) {
    // A stranger's, most likely; if it was our peer's, its next frame shows the gap.
    if (!std::exchange(refused_logged_, true)) {
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

void JobImpl::take_frame(Rank from, const FrameHeader& header, Bytes payload) {
  liveness_->note_heard(from);
  if (header.kind == FrameKind::kHeartbeat) return;
  if (header.kind == FrameKind::kGoodbye) {
    hear_call_of(from, header);
    if (failed_.load()) exchange_->give_up(failure());  // says more than that the peer has left
    return on_goodbye(from);
  }
  if (header.kind != FrameKind::kExchange) return dispatch(from, header, payload);
  hear_call_of(from, header);
  exchange_->on_message(from, payload);
  if (const Status why = exchange_->failure(); is_mismatch(why)) give_up(why);
}

void JobImpl::dispatch(Rank from, const FrameHeader& header, Bytes payload) {
  const std::lock_guard lock(events_mutex_);
  if (header.channel >= next_channel_) return keep_early(from, header, payload);
  const auto found = channels_.find(header.channel);
  if (found == channels_.end()) return;
  deliver_early(&found->second);
  found->second.events->on_frame(from, header, payload);
}

// Credits bound this to a window per peer and channel; the limit stands for peers that break them.
void JobImpl::keep_early(Rank from, const FrameHeader& header, Bytes payload) {
  if (header.channel > kChannelMax || early_bytes_ + payload.size() + sizeof(EarlyFrame) > kEarlyBytesMax) {
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

// Under events_mutex_.
void JobImpl::deliver_early(Channel* channel) {
  if (channel->early.empty() && channel->downs.empty()) return;
  while (!channel->early.empty()) {
    const EarlyFrame frame = std::move(channel->early.front());
    channel->early.pop_front();
    early_bytes_ -= frame.payload.size() + sizeof(EarlyFrame);
    channel->events->on_frame(frame.from, frame.header, frame.payload);
  }
  for (const auto& [peer, why] : std::exchange(channel->downs, {})) channel->events->on_down(peer, why);
}

void JobImpl::on_sent(uint64_t cookie) {
  if (cookie == kNoCookie) return;
  if (cookie >> kCookieBits == kOwnChannel) return exchange_->on_sent(cookie);
  const std::lock_guard lock(events_mutex_);
  const auto found = channels_.find(static_cast<uint32_t>(cookie >> kCookieBits));
  if (found != channels_.end() && found->second.events != nullptr)
    found->second.events->on_sent(cookie & kCookieMask);
}

void JobImpl::on_down(Rank peer, const Status& why) {
  if (const Status status = contain([&] { note_down(peer, why); }); !status.ok()) give_up(status);
}

void JobImpl::note_down(Rank peer, const Status& why) {
  liveness_->on_down(peer);
  exchange_->on_gone(peer, why);
  const std::lock_guard lock(events_mutex_);
  Status told = why;
  {
    const std::lock_guard states_lock(states_mutex_);
    PeerState& gone = state(peer);
    if (gone.goodbye_heard) told = error(Code::kUnavailable, Scope::kPeer, "rank {} has left the job", peer);
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

Nanos JobImpl::on_progress(Nanos now) {
  Nanos next = now + options_.heartbeat_interval;
  if (const Status status = contain([&] { next = progress(now); }); !status.ok()) give_up(status);
  return next;
}

Nanos JobImpl::progress(Nanos now) {
  const bool failed = failed_.load();
  exchange_->retry();
  if (failed) {
    exchange_->give_up(failure());
    const std::lock_guard lock(events_mutex_);
    tell_failure();
  }
  Liveness::Due due = liveness_->poll(now);
  for (const Rank peer : due.heartbeats) post_own(peer, FrameKind::kHeartbeat);
  for (const Liveness::Silent& each : due.silent) transport_->drop(each.peer, each.why);
  Nanos next = due.next;
  const std::lock_guard lock(events_mutex_);
  for (auto& [number, channel] : channels_) {
    if (channel.events == nullptr) continue;
    deliver_early(&channel);
    next = std::min(next, channel.events->on_progress(now));
  }
  if (failed && !failure_told_.exchange(true)) parted_.notify_all();
  return next;
}

// ---- parting
// ------------------------------------------------------------------------------------------------------

bool JobImpl::post_own(Rank to, FrameKind kind, Bytes payload, uint64_t cookie) {
  FrameHeader header;
  header.secret = secret_;
  header.kind = kind;
  header.credits = static_cast<uint16_t>(calls_.last(&header.sequence));
  const auto bytes = header.encode();
  return transport_->post(to, Bytes(bytes.data(), bytes.size()), payload, cookie);
}

// Under states_mutex_.
void JobImpl::say_goodbye(Rank to) {
  if (state(to).goodbye_said) return;
  post_own(to, FrameKind::kGoodbye);
  state(to).goodbye_said = true;
}

void JobImpl::on_goodbye(Rank from) {
  liveness_->on_goodbye(from);
  exchange_->on_gone(from, error(Code::kUnavailable, Scope::kPeer, "rank {} has left the job", from));
  const std::lock_guard lock(states_mutex_);
  state(from).goodbye_heard = true;
  if (closing_) say_goodbye(from);  // met only now
  parted_.notify_all();
}

bool JobImpl::parted(Rank peer) const {
  const PeerState& each = states_[static_cast<size_t>(peer)];
  return peer == rank() || !liveness_->met(peer) || each.goodbye_heard || each.down;
}

Status JobImpl::await_goodbyes() {
  std::unique_lock lock(states_mutex_);
  closing_ = true;
  std::vector<Rank> asked;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank() || !liveness_->met(peer) || state(peer).down) continue;
    say_goodbye(peer);
    asked.push_back(peer);
  }
  const auto all_parted = [&] {
    if (failure_told_.load() && is_mismatch(failure())) return true;  // some will never come
    for (Rank peer = 0; peer < size(); ++peer) {
      if (!parted(peer)) return false;
    }
    return true;
  };
  const bool in_time = wait_patiently(parted_, lock, options_.close_deadline, all_parted);
  if (const Status why = failure(); is_mismatch(why)) return why;
  std::string late;
  for (const Rank peer : asked) {
    if (state(peer).down && !state(peer).goodbye_heard)
      return state(peer).why.with_context("closing the job");
    if (!parted(peer)) late += fmt::format(" {}", peer);
  }
  if (in_time) return ok_status();
  return error(Code::kDeadlineExceeded, Scope::kPeer,
               "rank {}: closing the job: waited {:g} s (net.close_deadline_s) for ranks{} to close it too",
               rank(), to_seconds(options_.close_deadline), late);
}

Status JobImpl::close() {
  if (std::exchange(closed_, true) || transport_ == nullptr) return ok_status();
  Status status = begin_call(CallKind::kCloseJob, "");
  if (const Status parted = contain([&] { return await_goodbyes(); }); status.ok()) status = parted;
  // What is left takes milliseconds with peers that have said goodbye, and cannot be waited for with others.
  const Nanos patience = status.ok()           ? options_.close_deadline
                         : is_mismatch(status) ? std::min(options_.close_deadline, kPatienceInMismatch)
                                               : 0;
  Status parting = transport_->close(Deadline::in(system_clock(), patience));
  return status.ok() ? parting : status;
}

JobImpl::~JobImpl() {
  if (closed_ || transport_ == nullptr) return;
  static_cast<void>(transport_->close(Deadline{0}));
}

}  // namespace

Result<std::unique_ptr<Job>> Job::open(std::unique_ptr<Bootstrap> bootstrap, const JobOptions& options) {
  auto job = std::make_unique<JobImpl>(std::move(bootstrap), options);
  SWALE_RETURN_IF_ERROR(job->start().with_context("opening the job"));
  return std::unique_ptr<Job>(std::move(job));
}

}  // namespace swale::net
