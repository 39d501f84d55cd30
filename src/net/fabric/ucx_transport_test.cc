#include "net/fabric/ucx_transport.h"

#include <ucp/api/ucp.h>

#include <thread>
#include <vector>

#include "base/coding.h"
#include "net/fabric/testing/transport_test_util.h"

namespace swale::net::ucx_transport_test {
namespace {

// A process that is not of the job, talking to one that is, with UCX itself.
class Stranger {
 public:
  Stranger() {
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
  // The kinds of the messages that have come, in order: waits for so many, or for a moment if there are never as many.
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
    EXPECT_GE(header_bytes, 12u);
    static_cast<Stranger*>(self)->kinds_.push_back(get_u32(static_cast<const char*>(header) + 8));
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
      transport->start(book_of({transport->address(), transport->address(), transport->address()}), &recorder)
          .ok());
  {
    Stranger stranger;
    stranger.meet(transport->address());
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

// The reason stands in ucx_meeting.cc. A peer that says nothing gets a hello, and no frame.
TEST(UcxTransport, NoFrameIsSentBeforeBothHaveSaidHello) {
  constexpr uint32_t kMagic = 0x31555753, kFrame = 0, kHello = 2, kKnock = 3;
  TransportOptions options;
  options.settings = {{"TLS", "tcp,self"}};
  for (const bool answers : {true, false}) {
    auto made = ucx_transport(0, 2, options);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    std::unique_ptr<UcxTransport> transport = *std::move(made);
    Stranger stranger;
    Recorder recorder;
    ASSERT_TRUE(transport->start(book_of({transport->address(), stranger.address()}), &recorder).ok());
    for (uint64_t i = 0; i < 3; ++i) post(transport.get(), &recorder, 1, "h", "a frame", i);
    EXPECT_THAT(stranger.heard(1), testing::ElementsAre(kHello));
    EXPECT_THAT(stranger.heard(2, std::chrono::milliseconds(200)), testing::ElementsAre(kHello));
    EXPECT_EQ(recorder.sent_count, 0u);
    if (answers) {
      stranger.meet(transport->address());
      stranger.send(prefix(kMagic, 1, kHello), "", UCP_AM_SEND_FLAG_EAGER);
      EXPECT_THAT(stranger.heard(5), testing::ElementsAre(kHello, kKnock, kFrame, kFrame, kFrame));
    } else {
      transport->drop(1, error(Code::kUnavailable, Scope::kPeer, "it says nothing"));
    }
    EXPECT_TRUE(recorder.wait_for([&] { return recorder.sent_count == 3; }));
    EXPECT_EQ(recorder.downs.size(), answers ? 0u : 1u);
    static_cast<void>(transport->close(Deadline::in(system_clock(), milliseconds(100))));
  }
}

TEST(UcxTransport, CloseEndsAtItsDeadlineAndGivesCookiesBackIfAPeerNeverTakesAnything) {
  for (const char* tls : {"sm,self", "tcp,self"}) {
    auto transports = make_ucx(2, tls);
    ASSERT_EQ(transports.size(), 2u);
    Recorder recorder;  // rank 1 is never started: nobody empties its queues
    const auto book = book_of({transports[0]->address(), transports[1]->address()});
    ASSERT_TRUE(transports[0]->start(book, &recorder).ok());
    const std::string payload = pattern(1, 32 * kKiB);
    for (uint64_t i = 0; i < 300; ++i) post(transports[0].get(), &recorder, 1, "h", payload, i);
    const Status status = transports[0]->close(Deadline::in(system_clock(), milliseconds(200)));
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << tls << ": " << status.to_string();
    EXPECT_EQ(recorder.sent.size(), 300u);
    EXPECT_EQ(recorder.sent_count, 300u);
  }
}

// A rank is looked up when it is met; the others are not disturbed.
TEST(UcxTransport, APeerWhoseAddressIsDamagedIsDownWhenItIsMet) {
  auto transports = make_ucx(3, "sm,self");
  ASSERT_EQ(transports.size(), 3u);
  std::vector<std::string> rows;
  for (Rank rank = 0; rank < 3; ++rank)
    rows.push_back(encode_address(rank, "somewhere", transports[static_cast<size_t>(rank)]->address()));
  rows[2].back() = static_cast<char>(rows[2].back() ^ 1);
  const auto book = make_book(rows).value();
  Recorder recorders[2];
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(transports[i]->start(book, &recorders[i]).ok());
  for (const Rank to : {1, 2})
    post(transports[0].get(), &recorders[0], to, "h", "hello", static_cast<uint64_t>(to));
  EXPECT_TRUE(recorders[1].wait_for([&] { return recorders[1].frames.size() == 1; }));
  EXPECT_TRUE(recorders[0].wait_for(
      [&] { return recorders[0].downs.count(2) == 1 && recorders[0].sent_count == 2; }));
  EXPECT_EQ(recorders[0].downs[2].code(), Code::kCorruption);
  EXPECT_THAT(std::string(recorders[0].downs[2].message()),
              testing::HasSubstr("address of rank 2 is damaged"));
  std::thread other(
      [&] { EXPECT_TRUE(transports[1]->close(Deadline::in(system_clock(), seconds(30))).ok()); });
  EXPECT_TRUE(transports[0]->close(Deadline::in(system_clock(), seconds(30))).ok());
  other.join();
}

// What UCX does with these settings, and what it says: it writes that into the terminal of every rank.
std::string what_ucx_says(const TransportOptions& options) {
  testing::internal::CaptureStdout();
  const Status made = ucx_transport(0, 2, options).status();
  return testing::internal::GetCapturedStdout() + (made.ok() ? "" : made.to_string());
}

TEST(UcxTransport, UcxKnowsEverySettingThatItIsGiven) {
  EXPECT_EQ(what_ucx_says({}), "");
  for (const char* const tls : {"tcp,self", "sm,self"}) {
    TransportOptions options;
    options.settings = {{"TLS", tls}};
    EXPECT_EQ(what_ucx_says(options), "") << tls;
    // Canary: UCX complains of a name that it does not know.
    options.settings.emplace_back("NO_SUCH_SETTING", "y");
    EXPECT_NE(what_ucx_says(options), "") << tls;
  }
}

TEST(UcxTransport, RefusesABookOfAnotherJobAndMalformedSettings) {
  auto made = ucx_transport(0, 2);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Recorder recorder;
  EXPECT_EQ((*made)->start(book_of({"alone"}), &recorder).code(), Code::kInvalidArgument);
  TransportOptions options;
  options.settings = {{"TLS", "no_such_fabric"}};
  EXPECT_THAT(std::string(ucx_transport(0, 2, options).status().message()), testing::HasSubstr("UCX_TLS"));
}

}  // namespace
}  // namespace swale::net::ucx_transport_test
