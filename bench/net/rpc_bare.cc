#include "bench/net/rpc_bare.h"

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "bench/arguments.h"
#include "net/fabric/ucx_settings.h"

namespace swale::bench {
namespace {

constexpr unsigned kMessage = 1;

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) die(std::string(what) + ": " + ucs_status_string(status));
}

// The settings of Swale's transport (docs/design/transport.md), which serve UCX alone as well.
void configure(ucp_config_t* config, std::span<const net::UcxSetting> settings) {
  for (const auto& [name, value] : settings) {
    if (!net::user_sets_ucx(name)) check(ucp_config_modify(config, name, value), name);
  }
}

}  // namespace

BareRpc::BareRpc(BareWait wait) : wait_(wait) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  configure(config, net::kUcxSettings);
  configure(config, net::kUcxSharedMemorySettings);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  check(ucp_init(&params, config, &context_), "ucp_init");
  ucp_config_release(config);
  ucp_worker_params_t worker{};
  check(ucp_worker_create(context_, &worker, &worker_), "ucp_worker_create");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kMessage;
  handler.cb = on_message;
  handler.arg = this;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  check(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
  int worker_fd = -1;
  check(ucp_worker_get_efd(worker_, &worker_fd), "ucp_worker_get_efd");
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, worker_fd, &event) != 0) die("epoll_ctl");
}

BareRpc::~BareRpc() {
  if (endpoint_ != nullptr) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucp_ep_close_nbx(endpoint_, &param);
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
  }
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
  ::close(epoll_fd_);
}

std::string BareRpc::address() const {
  ucp_address_t* bytes = nullptr;
  size_t count = 0;
  check(ucp_worker_get_address(worker_, &bytes, &count), "ucp_worker_get_address");
  std::string out(reinterpret_cast<const char*>(bytes), count);
  ucp_worker_release_address(worker_, bytes);
  return out;
}

void BareRpc::connect(const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  check(ucp_ep_create(worker_, &params, &endpoint_), "ucp_ep_create");
}

void BareRpc::begin(size_t depth) {
  for (size_t i = 0; i < depth; ++i) {
    sends_.emplace_back().owner = this;
    free_.push_back(i);
  }
}

void BareRpc::send(Send* what, const void* bytes, size_t count) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = on_sent;
  param.user_data = what;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  what->sending = true;
  void* request =
      ucp_am_send_nbx(endpoint_, kMessage, &what->header, sizeof(what->header), bytes, count, &param);
  if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
  if (request == nullptr) {
    what->sending = false;
    free_if_done(what);
  }
}

void BareRpc::on_sent(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  check(status, "sending");
  auto* sent = static_cast<Send*>(user_data);
  sent->sending = false;
  sent->owner->free_if_done(sent);
}

void BareRpc::free_if_done(Send* send) {
  if (send->sending || send->unanswered) return;
  send->payload = {};
  free_.push_back(send->header.index);
}

ucs_status_t BareRpc::on_message(void* self, const void* header, size_t /*header_bytes*/, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* /*param*/) {
  Came came;
  std::memcpy(&came.header, header, sizeof(came.header));
  came.payload.assign(static_cast<const char*>(data), bytes);
  static_cast<BareRpc*>(self)->came_.push_back(std::move(came));
  return UCS_OK;
}

void BareRpc::ask(const std::string& payload) {
  while (free_.empty()) ucp_worker_progress(worker_);  // answered, but UCX has not said that it is sent
  const size_t index = free_.back();
  free_.pop_back();
  Send& request = sends_[index];
  request.header = {index, 0, static_cast<uint32_t>(index)};
  request.unanswered = true;
  send(&request, payload.data(), payload.size());
}

// Sleeps if nothing has come.
void BareRpc::progress() {
  bool did = false;
  for (int i = 0; i < 64 && ucp_worker_progress(worker_) != 0; ++i) did = true;
  if (did || !came_.empty() || wait_ == BareWait::kPoll) {
    refused_ = 0;
    return;
  }
  if (ucp_worker_arm(worker_) == UCS_ERR_BUSY) {
    if (++refused_ > 1) ::sched_yield();  // as Swale's threads do
    return;
  }
  refused_ = 0;
  epoll_event event;
  ::epoll_wait(epoll_fd_, &event, 1, 1000);
}

void BareRpc::wait(const std::function<void(std::string answer)>& answered) {
  while (came_.empty()) progress();
  for (Came& each : std::exchange(came_, {})) {
    Send& request = sends_[each.header.slot];
    request.unanswered = false;
    free_if_done(&request);
    answered(std::move(each.payload));
  }
}

void BareRpc::stop() {
  while (free_.empty()) ucp_worker_progress(worker_);
  const size_t index = free_.back();
  free_.pop_back();
  Send& last = sends_[index];
  last.header = {index, 2, static_cast<uint32_t>(index)};
  send(&last, nullptr, 0);
  while (last.sending) ucp_worker_progress(worker_);
}

void BareRpc::serve() {
  while (!stopped_) {
    progress();
    for (Came& each : std::exchange(came_, {})) {
      if (each.header.kind == 2) {
        stopped_ = true;
        break;
      }
      if (free_.empty()) {
        sends_.emplace_back().owner = this;
        free_.push_back(sends_.size() - 1);
      }
      const size_t index = free_.back();
      free_.pop_back();
      Send& answer = sends_[index];
      answer.header = {each.header.slot, 1, static_cast<uint32_t>(index)};
      answer.payload = std::move(each.payload);
      send(&answer, answer.payload.data(), answer.payload.size());
    }
  }
}

}  // namespace swale::bench
