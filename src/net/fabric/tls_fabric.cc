#include "net/fabric/tls_fabric.h"

#include <utility>

#include "net/fabric/tls_transport.h"

namespace swale::net {

Result<std::unique_ptr<Transport>> make_tls(Rank rank, int32_t size, const TransportOptions& options) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<TlsTransport> transport, tls_transport(rank, size, options));
  return std::unique_ptr<Transport>(std::move(transport));
}

const FabricModule* tls_fabric() {
  static constexpr FabricModule module{.name = "tls", .make = make_tls};
  return &module;
}

}  // namespace swale::net
