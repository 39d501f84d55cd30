#include "sim/wire.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

namespace swale::sim {
namespace {

constexpr Nanos kRefusal = 20'000;

net::Endpoint endpoint_of(int host, uint16_t port) {
  net::Endpoint made;
  auto* const four = reinterpret_cast<sockaddr_in*>(&made.storage);
  four->sin_family = AF_INET;
  four->sin_port = htons(port);
  four->sin_addr.s_addr = htonl(0x0a000000u + static_cast<uint32_t>(host));
  made.bytes = sizeof(*four);
  return made;
}

int failed(int error) {
  errno = error;
  return -1;
}

}  // namespace

class Wire::Watch final : public net::SocketWatch {
 public:
  Watch(Wire& wire, int host) : wire_(wire), host_(host), fd_(::eventfd(0, EFD_CLOEXEC)) {}
  ~Watch() override { ::close(fd_); }

  int fd() const override { return fd_; }  // never ready: the simulation sleeps nowhere
  int add(int socket, uint32_t events, void* what) override {
    Socket* const found = wire_.find(socket);
    assert(found != nullptr && found->host == host_);
    found->watched = true;
    return set(found, events, what);
  }
  int change(int socket, uint32_t events, void* what) override {
    Socket* const found = wire_.find(socket);
    assert(found != nullptr && found->watched);
    return set(found, events, what);
  }
  int ready(epoll_event* out, int max) override {
    std::vector<epoll_event> all;
    for (const auto& [number, socket] : wire_.sockets_) {
      if (socket.host != host_ || !socket.watched) continue;
      epoll_event event{};
      event.events = wire_.ready_events(socket) & (socket.events | EPOLLERR | EPOLLHUP);
      event.data.ptr = socket.what;
      if (event.events != 0) all.push_back(event);
    }
    if (ticked_) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.ptr = ticker_;
      all.push_back(event);
    }
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[wire_.events_.rng().below(i)]);
    const auto count = std::min(all.size(), static_cast<size_t>(max));
    std::copy_n(all.begin(), count, out);
    return static_cast<int>(count);
  }
  void tick(Nanos period, void* what) override {
    period_ = period;
    ticker_ = what;
    ticked_ = false;
    plan(++ticking_);
  }
  bool take_tick() override { return std::exchange(ticked_, false); }

 private:
  int set(Socket* socket, uint32_t events, void* what) {
    socket->events = events;
    socket->what = what;
    if (wire_.ready_events(*socket) != 0) wire_.ready_(host_);
    return 0;
  }
  void plan(uint64_t number) {
    if (period_ == 0) return;
    wire_.events_.at(wire_.events_.now() + period_, [this, alive = std::weak_ptr(alive_), number] {
      if (alive.expired() || number != ticking_) return;
      ticked_ = true;
      wire_.ready_(host_);
      plan(number);
    });
  }
  Wire& wire_;
  const int host_;
  const int fd_;
  Nanos period_ = 0;
  void* ticker_ = nullptr;
  bool ticked_ = false;
  uint64_t ticking_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class Wire::Host final : public net::Sockets {
 public:
  Host(Wire& wire, int index) : wire_(wire), index_(index) {}

  const Clock& clock() const override { return wire_.events_.clock(); }
  Result<std::vector<net::InterfaceAddress>> addresses() override {
    return std::vector<net::InterfaceAddress>{{"sim", false, endpoint_of(index_, 0)}};
  }
  Result<std::unique_ptr<net::SocketWatch>> make_watch() override {
    return std::unique_ptr<net::SocketWatch>(std::make_unique<Watch>(wire_, index_));
  }
  int socket(int) override { return wire_.make(index_, Socket::State::kFresh); }
  int connect(int socket, const net::Endpoint& to) override { return wire_.connect(socket, to); }
  int failure_of(int socket) override {
    Socket* const found = wire_.find(socket);
    return found->state == Socket::State::kFailed ? found->error : 0;
  }
  void set_patience(int socket, Nanos patience) override { wire_.find(socket)->patience = patience; }
  Result<int> listen(net::Endpoint* at) override {
    const int number = wire_.make(index_, Socket::State::kListening);
    if (number < 0) return errno_status(errno, "socket");
    wire_.find(number)->port = wire_.next_port_++;
    *at = endpoint_of(index_, wire_.find(number)->port);
    return number;
  }
  int accept(int listener, net::Endpoint* from) override { return wire_.accept(listener, from); }
  int reserve() override { return wire_.make(index_, Socket::State::kReserve); }
  ssize_t receive(int socket, char* into, size_t room) override { return wire_.receive(socket, into, room); }
  ssize_t send(int socket, const char* bytes, size_t count) override {
    return wire_.send(socket, bytes, count);
  }
  void close(int socket) override { wire_.close(socket); }

  size_t used = 0;
  size_t most = 1 << 20;  // descriptors
  bool dead = false;

 private:
  Wire& wire_;
  const int index_;
};

