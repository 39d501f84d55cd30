// JsonTree: a parsed JSON text that can be taken apart without memory.
//
// nlohmann::json's destructor allocates: it moves all children of an object to a vector first. When there is no memory
// it throws, and a destructor that throws ends the process. A JsonTree empties its innermost objects first, so that
// no destructor has anything to move; also if parsing itself ran out of memory.
// Threads: a value. Errors: root() is discarded (not an object) for a text that is not JSON; std::bad_alloc.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/bytes.h"

namespace swale::imd {

class JsonTree {
 public:
  explicit JsonTree(Bytes text);
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;

  const nlohmann::json& root() const { return holder_.root; }

 private:
  // Complete before parsing begins, so that its destructor runs after an exception.
  struct Holder {
    nlohmann::json root;
    ~Holder();
  };
  Holder holder_;
};

// json == text, which allocates and may not throw: it would end the process.
bool is_text(const nlohmann::json& json, std::string_view text);

}  // namespace swale::imd
