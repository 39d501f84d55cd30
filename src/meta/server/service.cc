#include "meta/server/service.h"

#include <malloc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/contain.h"
#include "base/start_thread.h"

namespace swale::meta {
namespace {

constexpr size_t kInlineBytes = 4 * kKiB;  // a larger request goes to the storage thread
constexpr uint64_t kCoreShift = 40;        // a tag says which core has called
constexpr uint64_t kTagMask = (uint64_t{1} << kCoreShift) - 1;
constexpr uint64_t kMade = ~uint64_t{0};  // in place of a call's tag: it was made
constexpr Nanos kRest = seconds(1);       // without a put
constexpr uint64_t kTrimMin = 4 * kMiB;   // of buffers, which are worth a walk through the program's heap
constexpr Nanos kLookAgain = milliseconds(1);  // others of this rank may have all calls that there may be
constexpr size_t kLeftMax = 2;                 // a commit, and other work

struct OfThisThread {
  Service* service = nullptr;  // whose commits it makes itself
  bool kept = false;           // there may be one to make
};
thread_local OfThisThread of_this_thread;

}  // namespace

Service::Service(std::vector<std::unique_ptr<ServerCore>> cores, std::vector<net::Rank> hosts, Nanos patience,
                 ContentBudget* budget, std::unique_ptr<NamesServer> names)
    : hosts_(std::move(hosts)),
      patience_(patience),
      budget_(budget),
      cores_(std::move(cores)),
      names_(std::move(names)) {
  left_.reserve(kLeftMax);
  for (const auto& core : cores_) served_.push_back(core.get());
  if (names_ != nullptr) served_.push_back(names_.get());
}

Service::~Service() { static_cast<void>(stop()); }

Status Service::start(net::Rpc* rpc) {
  const MutexLock lock(mutex_);
  SWALE_RETURN_IF_ERROR(account());
  upstream_ = std::make_shared<net::RpcClient>(rpc);
  rpc_ = rpc;
  SWALE_RETURN_IF_ERROR(
      start_thread(&storage_, "the storage thread of metadata servers", [this] { store(); }));
  return start_thread(&awaiting_, "the thread that hears other metadata servers", [this] { await(); });
}

Status Service::resume(Nanos deadline) {
  const MutexLock lock(mutex_);
  for (ServedCore* const core : served_) core->resume();
  return wait_for_rest(lock, deadline).with_context("what an earlier job has left half done");
}

Status Service::come_to_rest(Nanos deadline) {
  const MutexLock lock(mutex_);
  return wait_for_rest(lock, deadline);
}

Status Service::wait_for_rest(const MutexLock& lock, Nanos deadline) {
  resuming_ = true;
  flush();
  const bool ended = resumed_.wait_for(lock, deadline, [this]() REQUIRES(mutex_) {
    return !failure_.ok() ||
           std::none_of(served_.begin(), served_.end(), [](ServedCore* core) { return core->follows_up(); });
  });
  resuming_ = false;
  if (!failure_.ok() || ended) return failure_;
  return error(Code::kDeadlineExceeded, Scope::kNode,
               "truncates, seals, removals and renames were not finished in time");
}

Status Service::stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  upstream_work_.notify_all();
  if (storage_.joinable()) storage_.join();
  if (awaiting_.joinable()) awaiting_.join();
  std::shared_ptr<net::RpcClient> upstream;  // ends without the lock
  const MutexLock lock(mutex_);
  upstream.swap(upstream_);
  Status status = failure_;
  for (ServedCore* const core : served_) {
    if (status.ok()) status = core->shard().health();
  }
  return status;
}

ServerCore* Service::core_of(Bytes payload) {
  const Server server = server_of_message(payload);
  const auto found =
      std::find_if(cores_.begin(), cores_.end(), [&](const auto& core) { return core->server() == server; });
  return found == cores_.end() ? nullptr : found->get();
}

ServedCore* Service::served_of(const net::RpcRequest& request) {
  if (request.method == static_cast<net::RpcMethod>(Method::kNames)) return names_.get();
  return core_of(request.payload);
}

void Service::on_requests(std::span<net::RpcRequest> requests) {
  const MutexLock lock(mutex_);
  for (net::RpcRequest& each : requests) {
    if (rpc_ != nullptr && each.payload.size() <= kInlineBytes) {
      handle(each);
    } else {
      const Status kept = contain([&]() REQUIRES(mutex_) { queue_.push_back(std::move(each)); });
      if (kept.ok()) continue;
      fail(kept);
      if (rpc_ != nullptr) rpc_->reply(each.token, failure_);
    }
  }
  if (rpc_ != nullptr) flush();
}

