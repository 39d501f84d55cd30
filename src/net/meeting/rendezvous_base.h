// Where rendezvous directories may stand: folders that no other user can change.
//
// A rendezvous directory is private to its user whatever is above it (rendezvous_file.h). But whoever may
// write into a folder above it can move it away, put another in its place, or take its name first, and so
// keep the ranks of a job from meeting. So a base is refused if another user could do that: if it, or a
// folder above it, or a link on the way, belongs to neither this user nor root; if one of these folders is
// writable by everybody and has no sticky bit; if the base itself is writable by its group and has none. (A
// project's folder above the base may be writable by its group: its members are taken for people who work
// together. All that they could do is to keep ranks from meeting.)
//
// Threads: free functions.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace swale::net {

// Of a folder that exists. kInvalidArgument says what is wrong with which folder, and what to do.
Status check_rendezvous_base(const std::string& path);

// The first of the candidates that is, or can be made, a folder of this user's alone: its own, mode 0700, no
// link, in a folder that passes as above. Somebody else may have taken a name first: then the next one is
// tried, and the log says so. The same on all ranks of a node as long as nobody changes the folders
// meanwhile. kUnavailable: what is wrong with each.
Result<std::string> own_rendezvous_base(std::span<const std::string> candidates);

}  // namespace swale::net
