#include "fs/client/attachment.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include <cerrno>

#include "base/crc32c.h"
#include "fs/log/attach_client.h"

namespace swale::fs {
namespace {

constexpr size_t kPlaceBytesMax = 8192;

// What a process has of all trees. It is never destroyed: threads may write while the process ends.
struct Process {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Attachment>> attachments GUARDED_BY(mutex);  // by sockets
  std::map<uint64_t, std::weak_ptr<MapReader>> readers GUARDED_BY(mutex);            // by servers
};

Process& process();

void before_fork() NO_THREAD_SAFETY_ANALYSIS { process().mutex.lock(); }
void after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS { process().mutex.unlock(); }
// The connection is the parent's: its end must not wait for the child's.
void after_fork_in_child() NO_THREAD_SAFETY_ANALYSIS {
  for (auto& [socket, attachment] : process().attachments) attachment->connection = io::Descriptor();
  process().attachments.clear();
  for (const auto& [server, reader] : process().readers)
    if (const auto lives = reader.lock()) lives->settle_after_fork();
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

Result<TreePlace> tree_of(const std::string& path, ssize_t bytes, char* value) {
  if (bytes < 0) {
    if (errno == ENODATA || errno == EOPNOTSUPP) return on_no_tree(path);
    if (errno == ENOTCONN)
      return errno_status(EIO,
                          path +
                              ": the server of this node's tree is gone; start it anew (swale serve), or "
                              "bring to the backing what it had (swale fs recover)");
    return errno_status(errno, path);
  }
  AttachPlace place;
  const int failed = parse_attach_place(value, static_cast<size_t>(bytes), &place);
  if (failed == EPROTO)
    return error(Code::kUnsupported, Scope::kFile,
                 "{}: the server of the tree speaks version {} of its protocol, and this library {}: use the "
                 "same release of both",
                 path, place.version, kAttachVersion);
  if (failed != 0) return corruption("{}: {} has no socket of a tree", path, kAttachAttribute);
  return TreePlace{place.node, place.socket};
}

}  // namespace

Result<TreePlace> find_tree(const std::string& directory, const std::string& path) {
  char value[kPlaceBytesMax];
  return tree_of(path, ::getxattr(directory.c_str(), kAttachAttribute, value, sizeof(value) - 1), value);
}

Result<TreePlace> find_tree(int fd, const std::string& path) {
  char value[kPlaceBytesMax];
  return tree_of(path, ::fgetxattr(fd, kAttachAttribute, value, sizeof(value) - 1), value);
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// The mount may be dead, the server with it; the system says so in words of its own.
Status tree_failure(const TreePlace& tree, const std::string& path, int error_number, const char* what) {
  if (error_number == ENOTCONN || error_number == ECONNABORTED)
    return errno_status(EIO,
                        fmt::format("node {}: {}: {}: the server of the node is gone; start it anew (swale "
                                    "serve), or bring to the backing what it had (swale fs recover)",
                                    tree.node, path, what));
  if (error_number == EIO)
    return errno_status(EIO,
                        fmt::format("node {}: {}: {}: see the log of the server", tree.node, path, what));
  return errno_status(error_number, fmt::format("{}: {}", path, what));
}

std::shared_ptr<MapReader> map_reader(const MapRequest& answer) {
  Process& all = process();
  const MutexLock lock(all.mutex);
  std::erase_if(all.readers, [](const auto& each) { return each.second.expired(); });
  if (auto known = all.readers[answer.server].lock()) return known;
  const auto checksum = [](uint32_t crc, const char* bytes, size_t count) {
    return crc32c_extend(crc, Bytes(bytes, count));
  };
  std::shared_ptr<MapReader> made(new MapReader({.keeps_descriptors = true, .crc32c = checksum}),
                                  [](MapReader* reader) {
                                    reader->close();
                                    delete reader;
                                  });
  if (!made->open(answer)) return nullptr;
  all.readers[answer.server] = made;
  return made;
}

Result<std::shared_ptr<Attachment>> Attachment::open(const TreePlace& tree) {
  auto made = std::make_shared<Attachment>();
  ServerConnection connection;
  LogTrouble trouble;
  const int attached = attach_to_server(tree.socket.c_str(), &made->writer, &connection, &trouble);
  if (attached != 0) return errno_status(-attached, trouble.text);
  made->token = connection.token;
  made->connection = io::Descriptor(connection.socket);
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
