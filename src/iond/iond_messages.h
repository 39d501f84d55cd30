// What clients and I/O servers say to each other (docs/formats/iond.md): one form of request and one of
// answer for all methods.
//
// Format (docs/formats/README.md has the notation):
//   request := u8 version = 2 | u64 file | varint offset | varint length | varint flags | varint mode |
//              varint stripe_bytes | varint servers | varint first | sized name | sized other | data
//   answer  := u8 version = 2 | u64 file | u64 id | u64 size | u32 first | u32 mode | i64 created_ns |
//              i64 modified_ns | data
// Version 1, without mode and times, was never released, and is refused.
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
};
inline constexpr uint16_t kIondMethods = 13;
std::vector<std::string> iond_method_names();  // by IondMethod

enum IondOpenFlags : uint32_t { kIondCreate = 1, kIondExclusive = 2 };

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
  uint32_t flags = 0;      // of kOpen
  uint32_t mode = 0644;    // of kOpen: of a file that it makes
  Striping striping = {};  // of kOpen
  std::string_view name = {};
  std::string_view other = {};  // kRename: the new name
  Bytes data = {};              // of kWrite; these three point into the message
};
std::string encode_iond_request(const IondRequest& request,
                                size_t data_bytes);  // the data is appended by the caller
Result<IondRequest> decode_iond_request(Bytes message);

struct IondAnswer {
  uint64_t file = 0;   // kOpen: the handle
  uint64_t id = 0;     // kOpen; kRemove and kRename: of the file that lost its name, 0: none
  uint64_t size = 0;   // of the part
  uint32_t first = 0;  // kOpen: of the striping
  uint32_t mode = 0;   // this and the next ones: kAttributes
  int64_t created_ns = 0;
  int64_t modified_ns = 0;
  Bytes data = {};  // kRead; kStats: a message of counters
};
std::string encode_iond_answer(const IondAnswer& answer);
Result<IondAnswer> decode_iond_answer(Bytes message);

// A relative path without "." and "..", without empty parts, outside of the server's own directories.
Status check_iond_name(std::string_view name);

// Where other servers keep their parts, in the backing directory.
inline constexpr const char* kPartsDirectory = ".swale-parts";

}  // namespace swale::iond
