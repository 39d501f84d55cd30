// For tests: a process that is not of a job, talking to one that is, with UCX itself.
#pragma once

#include <gtest/gtest.h>
#include <ucp/api/ucp.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "net/fabric/testing/transport_test_util.h"
#include "net/fabric/ucx_settings.h"
#include "net/fabric/ucx_transport.h"

namespace swale::net {

// A process that is not of the job, talking to one that is, with UCX itself.
class Stranger {
 public:
  explicit Stranger(const char* tls = "tcp,self") {
    ucp_config_t* config = nullptr;
    EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "TLS", tls), UCS_OK);
    const auto tell = [config](std::span<const UcxSetting> settings) {
      for (const auto& [name, value] : settings) EXPECT_EQ(ucp_config_modify(config, name, value), UCS_OK);
    };
    tell(kUcxSettings);
    if (std::string_view(tls).find("posix") != std::string_view::npos) tell(kUcxSharedMemorySettings);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    EXPECT_EQ(ucp_init(&params, config, &context_), UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    EXPECT_EQ(ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    ucp_am_handler_param_t handler{};
    handler.field_mask =
        UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = UcxTransport::kActiveMessageId;
    handler.cb = on_message;
    handler.arg = this;
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker_, &handler), UCS_OK);
  }
  // Before the first send.
  void meet(const std::string& address) {
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    endpoint.address = reinterpret_cast<const ucp_address_t*>(address.data());
    endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    if (endpoint_ != nullptr) finish(ucp_ep_close_nbx(endpoint_, &param));
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  std::string address() const {
    ucp_address_t* bytes = nullptr;
    size_t count = 0;
    EXPECT_EQ(ucp_worker_get_address(worker_, &bytes, &count), UCS_OK);
    std::string out(reinterpret_cast<const char*>(bytes), count);
    ucp_worker_release_address(worker_, bytes);
    return out;
  }
  // The kinds of the messages that have come, in order: waits for so many, or for a moment if there are never
  // as many.
  std::vector<uint32_t> heard(size_t count, std::chrono::milliseconds patience = kTestPatience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (kinds_.size() < count && std::chrono::steady_clock::now() < until) ucp_worker_progress(worker_);
    return kinds_;
  }
  void send(const std::string& header, const std::string& payload, unsigned flags) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    finish(ucp_am_send_nbx(endpoint_, UcxTransport::kActiveMessageId, header.data(), header.size(),
                           payload.data(), payload.size(), &param));
  }

 private:
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void*, size_t,
                                 const ucp_am_recv_param_t*) {
    EXPECT_GE(header_bytes, 20u);
    static_cast<Stranger*>(self)->kinds_.push_back(get_u32(static_cast<const char*>(header) + 16));
    return UCS_OK;
  }
  void finish(void* request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
  }
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::vector<uint32_t> kinds_;
};

// What stands before a frame's header in a UCX message (ucx_transport.h).
inline constexpr uint32_t kUcxMagic = 0x32555753;
inline std::string ucx_prefix(uint32_t magic, uint32_t rank, uint32_t kind, uint64_t secret = 0) {
  std::string out;
  append_u32(&out, magic);
  append_u32(&out, rank);
  append_u64(&out, secret);
  append_u32(&out, kind);
  return out;
}

}  // namespace swale::net
