// NameIntent: what a server was about to change on the backing and in the names, so that a server after it
// can make the second of the two follow the first.
//
//   put() ─► the change on the backing ─► the change in the names ─► clear()
//
//   FOLDER/intent := sealed document "swale-intent" 1: op, from, to, file, inode; empty: nothing is under way
//
// It survives a kill, as the records do that it is about; and the machine if they do (kSynced).
//
// Threads: one at a time; one intent at a time.
// Errors: a document that is not whole was never begun, for the change follows its writing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/device.h"
#include "meta/index/types.h"
#include "meta/names/name_messages.h"

namespace swale::fs {

struct NameChange {
  enum class Op { kUnlink, kRemoveDirectory, kRename, kExchange };
  Op op = Op::kUnlink;
  std::string from;    // below the root: a/b
  std::string to;      // of the renames
  meta::FileId file;   // that `from` leads to
  uint64_t inode = 0;  // what it is on the backing
};

class NameIntent {
 public:
  static Result<std::unique_ptr<NameIntent>> open(io::Device& device, const std::string& folder) noexcept;

  // What the server before this one has begun.
  const std::optional<NameChange>& left() const { return left_; }

  Status put(const NameChange& change, meta::AnswerWait wait) noexcept;
  // A failure is told by the next put.
  void clear() noexcept;

 private:
  explicit NameIntent(std::unique_ptr<io::File> file) : file_(std::move(file)) {}

  std::unique_ptr<io::File> file_;
  std::optional<NameChange> left_;
};

}  // namespace swale::fs
