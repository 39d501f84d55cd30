// The right to write a file by this process's log (fs/log/attach_format.h): when it is asked for, and what it
// leads to.
//
// An open promises at once that it maps nothing. The log is asked for when writes through the mount have cost
// as much as the meeting with the server does; then each file's right, with the next write. EBUSY: somebody
// has promised nothing, and it is asked again kAgainWrites later.
//
// Threads: any, and signal handlers: nobody waits for another thread; while one asks, the others write
// through the mount. A child of fork has none of its parent's logs.
// Errors: none. Without a log, or with a log that fails, writes go through the mount, whose answer is the
// program's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/log/log_writer.h"
#include "preload/descriptions.h"

namespace swale::preload {

inline constexpr long kOwnDescriptorsBegin = 512;  // out of the way of programs that count theirs
inline constexpr uint32_t kOwnDescriptors = kTreesMax + 4;
inline constexpr size_t kPlaceBytesMax = 4608;  // of kAttachAttribute: a version, a host, a path

// The device of a regular file on a job's tree; 0: it is something else.
uint64_t device_on_tree(int fd) noexcept;

// The kernel knows the file's size, also what logs have made longer.
void learn_size(int fd) noexcept;

// The file has just been opened to write.
void promise(Memory& all, Description& held, int fd) noexcept;
// The log by which `bytes` are to be written; null: through the mount.
fs::LogWriter* log_for(Memory& all, Description& held, int fd, uint64_t bytes) noexcept;
// From now on its writes go through the mount.
inline void refuse_log(Description& held) { held.right.store(kRefused, std::memory_order_release); }
// Mappings of the file, by any process, show what the log has of it.
void show(Description& held, int fd) noexcept;
// The process maps files: all its writes go through the mount.
void refuse_all_logs() noexcept;

// This library's own descriptors, which programs do not know: those of its logs, then those of light.h, below
// kOwnDescriptors; or -1. A program that closes all that it has does not close these.
int own_descriptor(const Memory& all, uint32_t which) noexcept;
bool is_own(const Memory& all, int fd) noexcept;
// The program wants the number for another file.
void move_own(Memory& all, int fd) noexcept;

void drop_logs_of_parent() noexcept;

}  // namespace swale::preload
