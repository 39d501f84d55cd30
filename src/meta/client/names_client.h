// NamesClient: the tree of a job's file system, as the processes of a node ask for it: NodeNames on net::Rpc.
//
// Directories and files are named by ids; kRootDirectory is the top. What names a directory names an entry in
// it. No call follows a link.
//
// Threads: any, many at a time: equal requests of several are combined. One of those that wait hears for all.
// Errors: Status::posix_error is the errno of POSIX for the caller. A server that is gone is EIO at once, and
// one that does not answer when the deadline has passed; the message names server, operation and ids. After
// that a change may have happened, but does not happen later, unless it was already there.
// Limits: names of kEntryNameBytesMax; deadline of NamesClientOptions for each call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/mutex.h"
#include "meta/client/node_names.h"
#include "meta/server/service.h"
#include "net/rpc/rpc.h"

namespace swale::meta {

struct Named {  // what a name leads to
  DirEntry entry;
  TreeNode node;
};
struct Opened {  // a file that this node holds: release it once for each
  FileId file;
  TreeNode node;
  bool made = false;
};
struct NewNode {
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t now_ns = 0;
};
struct NodeChange {
  uint8_t set = 0;  // NodeField
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t accessed_ns = 0, modified_ns = 0;
  int64_t now_ns = 0;
};
// Where a listing goes on. A plain value, which holds over changes: what is there all along comes once.
struct ListCursor {
  std::vector<uint64_t> servers = {};  // that are still to be asked, the last one first
  std::string name = {};
  bool begun = false;
  bool end() const { return begun && servers.empty(); }
};

class NamesClient {
  struct Waiter;
  // A request, from its making until end(), which waits for the answer; the destructor does if nobody has.
  class Asked {
   public:
    Asked(NamesClient& names, NameRequest request);
    ~Asked() { static_cast<void>(end()); }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;
    Result<NameAnswer> end();
    bool ended() const { return waiter_ == nullptr; }
    const NameRequest& request() const { return request_; }

   private:
    NamesClient& names_;
    const NameRequest request_;
    std::unique_ptr<Waiter> waiter_;
  };

 public:
  // `hosts`: the rank of each server. `servers`: those of this rank, or null. All outlive the client.
  NamesClient(net::Rpc* rpc, const std::vector<net::Rank>* hosts, const NodeNamesOptions& options,
              Nanos deadline, Service* servers = nullptr);

  Result<Named> look_up(const FileId& directory, std::string_view name);
  // The entry alone: of a directory as the node remembers it.
  Result<DirEntry> find(const FileId& directory, std::string_view name);
  Result<DirEntry> walk(std::string_view path);  // from the top: a/b/c
  // Only files are held. kOpen of others answers what they are.
  Result<Opened> open(const FileId& directory, std::string_view name);
  Result<Opened> create(const FileId& directory, std::string_view name, const NewNode& node, bool exclusive,
                        AnswerWait wait = AnswerWait::kWritten);
  // An exclusive create whose caller does something else between its making and end(), which waits for the
  // answer. Without end() the node lets the file go. kNo: it does not hold it, and owes no release.
  enum class Hold { kNo, kYes };
  // Where this rank has the server, and nobody holds the file, it is made without a message.
  class Creating {
   public:
    Creating(NamesClient& names, const FileId& directory, std::string_view name, const NewNode& node,
             Hold hold = Hold::kYes);
    ~Creating();
    Creating(const Creating&) = delete;
    Creating& operator=(const Creating&) = delete;
    Result<Opened> end();

