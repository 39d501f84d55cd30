// What clients and servers of the metadata store say to each other: the payloads of requests and responses.
//
// Each request begins with the number of the server that it is for, a u32 (a rank may host several).
// Threads: free functions.
// Errors: decoding answers kCorruption for malformed bytes and kInvalidArgument for what must not be asked
// (lengths of 0, ends beyond 2^63, runs that overlap themselves). Limits: kRpcMessageBytesMax.
//
// Format, in the notation of docs/formats/README.md; file ids, attributes and run tables: metadata.md there.
//   put         file id, u64 client, u64 number, u32 extents, u32 runs, extents, runs
//               each run after a u32: how many extents stand before it
//               -> u64 generation of the file
//   get         file id, u32 most pieces, u32 ranges, ranges (u64 offset, u64 length)
//               -> u32 answered, u8 resumed, u64 resume, u32 ends, u32 each, u32 extents, extents
//   get runs    file id, runs -> u32 queries, u32 each: how many runs answer it and those before it, runs
//   scan        file id, u64 from, u32 most pieces -> u64 next, u32 extents, extents
//   trim, forget, collect
//               file id, u64 size, u64 generation -> empty; collect: u64 bytes, u8 complete, runs
//   relocate, relocate tables
//               u64 client, u64 number, u32 log, u64 begin, u64 end, u32 log, u64 address -> empty
//   relocated   to a rank: empty, without the server -> empty
//   removed     to a rank: file id (none: any file), without the server -> empty
//   attributes  u8 operation, file id (of a handle; none: by name), u64 client, u64 number, u64 size,
//               u64 generation, u32 mode, i64 time, sized name -> attributes, sized run table
//   stats       -> a message of counters (base/counters.h)
//   extent      u64 offset, u64 length, u64 address, u32 log
//   run         extent of the first block, u8 levels, levels x (u64 count, u64 stride, u64 address stride)
//   runs        u32 count, runs
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "meta/attributes/attributes.h"
#include "meta/index/run_detector.h"
#include "meta/server/partition.h"

namespace swale::meta {

// DO NOT CHANGE THE ORDER: the methods of net::Rpc. method_names() has their names.
enum class Method : uint16_t {
  kPut = 0,
  kGet = 1,
  kGetRuns = 2,
  kScan = 3,
  kTrim = 4,
  kForget = 5,
  kRelocate = 6,
  kCollect = 7,
  kAttributes = 8,
  kStats = 9,
  kRelocateTables = 10,
  kRelocated = 11,  // to a rank, not to a server: its handles' tables of runs are old
  kRemoved = 12,    // the same, of one file
  kNames = 13,      // of the tree: names/name_messages.h
};
std::vector<std::string> method_names();
std::string_view method_name(Method method);

inline constexpr size_t kExtentWireBytes = 28;
inline constexpr size_t kPiecesMax = 128 * 1024;  // of one response: 3.5 MiB
inline constexpr size_t kItemsMax = 256 * 1024;   // of one put or get
inline constexpr size_t kResponseBytesMax = 4 << 20;

// The number of the server; 0xffffffff for a message that is too short.
Server server_of_message(Bytes message);

struct PutMessage {
  FileId file;
  RequestName from;
  DetectedBatch items;
};
std::string encode_put(Server to, const FileId& file, const RequestName& from, const DetectedBatch& items);
Result<PutMessage> decode_put(Bytes message);
// The answer: the file's generation at that server.

struct GetMessage {
  FileId file;
  size_t pieces_max = kPiecesMax;
  std::vector<Range> ranges;
};
std::string encode_get(Server to, const GetMessage& message);
std::string encode_get(Server to, const FileId& file, size_t pieces_max, std::span<const ByteRange> ranges);
Result<GetMessage> decode_get(Bytes message);
std::string encode_found(const Found& found);
// Ranges [first, first + count) alone, each of them answered.
std::string encode_found_part(const Found& found, size_t first, size_t count);
Result<Found> decode_found(Bytes bytes, size_t ranges);

struct RunsMessage {
  FileId file;
  std::vector<Run> queries;
};
std::string encode_runs_query(Server to, const FileId& file, std::span<const Run> queries);
Result<RunsMessage> decode_runs_query(Bytes message);
std::string encode_runs(std::span<const Run> runs);
Result<std::vector<Run>> decode_runs(Bytes bytes);

// The answers to queries of runs: query i's runs end at ends[i].
struct FoundRuns {
  std::vector<Run> runs;
  std::vector<size_t> ends;
};
std::string encode_found_runs(const FoundRuns& found);
Result<FoundRuns> decode_found_runs(Bytes bytes, size_t queries);

struct ScanMessage {
  FileId file;
  uint64_t from = 0;
  size_t pieces_max = kPiecesMax;
};
std::string encode_scan(Server to, const ScanMessage& message);
Result<ScanMessage> decode_scan(Bytes message);
struct Scanned {
  std::vector<Extent> extents;
  uint64_t next = kOffsetEnd;
};
std::string encode_scanned(const Scanned& scanned);
Result<Scanned> decode_scanned(Bytes bytes);

// kTrim, kForget (size is 0) and kCollect (size and generation are 0).
struct FileMessage {
  FileId file;
  uint64_t size = 0;
  uint64_t generation = 0;
};
std::string encode_file(Server to, const FileMessage& message);
Result<FileMessage> decode_file(Bytes message);

// kRelocate; kRelocateTables: the root's tables of runs follow, when all servers have done it.
struct RelocateMessage {
  RequestName from;
  Relocation relocation;
};
std::string encode_relocate(Server to, const RelocateMessage& message);
Result<RelocateMessage> decode_relocate(Bytes message);

// kRemoved: without a server in front.
std::string encode_removed(const FileId& file);
Result<FileId> decode_removed(Bytes message);

std::string encode_attributes(Server to, const AttributeRequest& request);
Result<AttributeRequest> decode_attributes(Bytes message);

// The answer to kCollect.
struct Collected {
  uint64_t bytes = 0;     // that the runs map in ranges which the server owns
  bool complete = false;  // false: there would be more runs than a table may have
  std::vector<Run> runs;  // whole, of the server
};
std::string encode_collected(const Collected& collected);
Result<Collected> decode_collected(Bytes bytes);

}  // namespace swale::meta
