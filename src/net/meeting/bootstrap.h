// Bootstrap: how the ranks of a job find each other before there is a Transport.
//
// Implementations: callbacks into the caller's communicator (swale_comm), a rendezvous directory for jobs
// that give no communicator (rendezvous.h), a trivial one for a job of one rank, and an in-process one for
// tests. Threads: used by one thread at a time, inside collective calls only.
//
// No rank keeps what all ranks give: a Survey makes an answer of it while it comes by, and addresses go to an
// AddressBook, which is a file in a large job. docs/design/three-hop.md, "Opening a job".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/fabric/address_book.h"
#include "net/fabric/per_rank.h"
#include "net/fabric/transport.h"
#include "net/meeting/node_map.h"

namespace swale::net {

// Makes one answer of what all ranks give; the same on whatever rank it is made.
class Survey {
 public:
  virtual ~Survey() = default;
  // A piece of what `rank` gave. It begins at `offset`, a multiple of 8. At each offset ranks come in their
  // order, and offsets ascend; so a rank's pieces come in order, and between them those of others. Zeros may
  // follow a gift.
  virtual void take(Rank rank, size_t offset, Bytes piece) = 0;
  // After all pieces.
  virtual std::string answer() = 0;
};

class Bootstrap {
 public:
  static constexpr size_t kBytesMax = 64 * kKiB;

  virtual ~Bootstrap() = default;
  virtual Rank rank() const = 0;
  virtual int32_t size() const = 0;

  // Collective. Every rank gives a string (lengths may differ, at most kBytesMax) and gets the survey's
  // answer. Waits for all ranks, at most until the implementation's deadline, and then names the ranks that
  // did not come. `survey` may be asked on this rank, or on rank 0 alone.
  virtual Result<std::string> ask(Bytes mine, Survey* survey) = 0;

  // Collective, once. Every rank gives a row (encode_address) and gets the book of all. If a rank has no
  // address, all ranks get the failure of the lowest such rank.
  virtual Result<std::shared_ptr<const AddressBook>> publish(Bytes row, const NodeMap& nodes) = 0;
};

// kResourceExhausted if a rank gives more than Bootstrap::kBytesMax.
Status check_gathered_bytes(size_t bytes);
// For implementations that have all strings at once.
std::string answer_of(const std::vector<std::string>& all, Survey* survey);

// A job of one rank.
std::unique_ptr<Bootstrap> solo_bootstrap();

// Callbacks as in swale_comm: each returns 0 on success.
struct CommCallbacks {
  Rank rank = 0;
  int32_t size = 1;
  std::function<int(const void* send, void* receive, size_t bytes)> allgather;  // equal sizes on all ranks
  // The most that one allgather brings, if that is at least 8 bytes of each rank. An AddressBook that takes
  // more is a file of the node: its lowest rank writes it, the others read it, and its name is gone when all
  // have it open.
  size_t bytes_max = kMiB;
  std::vector<std::string> folders = {"/dev/shm", "/tmp"};  // for that file: the first that takes it
};
std::unique_ptr<Bootstrap> callback_bootstrap(CommCallbacks callbacks);

// Threads of one process as the ranks of a job: tests and examples. Its calls are for local_bootstrap.
class LocalGroup {
 public:
  explicit LocalGroup(int32_t size, Nanos deadline = seconds(60))
      : deadline_(deadline), size_(size), pending_(size) {}
  int32_t size() const { return size_; }
  Result<std::vector<std::string>> allgather(Rank rank, Bytes mine);

 private:
  const Nanos deadline_;
  const int32_t size_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t round_ GUARDED_BY(mutex_) = 0;
  PerRank<std::optional<std::string>> pending_ GUARDED_BY(mutex_);
  std::vector<std::string> last_ GUARDED_BY(mutex_);
};
std::unique_ptr<Bootstrap> local_bootstrap(std::shared_ptr<LocalGroup> group, Rank rank);

}  // namespace swale::net
