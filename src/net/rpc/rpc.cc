#include "net/rpc/rpc.h"

#include <time.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "base/contain.h"
#include "base/process_identity.h"
#include "net/job/agree.h"
#include "net/job/opening.h"
#include "net/meeting/node_map.h"
#include "net/rpc/rpc_memory.h"

namespace swale::net {
namespace {

constexpr size_t kRequestsAtATime = 64;
constexpr Nanos kLeavePatience = seconds(5);

// system_clock() as of the kernel's last tick, at most 10 ms ago. A call and a reply need the time for the
// text of a failure only, and reading the clock costs 25 ns of their 300.
Nanos recent_time() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
  return seconds(1) * at.tv_sec + at.tv_nsec;
}

// What ranks must have in common: none of it is a user's option.
std::vector<AgreedOption> agreed_options(const RpcOptions& options) {
  return {{"rpc.window_bytes", fmt::format("{}", options.window_bytes_sum)},
          {"rpc.granted_bytes", fmt::format("{}", options.granted_bytes_max)},
          {"rpc.message_bytes", fmt::format("{}", options.message_bytes_max)},
          {"rpc.frame_bytes", fmt::format("{}", options.frame_bytes)},
          {"rpc.window_frames", fmt::format("{}", options.window_frames)},
          {"rpc.methods", fmt::format("{}", fmt::join(options.methods, ","))}};
}

// The names of all hosts, for messages: each node's first rank tells it, so that bytes grow with the nodes
// alone.
Result<std::function<std::string(Rank)>> hosts_of(Job& job) {
  const std::shared_ptr<const NodeMap> nodes = job.nodes();
  const bool tells = nodes->seat(job.rank()).local == 0;
  SWALE_ASSIGN_OR_RETURN(const auto told, job.given(tells ? host_name() : std::string()));
  std::vector<std::string> names(static_cast<size_t>(nodes->nodes()), "unknown");
  for (const auto& [rank, name] : told) names[static_cast<size_t>(nodes->seat(rank).node)] = name;
  return std::function<std::string(Rank)>([nodes, names = std::move(names)](Rank rank) {
    return names[static_cast<size_t>(nodes->seat(rank).node)];
  });
}

}  // namespace

// ---- opening and closing

Result<std::unique_ptr<Rpc>> Rpc::open(Job& job, const RpcOptions& options, RpcService* service) {
  std::unique_ptr<Rpc> rpc(new Rpc(job, options, service));
  const Status started = contain([&] { return rpc->start(); });
  // Nobody calls before all ranks listen.
  SWALE_RETURN_IF_ERROR(agree(job, started).with_context("opening requests between ranks"));
  return rpc;
}

Status Rpc::start() {
  SWALE_RETURN_IF_ERROR(agree_on_options(ranks_of(job_), agreed_options(options_)));
  RpcParams params;
  params.rank = rank();
  params.ranks = size();
  SWALE_ASSIGN_OR_RETURN(params.host_of, hosts_of(job_));
  params.methods = options_.methods;
  params.frame_bytes = options_.frame_bytes;
  params.window_bytes = rpc_window_bytes(options_, size());
  params.message_bytes_max = options_.message_bytes_max;
  params.granted_bytes_max = options_.granted_bytes_max;
  params.calls_max = options_.calls_max;
  params.calls_bytes_max = options_.calls_bytes_max;
  SWALE_RETURN_IF_ERROR(RpcCore::check(params));
  SWALE_RETURN_IF_ERROR(join());
  Conversation::Params talk = conversation_params();
  talk.window = options_.window_frames;
  talk.frames_per_rank = options_.window_frames;
  talk.frame_bytes = options_.frame_bytes;
  SWALE_ASSIGN_OR_RETURN(Conversation made, Conversation::create(talk));
  {
    const MutexLock lock(mutex_);
    core_ = std::make_unique<RpcCore>(std::move(params));
    conversation_ = std::make_unique<Conversation>(std::move(made));
  }
  serve(this);
  return {};
}

Status Rpc::close() {
  if (std::exchange(closed_, true)) return {};
  Status mine;
  {
    const MutexLock lock(mutex_);
    mine = conversation_->failure();
    if (const size_t open = core_->open_calls(); mine.ok() && open > 0) {
      mine = invalid_argument("rank {} closes requests between ranks with {} calls open", rank(), open);
    }
  }
  const Status all = agree(job_, mine);
  part();
  return all;
}

