// JobFs: several nodes: what they tell each other of names, and drains that the root of a file leads.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/contain.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "fs/job/job_files.h"
#include "fs/job/job_fs.h"
#include "fs/job/job_marks.h"

namespace swale::fs {
namespace {

constexpr int kWishTries = 8;  // of a drain while names change
constexpr size_t kNodesAtOnce = 16;

}  // namespace

Status JobFs::join_nodes(io::Device& storage) {
  // Closed to others from the beginning: all nodes may come here at once.
  if (::mkdirat(root_directory_.get(), kSwaleDirectory, 0700) != 0 && errno != EEXIST)
    return errno_status(errno, options_.backing + "/" + kSwaleDirectory + ": making it");
  SWALE_ASSIGN_OR_RETURN(roots_,
                         KeptRoots::open(storage, options_.state_folder + "/roots", options_.share_rules));
  SWALE_ASSIGN_OR_RETURN(paths_, KnownPaths::open(storage, options_.state_folder + "/paths"));
  remote_ = std::make_unique<RemotePeers>(*peers_, *roots_);
  shared_ = std::make_unique<SharedFiles>(peers_->own(), *remote_, mutex_, options_.share_rules);
  turns_ = std::make_unique<NameTurns>(*peers_, options_.expect_own);
  if (peers_->nodes() < 2) return {};
  elsewhere_ = std::make_unique<UndrainedElsewhere>(*peers_, options_.idle);
  locks_ = std::make_unique<JobLocks>(*peers_,
                                      [this](OpenFile& file) { return commit_all(JobFile::of(file).node); });
  return locks_->start();
}

// Until all nodes are ready nobody drains: a root may believe that a node has what it has lost.
Status JobFs::begin_together() {
  if (!fsync_drains()) remote_->keep_by([this](const meta::FileId& file) { return keep_committed(file); });
  SWALE_RETURN_IF_ERROR(remote_->start(shared_.get(), &other_nodes_));
  const BeginPhase phase = life_->has_lost_power() ? BeginPhase::kLostPower : BeginPhase::kHadPower;
  uint64_t order = 0;
  for (NodeId node = 0; node < peers_->nodes(); ++node) {
    SWALE_ASSIGN_OR_RETURN(const uint64_t of_node, tell_begin(node, phase));
    order = std::max(order, of_node);
  }
  {
    const MutexLock lock(mutex_);
    files_->go_on_after(order);
  }
  SWALE_RETURN_IF_ERROR(life_->told());
  // A root that has lost power may have forgotten commits. What others write from now on comes over them.
  SWALE_RETURN_IF_ERROR(shared_->commit_found());
  for (NodeId node = 0; node < peers_->nodes(); ++node)
    SWALE_RETURN_IF_ERROR(tell_begin(node, BeginPhase::kReady).status());
  return {};
}

Result<uint64_t> JobFs::tell_begin(NodeId node, BeginPhase phase) {
  const BeginStep step{phase};
  Result<std::string> answer = node == peers_->own() ? answer_begin(node, step)
                                                     : peers_->call(node, PeerMethod::kBegin, encode(step),
                                                                    kSmallAnswer, "the beginning of a node");
  SWALE_RETURN_IF_ERROR(answer.status());
  Decoder in(*answer);
  const uint64_t order = in.u64();
  SWALE_RETURN_IF_ERROR(in.finish("an answer to a node that begins"));
  return order;
}

Result<std::string> JobFs::answer_begin(NodeId from, const BeginStep& step) {
  uint64_t order = 0;
  if (step.phase == BeginPhase::kReady) {
    const MutexLock lock(mutex_);
    ready_.insert(from);
  } else {
    SWALE_ASSIGN_OR_RETURN(order, roots_->begin_node(from, step.phase == BeginPhase::kLostPower));
  }
  std::string answer;
  append_u64(&answer, order);
  return answer;
}

bool JobFs::have_all_begun() {
  if (!shared_) return true;
  const MutexLock lock(mutex_);
  return ready_.size() == peers_->nodes();
}

Result<std::string> JobFs::answer_node(PeerMethod method, NodeId from, Bytes payload) {
  switch (method) {
    case PeerMethod::kFix:
    case PeerMethod::kWriteOut:
      return lead_->answer(method, payload);
    case PeerMethod::kBrought: {
      SWALE_ASSIGN_OR_RETURN(const DrainStep step, decode_drain_step(payload));
      hidden_.touched(step.touched);
      return lead_->answer(method, payload);
    }
    case PeerMethod::kDrain: {
      SWALE_ASSIGN_OR_RETURN(const DrainWish wish, decode_drain_wish(payload));
      return drain_for(from, wish);
    }
    case PeerMethod::kTurn:
    case PeerMethod::kTurnOver:
      return turns_->answer(method, from, payload);
    case PeerMethod::kMoved: {
      SWALE_ASSIGN_OR_RETURN(const NameNews news, decode_name_news(payload));
      hear(news);
      return std::string();
    }
    case PeerMethod::kSeal: {
      SWALE_ASSIGN_OR_RETURN(const SealStep step, decode_seal_step(payload));
      return encode(answer_seal(step));
    }
    case PeerMethod::kPages: {
      SWALE_ASSIGN_OR_RETURN(const FileStep step, decode_file_step(payload));
      return encode(PagesAnswer{drop_pages_here(step.file)});
    }
    case PeerMethod::kBegin: {
      SWALE_ASSIGN_OR_RETURN(const BeginStep step, decode_begin_step(payload));
      return answer_begin(from, step);
    }
    case PeerMethod::kUndrained:
      return UndrainedElsewhere::answer(undrained_bytes());
    case PeerMethod::kDrainAll: {
      SWALE_RETURN_IF_ERROR(drain_all());
      return std::string();
    }
    case PeerMethod::kStandIn: {
      SWALE_ASSIGN_OR_RETURN(const StandInStep step, decode_stand_in_step(payload));
      return encode(stand_in_roots_.obey(from, step));
    }
    case PeerMethod::kTakeIn: {
      SWALE_ASSIGN_OR_RETURN(const TakeInWish wish, decode_take_in_wish(payload));
      SWALE_ASSIGN_OR_RETURN(const TakeInAnswer taken, stand_in_roots_.take_in(wish));
      return encode(taken);
    }
    case PeerMethod::kLock:
    case PeerMethod::kLockGranted:
    case PeerMethod::kLockNodeGone:
      if (locks_ == nullptr) return invalid_argument("a job of one node has no locks of other nodes");
      return locks_->answer(method, from, payload);
    default:
      return std::string();
  }
}

// ---- names

void JobFs::hear(const NameNews& news) {
  if (!news.gone && nodes_.place_of(news.file))
    if (const Status learnt = learn_directory(news.directory); !learnt.ok())
      log_warn("{}: where it was renamed to: {}", news.name, learnt.message());
  const MutexLock lock(mutex_);
  if (news.gone) return name_is_gone({news.file, news.type});
  const auto before = nodes_.path_of(news.file);
  nodes_.put_if_met(news.file, {news.directory, news.name, news.type});
  note_move({news.file, news.type}, before);
}

// Another node may have made a directory that this one has not met, and moved what it has met into it.
Status JobFs::learn_directory(meta::FileId id) {
  while (id != meta::kRootDirectory && !nodes_.place_of(id)) {
    const JobNodes::LookUp began(nodes_);
    const auto node = names_.stat(id);
    std::optional<std::string> name;
    meta::ListCursor cursor;
    while (node.ok() && !name && !cursor.end()) {
      SWALE_ASSIGN_OR_RETURN(const auto found, names_.list(node->parent, &cursor, kEntriesAsked));
      for (const meta::ListedEntry& each : found)
        if (each.entry.file == id) name = each.name;
    }
    if (!node.ok() && node.status().posix_error() != ENOENT) return node.status();
    if (!name || !nodes_.put_found(began, id, {node->parent, *name, meta::NodeType::kDirectory}))
      return error(Code::kBusy, Scope::kFile, "{}: the directory is renamed or removed now", text_of(id));
    id = node->parent;
  }
  return {};
}

// The others act on what they know of it only in a turn of theirs, which comes after this one.
Status JobFs::tell(const NameNews& news) {
  if (peers_ == nullptr) return {};
  Status first;
  for (NodeId node = 0; node < peers_->nodes(); ++node) {
    if (node == peers_->own()) continue;
    const Status told =
        peers_->call(node, PeerMethod::kMoved, encode(news), kSmallAnswer, text_of(news.file)).status();
    if (first.ok()) first = told;
  }
  return first;
}

Status JobFs::tell_place(const meta::DirEntry& entry, const JobNode& parent, const char* name) {
  return tell({entry.file, entry.type, false, parent.id, name});
}

Status JobFs::tell_gone(const meta::DirEntry& entry) { return tell({entry.file, entry.type, true, {}, ""}); }

Result<SeenBacking> JobFs::seen_there(const meta::FileId& id) {
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor there, on_backing(id));
  struct stat found;
  if (!there.valid()) return SeenBacking{};
  if (::fstat(there.get(), &found) != 0) return errno_status(errno, text_of(id));
  return SeenBacking{found.st_ino, static_cast<uint64_t>(found.st_size), nanos_of(found.st_mtim)};
}

