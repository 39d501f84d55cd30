// JobFs: sealed files. Nobody changes the bytes of a sealed file, on any node, until a chmod lets somebody
// write it.
//
// A chmod to read-only seals a file that nobody has open to write; else the last close of its writers does:
// the kernel tells of a close after it has returned. Who opens one to write counts as its writer first, and
// looks at its mark in the names afterwards; who seals it marks it first, and looks at its writers
// afterwards: so one of the two sees the other. With several nodes who seals has the turn, and says so by a
// mark of its own, which an opener waits out.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
namespace {

constexpr size_t kSealAnswerBytes = 1024;

}  // namespace

int JobFs::refuse_sealed(const JobNode& node) const {
  log_warn("{}: it is sealed, and its bytes cannot change: chmod u+w lets them",
           nodes_.path_of(node.id).value_or(text_of(node.id)));
  return EPERM;
}

// ---- writers

int JobFs::count_writer(JobNode& node, const Caller& caller, std::optional<uint64_t> seals_seen) {
  {
    const RequestLock lock(mutex_, requests_);
    node.writers.push_back(caller.thread);
    if (seals_seen == seals_.load()) return 0;
  }
  auto named = names_.stat(node.id);
  if (named.ok() && (named->mode & kSealChanges) != 0) {
    const auto turn = take_turn();
    const Status settled = turn.ok() ? settle_seal(node) : turn.status();
    named = settled.ok() ? names_.stat(node.id) : settled;
  }
  if (named.ok() && (named->mode & kPagesLeft) != 0) note_pages_left(node);
  if (named.ok() && (named->mode & kSealed) == 0) return 0;
  end_writer(node, caller.thread);
  return named.ok() ? refuse_sealed(node) : answer(named.status());
}

void JobFs::end_writer(JobNode& node, pid_t thread) {
  RequestLock lock(mutex_, requests_);
  const bool seals = end_writer_locked(node, thread);
  lock.unlock();
  if (seals) seal_at_close(node);
}

bool JobFs::end_writer_locked(JobNode& node, pid_t thread) {
  const auto at = std::find(node.writers.begin(), node.writers.end(), thread);
  if (at != node.writers.end()) node.writers.erase(at);
  return node.writers.empty() && std::exchange(node.seals_at_close, false);
}

// ---- one node

// The marks that a file with this mode has. The caller says so to the names before it lets the mutex go.
uint32_t JobFs::seal_of(JobNode& node, mode_t mode) {
  const bool seals = node.type == meta::NodeType::kFile && (mode & kMayWrite) == 0;
  node.seals_at_close = seals && options_.seals_wait && !node.writers.empty();
  if (!seals || node.seals_at_close) return 0;
  ++seals_;
  return kSealed;
}

// The mode may have changed since, or somebody have opened it.
void JobFs::seal_at_close(JobNode& node) {
  const auto sealed = [&]() -> Status {
    SWALE_ASSIGN_OR_RETURN(const NameTurn turn, take_turn());
    SWALE_ASSIGN_OR_RETURN(const meta::TreeNode now, names_.stat(node.id));
    if ((now.mode & (kMayWrite | kSealed)) != 0) return {};
    bool unsealed = false;
    const int failed = shared_ ? change_shared_mode(node, now.mode & 07777, &unsealed) : 0;
    if (shared_) return failed == 0 ? Status() : errno_status(failed, "its nodes");
    const RequestLock lock(mutex_, requests_);
    return set_mode(node.id, kSealed, seal_of(node, now.mode));
  }();
  if (!sealed.ok() && sealed.posix_error() != ENOENT)
    log_error("{}: sealing it when its last writer has closed it: {}; chmod a-w seals it",
              nodes_.path_of(node.id).value_or(text_of(node.id)), sealed.message());
}

// ---- several nodes

SealAnswer JobFs::answer_seal(const SealStep& step) {
  SealAnswer told;
  std::unique_ptr<JobNode> last;
  const RequestLock lock(mutex_, requests_);
  if (step.op != SealOp::kLook) ++seals_;
  if (step.op == SealOp::kUnseal && shared_ && options_.unseal_takes_back) shared_->drop_table(step.file);
  JobNode* const node = nodes_.find(step.file);
  if (node == nullptr) return told;
  if (step.op == SealOp::kUnseal) note_unsealed(*node);
  told.writers = static_cast<uint32_t>(node->writers.size());
  if (step.op != SealOp::kLook) node->seals_at_close = step.op == SealOp::kSeal && told.writers > 0;
  for (size_t i = 0; i < std::min<size_t>(told.writers, kWritersNamed); ++i)
    told.who += fmt::format("{}{}", i == 0 ? "process " : ", ", node->writers[i]);
  if (told.writers > kWritersNamed) told.who += " and more";
  if (told.writers > 0) told.who += " of node " + options_.logs.shape.node;
  last = nodes_.forget(node, 1);
  return told;
}

