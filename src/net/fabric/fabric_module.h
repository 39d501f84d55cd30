// FabricModule: a fabric that is loaded when the first job needs it. libswale itself is linked with no
// fabric: loading UCX costs milliseconds and memory, runs its constructors and installs signal handlers, and
// a process that talks to nobody should have none of that, nor need UCX to be installed.
//
// A module is a shared library `libswale-NAME.so`, built with libswale, found beside it (beside the program,
// if Swale is linked into that) or in the folder swale-VERSION there, else where the system's loader looks.
// It stays loaded. It has one symbol, `swale_fabric`, of type FabricModule; C++ objects cross the border, so
// both must be of the same build, which `version` and `interface` guard.
//
// Loading makes no signal handler: for the time of the load the environment says UCX_HANDLE_ERRORS=none and
// UCX_DEBUG_SIGNO=0 where the user says nothing. The process's environment is not edited for that, since
// other threads may be reading it: `environ` points to a longer copy meanwhile (which then is left to readers
// that may still stand in it, 8 bytes a variable, once).
//
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

struct FabricModule {
  static constexpr uint32_t kInterface = 5;  // of this struct, Transport, Status and what they are made of

  uint32_t interface = kInterface;
  const char* version = SWALE_VERSION;
  const char* name = "";
  Result<std::unique_ptr<Transport>> (*make)(Rank rank, int32_t size,
                                             const TransportOptions& options) = nullptr;
  // The module's messages go where those of its user go. nullptr where both share one log.
  void (*log_to)(void (*write)(LogLevel level, std::string_view message)) = nullptr;
};

// For programs that have the fabric linked in (tests): load_fabric answers with it. `module` lives for ever.
void register_fabric(const FabricModule* module);

// kUnavailable names the file, where it was sought and what to do; kUnsupported: it is of another version.
Result<const FabricModule*> load_fabric(const std::string& name);

}  // namespace swale::net