void Service::handle(net::RpcRequest& request) {
  const auto token = static_cast<uint64_t>(request.token);
  Status refused = failure_;
  ServedCore* const core = served_of(request);
  if (refused.ok() && core == nullptr) {
    refused = invalid_argument("metadata server {} is not on this rank: do ranks differ in the store's path?",
                               server_of_message(request.payload));
  }
  if (refused.ok()) {
    const Status done =
        contain([&] { core->on_request(static_cast<Method>(request.method), request.payload, token); });
    if (done.ok()) return;
    fail(done);
    refused = done;
  }
  rpc_->reply(request.token, refused);
}

// What the cores have to say leaves, without the lock. So do calls for which there was no capacity before.
void Service::flush() {
  if (resuming_) resumed_.notify_all();
  std::vector<Reply> replies;
  std::vector<Call> calls = std::exchange(unsent_, {});
  const size_t unsent = calls.size();
  bool work = !queue_.empty();
  // What this thread commits itself is left to be taken: others that wait for it have it committed, too.
  const bool keeps = of_this_thread.service == this && cores_.empty();
  of_this_thread.kept |= keeps;
  const Status taken = contain([&]() REQUIRES(mutex_) {
    for (size_t i = 0; i < served_.size(); ++i) {
      served_[i]->take_replies(&replies);
      const size_t first = calls.size();
      served_[i]->take_calls(&calls);
      work |= !keeps && served_[i]->take_waits();
      for (size_t call = first; call < calls.size(); ++call) calls[call].tag |= uint64_t{i} << kCoreShift;
    }
  });
  if (!taken.ok()) fail(taken);
  if (calls.size() > unsent && open_calls_ == 0) upstream_work_.notify_one();
  open_calls_ += calls.size() - unsent;
  ++sending_;
  if (work) work_.notify_one();
  std::shared_ptr<net::RpcClient> upstream = upstream_;
  net::Rpc* const rpc = rpc_;
  Status why;  // of the first call that could not be made
  size_t tried = 0;
  {
    const MutexUnlock meanwhile(mutex_);
    for (Reply& each : replies) {
      const auto token = static_cast<net::ReplyToken>(each.token);
      each.response.ok() ? rpc->reply(token, net::RpcPayload(*std::move(each.response)))
                         : rpc->reply(token, each.response.status());
    }
    for (; tried < calls.size(); ++tried) {
      const Status made = make(upstream.get(), calls[tried]);
      if (made.code() == Code::kResourceExhausted) break;
      if (made.ok()) calls[tried].tag = kMade;
      if (!made.ok() && why.ok()) why = made;
    }
    upstream.reset();  // not locked: after stop() it may be the last, and a client's end gives requests out
  }
  --sending_;
  if (tried < calls.size()) keep_unsent(&calls, tried);
  if (why.ok()) return;
  std::erase_if(calls, [](const Call& each) { return each.tag == kMade; });
  open_calls_ -= calls.size();
  const Status told = contain([&]() REQUIRES(mutex_) {
    for (const Call& each : calls) tell(each.tag, why);
  });
  if (!told.ok()) fail(told);
  flush();
}

void Service::tell(uint64_t tag, Result<std::string> response) {
  ServedCore* const core = served_[tag >> kCoreShift];
  const Nanos pause = response.ok() ? 0 : core->pause_after_failure();
  if (pause == 0) return core->on_completion(tag & kTagMask, std::move(response));
  if (stop_) return;  // it would only be called again
  paused_.push_back({system_clock().now() + pause, tag, response.status()});
  ++open_calls_;
}

void Service::tell_paused() {
  const Nanos now = system_clock().now();
  for (size_t i = 0; i < paused_.size();) {
    if (paused_[i].due > now && !stop_) {
      ++i;
      continue;
    }
    const Paused due = std::move(paused_[i]);
    paused_.erase(paused_.begin() + static_cast<ptrdiff_t>(i));
    --open_calls_;
    if (!stop_) served_[due.tag >> kCoreShift]->on_completion(due.tag & kTagMask, due.why);
  }
}

// kResourceExhausted: not now.
Status Service::make(net::RpcClient* upstream, const Call& call) {
  if (upstream == nullptr) return error(Code::kAborted, Scope::kOperation, "the server is closing");
  Status status;
  const Status contained = contain([&] {
    // Beside another thread's wait: all that a call touches of its client is guarded by the Rpc's mutex.
    status = upstream
                 ->call({.to = hosts_[call.to],
                         .method = static_cast<net::RpcMethod>(call.method),
                         .payload = call.payload,
                         .response_bytes_max = static_cast<uint32_t>(call.response_bytes_max),
                         .deadline = system_clock().now() + patience_,
                         .tag = call.tag})
                 .status();
  });
  return contained.ok() ? status : contained;
}

