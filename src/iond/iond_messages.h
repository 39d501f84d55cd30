// What clients and I/O servers say to each other (docs/formats/iond.md): one form of request and one of
// answer for all methods.
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

enum class IondMethod : uint16_t {
  kOpen,
  kClose,
  kWrite,
  kRead,
  kTruncate,
  kAttributes,
  kSync,
  kRemove,
  kRename,
  kDrain,
  kLeave,
  kPing,
  kStats,
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
