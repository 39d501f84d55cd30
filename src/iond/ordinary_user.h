// expect_ordinary_user: an I/O server answers what the ranks of a job ask, and they run code of users; as
// root it would do that with the rights of root.
// Threads: any. Errors: kInvalidArgument says what to do instead.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "base/status.h"

namespace swale::iond {

Status expect_ordinary_user();
// Root of the machine, or of a container that has no users of its own. In one that has, root is an ordinary
// user outside: `uid_map` is /proc/self/uid_map.
bool is_root(uid_t user, std::string_view uid_map);

}  // namespace swale::iond
