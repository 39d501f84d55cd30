// Iond: files in stripes over the I/O servers of a job, as one rank has them open: as a client, as a server,
// or both.
//
//   auto iond = Iond::open(job, options, {});  // collective; servers give their store
//   auto file = (*iond)->open_file("run7/field", kIondCreate);
//   (*iond)->write(*file, offset, bytes);  (*iond)->read(*file, offset, out);
//   (*iond)->close_file(&*file);  (*iond)->close();                      // collective
//
// What a write has been answered for is kept as the servers' stores promise (tier::Options::durability),
// whatever happens to this rank. The servers are numbered in the order of their ranks.
//
// Threads: open and close collectively, by one thread; everything else by any number of threads.
// Errors: all ranks return the same status from open. kUnavailable and kDeadlineExceeded name the rank, its
// host, the request and the time; what was asked may have been done, in part or in full. Others name the
// server and the file, and have the errno of the server's call (Status::error_number).
// Limits: IondOptions; docs/design/iond.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "iond/iond_counters.h"
#include "iond/iond_messages.h"
#include "iond/iond_settings.h"
#include "iond/named_files.h"
#include "net/job/job.h"
#include "net/rpc/rpc.h"
#include "tier/store/store.h"

namespace swale::iond {

class IondService;

struct IondFile {
  std::string name;
  uint64_t id = 0;
  Striping striping;
  std::vector<uint64_t> handles;  // by server
};

// A file or directory by its name, or, if `open` is there, an open file: whatever its name is, if it has one
// at all. `inode`: what the name must lead to, or else the call fails with ESTALE; 0: anything.
struct IondTarget {
  std::string name;
  const IondFile* open = nullptr;
  uint64_t inode = 0;
};

// What shall be another.
struct AttributeChange {
  std::optional<uint32_t> mode = {};  // permission bits; the server can use the file all the same
  std::optional<int64_t> modified_ns = {};
};

// What a rank that serves brings. The store outlives the Iond.
struct IondServing {
  tier::Store* store = nullptr;
  std::string backing_directory;
};

class Iond {
 public:
  // `mine`: a failure of this rank before, of which all shall hear.
  static Result<std::unique_ptr<Iond>> open(net::Job& job, const IondOptions& options,
                                            const std::optional<IondServing>& serving,
                                            const Status& mine = {});
  ~Iond();
  Iond(const Iond&) = delete;

  uint32_t servers() const { return static_cast<uint32_t>(hosts_.size()); }
  const std::vector<net::Rank>& hosts() const { return hosts_; }  // the ranks that serve, by server

  // `flags`: IondFlags. `mode`: the permission bits of a file that is made, less the server's umask, unless
  // kIondExactMode is set. `inode`: as in IondTarget.
  Result<IondFile> open_file(const std::string& name, uint32_t flags, uint32_t mode = 0644,
                             uint64_t inode = 0);
  // Tells of a write that was answered and then lost. The handle is closed in any case.
  Status close_file(IondFile* file);
  Status write(const IondFile& file, uint64_t offset, Bytes data);
  // Fewer bytes only at the end of the file.
  Result<size_t> read(const IondFile& file, uint64_t offset, MutableBytes out);
  Status truncate(const IondFile& file, uint64_t size);
  Result<FileAttributes> attributes(const IondFile& file);
  Result<uint64_t> size(const IondFile& file);
  // Of a file, directory or link itself; "": the top directory.
  Result<FileAttributes> stat(const std::string& name);
  // Of a file or directory. Not atomic over servers: the time of a striped file is the latest of its parts'.
  Status set_attributes(const IondTarget& of, const AttributeChange& change);
  Status set_attributes(const std::string& name, const AttributeChange& change) {
    return set_attributes(IondTarget{name}, change);
  }
  Status sync(const IondFile& file);
  Status check(const IondFile& file);  // tells of a write that was answered and then lost
  // Space for these bytes; the file's size stays.
  Status allocate(const IondFile& file, uint64_t offset, uint64_t length);
  Status remove(const std::string& name);  // a file or a link
  // Of anything; replaces `to`, if it is a file or an empty directory, as the other one is. `flags`:
  // kIondNoReplace or kIondExchange.
  Status rename(const std::string& from, const std::string& to, uint32_t flags = 0);
  Status link(const IondTarget& file, const std::string& name);  // one more name
  Status make_symlink(const std::string& target, const std::string& name);
  Result<std::string> read_symlink(const std::string& name);
  // Attributes that users keep beside a file or directory: user.NAME, at most 64 KiB.
  Result<std::string> get_attribute(const IondTarget& of, const std::string& attribute);
  Result<std::string> list_attributes(const IondTarget& of);  // each name ends with a 0
  // `flags`: kIondExclusive: it is not there; kIondReplace: it is.
  Status put_attribute(const IondTarget& of, const std::string& attribute, Bytes value, uint32_t flags = 0);
  Status remove_attribute(const IondTarget& of, const std::string& attribute);
  // What all servers have together; free is what files that are striped evenly may still take.
  Result<IondSpace> space();
  // `flags`: kIondExactMode.
  Status make_directory(const std::string& name, uint32_t mode = 0755, uint32_t flags = 0);
  Status remove_directory(const std::string& name);  // an empty one
  Status sync_directory(const std::string& name);    // its entries; "": the top directory
  // Calls `take` for each entry, in the order of the names' bytes, until it returns false. "": the top
  // directory. What is there all the time comes once; what comes or goes meanwhile may come or not.
  Status list(const std::string& name, const std::function<bool(const IondEntry&)>& take);
  Status drain();  // returns when every server has written everything to its backing directory

  // What this rank reserves of its process's memory; a server's store has its own share.
  uint64_t memory_bytes() const { return memory_.bytes(); }

  Result<Counters> stats();  // merged over the servers

  // Of a rank that serves; zeros before and after. May be called concurrently with everything, close too.
  IondLoad load() const;

  // Collective: this rank asks nothing any more. A server returns when all ranks have come here or are dead,
  // and with a failure when one has given up: so does a rank whose goodbye a server has not heard within the
  // job's collective deadline.
  Status close();

 private:
  struct Part;
  Iond(net::Job& job, const IondOptions& options);
  Status begin(const std::optional<IondServing>& serving, const Status& mine);
  Status run(IondMethod method, const std::string& what, std::vector<Part>* parts);
  static std::vector<Part> one_for_each_server(const IondFile& file);
  std::vector<Part> parts_of(const IondFile& file, uint64_t offset, uint64_t length) const;
  Status run_one(IondMethod method, const std::string& what, const IondRequest& request,
                 const std::function<void(const IondAnswer&)>& take = {});
  static IondRequest request_of(const IondTarget& target);
  std::vector<Part> one_for_each_part(uint64_t id, const std::string& name) const;
  Status remove_parts(uint64_t id, const std::string& name);
  Status say_goodbye(uint32_t server, Nanos until);

  net::Job& job_;
  const IondOptions options_;
  std::vector<net::Rank> hosts_;      // by server
  MemoryBudget::Reservation memory_;  // of requests
  std::unique_ptr<IondService> service_;
  mutable Mutex loaded_mutex_;
  const IondService* loaded_ GUARDED_BY(loaded_mutex_) = nullptr;  // service_, while it can be asked
  std::unique_ptr<net::Rpc> rpc_;
  bool closed_ = false;
};

}  // namespace swale::iond