   private:
    NamesClient& names_;
    const NewFile file_;
    std::optional<Service::Making> making_;
    std::optional<Asked> asked_;
  };
  // What this thread asks for while one lives is one record of the log (Service::OwnCommits). It must not
  // wait for other ranks meanwhile, but by this client.
  Service::OwnCommits together() { return Service::OwnCommits(servers_); }
  Result<Named> make_directory(const FileId& directory, std::string_view name, const NewNode& node,
                               AnswerWait wait = AnswerWait::kWritten);
  Result<Named> symlink(const FileId& directory, std::string_view name, std::string_view target,
                        const NewNode& node, AnswerWait wait = AnswerWait::kWritten);
  Result<DirEntry> unlink(const FileId& directory, std::string_view name, int64_t now_ns,
                          AnswerWait wait = AnswerWait::kWritten);
  Status remove_directory(const FileId& directory, std::string_view name, int64_t now_ns,
                          AnswerWait wait = AnswerWait::kWritten);
  Status rename(const FileId& from, std::string_view name, const FileId& to, std::string_view to_name,
                uint8_t flags, int64_t now_ns, AnswerWait wait = AnswerWait::kWritten);  // RenameFlag

  Result<TreeNode> stat(const FileId& file);
  Result<std::string> read_link(const FileId& link);
  Result<TreeNode> set_attributes(const FileId& file, const NodeChange& change,
                                  AnswerWait wait = AnswerWait::kWritten);
  // set_attributes whose caller does something else between its making and end(), which waits for the answer;
  // the destructor does if nobody has.
  class Setting {
   public:
    Setting(NamesClient& names, const FileId& file, const NodeChange& change, AnswerWait wait)
        : asked_(names, names.to_set(file, change, wait)) {}
    Status end() { return asked_.end().status(); }

   private:
    Asked asked_;
  };
  // The next entries, about `most` of them; none: the end.
  Result<std::vector<ListedEntry>> list(const FileId& directory, ListCursor* cursor, uint32_t most);

  Result<std::string> read_user(const FileId& file, std::string_view name);
  Result<std::vector<std::string>> list_users(const FileId& file);
  Status set_user(const FileId& file, std::string_view name, std::string_view value, uint8_t flags = 0);
  Status remove_user(const FileId& file, std::string_view name);

  Status hold(const FileId& file);
  Status release(const FileId& file);  // waits for nobody

  // Until what nobody waits for has been heard, too: releases.
  Status finish();

 private:
  struct Waiter {  // for a thread that has asked
    Nanos until = 0;
    CondVar wake;
    bool sleeps = false;
    bool done = false;
    Result<NameAnswer> answer{NameAnswer()};
  };

  Result<NameAnswer> ask(NameRequest request);
  Result<NameAnswer> ask_once(const NameRequest& request);
  Status begin(const NameRequest& request, Waiter* mine);
  Result<NameAnswer> await(Waiter* mine);
  void forget(Waiter* mine) REQUIRES(mutex_);
  NameRequest to_set(const FileId& file, const NodeChange& change, AnswerWait wait) const;
  NameRequest to_create(const FileId& directory, std::string_view name, const NewNode& node, bool exclusive,
                        AnswerWait wait, Hold hold = Hold::kYes) const;
  // What the answer to a create says; it asks again where the name has led to what is removed.
  Result<Opened> made(const NameRequest& request, Result<NameAnswer> answer);
  static Result<NameAnswer> judged(const NameRequest& request, Result<NameAnswer> answer);
  // Found a name whose node is elsewhere: the node.
  Result<Named> complete(NameAnswer answer);
  void send() REQUIRES(mutex_);
  void hear(Nanos until) REQUIRES(mutex_);  // gives the mutex up meanwhile
  void hand_out() REQUIRES(mutex_);
  NameRequest in(NameOp op, const FileId& directory, std::string_view name) const;
  NameRequest of(NameOp op, const FileId& file) const;

  const std::vector<net::Rank>& hosts_;
  const Nanos deadline_;
  Service* const servers_;
  Mutex mutex_;
  net::RpcClient rpc_;
  NodeNames names_ GUARDED_BY(mutex_);
  std::map<NodeNames::Id, Waiter*> waiters_ GUARDED_BY(mutex_);
  std::vector<NodeCall> calls_ GUARDED_BY(mutex_);  // not yet taken by rpc_
  bool hearing_ GUARDED_BY(mutex_) = false;         // a thread waits at rpc_
};

}  // namespace swale::meta
