// What clients and I/O servers say to each other (docs/formats/iond.md): one form of request and one of
// answer for all methods.
//
// Format (docs/formats/README.md has the notation):
//   request := u8 version = 3 | u64 file | varint offset | varint length | varint flags | varint mode |
//              i64 modified_ns | varint stripe_bytes | varint servers | varint first | sized name |
//              sized other | data
//   answer  := u8 version = 3 | u64 file | u64 id | u64 size | u32 first | u32 mode | i64 created_ns |
//              i64 modified_ns | data
//   entries := (u8 kind | sized name)*       names ascend, byte by byte; none: the directory has no more
// Versions 1 and 2, without attributes that are set, were never released, and are refused.
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
  // Server 0 alone has directories. "" is the top one, for kList and kLook.
  kMakeDirectory,    // name, mode
  kRemoveDirectory,  // name; it is empty
  kList,             // name; other: the name after which to begin; length -> data: entries
  kLook,             // name -> id, first; size of the part, mode with kIondDirectoryBit, created, modified
  kSetAttributes,    // name; other servers: file, the id; flags, mode, modified -> id
};
inline constexpr uint16_t kIondMethods = 18;
std::vector<std::string> iond_method_names();  // by IondMethod

enum IondFlags : uint32_t {
  kIondCreate = 1,  // of kOpen
  kIondExclusive = 2,
  kIondSetMode = 4,  // of kSetAttributes
  kIondSetModified = 8,
};
inline constexpr uint32_t kIondDirectoryBit = 0040000;  // in the mode of an answer
// DO NOT CHANGE THESE VALUES: they are sent. kOther: a link, a FIFO, ..., which no request leads to.
enum class IondEntryKind : uint8_t { kFile = 1, kDirectory = 2, kOther = 3 };

inline constexpr uint64_t kIondDataBytesMax = kMiB;  // of one write or read
inline constexpr size_t kIondNameBytesMax = 4096;
inline constexpr uint32_t kIondAnswerBytesMax = 4 * kKiB;  // without data
// A request or an answer: data, two names, and what stands before them.
inline constexpr size_t kIondMessageBytesMax = kIondDataBytesMax + 3 * kIondNameBytesMax;
inline constexpr uint32_t kIondStatsBytesMax = 64 * kKiB;  // of the data of kStats

// The server that has the names; the others know files by their ids.
inline constexpr uint32_t kNamesServer = 0;

struct IondRequest {
  // an open file's handle; kOpen and kRemove on other servers than the one with the names: its id
  uint64_t file = 0;
  uint64_t offset = 0;  // in the server's part; kTruncate: its size
  uint64_t length = 0;
  uint32_t flags = 0;       // of kOpen and kSetAttributes
  uint32_t mode = 0644;     // of what is made, or what it is set to
  int64_t modified_ns = 0;  // of kSetAttributes
  Striping striping = {};   // of kOpen
  std::string_view name = {};
  std::string_view other = {};  // kRename: the new name; kList: the last name that is known
  Bytes data = {};              // of kWrite; these three point into the message
};
std::string encode_iond_request(const IondRequest& request,
                                size_t data_bytes);  // the data is appended by the caller
Result<IondRequest> decode_iond_request(Bytes message);

struct IondAnswer {
  uint64_t file = 0;   // kOpen: the handle
  uint64_t id = 0;     // of a striped file; kRemove and kRename: the one that lost its name; 0: none
  uint64_t size = 0;   // of the part
  uint32_t first = 0;  // kOpen and kLook: of the striping
  uint32_t mode = 0;   // this and the next ones: kAttributes and kLook
  int64_t created_ns = 0;
  int64_t modified_ns = 0;
  Bytes data = {};  // kRead; kStats: a message of counters; kList: entries
};
std::string encode_iond_answer(const IondAnswer& answer);
Result<IondAnswer> decode_iond_answer(Bytes message);

struct IondEntry {
  std::string name;  // the last part
  IondEntryKind kind = IondEntryKind::kFile;
};
void append_iond_entry(std::string* out, const IondEntry& entry);
// Of an answer to a request for those after `after`: each comes after the one before it, so that a listing
// ends.
Result<std::vector<IondEntry>> decode_iond_entries(Bytes data, std::string_view after);

// A relative path without "." and "..", without empty parts, outside of the server's own directories.
Status check_iond_name(std::string_view name);

// Where other servers keep their parts, in the backing directory.
inline constexpr const char* kPartsDirectory = ".swale-parts";
// Whether a part of a name is a directory of Swale itself, which no request leads to.
bool is_private_name(std::string_view part);

}  // namespace swale::iond
