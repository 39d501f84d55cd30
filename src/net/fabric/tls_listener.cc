#include "net/fabric/tls_listener.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/coding.h"

namespace swale::net {
namespace {

constexpr uint32_t kMagic = 0x31545753;  // "SWT1"
constexpr size_t kEndpointsMax = 8;
constexpr uint8_t kIPv4 = 4;
constexpr uint8_t kIPv6 = 6;

}  // namespace

std::string encode_endpoints(const std::vector<Endpoint>& endpoints) {
  std::string out;
  append_u32(&out, kMagic);
  append_u8(&out, static_cast<uint8_t>(endpoints.size()));
  for (const Endpoint& each : endpoints) {
    if (each.storage.ss_family == AF_INET) {
      const auto* four = reinterpret_cast<const sockaddr_in*>(&each.storage);
      append_u8(&out, kIPv4);
      append_u16(&out, ntohs(four->sin_port));
      out.append(reinterpret_cast<const char*>(&four->sin_addr), sizeof(four->sin_addr));
    } else {
      const auto* six = reinterpret_cast<const sockaddr_in6*>(&each.storage);
      append_u8(&out, kIPv6);
      append_u16(&out, ntohs(six->sin6_port));
      out.append(reinterpret_cast<const char*>(&six->sin6_addr), sizeof(six->sin6_addr));
    }
  }
  return out;
}

Result<std::vector<Endpoint>> decode_endpoints(Bytes address) {
  Decoder in(address);
  const bool known = in.u32() == kMagic;
  const size_t count = in.u8();
  std::vector<Endpoint> all;
  for (size_t i = 0; known && in.ok() && i < count && count <= kEndpointsMax; ++i) {
    const uint8_t family = in.u8();
    const uint16_t port = in.u16();
    Endpoint each;
    if (family == kIPv4) {
      auto* four = reinterpret_cast<sockaddr_in*>(&each.storage);
      four->sin_family = AF_INET;
      four->sin_port = htons(port);
      const Bytes host = in.bytes(sizeof(four->sin_addr));
      if (in.ok()) std::memcpy(&four->sin_addr, host.data(), host.size());
      each.bytes = sizeof(*four);
    } else {
      auto* six = reinterpret_cast<sockaddr_in6*>(&each.storage);
      six->sin6_family = AF_INET6;
      six->sin6_port = htons(port);
      const Bytes host = in.bytes(sizeof(six->sin6_addr));
      if (in.ok()) std::memcpy(&six->sin6_addr, host.data(), host.size());
      each.bytes = sizeof(*six);
    }
    all.push_back(each);
  }
  if (known && in.finish("address").ok() && !all.empty()) return all;
  return error(
      Code::kCorruption, Scope::kPeer,
      "{} bytes are no address of the transport \"tls\": do all ranks run the same version of Swale?",
      address.size());
}

Result<std::unique_ptr<TlsListener>> TlsListener::make(Sockets& system) {
  std::unique_ptr<TlsListener> made(new TlsListener(system));
  made->reserve_ = system.reserve();
  if (made->reserve_ < 0) return errno_status(errno, "a descriptor in reserve (/dev/null)");
  SWALE_ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> all, system.addresses());
  std::string tried;
  for (const InterfaceAddress& each : all) {
    if (made->sockets_.size() == kEndpointsMax) break;
    Endpoint endpoint = each.endpoint;
    const Result<int> socket = system.listen(&endpoint);
    if (!socket.ok()) {
      tried += fmt::format("; {}: {}", each.interface, socket.status().message());
      continue;
    }
    made->sockets_.push_back(*socket);
    made->endpoints_.push_back(endpoint);
  }
  if (made->sockets_.empty()) {
    return error(
        Code::kUnavailable, Scope::kFatal,
        "no interface of this node can be listened on{}: ranks on several nodes need one that is up and has "
        "an address",
        tried.empty() ? " (none is up)" : tried);
  }
  return made;
}

TlsListener::Accepted TlsListener::accept(int socket) {
  Accepted got;
  const auto take = [&] { return system_.accept(socket, &got.from); };
  if (reserve_ < 0) reserve_ = system_.reserve();  // another thread was faster when it was given up
  got.fd = take();
  if (got.fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)) return got;
  bool empty = false;  // the limit is also told where nobody waits
  if (reserve_ >= 0) {
    system_.close(std::exchange(reserve_, -1));
    const int waiting = take();
    empty = waiting < 0 && errno == EAGAIN;
    if (waiting >= 0) system_.close(waiting);
    got.refused = waiting >= 0;
  }
  reserve_ = system_.reserve();
  got.exhausted = reserve_ < 0 || (!got.refused && !empty);
  return got;
}

void TlsListener::close() {
  for (const int fd : sockets_) system_.close(fd);
  sockets_.clear();
}

TlsListener::~TlsListener() {
  close();
  if (reserve_ >= 0) system_.close(reserve_);
}

}  // namespace swale::net
