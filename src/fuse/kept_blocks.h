// What a file system keeps for root (ext4: 5 % by default), and a mount by root would let others take.
//
// Whether a write may use these blocks is asked when root flushes it, and root is who they are kept for.
// Where they are kept for another user (ext4's mount option resuid), a process that has given
// CAP_SYS_RESOURCE up cannot take them, and every other process of root can.
#pragma once

#include <string>

namespace swale::fuse {

// A warning with the remedy; "" if nothing is kept for root alone. `mounts`: as /proc/self/mountinfo.
std::string warning_of_kept_blocks(const std::string& directory,
                                   const std::string& mounts = "/proc/self/mountinfo");

}  // namespace swale::fuse
