// How a process of a node gets a log of its own, and the right to write a file with it.
//
//   process                                   server of the node
//   getxattr(directory, kAttachAttribute) ──► "VERSION NODE PATH": whose tree it is, and the socket
//   connect(PATH) ──────────────────────────► looks at the peer's user
//                 ◄── AttachAnswer, and the log and the bell as descriptors (SCM_RIGHTS)
//   ioctl(file, kAskGrant) ─────────────────► the file's id, if the process may write it
//   ioctl(file, kAskShortCut) ──────────────► the same of a file that was opened without O_DIRECT
//   ioctl(file, kAskCommit) ────────────────► what this node has written of it is seen on all nodes
//   ioctl(file, kAskMap) ───────────────────► where logs of this node have bytes of it (map_format.h)
//   ioctl(file, kAskPages) ─────────────────► the process maps the file: no map of it counts meanwhile
//   ioctl(file, kAskShow) ──────────────────► mappings show what it has written (LogWriter::must_show)
//   ioctl(file, kAskSeal) ──────────────────► whether its bytes can change, and who may do so (SealState)
//   (the connection ends) ──────────────────► the process is over; its files are committed
//
// The process names a file by a descriptor that it has open on the mount. So the mount alone says who opens
// what, an inherited or received descriptor counts as what it is, and the server never holds a descriptor of
// its own mount. The token says which process asks: nobody else has been told it.
//
// kAskShortCut is a promise: while the process writes by its log, it maps nothing of this open. So the open
// no longer counts as one that lets the kernel keep pages. A token of zeros promises, and asks for no grant
// yet: a process says so at each open, before others ask. EBUSY: the kernel keeps pages of it.
//
// A grant ends with the open file that it was asked for, and with the process. The server refuses what a log
// has of a file without a grant.
//
// Needs: the system's headers and log_format.h (the client's half goes into a preload library).
// Limits: native byte order: it never leaves a node.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

namespace swale::fs {

inline constexpr uint64_t kAttachMagic = 0x6863617474617773;  // "swattach"
inline constexpr uint32_t kAttachVersion = 1;
inline constexpr char kAttachAttribute[] = "user.swale.attach";
inline constexpr char kAttachSocket[] = "attach";
inline constexpr int kAttachDescriptors = 2;  // the log, then the bell

struct AttachToken {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const AttachToken&, const AttachToken&) = default;
};

// The only message on the connection.
struct AttachAnswer {
  uint64_t magic = kAttachMagic;
  uint32_t version = kAttachVersion;
  uint32_t log = 0;
  AttachToken token;
  int32_t error = 0;      // an errno: there is no log, and there are no descriptors
  char folder[260] = "";  // where the logs are, for the look whether the server lives; ends with 0
};

struct GrantRequest {
  AttachToken token;
  uint64_t file_high = 0;  // the answer's
  uint64_t file_low = 0;
};

struct SealState {
  uint32_t sealed = 0;   // 1: nobody changes its bytes
  uint32_t writers = 0;  // opens that may change them: the last close seals a file that is read-only
  char who[248] = "";    // some of them, for a message; ends with 0
};
static_assert(sizeof(SealState) == 256);
inline constexpr size_t kWritersNamed = 8;

inline constexpr unsigned long kAskGrant = _IOWR(0xd5, 0x51, GrantRequest);
inline constexpr unsigned long kAskCommit = _IO(0xd5, 0x52);
inline constexpr unsigned long kAskShortCut = _IOWR(0xd5, 0x53, GrantRequest);
inline constexpr unsigned long kAskSeal = _IOR(0xd5, 0x55, SealState);
inline constexpr unsigned long kAskShow = _IO(0xd5, 0x58);

}  // namespace swale::fs
