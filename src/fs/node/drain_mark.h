// A mark in the backing's `.swale/JOB/`: a file whose drain has begun to change what others see. While it is
// there, the file may be half old and half new (kInPlace), or have a copy that is the drain's own (kAside): a
// drain that was killed finds by it that nobody else has changed the file. Of a file that is replaced as a
// whole (kWhole), FileRow::ours says so, on the node.
//
//   .swale (0700)  := JOB*                           ids are of a job: no other job's marks are looked at
//   JOB (0700)     := drain-HIGH-LOW* new-HIGH-LOW*  HIGH, LOW: the file's id, 16 hex digits each
//   drain-HIGH-LOW := sealed document "swale-drain" 1: how, path (below the backing), stamp
//   new-HIGH-LOW   := the file, not yet whole
//
// Threads: free functions. Errors: kCorruption names file and place.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "fs/node/files_log.h"
#include "meta/index/types.h"

namespace swale::fs {

inline constexpr char kSwaleDirectory[] = ".swale";
inline constexpr char kMarkPrefix[] = "drain-";
inline constexpr char kNewPrefix[] = "new-";

struct DrainMark {
  enum class How { kWhole, kInPlace, kAside };
  How how = How::kWhole;
  std::string path;  // below the root
  // kInPlace: of the file before it was changed; else of the new file, which the rename gives its name.
  Stamp stamp;
};

std::string marked_name(const char* prefix, const meta::FileId& file);
// None: the name is not one of these.
std::optional<meta::FileId> marked_file(const char* prefix, const std::string& name);
std::string encode_mark(const DrainMark& mark);
Result<DrainMark> decode_mark(const std::string& text, const std::string& path);

}  // namespace swale::fs
