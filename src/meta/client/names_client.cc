#include "meta/client/names_client.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/coding.h"
#include "base/contain.h"
#include "meta/server/messages.h"

namespace swale::meta {
namespace {

// Others of this rank may have all calls that there may be.
constexpr Nanos kLookAgain = milliseconds(1);

// A server that does not answer is an error of the device.
Status as_eio(const Status& why) {
  const bool silent = why.code() == Code::kUnavailable || why.code() == Code::kDeadlineExceeded ||
                      why.code() == Code::kAborted;
  return silent ? why.with_error_number(EIO) : why;
}

std::string path_of(const FileId& directory, std::string_view name) {
  return fmt::format("{} in directory {:x}.{:x}", name, directory.high, directory.low);
}
std::string name_of(const FileId& file) { return fmt::format("file {:x}.{:x}", file.high, file.low); }

}  // namespace

NamesClient::NamesClient(net::Rpc* rpc, const std::vector<net::Rank>* hosts, const NodeNamesOptions& options,
                         Nanos deadline, Service* servers)
    : hosts_(*hosts), deadline_(deadline), servers_(servers), rpc_(rpc), names_(options) {}

// ---- requests

// Hands calls to rpc_ until it takes no more for now.
void NamesClient::send() {
  names_.take_calls(&calls_);
  size_t taken = 0;
  for (; taken < calls_.size(); ++taken) {
    const NodeCall& each = calls_[taken];
    const auto id = rpc_.call({.to = hosts_[each.to],
                               .method = static_cast<net::RpcMethod>(Method::kNames),
                               .payload = each.payload,
                               .response_bytes_max = static_cast<uint32_t>(each.response_bytes_max),
                               .deadline = system_clock().now() + deadline_ / 3,
                               .tag = each.tag});
    if (id.ok()) continue;
    if (id.status().code() == Code::kResourceExhausted) break;  // complete some first
    names_.on_completion(each.tag, id.status());
  }
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(taken));
}

void NamesClient::hand_out() {
  NodeNames::Finished each;
  while (names_.take_finished(&each)) {
    const auto found = waiters_.find(each.id);
    if (found == waiters_.end()) continue;
    found->second->answer = std::move(each.answer);
    found->second->done = true;
    found->second->wake.notify_one();
    waiters_.erase(found);
  }
}

void NamesClient::hear(Nanos until) {
  hearing_ = true;
  const Nanos look = calls_.empty() ? until : std::min(until, system_clock().now() + kLookAgain);
  std::vector<net::RpcCompletion> done;
  {
    const MutexUnlock meanwhile(mutex_);
    static_cast<void>(contain([&] {  // without memory: what there is comes with the next one
      rpc_.wait(&done, look);
      return ok_status();
    }));
  }
  hearing_ = false;
  for (net::RpcCompletion& each : done) names_.on_completion(each.tag, std::move(each.response));
}

Status NamesClient::begin(const NameRequest& request, Waiter* mine) {
  mine->until = system_clock().now() + deadline_;
  const MutexLock lock(mutex_);
  const Status begun = contain([&]() REQUIRES(mutex_) {
    waiters_[names_.ask(request, mine->until)] = mine;
    send();
  });
  if (!begun.ok()) forget(mine);
  return begun;
}

void NamesClient::forget(Waiter* mine) {
  std::erase_if(waiters_, [&](const auto& each) { return each.second == mine; });
}

Result<NameAnswer> NamesClient::await(Waiter* mine) {
  const Service::OwnCommits::Pause pause;
  const MutexLock lock(mutex_);
  const Status waited = contain([&]() REQUIRES(mutex_) {
    for (;;) {
      send();
      hand_out();
      if (mine->done) return ok_status();
      const Nanos now = system_clock().now();
      if (now >= mine->until) {
        names_.expire(now);
      } else if (!hearing_) {
        hear(mine->until);
      } else {
        mine->sleeps = true;
        mine->wake.wait_for(mutex_, mine->until - now);
        mine->sleeps = false;
      }
    }
  });
  if (!waited.ok()) forget(mine);
  // Somebody else hears from now on: the next one that asks, or one that sleeps.
  const auto sleeps =
      std::find_if(waiters_.begin(), waiters_.end(), [](const auto& each) { return each.second->sleeps; });
  if (!hearing_ && sleeps != waiters_.end()) sleeps->second->wake.notify_one();
  if (!waited.ok()) return waited;
  return std::move(mine->answer);
}

