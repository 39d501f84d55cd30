#include "imd/optimize/follower.h"

#include <optional>
#include <utility>

#include "imd/format/generation.h"
#include "imd/optimize/pass_choice.h"
#include "imd/optimize/throttle.h"
#include "imd/write/writer_lock.h"
#include "io/lock_file.h"

namespace swale::imd {
namespace {

// Whether a job writes to the directory.
class JobWatch {
 public:
  JobWatch(io::Device& device, std::string directory, const Clock& clock)
      : device_(device), directory_(std::move(directory)), clock_(clock) {}

  Result<bool> has_ended();

 private:
  io::Device& device_;
  const std::string directory_;
  const Clock& clock_;
  std::optional<io::FoundLock> seen_;  // of a holder of which nothing is known
  Nanos changed_ = 0;                  // when it was last another one
};

Result<bool> JobWatch::has_ended() {
  Result<io::FoundLock> found = io::read_lock(device_, lock_path(directory_));
  if (found.status().code() == Code::kNotFound) return true;
  SWALE_RETURN_IF_ERROR(found.status());
  const io::LockVerdict::Kind kind = io::judge_lock(*found).kind;
  if (kind != io::LockVerdict::Kind::kUnknown) return kind == io::LockVerdict::Kind::kDead;
  const Nanos now = clock_.now();
  if (!seen_ || seen_->bytes != found->bytes) changed_ = now;
  seen_ = *found;
  return found->content.ok() && now - changed_ > found->content->lease;
}

// How many epochs a pass would take that merges nothing.
Result<uint64_t> epochs_waiting(io::Device& device, const std::string& directory) {
  SWALE_ASSIGN_OR_RETURN(const Manifest manifest, load_manifest(device, directory));
  const Result<ClusterList> list = load_clusters(device, directory);
  // A list that is damaged is made anew.
  return epochs_to_optimize(manifest, list.ok() ? *list : ClusterList()).size();
}

}  // namespace

Status follow_directory(io::Device& device, const std::string& directory, const FollowOptions& options) {
  JobWatch job(device, directory, *options.pass.clock);
  const Throttle::PauseFn pause = options.pass.pause ? options.pass.pause : sleep_for;
  for (;;) {
    // First this, then the epochs: what was committed before the job's end is seen.
    SWALE_ASSIGN_OR_RETURN(const bool ended, job.has_ended());
    OptimizeOptions pass = options.pass;
    if (ended) pass.epochs_min = 1;
    SWALE_ASSIGN_OR_RETURN(const uint64_t waiting, epochs_waiting(device, directory));
    bool busy = false;
    if (waiting >= pass.epochs_min) {
      const Result<OptimizeReport> report = optimize_directory(device, directory, pass);
      busy = report.status().code() == Code::kBusy;
      if (!busy) SWALE_RETURN_IF_ERROR(report.status());
      const bool made = report.ok() && report->number != 0;
      if (made && options.made) options.made(*report);
      if (made && (!ended || report->plan.epochs_left > 0)) continue;
    }
    if (ended && !busy) return {};
    if (!pause(options.period))
      return error(Code::kAborted, Scope::kOperation,
                   "{}: was told to end; what is not in a cluster stays as it is", directory);
  }
}

}  // namespace swale::imd
