#include "net/ucx_transport.h"

#include <ucp/api/ucp.h>

#include "base/coding.h"
#include "net/transport_test_util.h"

namespace swale::net {
namespace {

// A process that is not of the job, talking to one that is, with UCX itself.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    ucp_config_t* config = nullptr;
    EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "TLS", "tcp,self"), UCS_OK);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    EXPECT_EQ(ucp_init(&params, config, &context_), UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    EXPECT_EQ(ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    const std::string ucx_address = address.substr(address.find('\0') + 1);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    endpoint.address = reinterpret_cast<const ucp_address_t*>(ucx_address.data());
    endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    finish(ucp_ep_close_nbx(endpoint_, &param));
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  void send(const std::string& header, const std::string& payload, unsigned flags) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    finish(ucp_am_send_nbx(endpoint_, UcxTransport::kActiveMessageId, header.data(), header.size(),
                           payload.data(), payload.size(), &param));
  }

 private:
  void finish(void* request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
  }
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

std::string prefix(uint32_t magic, uint32_t rank, uint32_t kind) {
  std::string out;
  append_u32(&out, magic);
  append_u32(&out, rank);
  append_u32(&out, kind);
  return out;
}

TEST(UcxTransport, DropsMessagesThatAreNotOfTheJobAndGoesOn) {
  constexpr uint32_t kMagic = 0x31555753;
  TransportOptions options;
  options.settings = {{"TLS", "tcp,self"}};
  auto made = ucx_transport(0, 3, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  std::unique_ptr<UcxTransport> transport = *std::move(made);
  Recorder recorder;
  ASSERT_TRUE(
      transport->start({transport->address(), transport->address(), transport->address()}, &recorder).ok());
  {
    Stranger stranger(transport->address());
    stranger.send("short", "x", UCP_AM_SEND_FLAG_EAGER);
    stranger.send(prefix(kMagic + 1, 1, 0), "x", UCP_AM_SEND_FLAG_EAGER);
    stranger.send(prefix(kMagic, 3, 0), "x", UCP_AM_SEND_FLAG_EAGER);  // no such rank
    stranger.send(prefix(kMagic, 0, 0), "x", UCP_AM_SEND_FLAG_EAGER);  // from oneself
    stranger.send(prefix(kMagic, 1, 4), "x", UCP_AM_SEND_FLAG_EAGER);  // no such kind
    stranger.send(prefix(kMagic, 1, 0) + std::string(65, 'h'), "x",
                  UCP_AM_SEND_FLAG_EAGER);  // header too long
    stranger.send(prefix(kMagic, 1, 0) + "good", "x", UCP_AM_SEND_FLAG_EAGER);
    ASSERT_TRUE(recorder.wait_for([&] { return recorder.frames.size() == 1; }));
    EXPECT_EQ(transport->rejected_messages(), 6u);
    EXPECT_EQ(recorder.frames[0].header, "good");
    stranger.send(prefix(kMagic, 2, 1), "", UCP_AM_SEND_FLAG_EAGER);  // so that close waits for nobody
    stranger.send(prefix(kMagic, 1, 1), "", UCP_AM_SEND_FLAG_EAGER);
    EXPECT_TRUE(transport->close(Deadline::in(system_clock(), seconds(30))).ok());
  }
}

TEST(UcxTransport, CloseEndsAtItsDeadlineAndGivesCookiesBackIfAPeerNeverTakesAnything) {
  for (const char* tls : {"sm,self", "tcp,self"}) {
    auto transports = make_ucx(2, tls);
    ASSERT_EQ(transports.size(), 2u);
    Recorder recorder;  // rank 1 is never started: nobody empties its queues
    ASSERT_TRUE(transports[0]->start({transports[0]->address(), transports[1]->address()}, &recorder).ok());
    const std::string payload = pattern(1, 32 * kKiB);
    for (uint64_t i = 0; i < 300; ++i) post(transports[0].get(), &recorder, 1, "h", payload, i);
    const Status status = transports[0]->close(Deadline::in(system_clock(), milliseconds(200)));
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << tls << ": " << status.to_string();
    EXPECT_EQ(recorder.sent.size(), 300u);
    EXPECT_EQ(recorder.sent_count, 300u);
  }
}

TEST(UcxTransport, RefusesMalformedAddressesAndSettings) {
  auto made = ucx_transport(0, 2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Recorder recorder;
  EXPECT_EQ((*made)->start({"host"}, &recorder).code(), Code::kInvalidArgument);
  EXPECT_EQ((*made)->start({std::string("a\0b", 3), "host"}, &recorder).code(), Code::kCorruption);
  TransportOptions options;
  options.settings = {{"TLS", "no_such_fabric"}};
  EXPECT_THAT(std::string(ucx_transport(0, 2, options).status().message()), testing::HasSubstr("UCX_TLS"));
}

}  // namespace
}  // namespace swale::net
