// What every UCX context of Swale is told where the user's variable is unset, whoever makes it: the
// transport, the bare UCX that bench_rpc compares it with, and the strangers of the tests.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace swale::net {

struct UcxSetting {
  const char* name;  // without "UCX_"
  const char* value;
};

inline constexpr UcxSetting kUcxSettings[] = {
    // The cache of registered memory takes the write lock of UCX's hooks of malloc while UCX's own thread
    // starts. With UCX 1.18 it sometimes waits for that lock for ever: ucp_init does not return in 2 of 1,000
    // processes. Our frames are too small to gain by the cache.
    {"RCACHE_ENABLE", "n"},
    // Finds a dead shared-memory peer within a second (20 s by default).
    {"KEEPALIVE_INTERVAL", "1s"},
};

// Only where UCX may choose shared memory: elsewhere it warns of them. "MM_" is posix, sysv and xpmem.
inline constexpr UcxSetting kUcxSharedMemorySettings[] = {
    // Without it, UCX has no shared memory for endpoints that tell of a dead peer.
    {"MM_ERROR_HANDLING", "y"},
    // 32 KiB and 256 bytes, the largest frame and all headers: a frame is one segment, and arrives without
    // being put together from several.
    {"MM_SEG_SIZE", "33024"},
};

// Has the user set it, for all fabrics or for one?
inline bool user_sets_ucx(std::string_view name) {
  const auto is_set = [](std::string_view prefix, std::string_view rest) {
    return std::getenv(std::string("UCX_").append(prefix).append(rest).c_str()) != nullptr;
  };
  if (is_set("", name)) return true;
  if (!name.starts_with("MM_")) return false;
  const std::string_view rest = name.substr(3);
  return is_set("POSIX_", rest) || is_set("SYSV_", rest) || is_set("XPMEM_", rest);
}

}  // namespace swale::net