Result<NameAnswer> NamesClient::ask_once(const NameRequest& request) {
  const Service::OwnCommits together = this->together();
  Waiter mine;
  SWALE_RETURN_IF_ERROR(begin(request, &mine));
  return await(&mine);
}

Result<NameAnswer> NamesClient::judged(const NameRequest& request, Result<NameAnswer> answer) {
  if (!answer.ok()) return as_eio(answer.status());
  if (answer->error == 0) return answer;
  const std::string what =
      request.directory.none() ? name_of(request.file) : path_of(request.directory, request.name);
  return errno_status(answer->error, what);
}

Result<NameAnswer> NamesClient::ask(NameRequest request) { return judged(request, ask_once(request)); }

NamesClient::Asked::Asked(NamesClient& names, NameRequest request)
    : names_(names), request_(std::move(request)), waiter_(std::make_unique<Waiter>()) {
  const Status begun = names_.begin(request_, waiter_.get());
  if (begun.ok()) return;
  waiter_->answer = begun;
  waiter_->done = true;
}

Result<NameAnswer> NamesClient::Asked::end() {
  if (!waiter_) return NameAnswer();
  const std::unique_ptr<Waiter> mine = std::move(waiter_);
  return judged(request_, names_.await(mine.get()));
}

Status NamesClient::finish() {
  const Nanos until = system_clock().now() + deadline_;
  const MutexLock lock(mutex_);
  for (;;) {
    send();
    hand_out();
    if (names_.at_rest()) return {};
    if (system_clock().now() >= until)
      return error(Code::kDeadlineExceeded, Scope::kOperation,
                   "servers of the tree have not answered all that this node has asked");
    if (hearing_) return invalid_argument("the tree is closed while a thread of this node still asks");
    hear(until);
  }
}

NameRequest NamesClient::in(NameOp op, const FileId& directory, std::string_view name) const {
  NameRequest request;
  request.op = op;
  request.directory = directory;
  request.name = name;
  return request;
}

NameRequest NamesClient::of(NameOp op, const FileId& file) const {
  NameRequest request;
  request.op = op;
  request.file = file;
  return request;
}

namespace {

void set_new(NameRequest* request, const NewNode& node, AnswerWait wait) {
  request->mode = node.mode;
  request->uid = node.uid;
  request->gid = node.gid;
  request->now_ns = node.now_ns;
  request->wait = wait;
}

constexpr int kAgainMax = 100;  // names that lead to files which are removed at that moment

Status too_busy(const FileId& directory, std::string_view name) {
  return error(Code::kBusy, Scope::kOperation, "{}: was replaced again and again", path_of(directory, name));
}

}  // namespace

// ---- names

Result<Named> NamesClient::complete(NameAnswer answer) {
  if (answer.node) return Named{answer.entry, *std::move(answer.node)};
  SWALE_ASSIGN_OR_RETURN(TreeNode node, stat(answer.entry.file));
  return Named{answer.entry, std::move(node)};
}

Result<Named> NamesClient::look_up(const FileId& directory, std::string_view name) {
  for (int i = 0; i < kAgainMax; ++i) {
    SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(in(NameOp::kLookUp, directory, name)));
    Result<Named> named = complete(std::move(answer));
    if (named.status().code() != Code::kNotFound) return named;  // else it was removed meanwhile
  }
  return too_busy(directory, name);
}

Result<DirEntry> NamesClient::find(const FileId& directory, std::string_view name) {
  NameRequest request = in(NameOp::kLookUp, directory, name);
  request.flags = kEntryOnly;
  SWALE_ASSIGN_OR_RETURN(const NameAnswer answer, ask(std::move(request)));
  return answer.entry;
}

Result<DirEntry> NamesClient::walk(std::string_view path) {
  DirEntry at{kRootDirectory, NodeType::kDirectory};
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    if (name.empty()) continue;
    if (at.type != NodeType::kDirectory) return errno_status(ENOTDIR, path_of(at.file, name));
    SWALE_ASSIGN_OR_RETURN(at, find(at.file, name));
  }
  return at;
}

