// IondFiles: what an I/O server does with a request: the table of open files, checks, and calls of the store,
// on the thread that asks. It knows neither Rpc nor threads of its own.
//
// Server 0 has the directories. There a file has its name, and the attribute user.swale.stripes (id, stripe,
// servers, first server); on the others its part is called by the id. With one server a file is a plain
// one, without attribute. The owner, who is the server, can always use what is there: a mode that forbids it
// is in the attribute user.swale.mode (iond_attributes.cc).
//
// Threads: answer and drop by any; a request may wait for the store.
// Errors: answers; kResourceExhausted: more open files than the limit, drop those of clients that are gone.
// Limits: open files.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "iond/beneath.h"
#include "iond/iond_messages.h"
#include "iond/named_files.h"
#include "net/fabric/transport.h"
#include "tier/store/store.h"

namespace swale::iond {

// The directory says which server of how many it is; a new one is told. kInvalidArgument: it is another one.
Status claim_backing(const std::string& backing_directory, uint32_t server, uint32_t servers);

class IondFiles {
 public:
  struct Params {
    tier::Store* store = nullptr;
    std::string backing_directory;
    uint32_t server = 0;
    uint32_t servers = 1;
    size_t open_files_max = 65536;
  };
  static Result<std::unique_ptr<IondFiles>> make(const Params& params);

  using Reply = std::function<void(Result<std::string>)>;
  // Calls `reply` once. After the answer to a write, the thread carries out some writes of the store, as
  // Store::write says.
  void serve(IondMethod method, Bytes message, net::Rank from, const Reply& reply);
  // The same without a reply function: the answer is told when all is done.
  Result<std::string> answer(IondMethod method, Bytes message, net::Rank from);
  // Closes what a rank has left open. Its requests that are under way are finished first.
  void drop(net::Rank owner);
  size_t open_files() const;
  const tier::Store& store() const { return *params_.store; }

 private:
  // An open file: closed with the last user.
  struct Open {
    Open(tier::Store* in, tier::Store::Handle opened, io::Descriptor at, std::string called, net::Rank by)
        : store(in), handle(opened), path(std::move(at)), name(std::move(called)), owner(by) {}
    ~Open() { store->close_file(handle); }
    Open(const Open&) = delete;
    tier::Store* const store;
    const tier::Store::Handle handle;
    const io::Descriptor path;  // O_PATH
    std::string name;           // in the backing directory; IondFiles::mutex_ guards it
    const net::Rank owner;
    std::atomic<bool> name_unsynced = true;  // a sync of the file makes its name durable, too
  };

  Result<std::shared_ptr<Open>> find(uint64_t file, net::Rank from) const;
  Result<std::string> open(const IondRequest& request, net::Rank from);
  Result<Beneath::Place> place_of(const std::string& name) const;
  Result<Beneath::Place> part_place(uint64_t id, std::string* name) const;
  Result<io::Descriptor> open_name(const Beneath::Place& place, const IondRequest& request) const;
  void name_gone(const io::Descriptor& file) const;
  Status sync_name(const Beneath::Place& place) const;
  Result<std::string> remove(const IondRequest& request);
  Result<std::string> rename(const IondRequest& request);
  Result<std::string> names(IondMethod method, const IondRequest& request);
  Result<std::string> make_directory(const IondRequest& request);
  Result<std::string> remove_directory(const IondRequest& request);
  Result<std::string> list(const IondRequest& request) const;
  Result<std::string> sync_directory(const IondRequest& request) const;
  Result<std::string> link(const IondRequest& request);
  Result<std::string> make_symlink(const IondRequest& request);
  Result<uint64_t> id_if_gone(const io::Descriptor& file, const std::string& path) const;

  // What a request is about: an open file, a name on server 0, or a part. No descriptor: a part that nothing
  // was ever written to.
  struct Target {
    io::Descriptor fd;  // O_PATH
    std::string path;   // for messages
  };
  Result<Target> target_of(const IondRequest& request, net::Rank from) const;
  Result<Target> target_of(const Open& open) const;
  Status describe(const Target& target, IondAnswer* answer) const;
  Result<std::string> attributes(IondMethod method, const IondRequest& request, net::Rank from);
  Result<std::string> set_attributes(const Target& target, const IondRequest& request);
  Result<std::string> space() const;
  Status allocate(const Open& open, uint64_t offset, uint64_t length) const;
  using NewNames = std::vector<std::pair<std::shared_ptr<Open>, std::string>>;
  NewNames new_names(const std::string& from, const std::string& to, bool exchanged) const;
  void give_names(NewNames* names);
  Status sync(Open* open) const;
  Status sync_names(const std::string& name) const;
  Result<std::string> read(const Open& open, const IondRequest& request);
  Result<std::string> answered(IondMethod method, const IondRequest& request, net::Rank from);
  void write(const IondRequest& request, net::Rank from, const Reply& reply);
  Result<std::string> use(IondMethod method, const IondRequest& request, net::Rank from);
  Status agree_on_stripes(const io::Descriptor& file, const std::string& name, const Striping& wanted,
                          IondAnswer* answer);
  bool has_names() const { return params_.server == kNamesServer; }

  IondFiles(const Params& params, Beneath root) : params_(params), root_(std::move(root)) {}

  const Params params_;
  const Beneath root_;  // names that clients send lead nowhere else
  Mutex names_;         // taken before mutex_; one change of names at a time
  mutable Mutex mutex_;
  uint64_t next_ GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Open>> open_ GUARDED_BY(mutex_);
};

}  // namespace swale::iond