// Calls from `first` on leave when others are complete. Their failure instead would be told for a truncate of
// which a server has not heard, and which cuts there, when it is repeated, what was put meanwhile.
void Service::keep_unsent(std::vector<Call>* calls, size_t first) {
  const auto begin = calls->begin() + static_cast<ptrdiff_t>(first);
  const Status kept = contain([&]() REQUIRES(mutex_) {
    unsent_.insert(unsent_.end(), std::move_iterator(begin), std::move_iterator(calls->end()));
  });
  if (!kept.ok()) open_calls_ -= calls->size() - first;
  calls->erase(begin, calls->end());
  if (!kept.ok()) fail(kept);
}

void Service::fail(const Status& why) {
  if (failure_.ok()) failure_ = why.with_context("the metadata servers of this rank have stopped");
  made_.notify_all();
}

// The first request that waits, and, if it is a get, those after it for the same server.
void Service::handle_queued() {
  constexpr size_t kJoinedMax = 16;
  const auto is_get = [](const net::RpcRequest& each) {
    return static_cast<Method>(each.method) == Method::kGet;
  };
  std::vector<net::RpcRequest> taken;
  const Status kept = contain([&]() REQUIRES(mutex_) {
    do {
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
    } while (!queue_.empty() && taken.size() < kJoinedMax && is_get(taken[0]) && is_get(queue_.front()) &&
             server_of_message(queue_.front().payload) == server_of_message(taken[0].payload));
  });
  if (!kept.ok() && taken.empty()) {
    net::RpcRequest first = std::move(queue_.front());
    queue_.pop_front();
    return handle(first);
  }
  ServerCore* const core = taken.size() > 1 ? core_of(taken[0].payload) : nullptr;
  if (core == nullptr || !failure_.ok()) {
    for (net::RpcRequest& each : taken) handle(each);
    return;
  }
  const Status done = contain([&] {
    std::vector<ServerCore::WaitingGet> gets;
    for (const net::RpcRequest& each : taken)
      gets.push_back({each.payload, static_cast<uint64_t>(each.token)});
    core->on_gets(gets);
  });
  if (done.ok()) return;
  fail(done);
  for (net::RpcRequest& each : taken) rpc_->reply(each.token, failure_);
}

// Nothing is to be done. When no put has come for a while, the shards bring what they hold into sorted files:
// gets ask one place then, and buffers take no memory while the program computes.
void Service::rest() {
  uint64_t puts = 0;
  for (const auto& core : cores_) puts += core->counters().puts;
  const Nanos now = system_clock().now();
  if (puts != puts_seen_) {
    puts_seen_ = puts;
    quiet_since_ = now;
    settled_ = false;
  }
  if (settled_ && !trimmed_) {
    trimmed_ = true;
    const MutexUnlock meanwhile(mutex_);
    ::malloc_trim(0);  // what buffers have taken goes back to the machine
    return;
  }
  if (settled_) return work_.wait(mutex_);
  if (const Nanos left = quiet_since_ + kRest - now; left > 0) {
    work_.wait_for(mutex_, left);
    return;
  }
  settled_ = true;
  uint64_t buffers = 0;
  for (const auto& core : cores_) {
    buffers += core->shard().state().buffer_memory_bytes;
    core->shard().settle();
  }
  trimmed_ = buffers < kTrimMin;
}

void Service::commit_kept() noexcept {
  if (!std::exchange(of_this_thread.kept, false)) return;
  Service* const service = std::exchange(of_this_thread.service, nullptr);
  service->commit_names();
  of_this_thread.service = service;
}

Service::OwnCommits::OwnCommits(Service* service) : outer_(of_this_thread.service) {
  if (service == outer_) return;
  commit_kept();
  of_this_thread.service = service;
}
Service::OwnCommits::~OwnCommits() {
  if (outer_ == of_this_thread.service) return;
  commit_kept();
  of_this_thread.service = outer_;
}
Service::OwnCommits::Pause::Pause() : outer_(of_this_thread.service) {
  commit_kept();
  of_this_thread.service = nullptr;
}
Service::OwnCommits::Pause::~Pause() { of_this_thread.service = outer_; }

Service::Making::Making(Service* service, const NewFile& file) : service_(service) {
  if (service == nullptr || of_this_thread.service != service) return;
  auto state = std::make_shared<State>();
  const MutexLock lock(service->mutex_);
  if (!service->failure_.ok() || service->names_ == nullptr || !service->cores_.empty()) return;
  const bool begun = service->names_->make_file(
      file, &state->made, [service, state](const Status& status) REQUIRES(service->mutex_) {
        state->failure = status;
        state->done = true;
        if (service->makers_ > 0) service->made_.notify_all();
      });
  of_this_thread.kept = true;
  if (begun) state_ = std::move(state);
}