Result<Opened> NamesClient::open(const FileId& directory, std::string_view name) {
  for (int i = 0; i < kAgainMax; ++i) {
    SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(in(NameOp::kOpen, directory, name)));
    const FileId file = answer.entry.file;
    if (!answer.held && answer.entry.type == NodeType::kFile) {  // its node is at another server
      const Result<NameAnswer> held = ask(of(NameOp::kHold, file));
      if (held.status().code() == Code::kNotFound) continue;  // removed meanwhile
      SWALE_RETURN_IF_ERROR(held.status());
      answer.node = held->node;
    }
    Result<Named> named = complete(std::move(answer));
    if (named.ok()) return Opened{file, std::move(named->node)};
    if (named.status().code() != Code::kNotFound) return named.status();
  }
  return too_busy(directory, name);
}

NameRequest NamesClient::to_create(const FileId& directory, std::string_view name, const NewNode& node,
                                   bool exclusive, AnswerWait wait, Hold hold) const {
  NameRequest request = in(NameOp::kCreate, directory, name);
  set_new(&request, node, wait);
  request.flags = (hold == Hold::kYes ? kAndHold : 0) | (exclusive ? kExclusive : 0);
  return request;
}

Result<Opened> NamesClient::create(const FileId& directory, std::string_view name, const NewNode& node,
                                   bool exclusive, AnswerWait wait) {
  const NameRequest request = to_create(directory, name, node, exclusive, wait);
  return made(request, ask(request));
}

Result<Opened> NamesClient::made(const NameRequest& request, Result<NameAnswer> answer) {
  for (int i = 0; i < kAgainMax; ++i) {
    if (i > 0) answer = ask(request);
    SWALE_RETURN_IF_ERROR(answer.status());
    const DirEntry entry = answer->entry;
    const bool made = answer->made;
    if (!answer->held && (request.flags & kAndHold) != 0 && entry.type == NodeType::kFile) {
      const Result<NameAnswer> held = ask(of(NameOp::kHold, entry.file));
      if (held.status().code() == Code::kNotFound) continue;
      SWALE_RETURN_IF_ERROR(held.status());
      answer->node = held->node;
    }
    Result<Named> named = complete(*std::move(answer));
    if (named.ok()) return Opened{entry.file, std::move(named->node), made};
    if (named.status().code() != Code::kNotFound) return named.status();
  }
  return too_busy(request.directory, request.name);
}

NamesClient::Creating::Creating(NamesClient& names, const FileId& directory, std::string_view name,
                                const NewNode& node, Hold hold)
    : names_(names), file_{EntryKey(directory, name), node.mode, node.uid, node.gid, node.now_ns} {
  if (hold == Hold::kNo) making_.emplace(names.servers_, file_);
  if (making_ && making_->has_begun()) return;
  asked_.emplace(names, names.to_create(directory, name, node, true, AnswerWait::kWritten, hold));
}

Result<Opened> NamesClient::Creating::end() {
  if (asked_) return names_.made(asked_->request(), asked_->end());
  Result<MadeFile> made = making_->end(names_.deadline_);
  if (!made.ok()) return as_eio(made.status());
  if (made->error != 0) return errno_status(made->error, path_of(file_.key.directory, file_.key.name));
  return Opened{made->file, std::move(made->node), true};
}

NamesClient::Creating::~Creating() {
  if (!asked_ || asked_->ended()) return;
  const bool holds = (asked_->request().flags & kAndHold) != 0;
  if (const auto made = end(); made.ok() && holds) static_cast<void>(names_.release(made->file));
}

Result<Named> NamesClient::make_directory(const FileId& directory, std::string_view name, const NewNode& node,
                                          AnswerWait wait) {
  NameRequest request = in(NameOp::kMakeDirectory, directory, name);
  set_new(&request, node, wait);
  SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(std::move(request)));
  return complete(std::move(answer));
}

Result<Named> NamesClient::symlink(const FileId& directory, std::string_view name, std::string_view target,
                                   const NewNode& node, AnswerWait wait) {
  NameRequest request = in(NameOp::kSymlink, directory, name);
  set_new(&request, node, wait);
  request.value = target;
  SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(std::move(request)));
  return complete(std::move(answer));
}

Result<DirEntry> NamesClient::unlink(const FileId& directory, std::string_view name, int64_t now_ns,
                                     AnswerWait wait) {
  NameRequest request = in(NameOp::kUnlink, directory, name);
  request.now_ns = now_ns;
  request.wait = wait;
  SWALE_ASSIGN_OR_RETURN(const NameAnswer answer, ask(std::move(request)));
  return answer.entry;
}

