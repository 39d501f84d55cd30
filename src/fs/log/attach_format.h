// How a process of a node gets a log of its own, and the right to write a file with it.
//
//   process                                   server of the node
//   getxattr(directory, kAttachAttribute) ──► "VERSION NODE PATH": whose tree it is, and the socket
//   connect(PATH) ──────────────────────────► looks at the peer's user
//                 ◄── AttachAnswer, and the log and the bell as descriptors (SCM_RIGHTS)
//   ioctl(file, kAskGrant) ─────────────────► the file's id, if the process may write it
//   ioctl(file, kAskShortCut) ──────────────► the same of a file that was opened without O_DIRECT
//   ioctl(file, kAskCommit) ────────────────► what this node has written of it is seen on all nodes
//   ioctl(file, kAskPlaces) ────────────────► where logs of this node have bytes of it (ToldPlaces)
//   ioctl(file, kAskMap) ───────────────────► the same, for all of the node (map_format.h)
//   ioctl(file, kAskPages) ─────────────────► the process maps the file: no map of it counts meanwhile
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
// What was told of places counts while the epoch of the node and all marks are what they were: a mark is of a
// log that may be written, and each write to that log changes it before it returns. Who has looked at them
// when a read began, and at the epoch when the bytes were copied, has what the server would have given.
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

inline constexpr uint32_t kToldMarksMax = 64;  // with more logs nothing is told
inline constexpr uint32_t kToldPlacesMax = 200;
inline constexpr uint32_t kToldChecksMax = 960;

// A log that may be written.
struct LogMark {
  uint32_t log = 0;
  uint32_t unused = 0;
  uint64_t current = 0;     // LogHead::current
  uint64_t reserve_at = 0;  // in the log's file: ChunkHead::reserve of that chunk; 0: it takes no writes
  uint64_t reserve = 0;     // what that was
};

struct ToldPlace {
  uint64_t offset = 0;    // in the file
  uint64_t chunk_at = 0;  // in the log's file
  uint32_t bytes = 0;
  uint32_t place = 0;  // in the chunk
  uint32_t used = 0;   // bytes of the chunk: where its last block ends
  uint32_t log = 0;
  uint32_t checks = 0;  // so many blocks, from that of `place` on, have a checksum
  uint32_t unused = 0;
};

struct ToldPlaces {
  uint64_t offset = 0;    // asked for
  uint64_t end = 0;       // of what was told: beyond it there may be more
  uint64_t epoch = 0;     // NodePage::epoch
  char folder[264] = "";  // of the logs; ends with 0
  uint32_t mark_count = 0;
  uint32_t place_count = 0;
  uint32_t check_count = 0;
  uint32_t unused = 0;
  LogMark marks[kToldMarksMax];
  ToldPlace places[kToldPlacesMax];  // ascending in offset
  uint32_t checks[kToldChecksMax];   // crc32c of the blocks, one place after the other
};
static_assert(sizeof(ToldPlaces) < 1 << _IOC_SIZEBITS);

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
// EAGAIN: somebody is in the middle of a write. EOPNOTSUPP: other nodes may have the bytes, too.
inline constexpr unsigned long kAskPlaces = _IOWR(0xd5, 0x54, ToldPlaces);
inline constexpr unsigned long kAskSeal = _IOR(0xd5, 0x55, SealState);

}  // namespace swale::fs
