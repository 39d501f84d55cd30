// What the transport tests share: a recorder of events, and the fabrics that the contract suite runs over.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "net/fabric/address_book.h"
#include "net/fabric/loopback_transport.h"
#include "net/fabric/tls_transport.h"
#include "net/fabric/transport.h"
#include "net/fabric/ucx_transport.h"

namespace swale::net {

inline constexpr std::chrono::seconds kTestPatience{60};  // for what must come; a failure, not a measurement

// Counts and keeps what a transport says, and lets a test wait for it.
class Recorder : public TransportEvents {
 public:
  struct Frame {
    Rank from;
    std::string header;
    std::string payload;
  };

  void on_frame(Rank from, Bytes header, Bytes payload) override {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(downs.count(from), 0u) << "a frame after on_down";
    frames.push_back({from, std::string(header), std::string(payload)});
    changed.notify_all();
  }
  void on_sent(uint64_t cookie) override {
    const std::lock_guard lock(mutex);
    ++sent[cookie];
    ++sent_count;
    changed.notify_all();
  }
  void on_down(Rank peer, const Status& why) override {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(downs.count(peer), 0u) << "on_down twice";
    downs[peer] = why;
    changed.notify_all();
  }
  Nanos on_progress(Nanos now) override {
    const std::lock_guard lock(mutex);
    ++progress_calls;
    changed.notify_all();
    return now + seconds(3600);
  }

  void on_failure(const Status& why) override { ADD_FAILURE() << why.to_string(); }

  // `condition` runs under the mutex.
  bool wait_for(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, condition);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Frame> frames;
  std::map<uint64_t, int> sent;
  size_t sent_count = 0;
  std::map<Rank, Status> downs;
  size_t progress_calls = 0;
};

struct FabricKind {
  std::string name;
  std::function<std::vector<std::unique_ptr<Transport>>(int32_t size)> make;
};

// Posts; a payload that is free at once counts as sent.
inline void post(Transport* from, Recorder* recorder, Rank to, Bytes header, Bytes payload, uint64_t cookie) {
  if (from->post(to, header, payload, cookie)) recorder->on_sent(cookie);
}

inline std::vector<std::unique_ptr<Transport>> make_loopback(int32_t size, Posting posting) {
  const auto fabric = LoopbackFabric::create(size);
  std::vector<std::unique_ptr<Transport>> all;
  for (Rank rank = 0; rank < size; ++rank) all.push_back(fabric->transport(rank, posting));
  return all;
}

inline std::vector<std::unique_ptr<Transport>> make_ucx(int32_t size, const std::string& tls,
                                                        Posting posting = Posting::kDirect, Nanos poll = 0) {
  TransportOptions options;
  options.posting = posting;
  options.poll = poll;
  options.settings = {{"TLS", tls}};
  std::vector<std::unique_ptr<Transport>> all;
  for (Rank rank = 0; rank < size; ++rank) {
    auto made = ucx_transport(rank, size, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) all.push_back(*std::move(made));
  }
  return all;
}

inline std::vector<std::unique_ptr<Transport>> make_tls(int32_t size, Posting posting = Posting::kDirect,
                                                        TransportOptions options = {}) {
  options.posting = posting;
  options.key = JobKey::draw().value();
  std::vector<std::unique_ptr<Transport>> all;
  for (Rank rank = 0; rank < size; ++rank) {
    auto made = tls_transport(rank, size, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) all.push_back(*std::move(made));
  }
  return all;
}

// As the ranks of a job make it of their addresses.
inline std::shared_ptr<const AddressBook> book_of(const std::vector<std::string>& addresses) {
  std::vector<std::string> rows;
  for (const std::string& each : addresses)
    rows.push_back(encode_address(static_cast<Rank>(rows.size()), "somewhere", each));
  return make_book(rows).value();
}

inline std::string pattern(uint64_t seed, size_t bytes) {
  std::string out(bytes, '\0');
  Rng rng(seed);
  for (char& c : out) c = static_cast<char>(rng.next());
  return out;
}

}  // namespace swale::net
