// The tree's servers and clients on one thread, from one seed: NamesCore, NameTable and the shards of
// production with their logs, a network that loses, delays and doubles messages (request_net.h), servers that
// are killed and come back from what their storage kept, and a judge of every answer and of what the logs
// have in the end (names_judge.h).
//
// Faults. A message is lost by lot; its caller hears kDeadlineExceeded later. Some come twice, the second
// time late. A server that is killed as a process loses what it has not written; by a power failure, what was
// not synced. Points at which a server may be killed are counted:
// before, in the middle of and after the write of a group, and before and after a message is handled.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace swale::sim {

struct NamesClusterParams {
  uint64_t seed = 1;
  uint32_t servers = 4;
  uint32_t nodes = 3;
  uint32_t slots = 2;        // of a node: clients
  uint32_t operations = 40;  // of each client
  uint32_t lose_per_mille = 20;
  uint32_t double_per_mille = 20;
  uint32_t kills = 3;       // by lot
  uint64_t kill_at = 0;     // at this point; 0: at none
  bool directories = true;  // mkdir, rmdir
  bool renames = true;
  // By a power failure: then all changes wait for their sync. Else some are content when they are written.
  bool power = true;
  // What must be seen: a restart that finds no intents; one that does not know which ids were drawn; a
  // removal of which some servers never hear; a power failure after answers that did not wait for a sync;
  // directories that are renamed and removed before some nodes' caches have heard of it.
  enum class Canary {
    kNone,
    kNoIntents,
    kReusedId,
    kUnaskedServer,
    kUnsynced,
    kUntold
  } canary = Canary::kNone;
};

struct NamesClusterOutcome {
  std::string problem;  // "": all is right
  uint64_t operations = 0, changed = 0, refused = 0, listed = 0;
  uint64_t lost = 0, doubled = 0, killed = 0, points = 0;
  std::map<std::string, uint64_t> visited;  // points by what happened there
  std::map<std::string, uint64_t> answers;  // by operation and errno
};

NamesClusterOutcome run_names_cluster(const NamesClusterParams& params);

}  // namespace swale::sim
