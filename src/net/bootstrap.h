// Bootstrap: how the ranks of a job find each other before there is a Transport.
//
// Implementations: callbacks into the caller's communicator (swale_comm), a rendezvous directory for jobs
// that give no communicator (rendezvous.h), a trivial one for a job of one rank, and an in-process one for
// tests. Threads: used by one thread at a time, inside collective calls only.
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
#include "net/per_rank.h"
#include "net/transport.h"

namespace swale::net {

class Bootstrap {
 public:
  static constexpr size_t kBytesMax = 64 * kKiB;

  virtual ~Bootstrap() = default;
  virtual Rank rank() const = 0;
  virtual int32_t size() const = 0;
  // Every rank gives a string (lengths may differ, at most kBytesMax); every rank receives all, in rank
  // order. Waits for all ranks, at most until the implementation's deadline, and then names the ranks that
  // did not come.
  virtual Result<std::vector<std::string>> allgather(Bytes mine) = 0;
};

// kResourceExhausted if a rank gives more than Bootstrap::kBytesMax.
Status check_gathered_bytes(size_t bytes);

// A job of one rank.
std::unique_ptr<Bootstrap> solo_bootstrap();

// Callbacks as in swale_comm: each returns 0 on success.
struct CommCallbacks {
  Rank rank = 0;
  int32_t size = 1;
  std::function<int(const void* send, void* receive, size_t bytes)> allgather;  // equal sizes on all ranks
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
