// The one symbol of libswale-ucx.so (fabric_module.h). The module has a log of its own, since libswale shows
// nothing of its inside; it passes every message on.
#include "net/ucx_fabric.h"

namespace swale::net {
namespace {

FabricModule module() {
  FabricModule out = *ucx_fabric();
  out.log_to = [](void (*write)(LogLevel level, std::string_view message)) {
    set_log_level(LogLevel::kDebug);  // the receiver chooses
    set_log_sink(write);
  };
  return out;
}

}  // namespace
}  // namespace swale::net

extern "C" __attribute__((visibility("default"))) const swale::net::FabricModule swale_fabric =
    swale::net::module();
