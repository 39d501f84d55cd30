#include "base/status.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

namespace swale {
namespace {

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return Code::kNoSpace;
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    default:
      return Code::kIoError;
  }
}

// What the user can do about it; empty where we do not know.
std::string_view remedy_of_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "free space on this file system, or choose another directory";
    case EDQUOT:
      return "your quota is used up: remove files, or choose another directory";
    case EACCES:
    case EPERM:
      return "check owner and permissions of the path and of the directories above it";
    case EROFS:
      return "the file system is mounted read-only: choose another directory";
    case EMFILE:
      return "raise the process's limit on open files (ulimit -n)";
    case ENFILE:
      return "the system-wide limit on open files is reached (fs.file-max)";
    case ENAMETOOLONG:
      return "choose a shorter path";
    case ESTALE:
      return "the file was removed or replaced on the server: open it again";
    default:
      return {};
  }
}

}  // namespace

// A failure with a text of its own.
struct Status::OwningRep : Status::Rep {
  OwningRep(Code failed_code, Scope failed_scope, std::string own_text)
      : Rep{failed_code, failed_scope, {}}, text(std::move(own_text)) {
    message = text;
  }
  std::string text;
};

// What stands in for a failure whose text cannot be had: one for each code and scope, made by the compiler.
struct Status::FixedReps {
  static constexpr size_t kCodes = static_cast<size_t>(Code::kInternal) + 1;
  static constexpr size_t kScopes = static_cast<size_t>(Scope::kFatal) + 1;

  constexpr FixedReps() {
    for (size_t code = 0; code < kCodes; ++code) {
      for (size_t scope = 0; scope < kScopes; ++scope) {
        reps[code][scope] = {static_cast<Code>(code), static_cast<Scope>(scope),
                             static_cast<Code>(code) == Code::kResourceExhausted
                                 ? "out of memory, also for a longer message"
                                 : "no memory is left for this failure's message"};
      }
    }
  }
  const Rep& of(Code code, Scope scope) const {
    return reps[std::min(static_cast<size_t>(code), kCodes - 1)]
               [std::min(static_cast<size_t>(scope), kScopes - 1)];
  }

  std::array<std::array<Rep, kScopes>, kCodes> reps{};
};

template <class MakeText>
std::shared_ptr<const Status::Rep> Status::make_rep(Code code, Scope scope,
                                                    const MakeText& make_text) noexcept {
  static constexpr FixedReps kFixed;
  if (code == Code::kOk) return nullptr;
  try {
    return std::make_shared<const OwningRep>(code, scope, make_text());
  } catch (...) {
    return {std::shared_ptr<const Rep>(), &kFixed.of(code, scope)};  // owns nothing, and allocates nothing
  }
}

Status::Status(Code code, Scope scope, std::string_view message) noexcept
    : rep_(make_rep(code, scope, [&] { return std::string(message); })) {}

Status Status::formatted(Code code, Scope scope, fmt::string_view format, fmt::format_args args) noexcept {
  Status status;
  status.rep_ = make_rep(code, scope, [&] { return fmt::vformat(format, args); });
  return status;
}

Status Status::with_context(std::string_view context) const noexcept {
  if (ok()) return *this;
  Status status;
  status.rep_ = make_rep(code(), scope(), [&] { return fmt::format("{}: {}", context, message()); });
  return status;
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kCorruption:
      return "corruption";
    case Code::kIoError:
      return "input/output error";
    case Code::kNoSpace:
      return "no space";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kBusy:
      return "busy";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kAborted:
      return "aborted";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";  // from a newer peer
}

std::string_view scope_name(Scope scope) {
  switch (scope) {
    case Scope::kOperation:
      return "operation";
    case Scope::kFile:
      return "file";
    case Scope::kPeer:
      return "peer";
    case Scope::kNode:
      return "node";
    case Scope::kFatal:
      return "fatal";
  }
  return "unknown scope";
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return fmt::format("{} ({}): {}", code_name(code()), scope_name(scope()), message());
}

Status Status::out_of_memory() noexcept {
  // So short that the string needs no memory of its own, and never destroyed.
  alignas(Rep) static char memory[sizeof(Rep)];
  static const Rep* const rep =
      new (memory) Rep{Code::kResourceExhausted, Scope::kOperation, "out of memory"};
  Status status;
  status.rep_ = std::shared_ptr<const Rep>(std::shared_ptr<const Rep>(), rep);
  return status;
}

Status errno_status(int error_number, std::string_view what) noexcept {
  const std::string_view remedy = remedy_of_errno(error_number);
  try {
    const std::string reason = std::generic_category().message(error_number);
    return error(code_of_errno(error_number), Scope::kFile, "{}: {}{}{}", what, reason,
                 remedy.empty() ? "" : "; ", remedy);
  } catch (...) {
    return Status(code_of_errno(error_number), Scope::kFile, what);
  }
}

}  // namespace swale
