// ClientCore::Operation: one call of a client, from its first messages to its result. The kinds of operations
// are in put_operation.cc, get_operations.cc, and client_core.cc.
//
// Threads: the core's. Errors: a failed answer fails the operation (client_core.h).
#pragma once

#include <optional>

#include "meta/client/client_core.h"

namespace swale::meta {

class ClientCore::Operation {
 public:
  virtual ~Operation() = default;
  virtual void begin(ClientCore* core) = 0;
  // The answer to a part; the operation may send more.
  virtual Status on_answer(ClientCore* core, size_t part, Bytes response) = 0;
  // All parts are answered.
  virtual void end(Finished*) {}
  // Where else a part that could not be answered may go; none: repeat it.
  virtual std::optional<Server> other_way(Server) { return std::nullopt; }

  Finished finished;
  size_t open_parts = 0;
};

}  // namespace swale::meta
