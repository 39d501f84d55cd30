// NodeSurvey: what one node of a job that is over still has: its part of the names, the tables of the files
// whose root it is, and which bytes stand in its logs. The nodes that are left give each other their surveys;
// plan_losses (loss_plan.h) tells from them what is lost.
//
//   survey := node u32, nodes u32, tree u64, job sized,
//             names varint, (directory u64 u64, name sized, file u64 u64, type u8)*
//             files varint, (file u64 u64, on_backing u8, holders varint, (rank u32)*)*
//             roots varint, (file u64 u64, size u64, kept_size u64, backing_end u64,
//                            2 * (inode u64, size u64, modified_ns u64): backing, ours,
//                            ranges (the values: nodes), ranges (of those that are loose: what is before),
//                            nodes varint, (node u32, changed u64)*)*
//             logs varint, (file u64 u64, seen (inode u64, size u64, modified_ns u64), ranges (orders))*
//             paths varint, (file u64 u64, path sized)*, has_lost_power u8
//   ranges := count varint, (begin varint, length varint, value varint)*
//
// It is a message of one recovery; nothing keeps it. Fuzzed by fuzz/fs_messages_fuzz.cc; golden bytes:
// tests/golden/job-losses-v1. Threads: plain values. Errors: kCorruption.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "fs/share/file_roots.h"
#include "meta/names/tree.h"

namespace swale::fs {

inline constexpr Span kEachByte{0, meta::kOffsetEnd};

struct NodeSurvey {
  struct Name {
    meta::FileId directory;
    std::string name;
    meta::DirEntry entry;
  };
  // A file whose attributes this node has, and that has a name.
  struct File {
    bool on_backing = false;  // it was there, or was brought there
    // Nodes that had it open at last, by their ranks then: other numbers than the servers', if the nodes of a
    // job that was started again came in another order.
    std::vector<NodeId> holders;
  };
  struct Logged {
    SeenBacking seen;           // when this node opened the file
    RangeMap<uint64_t> orders;  // of the bytes that its logs have
  };

  NodeId node = 0;
  uint32_t nodes = 0;  // of the job
  uint64_t tree = 0;   // the job's names
  std::string job;
  std::vector<Name> names;
  std::map<meta::FileId, File> files;
  std::vector<FileRoots::Known> roots;
  std::map<meta::FileId, Logged> logs;
  bool has_lost_power = false;                // since its server told the roots that it had
  std::map<meta::FileId, std::string> paths;  // as this node has known them last (known_paths.h)
};

std::string encode(const NodeSurvey& survey);
Result<NodeSurvey> decode_survey(Bytes bytes);

}  // namespace swale::fs