// The names forget it with the last node that holds it.
bool JobFs::is_held(const meta::FileId& id) { return names_.stat(id).status().posix_error() != ENOENT; }

void JobFs::drop_nameless() {
  const MutexLock lock(mutex_);
  const std::set<meta::FileId> kept = kept_nameless_;
  for (const meta::FileId& id : kept) {
    JobNode* const node = nodes_.find(id);
    const bool open = node != nullptr && node->opens > 0;
    if (node != nullptr) nodes_.forget(node, 1);
    if (open || is_held(id)) continue;
    kept_nameless_.erase(id);
    drop(id);
  }
}

// ---- drains

// Nodes at once: each waits for its own disks.
Status JobFs::drain_everywhere() noexcept {
  if (peers_ == nullptr) return drain_all();
  return contain([&]() -> Status {
    std::vector<Status> drained(peers_->nodes());
    std::atomic<NodeId> next = 0;
    const auto drain_some = [&] {
      for (NodeId node = next++; node < drained.size(); node = next++)
        drained[node] =
            node == peers_->own()
                ? drain_all()
                : peers_->call(node, PeerMethod::kDrainAll, "", kSmallAnswer, "its files").status();
    };
    std::vector<std::thread> threads(std::min<size_t>(drained.size(), kNodesAtOnce) - 1);
    for (std::thread& thread : threads)
      if (!start_thread(&thread, "a thread that drains a node", drain_some).ok()) break;
    drain_some();
    for (std::thread& thread : threads)
      if (thread.joinable()) thread.join();
    const auto failed = std::find_if(drained.begin(), drained.end(), [](const Status& s) { return !s.ok(); });
    return failed == drained.end() ? Status() : *failed;
  });
}

