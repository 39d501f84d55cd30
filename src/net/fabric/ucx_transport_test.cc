#include "net/fabric/ucx_transport.h"

#include <ucp/api/ucp.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/coding.h"
#include "net/fabric/testing/transport_test_util.h"
#include "net/fabric/testing/ucx_stranger_test_util.h"

namespace swale::net::ucx_transport_test {
namespace {

TEST(UcxTransport, DropsMessagesThatAreNotOfTheJobAndGoesOn) {
  constexpr uint32_t kMagic = kUcxMagic;
  constexpr uint64_t kSecret = 0x1122334455667788;
  TransportOptions options;
  options.settings = {{"TLS", "tcp,self"}};
  options.secret = kSecret;
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
    stranger.send(ucx_prefix(kMagic + 1, 1, 0, kSecret), "x", UCP_AM_SEND_FLAG_EAGER);
    stranger.send(ucx_prefix(kMagic, 3, 0, kSecret), "x", UCP_AM_SEND_FLAG_EAGER);  // no such rank
    stranger.send(ucx_prefix(kMagic, 0, 0, kSecret), "x", UCP_AM_SEND_FLAG_EAGER);  // from oneself
    stranger.send(ucx_prefix(kMagic, 1, 4, kSecret), "x", UCP_AM_SEND_FLAG_EAGER);  // no such kind
    stranger.send(ucx_prefix(kMagic, 1, 0, kSecret) + std::string(65, 'h'), "x",
                  UCP_AM_SEND_FLAG_EAGER);  // header too long
    // Without the secret nothing is believed: not that a rank leaves, nor that it sends what this rank must
    // not take.
    for (const uint32_t kind : {0, 1, 2, 3}) {
      stranger.send(ucx_prefix(kMagic, 1, kind, kSecret ^ 1), "x", UCP_AM_SEND_FLAG_EAGER);
      stranger.send(ucx_prefix(kMagic, 1, kind, kSecret ^ 1), std::string(kMiB, 'x'), 0);
    }
    stranger.send(ucx_prefix(kMagic, 1, 0, kSecret) + "good", "x", UCP_AM_SEND_FLAG_EAGER);
    ASSERT_TRUE(recorder.wait_for([&] { return recorder.frames.size() == 1; }));
    EXPECT_EQ(transport->rejected_messages(), 14u);
    EXPECT_EQ(recorder.frames[0].header, "good");
    EXPECT_TRUE(recorder.downs.empty());
    stranger.send(ucx_prefix(kMagic, 2, 1, kSecret), "",
                  UCP_AM_SEND_FLAG_EAGER);  // so that close waits for nobody
    stranger.send(ucx_prefix(kMagic, 1, 1, kSecret), "", UCP_AM_SEND_FLAG_EAGER);
    EXPECT_TRUE(transport->close(Deadline::in(system_clock(), seconds(30))).ok());
  }
}

TEST(UcxTransport, ARankThatUcxCannotReachIsDownAndTheErrorNamesTheWayThatNeedsLess) {
  Recorder recorder;  // outlives the thread that calls it
  std::vector<std::unique_ptr<UcxTransport>> two;
  std::vector<std::string> addresses;
  for (const char* fabrics : {"posix,self", "tcp,self"}) {
    TransportOptions options;
    options.settings = {{"TLS", fabrics}};
    two.push_back(ucx_transport(static_cast<Rank>(two.size()), 2, options).value());
    addresses.push_back(two.back()->address());
  }
  ASSERT_TRUE(two[0]->start(book_of(addresses), &recorder).ok());
  post(two[0].get(), &recorder, 1, "h", "payload", 7);
  ASSERT_TRUE(recorder.wait_for([&] { return recorder.downs.count(1) == 1 && recorder.sent[7] == 1; }));
  EXPECT_THAT(recorder.downs[1].message(),
              testing::HasSubstr("rank 1 (host somewhere) cannot be reached by UCX"));
  EXPECT_THAT(recorder.downs[1].message(), testing::HasSubstr("job.transport=tls"));
}

// The reason stands in ucx_meeting.cc. A peer that says nothing gets a hello, and no frame.
TEST(UcxTransport, NoFrameIsSentBeforeBothHaveSaidHello) {
  constexpr uint32_t kMagic = kUcxMagic, kFrame = 0, kHello = 2, kKnock = 3;
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
      stranger.send(ucx_prefix(kMagic, 1, kHello), "", UCP_AM_SEND_FLAG_EAGER);
      EXPECT_THAT(stranger.heard(5), testing::ElementsAre(kHello, kKnock, kFrame, kFrame, kFrame));
    } else {
      transport->drop(1, error(Code::kUnavailable, Scope::kPeer, "it says nothing"));
    }
    // It is told that the peer is gone after the cookies.
    EXPECT_TRUE(recorder.wait_for(
        [&] { return recorder.sent_count == 3 && recorder.downs.size() == (answers ? 0u : 1u); }));
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

// What UCX says of its hooks of malloc in a test with a transport and a stranger. It reads the level of its
// log when it is loaded, so a process of its own runs that test.
std::string what_ucx_says_of_its_hooks(const std::string& variables) {
  const std::string command =
      fmt::format("UCX_MEM_LOG_LEVEL=debug {} /proc/{}/exe --gtest_filter=UcxTransport.DropsMessages* 2>&1",
                  variables, ::getpid());
  FILE* const out = ::popen(command.c_str(), "r");
  std::string said;
  for (int c; (c = std::fgetc(out)) != EOF;) said += static_cast<char>(c);
  EXPECT_EQ(::pclose(out), 0) << said;
  EXPECT_THAT(said, testing::HasSubstr("[  PASSED  ] 1 test."));
  return said;
}

// Whoever asks to be called by the hooks may wait for ever with UCX 1.18 (ucx_settings.h).
TEST(UcxTransport, AsksNotToBeCalledByUcxsHooksOfMalloc) {
  constexpr char kAsked[] = "added user handler";
  EXPECT_THAT(what_ucx_says_of_its_hooks(""), testing::Not(testing::HasSubstr(kAsked)));
  // Canary: UCX says so where a user wants the cache.
  EXPECT_THAT(what_ucx_says_of_its_hooks("UCX_RCACHE_ENABLE=y"), testing::HasSubstr(kAsked));
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
