// What clients and I/O servers say to each other (docs/formats/iond.md): one form of request and one of
// answer for all methods.
//
// Format (docs/formats/README.md has the notation):
//   request := u8 version = 4 | u64 file | varint inode | varint offset | varint length | varint flags |
//              varint mode | i64 modified_ns | varint stripe_bytes | varint servers | varint first |
//              sized name | sized other | data
//   answer  := u8 version = 4 | u8 code | u32 error | u64 file | u64 id | u64 inode | u64 size | u32 first |
//              u32 mode | u32 links | i64 created_ns | i64 modified_ns | i64 changed_ns | data
//   entries := (u8 kind | varint inode | sized name)*   names ascend, byte by byte; none: the directory has
//                                                       no more
//   space   := u64 bytes | u64 free | u64 available | u64 files | u64 files_free
// An answer with an error (a Linux errno, whose Code is `code`) has its message as data, and no more. A
// failure without one is Rpc's. Versions 1 to 3, without links and attributes of users, were never released,
// and are refused.
//
// Threads: free functions. Errors: kCorruption for malformed bytes, kInvalidArgument for names and numbers
// beyond the limits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "iond/striping.h"

namespace swale::iond {

// What a request uses, and what the answer says. Other servers than 0 know files by their ids: there kOpen
// and kRemove give the id as `file`. DO NOT CHANGE THE ORDER: the methods of net::Rpc.
enum class IondMethod : uint16_t {
  kOpen,        // flags, mode, striping, name -> file: the handle; id; size; first
  kClose,       // file; fails if an acknowledged write was lost
  kWrite,       // file, offset, length, data
  kRead,        // file, offset, length -> data, shorter at the end of the part
  kTruncate,    // file; offset is the part's new size
  kAttributes,  // file -> size, mode, created and modified of the part; 0: not known
  kSync,        // file
  kRemove,      // name -> id of the file
  kRename,      // name, other; server 0 only -> id of the file that was replaced, 0: none
  kDrain,
  kLeave,  // nothing is decoded
  kPing,   // nothing is decoded
  kStats,  // -> data: a message of counters (base/counters.h)
  // Server 0 alone has directories. "" is the top one, where it needs no other name.
  kMakeDirectory,    // name, mode
  kRemoveDirectory,  // name; it is empty
  kList,             // name; other: the name after which to begin; length -> data: entries
  kLook,             // name; other servers: file, the id -> id, first, links, inode; size of the part, mode
                     // with its kind, created, modified, changed
  kSetAttributes,    // name; other servers: file, the id; flags, mode, modified -> id
  kMakeSymlink,      // name; other: its target
  kReadSymlink,      // name -> data: the target
  kLink,             // name, of a file; other: one more name of it
  kGetAttribute,     // name; other: an attribute of the user's -> data: its value
  kListAttributes,   // name -> data: their names, each ended by a 0
  kPutAttribute,     // name, other, data; flags
  kRemoveAttribute,  // name, other
  kSpace,            // -> data: space
  kCheck,            // file; fails if an acknowledged write was lost
  kAllocate,         // file, offset, length: space for these bytes; the part's size stays
  kSyncDirectory,    // name: its entries
};
inline constexpr uint16_t kIondMethods = 29;
std::vector<std::string> iond_method_names();  // by IondMethod

enum IondFlags : uint32_t {
  kIondCreate = 1,     // of kOpen
  kIondExclusive = 2,  // of kOpen and kPutAttribute
  kIondSetMode = 4,    // of kSetAttributes
  kIondSetModified = 8,
  kIondExactMode = 16,  // of kOpen and kMakeDirectory: the server's umask takes nothing of it
  kIondNoReplace = 32,  // of kRename
  kIondExchange = 64,   // of kRename: both names are there, and are exchanged
  kIondReplace = 128,   // of kPutAttribute: it is there
  kIondFlagsAll = 255,
};
// In the mode of an answer: a directory, a symbolic link; neither: a file.
inline constexpr uint32_t kIondDirectoryBit = 0040000;
inline constexpr uint32_t kIondSymlinkBits = 0120000;
inline constexpr uint32_t kIondKindBits = 0170000;
// DO NOT CHANGE THESE VALUES: they are sent. kOther: a FIFO, a device, ..., which no request leads to.
enum class IondEntryKind : uint8_t { kFile = 1, kDirectory = 2, kOther = 3, kSymlink = 4 };

inline constexpr uint64_t kIondDataBytesMax = kMiB;  // of one write or read
inline constexpr size_t kIondNameBytesMax = 4096;
inline constexpr uint32_t kIondAnswerBytesMax = 4 * kKiB;  // without data
// A request or an answer: data, two names, and what stands before them.
inline constexpr size_t kIondMessageBytesMax = kIondDataBytesMax + 3 * kIondNameBytesMax;
inline constexpr uint32_t kIondStatsBytesMax = 64 * kKiB;      // of the data of kStats
inline constexpr uint32_t kIondAttributeBytesMax = 64 * kKiB;  // a value, or the names of all
inline constexpr size_t kIondFailureBytesMax = 3000;           // of a failure's message; the rest is cut off

// The server that has the names; the others know files by their ids.
inline constexpr uint32_t kNamesServer = 0;

struct IondRequest {
  // an open file's handle; kOpen and kRemove on other servers than the one with the names: its id
  uint64_t file = 0;
  // where a name is given, on server 0: what it must lead to, or else the answer is ESTALE; 0: anything
  uint64_t inode = 0;
  uint64_t offset = 0;  // in the server's part; kTruncate: its size
  uint64_t length = 0;
  uint32_t flags = 0;       // IondFlags
  uint32_t mode = 0644;     // of what is made, or what it is set to
  int64_t modified_ns = 0;  // of kSetAttributes
  Striping striping = {};   // of kOpen
  std::string_view name = {};
  // kRename, kLink: the new name; kList: the last name that is known; kMakeSymlink: the target; or an
  // attribute's name
  std::string_view other = {};
  Bytes data = {};  // of kWrite and kPutAttribute; these three point into the message
};
std::string encode_iond_request(const IondRequest& request,
                                size_t data_bytes);  // the data is appended by the caller
Result<IondRequest> decode_iond_request(Bytes message);

struct IondAnswer {
  Code code = Code::kOk;  // of the error
  int error = 0;          // an errno: the request has failed, and data says why
  uint64_t file = 0;      // kOpen: the handle
  uint64_t id = 0;        // of a striped file; kRemove and kRename: the one that lost its last name; 0: none
  uint64_t inode = 0;     // kOpen and kLook: of server 0's file
  uint64_t size = 0;      // of the part; of a link: of its target
  uint32_t first = 0;     // kOpen and kLook: of the striping
  uint32_t mode = 0;      // this and the next ones: kAttributes and kLook
  uint32_t links = 0;
  int64_t created_ns = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  Bytes data = {};  // kRead; kStats: a message of counters; kList: entries; a target, an attribute, space
};
std::string encode_iond_answer(const IondAnswer& answer);
Result<IondAnswer> decode_iond_answer(Bytes message);
// A failure that has an errno, as an answer; its message is cut to kIondFailureBytesMax.
std::string encode_iond_failure(const Status& failure);
Status failure_of(const IondAnswer& answer);  // OK: it tells of none

struct IondEntry {
  std::string name;  // the last part
  IondEntryKind kind = IondEntryKind::kFile;
  uint64_t inode = 0;
};
void append_iond_entry(std::string* out, const IondEntry& entry);
// Of an answer to a request for those after `after`: each comes after the one before it, so that a listing
// ends.
Result<std::vector<IondEntry>> decode_iond_entries(Bytes data, std::string_view after);

// The space of one server's backing directory, or of all. Bytes, and numbers of files.
struct IondSpace {
  uint64_t bytes = 0;
  uint64_t free = 0;
  uint64_t available = 0;  // to who is not root
  uint64_t files = 0;
  uint64_t files_free = 0;
};
std::string encode_iond_space(const IondSpace& space);
Result<IondSpace> decode_iond_space(Bytes data);

// A relative path without "." and "..", without empty parts, outside of the server's own directories.
Status check_iond_name(std::string_view name);

// Where other servers keep their parts, in the backing directory.
inline constexpr const char* kPartsDirectory = ".swale-parts";
// Whether a part of a name is a directory of Swale itself, which no request leads to.
bool is_private_name(std::string_view part);

}  // namespace swale::iond
