// Files that are opened past the kernel: SWALE_FS_DESCRIPTORS=light (fs/log/light_format.h).
//
// An open of a file of the tree asks the server of the node, which keeps the file open. The program
// gets a placeholder, an O_PATH descriptor of /dev/null: the kernel answers EBADF to whatever would use it,
// and ENOTDIR where it is named as a directory. Its Description has the server's handle. close tells the
// server, fstat asks it; writes go to the log, reads come from logs, as of other files, by grants and maps
// that the server gives for the handle. All else, and what logs do not have, makes the descriptor a real one
// first, by the same number: Held does so for each call that takes one. The kernel then opens a name that the
// server has lent: the same file, whatever was renamed or removed meanwhile.
//
//   light:  handle ──make_real──► kGoingReal ──► 0, or, if the server does not answer, the handle again
//
// What the server refuses, the kernel is asked: so errors are the mount's. The first file of a tree that a
// process opens to write, or the second that it reads, is the kernel's: by that it finds the tree.
//
// Threads: any, and signal handlers. One at a time talks to the server, by a page that both have, or by a
// socket; an open that comes meanwhile goes through the kernel, other calls wait. Who talks blocks signals. A
// child of fork has not the page, and meets the server itself.
// Invariants: (1) A Description with a handle has one descriptor. (2) No other process has a placeholder:
// before fork, exec, spawn or a socket all are real.
// Errors: a placeholder that cannot become real stays one: EBADF. A server that does not answer within
// kAnswerSeconds: EIO, and no more opens of this process pass the kernel.
// Limits: a library that makes its calls inline (liburing, libaio) would get EBADF: if one is loaded when the
// tree is found, files are the kernel's; one that is loaded later is not seen. One tree a process, the first.
// Paths that begin with the place where it is mounted, or that are relative. Where no number is free, one
// that becomes real is nobody's for a moment.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include "preload/descriptions.h"

namespace swale::preload {

inline constexpr uint32_t kGoingReal = ~uint32_t{0};
inline constexpr uint32_t kLightOwn = 4;  // descriptors of this library for it

extern std::atomic<uint32_t> light_placeholders;  // of this process

// A file of this tree has just been opened through the kernel.
void meet_light(Memory& all, int fd, uint64_t device, int access) noexcept;
bool has_met_light(const Memory& all) noexcept;
// Whether the environment says so. If something stands against it, that is said, and the kernel opens files.
bool wants_light() noexcept;

// True: the file is open, or that failed, and *fd is what open returns. False: the kernel is to be asked.
// Without O_CREAT `mode` may be anything.
bool open_light(Memory& all, int at, const char* path, int flags, mode_t mode, int* fd) noexcept;
inline bool open_light(int at, const char* path, int flags, mode_t mode, int* fd) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  return all != nullptr && has_met_light(*all) && open_light(*all, at, path, flags, mode, fd);
}

// The path may lead to a placeholder itself: /proc/self/fd/7.
void before_reopening(const char* path) noexcept;
void make_all_real() noexcept;
// A descriptor becomes real; one that is held has. True, with errno set: it could not.
bool stays_light(int fd) noexcept;
bool stays_light(const Held& held) noexcept;
// By such a path a call that takes a directory gets the descriptor itself (AT_EMPTY_PATH).
inline bool names_itself(const char* path) { return path == nullptr || *path == '\0'; }

// What fstat returns. True: *result is it.
bool stat_light(Description& held, struct stat* out, int* result) noexcept;
// What the kernel would say of a path: true, and *found is set if it is asked for; the caller may do what
// `access` says (R_OK, W_OK, X_OK). False: the kernel is to be asked.
bool look_light(Memory& all, int at, const char* path, int access, struct stat* found) noexcept;
inline bool look_light(int at, const char* path, int access, struct stat* found) noexcept {
  Memory* const all = memory.load(std::memory_order_acquire);
  return all != nullptr && has_met_light(*all) && look_light(*all, at, path, access, found);
}
// What an ioctl of the mount answers; of a placeholder the server is asked. 0, or -1 with errno set.
int ask_tree(Description& held, int fd, unsigned long command, void* argument, size_t bytes) noexcept;
// Before a close: what was written of a placeholder counts. 0, or an errno.
int commit_light(Description& held) noexcept;
// Nobody has it any more.
void close_light(uint32_t handle) noexcept;
// Where logs of the tree on that device are given; null: that is not known here.
const char* attach_socket_of_light(uint64_t device) noexcept;

// The process has a new umask; unknown: what it is, nobody has seen.
void note_umask(mode_t mask) noexcept;
void forget_umask() noexcept;
// As the kernel says; ~0: it does not.
uint32_t read_umask() noexcept;

// Numbers of this library's own descriptors: `which` below kLightOwn; or -1.
int light_descriptor(const Memory& all, uint32_t which) noexcept;
void move_light_descriptor(uint32_t which, int other) noexcept;
void drop_light_of_parent() noexcept;

}  // namespace swale::preload
