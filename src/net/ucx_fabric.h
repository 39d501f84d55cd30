// UCX as a FabricModule, for programs that have it linked in. Threads: any.
#pragma once

#include "net/fabric_module.h"

namespace swale::net {

const FabricModule* ucx_fabric();

}  // namespace swale::net
