// TLS as a FabricModule, for programs that have it linked in. Threads: any.
#pragma once

#include "net/fabric/fabric_module.h"

namespace swale::net {

const FabricModule* tls_fabric();

// Its maker, for a table that the compiler fills in.
Result<std::unique_ptr<Transport>> make_tls(Rank rank, int32_t size, const TransportOptions& options);

}  // namespace swale::net
