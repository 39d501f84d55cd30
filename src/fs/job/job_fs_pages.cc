// JobFs: pages that the kernels of the nodes keep of sealed files.
//
// An open of a sealed file reads through the kernel's pages; a later one also uses those of earlier opens,
// once a read of an open since the seal has come: the kernel has then dropped what it had from before. An
// unseal makes new opens direct on all nodes, and then drops the pages everywhere, before its answer. An open
// from the time of the seal goes on to read through pages. So the unsealed file has a mark in its names: a
// commit of a marked file drops its pages on all nodes, before its answer, until no node has such an open.
//
// A drop waits for reads of the node's programs, which need its threads that serve the mount, its mutex, and
// the lanes of other nodes that answer for names and bytes. So it is called without mutex and turn, in a
// thread of its own (FileSystem::may_drop_pages), and for other nodes in a lane behind those.
//
// Mappings. Of an open without pages the kernel reads some for a mapping, and such a read says so. From then
// on, until that open ends, no log gets a grant of the file: writes come through the mount, and take the
// kernel's pages away. A process that has one is told in the head of its log: it asks after each write for
// the pages to be dropped, before the write returns (kAskShow); also the end of a grant drops them. They go
// with the open, too, as a later one would find them without a read. For the same reason the first write
// after a grant drops what opens of before it have left.
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
void JobFs::drop_pages_by(DropPages drop) {
  const RequestLock lock(mutex_, requests_);
  drop_pages_ = std::move(drop);
}

bool JobFs::may_drop_pages(const Node* known, std::optional<mode_t> mode) const {
  if (known == nullptr) return knows_pages_left_.load();
  const auto& node = static_cast<const JobNode&>(*known);
  return node.pages_left_at.load() != 0 || node.shows_logs() ||
         (mode.value_or(0) & kMayWrite && node.sealed_at.load() != 0);
}

FileSystem::Pages JobFs::pages(const OpenFile& opened, bool maps) const {
  const auto& file = static_cast<const JobFile&>(opened);
  // Where direct writes do not drop pages, others of the node would not see them.
  const bool is_sealed = file.sealed_at != 0 && maps;
  if (!is_sealed && (shared_ || file.without_pages)) return Pages::kNone;
  // A file that was opened to be read, and is on the backing only, is read there: writes of this node take
  // away what the kernel has of that.
  if (!is_sealed && !file.own.valid() && maps) return Pages::kNone;
  file.node.may_have_pages.store(true);
  return is_sealed && file.keeps_earlier ? Pages::kKept : Pages::kOfOpen;
}

// Of an open that is being made.
void JobFs::open_sealed(JobFile& file) {
  JobNode& node = file.node;
  file.sealed_at = file.without_pages ? 0 : node.sealed_at.load();
  if (file.sealed_at == 0) return;
  file.keeps_earlier = node.pages_are_fresh;
  ++node.sealed_opens;
}

void JobFs::note_read(JobFile& file) {
  reads_.fetch_add(1, std::memory_order_relaxed);
  if (file.sealed_at == 0 || file.has_read.exchange(true)) return;
  const RequestLock lock(mutex_, requests_);
  if (file.node.sealed_at.load() == file.sealed_at) file.node.pages_are_fresh = true;
}

bool JobFs::kernel_has_pages(const JobNode& node) const {
  return node.opens_with_pages > 0 || node.sealed_opens > 0 || node.opens_mapped.load() > 0;
}

void JobFs::note_page_read(OpenFile& opened) {
  JobFile& file = JobFile::of(opened);
  if (!file.without_pages || file.is_mapped.load() || !options_.shows_to_mappings) return;
  const RequestLock lock(mutex_, requests_);
  if (file.is_mapped.load()) return;
  const std::vector<uint32_t> logs = grants_.logs_of(file.node.id);
  file.is_mapped.store(true);
  ++file.node.opens_mapped;
  tell_if_mapped(logs);
}

