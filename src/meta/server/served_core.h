// ServedCore: what a Service drives: a server as a passive machine on the log of a shard. ServerCore is the
// server of a store, NamesServer that of a tree.
//
//   rim:   on_request, on_completion; then take_replies and take_calls; next_work -> Work::run on any thread
//          -> finish
//
// Threads: all calls by one thread at a time, but for Work::run. Errors: replies carry them; what throws in
// an event ends the rank's servers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "meta/index/shard.h"
#include "meta/server/messages.h"

namespace swale::meta {

// A request of a core to a server.
struct Call {
  Server to = 0;
  Method method = Method::kStats;
  std::string payload;
  uint64_t tag = 0;  // of the core; comes back with the completion
  size_t response_bytes_max = 4096;
};

struct Reply {
  uint64_t token = 0;
  Result<std::string> response{std::string()};
};

class ServedCore {
 public:
  virtual ~ServedCore() = default;

  // Goes on with what a crash has cut in half. Once, before the first request of a client.
  virtual void resume() = 0;
  // Whether an operation on several servers is under way.
  virtual bool follows_up() const = 0;

  virtual void on_request(Method method, Bytes payload, uint64_t token) = 0;
  virtual void on_completion(uint64_t tag, Result<std::string> response) = 0;
  // How long the rim keeps a failed completion back: for cores that call again at once.
  virtual Nanos pause_after_failure() const { return 0; }
  virtual void take_replies(std::vector<Reply>* out) = 0;
  virtual void take_calls(std::vector<Call>* out) = 0;
  // Whether there is something to take: next_work may answer, too.
  virtual bool has_output() const = 0;

  // Whether something has begun to wait for storage since the last call: next_work may have work.
  virtual bool take_waits() = 0;
  // Null: nothing to do now. Several may be under way.
  virtual std::unique_ptr<Work> next_work() = 0;
  virtual void finish(std::unique_ptr<Work> work) = 0;
  virtual Shard& shard() = 0;
};

}  // namespace swale::meta
