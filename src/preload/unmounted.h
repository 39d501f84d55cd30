// Trees that are mounted nowhere: SWALE_FS_UNMOUNTED, which `swale run --no-mount` sets
// (fs/log/unmounted_format.h).
//
// Calls of names below the top ask the server of the node, by a connection of their own: so nothing here has
// to survive a fork, an exec, or a program that closes all numbers. What an open gives is a plain file of the
// node, or of the backing: calls of data are the kernel's, and cost nothing here.
//
// Directories and links are on the backing: the kernel resolves the folder of a path, and says where that is.
// So links, "..", chdir and descriptors of directories are right. Below the top the server says what stands
// at the name: if that is a file, or nothing, its answer is the call's; else the kernel goes on.
//
// Each function below is true if the call was answered here: *result is what it returns, and errno is set.
// False: the kernel is to be asked.
//
// Threads: any, and signal handlers, but for lists. Errors: a server that is gone is waited for, as it may be
// started again, for some seconds: then EIO. What is not known here is refused, EOPNOTSUPP or EPERM,
// with a line on standard error.
// Limits: needs /proc. What the C library opens inside itself (dlopen, its own tables) is the kernel's.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "fs/log/unmounted_format.h"

namespace swale::preload {

enum class Unmounted : uint32_t { kNotLooked, kNo, kYes };
extern std::atomic<Unmounted> unmounted;
bool look_for_unmounted() noexcept;
inline bool is_unmounted() {
  const Unmounted now = unmounted.load(std::memory_order_acquire);
  return now == Unmounted::kYes || (now == Unmounted::kNotLooked && look_for_unmounted());
}

// Other nodes have it, too: what a node's kernel alone would answer is not true.
bool is_on_nodes_unmounted() noexcept;

// ---- for the files of this part

enum class Links : uint32_t { kFollowed, kStay };
// Puts where the path leads, from below the top, into the request. False: elsewhere, or no name.
bool place_unmounted(int at, const char* path, Links links, fs::UnmountedRequest* request) noexcept;
// The same of the other path of a request that has one.
bool other_place_unmounted(int at, const char* path, fs::UnmountedRequest* request) noexcept;
// An open directory at the top or below it; or where the path leads to one.
bool directory_unmounted(int fd, fs::UnmountedRequest* request) noexcept;
bool is_directory_unmounted(int at, const char* path) noexcept;
// An open file of the tree.
bool file_of_unmounted(int fd, fs::UnmountedRequest* request) noexcept;
// 0, or an errno. `fd`: gets the descriptor of an answer that has one.
int ask_unmounted(const fs::UnmountedRequest& request, fs::UnmountedAnswer* answer,
                  int* fd = nullptr) noexcept;
// A file stands there: *answer says so. (Also false: nothing does.)
bool is_file_unmounted(int at, const char* path, Links links, fs::UnmountedAnswer* answer) noexcept;
// With the line on standard error. *result is -1.
bool refuse_unmounted(const char* call, const char* path, int error, int* result) noexcept;
void translate_unmounted(const fs::LightStat& from, struct stat* to) noexcept;
// Of this process, read once; fs::kUnknownUmask: the server is to find it.
uint32_t umask_unmounted() noexcept;
void forget_umask_unmounted() noexcept;

// ---- calls of names and descriptors

bool open_unmounted(int at, const char* path, int flags, mode_t mode, int* fd) noexcept;
bool stat_unmounted(int at, const char* path, int flags, struct stat* found, int* result) noexcept;
// After the kernel's fstat: what it has said of a stand-in becomes what the tree says.
void restat_unmounted(int fd, struct stat* found) noexcept;
bool access_unmounted(int at, const char* path, int mode, int flags, int* result) noexcept;
bool unlink_unmounted(int at, const char* path, int flags, int* result) noexcept;
bool remove_unmounted(const char* path, int* result) noexcept;
bool mkdir_unmounted(int at, const char* path, mode_t mode, int* result) noexcept;
bool symlink_unmounted(const char* target, int at, const char* path, int* result) noexcept;
bool rename_unmounted(int from_at, const char* from, int to_at, const char* to, unsigned flags,
                      int* result) noexcept;
bool truncate_unmounted(const char* path, off_t bytes, int* result) noexcept;
bool chmod_unmounted(int at, const char* path, mode_t mode, Links links, int* result) noexcept;
bool chown_unmounted(int at, const char* path, uid_t user, gid_t group, Links links, int* result) noexcept;
bool utimens_unmounted(int at, const char* path, const timespec* times, Links links, int* result) noexcept;
// Of a descriptor: `path` is null.
bool sync_unmounted(int fd, int* result) noexcept;
// A write has returned, of so many bytes at an offset (-1: the descriptor's): if they are to be durable, by
// the flags of the description or of the call, they are when this returns, which is what the write returns.
ssize_t settle_write_unmounted(int fd, ssize_t bytes, off_t offset, bool durable) noexcept;
// Of several nodes: the tree cuts the file, and then its stand-in.
bool ftruncate_unmounted(int fd, off_t bytes, int* result) noexcept;
// Of several nodes: locks of ranges (fcntl). `lock_here`: the kernel of the node is to know them, too.
bool lock_unmounted(int fd, int command, struct flock* lock, int (*lock_here)(int, int, struct flock*),
                    int* result) noexcept;
// Of several nodes: ENOLCK, with a line: no other node would know of it. `unlocks`: nothing is locked.
bool no_lock_unmounted(const char* call, int fd, bool unlocks, int* result) noexcept;
// Of several nodes: whether a stand-in is appended to is decided when it is opened.
bool no_append_unmounted(int fd, int flags, int* result) noexcept;
bool fchmod_unmounted(int fd, mode_t mode, int* result) noexcept;
bool fchown_unmounted(int fd, uid_t user, gid_t group, int* result) noexcept;
// What nobody does to a name below the top: EPERM, or EOPNOTSUPP.
bool no_entry_unmounted(const char* call, int at, const char* path, int error, int* result) noexcept;
// A call past the C library's functions that opens or changes a name: the kernel does it on the backing, and
// a line says so.
void warn_unmounted(long number, long first, long second) noexcept;
// A program is about to be run: the kernel finds it on the backing.
void bring_unmounted(const char* path) noexcept;

const char* top_unmounted() noexcept;
const timespec* times_of(const timeval* times, timespec out[2]) noexcept;

// ---- streams and lists

bool fopen_unmounted(const char* path, const char* mode, FILE** stream) noexcept;
bool freopen_unmounted(const char* path, const char* mode, FILE* old, FILE** stream) noexcept;
bool mkstemp_unmounted(char* path, int suffix, int flags, int* fd) noexcept;

extern "C" {
// Of opendir and closedir. *is_ours: the directory is in the tree.
DIR* swale_open_list(const char* path, bool* is_ours);
int swale_close_list(DIR* stream, bool* is_ours);
void swale_before_lists(DIR* stream);
}

}  // namespace swale::preload
