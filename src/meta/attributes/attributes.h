// File attributes and the requests that change them: what the root of a file keeps, and what travels up and
// down the ring.
//
// Requests for one file that ask for the same are combined on their way (merge): one answer serves them all.
// So an answer says nothing about who asked; a client of an exclusive creation compares the creator with
// itself.
//
//   create      makes the file unless it exists; later ones find it
//   exclusive   the same, but has one winner: Attributes::creator
//   open, stat  answer; open brings the table of runs of a sealed file
//   close       size := max, by (generation, size): what was written before a truncate does not count after
//               it
//   truncate    a new generation, then the size
//   seal        immutable from now on; brings the table of runs
//   remove      the file and its bytes are forgotten; its id is never given again
//
// A file is found by its name. What a handle asks for names the id too.
//
// Threads: plain values. Errors: decoding answers kCorruption; a request that is decoded has passed check().
// Format: docs/formats/metadata.md.
#pragma once

#include <compare>
#include <string>

#include "base/coding.h"
#include "base/status.h"
#include "meta/index/types.h"

namespace swale::meta {

inline constexpr size_t kNameBytesMax = 4096;
inline constexpr size_t kTableBytesMax = 64 * kKiB;  // of a sealed file's run table

// DO NOT CHANGE THESE VALUES: they are on the wire and on disk.
enum class AttributeOp : uint8_t {
  kCreate = 1,
  kCreateExclusive = 2,
  kOpen = 3,
  kStat = 4,
  kClose = 5,
  kTruncate = 6,
  kSeal = 7,
  kRemove = 8,
};
std::string_view op_name(AttributeOp op);

// A client and the number of one of its requests: what makes a retry known.
struct RequestName {
  uint64_t client = 0;
  uint64_t number = 0;
  friend auto operator<=>(const RequestName&, const RequestName&) = default;
};

struct Attributes {
  FileId file = {};
  std::string name = {};
  uint64_t size = 0;
  uint64_t generation = 0;  // of the last truncate, removal or creation; grows
  uint32_t mode = 0;
  bool sealed = false;
  int64_t created_ns = 0;  // since 1970, by the clock of the client
  int64_t modified_ns = 0;
  RequestName creator = {};
  friend bool operator==(const Attributes&, const Attributes&) = default;
};

struct AttributeRequest {
  AttributeOp op = AttributeOp::kStat;
  // of a handle: kNotFound if the name has another one by now. None: whatever file has the name
  FileId file = {};
  std::string name = {};
  RequestName from = {};
  uint64_t size = 0;        // close, truncate
  uint64_t generation = 0;  // close: what the writer knew
  uint32_t mode = 0;        // create
  int64_t time_ns = 0;
};

struct AttributeAnswer {
  Attributes attributes;
  std::string table;  // runs of a sealed file (run_table.h); empty: none
};

Status check(const AttributeRequest& request);

// Whether one answer can serve both; if so `into` becomes the request that stands for both.
bool mergeable(const AttributeRequest& a, const AttributeRequest& b);
void merge(const AttributeRequest& from, AttributeRequest* into);

void append_file(std::string* out, const FileId& file);
FileId decode_file_id(Decoder* in);
void append_attributes(std::string* out, const Attributes& attributes);
Attributes read_attributes(Decoder* in);  // the caller checks in->ok()
void append_request(std::string* out, const AttributeRequest& request);
Result<AttributeRequest> read_request(Decoder* in);
std::string encode_answer(const AttributeAnswer& answer);
Result<AttributeAnswer> decode_answer(Bytes bytes);

}  // namespace swale::meta
