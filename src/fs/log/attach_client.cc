#include "fs/log/attach_client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "fs/log/plain_text.h"

namespace swale::fs {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void take(int fd) { fd_ = fd; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

template <class Call>
auto continued(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int not_attached(LogTrouble* trouble, int error, const char* path, const char* what) {
  if (trouble != nullptr) PlainText(trouble->text, sizeof(trouble->text)) << path << ": " << what;
  return -error;
}

// By the folder's descriptor where a path is longer than an address.
int connect_to(const char* path, int socket) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  Descriptor folder;
  if (::strlen(path) < sizeof(address.sun_path)) {
    PlainText(address.sun_path, sizeof(address.sun_path)) << path;
  } else {
    char directory[4096];
    const char* const slash = ::strrchr(path, '/');
    const size_t length = slash == nullptr ? 0 : static_cast<size_t>(slash + 1 - path);
    if (length == 0 || length >= sizeof(directory)) return ENAMETOOLONG;
    PlainText(directory, length + 1) << path;
    folder.take(::open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) return errno;
    PlainText(address.sun_path, sizeof(address.sun_path))
        << "/proc/self/fd/" << static_cast<uint64_t>(folder.get()) << "/" << path + length;
  }
  const auto* const general = reinterpret_cast<const sockaddr*>(&address);
  return continued([&] { return ::connect(socket, general, sizeof(address)); }) == 0 ? 0 : errno;
}

int receive(const char* path, int from, AttachAnswer* answer, Descriptor (*passed)[kAttachDescriptors],
            LogTrouble* trouble) {
  iovec part = {answer, sizeof(*answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(kAttachDescriptors * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = continued([&] { return ::recvmsg(from, &message, MSG_CMSG_CLOEXEC); });
  if (got < 0) return not_attached(trouble, errno, path, "the answer of the server of the node");
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    int numbers[kAttachDescriptors];
    size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > kAttachDescriptors) count = kAttachDescriptors;
    ::memcpy(numbers, CMSG_DATA(head), count * sizeof(int));
    for (size_t i = 0; i < count; ++i) (*passed)[i].take(numbers[i]);
  }
  if (static_cast<size_t>(got) != sizeof(*answer) || answer->magic != kAttachMagic ||
      answer->version != kAttachVersion)
    return not_attached(trouble, EPROTO, path, "the server gives no log, or speaks another version");
  if (answer->error != 0)
    return not_attached(trouble, answer->error, path, "the server has no log for this process");
  if ((*passed)[kAttachDescriptors - 1].get() < 0)
    return not_attached(trouble, EMFILE, path, "the descriptors of the log have not come");
  answer->folder[sizeof(answer->folder) - 1] = '\0';
  return 0;
}

}  // namespace

int parse_attach_place(char* value, size_t bytes, AttachPlace* place) noexcept {
  char* const first = static_cast<char*>(::memchr(value, ' ', bytes));
  if (first == nullptr) return EUCLEAN;
  char* const second = static_cast<char*>(::memchr(first + 1, ' ', bytes - (first + 1 - value)));
  if (second == nullptr) return EUCLEAN;
  *first = *second = value[bytes] = '\0';
  place->version = 0;
  for (const char* digit = value; *digit >= '0' && *digit <= '9'; ++digit)
    place->version = place->version * 10 + static_cast<uint32_t>(*digit - '0');
  place->node = first + 1;
  place->socket = second + 1;
  return place->version == kAttachVersion ? 0 : EPROTO;
}

int connect_to_server(const char* path, int* connected, LogTrouble* trouble) noexcept {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return not_attached(trouble, errno, path, "a socket");
  const timeval limit = {kAnswerSeconds, 0};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (::setsockopt(socket.get(), SOL_SOCKET, option, &limit, sizeof(limit)) != 0)
      return not_attached(trouble, errno, path, "a deadline of a socket");
  if (const int error = connect_to(path, socket.get()); error != 0)
    return not_attached(trouble, error, path, "connecting to the server of the node");
  // Only the user's own server may give memory to this process.
  ucred who = {};
  socklen_t bytes = sizeof(who);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
    return not_attached(trouble, errno, path, "who serves it");
  if (who.uid != ::geteuid()) return not_attached(trouble, EPERM, path, "another user serves it");
  *connected = socket.release();
  return 0;
}

int attach_to_server(const char* path, LogWriter* writer, ServerConnection* connection,
                     LogTrouble* trouble) noexcept {
  int connected = -1;
  if (const int failed = connect_to_server(path, &connected, trouble); failed != 0) return failed;
  Descriptor socket(connected);
  AttachAnswer answer;
  Descriptor passed[kAttachDescriptors];
  if (const int error = receive(path, socket.get(), &answer, &passed, trouble); error != 0) return error;
  const int attached = writer->attach({passed[0].get(), passed[1].get(), answer.folder}, answer.log, trouble);
  if (attached != 0) return attached;
  connection->token = answer.token;
  connection->socket = socket.release();
  return 0;
}

}  // namespace swale::fs
