// The row of a job's file system (docs/design/file-system.md) in the table of engines (engine.h). Its
// directories have no manifest: they are known by what lies in them.
//
//   mountpoint         asks the server, as `swale fs stat` does
//   buffer             of a node: which job it is of, and what its spilled chunks have that is not drained.
//                      Nothing is changed: a server may live
//   backing directory  which jobs have left something in its `.swale`
//
// What is in a node's memory is not looked at: swale fs recover brings it to the backing.
// Threads: free functions.
#pragma once

#include <string>
#include <vector>

#include "tools/engine.h"

namespace swale::tools {

extern const Engine kTreeEngine;

// The jobs that a backing directory's `.swale` names: they work on it, or have not brought all to it.
Result<std::vector<std::string>> jobs_on_backing(io::Device& device, const std::string& path);

// What the server says of itself whose tree is mounted at the path, or has it and is mounted nowhere.
// kInvalidArgument: there is none.
Result<Json> ask_tree(const std::string& path);

}  // namespace swale::tools
