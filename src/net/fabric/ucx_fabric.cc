#include "net/fabric/ucx_fabric.h"

#include <utility>

#include "net/fabric/ucx_transport.h"

namespace swale::net {

Result<std::unique_ptr<Transport>> make_ucx(Rank rank, int32_t size, const TransportOptions& options) {
  SWALE_ASSIGN_OR_RETURN(std::unique_ptr<UcxTransport> transport, ucx_transport(rank, size, options));
  return std::unique_ptr<Transport>(std::move(transport));
}

const FabricModule* ucx_fabric() {
  static constexpr FabricModule module{.name = "ucx", .make = make_ucx};
  return &module;
}

}  // namespace swale::net
