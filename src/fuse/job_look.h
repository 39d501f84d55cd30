// serve_look: the tree of a job without its lost nodes, as a mount on each node that is left, until it is
// unmounted or told to end (LossFs, loss_fs.h). Nothing is changed. A node answers for its bytes until all
// mounts have ended.
//
// Threads: collective over the nodes that are left, by one thread each; while it is mounted, those of
// serve_mounted and NodePeers. Errors: what hinders the mount, with a remedy; another node that has ended.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "fs/losses/left_node.h"
#include "fs/losses/loss_plan.h"
#include "fuse/job_folders.h"
#include "io/device.h"
#include "net/job/job.h"

namespace swale::fuse {

struct Look {
  net::Job& job;  // of the nodes that are left
  fs::LeftNode& own;
  const fs::LossPlan& plan;
  std::span<const fs::NodeSurvey> surveys;  // by rank
  const JobFolders& folders;
  io::Device& backing;
  std::string job_folder;
  unsigned threads = 1;
  std::function<void()> ready;
};

Status serve_look(const Look& look);

}  // namespace swale::fuse
