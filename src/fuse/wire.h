// wire: how a session reads requests from the kernel and answers them, where libfuse's own way costs a
// request.
//
// The kernel asks for the attribute security.capability before each write, unless the file system says that
// it takes privileges away itself when a file is written or cut (FUSE_HANDLE_KILLPRIV_V2, Linux 5.11). TierFs
// does; libfuse knows no such flag before 3.18, so the answer to the kernel's first request gets it here.
//
// Threads: those of the session; an answer to INIT comes from the thread that has read it. Errors: those of
// read and writev.
#pragma once

#include "fuse/session.h"

namespace swale::fuse {

// Of a session that is mounted, before it serves. Status: no memory.
Status use_wire(fuse_session* session);

}  // namespace swale::fuse
