// How a program of a node opens files past the kernel (fs.descriptors=light): what it says to the server.
//
//   program                                   server of the node
//   connect(kLightSocket, beside "attach") ─► looks at the peer's user, and what it may do (Credentials)
//                 ◄── LightWelcome             where the tree is mounted; a page, its bell (SCM_RIGHTS)
//   kOpen: a path below a directory ────────► checks each component as the kernel would, makes the file if
//                 ◄── LightAnswer              flags say so and it is not there, and keeps it open
//   kStat of that open file ◄──► its attributes
//   kLook: the same of a file or directory by its path, if the caller may do to it what `mode` says
//   kReopen of it ◄──► a name below the top by which the kernel opens the same file, once, also if no name
//                      leads to it any more
//   kAsk of it ◄──► what the mount answers to an ioctl (attach_format.h): a grant, a map, a commit
//   kClose ─────────────────────────────────► no answer
//   (the connection ends) ──────────────────► all that is open is closed
//
// Requests and answers go by the page (light_page.h), or, if there is none or they do not fit, the socket.
//
// Neither kOpen nor kLook follows a link. Whatever stands in the way is an errno here, and the program asks
// the kernel, whose answer counts: so errors are the mount's.
//
// Needs: the system's headers (the client's half goes into a preload library).
// Limits: native byte order: it never leaves a node. Paths below kLightPathMax bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swale::fs {

inline constexpr uint64_t kLightMagic = 0x746867696c777300;  // "\0swlight"
inline constexpr uint32_t kLightVersion = 4;
inline constexpr char kLightSocket[] = "light";
inline constexpr size_t kLightPathMax = 1024;
inline constexpr size_t kLightNameMax = 64;
inline constexpr int kLightDescriptors = 2;          // the page, then the bell: an eventfd
inline constexpr uint32_t kLightOpensMax = 1 << 17;  // of a program at a time

// The first message on a connection.
struct LightWelcome {
  uint64_t magic = kLightMagic;
  uint32_t version = kLightVersion;
  int32_t error = 0;    // an errno: the server opens nothing for this program
  char top[4096] = "";  // where the tree is mounted; ends with 0
};

enum class LightCall : uint32_t { kOpen = 1, kStat = 2, kReopen = 3, kClose = 4, kLook = 5, kAsk = 6 };

struct LightRequest {
  LightCall call = LightCall::kOpen;
  uint32_t handle = 0;     // of an open file
  uint64_t directory = 0;  // of a path: an inode that the caller holds: the top, its directory, a descriptor
  uint32_t flags = 0;      // of open; of kAsk: kAskShortCut, kAskMap or kAskCommit
  uint32_t mode = 0;       // of kLook: R_OK, W_OK and X_OK
  uint32_t umask = 0;
  uint32_t path_bytes = 0;
  char path[kLightPathMax] = "";  // or the argument of kAsk; the message ends with it
};
inline constexpr size_t kLightHeadBytes = offsetof(LightRequest, path);

struct LightStat {
  uint64_t inode = 0, size = 0, blocks = 0;
  uint32_t mode = 0, links = 0, user = 0, group = 0, block_bytes = 0, unused = 0;
  int64_t accessed_ns = 0, modified_ns = 0, changed_ns = 0;
};

struct LightAnswer {
  int32_t error = 0;
  uint32_t handle = 0;            // of kOpen; never 0
  LightStat stat;                 // of kStat and kLook
  char name[kLightNameMax] = "";  // of kReopen; ends with 0
  // The argument of kAsk, as it is now, follows.
};
inline constexpr size_t kLightArgumentMax = 512;

}  // namespace swale::fs
