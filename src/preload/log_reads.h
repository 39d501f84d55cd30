// Reads of ours where logs of this node have the bytes, by a map that the server publishes
// (fs/log/map_reader.h). All else is the mount's.
//
// A map is asked for when a description has read kReadsBefore times through the mount, or at once where the
// read is large. One that was of no use costs each read a request more: it is asked for more and more rarely.
//
// Threads: any, and signal handlers: nobody waits, but for a placeholder's turn to ask (light.h). A child of
// fork goes on with its parent's maps.
// Errors: none: what cannot be read here is the mount's.
// Limits: kServersMax servers in the life of a process. Nobody is told of such a read: times of access stay.
#pragma once

#include <sys/uio.h>

#include "preload/descriptions.h"

namespace swale::preload {

inline constexpr uint32_t kServersMax = 4;

// A description of what was opened to be read begins so.
void begin_reads(Description& held) noexcept;

// As pread and preadv.
ssize_t read_at(Description& held, int fd, uint64_t offset, void* out, size_t bytes) noexcept;
ssize_t read_parts_at(Description& held, int fd, uint64_t offset, const iovec* parts, int count) noexcept;

// This process maps the file to be written.
void announce_mapping(int fd) noexcept;

void settle_reads_after_fork() noexcept;

}  // namespace swale::preload
