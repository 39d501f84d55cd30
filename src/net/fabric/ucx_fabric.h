// UCX as a FabricModule, for programs that have it linked in. Threads: any.
#pragma once

#include "net/fabric/fabric_module.h"

namespace swale::net {

const FabricModule* ucx_fabric();

// Its maker, for a table that the compiler fills in.
Result<std::unique_ptr<Transport>> make_ucx(Rank rank, int32_t size, const TransportOptions& options);

}  // namespace swale::net
