#include "fuse/job_losses.h"

#include <algorithm>
#include <vector>

#include "base/contain.h"
#include "base/process_identity.h"
#include "fs/job/backing_claim.h"
#include "fs/losses/left_node.h"
#include "fs/losses/loss_base.h"
#include "fs/losses/loss_report.h"
#include "fs/node/drain_mark.h"
#include "fuse/job_folders.h"
#include "fuse/job_look.h"
#include "fuse/mounted.h"
#include "fuse/node_meeting.h"
#include "io/posix_device.h"
#include "net/job/agree.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fuse {
namespace {

constexpr Nanos kLongestRecovery = seconds(7 * 24 * 3600);  // a dead node ends it within the silence deadline
constexpr size_t kCopyBytes = 256 * kKiB;
constexpr char kLeftPrefix[] = "left-";
constexpr char kManifest[] = "losses.json";

class LossRecovery {
 public:
  LossRecovery(const JobMountOptions& options, const std::set<uint32_t>& without)
      : options_(options), without_(without) {}

  Result<LossesFound> run(Losses losses, const std::function<void(const LossesFound&)>& ready) {
    SWALE_ASSIGN_OR_RETURN(folders_, find_job_folders(options_));
    SWALE_RETURN_IF_ERROR(meet());
    SWALE_RETURN_IF_ERROR(net::agree(*job_, contain([&] { return open(); })));
    SWALE_RETURN_IF_ERROR(plan());
    if (losses == Losses::kAccept) SWALE_RETURN_IF_ERROR(bring());
    LossesFound found;
    found.document = fs::loss_document(plan_, outcomes_);
    found.text = fs::loss_text(plan_, outcomes_);
    found.any = plan_.loses();
    found.is_first = is_first();
    if (losses == Losses::kLook) SWALE_RETURN_IF_ERROR(look([&] { ready(found); }));
    left_.reset();
    SWALE_RETURN_IF_ERROR(losses == Losses::kAccept ? forget() : job_->close());
    return found;
  }

 private:
  Status meet();
  Status open();
  Status plan();
  Status look(const std::function<void()>& ready);
  Status bring();
  Status begin_folders();
  Status write_own();
  Status write_copies(size_t index);
  Status settle(size_t index);
  Result<bool> publish(const fs::FileLoss& loss, io::File& out);
  Status fill_holes(const fs::FileLoss& loss, io::File* base, io::File& out);
  Status share_outcomes();
  Status forget();
  bool is_first() const { return job_->rank() == 0; }
  // Which node of those that are left makes the file of it.
  bool is_mine(const fs::FileLoss& loss) const { return loss.file.high == left_->node(); }
  std::string staged(const fs::FileLoss& loss) const {
    return job_folder_ + "/" + fs::marked_name(kLeftPrefix, loss.file);
  }
  std::string kept_name(const fs::FileLoss& loss) const { return fs::marked_name("", loss.file); }

