// TlsListener: where ranks are dialled: a listening socket for each address of the interfaces in use
// (interfaces.h), and how these addresses are told.
//
// At the limit of descriptors one that is kept in reserve is given up, so that the waiting connection can be
// taken and closed: else it would end every sleep at once, for ever.
//
// Format of an address (little-endian): u32 magic "SWT1" | u8 count | count x (u8 family, 4 or 6 | u16 port |
// 4 or 16 bytes)
// Threads: one at a time. Limits: 8 addresses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/sockets.h"

namespace swale::net {

std::string encode_endpoints(const std::vector<Endpoint>& endpoints);
// kCorruption: the bytes are none.
Result<std::vector<Endpoint>> decode_endpoints(Bytes address);

class TlsListener {
 public:
  struct Accepted {
    int fd = -1;             // -1: none waits, or none could be taken
    Endpoint from;           // of fd
    bool refused = false;    // one was taken and closed, because there are no descriptors
    bool exhausted = false;  // nothing can be taken until descriptors are free: ask again later
  };

  // Listens. kUnavailable names the interfaces if none can be listened on.
  static Result<std::unique_ptr<TlsListener>> make(Sockets& system = kernel_sockets());
  ~TlsListener();
  TlsListener(const TlsListener&) = delete;
  TlsListener& operator=(const TlsListener&) = delete;

  const std::vector<int>& sockets() const { return sockets_; }
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  Accepted accept(int socket);
  void close();

 private:
  explicit TlsListener(Sockets& system) : system_(system) {}

  Sockets& system_;
  std::vector<int> sockets_;
  std::vector<Endpoint> endpoints_;
  int reserve_ = -1;
};

}  // namespace swale::net
