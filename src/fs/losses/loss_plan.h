// plan_losses: from what the nodes that are left have, what of a job's files is whole and what is lost.
//
// A file's root says which node has which committed range. So where the root is left, each lost range is
// known. Where it is not, nobody knows what else the file had: what each node has is kept, and none of it is
// put over another's. Names that stood on lost nodes are not known, and files of which only these had bytes.
// What a lost node had written and not committed no other node has been promised.
//
// Threads: a pure function; all nodes come to the same plan from the same surveys.
// Invariants: (1) a file that is kWhole has a range of a node that is left, or of the backing, for each byte
// that the root counts; (2) each byte that the root counts is in `kept`, in `lost`, or the backing's; (3)
// bytes that a node should have, and its logs do not, are lost.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fs/losses/node_survey.h"

namespace swale::fs {

// Decisions that tests leave out, to show that they would notice.
struct LossRules {
  bool see_absent = true;   // ranges of nodes that are gone
  bool see_missing = true;  // ranges that a node's logs should have and do not
};

struct FileLoss {
  enum class Fate {
    kWhole,       // all that was committed is there, and goes to its path
    kNameless,    // the same, but what leads to it is lost
    kLostRanges,  // `lost`
    kLostRoot,    // what else it had is not known
    kOpen,        // new and empty, as far as is known; a lost node had it open
  };
  meta::FileId file;
  Fate fate = Fate::kWhole;
  std::string path;      // below the root; "": not known
  std::string known_as;  // what a node that is left has called it last, if the path is not known
  uint64_t size = 0;     // kLostRoot: where the last known byte ends
  uint64_t backing_end = 0;
  SeenBacking backing, ours;
  RangeMap<NodeId> kept, lost;              // of a file whose root is left
  std::map<NodeId, RangeMap<char>> copies;  // kLostRoot: what each node has

  bool is_whole() const { return fate == Fate::kWhole; }
};

struct LossPlan {
  std::string job;
  uint32_t nodes = 0;
  std::set<NodeId> absent;
  std::vector<FileLoss> files;  // by id; those that are on the backing are not among them

  bool loses() const;  // a file is not whole; what nobody knows does not count
};

std::string list_of(const std::set<NodeId>& nodes);  // "1,3"; "none"

// `without`: the nodes that are given up. kInvalidArgument: others are absent, or one of these is there, or
// the surveys are of several jobs.
Result<LossPlan> plan_losses(std::span<const NodeSurvey> surveys, const std::set<NodeId>& without,
                             const LossRules& rules = {});

}  // namespace swale::fs