Result<MadeFile> Service::Making::end(Nanos patience) {
  const std::shared_ptr<State> state = std::move(state_);
  const OwnCommits::Pause pause;
  const MutexLock lock(service_->mutex_);
  if (!state->done) {
    ++service_->makers_;
    const bool ended = service_->made_.wait_for(
        lock, patience, [&]() REQUIRES(service_->mutex_) { return state->done || !service_->failure_.ok(); });
    --service_->makers_;
    if (!ended)
      return error(Code::kDeadlineExceeded, Scope::kOperation, "a new file was not written in time");
  }
  if (!state->done) return service_->failure_;
  if (!state->failure.ok()) return state->failure;
  return std::move(state->made);
}

// One commit. What has come meanwhile is the storage thread's, as is all other work: so nobody who waits for
// an answer works for others for long.
void Service::commit_names() noexcept {
  MutexLock lock(mutex_);
  const Status done = contain([&]() REQUIRES(mutex_) {
    if (names_ == nullptr || !names_->take_waits()) return;
    std::unique_ptr<Work> work = names_->next_work();
    if (work != nullptr && work->kind() == WorkKind::kCommit) {
      {
        const MutexUnlock meanwhile(mutex_);
        work->run();
      }
      names_->finish(std::move(work));
      flush();
      work = names_->next_work();
    }
    if (work == nullptr) return;
    left_.push_back(std::move(work));
    work_.notify_one();
  });
  if (!done.ok()) fail(done);
  if (names_ != nullptr && names_->has_output()) flush();
}

// Tells the budget what is stored, when it has grown by a sixteenth, or when removals may have made space: so
// the cost of a look, which grows with the files, is a constant for each of them.
Status Service::account() {
  constexpr uint64_t kThingsMin = 1024;
  if (budget_ == nullptr) return {};
  uint64_t count = 0;
  for (const auto& core : cores_) count += core->stored_count();
  const uint64_t least = accounted_ / 16 + kThingsMin;
  if (!full_ && count < accounted_ + least && count + least > accounted_) return {};
  uint64_t bytes = 0;
  for (const auto& core : cores_) bytes += content_bytes(core->stored());
  accounted_ = count;
  const Status counted = budget_->stored(bytes);
  full_ = !counted.ok();
  for (const auto& core : cores_) core->refuse_growth(counted);
  return counted;
}

// The storage thread: large requests and the work of the stores.
void Service::store() {
  MutexLock lock(mutex_);
  for (;;) {
    if (!queue_.empty()) {
      handle_queued();
      flush();
      if (!queue_.empty()) continue;  // what has come meanwhile joins the same group
    }
    std::unique_ptr<Work> work;
    ServedCore* owner = nullptr;
    if (!left_.empty()) {
      work = std::move(left_.back());
      left_.pop_back();
      owner = names_.get();
    }
    const Status looked = contain([&]() REQUIRES(mutex_) {
      for (ServedCore* const core : served_) {
        if (work == nullptr && (work = core->next_work()) != nullptr) owner = core;
      }
    });
    if (!looked.ok()) fail(looked);
    if (work == nullptr &&
        std::any_of(served_.begin(), served_.end(), [](ServedCore* core) { return core->has_output(); })) {
      flush();  // without the lock for a while: then look again
      continue;
    }
    if (work == nullptr) {
      if (stop_ && queue_.empty()) return;
      if (queue_.empty()) rest();
      continue;
    }
    lock.unlock();
    work->run();
    lock.lock();
    const Status finished = contain([&] { owner->finish(std::move(work)); });
    if (!finished.ok()) fail(finished);
    static_cast<void>(account());  // the cores know
    flush();
  }
}

// Completions of calls to other servers.
void Service::await() {
  MutexLock lock(mutex_);
  std::vector<net::RpcCompletion> done;
  for (;;) {
    upstream_work_.wait(lock, [&]() REQUIRES(mutex_) { return open_calls_ > 0 || stop_; });
    if (open_calls_ == 0) return;
    const std::shared_ptr<net::RpcClient> upstream = upstream_;
    const bool look_again = !unsent_.empty() || sending_ > 0;
    Nanos until = system_clock().now() + (look_again ? std::min(kLookAgain, patience_) : patience_);
    for (const Paused& each : paused_) until = std::min(until, each.due);
    lock.unlock();
    done.clear();
    upstream->wait(&done, until);
    lock.lock();
    open_calls_ -= done.size();  // first: what throws leaves nobody waiting for them
    const Status told = contain([&]() REQUIRES(mutex_) {
      for (net::RpcCompletion& each : done) tell(each.tag, std::move(each.response));
      tell_paused();
    });
    if (!told.ok()) fail(told);
    flush();
  }
}

}  // namespace swale::meta
