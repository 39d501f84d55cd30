// Sockets: what the transport `tls` asks of the system: TCP sockets, which of them are ready, and the time.
// The kernel's are kernel_sockets(); the simulator has its own, whose bytes travel in virtual time
// (sim/wire.h).
//
// Each call is the system call that it is named after: -1 and errno if it fails; no call blocks.
// Threads: those of kernel_sockets() by any; a SocketWatch by one at a time.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/fabric/interfaces.h"

namespace swale::net {

// Which sockets are ready: level-triggered, in the words of epoll.
class SocketWatch {
 public:
  virtual ~SocketWatch() = default;
  virtual int fd() const = 0;  // can be read when something is ready
  // `what` comes with the events of `socket`, which leaves the watch when it is closed.
  virtual int add(int socket, uint32_t events, void* what) = 0;
  virtual int change(int socket, uint32_t events, void* what) = 0;
  virtual int ready(epoll_event* out, int max) = 0;
  // `what` becomes ready again and again, after each `period`; 0: no more.
  virtual void tick(Nanos period, void* what) = 0;
  virtual bool take_tick() = 0;  // false: there was none since the last call
};

class Sockets {
 public:
  virtual ~Sockets() = default;

  virtual const Clock& clock() const = 0;
  virtual Result<std::vector<InterfaceAddress>> addresses() = 0;  // that others can reach
  virtual Result<std::unique_ptr<SocketWatch>> make_watch() = 0;

  virtual int socket(int family) = 0;
  virtual int connect(int socket, const Endpoint& to) = 0;
  virtual int failure_of(int socket) = 0;  // the errno by which a connect has ended; 0: it is connected
  // Small messages leave at once. What nobody acknowledges for `patience` ends the connection.
  virtual void set_patience(int socket, Nanos patience) = 0;
  // A socket that listens at `at`, which gets its port.
  virtual Result<int> listen(Endpoint* at) = 0;
  virtual int accept(int listener, Endpoint* from) = 0;
  virtual int reserve() = 0;  // a descriptor that is of no use but to be closed
  virtual ssize_t receive(int socket, char* into, size_t room) = 0;
  virtual ssize_t send(int socket, const char* bytes, size_t count) = 0;
  virtual void close(int socket) = 0;
};

Sockets& kernel_sockets();

}  // namespace swale::net
