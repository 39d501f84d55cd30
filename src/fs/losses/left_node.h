// LeftNode: what one node of a job that is over has left, opened by itself: its server of the names, its logs
// and the tables of the files whose root it is. Nobody is served and nothing is drained: a recovery with all
// nodes may still follow.
//
// Threads: read() by any; else one at a time. Errors: as NodeFiles, KeptRoots and JobNames::open_left;
// kNotFound: no server of the job has been here. Memory: NodeFiles', and a range of each run of writes.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"
#include "fs/losses/left_details.h"
#include "fs/losses/loss_plan.h"
#include "fs/losses/node_survey.h"
#include "fs/node/kept_roots.h"
#include "fs/node/node_files.h"
#include "meta/store/job_names.h"

namespace swale::fs {

struct LeftNodeOptions {
  std::string job;
  std::string names_folder;
  std::string state_folder;
  NodeLogsOptions logs;
};

class LeftNode final : private WriteWatcher {
 public:
  static Result<std::unique_ptr<LeftNode>> open(io::Device& device, io::Device& backing,
                                                const std::string& root,
                                                const LeftNodeOptions& options) noexcept;

  const NodeSurvey& survey() const { return survey_; }
  NodeId node() const { return survey_.node; }

  // Of the files of the plan, and of renames that were under way.
  LeftDetails details(const LossPlan& plan) const;

  // Bytes of a file that this node has. kNotFound: the logs lack some.
  Status read(const meta::FileId& file, const Span& span, MutableBytes out) noexcept;
  // Writes these ranges of a file at their places, and reads them again. kNotFound: the logs lack some.
  Status write_own(const meta::FileId& file, std::span<const Span> spans, io::File& out) noexcept;
  // Attributes that the names have, of a file whose root this is.
  Status dress(const meta::FileId& file, io::File& out) noexcept;
  // This file is about to get its name. Durable when it returns.
  Status announce(const meta::FileId& file, const SeenBacking& ours) noexcept;

 private:
  // Names are of no use to logs that are only read: each file counts as one that somebody has open, so that
  // none of its bytes are dropped.
  class NoNames final : public Backing {
   public:
    using Backing::Backing;
    Result<std::string> path_of(const meta::FileId&) override {
      return error(Code::kBusy, Scope::kFile, "names are not looked at here");
    }
  };

  LeftNode(io::Device& backing, const std::string& root) : backing_(backing, root) {}
  Status begin(io::Device& device, const LeftNodeOptions& options);
  Status end_logs();
  void survey_names();
  Status wrote(const meta::FileId& file, uint64_t order, const Span& span, When when) override;

  NoNames backing_;
  meta::JobNames::Left names_;
  std::unique_ptr<KeptRoots> roots_;
  Mutex reading_;
  std::unique_ptr<NodeFiles> files_;
  NodeSurvey survey_;
};

}  // namespace swale::fs