// Their processes hear of it with their next write.
void JobFs::tell_if_mapped(std::span<const uint32_t> logs) {
  if (files_ == nullptr) return;
  for (const uint32_t log : logs) files_->logs().set_mapped(log, grants_.has_mapped(log));
}

// A read that is under way gets its pages first: what it has read before the write goes with them.
void JobFs::show_to_mappings(JobNode& node) {
  if (!node.shows_logs()) return;
  DropPages drop;
  {
    const RequestLock lock(mutex_, requests_);
    drop = drop_pages_;
  }
  if (drop) drop(node);
  if (!node.drops_pages.load()) return;
  const RequestLock lock(mutex_, requests_);
  node.drops_pages.store(false);
  tell_if_mapped(grants_.logs_of(node.id));
}

void JobFs::end_mapping(JobFile& file) {
  if (!file.is_mapped.load()) return;
  show_to_mappings(file.node);
  const RequestLock lock(mutex_, requests_);
  if (!file.is_mapped.exchange(false)) return;
  if (--file.node.opens_mapped == 0) tell_if_mapped(grants_.logs_of(file.node.id));
}

// Of a file that was looked up: what was sealed then, and has not been unsealed since, is so still.
void JobFs::note_seal(JobNode& node, uint32_t mode, uint64_t seals_before) {
  if ((mode & kPagesLeft) != 0) note_pages_left(node);
  if ((mode & kSealed) == 0) return;
  const RequestLock lock(mutex_, requests_);
  if (seals_.load() != seals_before) return;
  if (node.sealed_at.load() == 0) {
    node.sealed_at.store(seals_before + 1);
    node.pages_are_fresh = false;
  }
  if (shared_) shared_->keep_table(node.id);
}

void JobFs::note_unsealed(JobNode& node) {
  node.sealed_at.store(0);
  node.pages_are_fresh = false;
}

void JobFs::note_pages_left(JobNode& node) {
  const uint64_t now = seals_.load() + 1;
  if (node.pages_gone_at.load() == now) return;
  node.pages_left_at.store(now);
  knows_pages_left_.store(true);
}

// Returns how many opens still read through pages.
uint32_t JobFs::drop_pages_here(const meta::FileId& file) {
  JobNode* const node = nodes_.find(file);
  if (node == nullptr) return 0;
  DropPages drop;
  uint32_t opens = 0;
  {
    const RequestLock lock(mutex_, requests_);
    opens = node->sealed_opens;
    drop = drop_pages_;
  }
  if (drop && options_.unseal_takes_back) drop(*node);
  const std::unique_ptr<JobNode> last = nodes_.forget(node, 1);
  return opens;
}

// All nodes are asked, also after a failure; the first failure counts.
int JobFs::drop_pages_everywhere(JobNode& node) {
  uint64_t left_at = node.pages_left_at.load();
  uint64_t opens = drop_pages_here(node.id);
  Status first;
  for (NodeId other = 0; peers_ != nullptr && other < peers_->nodes(); ++other) {
    if (other == peers_->own()) continue;
    const auto told = [&]() -> Result<PagesAnswer> {
      SWALE_ASSIGN_OR_RETURN(
          const std::string text,
          peers_->call(other, PeerMethod::kPages, encode(FileStep{node.id}), kSmallAnswer, text_of(node.id)));
      return decode_pages_answer(text);
    }();
    if (first.ok()) first = told.status();
    if (told.ok()) opens += told->opens;
  }
  if (!first.ok()) return answer(first);
  if (opens == 0 && left_at != 0) {
    node.pages_gone_at.store(left_at);
    node.pages_left_at.compare_exchange_strong(left_at, 0);
  }
  return 0;
}

// After a change that all nodes see from now on.
int JobFs::drop_pages_left(JobNode& node) {
  return node.pages_left_at.load() == 0 ? 0 : drop_pages_everywhere(node);
}

}  // namespace swale::fs