// All nodes are asked, also after a failure; the first failure counts.
Result<SealAnswer> JobFs::ask_all(const SealStep& step) {
  SealAnswer all = answer_seal(step);
  Status first;
  for (NodeId node = 0; peers_ != nullptr && node < peers_->nodes(); ++node) {
    if (node == peers_->own()) continue;
    const auto told = [&]() -> Result<SealAnswer> {
      SWALE_ASSIGN_OR_RETURN(const std::string text, peers_->call(node, PeerMethod::kSeal, encode(step),
                                                                  kSealAnswerBytes, text_of(step.file)));
      return decode_seal_answer(text);
    }();
    if (first.ok()) first = told.status();
    if (!told.ok() || told->writers == 0) continue;
    all.writers += told->writers;
    all.who += (all.who.empty() ? "" : ", ") + told->who;
  }
  if (!first.ok()) return first;
  return all;
}

// In the turn. A mark that its owner has not taken back: no node has kept anything after this.
Status JobFs::settle_seal(JobNode& node) {
  SWALE_ASSIGN_OR_RETURN(const meta::TreeNode now, names_.stat(node.id));
  if ((now.mode & kSealChanges) == 0) return {};
  SWALE_RETURN_IF_ERROR(ask_all({node.id, SealOp::kUnseal}).status());
  const RequestLock lock(mutex_, requests_);
  return set_mode(node.id, kSealed | kSealChanges, kPagesLeft);
}

// In the turn. Where a node does not answer, the file stays what it was.
int JobFs::change_shared_mode(JobNode& node, mode_t mode, bool* unsealed) {
  const auto now = names_.stat(node.id);
  if (!now.ok()) return answer(now.status());
  const uint32_t marks = now->mode & (kSealed | kSealChanges);
  const auto say = [&](uint32_t taken, uint32_t given) {
    const RequestLock lock(mutex_, requests_);
    return set_mode(node.id, taken, given);
  };
  const bool stays = marks == kSealed && (mode & kMayWrite) == 0;
  uint32_t seal = stays ? kSealed : 0, left = 0;
  if (!stays && (marks != 0 || (mode & kMayWrite) == 0)) {
    const SealOp op = (mode & kMayWrite) == 0 ? SealOp::kSeal : SealOp::kUnseal;
    if (const int failed = answer(say(kSealed, kSealChanges)); failed != 0) return failed;
    Result<SealAnswer> told = SealAnswer{};
    // What a killed server has left may be a seal that others have seen.
    if (op == SealOp::kSeal && (marks & kSealChanges) != 0) told = ask_all({node.id, SealOp::kUnseal});
    if (told.ok()) told = ask_all({node.id, op});
    if (!told.ok()) {
      static_cast<void>(answer(say(marks == kSealed ? kSealChanges : 0, marks)));
      return answer(told.status());
    }
    if (op == SealOp::kSeal && (told->writers == 0 || !options_.seals_wait)) seal = kSealed;
    if (op == SealOp::kUnseal) left = kPagesLeft;
  }
  const FilesInHand::Hold hold(in_hand_, {&node.id, 1});
  const auto set = [&](const char* path) { return ::chmod(path, mode & 07777); };
  if (const int failed = change_there(node, set); failed != 0) {
    static_cast<void>(answer(say(kSealChanges, seal)));
    return failed;
  }
  if ((mode & (S_ISUID | S_ISGID)) != 0) node.may_be_set_id.store(true);
  *unsealed = left != 0;
  return answer(
      say(07777 | kSealed | kSealChanges | (seal != 0 ? kPagesLeft : 0), (mode & 07777) | seal | left));
}

// ---- who asks

// Of a file that is not sealed it says who is in the way of that.
int JobFs::tell_seal(JobNode& node, std::string* out) {
  SealState state;
  const auto named = names_.stat(node.id);
  if (!named.ok()) return answer(named.status());
  state.sealed = (named->mode & kSealed) != 0 ? 1 : 0;
  const auto told = ask_all({node.id, SealOp::kLook});
  if (!told.ok()) return answer(told.status());
  state.writers = told->writers;
  told->who.copy(state.who, sizeof(state.who) - 1);
  out->assign(reinterpret_cast<const char*>(&state), sizeof(state));
  return 0;
}

}  // namespace swale::fs
