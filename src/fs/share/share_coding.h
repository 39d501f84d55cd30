// How messages and logs of a job's nodes have a file's id, and what a node has seen of the file there.
//
//   id   := high u64, low u64
//   seen := inode u64, size u64, modified_ns u64
//
// Errors: the Decoder's. Threads: plain values.
#pragma once

#include <string>

#include "base/coding.h"
#include "fs/share/share_messages.h"

namespace swale::fs {

inline void append_id(std::string* out, const meta::FileId& id) {
  append_u64(out, id.high);
  append_u64(out, id.low);
}
inline meta::FileId take_id(Decoder* in) {
  meta::FileId id;
  id.high = in->u64();
  id.low = in->u64();
  return id;
}

inline void append_seen(std::string* out, const SeenBacking& seen) {
  append_u64(out, seen.inode);
  append_u64(out, seen.size);
  append_u64(out, static_cast<uint64_t>(seen.modified_ns));
}
inline SeenBacking take_seen(Decoder* in) {
  SeenBacking seen;
  seen.inode = in->u64();
  seen.size = in->u64();
  seen.modified_ns = in->i64();
  return seen;
}

}  // namespace swale::fs