void Wire::Counts::add(const Counts& other) {
  pieces += other.pieces, altered += other.altered;
  partial_sends += other.partial_sends, full_windows += other.full_windows, short_reads += other.short_reads;
  refused_connects += other.refused_connects, resets += other.resets, timeouts += other.timeouts;
  wants_of_descriptors += other.wants_of_descriptors;
}

std::string Wire::Counts::text() const {
  return fmt::format(
      "{} pieces ({} altered), {} partial sends, {} full windows, {} short reads, {} refused connects, {} "
      "resets, {} timeouts, {} wants of descriptors",
      pieces, altered, partial_sends, full_windows, short_reads, refused_connects, resets, timeouts,
      wants_of_descriptors);
}

Wire::Wire(EventQueue& events, const Params& params, std::function<void(int host)> ready)
    : events_(events), params_(params), ready_(std::move(ready)) {}
Wire::~Wire() = default;

net::Sockets& Wire::host(int index) {
  std::unique_ptr<Host>& made = hosts_[index];
  if (!made) made = std::make_unique<Host>(*this, index);
  return *made;
}

void Wire::limit_descriptors(int host, size_t most) { hosts_.at(host)->most = most; }
size_t Wire::descriptors(int host) const { return hosts_.at(host)->used; }

void Wire::part(int host, int other, Nanos until) { parted_[{host, other}] = parted_[{other, host}] = until; }

void Wire::kill(int host) {
  hosts_.at(host)->dead = true;
  std::vector<int> all;
  for (const auto& [number, socket] : sockets_)
    if (socket.host == host) all.push_back(number);
  for (const int number : all) close(number);
}

Wire::Socket* Wire::find(int number) {
  const auto found = sockets_.find(number);
  return found == sockets_.end() ? nullptr : &found->second;
}

int Wire::make(int host, Socket::State state) {
  Host& owner = *hosts_.at(host);
  if (owner.used >= owner.most) {
    ++counts_.wants_of_descriptors;
    return failed(EMFILE);
  }
  ++owner.used;
  Socket& made = sockets_[next_number_];
  made.number = next_number_++;
  made.host = host;
  made.state = state;
  return made.number;
}

// When what leaves now is there. TCP sends again after what has parted the hosts.
Nanos Wire::arrival(int from, int to, Nanos after) const {
  Nanos leaves = events_.now();
  if (const auto parted = parted_.find({from, to}); parted != parted_.end())
    leaves = std::max(leaves, parted->second);
  return std::max(after + 1, leaves + events_.delay(params_.flight_max));
}

// ---- meeting

int Wire::connect(int number, const net::Endpoint& to) {
  const auto* const four = reinterpret_cast<const sockaddr_in*>(&to.storage);
  const int host = static_cast<int>(ntohl(four->sin_addr.s_addr) - 0x0a000000u);
  const uint16_t port = ntohs(four->sin_port);
  Socket& from = *find(number);
  from.state = Socket::State::kConnecting;
  events_.at(arrival(from.host, host, 0), [this, number, host, port] { reach(number, host, port); });
  return failed(EINPROGRESS);
}

void Wire::reach(int number, int host, uint16_t port) {
  Socket* const from = find(number);
  if (from == nullptr) return;  // closed meanwhile
  const auto listens = [&](const auto& each) {
    return each.second.host == host && each.second.state == Socket::State::kListening &&
           each.second.port == port;
  };
  const auto listener = std::find_if(sockets_.begin(), sockets_.end(), listens);
  const Nanos answer = arrival(host, from->host, 0);
  if (listener == sockets_.end()) {
    ++counts_.refused_connects;
    return events_.at(answer, [this, number] { fail(number, ECONNREFUSED); });
  }
  Socket& made = sockets_[next_number_];  // takes a descriptor when it is accepted
  made.number = next_number_++;
  made.host = host;
  made.state = Socket::State::kOpen;
  made.accepted = false;
  made.peer = number;
  made.last_arrival = answer;
  find(number)->peer = made.number;
  listener->second.waiting.push_back(made.number);
  ready_(host);
  events_.at(answer, [this, number] {
    Socket* const there = find(number);
    if (there == nullptr || there->state != Socket::State::kConnecting) return;
    there->state = Socket::State::kOpen;
    ready_(there->host);
  });
}

int Wire::accept(int number, net::Endpoint* from) {
  Socket& listener = *find(number);
  Host& owner = *hosts_.at(listener.host);
  if (owner.used >= owner.most) {
    ++counts_.wants_of_descriptors;
    return failed(EMFILE);
  }
  if (listener.waiting.empty()) return failed(EAGAIN);
  Socket& taken = *find(listener.waiting.front());
  listener.waiting.pop_front();
  taken.accepted = true;
  ++owner.used;
  const Socket* const peer = find(taken.peer);
  *from = endpoint_of(peer != nullptr ? peer->host : 0, 1);
  return taken.number;
}

// ---- bytes

