// The one symbol of libswale-ucx.so (fabric_module.h), filled in by the compiler: nothing runs when it is
// loaded.
#include "net/fabric/module_log.h"
#include "net/fabric/ucx_fabric.h"

extern "C" __attribute__((visibility("default"))) constinit const swale::net::FabricModule swale_fabric = {
    .name = "ucx", .make = swale::net::make_ucx, .log_to = swale::net::pass_log_on};
