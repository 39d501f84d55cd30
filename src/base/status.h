// Status and Result<T>: what every operation that can fail returns.
//
// A Status is a code (what kind of failure), a scope (the largest thing that the failure ruins, so that the
// caller knows what to rebuild) and a message that names the file or peer, the offset, what was expected,
// what was found, and what the user can do. OK carries no message and allocates nothing.
//
// Making a Status never throws: a failure must be reported even when memory has run out. Without memory, a
// Status keeps its code, scope and errno, and has a fixed message.
//
// Bytes from a disk or a wire are decoded to a Result, never asserted; assertions are for our own mistakes.
// Threads: a value; distinct objects are independent.
#pragma once

#include <fmt/format.h>

#include <cassert>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace swale {

// DO NOT CHANGE THESE VALUES: they travel between ranks and through the C API (swale.h).
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,    // the caller's mistake; nothing was done
  kNotFound = 2,           // no such file, key or epoch
  kAlreadyExists = 3,      // exclusive creation of something that is there
  kCorruption = 4,         // damaged bytes on disk or on the wire
  kIoError = 5,            // the operating system refused or failed
  kNoSpace = 6,            // disk or quota full
  kResourceExhausted = 7,  // a memory budget or a stated limit
  kUnavailable = 8,        // a peer is gone or unreachable
  kDeadlineExceeded = 9,   // waited as long as promised
  kBusy = 10,              // another writer holds it
  kUnsupported = 11,       // a newer format or a feature this build lacks
  kAborted = 12,           // given up because of an earlier failure elsewhere
  kInternal = 13,          // a mistake of ours
};

// What the failure ruins, smallest first.
enum class Scope : int { kOperation = 0, kFile = 1, kPeer = 2, kNode = 3, kFatal = 4 };

std::string_view code_name(Code code);     // "corruption"
std::string_view scope_name(Scope scope);  // "file"

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(Code code, Scope scope, std::string_view message) noexcept;
  // The message is formatted as by fmt::format.
  static Status formatted(Code code, Scope scope, fmt::string_view format, fmt::format_args args) noexcept;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  Scope scope() const { return rep_ ? rep_->scope : Scope::kOperation; }
  std::string_view message() const { return rep_ ? rep_->message : std::string_view(); }
  std::string to_string() const;  // "corruption (file): ..."; "ok"

  // The errno of the system call that failed; 0 if no system call failed. with_context keeps it.
  int error_number() const { return rep_ ? rep_->error_number : 0; }
  // For callers that must answer as POSIX does: error_number, or else the errno that fits the code best. 0 if
  // ok.
  int posix_error() const;

  // The same failure with an errno, for example one that another process reported.
  Status with_error_number(int error_number) const noexcept;

  // kResourceExhausted, for std::bad_alloc. Allocates nothing.
  static Status out_of_memory() noexcept;

  // The same failure with what the caller was doing put in front.
  Status with_context(std::string_view context) const noexcept;

 private:
  struct Rep {
    Code code;
    Scope scope;
    std::string_view message;
    int error_number = 0;
  };
  struct OwningRep;
  struct FixedReps;
  friend Status errno_status(int error_number, std::string_view what) noexcept;

  template <class MakeText>
  static std::shared_ptr<const Rep> make_rep(const Rep& kind, const MakeText& make_text) noexcept;

  std::shared_ptr<const Rep> rep_;
};

inline Status ok_status() { return {}; }

// error(Code::kCorruption, Scope::kFile, "{}: block {}: ...", path, n)
template <class... Args>
Status error(Code code, Scope scope, fmt::format_string<Args...> format, Args&&... args) noexcept {
  return Status::formatted(code, scope, format, fmt::make_format_args(args...));
}
template <class... Args>
Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) noexcept {
  return error(Code::kInvalidArgument, Scope::kOperation, format, std::forward<Args>(args)...);
}
template <class... Args>
Status corruption(fmt::format_string<Args...> format, Args&&... args) noexcept {
  return error(Code::kCorruption, Scope::kFile, format, std::forward<Args>(args)...);
}

// A failed system call as a Status that keeps its errno: ENOSPC and EDQUOT become kNoSpace, ENOENT kNotFound,
// EEXIST kAlreadyExists, EACCES, EPERM and EROFS kIoError with a remedy, the rest kIoError. `what` says which
// call on which file and offset.
Status errno_status(int error_number, std::string_view what) noexcept;

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: conversions are the point
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT
    assert(!std::get<1>(state_).ok() && "a Result is made from a value or from a failure");
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

#define SWALE_CONCAT_INNER(a, b) a##b
#define SWALE_CONCAT(a, b) SWALE_CONCAT_INNER(a, b)

// Returns the failure of a Status expression to the caller.
#define SWALE_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::swale::Status swale_status_ = (expression); !swale_status_.ok()) return swale_status_; \
  } while (false)

// SWALE_ASSIGN_OR_RETURN(auto file, device.open(path)): binds the value or returns the failure.
#define SWALE_ASSIGN_OR_RETURN(lhs, expression) \
  SWALE_ASSIGN_OR_RETURN_INNER(SWALE_CONCAT(swale_result_, __LINE__), lhs, expression)
#define SWALE_ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.status();                   \
  lhs = std::move(result).value()

}  // namespace swale