ssize_t Wire::send(int number, const char* bytes, size_t count) {
  Socket& from = *find(number);
  if (from.error != 0) return failed(from.error);
  if (from.state != Socket::State::kOpen) return failed(EAGAIN);
  if (count == 0) return 0;
  const size_t space = params_.window_bytes - std::min(params_.window_bytes, from.unacknowledged);
  if (space == 0) {
    ++counts_.full_windows;
    return failed(EAGAIN);
  }
  size_t taken = std::min(count, space);
  if (events_.rng().chance(1, 4)) taken = 1 + events_.rng().below(taken);
  counts_.partial_sends += taken < count ? 1 : 0;
  from.unacknowledged += taken;
  for (size_t at = 0; at < taken;) {
    const size_t piece = std::min(taken - at, 1 + events_.rng().below(params_.piece_bytes_max));
    travel(&from, std::string(bytes + at, piece));
    at += piece;
  }
  return static_cast<ssize_t>(taken);
}

void Wire::travel(Socket* from, std::string piece) {
  if (static_cast<int64_t>(counts_.pieces++) == params_.altered_piece) {
    ++counts_.altered;
    char& byte = piece[events_.rng().below(piece.size())];
    byte = static_cast<char>(byte ^ (1 << events_.rng().below(8)));
  }
  const Socket* const to = find(from->peer);
  from->last_arrival = arrival(from->host, to != nullptr ? to->host : from->host, from->last_arrival);
  if (from->patience != kForever && from->last_arrival - events_.now() > from->patience) {
    ++counts_.timeouts;
    return events_.at(events_.now() + from->patience,
                      [this, number = from->number] { fail(number, ETIMEDOUT); });
  }
  events_.at(from->last_arrival, [this, number = from->number, peer = from->peer, piece = std::move(piece)] {
    arrive(number, peer, piece);
  });
}

void Wire::arrive(int from, int to, const std::string& piece) {
  Socket* const socket = find(to);
  if (socket == nullptr) {  // closed: its host says so
    if (find(from) != nullptr) end_at(from, true, events_.now() + events_.delay(kRefusal));
    return;
  }
  if (socket->error != 0) return;
  socket->in += piece;
  ready_(socket->host);
}

ssize_t Wire::receive(int number, char* into, size_t room) {
  Socket& socket = *find(number);
  if (socket.in.empty()) {
    if (socket.error != 0) return failed(socket.error);
    return socket.end_came ? 0 : failed(EAGAIN);
  }
  size_t taken = std::min(room, socket.in.size());
  if (events_.rng().chance(1, 8)) taken = 1 + events_.rng().below(taken);
  counts_.short_reads += taken < std::min(room, socket.in.size()) ? 1 : 0;
  std::copy_n(socket.in.begin(), taken, into);
  socket.in.erase(0, taken);
  const Socket* const peer = find(socket.peer);
  if (peer != nullptr) {
    events_.at(arrival(socket.host, peer->host, 0),
               [this, sender = socket.peer, taken] { acknowledge(sender, taken); });
  }
  return static_cast<ssize_t>(taken);
}

void Wire::acknowledge(int number, size_t bytes) {
  Socket* const sender = find(number);
  if (sender == nullptr) return;
  sender->unacknowledged -= std::min(bytes, sender->unacknowledged);
  ready_(sender->host);
}

// ---- the end

void Wire::close(int number) {
  const auto found = sockets_.find(number);
  assert(found != sockets_.end());
  const Socket socket = std::move(found->second);
  sockets_.erase(found);
  if (socket.accepted) --hosts_.at(socket.host)->used;
  for (const int waiting : socket.waiting) close(waiting);
  const Socket* const peer = find(socket.peer);
  if (peer == nullptr) return;
  const bool reset = !socket.in.empty() || socket.error != 0 || !socket.accepted;
  end_at(socket.peer, reset, arrival(socket.host, peer->host, socket.last_arrival));
}

// The peer of this socket is closed, and its host says so at that time, after all that it has sent.
void Wire::end_at(int number, bool reset, Nanos time) {
  events_.at(time, [this, number, reset] {
    if (reset) return fail(number, ECONNRESET);
    Socket* const socket = find(number);
    if (socket == nullptr) return;
    socket->end_came = true;
    ready_(socket->host);
  });
}

void Wire::fail(int number, int error) {
  Socket* const socket = find(number);
  if (socket == nullptr || socket->error != 0) return;
  socket->error = error;
  counts_.resets += error == ECONNRESET ? 1 : 0;
  if (socket->state == Socket::State::kConnecting) socket->state = Socket::State::kFailed;
  ready_(socket->host);
}

uint32_t Wire::ready_events(const Socket& socket) const {
  switch (socket.state) {
    case Socket::State::kListening:
      return socket.waiting.empty() ? 0 : uint32_t{EPOLLIN};
    case Socket::State::kFailed:
      return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP;
    case Socket::State::kOpen:
      break;
    default:
      return 0;
  }
  uint32_t events = 0;
  if (!socket.in.empty() || socket.end_came || socket.error != 0) events |= EPOLLIN;
  if (socket.unacknowledged < params_.window_bytes || socket.error != 0) events |= EPOLLOUT;
  if (socket.error != 0) events |= EPOLLERR | EPOLLHUP;
  return events;
}

}  // namespace swale::sim