Result<DrainWish> JobFs::wish_for(const meta::FileId& file) {
  DrainWish wish{.file = file};
  for (meta::FileId id = file; id != meta::kRootDirectory;) {
    if (id != file) SWALE_RETURN_IF_ERROR(learn_directory(id));
    const auto place = nodes_.place_of(id);
    if (!place && id != file)
      return error(Code::kBusy, Scope::kFile, "{}: its directory is moved", text_of(file));
    if (!place) return error(Code::kNotFound, Scope::kFile, "no name leads to {}", text_of(file));
    wish.places.push_back({place->parent, place->name, id});
    id = place->parent;
  }
  std::reverse(wish.places.begin(), wish.places.end());
  {
    const MutexLock lock(mutex_);
    if (const auto seen = files_->seen_backing(file)) {
      wish.backing = *seen;
      return wish;
    }
  }
  // Only its times were set here.
  SWALE_ASSIGN_OR_RETURN(wish.backing, seen_there(file));
  if (wish.backing.inode == 0)
    return error(Code::kNotFound, Scope::kFile, "others have removed {} from the backing", text_of(file));
  return wish;
}

Result<Drain::Outcome> JobFs::drain_at_root(const meta::FileId& file) {
  for (int tries = 1;; ++tries) {
    const auto wish = wish_for(file);
    if (wish.status().code() == Code::kNotFound) return Drain::Outcome::kNothing;
    if (wish.status().code() == Code::kBusy && tries < kWishTries) continue;
    SWALE_RETURN_IF_ERROR(wish.status());
    if (root_of(file) == peers_->own()) return drain_here(file, peers_->own(), wish->backing);
    const auto drained =
        peers_->call(root_of(file), PeerMethod::kDrain, encode(*wish), kSmallAnswer, text_of(file));
    if (drained.status().code() == Code::kBusy && tries < kWishTries) continue;
    SWALE_RETURN_IF_ERROR(drained.status());
    if (drained->size() != 1 ||
        static_cast<uint8_t>((*drained)[0]) > static_cast<uint8_t>(Drain::Outcome::kBare))
      return error(Code::kIoError, Scope::kPeer, "{}: node {} has answered what is no outcome of a drain",
                   text_of(file), root_of(file));
    return static_cast<Drain::Outcome>((*drained)[0]);
  }
}

// What leads to the file: in a turn, so that nobody renames any of it meanwhile.
Status JobFs::learn_places(const DrainWish& wish) {
  const MutexLock changing(change_mutex_);
  SWALE_ASSIGN_OR_RETURN(const NameTurn turn, take_turn());
  meta::FileId at = meta::kRootDirectory;
  for (const KnownPlace& each : wish.places) {
    const auto entry = names_.find(at, each.name);
    if (each.directory != at || entry.status().posix_error() == ENOENT ||
        (entry.ok() && entry->file != each.id))
      return error(Code::kBusy, Scope::kFile, "{}: it was renamed or removed meanwhile", each.name);
    SWALE_RETURN_IF_ERROR(entry.status());
    nodes_.put(each.id, {at, each.name, entry->type});
    at = each.id;
  }
  return at == wish.file ? Status() : corruption("a wish for a drain: its names lead elsewhere");
}

Result<std::string> JobFs::drain_for(NodeId node, const DrainWish& wish) {
  SWALE_RETURN_IF_ERROR(learn_places(wish));
  SWALE_ASSIGN_OR_RETURN(const Drain::Outcome outcome, drain_here(wish.file, node, wish.backing));
  return std::string(1, static_cast<char>(outcome));
}

}  // namespace swale::fs