Status NamesClient::remove_directory(const FileId& directory, std::string_view name, int64_t now_ns,
                                     AnswerWait wait) {
  NameRequest request = in(NameOp::kRemoveDirectory, directory, name);
  request.now_ns = now_ns;
  request.wait = wait;
  return ask(std::move(request)).status();
}

Status NamesClient::rename(const FileId& from, std::string_view name, const FileId& to,
                           std::string_view to_name, uint8_t flags, int64_t now_ns, AnswerWait wait) {
  NameRequest request = in(NameOp::kRename, from, name);
  request.target = to;
  request.target_name = to_name;
  request.flags = flags;
  request.now_ns = now_ns;
  request.wait = wait;
  return ask(std::move(request)).status();
}

Result<std::vector<ListedEntry>> NamesClient::list(const FileId& directory, ListCursor* cursor,
                                                   uint32_t most) {
  if (!cursor->begun) {
    SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(of(NameOp::kMembers, directory)));
    cursor->servers = std::move(answer.members);
    cursor->begun = true;
  }
  while (!cursor->servers.empty()) {
    NameRequest request = in(NameOp::kList, directory, cursor->name);
    request.file = {cursor->servers.back(), 1};
    request.count = most;
    SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(std::move(request)));
    if (answer.more) {
      cursor->name = answer.list.back().name;
    } else {
      cursor->name.clear();
      cursor->servers.pop_back();
    }
    if (!answer.list.empty()) return std::move(answer.list);
  }
  return std::vector<ListedEntry>();
}

// ---- files

Result<TreeNode> NamesClient::stat(const FileId& file) {
  SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(of(NameOp::kStat, file)));
  if (!answer.node) return corruption("{}: an answer without attributes", name_of(file));
  return *std::move(answer.node);
}

Result<std::string> NamesClient::read_link(const FileId& link) {
  SWALE_ASSIGN_OR_RETURN(TreeNode node, stat(link));
  if (node.type != NodeType::kLink) return errno_status(EINVAL, name_of(link));
  return std::move(node.target);
}

NameRequest NamesClient::to_set(const FileId& file, const NodeChange& change, AnswerWait wait) const {
  NameRequest request = of(NameOp::kSetNode, file);
  request.set = change.set;
  request.mode = change.mode;
  request.uid = change.uid;
  request.gid = change.gid;
  request.accessed_ns = change.accessed_ns;
  request.modified_ns = change.modified_ns;
  request.now_ns = change.now_ns;
  request.wait = wait;
  return request;
}

Result<TreeNode> NamesClient::set_attributes(const FileId& file, const NodeChange& change, AnswerWait wait) {
  SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(to_set(file, change, wait)));
  if (answer.node) return *std::move(answer.node);
  return stat(file);  // the repetition of one whose file is gone
}

Result<std::string> NamesClient::read_user(const FileId& file, std::string_view name) {
  NameRequest request = of(NameOp::kReadUser, file);
  request.name = name;
  SWALE_ASSIGN_OR_RETURN(NameAnswer answer, ask(std::move(request)));
  return std::move(answer.value);
}

Result<std::vector<std::string>> NamesClient::list_users(const FileId& file) {
  SWALE_ASSIGN_OR_RETURN(const NameAnswer answer, ask(of(NameOp::kListUsers, file)));
  std::vector<std::string> names;
  Decoder in(answer.value);
  while (in.ok() && in.remaining() > 0) names.emplace_back(in.sized());
  SWALE_RETURN_IF_ERROR(in.finish("the names of user attributes"));
  return names;
}

Status NamesClient::set_user(const FileId& file, std::string_view name, std::string_view value,
                             uint8_t flags) {
  NameRequest request = of(NameOp::kSetUser, file);
  request.name = name;
  request.value = value;
  request.flags = flags;
  return ask(std::move(request)).status();
}

Status NamesClient::remove_user(const FileId& file, std::string_view name) {
  NameRequest request = of(NameOp::kRemoveUser, file);
  request.name = name;
  return ask(std::move(request)).status();
}

Status NamesClient::hold(const FileId& file) { return ask(of(NameOp::kHold, file)).status(); }

Status NamesClient::release(const FileId& file) {
  const MutexLock lock(mutex_);
  if (!names_.release(file)) return invalid_argument("{}: this node does not hold it", name_of(file));
  send();
  hand_out();
  return {};
}

}  // namespace swale::meta
