#include "base/status.h"

#include <cerrno>
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

Status errno_status(int error_number, std::string_view what) {
  const std::string reason = std::generic_category().message(error_number);
  const std::string_view remedy = remedy_of_errno(error_number);
  return error(code_of_errno(error_number), Scope::kFile, "{}: {}{}{}", what, reason,
               remedy.empty() ? "" : "; ", remedy);
}

}  // namespace swale
