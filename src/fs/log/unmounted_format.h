// How programs of a node work in a tree that is mounted nowhere: what their C library's calls of names say to
// the server (libswale_preload.so, docs/design/preload.md).
//
//   program                                      server of the node
//   connect(SOCKET of kUnmountedVariable) ─────► looks at the peer's user
//   UnmountedRequest ──────────────────────────► checks each component of the path as the kernel would
//                  ◄── UnmountedAnswer            and, of kOpen, kList and kStats, a descriptor (SCM_RIGHTS)
//
// One request a connection: so a program keeps nothing, whatever it forks, closes or becomes.
//
// kOpen gives a descriptor of a plain file of this node: a stand-in (src/fs/job/stand_ins.h), by which all
// processes of the node have the file's bytes; or, of a file that is on the backing and is opened to read,
// the backing's own. All calls of data are the kernel's. The mode of a stand-in is kStandInMode, by which a
// program knows one that it has inherited; it names the file by the stand-in's inode then.
//
// Directories and links are the backing's own: an answer says what stands at the path, and the program goes
// on by the kernel. kList: a descriptor of ListedName records, one after the other.
//
// Needs: the system's headers (the client's half goes into a preload library).
// Limits: native byte order: it never leaves a node. Paths below kUnmountedPathMax bytes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "fs/log/light_format.h"

namespace swale::fs {

inline constexpr uint64_t kUnmountedMagic = 0x746e756f6d6e7500;  // "\0unmount"
inline constexpr uint32_t kUnmountedVersion = 2;
inline constexpr char kUnmountedSocket[] = "unmounted";
// SOCKET:TOP, the backing directory; of several nodes: nodes:SOCKET:TOP.
inline constexpr char kUnmountedVariable[] = "SWALE_FS_UNMOUNTED";
inline constexpr char kUnmountedOnNodes[] = "nodes:";
inline constexpr size_t kUnmountedPathMax = 4096;
inline constexpr uint32_t kUnknownUmask = ~uint32_t{0};  // the server asks the kernel, which takes longer
inline constexpr mode_t kStandInMode = 01600;            // a sticky bit, which no other plain file has

enum class UnmountedCall : uint32_t {
  kOpen = 1,
  kLook = 2,  // mode: R_OK, W_OK and X_OK, or 0: what stands there
  kList = 3,
  kSync = 4,
  kUnlink = 5,
  kRemoveDirectory = 6,
  kMakeDirectory = 7,
  kMakeLink = 8,  // the other path is what it says
  kRename = 9,    // flags: of renameat2
  kTruncate = 10,
  kChange = 11,
  kSyncAll = 12,
  kStats = 13,  // a descriptor of the statistics, in JSON
  kSeal = 14,   // EBUSY: somebody has the file open
  // Extended attributes of a file: the other path is its name, and behind a 0 the value that is set (flags:
  // of setxattr). A descriptor of what is got or listed.
  kGetAttribute = 15,
  kListAttributes = 16,
  kSetAttribute = 17,
  kRemoveAttribute = 18,
  // Of several nodes: a lock of a range by this process, or, by F_UNLCK, its end. `what` is its type; it
  // begins at `size` and ends at `modified_ns` (0: nowhere), of the plain file of inode `accessed_ns`.
  // EAGAIN: another process has it.
  kLock = 19,
  kFindLock = 20,  // the answer's `there` is the type of one that is in the way, or F_UNLCK
};

// Of kChange, in `what`.
enum UnmountedChange : uint32_t {
  kChangesMode = 1,
  kChangesAccessed = 2,
  kChangesModified = 4,
  kAccessedNow = 8,
  kModifiedNow = 16,
  kChangesUser = 32,
  kChangesGroup = 64,
};

struct UnmountedRequest {
  uint64_t magic = kUnmountedMagic;
  uint32_t version = kUnmountedVersion;
  UnmountedCall call = UnmountedCall::kOpen;
  uint64_t stand_in = 0;  // an inode, instead of a path; 0: the path says
  // Of kTruncate; of kSync what is to be durable, from `offset`, or if flags say O_APPEND from the file's end
  // as the tree has it: 0: all.
  uint64_t size = 0, offset = 0;
  uint32_t flags = 0, mode = 0, what = 0;
  uint32_t umask = kUnknownUmask;  // of kOpen and kMakeDirectory
  uint32_t user = 0, group = 0;
  int64_t accessed_ns = 0, modified_ns = 0;
  uint32_t path_bytes = 0, other_bytes = 0;
  char paths[2 * kUnmountedPathMax] = "";  // from below the top, one after the other; the message ends there
};
inline constexpr size_t kUnmountedHeadBytes = offsetof(UnmountedRequest, paths);

struct UnmountedAnswer {
  uint64_t magic = kUnmountedMagic;
  uint32_t version = kUnmountedVersion;
  int32_t error = 0;   // an errno
  uint32_t kind = 0;   // S_IFREG, or S_IFDIR or S_IFLNK: the kernel has it
  uint32_t there = 0;  // of kLook with X_OK: 1: the backing has the file as it is
  LightStat stat;      // of a file
};

struct ListedName {
  uint64_t inode = 0;
  uint16_t name_bytes = 0;
  uint8_t type = 0;  // DT_REG, ...
  uint8_t unused[5] = {};
};
static_assert(sizeof(ListedName) == 16);

}  // namespace swale::fs
