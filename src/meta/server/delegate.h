// Delegate: one server's part in the collective reduction of attribute requests, as a passive machine.
//
// Requests come from clients and from servers further from the root. The owner hands over all that have come,
// then calls flush(): per file and kind of request they leave as one, at once. Up to `in_flight_max` requests
// of one kind may be under way towards the root; what comes while so many are is combined, and leaves when an
// answer has come. So a delegate never waits for a client that may never come: it knows no members and has no
// timer. A storm of many costs the delegate a few messages: what it has received when it looks leaves
// together. A request is never answered by one that left before it came, so an answer is at least as new as
// its question.
//
// A parent that fails is bypassed: the same combined request goes straight to the root. Only the root's
// failure is told.
//
// Why more than one in flight: the first of a storm leaves alone. If the rest had to wait for its answer,
// every storm would take two round trips through the ring.
//
// Invariants: (1) each request is answered exactly once, unless the delegate dies; (2) at most in_flight_max
// requests a kind are upstream; (3) waiting() is at most what the callers may have under way
// (RpcParams::window_bytes).
// Threads: none; the owner serialises calls. Errors: std::bad_alloc from on_request: the request is not
// taken.
// Source: metakv III-C; there a delegate waits for all its clients, which fails when one is late or dead.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "meta/attributes/attributes.h"
#include "meta/server/ring.h"

namespace swale::meta {

enum class RingMode : uint8_t {
  kRing = 0,    // client -> delegate -> ring -> root
  kDirect = 1,  // client -> delegate -> root
  kPlain = 2,   // client -> root
};

class Delegate {
 public:
  // What the owner does for it.
  class Actions {
   public:
    virtual ~Actions() = default;
    // Sends the request to a server; on_answer(id, ...) comes later, once.
    virtual void forward(uint32_t server, const AttributeRequest& request, uint64_t id) = 0;
    // Answers a request that came with this token.
    virtual void answer(uint64_t token, const Result<std::string>& response) = 0;
  };
  struct Counters {
    uint64_t requests = 0;  // that came
    uint64_t forwarded = 0;
    uint64_t bypassed = 0;  // forwarded to the root because the parent failed
    uint64_t merged_max = 0;
  };

  struct Shape {
    uint32_t server = 0;
    uint32_t servers = 1;
    RingMode mode = RingMode::kRing;
    uint32_t radix = kRingRadix;
    size_t in_flight_max = 4;
  };

  Delegate(const Shape& shape, Actions* actions) : shape_(shape), actions_(*actions) {}

  // `root` of request.name, another server than this one. The request leaves with flush().
  void on_request(AttributeRequest request, uint32_t root, uint64_t token);
  // What forward() has led to. A failure of the way (kUnavailable, kDeadlineExceeded, kAborted) bypasses the
  // parent.
  void on_answer(uint64_t id, const Result<std::string>& response);
  // Forwards what may leave. When all that has come is handed over.
  void flush();

  const Counters& counters() const { return counters_; }
  size_t waiting() const { return waiting_; }

 private:
  struct Batch {
    AttributeRequest request;
    std::vector<uint64_t> tokens;
  };
  struct Flow {  // one kind of request of one file
    uint32_t root = 0;
    size_t in_flight = 0;
    bool bypass = false;        // the parent has failed; until the flow is idle
    bool listed = false;        // in ready_
    std::vector<Batch> queued;  // in the order in which they leave; most often one
  };
  struct Upstream {
    std::string key;
    Batch batch;
    bool straight = false;  // sent to the root
  };

  void send(const std::string& key, Flow* flow, Batch batch);
  void list(const std::string& key, Flow* flow);

  const Shape shape_;
  Actions& actions_;
  std::map<std::string, Flow> flows_;  // by file and kind
  std::vector<std::string> ready_;     // flows that flush() looks at
  std::unordered_map<uint64_t, Upstream> upstream_;
  uint64_t next_id_ = 1;
  size_t waiting_ = 0;
  Counters counters_;
};

// Whether a failure says that a server was not reached, so that another way may help.
bool unreached(const Status& status);

}  // namespace swale::meta
