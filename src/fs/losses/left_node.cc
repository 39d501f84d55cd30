#include "fs/losses/left_node.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "fs/job/job_marks.h"
#include "fs/job/node_life.h"
#include "fs/node/known_paths.h"
#include "meta/names/name_table.h"

namespace swale::fs {
namespace {

constexpr size_t kCopyBytes = 256 * kKiB;       // stays in the processor's cache: written, and read again
constexpr uint64_t kRankMask = (1u << 20) - 1;  // of a node's number, which counts from 1 (job_names.cc)

// A rename that has happened, and of which other servers are still to be told.
bool is_recorded(const meta::Intent& intent) {
  return intent.kind == meta::IntentKind::kRename && intent.phase == meta::IntentPhase::kFinishing &&
         intent.moved.has_value();
}

}  // namespace

Result<std::unique_ptr<LeftNode>> LeftNode::open(io::Device& device, io::Device& backing,
                                                 const std::string& root,
                                                 const LeftNodeOptions& options) noexcept {
  std::unique_ptr<LeftNode> left;
  const Status opened = contain([&]() -> Status {
    left.reset(new LeftNode(backing, root));
    return left->begin(device, options);
  });
  if (!opened.ok()) return opened;
  return left;
}

Status LeftNode::begin(io::Device& device, const LeftNodeOptions& options) {
  SWALE_ASSIGN_OR_RETURN(names_, meta::JobNames::open_left(device, options.names_folder));
  survey_.node = names_.server->server();
  survey_.nodes = names_.servers;
  survey_.tree = names_.tree;
  survey_.job = options.job;
  SWALE_ASSIGN_OR_RETURN(roots_, KeptRoots::open(device, options.state_folder + "/roots"));
  survey_.roots = roots_->known();
  SWALE_ASSIGN_OR_RETURN(const auto paths, KnownPaths::open(device, options.state_folder + "/paths"));
  survey_.paths = paths->paths();
  SWALE_ASSIGN_OR_RETURN(const auto life,
                         NodeLife::find(device, options.logs.memory_directory, device, options.state_folder));
  survey_.has_lost_power = life->has_lost_power();
  SWALE_ASSIGN_OR_RETURN(files_, NodeFiles::open(device, device, options.logs, backing_, this));
  SWALE_RETURN_IF_ERROR(end_logs());
  if (!files_->damage().empty()) return files_->damage().front();
  for (auto& [id, logged] : survey_.logs)
    if (const auto seen = files_->seen_backing(id)) logged.seen = *seen;
  survey_names();
  return {};
}

// What programs had still to say to their server counts. The end of one log frees others that are over.
Status LeftNode::end_logs() {
  for (const uint32_t log : files_->logs().logs()) {
    const std::vector<uint32_t> left = files_->logs().logs();
    if (std::find(left.begin(), left.end(), log) != left.end()) SWALE_RETURN_IF_ERROR(files_->end_log(log));
  }
  return {};
}

// A rename that has happened, and whose other server was not yet told, counts: its entry comes first.
void LeftNode::survey_names() {
  const meta::NameTable& table = names_.server->table();
  for (const auto& [id, intent] : table.intents())
    if (is_recorded(intent))
      survey_.names.push_back({intent.target.directory, intent.target.name, *intent.moved});
  for (const auto& [key, entry] : table.entries()) survey_.names.push_back({key.directory, key.name, entry});
  for (const auto& [id, node] : table.nodes())
    if (node.type == meta::NodeType::kFile && !node.unlinked)
      survey_.files[id].on_backing = (node.mode & kOnBacking) != 0;
  table.for_each_record([&](Bytes record) {
    static_cast<void>(meta::visit_record(record, [&](meta::NameStep&& step) {
      const auto file =
          step.kind == meta::StepKind::kHolder ? survey_.files.find(step.id) : survey_.files.end();
      if (file != survey_.files.end() && (step.other & kRankMask) != 0)
        file->second.holders.push_back(static_cast<NodeId>((step.other & kRankMask) - 1));
      return ok_status();
    }));
  });
}

// They come in their order.
Status LeftNode::wrote(const meta::FileId& file, uint64_t order, const Span& span, When) {
  survey_.logs[file].orders.put(span, order);
  return {};
}

LeftDetails LeftNode::details(const LossPlan& plan) const {
  const meta::NameTable& table = names_.server->table();
  LeftDetails details;
  for (const FileLoss& loss : plan.files) {
    const meta::TreeNode* const node = table.node(loss.file);
    if (node == nullptr) continue;
    LeftDetails::File& file = details.files[loss.file];
    file = {node->mode & 07777, node->uid,        node->gid, node->accessed_ns,
            node->modified_ns,  node->changed_ns, {}};
    const auto [begin, end] = table.users(loss.file);
    for (auto at = begin; at != end; ++at) file.users.emplace(at->first.second, at->second);
  }
  for (const auto& [id, intent] : table.intents())
    if (is_recorded(intent)) details.renames.push_back({id, intent.target, *intent.moved});
  for (const auto& [key, lock] : table.locks()) details.locks.push_back({lock.holder, key});
  return details;
}

Status LeftNode::read(const meta::FileId& file, const Span& span, MutableBytes out) noexcept {
  const MutexLock lock(reading_);
  return files_->read_own(file, span, out);
}

Status LeftNode::write_own(const meta::FileId& file, std::span<const Span> spans, io::File& out) noexcept {
  return contain([&]() -> Status {
    std::string buffer(kCopyBytes, '\0');
    for (const Span& span : spans)
      for (uint64_t at = span.begin; at < span.end;) {
        const auto part = MutableBytes(buffer).first(std::min<uint64_t>(buffer.size(), span.end - at));
        SWALE_RETURN_IF_ERROR(files_->read_own(file, {at, at + part.size()}, part));
        SWALE_RETURN_IF_ERROR(write_checked(out, at, part));
        at += part.size();
      }
    return {};
  });
}

Status LeftNode::dress(const meta::FileId& file, io::File& out) noexcept {
  return contain([&]() -> Status {
    const meta::NameTable& table = names_.server->table();
    const meta::TreeNode* const node = table.node(file);
    const int fd = out.descriptor();
    if (node == nullptr || fd < 0) return {};
    mode_t mode = node->mode & 07777;
    struct stat own;
    if (::fstat(fd, &own) != 0) return errno_status(errno, out.path() + ": its attributes");
    if ((own.st_uid != node->uid || own.st_gid != node->gid) && ::fchown(fd, node->uid, node->gid) != 0) {
      if (errno != EPERM) return errno_status(errno, out.path() + ": its owner");
      mode &= 0777;
    }
    if (::fchmod(fd, mode) != 0) return errno_status(errno, out.path() + ": its mode");
    const auto [begin, end] = table.users(file);
    for (auto at = begin; at != end; ++at)
      if (::fsetxattr(fd, at->first.second.c_str(), at->second.data(), at->second.size(), 0) != 0)
        log_error("{}: its attribute {} of {} bytes is lost: the backing file system cannot keep it",
                  out.path(), at->first.second, at->second.size());
    const timespec times[2] = {timespec_of(node->accessed_ns), timespec_of(node->modified_ns)};
    return ::futimens(fd, times) == 0 ? Status() : errno_status(errno, out.path() + ": its times");
  });
}

Status LeftNode::announce(const meta::FileId& file, const SeenBacking& ours) noexcept {
  SWALE_RETURN_IF_ERROR(roots_->begin_drain(file, {}).status());
  const Status announced = roots_->announce(file, ours);
  roots_->end_drain(file);
  return announced;
}

}  // namespace swale::fs