Status Rpc::failure() const {
  const MutexLock lock(mutex_);
  return conversation_->failure();
}

Rpc::~Rpc() {
  {
    const MutexLock lock(mutex_);
    if (closed_ || !joined()) return;
    fail_now(error(Code::kAborted, Scope::kFatal, "rank {} has given up requests between ranks", rank()));
  }
  part();
}

void Rpc::part() {
  if (leave(kLeavePatience)) return;
  const MutexLock lock(mutex_);
  static_cast<void>(conversation_.release());  // its memory is still lent
}

// ---- events. Locked.

// Frames are filled as late as can be: what has collected meanwhile shares them.
void Rpc::before_posts() {
  for (size_t left = core_->ready_count(); left > 0; --left) {
    const Rank to = core_->next_ready();
    while (to >= 0 && core_->has_frame(to) && conversation_->frame_available(to)) {
      Frame frame = conversation_->take_frame(to);
      frame.bytes = static_cast<uint32_t>(core_->fill_frame(to, {frame.data, frame.capacity}));
      conversation_->send(to, frame);
    }
  }
}

void Rpc::on_frame(Rank from, const FrameHeader& header, Bytes payload) {
  if (conversation_->on_frame(from, header, payload) != Conversation::Came::kData) return;
  const Status status = core_->on_frame(from, payload, system_clock().now());
  conversation_->consumed(from);
  if (!status.ok()) fail(status);
}

void Rpc::on_down(Rank peer, const Status& why) {
  conversation_->on_down(peer);
  core_->on_down(peer, why, system_clock().now());
}

void Rpc::fail(const Status& why) { conversation_->fail(why); }

// What the service replies at once leaves after the event, with what else has come in it.
void Rpc::on_frame_taken() {
  if (!core_->any_request()) return;
  event_thread_ = std::this_thread::get_id();
  dispatch();
  event_thread_ = {};
  job_.expect_frame();                        // who has its answer asks again
  if (core_->ready_count() > 0) job_.wake();  // answers leave before the next frame is taken
}

void Rpc::tick() {
  core_->tick(system_clock().now());
  if (core_->open_calls() > 0) conversation_->probe();
  hand_out();
}

void Rpc::on_failed(const Status& why) {
  core_->fail(why, system_clock().now());
  hand_out();
}

// Completions go to their clients, which wake.
void Rpc::hand_out() {
  if (!core_->any_complete()) return;
  RpcClient* last = nullptr;
  core_->take_completions([&](RpcCompletion&& each) REQUIRES(mutex_) {
    RpcClient* const client = clients_[each.owner];
    if (client == nullptr) return;  // it has left, and there was no memory to take its completions
    client->done_.push_back(std::move(each));
    if (std::exchange(last, client) != client) wake(client);
  });
  // What is taken no longer counts.
  if (!std::exchange(any_refused_, false)) return;
  for (RpcClient* const each : clients_) {
    if (each == nullptr || !each->refused_) continue;
    each->freed_ = true;
    wake(each);
  }
}

void Rpc::refuse(RpcClient* client, const Status& why) {
  if (why.code() != Code::kResourceExhausted) return;
  client->refused_ = any_refused_ = true;
  client->freed_ = false;
}

void Rpc::wake(RpcClient* client) {
  client->ready_.store(true);
  if (client->waiting_) client->wake_.notify_one();
  // It sleeps in the transport, and no frame may come.
  if (client == driver_ && driver_thread_ != std::this_thread::get_id()) job_.wake();
}

// After a call: another thread may wait for this client, and must not sleep longer than the call may take.
void Rpc::keep_deadline(RpcClient* client) {
  if (core_->next_deadline() < client->wake_at_) wake(client);
}

// Gives the service what has come.
void Rpc::dispatch() {
  std::vector<RpcRequest> requests;
  while (core_->any_request()) {
    requests.clear();
    core_->take_requests(kRequestsAtATime, &requests, system_clock().now());
    if (service_ == nullptr) {
      for (const RpcRequest& each : requests) {
        core_->reply(each.token,
                     error(Code::kUnsupported, Scope::kOperation, "rank {} serves nothing", rank()),
                     system_clock().now());
      }
      continue;
    }
    const MutexUnlock unlocked(mutex_);
    service_->on_requests(requests);
  }
}

