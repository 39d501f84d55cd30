// What the tests of the transport `tls` share: strangers at a rank's port, and a wiretap between two ranks.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "net/fabric/tls_listener.h"
#include "net/fabric/tls_session.h"

namespace swale::net {

// A stranger's connection. -1: refused.
class RawClient {
 public:
  explicit RawClient(const Endpoint& to)
      : fd_(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (fd_ >= 0 && ::connect(fd_, to.get(), to.bytes) != 0) close();
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawClient& operator=(RawClient&&) = delete;

  bool connected() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void send(Bytes bytes) { static_cast<void>(!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)); }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  // Everything until the other side closes. False: it has not within the time.
  bool wait_for_close(std::string* heard = nullptr, int ms = 20'000) {
    for (;;) {
      pollfd event{fd_, POLLIN, 0};
      if (::poll(&event, 1, ms) <= 0) return false;
      char bytes[4096];
      const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (got <= 0) return true;
      if (heard != nullptr) heard->append(bytes, static_cast<size_t>(got));
    }
  }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd_;
};

// Somebody who speaks TLS, with whatever key.
class TlsClient {
 public:
  TlsClient(const TlsContext* context, const Endpoint& to) {
    RawClient raw(to);
    if (raw.connected())
      session_ = *TlsSession::make(context, &buffers_, raw.release(), TlsSession::Side::kDials);
  }
  TlsSession::Step shake_hands() {
    return until_done([this] { return session_->handshake(); });
  }
  // As ranks send records (tls_transport.h).
  void say(uint8_t kind, Bytes payload, uint8_t header_bytes = 0) {
    std::string record;
    append_u32(&record, static_cast<uint32_t>(payload.size()));
    append_u8(&record, kind);
    append_u8(&record, header_bytes);
    append_u16(&record, 0);
    record.append(payload);
    for (size_t at = 0; at < record.size(); at += TlsSession::kPutMax)
      EXPECT_TRUE(session_->put(Bytes(record).substr(at, TlsSession::kPutMax)));
    session_->flush();
  }
  // The first record, or "" when the other side closes.
  std::string hear() {
    char bytes[256];
    size_t got = 0;
    const auto step = until_done([&] {
      session_->begin_reading();
      return session_->read(bytes, sizeof(bytes), &got);
    });
    return step == TlsSession::Step::kDone ? std::string(bytes, got) : "";
  }
  const std::string& why() const { return session_->why(); }

 private:
  template <class Try>
  TlsSession::Step until_done(const Try& attempt) {
    for (;;) {
      const TlsSession::Step step = attempt();
      session_->flush();
      if (step != TlsSession::Step::kAgain) return step;
      pollfd event{session_->fd(), POLLIN, 0};
      if (::poll(&event, 1, 20'000) <= 0) return step;
    }
  }
  TlsBuffers buffers_;
  std::unique_ptr<TlsSession> session_;
};

// Stands between whoever dials it and `to`; keeps what both say, and may change it.
class Wiretap {
 public:
  // change(direction, offset, bytes): direction 0 is from the one who dials.
  using Change = std::function<void(int direction, size_t offset, MutableBytes bytes)>;

  explicit Wiretap(Endpoint to, Change change = {}) : to_(to), change_(std::move(change)) {
    listener_ = TlsListener::make().value();
    thread_ = std::thread([this] { run(); });
  }
  ~Wiretap() {
    stop_.store(true);
    thread_.join();
  }
  std::string address() const { return encode_endpoints(listener_->endpoints()); }
  std::string heard(int direction) {
    const std::lock_guard lock(mutex_);
    return heard_[direction];
  }

 private:
  void run() {
    while (!stop_.load()) {
      std::vector<pollfd> events;
      for (const int socket : listener_->sockets()) events.push_back({socket, POLLIN, 0});
      if (::poll(events.data(), events.size(), 20) <= 0) continue;
      for (const pollfd& each : events) {
        if (each.revents == 0) continue;
        const int dialled = listener_->accept(each.fd).fd;
        if (dialled >= 0) carry(dialled);
      }
    }
  }
  void carry(int dialled) {
    RawClient onward(to_);
    const int ends[2] = {dialled, onward.release()};
    while (!stop_.load() && ends[1] >= 0) {
      pollfd events[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
      if (::poll(events, 2, 20) <= 0) continue;
      bool over = false;
      for (int from = 0; from < 2 && !over; ++from) {
        char bytes[16 * 1024];
        const ssize_t got =
            events[from].revents == 0 ? 0 : ::recv(ends[from], bytes, sizeof(bytes), MSG_DONTWAIT);
        over = events[from].revents != 0 && got <= 0 && !(got < 0 && errno == EAGAIN);
        if (got <= 0) continue;
        const MutableBytes taken(bytes, static_cast<size_t>(got));
        {
          const std::lock_guard lock(mutex_);
          if (change_) change_(from, heard_[from].size(), taken);
          heard_[from].append(view(taken));
        }
        for (size_t sent = 0; sent < taken.size();) {
          const ssize_t more = ::send(ends[1 - from], bytes + sent, taken.size() - sent, MSG_NOSIGNAL);
          if (more < 0 && errno == EAGAIN) continue;
          if (more <= 0) break;
          sent += static_cast<size_t>(more);
        }
      }
      if (over) break;
    }
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }

  const Endpoint to_;
  const Change change_;
  std::unique_ptr<TlsListener> listener_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::string heard_[2];
  std::thread thread_;
};

}  // namespace swale::net
