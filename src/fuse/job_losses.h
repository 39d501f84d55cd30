// recover_without: the end of a job some of whose nodes are lost for good, by those that are left. Each says
// what it has (LeftNode), all plan alike what is whole and what is lost (plan_losses), and nothing is changed
// unless the losses are accepted. Then
//
//   each node's ranges ─► .swale/JOB/left-HIGH-LOW (one file for all), checked and synced
//   whole ones         ─► their names, by rename, with the attributes of the names
//   all others         ─► .swale/lost+found-JOB/HIGH-LOW[.node-N], which losses.json there describes
//
// and the nodes forget the job. The backing never gets a file with lost bytes under its name. What it had
// before under that name stays. A file that others have changed there counts as one of the others.
//
// A look (job_look.h) mounts what is left instead, and changes nothing either.
//
// Threads: collective over the nodes that are left, by one thread each. Errors: all nodes return the same;
// after a failure, or a kill, the same call goes on. kBusy: a server lives.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/status.h"
#include "fuse/job_mount.h"

namespace swale::fuse {

enum class Losses { kReport, kLook, kAccept };

struct LossesFound {
  std::string document;  // fs/losses/loss_report.h
  std::string text;
  bool any = false;      // a file is not whole
  bool is_first = true;  // the node that tells it
};

// `options`: as for a recovery (JobMountOptions::mounts is false); its nodes are those that are left.
// `without`: the numbers of the others. `ready`: of kLook, once the mount is there.
Result<LossesFound> recover_without(const JobMountOptions& options, const std::set<uint32_t>& without,
                                    Losses losses,
                                    const std::function<void(const LossesFound&)>& ready = nullptr);

}  // namespace swale::fuse
