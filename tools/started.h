// StartedTree: the tree of a job that outlives the command which starts it, for the steps of a batch job.
//
//   swale start ──► keeper ──► [launcher] ──► swale run --backing DIR -- a program that waits, a node each
//   swale stop  ──► keeper: SIGUSR1, which launchers pass on, ends these programs; the answer is their exit
//                   code
//
// The keeper is a process of this node and this user. What it knows is in a folder of the user's own in
// memory, named by the mountpoint:
//
//   FOLDER (0700) := lock started.json programs log     lock: held while the keeper lives; programs: its
//                                                       socket
//
// Threads: one, which has started none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/options.h"

namespace swale::tools {

struct StartOptions {
  std::string mountpoint;            // whole
  std::vector<std::string> command;  // of the launcher and `swale run`, up to the program
  uint32_t nodes = 1;
  int64_t patience_s = 300;         // until all have mounted it
  std::optional<int64_t> drain_at;  // seconds since 1970: from then on all is brought to the backing
  Json document;                    // what `swale status` is to know beside
};

// Starts keeper and tree. Returns when all nodes have mounted it. Else nothing is left, and what the servers
// have said is on stderr; the first line of it in `cause`.
Status start_tree(const StartOptions& options, std::string* cause);

// Leaves word that no tree could be started there, so that programs write to the backing itself.
Status note_fallback(const StartOptions& options, const std::string& why);

struct StartedTree {
  // As given, "mountpoint", "keeper", "since", "log"; after a failed end "exit_code". In place of a keeper
  // and its log, "state": "fallback", and "why".
  Json document;
  std::string folder;  // where connect_to_keeper finds it
  bool lives = false;  // else its keeper was killed, its end failed, or there never was one
  bool is_fallback() const { return document.value("state", "") == "fallback"; }
};

// Those of this user on this node.
Result<std::vector<StartedTree>> find_started();
// kNotFound: none was started there.
Result<StartedTree> find_started(const std::string& mountpoint);
// What is left of one that does not live.
void forget_started(const StartedTree& tree);

}  // namespace swale::tools
