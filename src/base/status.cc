#include "base/status.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

namespace swale {
namespace {

constexpr Code code_of_errno(int error_number) {
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

// What the user can do about the failure; empty if we do not know.
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

// The inverse, for failures that did not come from a system call. Damage is EIO: some file systems return
// EUCLEAN or EBADMSG, but most programs do not know these.
int errno_of_code(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
      return EINVAL;
    case Code::kNotFound:
      return ENOENT;
    case Code::kAlreadyExists:
      return EEXIST;
    case Code::kCorruption:
    case Code::kIoError:
    case Code::kInternal:
      return EIO;
    case Code::kNoSpace:
      return ENOSPC;
    case Code::kResourceExhausted:
      return ENOMEM;
    case Code::kUnavailable:
      return EHOSTDOWN;
    case Code::kDeadlineExceeded:
      return ETIMEDOUT;
    case Code::kBusy:
      return EBUSY;
    case Code::kUnsupported:
      return EOPNOTSUPP;
    case Code::kAborted:
      return ECANCELED;
  }
  return EIO;  // from a newer peer
}

}  // namespace

// A failure with its own text.
struct Status::OwningRep : Status::Rep {
  OwningRep(const Rep& kind, std::string own_text) : Rep(kind), text(std::move(own_text)) { message = text; }
  std::string text;
};

// Failures with fixed texts, built at compile time, for use when memory has run out: one for each code and
// scope, and one for each errno.
struct Status::FixedReps {
  static constexpr size_t kCodes = static_cast<size_t>(Code::kInternal) + 1;
  static constexpr size_t kScopes = static_cast<size_t>(Scope::kFatal) + 1;
  static constexpr size_t kErrnos = EHWPOISON + 1;  // the last one of Linux

  constexpr FixedReps() {
    for (size_t code = 0; code < kCodes; ++code) {
      for (size_t scope = 0; scope < kScopes; ++scope) {
        reps[code][scope] = fixed(static_cast<Code>(code), static_cast<Scope>(scope), 0);
      }
    }
    for (size_t number = 0; number < kErrnos; ++number) {
      of_errno[number] =
          fixed(code_of_errno(static_cast<int>(number)), Scope::kFile, static_cast<int>(number));
    }
  }
  static constexpr Rep fixed(Code code, Scope scope, int error_number) {
    return {code, scope,
            code == Code::kResourceExhausted ? "out of memory, also for a longer message"
                                             : "no memory is left for this failure's message",
            error_number};
  }
  const Rep& like(const Rep& kind) const {
    const auto number = static_cast<size_t>(kind.error_number);
    if (number != 0 && number < kErrnos && of_errno[number].code == kind.code && kind.scope == Scope::kFile)
      return of_errno[number];
    return reps[std::min(static_cast<size_t>(kind.code), kCodes - 1)]
               [std::min(static_cast<size_t>(kind.scope), kScopes - 1)];
  }

  std::array<std::array<Rep, kScopes>, kCodes> reps{};
  std::array<Rep, kErrnos> of_errno{};
};

template <class MakeText>
std::shared_ptr<const Status::Rep> Status::make_rep(const Rep& kind, const MakeText& make_text) noexcept {
  static constexpr FixedReps kFixed;
  if (kind.code == Code::kOk) return nullptr;
  try {
    return std::make_shared<const OwningRep>(kind, make_text());
  } catch (...) {
    return {std::shared_ptr<const Rep>(), &kFixed.like(kind)};  // owns nothing, and allocates nothing
  }
}

Status::Status(Code code, Scope scope, std::string_view message) noexcept
    : rep_(make_rep({code, scope, {}}, [&] { return std::string(message); })) {}

Status Status::formatted(Code code, Scope scope, fmt::string_view format, fmt::format_args args) noexcept {
  Status status;
  status.rep_ = make_rep({code, scope, {}}, [&] { return fmt::vformat(format, args); });
  return status;
}

Status Status::with_context(std::string_view context) const noexcept {
  if (ok()) return *this;
  Status status;
  status.rep_ = make_rep(*rep_, [&] { return fmt::format("{}: {}", context, message()); });
  return status;
}

Status Status::with_error_number(int error_number) const noexcept {
  if (ok() || error_number == this->error_number()) return *this;
  Status status;
  Rep kind = *rep_;
  kind.error_number = error_number;
  status.rep_ = make_rep(kind, [&] { return std::string(message()); });
  return status;
}

int Status::posix_error() const { return error_number() != 0 ? error_number() : errno_of_code(code()); }

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
  // Short enough to fit inside the string object without an allocation; never destroyed.
  alignas(Rep) static char memory[sizeof(Rep)];
  static const Rep* const rep =
      new (memory) Rep{Code::kResourceExhausted, Scope::kOperation, "out of memory"};
  Status status;
  status.rep_ = std::shared_ptr<const Rep>(std::shared_ptr<const Rep>(), rep);
  return status;
}

Status errno_status(int error_number, std::string_view what) noexcept {
  const std::string_view remedy = remedy_of_errno(error_number);
  Status status;
  status.rep_ = Status::make_rep({code_of_errno(error_number), Scope::kFile, {}, error_number}, [&] {
    return fmt::format("{}: {}{}{}", what, std::generic_category().message(error_number),
                       remedy.empty() ? "" : "; ", remedy);
  });
  return status;
}

}  // namespace swale
