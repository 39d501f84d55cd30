// Subfiles of a massive directory as descriptors, and by name.
//
// A descriptor that writes is a placeholder: a number of the kernel's, so that no other file has it, of an
// O_PATH descriptor, whose data calls all fail with EBADF: a call that nobody handles here writes nowhere. It
// leads to a link of /proc, which nobody can open again, enter, or map (1.6 us to open and close; an eventfd
// would take writes of 8 bytes, all epoll descriptors share one inode and so its locks, and one that is kept
// to be duplicated is lost to a program that closes all numbers). What is written is kept, and the close of
// the last of its descriptors appends it as one value. A descriptor that reads is a file in memory.
//
// Refused: O_RDWR, O_EXCL and O_SYNC (EINVAL), reading (EBADF), seeks and writes at a place (ESPIPE), fsync
// (EINVAL: closedir makes values durable), fdopen (EINVAL: such a stream writes inside the C library),
// changes of size, mode, owner and times (EPERM). A name without O_CREAT is taken, too: nobody knows all.
//
// Threads: any; not signal handlers. Invariants: (1) A child of vfork changes nothing here. (2) In a child of
// fork, and after exec, the placeholder is the kernel's alone: EBADF; it appends nothing when it is closed.
// Limits: kSubfilesMax descriptions; descriptors below kDescriptorsMax.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include "preload/descriptions.h"
#include "preload/massive.h"

namespace swale::preload {

extern std::atomic<uint32_t> massive_descriptors;             // that are open
extern std::atomic<uint16_t> massive_table[kDescriptorsMax];  // index of its description + 1

// Whether the descriptor is a placeholder.
inline bool is_subfile(int fd) noexcept {
  return massive_descriptors.load(std::memory_order_relaxed) != 0 &&
         static_cast<uint32_t>(fd) < kDescriptorsMax &&
         massive_table[fd].load(std::memory_order_relaxed) != 0;
}

// True: `path` is a subfile, and *opened is what open returns.
bool open_subfile_descriptor(int at, const char* path, int flags, const void* caller, int* opened) noexcept;
// The following are for descriptors that are subfiles, and return what the call does.
ssize_t write_subfile(int fd, const iovec* parts, int count) noexcept;
int close_subfile_descriptor(int fd) noexcept;
int fcntl_subfile(int fd, int command, long argument) noexcept;
int stat_subfile(int fd, struct stat* found) noexcept;
// -1 with errno set; it is logged.
int refuse_subfile(int fd, const char* call, int error, const char* why) noexcept;

// The path of its directory; null: it is another descriptor.
const char* folder_of_subfile(int fd) noexcept;

// `made` leads to what `fd` leads to; what it led to before is closed.
void share_subfile(int fd, int made) noexcept;
// All of a range are closed.
void close_subfiles(uint32_t first, uint32_t last) noexcept;

// Names, of epochs that have ended. -1 with errno set.
int open_finished(MassiveDirectory& directory, const char* name, int flags) noexcept;
int stat_finished(MassiveDirectory& directory, const char* name, struct stat* found) noexcept;
void describe_subfile(const MassiveDirectory& directory, const char* name, uint64_t bytes, mode_t mode,
                      struct stat* found) noexcept;

}  // namespace swale::preload