// ---- any thread

void Rpc::changed(RpcClient::Leave leave) {
  hand_out();
  if (core_->any_request()) {
    dispatch();
    hand_out();
  }
  if (leave == RpcClient::Leave::kNow && core_->ready_count() > 0) after_change();
}

bool Rpc::reply(ReplyToken token, Result<RpcPayload> response) {
  const MutexLock lock(mutex_);
  bool heard = false;
  const Status status = contain([&]() REQUIRES(mutex_) {
    heard = core_->reply(token, std::move(response), recent_time());
    hand_out();
    if (core_->ready_count() > 0 && event_thread_ != std::this_thread::get_id()) after_change();
  });
  if (!status.ok()) fail_now(status);
  return heard;
}

bool Rpc::reply_with(ReplyToken token, Bytes bytes) {
  const MutexLock lock(mutex_);
  bool heard = false;
  const Status status = contain([&]() REQUIRES(mutex_) {
    heard = core_->reply(token, RpcPayload::lent(bytes), recent_time());
    hand_out();
    before_posts();
    core_->keep(token);
    event_thread_ == std::this_thread::get_id() ? job_.wake() : after_change();
  });
  if (!status.ok()) fail_now(status);
  return heard;
}

bool Rpc::wanted(ReplyToken token) {
  const MutexLock lock(mutex_);
  return core_->wanted(token);
}

// ---- clients

void Rpc::add(RpcClient* client) {
  const MutexLock lock(mutex_);
  const auto free = std::find(clients_.begin(), clients_.end(), nullptr);
  client->owner_ = static_cast<uint64_t>(free - clients_.begin());
  free == clients_.end() ? clients_.push_back(client) : static_cast<void>(*free = client);
}

void Rpc::remove(RpcClient* client) {
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) {
    core_->cancel_all(client->owner_, system_clock().now());
    changed();
  });
  if (!status.ok()) fail_now(status);
  clients_[client->owner_] = nullptr;
}

Result<CallId> Rpc::call(RpcClient* client, RpcCall&& call, RpcClient::Leave leave) {
  call.owner = client->owner_;
  const MutexLock lock(mutex_);
  CallId id{};
  Status refused;
  const Status status = contain([&]() REQUIRES(mutex_) {
    const Result<CallId> made = core_->call(std::move(call), recent_time());
    if (!made.ok()) {
      refused = made.status();
      return refuse(client, refused);
    }
    id = *made;
    keep_deadline(client);
    changed(leave);
  });
  if (!status.ok()) fail_now(status);
  if (!status.ok()) return status;
  if (!refused.ok()) return refused;
  return id;
}

Result<std::vector<CallId>> Rpc::call_many(RpcClient* client, std::span<const Rank> ranks, RpcCall call) {
  call.owner = client->owner_;
  const MutexLock lock(mutex_);
  std::vector<CallId> ids;
  Status refused;
  const Status status = contain([&]() REQUIRES(mutex_) {
    Result<std::vector<CallId>> made = core_->call_many(ranks, call, system_clock().now());
    if (!made.ok()) {
      refused = made.status();
      return refuse(client, refused);
    }
    ids = *std::move(made);
    keep_deadline(client);
    changed();
  });
  if (!status.ok()) fail_now(status);
  if (!status.ok()) return status;
  if (!refused.ok()) return refused;
  return ids;
}

bool Rpc::cancel(CallId id) {
  const MutexLock lock(mutex_);
  bool cancelled = false;
  const Status status = contain([&]() REQUIRES(mutex_) {
    cancelled = core_->cancel(id, system_clock().now());
    changed();
  });
  if (!status.ok()) fail_now(status);
  return cancelled;
}

size_t Rpc::wait(RpcClient* client, std::vector<RpcCompletion>* out, Nanos until) {
  const MutexLock lock(mutex_);
  const Status status = contain([&]() REQUIRES(mutex_) { wait_for_one(client, until); });
  client->waiting_ = false;
  client->wake_at_ = 0;
  if (!status.ok()) fail_now(status);
  const size_t count = client->done_.size();
  if (out->empty()) {
    out->swap(client->done_);
  } else {
    std::move(client->done_.begin(), client->done_.end(), std::back_inserter(*out));
    client->done_.clear();
  }
  client->refused_ = client->freed_ = false;
  client->ready_.store(false);
  return count;
}

