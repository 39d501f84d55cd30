// LeftDetails: what a node that is left tells the others beyond its survey, for a look at the tree without
// the nodes that are lost: attributes of the planned files whose root it is, and the renames that were under
// way.
//
//   details := files varint, (file u64 u64, mode u32, uid u32, gid u32, accessed_ns u64, modified_ns u64,
//                             changed_ns u64, users varint, (name sized, value sized)*)*
//              renames varint, (transaction, key, moved u64 u64, type u8)*
//              locks varint, (transaction, key)*
//   transaction := server u32, job u32, number u64
//   key         := directory u64 u64, name sized
//
// It is a message of one look; nothing keeps it. Fuzzed by fuzz/fs_messages_fuzz.cc.
// Threads: plain values. Errors: kCorruption.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "meta/names/tree.h"

namespace swale::fs {

struct LeftDetails {
  struct File {
    uint32_t mode = 0, uid = 0, gid = 0;
    int64_t accessed_ns = 0, modified_ns = 0, changed_ns = 0;
    std::map<std::string, std::string> users;  // its attributes
  };
  // It has happened; the server of `target` may not have heard of it. NodeSurvey::names begins with these.
  struct Rename {
    meta::Transaction transaction;
    meta::EntryKey target;
    meta::DirEntry moved;
  };
  // A change has begun: who looks for the key waits for it.
  struct Lock {
    meta::Transaction transaction;
    meta::EntryKey key;
  };
  std::map<meta::FileId, File> files;
  std::vector<Rename> renames;
  std::vector<Lock> locks;
};

std::string encode(const LeftDetails& details);
Result<LeftDetails> decode_left_details(Bytes bytes);

}  // namespace swale::fs
