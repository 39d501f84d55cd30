// Wire: a simulated TCP between hosts, in virtual time, below the product's transport `tls` (net::Sockets).
// All that may differ from one network to the next is drawn from the seed: how many bytes a call takes, in
// how many pieces they travel, when each arrives, in which order sockets are ready.
//
// Fault model: what arrives is in order and whole, as TCP promises. A host can be killed (its connections
// end, or are reset where bytes are unread), and two hosts can be parted for a time: nothing passes, and what
// nobody acknowledges within the sender's patience ends its connection. One bit of the n-th piece can be
// turned over: somebody on the way does that, not TCP. A host may have too few descriptors for a time.
//
// Threads: the simulation's one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/fabric/sockets.h"
#include "sim/event_queue.h"

namespace swale::sim {

class Wire {
 public:
  struct Params {
    size_t window_bytes = 64 * 1024;  // on the way or unread: a sender waits then
    size_t piece_bytes_max = 1460;    // travel together
    int64_t altered_piece = -1;       // of all pieces that travel: one of its bits is turned over
    Nanos flight_max = 50'000;
  };
  // What happened: whether a test has been where it wants to go.
  struct Counts {
    uint64_t pieces = 0, altered = 0;
    uint64_t partial_sends = 0, full_windows = 0, short_reads = 0;
    uint64_t refused_connects = 0, resets = 0, timeouts = 0;
    uint64_t wants_of_descriptors = 0;
    void add(const Counts& other);
    std::string text() const;
  };

  // `ready(host)`: something may be ready there.
  Wire(EventQueue& events, const Params& params, std::function<void(int host)> ready);
  ~Wire();

  net::Sockets& host(int index);
  void kill(int host);
  void part(int host, int other, Nanos until);
  void limit_descriptors(int host, size_t most);
  size_t descriptors(int host) const;
  const Counts& counts() const { return counts_; }

 private:
  class Host;
  class Watch;
  struct Socket {
    enum class State { kFresh, kConnecting, kOpen, kFailed, kListening, kReserve };
    int number = -1;
    int host = -1;
    State state = State::kFresh;
    uint16_t port = 0;        // of a listener
    std::deque<int> waiting;  // at a listener: sockets that nobody has accepted
    int peer = -1;            // the other end; it may be closed
    bool accepted = true;     // false: waits at a listener
    std::string in;           // has come, is unread
    bool end_came = false;
    int error = 0;
    size_t unacknowledged = 0;  // on the way to the peer, or unread there
    Nanos last_arrival = 0;     // at the peer: keeps the order
    Nanos patience = kForever;
    bool watched = false;
    uint32_t events = 0;
    void* what = nullptr;
  };

  Socket* find(int number);
  int make(int host, Socket::State state);
  void close(int number);
  int connect(int number, const net::Endpoint& to);
  void reach(int number, int host, uint16_t port);
  int accept(int number, net::Endpoint* from);
  ssize_t send(int number, const char* bytes, size_t count);
  void travel(Socket* from, std::string piece);
  void arrive(int from, int to, const std::string& piece);
  ssize_t receive(int number, char* into, size_t room);
  void acknowledge(int number, size_t bytes);
  void fail(int number, int error);
  void end_at(int number, bool reset, Nanos time);
  uint32_t ready_events(const Socket& socket) const;
  Nanos arrival(int from, int to, Nanos after) const;

  EventQueue& events_;
  const Params params_;
  const std::function<void(int)> ready_;
  std::map<int, std::unique_ptr<Host>> hosts_;
  std::map<int, Socket> sockets_;
  std::map<std::pair<int, int>, Nanos> parted_;  // until when
  int next_number_ = 1 << 20;                    // no descriptor of this process
  uint16_t next_port_ = 1000;
  Counts counts_;
};

}  // namespace swale::sim
