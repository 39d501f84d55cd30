// The one symbol of libswale-tls.so (fabric_module.h), filled in by the compiler: nothing runs when it is loaded. The
// module has a log of its own, since libswale shows nothing of its inside; it passes every message on.
#include "net/fabric/tls_fabric.h"

namespace swale::net {
namespace {

void log_to(void (*write)(LogLevel level, std::string_view message)) {
  set_log_level(LogLevel::kDebug);  // the receiver chooses
  set_log_sink(write);
}

}  // namespace
}  // namespace swale::net

extern "C" __attribute__((visibility("default"))) constinit const swale::net::FabricModule swale_fabric = {
    .name = "tls", .make = swale::net::make_tls, .log_to = swale::net::log_to};