// Until the client has a completion, or capacity that it lacked.
void Rpc::wait_for_one(RpcClient* client, Nanos until) {
  if (job_.posts_directly()) changed();
  for (;;) {
    const bool ready = !client->done_.empty() || client->freed_;
    client->ready_.store(ready);
    if (ready) return;
    const Nanos now = system_clock().now();
    if (now >= core_->next_deadline()) {
      core_->tick(now);
      changed();
      continue;
    }
    if (now >= until) return;
    client->wake_at_ = std::min(until, core_->next_deadline());
    if (driver_ == nullptr && drive(client)) continue;
    if (!job_.posts_directly()) changed();
    if (!client->ready_.load()) sleep(client);
  }
}

// Until another thread wakes it, or until it is to look at the deadlines.
void Rpc::sleep(RpcClient* client) {
  client->waiting_ = true;
  if (client->wake_at_ == kForever) {
    client->wake_.wait(mutex_);
  } else {
    client->wake_.wait_for(mutex_, client->wake_at_ - system_clock().now());
  }
  client->waiting_ = false;
}

// Does the job's progress until the client has something. False: another thread does, or the job cannot be
// driven.
bool Rpc::drive(RpcClient* client) {
  driver_ = client;
  driver_thread_ = std::this_thread::get_id();
  // Where the progress thread would post, this thread does so in its place.
  bool posts_wait = core_->ready_count() > 0 && !job_.posts_directly();
  const Nanos until = client->wake_at_;
  bool drove = false;
  {
    const MutexUnlock unlocked(mutex_);
    const Status status = contain([&] {
      drove = job_.drive(
          [&] {
            if (std::exchange(posts_wait, false)) job_.wake();
            return client->ready_.load();
          },
          until);
    });
    drove = drove && status.ok();
  }
  driver_ = nullptr;
  if (!drove) return false;  // who was woken now could not drive either, and would wake this thread in turn
  // Another thread that waits takes the seat now.
  for (RpcClient* each : clients_) {
    if (each != nullptr && each->waiting_ && each != client) {
      each->wake_.notify_one();
      break;
    }
  }
  return true;
}

RpcClient::RpcClient(Rpc* rpc) : rpc_(rpc) { rpc_->add(this); }
RpcClient::~RpcClient() { rpc_->remove(this); }

Result<CallId> RpcClient::call(RpcCall call, Leave leave) { return rpc_->call(this, std::move(call), leave); }
Result<std::vector<CallId>> RpcClient::call_many(std::span<const Rank> ranks, RpcCall call) {
  return rpc_->call_many(this, ranks, std::move(call));
}
bool RpcClient::cancel(CallId id) { return rpc_->cancel(id); }
size_t RpcClient::wait(std::vector<RpcCompletion>* out, Nanos until) { return rpc_->wait(this, out, until); }

Result<std::string> RpcClient::ask(RpcCall call) {
  SWALE_RETURN_IF_ERROR(rpc_->call(this, std::move(call), Leave::kWithNext).status());
  std::vector<RpcCompletion> done;
  while (wait(&done) == 0) {
  }
  return std::move(done.front().response);
}

std::vector<Result<std::string>> RpcClient::ask_many(std::span<const Rank> ranks, RpcCall call) {
  std::vector<Result<std::string>> answers(ranks.size(), Result<std::string>(std::string()));
  const Result<std::vector<CallId>> ids = call_many(ranks, std::move(call));
  if (!ids.ok()) {
    std::fill(answers.begin(), answers.end(), Result<std::string>(ids.status()));
    return answers;
  }
  std::map<CallId, size_t> place;
  for (size_t i = 0; i < ids->size(); ++i) place[(*ids)[i]] = i;
  std::vector<RpcCompletion> done;
  while (done.size() < ranks.size()) wait(&done);
  for (RpcCompletion& each : done) answers[place[each.id]] = std::move(each.response);
  return answers;
}

}  // namespace swale::net
