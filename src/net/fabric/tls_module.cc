// The one symbol of libswale-tls.so (fabric_module.h), filled in by the compiler: nothing runs when it is
// loaded.
#include "net/fabric/module_log.h"
#include "net/fabric/tls_fabric.h"

extern "C" __attribute__((visibility("default"))) constinit const swale::net::FabricModule swale_fabric = {
    .name = "tls", .make = swale::net::make_tls, .log_to = swale::net::pass_log_on};
