// The report of a recovery without all nodes, for people and as a document, which is also the manifest of
// what was kept beside the tree.
//
//   document := sealed document "swale-losses" 1:
//     job, nodes, without [node]
//     accepted   false: nothing was changed
//     files [
//       id          HIGH:LOW, hexadecimal
//       path        below the backing directory; absent: not known
//       known_as    where there is no path: what a node has called it last; a directory above may have moved
//       state       "whole" "nameless" "lost ranges" "lost table" "open on a lost node" "changed there"
//       size        in bytes; "lost table": where the last known byte ends
//       lost        [[begin, end, node]]: bytes that node alone had
//       unwritten   [[begin, end]]: nobody has written them: the backing file's bytes, or zeros
//       kept        [name]: files in .swale/lost+found-JOB that have what is left; lost bytes are zeros there
//     ]
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "fs/losses/loss_plan.h"

namespace swale::fs {

// What became of a file of the plan.
struct LossOutcome {
  bool changed_there = false;     // others have changed the backing's file, or its directory is gone
  std::vector<std::string> kept;  // beside the tree
};

// `outcomes`: one for each file of the plan; none: nothing was done.
std::string loss_document(const LossPlan& plan, const std::vector<LossOutcome>& outcomes);
std::string loss_text(const LossPlan& plan, const std::vector<LossOutcome>& outcomes);

// What nobody has written below the end of a file whose root is left.
std::vector<Span> unwritten(const FileLoss& loss);

}  // namespace swale::fs