  const JobMountOptions& options_;
  const std::set<uint32_t> without_;
  JobFolders folders_;
  io::Descriptor buffer_lock_;
  std::string job_name_;
  io::PosixDevice device_;
  Meeting meeting_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<fs::BackingClaim> claim_;  // of the first
  std::unique_ptr<io::Device> anchored_;
  std::unique_ptr<fs::LeftNode> left_;
  std::vector<fs::NodeSurvey> surveys_;  // by rank
  fs::LossPlan plan_;
  std::vector<fs::LossOutcome> outcomes_;  // of each file of the plan
  std::string job_folder_, lost_folder_;
};

Status LossRecovery::meet() {
  const SignalsBlocked blocked;
  net::JobOptions of_job;
  if (options_.nodes) {
    SWALE_ASSIGN_OR_RETURN(meeting_, meet_in_backing(folders_, *options_.nodes));
    of_job = options_.nodes->settings.job;
  } else {
    meeting_.bootstrap = net::solo_bootstrap();
    of_job.transport = "loopback";
  }
  of_job.collective_deadline = kLongestRecovery;
  SWALE_ASSIGN_OR_RETURN(job_, net::Job::open(std::move(meeting_.bootstrap), of_job));
  return {};
}

Status LossRecovery::open() {
  SWALE_ASSIGN_OR_RETURN(buffer_lock_, lock_buffer(folders_));
  SWALE_ASSIGN_OR_RETURN(job_name_, read_served_job(device_, folders_));
  if (job_name_.empty())
    return error(Code::kNotFound, Scope::kFile, "{}: no job has left anything there", folders_.buffer);
  if (is_first()) {
    SWALE_ASSIGN_OR_RETURN(
        claim_, fs::BackingClaim::take(folders_.root.get(), folders_.backing, job_name_, host_name()));
  }
  io::PosixOptions beneath;
  beneath.links = io::PosixOptions::Links::kNone;
  SWALE_ASSIGN_OR_RETURN(anchored_, io::PosixDevice(beneath).anchored(folders_.backing));
  fs::LeftNodeOptions of_node;
  of_node.job = job_name_;
  of_node.names_folder = folders_.buffer + "/names";
  of_node.state_folder = folders_.buffer + "/state";
  of_node.logs.memory_directory = folders_.memory + "/node";
  of_node.logs.spill_directory = folders_.buffer + "/spill";
  of_node.logs.memory_bytes = options_.memory_bytes;
  of_node.logs.shape.node = host_name();
  SWALE_ASSIGN_OR_RETURN(left_, fs::LeftNode::open(device_, *anchored_, folders_.backing, of_node));
  return {};
}

Status LossRecovery::plan() {
  SWALE_ASSIGN_OR_RETURN(const auto all, job_->allgather(fs::encode(left_->survey())));
  for (const std::string& each : all) {
    SWALE_ASSIGN_OR_RETURN(fs::NodeSurvey survey, fs::decode_survey(each));
    surveys_.push_back(std::move(survey));
  }
  for (const fs::NodeSurvey& each : surveys_)
    if (each.job != job_name_)
      return invalid_argument("{}: the buffers are of {} and of {}: name those of one job", folders_.backing,
                              job_name_, each.job);
  SWALE_ASSIGN_OR_RETURN(plan_, fs::plan_losses(surveys_, without_));
  const std::string top = folders_.backing + "/" + fs::kSwaleDirectory;
  job_folder_ = top + "/" + job_name_;
  lost_folder_ = top + "/" + fs::kLostPrefix + job_name_;
  return {};
}

Status LossRecovery::look(const std::function<void()>& ready) {
  return serve_look({.job = *job_,
                     .own = *left_,
                     .plan = plan_,
                     .surveys = surveys_,
                     .folders = folders_,
                     .backing = *anchored_,
                     .job_folder = job_folder_,
                     .threads = options_.threads,
                     .ready = ready});
}

// ---- bytes

Status LossRecovery::bring() {
  outcomes_.resize(plan_.files.size());
  SWALE_RETURN_IF_ERROR(net::agree(*job_, is_first() ? contain([&] { return begin_folders(); }) : Status()));
  SWALE_RETURN_IF_ERROR(net::agree(*job_, contain([&] { return write_own(); })));
  const Status settled = contain([&]() -> Status {
    for (size_t i = 0; i < plan_.files.size(); ++i)
      if (is_mine(plan_.files[i])) SWALE_RETURN_IF_ERROR(settle(i));
    return {};
  });
  SWALE_RETURN_IF_ERROR(net::agree(*job_, settled));
  SWALE_RETURN_IF_ERROR(share_outcomes());
  const Status listed = !is_first() ? Status() : contain([&]() -> Status {
    SWALE_RETURN_IF_ERROR(anchored_->sync_directory(lost_folder_));
    return io::replace_file(*anchored_, lost_folder_ + "/" + kManifest, fs::loss_document(plan_, outcomes_));
  });
  return net::agree(*job_, listed);
}

// What a recovery that was killed has left there is written anew.
Status LossRecovery::begin_folders() {
  const std::string top = folders_.backing + "/" + fs::kSwaleDirectory;
  SWALE_ASSIGN_OR_RETURN(const auto outer, anchored_->anchored_private(top));
  SWALE_RETURN_IF_ERROR(io::make_directories(*outer, lost_folder_));
  SWALE_ASSIGN_OR_RETURN(const auto names, anchored_->list(job_folder_));
  for (const std::string& name : names)
    if (fs::marked_file(kLeftPrefix, name))
      SWALE_RETURN_IF_ERROR(anchored_->remove(job_folder_ + "/" + name));
  return {};
}

Status LossRecovery::write_own() {
  for (size_t i = 0; i < plan_.files.size(); ++i) {
    const fs::FileLoss& loss = plan_.files[i];
    std::vector<fs::Span> mine;
    loss.kept.visit(fs::kEachByte, [&](const fs::Span& span, fs::NodeId node) {
      if (node == left_->node()) mine.push_back(span);
    });
    if (!mine.empty()) {
      SWALE_ASSIGN_OR_RETURN(const auto out, anchored_->open(staged(loss), io::OpenMode::kOpenOrCreate));
      SWALE_RETURN_IF_ERROR(left_->write_own(loss.file, mine, *out));
      SWALE_RETURN_IF_ERROR(out->sync());
    }
    if (loss.copies.contains(left_->node())) SWALE_RETURN_IF_ERROR(write_copies(i));
  }
  return {};
}

// What this node has of a file that nobody knows more of.
Status LossRecovery::write_copies(size_t index) {
  const fs::FileLoss& loss = plan_.files[index];
  std::vector<fs::Span> mine;
  loss.copies.at(left_->node()).visit(fs::kEachByte, [&](const fs::Span& span, char) {
    mine.push_back(span);
  });
  const std::string name = fmt::format("{}.node-{}", kept_name(loss), left_->node());
  SWALE_ASSIGN_OR_RETURN(const auto out,
                         anchored_->open(lost_folder_ + "/" + name, io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(out->truncate(0));
  SWALE_RETURN_IF_ERROR(left_->write_own(loss.file, mine, *out));
  SWALE_RETURN_IF_ERROR(out->truncate(loss.copies.at(left_->node()).end()));
  SWALE_RETURN_IF_ERROR(out->sync());
  outcomes_[index].kept.push_back(name);
  return {};
}

Status LossRecovery::fill_holes(const fs::FileLoss& loss, io::File* base, io::File& out) {
  std::string buffer(kCopyBytes, '\0');
  for (const fs::Span& hole : fs::unwritten(loss))
    for (uint64_t at = hole.begin, end = std::min(hole.end, loss.backing_end); base != nullptr && at < end;) {
      const auto part = MutableBytes(buffer).first(std::min<uint64_t>(buffer.size(), end - at));
      SWALE_RETURN_IF_ERROR(io::read_exactly(*base, at, part));
      SWALE_RETURN_IF_ERROR(fs::write_checked(out, at, part));
      at += part.size();
    }
  return {};
}

// Bytes of the backing are under those of the job, and never in place of lost ones.
Status LossRecovery::settle(size_t index) {
  const fs::FileLoss& loss = plan_.files[index];
  fs::LossOutcome& outcome = outcomes_[index];
  if (loss.fate == fs::FileLoss::Fate::kOpen) return {};  // there is nothing to keep
  const std::string path = loss.path.empty() ? "" : folders_.backing + "/" + loss.path;
  SWALE_ASSIGN_OR_RETURN(fs::LossBase found_base, fs::find_base(*anchored_, path, job_folder_, loss));
  const std::unique_ptr<io::File> base = std::move(found_base.file);
  bool changed = found_base.changed;
  if (loss.is_whole() && base != nullptr && loss.ours.inode != 0) {
    SWALE_ASSIGN_OR_RETURN(const fs::Stamp found, fs::stamp_of(*base));
    if (fs::SeenBacking{found.inode, found.size, found.modified_ns} == loss.ours)
      return anchored_->sync_directory(io::parent_directory(base->path()));  // it was brought already
  }
  SWALE_ASSIGN_OR_RETURN(const auto out, anchored_->open(staged(loss), io::OpenMode::kOpenOrCreate));
  SWALE_RETURN_IF_ERROR(fill_holes(loss, changed ? nullptr : base.get(), *out));
  SWALE_RETURN_IF_ERROR(out->truncate(loss.size));
  SWALE_RETURN_IF_ERROR(left_->dress(loss.file, *out));
  SWALE_RETURN_IF_ERROR(out->sync());
  if (loss.is_whole() && !changed) {
    SWALE_ASSIGN_OR_RETURN(const bool published, publish(loss, *out));
    if (published) return {};
    changed = true;
  }
  outcome.changed_there = changed && loss.is_whole();
  outcome.kept.push_back(kept_name(loss));
  return anchored_->rename(staged(loss), lost_folder_ + "/" + kept_name(loss));
}

// False: its name or its directory is not what it was.
Result<bool> LossRecovery::publish(const fs::FileLoss& loss, io::File& out) {
  SWALE_ASSIGN_OR_RETURN(const fs::Stamp ours, fs::stamp_of(out));
  SWALE_RETURN_IF_ERROR(left_->announce(loss.file, {ours.inode, ours.size, ours.modified_ns}));
  const std::string path = folders_.backing + "/" + loss.path;
  const Status renamed = loss.backing.inode == 0 ? anchored_->rename_new(staged(loss), path)
                                                 : anchored_->rename(staged(loss), path);
  if (renamed.code() == Code::kAlreadyExists || renamed.code() == Code::kNotFound) return false;
  SWALE_RETURN_IF_ERROR(renamed);
  SWALE_RETURN_IF_ERROR(anchored_->sync_directory(io::parent_directory(path)));
  return true;
}

// ---- the end

// Each node has made some of the files; all tell the same.
Status LossRecovery::share_outcomes() {
  std::string mine;
  for (const fs::LossOutcome& each : outcomes_) {
    append_u8(&mine, each.changed_there ? 1 : 0);
    append_varint(&mine, each.kept.size());
    for (const std::string& name : each.kept) append_sized(&mine, name);
  }
  SWALE_ASSIGN_OR_RETURN(const auto all, job_->allgather(mine));
  outcomes_.assign(plan_.files.size(), {});
  for (const std::string& each : all) {
    Decoder in(each);
    for (fs::LossOutcome& outcome : outcomes_) {
      outcome.changed_there = in.u8() != 0 || outcome.changed_there;
      for (uint64_t left = in.varint64(); left > 0 && in.ok(); --left) outcome.kept.emplace_back(in.sized());
    }
    SWALE_RETURN_IF_ERROR(in.finish("what a node has made of the files"));
  }
  return {};
}

// All is where it belongs: the nodes need nothing of the job any more.
Status LossRecovery::forget() {
  SWALE_RETURN_IF_ERROR(net::agree(*job_, {}));
  remove_job_folders(folders_, options_);
  const Status closed = job_->close();
  const Status left = claim_ ? claim_->leave() : Status();
  return closed.ok() ? left : closed;
}

}  // namespace

Result<LossesFound> recover_without(const JobMountOptions& options, const std::set<uint32_t>& without,
                                    Losses losses, const std::function<void(const LossesFound&)>& ready) {
  LossesFound found;
  const Status recovered = contain([&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(found, LossRecovery(options, without).run(losses, ready));
    return {};
  });
  if (!recovered.ok()) return recovered;
  return found;
}

}  // namespace swale::fuse
