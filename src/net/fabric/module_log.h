// A fabric module has a log of its own, since libswale shows nothing of its inside; FabricModule::log_to of
// each module passes every message on. Threads: as log.h.
#pragma once

#include <string_view>

#include "base/log.h"

namespace swale::net {

inline void pass_log_on(void (*write)(LogLevel level, std::string_view message)) {
  set_log_level(LogLevel::kDebug);  // the receiver chooses
  set_log_sink(write);
}

}  // namespace swale::net
