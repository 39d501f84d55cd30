// BareRpc: request and response with UCX alone, as little code as can be: what bench_rpc compares net::Rpc
// with.
//
// One thread a process. It sleeps in epoll when there is nothing to do, as Swale's ranks do, or polls (kPoll,
// for comparison only: a guest in a simulation may not). What has come is copied into memory that the
// receiver owns, because a service answers later; the server answers after its round of progress.
//
// Threads: one. Errors: die().
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace swale::bench {

enum class BareWait { kSleep, kPoll };

class BareRpc {
 public:
  explicit BareRpc(BareWait wait);
  ~BareRpc();

  std::string address() const;
  void connect(const std::string& address);

  // The caller. Call ask only while fewer than `depth` requests are open, `payload` must stay.
  void begin(size_t depth);
  void ask(const std::string& payload);
  // Progress until at least one answer has come; calls `answered` with each.
  void wait(const std::function<void(std::string answer)>& answered);
  void stop();  // the server

  void serve();  // until stop

 private:
  struct Header {
    uint64_t slot;   // the caller's index
    uint32_t kind;   // 0: request, 1: answer, 2: stop
    uint32_t index;  // the sender's, in sends_
  };
  struct Send {
    Header header;
    std::string payload;      // of an answer
    bool sending = false;     // UCX still has it
    bool unanswered = false;  // a request
    BareRpc* owner = nullptr;
  };
  struct Came {
    Header header;
    std::string payload;
  };

  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* send);
  void send(Send* what, const void* bytes, size_t count);
  void free_if_done(Send* send);
  void progress();

  const BareWait wait_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int epoll_fd_ = -1;
  std::deque<Send> sends_;
  std::vector<size_t> free_;
  std::vector<Came> came_;
  bool stopped_ = false;
  int refused_ = 0;  // tries to arm in a row
};

}  // namespace swale::bench
