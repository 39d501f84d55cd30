#include "fs/client/attachment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "io/unix_address.h"

namespace swale::fs {
namespace {

constexpr size_t kPlaceBytesMax = 8192;

// What a process has of all trees. It is never destroyed: threads may write while the process ends.
struct Process {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Attachment>> attachments GUARDED_BY(mutex);  // by sockets
};

Process& process();

void before_fork() NO_THREAD_SAFETY_ANALYSIS { process().mutex.lock(); }
void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS { process().mutex.unlock(); }
// The connection is the parent's: its end must not wait for the child's.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  for (auto& [socket, attachment] : process().attachments) attachment->connection = io::Descriptor();
  process().attachments.clear();
  process().mutex.unlock();
}

Process& process() {
  static Process* const made = [] {
    auto* const process = new Process();
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return process;
  }();
  return *made;
}

Status on_no_tree(const std::string& path) {
  return error(
      Code::kNotFound, Scope::kFile,
      "{}: it is on no tree of a job: start the program with swale run --backing DIRECTORY -- ..., and "
      "name a path in that directory; or write it with the system's own calls",
      path);
}

Result<TreePlace> tree_of(const std::string& path, ssize_t bytes, const char* value) {
  if (bytes < 0) {
    if (errno == ENODATA || errno == EOPNOTSUPP) return on_no_tree(path);
    if (errno == ENOTCONN)
      return errno_status(EIO,
                          path +
                              ": the server of this node's tree is gone; start it anew (swale serve), or "
                              "bring to the backing what it had (swale fs recover)");
    return errno_status(errno, path);
  }
  const std::string text(value, static_cast<size_t>(bytes));
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (second == std::string::npos)
    return corruption("{}: {} has no socket of a tree", path, kAttachAttribute);
  uint32_t version = 0;
  std::from_chars(text.data(), text.data() + first, version);
  if (version != kAttachVersion)
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: the server of the tree speaks version {} of its protocol, and this library {}: use the "
                 "same release of both",
                 path, version, kAttachVersion);
  return TreePlace{text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

// By the folder's descriptor where a path is longer than an address.
Status connect_to(const std::string& path, const io::Descriptor& to) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  io::Descriptor folder;
  if (path.size() < sizeof(address.sun_path)) {
    std::memcpy(address.sun_path, path.data(), path.size());
  } else {
    const size_t slash = path.rfind('/');
    folder = io::Descriptor(::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid()) return errno_status(errno, path);
    address = io::unix_address(folder, kAttachSocket);
  }
  const int failed =
      io::continued([&] { return ::connect(to.get(), io::general(address), sizeof(address)); });
  return failed == 0 ? Status() : errno_status(errno, path + ": connecting to the server of the node");
}

// Only the user's own server, or root's, may give memory to this process.
Status expect_own_server(const std::string& path, const io::Descriptor& server) {
  ucred who = {};
  socklen_t bytes = sizeof(who);
  if (::getsockopt(server.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
    return errno_status(errno, path);
  if (who.uid == ::geteuid()) return {};
  return errno_status(EPERM, fmt::format("{}: user {} serves it, not user {}", path, who.uid, ::geteuid()));
}

Status receive(const std::string& path, const io::Descriptor& from, AttachAnswer* answer,
               io::Descriptor (*passed)[kAttachDescriptors]) {
  iovec part = {answer, sizeof(*answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(kAttachDescriptors * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = io::continued([&] { return ::recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC); });
  if (got < 0) return errno_status(errno, path + ": the answer of the server of the node");
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    int numbers[kAttachDescriptors];
    const size_t count = std::min<size_t>((head->cmsg_len - CMSG_LEN(0)) / sizeof(int), kAttachDescriptors);
    std::memcpy(numbers, CMSG_DATA(head), count * sizeof(int));
    for (size_t i = 0; i < count; ++i) (*passed)[i] = io::Descriptor(numbers[i]);
  }
  if (static_cast<size_t>(got) != sizeof(*answer) || answer->magic != kAttachMagic ||
      answer->version != kAttachVersion)
    return errno_status(EPROTO, path + ": the server gives no log, or speaks another version");
  if (answer->error != 0)
    return errno_status(answer->error, path + ": the server has no log for this process");
  if (!(*passed)[kAttachDescriptors - 1].valid())
    return errno_status(EMFILE, path + ": the descriptors of the log have not come");
  answer->folder[sizeof(answer->folder) - 1] = '\0';
  return {};
}

}  // namespace

Result<TreePlace> find_tree(const std::string& directory, const std::string& path) {
  char value[kPlaceBytesMax];
  return tree_of(path, ::getxattr(directory.c_str(), kAttachAttribute, value, sizeof(value)), value);
}

Result<TreePlace> find_tree(int fd, const std::string& path) {
  char value[kPlaceBytesMax];
  return tree_of(path, ::fgetxattr(fd, kAttachAttribute, value, sizeof(value)), value);
}

Result<std::shared_ptr<Attachment>> Attachment::open(const TreePlace& tree) {
  auto made = std::make_shared<Attachment>();
  made->connection = io::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!made->connection.valid()) return errno_status(errno, "a socket");
  const timeval limit = {kAnswerSeconds, 0};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (::setsockopt(made->connection.get(), SOL_SOCKET, option, &limit, sizeof(limit)) != 0)
      return errno_status(errno, "a deadline of a socket");
  SWALE_RETURN_IF_ERROR(connect_to(tree.socket, made->connection));
  SWALE_RETURN_IF_ERROR(expect_own_server(tree.socket, made->connection));
  AttachAnswer answer;
  io::Descriptor passed[kAttachDescriptors];
  SWALE_RETURN_IF_ERROR(receive(tree.socket, made->connection, &answer, &passed));
  made->token = answer.token;
  LogTrouble trouble;
  const int attached =
      made->writer.attach({passed[0].get(), passed[1].get(), answer.folder}, answer.log, &trouble);
  if (attached != 0) return errno_status(-attached, trouble.text);
  return made;
}

// The mutex of the process is held.
Status WriteRight::ask_with(const std::shared_ptr<Attachment>& attachment, int fd) {
  GrantRequest request;
  request.token = attachment->token;
  if (::ioctl(fd, kAskGrant, &request) != 0) {
    if (errno != EBUSY) return errno_status(errno, "the right to write by a log");
    return error(
        Code::kBusy, Scope::kFile,
        "it is open elsewhere so that the kernel keeps its pages; until it is closed there, writes go "
        "through the mount");
  }
  kept_.push_back(attachment);
  if (file_.none()) file_ = {request.file_high, request.file_low};
  log_.store(attachment.get(), std::memory_order_release);
  return {};
}

Status WriteRight::ask(const TreePlace& tree, int fd) {
  Process& all = process();
  const MutexLock lock(all.mutex);
  if (log() != nullptr) return {};
  for (int tries = 0;; ++tries) {
    auto& attachment = all.attachments[tree.socket];
    if (attachment == nullptr) {
      auto opened = Attachment::open(tree);
      if (!opened.ok()) {
        all.attachments.erase(tree.socket);
        return opened.status();
      }
      attachment = std::move(*opened);
    }
    Status asked = ask_with(attachment, fd);
    // A server that has come anew does not know the process.
    if (asked.posix_error() != EPERM || tries > 0) return asked;
    all.attachments.erase(tree.socket);
  }
}

}  // namespace swale::fs
